"""``dtbench tune``: which settings of a scenario take the shortest step, found with few launches."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from dtbench.base.commands import spell_command
from dtbench.base.units import count_things
from dtbench.cli.complete import complete_cell, complete_field, complete_scenario
from dtbench.cli.console import print_answer, print_aside, print_json
from dtbench.cli.page_file import HtmlFile, refuse_page_place, write_answer
from dtbench.cli.scenario_file import leave_scenario
from dtbench.cli.sweeps import read_sweeps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dtbench.runs.summary import RunSummary
    from dtbench.scenario.load import ScenarioFile
    from dtbench.tuning.answer import Tuned
    from dtbench.tuning.budget import Budget
    from dtbench.tuning.grid import Grid
    from dtbench.tuning.rounds import Origin
    from dtbench.tuning.search import Ran, Round, Search

_LEAST_LAUNCHES = 4
"""What a comparison needs."""


def tune(
    scenario: Annotated[
        str,
        typer.Argument(
            help="Name of a scenario (see `dtbench list`) or path of a file.", autocompletion=complete_scenario
        ),
    ],
    over: Annotated[
        list[str],
        typer.Option(
            "--over",
            metavar="PATH=V,V,...",
            help="A field and the values that are tried, as `--sweep` has them: parallel.bucket_cap_mb=1,4,16 (null "
            "leaves it unset); repeated, the product of all.",
            autocompletion=complete_field,
        ),
    ],
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="PATH=VALUE", help="Override one field of all points.", autocompletion=complete_field
        ),
    ] = None,
    cell: Annotated[
        str | None, typer.Option(help="Of a scenario with several, this cell.", autocompletion=complete_cell)
    ] = None,
    launches: Annotated[
        int | None,
        typer.Option(
            min=_LEAST_LAUNCHES, metavar="N", help="Of each finalist and of the unchanged cell, in turns. Left out: 6."
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME | N",
            help="What may be spent at most: `15m`, or launches. Left out: a third of what a full sweep takes.",
        ),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a search that was stopped: what was run is not run again.")
    ] = False,
    write: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the scenario of the best point, to run it yourself.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every number as one JSON document.")] = False,
    html: HtmlFile = None,
) -> None:
    """Find the point of a grid of settings whose measured step no other beats, with far fewer launches than all take.

    Points that cannot reach the best one by forecast are not run; of the others few launches choose the best two, which
    then take turns with the unchanged cell on launches of their own. Where nothing differs the answer is to leave the
    scenario as it is, in 99 of 100 tries. Exit code 8: nothing can be judged.
    """
    refuse_page_place(html)
    if write is not None and write.exists():
        raise typer.BadParameter(f"{write} is there already, and is not replaced", param_hint="--write")
    axes = read_sweeps(over, "--over")
    file = _open(scenario, sets or (), cell)
    again = [
        *_spell_all("--over", over),
        *_spell_all("--set", sets or ()),
        *_spell_all("--cell", [cell] if cell else []),
    ]
    again += _spell_all("--launches", [str(launches)] if launches else [])
    again += _spell_all("--budget", [budget] if budget else [])
    again += _spell_all("--results", [str(results)] * (results != Path("results")))
    command = spell_command("dtbench", "tune", scenario, *again, "--resume")
    tuned, grid = _search(file, axes, _Wanted(launches, budget, results, resume, command))
    from dtbench.tuning.document import document
    from dtbench.tuning.page import tune_page

    page = tune_page(tuned)
    write_answer(html, page)
    print_json(document(tuned)) if as_json else print_answer(page)
    if write is not None:
        _write(grid, tuned, write)
    if tuned.problem:
        from dtbench.base.errors import CheckError

        raise CheckError(
            f"nothing can be judged: {tuned.problem}; run it again, with --resume what failed or was stopped alone"
        )


class _Wanted(NamedTuple):
    """How a search is to run.

    Attributes:
        launches: of each finalist; None: nobody says.
        budget: as typed; None: nobody says.
        results: folder of all runs.
        resume: rounds that are there are not run again.
        command: goes on with it.
    """

    launches: int | None
    budget: str | None
    results: Path
    resume: bool
    command: str


def _spell_all(option: str, values: "Sequence[str]") -> list[str]:
    return [word for value in values for word in (option, value)]


def _open(scenario: str, sets: "Sequence[str]", cell: str | None) -> "ScenarioFile":
    """Return a scenario with the one cell that is tuned.

    Raises:
        BadParameter: it has several, or is a run.
        ScenarioError: there is none, or it is wrong.
    """
    from dtbench.scenario.catalog import open_scenario
    from dtbench.scenario.sweeps.sweep import name_some
    from dtbench.store.find_run import is_run

    if is_run(Path(scenario)):
        _refuse_run(Path(scenario))
    file = open_scenario(scenario, sets, [cell] if cell else [])
    if len(file.cells) > 1:
        names = name_some([one.name for one in file.cells])
        raise typer.BadParameter(
            f"`{file.name}` has {len(file.cells)} cells, and one is tuned: choose it by --cell; they are {names}"
        )
    return file


def _refuse_run(folder: Path) -> None:
    """Refuse a run, of which nothing more can be run by itself.

    Raises:
        BadParameter: says what to name.
    """
    from dtbench.store.layout import RunFolder
    from dtbench.store.read import read_run
    from dtbench.store.records.run import OwnLoopCell

    if any(isinstance(cell, OwnLoopCell) for cell in read_run(folder).cells):
        raise typer.BadParameter(
            f"{folder} is a run of a loop of one's own, which only you can start with other settings; `dtbench "
            "compare` holds its runs against each other"
        )
    raise typer.BadParameter(f"{folder} is a run; name its scenario, or the file {RunFolder(folder).scenario}")


def _search(file: "ScenarioFile", axes: "Sequence[str]", wanted: _Wanted) -> "tuple[Tuned, Grid]":
    """Run the search, and return its answer.

    Raises:
        PlanError: the unchanged cell cannot run, or the budget is too small to judge anything.
        LaunchError: no cell of a round ran.
    """
    from dtbench.launch.machine import read_machine
    from dtbench.scenario.schema.network import EmulatedNetwork
    from dtbench.tuning.answer import make_answer
    from dtbench.tuning.budget import read_budget, run_search
    from dtbench.tuning.grid import make_grid, read_axes
    from dtbench.tuning.rounds import Origin
    from dtbench.tuning.search import LAUNCHES, MOST_FINALISTS, Search

    (one,) = file.cells
    grid = make_grid(one.name, one.scenario, read_axes(axes), read_machine())
    points, each = grid.runnable, wanted.launches or LAUNCHES
    print_aside(_say_grid(grid))
    may_forecast = isinstance(one.scenario.network, EmulatedNetwork) and len(points) > MOST_FINALISTS
    budget = read_budget(wanted.budget, len(points), each, begins_unchanged=may_forecast)
    is_timed = budget.duration_ns is not None and len(points) > MOST_FINALISTS
    search = Search(points, each, begins_unchanged=may_forecast or is_timed)
    origin = Origin(file.name, file.folder)
    if points:
        _refuse_short(origin, grid, search, budget, wanted)
    ended = run_search(search, budget, _Rounds(origin, grid, wanted, may_forecast=may_forecast))
    return make_answer(file.name, grid, ended, budget), grid


def _say_grid(grid: "Grid") -> str:
    refused = sum(bool(point.refused) for point in grid.points)
    same = sum(point.same_as is not None for point in grid.points)
    return (
        f"{count_things(len(grid.points), 'point')}: {refused} not possible, {same} the same as another, "
        f"{len(grid.runnable)} to look at beside {grid.cell} as it is"
    )


def _refuse_short(origin: "Origin", grid: "Grid", search: "Search", budget: "Budget", wanted: _Wanted) -> None:
    """Refuse a time in which nothing can be judged, where such launches ran before.

    Raises:
        PlanError: says how long it takes.
    """
    from statistics import median

    from dtbench.launch.time_left import find_earlier
    from dtbench.tuning.budget import refuse_short
    from dtbench.tuning.rounds import name_runs
    from dtbench.tuning.search import count_least

    if budget.duration_ns is None or wanted.budget is None:
        return
    earlier = find_earlier(wanted.results, name_runs(origin), {grid.cell: grid.scenario})
    if earlier is not None:
        least = count_least(len(search.points), begins_unchanged=search.begins_unchanged)
        refuse_short(budget, wanted.budget, median(earlier.launches_ns[grid.cell]), least)


class _Rounds:
    """Runs rounds, each a run of its own; those that are there already are read, where a search goes on."""

    def __init__(self, origin: "Origin", grid: "Grid", wanted: _Wanted, *, may_forecast: bool) -> None:
        self._origin = origin
        self._grid = grid
        self._wanted = wanted
        self._may_forecast = may_forecast
        self._last = ""

    def __call__(self, one: "Round", number: int) -> "Ran":
        """Run a round, and return what came of it.

        Raises:
            LaunchError: no cell of it ran.
            KeyboardInterrupt: after a sentence on what is kept.
        """
        from dataclasses import replace

        from dtbench.base.units import count_launches
        from dtbench.tuning.rounds import ask_forecasts, read_round, write_round
        from dtbench.tuning.search import Stage

        file = write_round(self._origin, self._grid, one, number)
        print_aside(f"round {number}: {file.question.rpartition(': ')[2]} {count_launches(one.count)}")
        folder = self._run(file)
        self._last = folder.name
        try:
            summary = _summarize(folder)
        except KeyboardInterrupt:
            print_aside(f"what was measured before is in {folder}; `{self._wanted.command}` goes on")
            raise
        ran = read_round(self._grid, one, summary, _sum_launches_ns(folder))
        if one.stage is Stage.UNCHANGED and self._may_forecast and not ran.out:
            (cell,) = summary.cells
            told, why = ask_forecasts(self._grid, cell, self._grid.runnable)
            ran = replace(ran, told=told, not_told=why)
        return ran

    def _run(self, file: "ScenarioFile") -> Path:
        """Return the folder of a run that has ended, though single cells of it may have failed."""
        from dtbench.base.errors import LaunchError
        from dtbench.cli.run import RunRequest, train
        from dtbench.store.read import read_run
        from dtbench.store.records.run import RunStatus

        found = self._find(file) if self._wanted.resume else None
        if found is not None and read_run(found).status is RunStatus.COMPLETE:
            print_aside(f"it is there: {found}")
            return found
        named = None if found is None else str(found)
        request = RunRequest(
            file, file.name, self._wanted.results, named, resume=found is not None, caller=self._wanted.command
        )
        try:
            return train(request)
        except LaunchError as error:
            if error.folder is None:
                raise
            return error.folder

    def _find(self, file: "ScenarioFile") -> Path | None:
        """Return the run of this round: of the first round the newest, of others the next after the round before."""
        from dtbench.launch.resume import is_same_experiment
        from dtbench.store.walk import find_runs

        runs = [path for path in find_runs(self._wanted.results) if path.parent.name == file.name]
        later = [path for path in runs if path.name > self._last]
        same = [path for path in later if is_same_experiment(path, file) and _is_of_here(path)]
        return None if not same else same[0] if self._last else same[-1]


def _is_of_here(folder: Path) -> bool:
    """Tell whether a run was made on this machine, as far as a launch of it ended: others' times say nothing here."""
    import platform

    from dtbench.base.errors import StoreError
    from dtbench.store.layout import RunFolder
    from dtbench.store.read import read_environment

    if not RunFolder(folder).environment.exists():
        return True
    try:
        return read_environment(folder).host == platform.node()
    except StoreError:
        return False


