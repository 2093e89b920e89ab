"""``dtbench run``: train a scenario on real ranks, then show what was found."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.base.commands import spell_command, spell_word
from dtbench.base.units import count_things
from dtbench.cli.console import print_aside, print_json, print_line
from dtbench.cli.node_options import CoresPerNode, GpusPerNode, MemoryPerNode, NodeRequest, read_node_request
from dtbench.cli.page_file import InFull
from dtbench.cli.report import print_document, print_report
from dtbench.cli.sweeps import OnlyCells, ScenarioToRun, Sets, Sweeps, read_sweeps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dtbench.launch.nodes import Nodes
    from dtbench.launch.repeat import Judgement
    from dtbench.launch.run import Engine
    from dtbench.runs.reading.cell_data import RunData
    from dtbench.runs.summary import RunSummary
    from dtbench.scenario.load import ScenarioFile
    from dtbench.store.layout import LaunchFolder, RunFolder
    from dtbench.store.records.run import CellRecord


_MOST_NAMED = 10
"""Cells that an error names."""


def run(
    scenario: ScenarioToRun,
    sets: Sets = None,
    sweeps: Sweeps = None,
    only: OnlyCells = None,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    prepare: Annotated[
        bool,
        typer.Option(
            "--prepare",
            help="Only write the orders, and print the torchrun commands that run them; with --resume, those that are "
            "left of a prepared run.",
        ),
    ] = False,
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=1, help="With --prepare, plan for so many nodes, not for this machine.")
    ] = None,
    cores: CoresPerNode = None,
    gpus: GpusPerNode = None,
    memory: MemoryPerNode = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every number as one JSON document.")] = False,
    full: InFull = False,
    unfinished: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="With --resume, a run's folder or id; left out: the newest unfinished."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was stopped or failed: only what is missing runs.")
    ] = False,
) -> None:
    """Train a scenario on real ranks, and show where each step went and which communication was not hidden.

    Makes a run folder with traces, tables, a plot and TensorBoard files. Exit code 4: a rank failed; 8: the run
    finished, but its results, traffic, knobs or step time are not what they should be, or a check of the scenario did
    not pass (with --set of more than `repeat` its checks are only told).
    """
    from dtbench.scenario.catalog import open_scenario

    node_request = read_node_request(nodes, cores=cores, gpus=gpus, memory=memory)
    if nodes is not None and not prepare:
        raise typer.BadParameter("--nodes plans a run that someone else starts: give --prepare, or `dtbench submit`")
    if nodes is not None and resume:
        raise typer.BadParameter("a prepared run goes on as it was planned; leave --nodes out")
    if unfinished is not None and not resume:
        raise typer.BadParameter(f"`{unfinished}` is one argument too many; a run is named only with --resume")
    file = open_scenario(scenario, [*(sets or ()), *read_sweeps(sweeps)], only or ())
    request = RunRequest(file, scenario, results, unfinished, resume=resume)
    if prepare:
        _prepare(request, node_request, as_json=as_json)
        return
    from dtbench.base.errors import LaunchError

    try:
        folder = train(request)
    except LaunchError as error:
        if error.folder is None:
            raise
        show_what_there_is(error.folder)
        raise LaunchError(f"{error}; `{request.command}` runs the rest", folder=error.folder) from error
    report_run(folder, as_json=as_json, full=full)


@dataclass(frozen=True)
class RunRequest:
    """What a person typed: the scenario read and as named, and which unfinished run is meant; None: the newest.

    Attributes:
        caller: the command that goes on with it, where that is not ``dtbench run``: it draws all pictures at its end;
            empty: none does.
        prefix: what goes before a rank's command for it to be forked; empty: each rank is a process of its own.
    """

    file: "ScenarioFile"
    named: str
    results: Path
    unfinished: str | None
    resume: bool
    caller: str | None = None
    prefix: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """What goes on with this run."""
        if self.caller is not None:
            return self.caller
        sets = [word for override in self.file.overrides for word in ("--set", override)]
        results = [] if self.results == Path("results") else ["--results", str(self.results)]
        cells = [word for name in self.file.only for word in ("--cell", name)]
        return spell_command("dtbench", "run", self.named, *sets, *cells, *results, "--resume")


def train(request: RunRequest) -> Path:
    """Run a scenario, or what an unfinished run of it lacks; gives the folder.

    In the script or the shell of a Slurm job of several nodes, on all of them.

    Raises:
        LaunchError, PlanError, StoreError: as ``run_scenario`` and ``resume_scenario``.
        KeyboardInterrupt: after a sentence on what is kept.
    """
    from dtbench.cli.progress import observe
    from dtbench.launch.cells import plan_cells
    from dtbench.launch.machine import read_machine
    from dtbench.launch.run import resume_scenario, run_scenario
    from dtbench.launch.time_left import TimeLeft, find_earlier

    nodes = find_job(request)
    machine = read_machine().model_copy(update={"nodes": None if nodes is None else nodes.count})
    cells = plan_cells(request.file, machine)
    before = _find_unfinished(request) if request.resume else None
    if before is None and request.caller is None:
        _hint_at_unfinished(request)
    folders: list[Path] = []
    repeat = cells[0].scenario.repeat
    most_launches = None if isinstance(repeat, int) else repeat.at_most
    scenarios = {cell.name: cell.scenario for cell in cells}
    earlier = find_earlier(request.results, request.file.name, scenarios)
    time_left = TimeLeft.of(cells, earlier) if before is None and isinstance(repeat, int) else None
    with (
        observe(folders.append, most_launches=most_launches, time_left=time_left) as screen,
        _open_engine(request, nodes, screen.on_stop) as engine,
    ):
        observer = screen
        if request.caller is None:
            observer = replace(screen, on_end=lambda cell: publish_cell_of(folders[-1], cell))
        try:
            if before is not None:
                return resume_scenario(request.file, cells, before, observer=observer, judge=_judge, engine=engine).path
            return run_scenario(
                request.file, cells, request.results, observer=observer, judge=_judge, engine=engine
            ).path
        except KeyboardInterrupt:
            goes_on = f"; `{request.command}` goes on" if request.command else ""
            kept = f"what was measured before is in {folders[-1]}{goes_on}" if folders else ""
            observer.on_stop(kept or "nothing was measured")
            raise


def find_job(request: RunRequest) -> "Nodes | None":
    """Return the nodes of a Slurm job on all of which a run is to run; None: on this machine.

    Commands that run many scenarios run them on one machine.
    """
    from dtbench.launch.nodes import find_allocation

    found = None if request.caller is not None else find_allocation(os.environ)
    return None if found is None or found.count == 1 else found


@contextmanager
def _open_engine(request: RunRequest, nodes: "Nodes | None", say: "Callable[[str], None]") -> "Iterator[Engine]":
    """Hold what starts the ranks: this machine, or an agent on each node of a Slurm job."""
    from dtbench.launch.local import WORKER
    from dtbench.launch.run import ThisMachine

    if nodes is None:
        yield ThisMachine((*request.prefix, *WORKER))
        return
    from dtbench.launch.cluster.head import Head
    from dtbench.launch.cluster.spawn import spawn_by_srun

    with Head(nodes, partial(spawn_by_srun, nodes), say=say) as head:
        yield head


def _judge(folder: "RunFolder", cells: "tuple[CellRecord, ...]", precision: float) -> "Judgement":
    """Judge whether launches tell step times well enough: the launcher counts, statistics decide."""
    from dtbench.comparison.precision import describe_precision, is_known, read_step_times
    from dtbench.launch.repeat import Judgement

    step_times = read_step_times(folder, cells)
    return Judgement(is_enough=is_known(step_times, precision), words=describe_precision(step_times, precision))


def publish_cell_of(folder: Path, cell: str) -> None:
    """Let an open TensorBoard show a cell while others still run; whatever is wrong, the end of the run says it."""
    from dtbench.report.event_files.publish import publish_cell

    with suppress(Exception):  # a picture must not end a run of hours
        publish_cell(folder, cell)


def _find_unfinished(request: RunRequest, *, prepared: bool = False) -> Path:
    """Return the run to go on with; ``prepared``: one whose ranks someone else starts.

    Raises:
        StoreError: there is none.
    """
    from dtbench.base.errors import StoreError
    from dtbench.launch.resume import find_unfinished
    from dtbench.store.find_run import find_run

    if request.unfinished is not None:
        return find_run(request.unfinished, request.results)
    found = find_unfinished(request.results, request.file.name, prepared=prepared)
    if found is None:
        kind = "prepared run that lacks a launch" if prepared else "unfinished run"
        begins = "is prepared" if prepared else "starts"
        raise StoreError(
            f"{request.results}: no {kind} of `{request.file.name}` is here; without --resume a new one {begins}"
        )
    return found


def _hint_at_unfinished(request: RunRequest) -> None:
    """Say how to go on with an unfinished run of the same words, where there is one that nobody is writing."""
    from dtbench.launch.resume import find_unfinished, is_same_experiment
    from dtbench.store.layout import RunFolder
    from dtbench.store.lock import is_held

    found = find_unfinished(request.results, request.file.name)
    if found is not None and is_same_experiment(found, request.file) and not is_held(RunFolder(found)):
        print_aside(f"an unfinished run is in {found}; `{request.command}` goes on with it, this one starts anew")


def report_run(folder: Path, *, as_json: bool, full: bool = False) -> None:
    """Analyse a run, write what is derived from it, and show it; also when there is no room left to write."""
    from dtbench.base.errors import StoreError
    from dtbench.comparison.reading.kept import describe_cells
    from dtbench.report.event_files.publish import publish
    from dtbench.runs.reading.run_data import read_run_data
    from dtbench.runs.run import summarize_data
    from dtbench.store.read import read_run

    made_of = describe_cells(folder, read_run(folder))
    data = read_run_data(folder)
    summary = summarize_data(data)
    unpublished: StoreError | None = None
    try:
        publish(data, summary)
    except StoreError as error:
        unpublished = error
    print_document(summary) if as_json else print_report(summary, full=full)
    _keep(data, made_of)
    _check(summary)
    if unpublished is not None:
        raise unpublished


def _keep(data: "RunData", made_of: "Mapping[str, str]") -> None:
    """Keep the numbers that will be compared, listed and looked for; whatever is wrong, who asks makes them again."""
    from dtbench.comparison.reading.cells import measure_cells

    with suppress(Exception):  # a copy of numbers must not end a run of hours
        measure_cells(data, made_of)


def show_what_there_is(folder: Path) -> None:
    """Report what a failed run did measure; the failure itself is told by the error."""
    from dtbench.base.errors import CheckError, StoreError

    with suppress(CheckError, StoreError):  # the failure itself is the news
        report_run(folder, as_json=False)


def _check(summary: "RunSummary") -> None:
    """Refuse to end well when a cell's numbers must not be trusted, or the scenario's checks did not pass.

    Raises:
        CheckError: names each such cell or check and why.
    """
    from dtbench.base.errors import CheckError
    from dtbench.report.page.checklist import failure_words
    from dtbench.report.words.sentences import DISTURBED_WORD, check_word, is_trusted

    doubtful = {cell.name: check_word(cell) for cell in summary.cells if not is_trusted(cell)}
    # where others took the cores, a file that claims something says so by its checks, and none is wrong otherwise
    wrong = [f"cell {name}: {word}, see above" for name, word in doubtful.items() if word != DISTURBED_WORD]
    if wrong:
        more = [f"and {count_things(len(wrong) - _MOST_NAMED, 'more cell')}"] if len(wrong) > _MOST_NAMED else []
        told = "\n".join([*wrong[:_MOST_NAMED], *more])
        raise CheckError(f"the run finished, but do not trust its numbers:\n{told}")
    if summary.checks is not None and summary.checks.is_broken:
        told = "\n".join(failure_words(summary.checks)[:_MOST_NAMED])
        raise CheckError(f"the run finished, but its scenario's checks did not pass:\n{told}")


def _prepare(request: RunRequest, nodes: NodeRequest, *, as_json: bool) -> None:
    from dtbench.launch.prepare import HEAD_NODE, spell_torchrun
    from dtbench.store.records.run import WorkerOrder

    folder, launches = write_prepared(request, nodes)
    commands = [spell_torchrun(WorkerOrder.model_validate_json(one.order.read_bytes()), one.order) for one in launches]
    if as_json:
        from dtbench.report.documents.orders import PreparedRun, document

        print_json(document(PreparedRun(folder.path, tuple(commands))))
        return
    print_line(f"# on every node: dtbench execute {spell_word(folder.path)}")
    print_line(f"# or run these one after another, then: dtbench analyze {spell_word(folder.path)}")
    if any(HEAD_NODE in command for command in commands):
        print_line("# --standalone: on one node; --nnodes: on all at once, HEAD_NODE is one of them; share the folder")
    for command in commands:
        print_line(command)


def write_prepared(request: RunRequest, nodes: NodeRequest) -> "tuple[RunFolder, tuple[LaunchFolder, ...]]":
    """Write the orders of a run that someone else starts, or those that a prepared one lacks; gives its launches.

    Raises:
        PlanError, StoreError: as ``write_orders`` and ``resume_orders``.
    """
    from dtbench.launch.cells import plan_elsewhere, plan_for_nodes
    from dtbench.launch.machine import read_machine
    from dtbench.launch.prepare import resume_orders, write_orders
    from dtbench.launch.run import Observer

    if request.resume:
        return resume_orders(request.file, _find_unfinished(request, prepared=True))
    if nodes.count is None:
        cells = plan_elsewhere(request.file, read_machine())
    else:
        cells = plan_for_nodes(request.file, nodes.count, nodes.read_shape())
    return write_orders(request.file, cells, request.results, observer=Observer())
