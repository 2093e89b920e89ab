"""``dtbench report``: what a run found."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.cli.complete import complete_cell, complete_run
from dtbench.cli.console import make_console, print_aside, print_json, print_more
from dtbench.cli.page_file import HtmlFile, InFull, refuse_page_place, write_page

if TYPE_CHECKING:
    from dtbench.runs.reading.cell_data import RunData
    from dtbench.runs.summary import RunSummary


def report(
    run: Annotated[
        str | None,
        typer.Argument(
            help="A run's folder or id, or a scenario for its latest run; left out: the latest.",
            autocompletion=complete_run,
        ),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print every number as one JSON document.")] = False,
    cell: Annotated[
        str | None, typer.Option(help="Show only this cell, in full.", autocompletion=complete_cell)
    ] = None,
    full: InFull = False,
    html: HtmlFile = None,
) -> None:
    """Show which communication a run did not hide behind compute, and what the run knows about it.

    In JSON times are nanoseconds, ratios fractions, and a number that could not be computed is "NaN".
    """
    refuse_page_place(html)
    from dtbench.store.find_run import find_run

    folder = find_run(run, results, print_aside)
    summary = _summarize(folder, cell) if html is None else _write_summary(folder, cell, html)
    if as_json:
        print_document(summary)
    else:
        is_named = run is not None and Path(run).name == folder.name
        print_report(summary, full=full or cell is not None, is_named=is_named)


def _summarize(folder: Path, cell: str | None) -> "RunSummary":
    from dtbench.runs.run import summarize_run

    summary = summarize_run(folder)
    return summary if cell is None else choose_cell(summary, cell)


def _write_summary(folder: Path, cell: str | None, html: Path) -> "RunSummary":
    """Return the same, of what was read once for the page and for what is printed."""
    from dtbench.runs.reading.run_data import read_run_data
    from dtbench.runs.run import summarize_data

    data = read_run_data(folder)
    summary = summarize_data(data)
    if cell is not None:
        summary = choose_cell(summary, cell)
    write_page(html, lambda: make_run_document(data, summary))
    return summary


def make_run_document(data: "RunData", summary: "RunSummary") -> str:
    """Return a run as one HTML file."""
    from dtbench.report.notebook.page_file import run_document

    return run_document(data, summary)


def choose_cell(summary: "RunSummary", name: str) -> "RunSummary":
    """Return a run with one of its cells only.

    Raises:
        BadParameter: it has no such cell.
    """
    from dtbench.scenario.sweeps.sweep import point_to

    chosen = tuple(cell for cell in summary.cells if cell.name == name)
    if chosen:
        return summary.model_copy(update={"cells": chosen})
    names = [cell.name for cell in summary.cells]
    raise typer.BadParameter(f"the run has no cell `{name}`; {point_to(name, names)}")


def print_document(summary: "RunSummary") -> None:
    """Print every number of a run as one JSON document."""
    from dtbench.report.documents.run import document

    print_json(document(summary))


def print_report(summary: "RunSummary", *, full: bool = False, is_named: bool = False) -> None:
    """Print what a run found, on one screen or in full, and unbroken lines that say where things are.

    Which command shows it is left out where it was named: who gave that knows it.
    """
    from rich.console import Console

    from dtbench.report.page.brief.run import run_brief
    from dtbench.report.page.places import find_commands, find_places
    from dtbench.report.page.run_page import run_page
    from dtbench.report.render.terminal import render_brief, render_page, render_places

    make_console().print(render_page(run_page(summary)) if full else render_brief(run_brief(summary)))
    if full:
        Console(highlight=False, soft_wrap=True).print(render_places(find_places(summary)))
    else:
        print_more(find_commands(summary, is_named=is_named))
