"""``dtbench whatif``: what would change the steps of a run, or of anyone's traces, and by how much."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.cli.complete import complete_run
from dtbench.cli.console import print_answer, print_aside, print_json
from dtbench.cli.open_report import ChosenSteps, StepRange, are_all_traces, parse_steps, refuse_for_runs
from dtbench.cli.page_file import HtmlFile, refuse_page_place, write_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dtbench.report.documents.what_if import Asked


def whatif(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN | TRACE...]",
            help="A run's folder or id, a scenario, `latest`; or traces of one job, folders or archives of them. "
            "Left out: the latest run.",
            autocompletion=complete_run,
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--change",
            metavar="CHANGE",
            help="`hidden: OWNER`, `hidden: all`, `link: x2`, `no straggler`, `host: x0` or `kernel: NAME x2`; again "
            "for one more, asked by itself. Left out: what applies.",
        ),
    ] = None,
    cell: Annotated[str | None, typer.Option(help="Of a run, this cell alone.")] = None,
    results: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results"),
    steps: ChosenSteps = None,
    step_range: StepRange = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every number as one JSON document.")] = False,
    html: HtmlFile = None,
) -> None:
    """Replay the profiled steps with something changed: what would make them shorter, and by how much at most.

    A replay knows how long everything took, and what had to wait for what. It must give the unchanged steps first:
    where it is off by more than 3 %, nothing is said. What it says was not run.
    """
    refuse_page_place(html)
    from dtbench.report.documents.what_if import document
    from dtbench.report.page.what_if_page import what_if_page

    asked = _ask(targets or ["latest"], changes or (), cell, results, steps, step_range)
    page = what_if_page(asked.source, asked.cells, asked.refused, asked.doubts)
    write_answer(html, page)
    print_json(document(asked)) if as_json else print_answer(page)


def _ask(
    named: "Sequence[str]",
    changes: "Sequence[str]",
    cell: str | None,
    results: Path,
    steps: str | None,
    step_range: str | None,
) -> "Asked":
    """Ask traces, or a run.

    Raises:
        BadParameter: options do not belong together.
    """
    from dtbench.report.notebook.what_if import ask_run, ask_traces
    from dtbench.store.find_run import find_run
    from dtbench.traces.job.chosen_steps import find_range
    from dtbench.traces.job.foreign import analyze_traces

    if are_all_traces(named):
        if cell is not None:
            raise typer.BadParameter("traces have no cells", param_hint="--cell")
        window = find_range(parse_steps(steps))
        traces = analyze_traces(map(Path, named), steps=window, step_range=step_range or "")
        return ask_traces(traces, changes, ", ".join(named))
    if len(named) > 1:
        raise typer.BadParameter("give one run, or only traces")
    refuse_for_runs(steps=steps, range=step_range)
    run = find_run(None if named[0] == "latest" else named[0], results, print_aside)
    return ask_run(run, changes, cell)
