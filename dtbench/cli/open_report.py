"""What has tables and pictures: a run as a notebook loads it, or traces of some of their steps."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from dtbench.cli.console import print_aside

if TYPE_CHECKING:
    from dtbench.report.notebook.loaded import RunReport
    from dtbench.report.notebook.trace_report import TraceReport

ChosenSteps: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--steps",
        metavar="FIRST-LAST",
        help="Count these steps alone, by the numbers that the trace gives them: `3-5`, or `3`. For traces.",
    ),
]
StepRange: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--range",
        metavar="NAME",
        help="Take the ranges of this name as steps, in place of the profiler's marks: "
        '`my_step` of `record_function("my_step")`, or of `my_step 7`. For traces.',
    ),
]
_STEPS: Final = re.compile(r"(?P<first>\d{1,18})(?:-(?P<last>\d{1,18}))?")


def parse_steps(text: str | None) -> tuple[int, int] | None:
    """Read first and last step of a window; None: all.

    Raises:
        BadParameter: the text is none.
    """
    if text is None:
        return None
    match = _STEPS.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"`{text}` are no steps; say `3-5`, or `3` for one", param_hint="--steps")
    first, last = int(match["first"]), int(match["last"] or match["first"])
    if first > last:
        raise typer.BadParameter(f"the last step comes before the first; say `{last}-{first}`", param_hint="--steps")
    return first, last


def refuse_for_runs(**options: object) -> None:
    """Refuse options that choose from traces, or say how to read them: by their names.

    Raises:
        BadParameter: one is given.
    """
    for name, value in options.items():
        if value is not None:
            raise typer.BadParameter(f"--{name} is for traces; give the run's traces folders in place of the run")


def are_all_traces(named: Sequence[str]) -> bool:
    """Tell whether all that a person names are traces, and none is a run."""
    from dtbench.traces.job.foreign import are_traces
    from dtbench.traces.reader.remote import is_remote

    return all(is_remote(one) or are_traces(Path(one)) for one in named)


def choose_kind(named: Sequence[str]) -> "type[RunReport] | type[TraceReport]":
    """Return as what ``open_report`` opens these, before anything is read."""
    from dtbench.report.notebook.loaded import RunReport
    from dtbench.report.notebook.trace_report import TraceReport

    return TraceReport if are_all_traces(named) else RunReport


def open_report(
    named: Sequence[str],
    results: Path,
    *,
    workers: int | None = None,
    steps: str | None = None,
    step_range: str | None = None,
) -> "RunReport | TraceReport":
    """Return a run as a notebook loads it, or traces.

    Args:
        named: a run's folder, id or scenario, or ``latest``; or traces of one job, folders or archives of them.
        results: folder of all runs.
        workers: traces to read at once.
        steps: ``3-5``: of traces these alone.
        step_range: name of the ranges that are their steps.

    Raises:
        BadParameter: several are given and not all are traces, or steps of a run.
    """
    import dtbench
    from dtbench.store.find_run import find_run

    window = parse_steps(steps)
    if are_all_traces(named):
        return dtbench.read_trace(named, workers=workers, steps=window, step_range=step_range or "")
    if len(named) > 1:
        raise typer.BadParameter("give one run, or only traces")
    refuse_for_runs(steps=steps, range=step_range)
    return dtbench.load_run(find_run(None if named == ["latest"] else named[0], results, print_aside))