def _summarize(folder: Path) -> "RunSummary":
    """Read a run, and write what a report of it needs; where that cannot be written, say so and go on."""
    from dtbench.base.errors import StoreError
    from dtbench.report.event_files.publish import publish
    from dtbench.runs.reading.run_data import read_run_data
    from dtbench.runs.run import summarize_data

    data = read_run_data(folder)
    summary = summarize_data(data)
    try:
        publish(data, summary)
    except StoreError as error:
        print_aside(str(error))
    return summary


def _sum_launches_ns(folder: Path) -> int:
    from dtbench.base.errors import StoreError
    from dtbench.store.layout import RunFolder
    from dtbench.store.read import read_launch, read_run

    total_ns, run = 0, RunFolder(folder)
    for cell in read_run(folder).cells:
        for index in cell.launches:
            with suppress(StoreError):  # one that failed may have left nothing
                total_ns += read_launch(run.launch(cell.name, index)).duration_ns
    return total_ns


def _write(grid: "Grid", tuned: "Tuned", path: Path) -> None:
    best = tuned.best_point
    if best is None:
        print_aside(f"{path} is not written: no point is recommended")
        return
    scenario = grid.find(best.name).scenario
    assert scenario is not None
    question = f"How long is a step of {tuned.cell} of {tuned.scenario} with {best.change}?"
    leave_scenario(path, scenario, question, f"{tuned.cell} with {best.change}")
