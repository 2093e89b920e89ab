"""``dtbench list``: the scenarios that a name can find."""

from typing import Annotated

import typer

from dtbench.cli.console import print_answer, print_json


def list_scenarios(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
) -> None:
    """List the scenarios: yours in ./scenarios, and those that come with dtbench."""
    from dtbench.scenario import catalog

    listed = catalog.list_scenarios()
    if as_json:
        from dtbench.report.documents.listed import document

        print_json(document(listed))
    else:
        from dtbench.report.page.scenario_pages import listed_page

        print_answer(listed_page(listed))
