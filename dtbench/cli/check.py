"""``dtbench check``: what a scenario would do, without doing it."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.base.errors import CheckError
from dtbench.cli.complete import complete_cell, complete_field, complete_scenario
from dtbench.cli.console import print_answer, print_aside, print_json
from dtbench.cli.sweeps import Sweeps, read_sweeps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dtbench.scenario.load import ScenarioFile
    from dtbench.scenario.schema.scenario import Scenario
    from dtbench.store.executed import ExecutedCells


def check(
    scenario: Annotated[
        str, typer.Argument(help="A name from `dtbench list`, or a file.", autocompletion=complete_scenario)
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Change a field, as in `--set model.layers=2`; can be repeated.",
            autocompletion=complete_field,
        ),
    ] = None,
    sweeps: Sweeps = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--cell", metavar="CELL", help="Plan this cell alone; again for one more.", autocompletion=complete_cell
        ),
    ] = None,
    execute: Annotated[
        bool,
        typer.Option(
            "--execute",
            help="Run a step of rank 0 at the scenario's number of ranks, of which no other is there (seconds, on CPU, "
            "blocks and widths cut), and hold every collective that it issues against the plan. Exit code 8: unlike.",
        ),
    ] = False,
    results: Annotated[Path, typer.Option(help="Folder of all runs, which tell how long one takes.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")] = False,
) -> None:
    """Check a scenario without running it, and show the plan of each of its cells.

    Plans need no GPU: a scenario for eight of them can be checked on a laptop.
    """
    from dtbench.plan.cells import plan_each
    from dtbench.plan.plan import plan_for_check
    from dtbench.scenario.catalog import open_scenario

    file = open_scenario(scenario, [*(overrides or ()), *read_sweeps(sweeps)], only or ())
    plans = plan_each(file, plan_for_check, also=_find_missing_python)
    executed = _execute(file) if execute else None
    if as_json:
        from dtbench.report.documents.plans import CheckedScenario, document

        print_json(document(CheckedScenario(file, plans, executed)))
    else:
        from dtbench.report.page.scenario_pages import plans_page

        print_answer(plans_page(file, plans, _say_how_long(file, results), executed))
    if executed is not None and executed.unlike:
        from dtbench.scenario.sweeps.sweep import name_some

        raise CheckError(f"what a step issues is not what the plan says: {name_some(executed.unlike)}")


def _execute(file: "ScenarioFile") -> "ExecutedCells":
    """Run a step of rank 0 of each cell."""
    from dtbench.base.errors import PlanError
    from dtbench.launch.fake_step import execute_step
    from dtbench.store.executed import ExecutedCells

    found, refused = {}, {}
    for at, cell in enumerate(file.cells, 1):
        print_aside(f"cell {at} of {len(file.cells)}: a step of rank 0 of `{cell.name}`")
        try:
            found[cell.name] = execute_step(cell, file)
        except PlanError as error:
            refused[cell.name] = str(error)
    return ExecutedCells(found, refused)


def _say_how_long(file: "ScenarioFile", results: Path) -> str:
    """Say how long a run takes, as far as one is there; with ``repeat: auto`` as many launches as that had."""
    if not (results / file.name).is_dir():  # and nothing that reads runs is loaded
        return f"How long a run takes is not known: {results} has none that is complete"
    from dtbench.base.units import count_things
    from dtbench.launch.time_left import find_earlier, spell_about
    from dtbench.scenario.sweeps.sweep import name_some

    earlier = find_earlier(results, file.name, {cell.name: cell.scenario for cell in file.cells})
    if earlier is None:
        return (
            f"How long a run takes is not known: {results} has no complete one of these cells as they are now, "
            "on a machine with this processor and as many cores"
        )
    planned = {cell.name: cell.scenario.repeat for cell in file.cells}
    launches = {
        name: count if isinstance(count, int) else len(earlier.launches_ns.get(name, (0,)))
        for name, count in planned.items()
    }
    about = spell_about(earlier.foretell_ns(launches))
    unknown = earlier.find_unknown(launches)
    if unknown:
        known = name_some([cell for cell in launches if cell not in unknown])
        return f"A run takes {about} for {known}, by run {earlier.run_id}, and nothing is known of {name_some(unknown)}"
    most = f" at most, as that had {count_things(len(earlier.other_cells), 'more cell')}" if earlier.other_cells else ""
    return f"A run takes {about}{most}, by run {earlier.run_id}"


def _find_missing_python(scenario: "Scenario") -> "Iterator[str]":
    python = scenario.python
    if python is not None and shutil.which(python) is None:
        yield f"python: {python} is no program here; is the path right?"
