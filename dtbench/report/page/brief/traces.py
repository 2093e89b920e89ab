"""Anyone's traces on one screen."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from dtbench.base.units import count_things, format_fraction, format_ns
from dtbench.report.page.brief.losses import Losses, loss_blocks
from dtbench.report.page.brief.notes import note_facts
from dtbench.report.page.looks import step_parts
from dtbench.report.page.page import Bar, BarPart, Block, Chart, Fact, Line, Page, Part, Tone
from dtbench.report.page.trace_page import choose_ranks, say_lost, traces_page
from dtbench.report.words.advice import of_traces
from dtbench.report.words.trace_words import advise_losses, brief_lines, has_findings
from dtbench.traces.job.means import average
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.rank.analysis import TraceAnalysis

MOST_RANKS: Final = 8
"""Ranks that have a bar each: those with the longest steps."""


def traces_brief(traces: TraceSet) -> Page:
    """Make the first screen of anyone's traces.

    Args:
        traces: at least one rank.
    """
    whole = traces_page(traces)
    first, *others = brief_lines(traces)
    answer = (Line(first, Tone.STRONG), *map(Line, others))
    notes = note_facts([Fact("note", note.words, note.tone) for note in whole.notes])
    blocks: list[Block] = [*_chart(traces), *_losses(traces), *([notes] if notes.facts else [])]
    return Page(title=whole.title, answer=answer, parts=(Part("brief", "", tuple(blocks)),))


def _losses(traces: TraceSet) -> Iterator[Block]:
    if not traces.owners or not has_findings(traces):
        return
    mean = average(traces.analyses)
    step_ns = math.nan if mean.overlap.step_ns is None else mean.overlap.step_ns
    rows = [of_traces(row) for row in traces.owners]
    losses = Losses("", rows, mean.windows, step_ns, partial(advise_losses, traces), say_lost(mean.lost))
    yield from loss_blocks([losses], "ms per step and rank" if mean.are_steps else "ms of the whole trace")


def _chart(traces: TraceSet) -> Iterator[Chart]:
    shown, which = choose_ranks(traces, MOST_RANKS)
    is_device = any(one.timeline.is_device for one in traces.analyses)
    parts = step_parts("idle" if is_device else "host")
    bars = [bar for one in shown if (bar := _bar(one, parts)) is not None]
    if not bars:
        return
    unknown = len(shown) - len(bars)
    lacking = [f"{count_things(unknown, 'rank')} of which it is not known"] if unknown else []
    yield Chart(
        title="Where the time went, mean over steps" if average(traces.analyses).are_steps else "Where the time went",
        parts=parts,
        bars=tuple(bars),
        note="; ".join([*which, *lacking]),
        figures=("step", "exposed", "of step"),
        key="ranks",
    )


def _bar(one: TraceAnalysis, parts: Sequence[BarPart]) -> Bar | None:
    """Return the bar of one rank; None: nothing is known of what it did."""
    overlap = average([one]).overlap
    if overlap.step_ns is None or overlap.compute_ns is None:
        return None
    lengths_ns = [getattr(overlap, part.key) for part in parts]
    least = "at least " if overlap.is_least else ""
    exposed, share = (f"{least}{words}" for words in _spell(overlap.exposed_comm_ns, overlap.exposed_step_fraction))
    return Bar(
        label=f"rank {one.rank}",
        lengths_ns=tuple(length_ns or 0 for length_ns in lengths_ns),
        words=tuple(map(format_ns, lengths_ns)),
        end=f"step {format_ns(overlap.step_ns)}, exposed {exposed} ({share})",
        figures=(format_ns(overlap.step_ns), exposed, share),
    )


def _spell(time_ns: float | None, share: float) -> tuple[str, str]:
    return format_ns(time_ns), format_fraction(share)
