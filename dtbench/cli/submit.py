"""``dtbench submit``: prepare a run for the nodes of a cluster, and hand it to Slurm or Kubeflow."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dtbench.base.commands import spell_command, spell_word
from dtbench.cli.console import print_aside, print_line
from dtbench.cli.node_options import CoresPerNode, GpusPerNode, MemoryPerNode, read_node_request
from dtbench.cli.sweeps import OnlyCells, ScenarioToRun, Sets, Sweeps, read_sweeps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dtbench.launch.submit.flags import Flag
    from dtbench.launch.submit.shape import NodeShape
    from dtbench.scenario.load import ScenarioFile
    from dtbench.store.layout import RunFolder
    from dtbench.store.records.run import CellRecord

_ASK_S: Final = 60
"""As long as Slurm's controller may take to answer."""


class Kind(StrEnum):
    """What takes a run."""

    SLURM = "slurm"
    TRAINJOB = "trainjob"


_CLIENTS: Final = {Kind.SLURM: "sbatch", Kind.TRAINJOB: "kubectl"}


def submit(
    scenario: ScenarioToRun,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="That share the ranks of each cell equally.")],
    flags: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- FLAGS...]", help="Of sbatch, or of kubectl, as in -- --partition=gpu --time=2:00:00."
        ),
    ] = None,
    kind: Annotated[Kind, typer.Option("--kind", help="A script for sbatch, or a TrainJob of Kubeflow.")] = Kind.SLURM,
    sets: Sets = None,
    sweeps: Sweeps = None,
    only: OnlyCells = None,
    results: Annotated[Path, typer.Option(help="Folder of all runs, which every node sees.")] = Path("results"),
    cores: CoresPerNode = None,
    gpus: GpusPerNode = None,
    memory: MemoryPerNode = None,
    image: Annotated[str | None, typer.Option(help="TrainJob: that has dtbench and torch.")] = None,
    runtime: Annotated[str, typer.Option(help="TrainJob: a ClusterTrainingRuntime for torch.")] = "torch-distributed",
    claim: Annotated[
        str | None, typer.Option(help="TrainJob: a PersistentVolumeClaim, mounted where --results is.")
    ] = None,
    only_print: Annotated[
        bool, typer.Option("--print", help="Prepare the run and print what would be submitted, and do not.")
    ] = False,
) -> None:
    """Prepare a run for nodes that are not this machine, and submit it: one allocation, in which cells take turns.

    Every node runs `dtbench execute` on it. A job that is requeued, or submitted again, runs the launches that are
    missing; it asks for that itself where its time ends and a launch has ended well.
    """
    from dtbench.base.errors import MissingError
    from dtbench.scenario.catalog import open_scenario

    request = read_node_request(nodes, cores=cores, gpus=gpus, memory=memory)
    client = _CLIENTS[kind]
    if not only_print and shutil.which(client) is None:
        raise MissingError(
            f"{client} is not here, so that nothing can be submitted; --print prepares the run and shows what {client} "
            "takes where it is"
        )
    file = open_scenario(scenario, [*(sets or ()), *read_sweeps(sweeps)], only or ())
    words = tuple(flags or ())
    if kind is Kind.SLURM:
        if image is not None or claim is not None:
            raise typer.BadParameter("--image and --claim are of a TrainJob; give --kind trainjob, too")
        submission = _make_slurm(file, results, nodes, request.said, words)
    else:
        if image is None:
            raise typer.BadParameter("a TrainJob runs in a container: give --image, one that has dtbench and torch")
        pods = _Pods(image, runtime, claim)
        submission = _make_train_job(file, results, nodes, request.said, (pods, words))
    _hand_over(submission, only_print=only_print)


@dataclass(frozen=True)
class Submission:
    """A prepared run, and what a client takes of it.

    Attributes:
        run: its folder.
        text: the script, or the document.
        path: where that is written.
        command: what submits it.
        follow: gives, of what that printed, the commands that show how far it is.
    """

    run: Path
    text: str
    path: Path
    command: tuple[str, ...]
    follow: "Callable[[str], Sequence[str]]"


def _make_slurm(
    file: "ScenarioFile", results: Path, nodes: int, said: "NodeShape", words: "Sequence[str]"
) -> Submission:
    """Prepare a run and write the script that sbatch takes.

    Raises:
        PlanError: it cannot run on such nodes, or a flag is none to give.
    """
    from dtbench.launch.submit import sbatch
    from dtbench.launch.submit.flags import ask_for, read_flags, read_request
    from dtbench.launch.submit.shape import first_known

    typed = read_flags(words)
    every = (*ask_for(said, typed), *typed)
    shape = first_known(said, read_request(every, nodes), _ask_slurm(every))
    run, _cells = _prepare(file, results, nodes, shape, "-- --gpus-per-node=N")
    job = sbatch.SlurmJob(run.path, file.name, nodes, every, sys.executable)
    path = run.path / "submit.sh"
    return Submission(
        run=run.path,
        text=sbatch.render_script(job),
        path=path,
        command=("sbatch", "--parsable", str(path)),
        follow=lambda printed: sbatch.follow_commands(job, sbatch.read_job_number(printed)),
    )


