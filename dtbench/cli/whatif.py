"""``dtbench whatif``: what would change the steps of a run, or of anyone's traces, and by how much."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtbench.cli.complete import complete_run
from dtbench.cli.console import print_answer, print_aside, print_json
from dtbench.cli.open_report import ChosenSteps, StepRange, are_all_traces, parse_steps, refuse_for_runs
from dtbench.cli.page_file import HtmlFile, refuse_page_place, write_answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dtbench.replay.what_if import WhatIf
    from dtbench.traces.job.trace_set import TraceSet


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
            "for one more. Left out: what applies.",
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
    named = targets or ["latest"]
    from dtbench.report.documents.what_if import Asked, document
    from dtbench.report.page.what_if_page import what_if_page

    found: dict[str, WhatIf] = {}
    refused: dict[str, str] = {}
    if are_all_traces(named):
        if cell is not None:
            raise typer.BadParameter("traces have no cells", param_hint="--cell")
        source = ", ".join(named)
        found[""] = _ask([_read_traces(named, steps, step_range)], changes)
    else:
        if len(named) > 1:
            raise typer.BadParameter("give one run, or only traces")
        refuse_for_runs(steps=steps, range=step_range)
        source = _ask_run(named[0], results, cell, changes, found, refused)
    page = what_if_page(source, found, refused)
    write_answer(html, page)
    print_json(document(Asked(source, found, refused))) if as_json else print_answer(page)


def _read_traces(named: "Sequence[str]", steps: str | None, step_range: str | None) -> "TraceSet":
    from dtbench.traces.job.chosen_steps import find_range
    from dtbench.traces.job.foreign import analyze_traces

    return analyze_traces(map(Path, named), steps=find_range(parse_steps(steps)), step_range=step_range or "")


def _ask_run(
    named: str,
    results: Path,
    cell: str | None,
    changes: "Sequence[str] | None",
    found: "dict[str, WhatIf]",
    refused: dict[str, str],
) -> str:
    """Ask each cell of a run; returns the run's folder.

    Raises:
        PredictionError: nothing can be said of any.
        BadParameter: there is no such cell.
    """
    from dtbench.base.errors import PredictionError
    from dtbench.scenario.sweeps.sweep import point_to
    from dtbench.store.find_run import find_run
    from dtbench.store.read import read_run

    run = find_run(None if named == "latest" else named, results, print_aside)
    names = [entry.name for entry in read_run(run).cells]
    if cell is not None and cell not in names:
        raise typer.BadParameter(f"there is no cell `{cell}`; {point_to(cell, names)}", param_hint="--cell")
    for name in names if cell is None else [cell]:
        try:
            found[name] = _ask(list(_read_launches(run, name)), changes)
        except PredictionError as error:
            refused[name] = str(error)
    if not found:
        raise PredictionError("; ".join(f"{name}: {why}" for name, why in refused.items()))
    return str(run)


def _read_launches(run: Path, cell: str) -> "Iterator[TraceSet]":
    """Yield the traces of each launch of a cell that has any.

    Raises:
        PredictionError: none has.
    """
    from dtbench.base.errors import PredictionError
    from dtbench.store.layout import RunFolder
    from dtbench.store.read import read_run
    from dtbench.traces.rows.launch_tables import read_launch_traces

    folder = RunFolder(run)
    launches = next(entry.launches for entry in read_run(run).cells if entry.name == cell)
    with_traces = [folder.launch(cell, index) for index in launches if folder.launch(cell, index).find_traces()]
    if not with_traces:
        raise PredictionError("no trace of it is there (deleted, or none was written)")
    yield from (read_launch_traces(launch) for launch in with_traces)


def _ask(launches: "Sequence[TraceSet]", changes: "Sequence[str] | None") -> "WhatIf":
    from dtbench.replay.changes.parse import parse_change
    from dtbench.replay.read import read_graph
    from dtbench.replay.what_if import ask

    recorded = [read_graph(one) for one in launches]
    return ask(recorded, None if not changes else [parse_change(text, recorded[0].graph) for text in changes])
