"""From traces, a launch or a run to their timeline: a document, and a page that draws it."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from dtbench.base.errors import StoreError
from dtbench.base.units import count_things
from dtbench.report.timeline.document import TimelineDocument, make_document
from dtbench.report.timeline.page import timeline_html, timeline_page
from dtbench.report.words.visible import spell_controls
from dtbench.scenario.sweeps.sweep import name_some
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import read_run
from dtbench.store.write import write_text
from dtbench.traces.job.chosen_steps import Steps, find_range
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.rows.launch_tables import read_launch_traces
from dtbench.traces.spans import collect_spans
from dtbench.traces.spans.collect import MOST_SPANS

HOST_PART: Final = 2
"""Into which part of the spans of devices those of hosts have to fit."""

Ranks: TypeAlias = int | Collection[int] | None
"""Which ranks: one, several (``[0, 4]``, ``range(8)``), or None: all that have traces."""


@dataclass(frozen=True, repr=False)
class Timeline:
    """What ranks did, drawn in a notebook where it is the last value of a cell."""

    document: TimelineDocument

    def to_json(self) -> bytes:
        """Return the document that ``timeline.js`` draws."""
        return self.document.to_json()

    def save(self, path: Path | str) -> None:
        """Write a page that shows it in any browser, without a server, offline; the old file or the new one is there.

        Raises:
            StoreError: the disk is full or the folder cannot be written.
        """
        write_text(Path(path), timeline_page(self.document))

    def _repr_html_(self) -> str:
        return timeline_html(self.document)

    def __repr__(self) -> str:
        ranks, steps = len(self.document.ranks), len(self.document.shown_steps)
        spans = sum(len(lane.start) for rank in self.document.ranks for lane in rank.lanes)
        counted = [count_things(ranks, "rank"), count_things(steps, "step"), count_things(spans, "span")]
        said = f"timeline of {', '.join(counted)}; save() writes a page"
        return spell_controls("\n".join([said, *(f"Note: {note}" for note in self.document.notes)]))


def make_timeline(
    traces: TraceSet, *, ranks: Ranks = None, steps: Steps = None, title: str = "", most_spans: int = MOST_SPANS
) -> Timeline:
    """Make the timeline of traces that were analysed; their files are read once more.

    Args:
        traces: of one job.
        ranks: which ranks; a note says how many others there are.
        steps: which steps; None: as many as fit, a note says which are left out.
        title: what it is called.
        most_spans: how many spans fit; half as many of hosts fit beside.

    Raises:
        TraceError: a trace is gone, or there is no such rank or step.
    """
    most_host_spans = most_spans // HOST_PART
    spans = collect_spans(
        traces,
        find_range(steps),
        ranks=[ranks] if isinstance(ranks, int) else ranks,
        most_spans=most_spans,
        most_host_spans=most_host_spans,
    )
    return Timeline(make_document(spans, title))


def open_launch_timeline(
    folder: LaunchFolder,
    *,
    ranks: Ranks = None,
    steps: Steps = None,
    title: str = "",
    most_spans: int = MOST_SPANS,
) -> Timeline:
    """Make the timeline of one launch.

    Raises:
        StoreError: its traces are gone.
        TraceError: there is no such rank or step.
    """
    return make_timeline(read_launch_traces(folder), ranks=ranks, steps=steps, title=title, most_spans=most_spans)


def open_run_timeline(
    run: Path,
    *,
    cell: str | None = None,
    launch: int | None = None,
    ranks: Ranks = None,
    steps: Steps = None,
    most_spans: int = MOST_SPANS,
) -> Timeline:
    """Make the timeline of one launch of a run.

    Args:
        run: its folder.
        cell: of the run; None: the first that has traces.
        launch: of the cell; None: the first that has traces.
        ranks: as for ``make_timeline``.
        steps: as for ``make_timeline``.
        most_spans: as for ``make_timeline``.

    Raises:
        StoreError: this is no run, it has no such cell or launch, or its traces are gone.
        TraceError: there is no such rank or step.
    """
    folder = RunFolder(run)
    launches = [(entry.name, index) for entry in read_run(run).cells for index in entry.launches]
    asked = [one for one in launches if cell in (None, one[0]) and launch in (None, one[1])]
    if not asked:
        there = ", ".join(f"{name} launch {index}" for name, index in launches) or "none"
        raise StoreError(f"{run}: there is no launch {_name(cell, launch)} in this run; there are: {there}")
    with_traces = [one for one in asked if folder.launch(*one).find_traces()]
    chosen = (with_traces or asked)[0]
    title = f"{run.name} · {chosen[0]} · launch {chosen[1]}"
    launch_folder = folder.launch(*chosen)
    timeline = open_launch_timeline(launch_folder, ranks=ranks, steps=steps, title=title, most_spans=most_spans)
    passed_over = [f"{name} launch {index}" for name, index in asked[: asked.index(chosen)]]
    if not passed_over:
        return timeline
    note = f"no traces are left of {name_some(passed_over).replace('`', '')}: {chosen[0]} launch {chosen[1]} is drawn"
    return Timeline(replace(timeline.document, notes=[note, *timeline.document.notes]))


def _name(cell: str | None, launch: int | None) -> str:
    return " ".join([*([] if launch is None else [str(launch)]), *([] if cell is None else [f"of cell {cell}"])])