@dataclass(frozen=True)
class _Pods:
    """In what a TrainJob runs: its image, its runtime, and the claim that is mounted for results; None: none is."""

    image: str
    runtime: str
    claim: str | None


def _make_train_job(
    file: "ScenarioFile", results: Path, nodes: int, shape: "NodeShape", asked: "tuple[_Pods, tuple[str, ...]]"
) -> Submission:
    """Prepare a run and write the TrainJob that kubectl takes.

    Raises:
        PlanError: it cannot run on such nodes, or a name is none.
    """
    from dtbench.launch.submit import trainjob

    pods, words = asked
    run, cells = _prepare(file, results, nodes, shape, "--gpus-per-node N")
    job = trainjob.TrainJob(
        run=run.path,
        results=results.resolve(),
        nodes=nodes,
        ranks_per_node=max(cell.plan.ranks_per_node for cell in cells),
        shape=shape,
        image=pods.image,
        runtime=pods.runtime,
        claim=pods.claim,
    )
    if pods.claim is None:
        print_aside(f"pods must see {results.resolve()} at this path: the runtime mounts it, or --claim does")
    path = run.path / "submit.yaml"
    return Submission(
        run=run.path,
        text=trainjob.render_train_job(job),
        path=path,
        command=("kubectl", *words, "apply", "--filename", str(path)),
        follow=lambda _printed: trainjob.follow_commands(job, words),
    )


def _prepare(
    file: "ScenarioFile", results: Path, nodes: int, shape: "NodeShape", asks_for_gpus: str
) -> "tuple[RunFolder, tuple[CellRecord, ...]]":
    """Write the orders of a run for such nodes.

    Raises:
        PlanError: it cannot run on them, or nothing says that they have GPUs, which it needs.
    """
    from dtbench.base.errors import PlanError
    from dtbench.base.units import count_things
    from dtbench.base.vocabulary import DeviceKind
    from dtbench.launch.cells import plan_for_nodes
    from dtbench.launch.prepare import write_orders
    from dtbench.launch.run import Observer

    cells = plan_for_nodes(file, nodes, shape)
    if shape.gpus is None:
        needed = max((cell.plan.ranks_per_node for cell in cells if cell.plan.device is DeviceKind.CUDA), default=0)
        if needed:
            raise PlanError(
                f"`{file.name}` needs {count_things(needed, 'GPU')} on each node, and nothing asks for them: add "
                f"{asks_for_gpus.replace('N', str(needed))}"
            )
    run, _launches = write_orders(file, cells, results, observer=Observer())
    return run, cells


def _ask_slurm(flags: "Sequence[Flag]") -> "NodeShape":
    """Return what whole nodes of the partition have, where a job gets whole ones and Slurm's client says it."""
    from dtbench.launch.submit.flags import name_flags
    from dtbench.launch.submit.shape import NodeShape, read_nodes

    given = name_flags(flags)
    if "exclusive" not in given or "partition" not in given or shutil.which("scontrol") is None:
        return NodeShape()
    try:
        told = subprocess.run(
            ["scontrol", "show", "node", "--oneliner"], capture_output=True, text=True, timeout=_ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return NodeShape()
    return read_nodes(told.stdout, given["partition"]) if told.returncode == 0 else NodeShape()


def _hand_over(submission: Submission, *, only_print: bool) -> None:
    """Write what a client takes, and let it take it; print how to follow it.

    Raises:
        LaunchError: the client refuses; the run stays prepared.
    """
    from dtbench.base.errors import LaunchError
    from dtbench.store.write import write_text

    write_text(submission.path, submission.text)
    if only_print:
        sys.stdout.write(submission.text)
        print_aside(f"{submission.run} is prepared; `{spell_command(*submission.command)}` submits it")
        return
    told = subprocess.run(submission.command, capture_output=True, text=True, check=False)
    if told.returncode:
        why = (told.stderr or told.stdout).strip() or f"it ended with code {told.returncode}"
        again = f"{submission.run} is prepared; `{spell_command(*submission.command)}` tries again"
        raise LaunchError(f"{submission.command[0]} does not take it: {why}\n{again}")
    print_line(f"# submitted: {told.stdout.strip()}; the run is {spell_word(submission.run)}")
    for command in submission.follow(told.stdout):
        print_line(command)
