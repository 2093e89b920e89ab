"""A comparison on one screen."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from dtbench.base.units import count_things, format_fraction, format_ns
from dtbench.comparison.comparison import ESTABLISHED, Comparison, KernelOutcome, MetricChange, Outcome, Sample
from dtbench.comparison.gate import Gate
from dtbench.comparison.metrics import EXPOSED, EXPOSED_BY_OWNER, EXPOSED_BY_PURPOSE, HIDDEN_SHARE, STEP_TIME
from dtbench.report.page.bounds import bounds_facts
from dtbench.report.page.brief.notes import note_facts
from dtbench.report.page.comparison_page import choose_metrics, collectives_table, comparison_page, metrics_table
from dtbench.report.page.looks import step_parts
from dtbench.report.page.page import Bar, Block, Chart, Fact, Facts, Page, Part, Table, Tone
from dtbench.traces.time.overlap import divide

MOST_METRICS: Final = 8
"""Metrics that have a row: what everybody looks for, then what is established."""

MOST_CHANGED: Final = 3
"""Fields, things done differently and owners that are named."""

_ALWAYS: Final = (STEP_TIME, EXPOSED, HIDDEN_SHARE)


def comparison_brief(comparison: Comparison, gate: Gate | None = None) -> Page:
    """Make the first screen of one comparison, with the bounds on it where there are any."""
    whole = comparison_page(comparison)
    notes = note_facts([Fact("note", note.words, note.tone) for note in whole.notes])
    chart = sides_chart(comparison)
    blocks: list[Block] = [*bounds_facts(gate), *([] if chart is None else [chart]), *_changed(comparison)]
    blocks += [_metrics(comparison), *(_cut(table) for table in collectives_table(comparison))]
    blocks += [notes] if notes.facts else []
    return Page(title=whole.title, answer=whole.answer, parts=(Part("brief", "", tuple(blocks)),))


def _cut(table: Table) -> Table:
    rest = len(table.rows) - MOST_CHANGED
    return replace(table, first=MOST_CHANGED, more=f"and {rest} more: --full")


def sides_chart(comparison: Comparison) -> Chart | None:
    """Return a bar of each side: medians over launches of each part; None where these cannot be compared."""
    parts = step_parts("idle")
    found = {change.metric: change for change in comparison.metrics if not change.subject}
    changes = [found.get(_METRICS.get(part.key, "")) for part in parts]
    known = [(part, change) for part, change in zip(parts, changes, strict=True) if change is not None]
    samples = {
        comparison.baseline.label: [change.baseline for _, change in known],
        comparison.candidate.label: [change.candidate for _, change in known],
    }
    if any(change.outcome is Outcome.UNKNOWN for _, change in known):
        return None
    sides = {name: [sample.median for sample in of_side] for name, of_side in samples.items()}
    if any(math.isnan(time_ns) for times_ns in sides.values() for time_ns in times_ns) or not known:
        return None
    exposed_at = next((at for at, (part, _) in enumerate(known) if part.key == "exposed_comm_ns"), None)
    launches = {name: {_find_known(sample) for sample in of_side} for name, of_side in samples.items()}
    if exposed_at is None or any(len(one) > 1 for one in launches.values()):
        return None
    of_some = [_say_known(name, one.pop()) for name, one in launches.items()]
    doubt = ["no finding, see above"] if comparison.doubts else []
    return Chart(
        title="Where a profiled step went, medians over launches",
        parts=tuple(part for part, _ in known),
        bars=tuple(_bar(name, times_ns, exposed_at) for name, times_ns in sides.items()),
        note="; ".join(["without copies", "the share is of what is drawn", *filter(None, of_some), *doubt]),
        figures=("exposed", "share"),
        key="sides",
    )


def _find_known(sample: Sample) -> tuple[bool, ...]:
    """Return for each launch whether it tells a number."""
    return tuple(not math.isnan(value) for value in sample.values)


def _say_known(name: str, known: Sequence[bool]) -> str:
    """Say of how many launches a side's bar is, where that is not all; empty: it is."""
    return "" if all(known) else f"{name}: of {sum(known)} of {len(known)} launches"


