"""Anyone's traces on one screen."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from dtbench.base.units import count_things, format_fraction, format_ns, name_ranks
from dtbench.report.page.brief.notes import MOST_NOTES, note_facts
from dtbench.report.page.looks import step_parts
from dtbench.report.page.losses import Room, loss_blocks
from dtbench.report.page.page import Bar, BarPart, Block, Chart, Fact, Line, Page, Part, Tone
from dtbench.report.page.trace_page import choose_ranks, find_trace_losses, traces_page
from dtbench.report.words.trace_words import advise_traces, are_very_many, brief_lines
from dtbench.traces.job.means import average
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.rank.analysis import TraceAnalysis

MOST_RANKS: Final = 8
"""Ranks that have a bar each where there are no more."""

OF_MANY: Final = 6
"""Of more, those with the longest steps."""

OF_VERY_MANY: Final = 4
"""Of more than ``trace_page.MOST_RANKS``: there is more to say of them, and one screen for all."""

_LITTLE_ROOM: Final = Room(rows=4, owners=2, says_again=False)
_FEW_NOTES: Final = 2


def traces_brief(traces: TraceSet) -> Page:
    """Make the first screen of anyone's traces.

    Args:
        traces: at least one rank.
    """
    whole = traces_page(traces)
    first, *others = brief_lines(traces)
    answer = (Line(first, Tone.STRONG), *map(Line, others))
    facts = [Fact("note", note.words, note.tone) for note in whole.notes]
    notes = note_facts(facts, most=_FEW_NOTES if are_very_many(traces) else MOST_NOTES)
    blocks: list[Block] = [*_chart(traces), *_losses(traces), *([notes] if notes.facts else [])]
    return Page(title=whole.title, answer=answer, parts=(Part("brief", "", tuple(blocks)),))


def _losses(traces: TraceSet) -> Iterator[Block]:
    losses = find_trace_losses(traces)
    if losses is None:
        return
    room = _LITTLE_ROOM if are_very_many(traces) else Room()
    yield from loss_blocks([losses], losses.per, next(iter(advise_traces(traces)), None), room)


def _chart(traces: TraceSet) -> Iterator[Chart]:
    most = MOST_RANKS if len(traces.analyses) <= MOST_RANKS else OF_VERY_MANY if are_very_many(traces) else OF_MANY
    shown, which = choose_ranks(traces, most)
    is_device = any(one.timeline.is_device for one in traces.analyses)
    parts = step_parts("idle" if is_device else "host")
    are_steps = average(traces.analyses).are_steps
    stepless = [one for one in shown if average([one]).are_steps is not are_steps]
    bars = [bar for one in shown if one not in stepless and (bar := _bar(one, parts)) is not None]
    if not bars:
        return
    unknown = len(shown) - len(stepless) - len(bars)
    lacking = [f"{count_things(unknown, 'rank')} of which it is not known"] if unknown else []
    lacking += [f"no step is known of {name_ranks([one.rank for one in stepless])}"] if stepless else []
    yield Chart(
        title="Where the time went, mean over steps" if are_steps else "Where the time went, whole traces",
        parts=parts,
        bars=tuple(bars),
        note="; ".join([*which, *lacking]),
        figures=("step" if are_steps else "trace", "exposed", "of step" if are_steps else "of trace"),
        key="ranks",
    )


def _bar(one: TraceAnalysis, parts: Sequence[BarPart]) -> Bar | None:
    """Return the bar of one rank; None: nothing is known of what it did."""
    overlap = average([one]).overlap
    if overlap.step_ns is None or overlap.compute_ns is None:
        return None
    lengths_ns = [getattr(overlap, part.key) for part in parts]
    least = "at least " if overlap.is_least else ""
    told = (format_ns(overlap.exposed_comm_ns), format_fraction(overlap.exposed_step_fraction))
    exposed, share = (words if words == "n/a" else f"{least}{words}" for words in told)
    bar = Bar(
        label=f"rank {one.rank}",
        lengths_ns=tuple(lengths_ns),
        words=tuple(map(format_ns, lengths_ns)),
        figures=(format_ns(overlap.step_ns), exposed, share),
    )
    said = f"step {format_ns(overlap.step_ns)}, exposed {exposed} ({share})"
    return replace(bar, end=", ".join(filter(None, (said, bar.name_unknown(parts)))))
