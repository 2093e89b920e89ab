"""The words about anyone's traces: the answer in one sentence, the waits, what the reader must know."""

import math
from collections.abc import Sequence
from typing import Final

from dtbench.analyze.means import MeanTime, OwnerTime, average, average_purposes, sum_owners
from dtbench.analyze.trace_set import TraceSet, name_ranges
from dtbench.units import format_fraction, format_ns
from dtbench.vocabulary import Operation, Purpose

MOST_NAMES = 10
"""Unknown names that are listed."""

UNATTRIBUTED: Final = "unattributed"

CAUSE_WORDS: Final = {
    "skew": "waits for the last rank",
    "queued": "queued behind another",
    "late_issue": "issued late",
    "late_ready": "ready late",
    "sync_op": "issued blocking",
    "tail": "nothing left to hide behind",
    "needed_at_once": "needed at once",
    "bandwidth": "longer than what hides it",
    "unknown": "cause unknown",
}
"""The causes of MEASUREMENT.md, section 2, as a person reads them."""

_WAITS: Final = (("gradient wait", Purpose.GRAD_REDUCE), ("unshard wait", Purpose.UNSHARD))


def answer_lines(traces: TraceSet, owners: Sequence[OwnerTime] | None = None) -> tuple[str, ...]:
    """Say what the traces say: the answer, the waits, and over what the numbers are means.

    Args:
        traces: at least one rank.
        owners: as from ``sum_owners``, with causes where they are known; left out: without.
    """
    mean = average(traces.analyses)
    found = sum_owners(traces.analyses) if owners is None else owners
    return (f"{_time_words(mean)}{_exposed_words(mean, found)}", *_wait_lines(traces, mean), _basis_words(traces, mean))


def _time_words(mean: MeanTime) -> str:
    what = "step" if mean.are_steps else "whole trace"
    return f"{what} {format_ns(mean.overlap.step_ns)}, "


def _exposed_words(mean: MeanTime, owners: Sequence[OwnerTime]) -> str:
    overlap = mean.overlap
    if not overlap.comm_ns:
        return "no communication"
    if not overlap.exposed_comm_ns:
        return f"no communication exposed: all {format_ns(overlap.comm_ns)} of it ran beside compute"
    share = format_fraction(overlap.exposed_step_fraction)
    said = f"{format_ns(overlap.exposed_comm_ns)} exposed ({share})"
    if not owners:
        return said
    cause = owners[0].cause
    why = f", {cause_words(cause)}" if cause else ""
    return f"{said}; {format_ns(owners[0].exposed_ns / mean.windows)} of it {owner_words(owners[0])}{why}"


def owner_words(row: OwnerTime) -> str:
    """Name an owner's collectives: ``layers.3 all-gather``; ``unattributed all-gather (unshard)``."""
    operation = operation_words(row.operation)
    if row.owner:
        return f"{row.owner} {operation}"
    return f"{UNATTRIBUTED} {operation}" + ("" if row.purpose is Purpose.OTHER else f" ({row.purpose})")


def operation_words(operation: Operation | None) -> str:
    """Spell an operation: ``all-gather``."""
    return str(operation).replace("_", "-") if operation else "communication"


def cause_words(cause: str) -> str:
    """Spell a cause; one that has no words is shown as it is."""
    return CAUSE_WORDS.get(cause, cause.replace("_", " "))


def _wait_lines(traces: TraceSet, mean: MeanTime) -> list[str]:
    """Say how long a consumer stood still, for the two purposes that people ask about, where they occur."""
    found = {row.purpose: row for row in average_purposes(traces.analyses)}
    per = "step" if mean.are_steps else "trace"
    return [
        f"{label} {format_ns(found[purpose].wait_ns)} per {per} "
        f"({format_fraction(_ratio(found[purpose].wait_ns, mean.overlap.step_ns))})"
        for label, purpose in _WAITS
        if purpose in found
    ]


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def _basis_words(traces: TraceSet, mean: MeanTime) -> str:
    ranks = [one.rank for one in traces.analyses]
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {name_ranges(ranks)}"
    size = f" of {traces.world_size}" if traces.world_size is not None else ""
    if not mean.are_steps:
        why = "nothing ran in any step" if any(one.steps for one in traces.analyses) else "no step is marked"
        return f"{who}{size}; {why}, all numbers are of whole traces"
    spread = ""
    if mean.windows > 1:
        low, high = format_ns(mean.step.quartile1_ns), format_ns(mean.step.quartile3_ns)
        spread = f", median step {format_ns(mean.step.median_ns)}, middle half {low} to {high}"
    what = f"mean of {mean.windows} steps" if mean.windows > 1 else "one step"
    return f"{who}{size}; {what}{spread}"


def remark_lines(traces: TraceSet) -> tuple[str, ...]:
    """Say what no number counts, what may be counted wrongly, and what was left out."""
    lines = []
    for one, unread in zip(traces.analyses, traces.unread, strict=True):
        if unread.count:
            reasons = ", ".join(f"{count} {reason}" for reason, count in unread.events.items())
            lines.append(f"{one.path}: {unread.count} events could not be read and are in no number ({reasons})")
        if unread.is_truncated:
            lines.append(f"{one.path}: ends in the middle; what came before is used")
    lines += [
        f"counted as compute, may be communication ({count} times): {name}"
        for name, count in traces.unknown_names[:MOST_NAMES]
    ]
    rest = len(traces.unknown_names) - MOST_NAMES
    if rest > 0:
        lines.append(f"and {rest} more such names: see --json")
    return (*lines, *traces.notes)
