"""One script for sbatch: an allocation is a run, whose cells take turns in it; requeued, it runs what is missing.

::

    sbatch  ->  srun, one task a node: dtbench execute RUN
                    |  USR1, some time before the end of the allocation
                    v
                TERM to every task, which end: launches that ended well stay
                    |  a launch has ended well since the script began?
                    +-- yes: scontrol requeue, and the same command runs the rest
                    +-- no: it ends, and says that the time is too short

"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dtbench.base.commands import spell_command, spell_word
from dtbench.launch.cluster.spawn import spell_srun
from dtbench.launch.submit.flags import Flag, make_flag, name_flags

_NOTICE_S: Final = 120
"""Before its time is up a job hears of it; tasks end within seconds."""

_SCRIPT: Final = r"""#!/bin/bash
{directives}

# One allocation is one run: its cells take turns in it. Submitted again or requeued, it runs what is missing.
export PYTHONUNBUFFERED=1
run={run}
ended_well() {{ grep -rlE --include=launch.json '"status": ?"complete"' "$run/cells" 2>/dev/null | wc -l; }}
before=$(ended_well)
stopped=
stop() {{ # tasks end by themselves: a signal to srun would kill them
    stopped=$1
    scancel --signal=TERM "$SLURM_JOB_ID" || kill -TERM "$tasks"
}}
trap 'stop time' USR1
trap 'stop asked' TERM

{srun} \
    ${{SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK}} \
    {execute} &
tasks=$!
while kill -0 "$tasks" 2>/dev/null; do wait "$tasks"; done # a signal ends wait, and not the tasks
wait "$tasks"
code=$?

if [ "$stopped" = time ]; then
    if [ "$(ended_well)" -gt "$before" ]; then
        scontrol requeue "$SLURM_JOB_ID" && exit 0
    else
        echo "no launch ended well in the time of this job: it is not requeued; give it a longer --time" >&2
    fi
fi
exit "$code"
"""


@dataclass(frozen=True)
class SlurmJob:
    """What a script of a prepared run says.

    Attributes:
        run: folder of the run, which every node sees under this path.
        scenario: its name.
        nodes: how many.
        flags: of sbatch, as typed and as asked for.
        python: the interpreter that has dtbench on every node.
    """

    run: Path
    scenario: str
    nodes: int
    flags: tuple[Flag, ...]
    python: str

    @property
    def log(self) -> str:
        """Where sbatch writes what the script prints, with ``%j`` for the job's number."""
        return name_flags(self.flags).get("output") or str(self.run / "slurm-%j.log")


def render_script(job: SlurmJob) -> str:
    """Return the script for sbatch; what a person's own flags say, dtbench's do not."""
    own = [
        make_flag("job-name", f"dtbench-{job.scenario}"),
        make_flag("nodes", str(job.nodes)),
        make_flag("ntasks-per-node", "1"),
        make_flag("requeue"),
        make_flag("signal", f"B:USR1@{_NOTICE_S}"),
        make_flag("open-mode", "append"),
        make_flag("output", job.log),
    ]
    given = {flag.name for flag in job.flags}
    replaced = given | ({"requeue"} if "no-requeue" in given else set())
    flags = [*(flag for flag in own if flag.name not in replaced), *job.flags]
    return _SCRIPT.format(
        directives="\n".join(flag.line for flag in flags),
        run=spell_word(job.run),
        srun=spell_command(*spell_srun(job.nodes)),
        execute=f'{spell_command(job.python, "-P", "-m", "dtbench", "execute")} "$run"',
    )


def read_job_number(printed: str) -> str:
    """Return the number of a job from what ``sbatch --parsable`` printed: ``123`` or ``123;cluster``."""
    lines = printed.split()
    return lines[-1].partition(";")[0] if lines else ""


def follow_commands(job: SlurmJob, number: str) -> Sequence[str]:
    """Return the commands that show how far a submitted job is."""
    return (
        spell_command("squeue", "--jobs", number),
        spell_command("tail", "-F", job.log.replace("%j", number)),
        spell_command("dtbench", "report", job.run),
    )
