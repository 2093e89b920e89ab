"""``dtbench list``: the scenarios that a name can find."""

from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.cli.console import print_json, print_line, print_table
from dtbench.report.page.page import Column, Tone

if TYPE_CHECKING:
    from dtbench.scenario.catalog import ListedScenario


def list_scenarios(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
) -> None:
    """List the scenarios: yours in ./scenarios, and those that come with dtbench."""
    from dtbench.scenario import catalog

    listed = catalog.list_scenarios()
    if as_json:
        from dtbench.report.documents.listed import document

        print_json(document(listed))
        return
    rows = [(scenario.entry.name, _describe(scenario), scenario.entry.origin.value) for scenario in listed]
    print_table([Column("scenario"), Column("question"), Column("from")], rows)
    for scenario in listed:
        if scenario.error is not None:
            print_line(f"{scenario.entry.name} cannot run:", tone=Tone.BAD)
            print_line(scenario.error)
    print_line("`dtbench check <scenario>` shows what it would do.")


def _describe(scenario: "ListedScenario") -> str:
    question = scenario.question or "(no question on line 1)"
    if scenario.error is not None:
        return f"{question} (broken, see below)"
    if scenario.entry.hidden_by is not None:
        return f"{question} (overridden by {scenario.entry.hidden_by}, which has the same name)"
    return question
