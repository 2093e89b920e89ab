"""An answer as one HTML file: its page, the plots that a notebook has of it, and its timeline where that is small."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dtbench.base.commands import spell_command
from dtbench.base.errors import DtbenchError
from dtbench.base.units import format_bytes
from dtbench.comparison.comparison import Comparison
from dtbench.comparison.gate import Gate
from dtbench.comparison.history.history import History
from dtbench.report.notebook.trace_report import TraceReport
from dtbench.report.page.brief.run import find_worst
from dtbench.report.page.comparison_page import comparisons_page
from dtbench.report.page.history_page import history_page
from dtbench.report.page.page import Picture
from dtbench.report.page.run_page import run_page
from dtbench.report.page.trace_page import find_trace_losses, traces_page
from dtbench.report.plots.names import plot_comparison, plot_history
from dtbench.report.plots.page_pictures import picture_of, run_pictures, untitle
from dtbench.report.render.html import escape_html
from dtbench.report.render.html_page import Inset, page_document
from dtbench.report.timeline import Timeline, make_timeline, open_run_timeline, timeline_inset
from dtbench.runs.reading.cell_data import STEPS_NAME, LaunchData, RunData, stack, stack_all
from dtbench.runs.summary import RunSummary
from dtbench.store.layout import RunFolder
from dtbench.traces.job.trace_set import TraceSet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_SPANS: Final = 30_000
"""Spans of a timeline inside a page, some megabytes in a browser's eyes; TensorBoard shows more."""

MOST_BYTES: Final = 2_000_000
"""Of a timeline inside a page: with it, a page can still be sent by mail."""


def run_document(data: RunData, summary: RunSummary) -> str:
    """Return the file of a run.

    Args:
        data: what was read of it.
        summary: its answer, of all its cells or of some.
    """
    names = {cell.name for cell in summary.cells}
    launches = [launch for launch in data.launches if launch.place.cell in names]
    steps, overlap = (stack_all(launches, name) for name in (STEPS_NAME, "overlap"))
    collectives = stack(launches, "collectives")
    folder, cell = Path(summary.path), _choose_cell(launches, summary)
    timeline = _inset(
        lambda: open_run_timeline(folder, cell=cell, most_spans=MOST_SPANS),
        spell_command("dtbench", "tensorboard", summary.path),
        are_more=len(launches) > 1,
    )
    return page_document(run_page(summary), tuple(run_pictures(summary, steps, overlap, collectives)), timeline)


def _choose_cell(launches: Sequence[LaunchData], summary: RunSummary) -> str | None:
    """Return the cell whose timeline is shown: that which the answer is about, if traces of it are left; None: any."""
    folder, worst = RunFolder(Path(summary.path)), find_worst(summary)
    if len(summary.cells) == 1:
        return summary.cells[0].name
    places = [launch.place for launch in launches if worst is not None and launch.place.cell == worst.name]
    has_traces = any(folder.launch(place.cell, place.launch).find_traces() for place in places)
    return worst.name if worst is not None and has_traces else None


def traces_document(traces: TraceSet, paths: Sequence[Path]) -> str:
    """Return the file of anyone's traces.

    Args:
        traces: as analysed.
        paths: where they were found.
    """
    elsewhere = spell_command("dtbench", "export", *paths, "--perfetto", "timeline.tar")
    timeline = _inset(lambda: make_timeline(traces, most_spans=MOST_SPANS), elsewhere)
    return page_document(traces_page(traces), tuple(_trace_pictures(TraceReport(traces))), timeline)


def comparisons_document(comparisons: Sequence[Comparison], gate: Gate | None = None) -> str:
    """Return the file of one comparison or of several, with the bounds on them where there are any."""
    return page_document(comparisons_page(comparisons, gate), tuple(_comparison_pictures(comparisons)))


def history_document(history: History, gate: Gate | None = None) -> str:
    """Return the file of a history with its plot, and with the bounds on it where there are any."""
    key = "changes" if history.changes else "points"
    picture = picture_of(
        key,
        "history",
        "Every point, and where the level changed",
        lambda: untitle(plot_history(history), history.sentence),
    )
    return page_document(history_page(history, gate), (picture,))


def _trace_pictures(report: TraceReport) -> Iterator[Picture]:
    if not report.owners.empty:
        title = "What communication is exposed, by purpose and cause"
        part = "owners" if find_trace_losses(report.traces) is None else "losses"
        yield picture_of(part, "exposed", title, report.plot_exposed)
        yield picture_of("owners", "owners", "Whose communication is exposed, and why", report.plot_owners)
    if not report.overlap.empty and len(report.traces.analyses) > 1:
        yield picture_of("times", "ranks", "Each rank in each step", report.plot_ranks)
        yield picture_of("times", "causes", "Each rank's exposed communication by cause", report.plot_causes)
    if not report.overlap.empty:
        yield picture_of("times", "overlap", "What each profiled step hides and leaves exposed", report.plot_overlap)


def _comparison_pictures(comparisons: Sequence[Comparison]) -> Iterator[Picture]:
    for at, one in enumerate(comparisons):
        key = "metrics" if len(comparisons) == 1 else f"candidate:{one.candidate.label}"
        yield picture_of(key, f"changes{at}", "Each metric's change with its interval", _plot(one))


def _plot(comparison: Comparison) -> Callable[[], "Figure"]:
    return lambda: untitle(plot_comparison(comparison), comparison.sentence)


def _inset(make: Callable[[], Timeline], elsewhere: str, *, are_more: bool = False) -> Inset:
    """Return the timeline, or a sentence that says why it is left out and which command shows it; and the others."""
    try:
        document = make().document
        encoded = document.to_json()
        if len(encoded) > MOST_BYTES:
            encoded = document.without_hosts().to_json()
    except DtbenchError as error:
        return _say(f"The timeline is left out: {error}")
    if len(encoded) > MOST_BYTES:
        size = format_bytes(len(encoded))
        return _say(f"The timeline is left out: with {size} it is too large for a page. See it with: {elsewhere}")
    inset = timeline_inset(encoded)
    others = _say(f"Of {document.title} alone. The other launches: {elsewhere}") if are_more else None
    return inset if others is None else replace(inset, html=f"{others.html}{inset.html}")


def _say(sentence: str) -> Inset:
    return Inset(f'<p class="sentence">{escape_html(sentence)}</p>')