_METRICS: Final = {"compute_ns": "compute", "exposed_comm_ns": EXPOSED, "idle_ns": "idle"}


def _bar(name: str, times_ns: list[float], exposed_at: int) -> Bar:
    exposed, share = format_ns(times_ns[exposed_at]), format_fraction(divide(times_ns[exposed_at], sum(times_ns)))
    return Bar(
        label=name,
        lengths_ns=tuple(map(round, times_ns)),
        words=tuple(map(format_ns, times_ns)),
        end=f"exposed {exposed} ({share})",
        figures=(exposed, share),
    )


def _changed(comparison: Comparison) -> Iterator[Facts]:
    asked = [f"{change.field} {change.baseline} -> {change.candidate}" for change in comparison.treatment]
    facts = [*([Fact("asked for", _first(asked))] if asked else []), *_done(comparison)]
    if comparison.kernels:
        same = sum(row.is_same_work for row in comparison.kernels)
        of = len(comparison.kernels) + comparison.kernels_left_out
        unknown = sum(row.outcome is KernelOutcome.UNKNOWN and not row.is_same_work for row in comparison.kernels)
        told = f", and of {unknown} it is not known" if unknown else ""
        words = f"{same} of {count_things(of, 'compute kernel')} did the same work{told}: see --full"
        facts.append(Fact("kernels", words))
    if facts:
        yield Facts(tuple(facts), key="changed")


def _done(comparison: Comparison) -> Iterator[Fact]:
    """Say what was done differently; where launches contradict each other or were not wholly seen, that alone."""
    if comparison.mechanism_doubts:
        seen = "; what was seen to differ: --full" if comparison.mechanism else ""
        why = _first([*comparison.mechanism_doubts])
        yield Fact("done", f"what was done differently is not established: {why}{seen}", Tone.WARNING)
    elif comparison.mechanism:
        changes = comparison.mechanism
        words = [f"{change.what} of {change.subject} {change.baseline} -> {change.candidate}" for change in changes]
        yield Fact("done", _first(words))


def _first(words: list[str]) -> str:
    rest = len(words) - MOST_CHANGED
    return "; ".join([*words[:MOST_CHANGED], *([f"and {rest} more: --full"] if rest > 0 else [])])


def _metrics(comparison: Comparison) -> Table:
    always = [change for change in comparison.metrics if change.metric in _ALWAYS and not change.subject]
    purposes = [change for change in comparison.metrics if change.metric == EXPOSED_BY_PURPOSE]
    always += sorted(purposes, key=_find_change, reverse=True)[:MOST_CHANGED]
    others = [change for change in comparison.metrics if change.outcome in ESTABLISHED and change not in always]
    shown = sorted([*always, *_largest(others)[: MOST_METRICS - len(always)]], key=comparison.metrics.index)
    in_full = choose_metrics(comparison)
    rest = sum(change not in shown for change in in_full)
    of_owners = len(comparison.metrics) - len(in_full)
    more = [f"and {count_things(rest, 'more metric')}: --full"] if rest else []
    more += [f"and {count_things(of_owners, 'more metric')} of owners: --json"] if of_owners else []
    return replace(metrics_table(shown), notes=("; ".join(more),) if more else ())


def _find_change(change: MetricChange) -> float:
    """Return by how much a metric changed, up or down; nothing where that is not known."""
    change_ns = abs(change.candidate.median - change.baseline.median)
    return 0.0 if math.isnan(change_ns) else change_ns


def _largest(changes: list[MetricChange]) -> list[MetricChange]:
    of_all = [change for change in changes if change.metric != EXPOSED_BY_OWNER]
    return [*of_all, *(change for change in changes if change.metric == EXPOSED_BY_OWNER)]
