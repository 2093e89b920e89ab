"""``dtbench clean``: make room, without losing what runs found."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.cli.complete import complete_ran, complete_run
from dtbench.cli.console import print_answer, print_json, print_line

if TYPE_CHECKING:
    from dtbench.runs.cleaning import Cleaning


def clean(
    keep_tables: Annotated[
        bool,
        typer.Option(
            "--keep-tables", help="Remove traces only, where tables are made of them; left out: whole runs go."
        ),
    ] = False,
    older: Annotated[
        str | None, typer.Option(metavar="AGE", help="Only runs that began so long ago: 30d, 8w, 12h.")
    ] = None,
    scenario: Annotated[
        str | None, typer.Option(help="Only runs of this scenario.", autocompletion=complete_ran)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it; left out: only say what would go.")] = False,
    pin: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Let this run be left alone from now on.", autocompletion=complete_run),
    ] = None,
    unpin: Annotated[
        str | None, typer.Option(metavar="RUN", help="Take that back.", autocompletion=complete_run)
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
) -> None:
    """Say what would be removed of old runs, with sizes; remove it with --yes.

    Without traces, reports, comparisons and tables stay as they are; timelines, `analyze` and `whatif` need them.
    Saved baselines, pinned runs and runs that are being written always stay, and no link is followed.
    Exit code 6: something could not be removed.
    """
    if pin is not None or unpin is not None:
        _pin(pin, unpin, results)
        return
    if older is None and scenario is None:
        raise typer.BadParameter("say of which runs: --older 30d, --scenario NAME, or both")
    from dtbench.cli.moments import read_age

    before = None if older is None else time.time_ns() - read_age(older)
    from dtbench.runs.cleaning import clean as remove
    from dtbench.runs.cleaning import plan_cleaning

    found = plan_cleaning(results, keeps_tables=keep_tables, scenario=scenario, before_unix_ns=before)
    found = remove(found) if yes else found
    if as_json:
        from dtbench.report.documents.clean import Cleaned, document

        print_json(document(Cleaned(found, is_done=yes)))
    else:
        from dtbench.report.page.clean_page import clean_page

        print_answer(clean_page(found, is_done=yes))
    _refuse(found)


def _pin(pinned: str | None, unpinned: str | None, results: Path) -> None:
    from dtbench.runs.cleaning import pin, unpin
    from dtbench.store.find_run import find_run

    for named, change, words in ((pinned, pin, "is pinned: it stays"), (unpinned, unpin, "is not pinned any more")):
        if named is not None:
            run = find_run(named, results)
            change(run)
            print_line(f"{run} {words}")


def _refuse(found: "Cleaning") -> None:
    """Exit badly where something could not be removed.

    Raises:
        StoreError: something could not.
    """
    from dtbench.base.errors import StoreError
    from dtbench.base.units import count_things
    from dtbench.runs.cleaning import Why

    refused = sum(why is Why.REFUSED for _, why, _ in found.staying)
    if refused:
        raise StoreError(f"{count_things(refused, 'run')} could not be removed, see above")
