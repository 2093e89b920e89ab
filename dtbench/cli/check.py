"""``dtbench check``: what a scenario would do, without doing it."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.cli.complete import complete_cell, complete_field, complete_scenario
from dtbench.cli.console import print_answer, print_json
from dtbench.cli.sweeps import Sweeps, read_sweeps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dtbench.scenario.load import ScenarioFile
    from dtbench.scenario.schema.scenario import Scenario


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
    if as_json:
        from dtbench.report.documents.plans import CheckedScenario, document

        print_json(document(CheckedScenario(file, plans)))
    else:
        from dtbench.report.page.scenario_pages import plans_page

        print_answer(plans_page(file, plans, _say_how_long(file, results)))


def _say_how_long(file: "ScenarioFile", results: Path) -> str:
    """Say how long a run takes, as far as one is there; with ``repeat: auto`` as many launches as that had."""
    unknown = f"How long a run takes is not known: {results} has none that is complete"
    if not (results / file.name).is_dir():
        return unknown  # and nothing that reads runs is loaded
    from dtbench.launch.time_left import find_earlier, spell_about

    earlier = find_earlier(results, file.name, file.overrides)
    if earlier is None:
        return f"How long a run takes is not known: {results} has no complete one with the same --set and --sweep"
    planned = {cell.name: cell.scenario.repeat for cell in file.cells}
    launches = {
        name: count if isinstance(count, int) else len(earlier.launches_ns.get(name, (0,)))
        for name, count in planned.items()
    }
    return f"A run takes {spell_about(earlier.foretell_ns(launches))}, by run {earlier.run_id}"


def _find_missing_python(scenario: "Scenario") -> "Iterator[str]":
    python = scenario.python
    if python is not None and shutil.which(python) is None:
        yield f"python: {python} is no program here; is the path right?"
