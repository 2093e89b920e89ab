"""``dtbench runs``: which runs there are, and what each came to."""

from pathlib import Path
from typing import Annotated

import typer

from dtbench.cli.complete import complete_ran
from dtbench.cli.console import print_answer, print_json

_STATUSES = ("complete", "failed", "running", "incomplete")


def runs(
    scenario: Annotated[
        str | None,
        typer.Argument(help="Only runs of this scenario; left out: of all.", autocompletion=complete_ran),
    ] = None,
    cell: Annotated[str | None, typer.Option(help="Only this cell, of runs that have it.")] = None,
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help=f"Only runs of which this became: {', '.join(_STATUSES)}.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only runs that began then or later: 2026-01-31, 30d, 12h.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only runs that began then or before: 2026-01-31T12:00, 30d.")
    ] = None,
    commit: Annotated[
        str | None, typer.Option(help="Only runs of this commit of your code, or whose name begins so.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Only runs on this machine.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows after which no further run is shown; 0: all are.")] = 20,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
) -> None:
    """List runs, newest first: the step of each cell, what of it was exposed, and what speaks against these.

    A run that never said how it ended and that nobody writes is incomplete: `dtbench run SCENARIO --resume` goes on.
    In JSON times are nanoseconds, ratios fractions, and a number that is not known is "NaN".
    """
    from dtbench.cli.moments import read_moment

    if status not in (None, *_STATUSES):
        raise typer.BadParameter(f"`{status}` is none of {', '.join(_STATUSES)}", param_hint="--status")
    moments = [None if typed is None else read_moment(typed) for typed in (since, until)]
    from dtbench.comparison.run_list import ListedStatus, Wanted, list_runs

    wanted = Wanted(
        scenario=scenario,
        cell=cell,
        status=None if status is None else ListedStatus(status),
        since_unix_ns=moments[0],
        until_unix_ns=moments[1],
        commit=commit,
        host=host,
    )
    found = list_runs(results, wanted, limit=limit or None)
    if as_json:
        from dtbench.report.documents.runs import document

        print_json(document(found))
        return
    from dtbench.report.page.runs_page import runs_page

    print_answer(runs_page(found))
