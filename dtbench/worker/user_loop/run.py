"""The run folder of a person's own loop: the files that ``dtbench run`` makes, made by the ranks themselves."""

import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dtbench import __version__
from dtbench.base.errors import CaptureError, StoreError
from dtbench.plan.plan import LOOPBACK_NOTE
from dtbench.store.finish import finish_launch
from dtbench.store.layout import LaunchFolder, RunFolder, can_name_runs, new_run_folder
from dtbench.store.records.run import LaunchRecord, OwnLoop, OwnLoopCell, RankFailure, RunRecord, RunStatus
from dtbench.store.write import write_record
from dtbench.worker.machine.accelerator import find_device_problem
from dtbench.worker.machine.environment import read_environment
from dtbench.worker.machine.look import RankProcess
from dtbench.worker.user_loop.peers import Peers, RankHello


@dataclass(frozen=True)
class OwnRun:
    """A run in the making; equal on every rank.

    Attributes:
        name: of the run and of its only cell.
        processes: of all ranks, once they have met.
    """

    name: str
    folder: RunFolder
    started_unix_ns: int
    loop: OwnLoop
    processes: tuple[RankProcess, ...] = ()

    @property
    def launch(self) -> LaunchFolder:
        """The only launch."""
        return self.folder.launch(self.name, 0)

    def with_loop(self, loop: OwnLoop) -> "OwnRun":
        """Return the same run, knowing more about its loop."""
        return replace(self, loop=loop)

    def write(self, status: RunStatus, reason: str | None) -> None:
        """Write ``run.json``.

        Raises:
            StoreError: it cannot be written.
        """
        cell = OwnLoopCell(name=self.name, plan=self.loop, launches=(0,))
        record = RunRecord(
            dtbench_version=__version__,
            name=self.name,
            run_id=self.folder.path.name,
            question=f"Your own loop in {self.loop.script}",
            overrides=(),
            status=status,
            reason=reason,
            started_unix_ns=self.started_unix_ns,
            ended_unix_ns=None if status is RunStatus.RUNNING else time.time_ns(),
            cells=(cell,),
        )
        write_record(self.folder.run, record)

    def close(self, reason: str | None, failures: Sequence[RankFailure] = ()) -> None:
        """Gather what all ranks have measured and say how the run ended; ``reason`` None: as it should.

        Raises:
            StoreError: it cannot be written.
        """
        status = RunStatus.COMPLETE if reason is None else RunStatus.FAILED
        record = LaunchRecord(
            cell=self.name,
            index=0,
            status=status,
            started_unix_ns=self.started_unix_ns,
            duration_ns=time.time_ns() - self.started_unix_ns,
            reason=reason,
            failures=tuple(failures),
        )
        finish_launch(self.launch, record, ranks=self.loop.ranks)
        self.write(status, reason)


def begin_run(results: Path, name: str | None, loop: OwnLoop, peers: Peers) -> OwnRun:
    """Make the run folder on rank 0 and tell the others where it is.

    Raises:
        CaptureError: the name cannot be that of a folder.
        StoreError: the folder cannot be written, another rank does not see it, or a rank computes on another device
            than its current one; the same on every rank.
    """
    chosen = name or default_name()
    if not can_name_runs(chosen):
        raise CaptureError(
            f"name={chosen!r} cannot name a folder of results; use letters, digits, '.', '_' and '-' only"
        )
    problem = None
    if peers.rank == 0:
        run = OwnRun(chosen, new_run_folder(results, chosen), time.time_ns(), loop)
        problem = _try_to_write(run)
        peers.store.set("folder", f"{run.started_unix_ns} {run.folder.path}")
    started, path = peers.hear("folder", 0).split(" ", 1)
    run = OwnRun(chosen, RunFolder(Path(path)), int(started), loop)
    if peers.rank != 0:
        problem = _find_problem(run)
    wants = (loop.max_warmup_steps, loop.measured_steps, loop.profiled_steps)
    said = peers.meet(
        RankHello(
            host=socket.gethostname(),
            process=RankProcess.find(),
            wants=wants,
            problem=problem or find_device_problem(),
        )
    )
    problems = [f"rank {rank}: {one.problem}" for rank, one in enumerate(said) if one.problem is not None]
    if len({one.wants for one in said}) > 1:
        asked = "; ".join(f"rank {rank}: {one.wants}" for rank, one in enumerate(said))
        problems.append(f"the ranks were asked for different (max_warmup, measured, profiled) steps: {asked}")
    if problems:
        _fail(run, peers, "\n".join(problems))
    noted = loop.model_copy(update={"notes": (*loop.notes, *_machine_notes(loop, said))})
    return replace(run, loop=noted, processes=tuple(one.process for one in said))


def _find_code() -> str | None:
    """Return the folder of the script that is running; None: there is none, as in a notebook."""
    script = Path(sys.argv[0])
    return str(script.resolve().parent) if script.is_file() else None


def default_name() -> str:
    """Return the script's name where it can name a folder."""
    stem = Path(sys.argv[0]).stem
    return stem if can_name_runs(stem) else "own_loop"


def _try_to_write(run: OwnRun) -> str | None:
    try:
        run.write(RunStatus.RUNNING, None)
        write_record(run.folder.environment, read_environment(_find_code()))
    except StoreError as error:
        return str(error).replace("--results", "results folder")
    return _find_problem(run)


def _find_problem(run: OwnRun) -> str | None:
    """Say why this rank cannot put its results into the folder of the run; None: it can."""
    folder = run.folder.path
    if not run.folder.run.exists():
        return f"does not see {folder} on {socket.gethostname()}; results must be where every rank can read and write"
    probe = run.launch.path / "events"
    try:
        probe.mkdir(parents=True, exist_ok=True)
        run.launch.traces.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"cannot write to {probe} on {socket.gethostname()} ({error.strerror})"
    return None


def _fail(run: OwnRun, peers: Peers, problems: str) -> None:
    if peers.rank == 0 and run.folder.run.exists():
        run.write(RunStatus.FAILED, problems)
    raise StoreError(f"dtbench.capture cannot record:\n{problems}")


def _machine_notes(loop: OwnLoop, said: Sequence[RankHello]) -> tuple[str, ...]:
    on_one_host = len({one.host for one in said}) == 1
    if loop.device == "cpu" and loop.ranks > 1 and on_one_host:
        return (LOOPBACK_NOTE,)
    return ()
