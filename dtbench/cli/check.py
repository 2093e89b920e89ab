"""``dtbench check``: what a scenario would do, without doing it."""

import shutil
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.cli.console import print_answer, print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dtbench.scenario.schema.scenario import Scenario


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
    from dtbench.plan.cells import plan_each
    from dtbench.plan.plan import plan_for_check
    from dtbench.scenario.catalog import open_scenario

    file = open_scenario(scenario, overrides or [])
    plans = plan_each(file, plan_for_check, also=_find_missing_python)
    if as_json:
        from dtbench.report.documents.plans import CheckedScenario, document

        print_json(document(CheckedScenario(file, plans)))
    else:
        from dtbench.report.page.scenario_pages import plans_page

        print_answer(plans_page(file, plans))


def _find_missing_python(scenario: "Scenario") -> "Iterator[str]":
    python = scenario.python
    if python is not None and shutil.which(python) is None:
        yield f"python: {python} is no program here; is the path right?"
