"""``dtbench check``: what a scenario would do, without doing it."""

import shutil
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.cli.console import print_answer, print_json

if TYPE_CHECKING:
    from dtbench.plan.plan import Plan
    from dtbench.scenario.load import ScenarioFile


def check(
    scenario: Annotated[str, typer.Argument(help="A name from `dtbench list`, or a file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="PATH=VALUE", help="Change a field, as in `--set model.layers=2`; can be repeated."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")] = False,
) -> None:
    """Check a scenario without running it, and show the plan of each of its cells.

    Plans need no GPU: a scenario for eight of them can be checked on a laptop.
    """
    from dtbench.scenario.catalog import open_scenario

    file = open_scenario(scenario, overrides or [])
    plans = _plan_cells(file)
    if as_json:
        from dtbench.report.documents.plans import CheckedScenario, document

        print_json(document(CheckedScenario(file, plans)))
    else:
        from dtbench.report.page.scenario_pages import plans_page

        print_answer(plans_page(file, plans))


def _plan_cells(file: "ScenarioFile") -> "dict[str, Plan]":
    """Return the plan of every cell, or one error that tells what is wrong with each."""
    from dtbench.base.errors import PlanError
    from dtbench.plan.plan import plan_for_check
    from dtbench.scenario.schema.repeat import find_mixed_repeat

    plans: dict[str, Plan] = {}
    refusals: list[str] = []
    for cell in file.cells:
        try:
            plans[cell.name] = plan_for_check(cell.scenario)
        except PlanError as refusal:
            refusals.append(f"Cell `{cell.name}` of {file.name}: {refusal}")
        python = cell.scenario.python
        if python is not None and shutil.which(python) is None:
            refusals.append(
                f"Cell `{cell.name}` of {file.name}: python: {python} is no program here; is the path right?"
            )
    mixed = find_mixed_repeat({cell.name: cell.scenario.repeat for cell in file.cells})
    refusals += [] if mixed is None else [f"{file.name}: {mixed}"]
    if refusals:
        raise PlanError("\n".join(refusals))
    return plans
