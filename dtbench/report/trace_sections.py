"""The tables about anyone's traces: where the time went, what communication was for, whose was exposed."""

import math
from collections.abc import Sequence

from dtbench.analyze.means import OwnerTime, Spread, average, average_purposes, sum_owners
from dtbench.analyze.overlap import Overlap
from dtbench.analyze.trace_analysis import TraceAnalysis
from dtbench.analyze.trace_set import TraceSet
from dtbench.report.section import Column, Section
from dtbench.report.trace_words import UNATTRIBUTED, cause_words, operation_words
from dtbench.units import format_bytes, format_fraction, format_ns

MOST_STEP_ROWS = 12
"""Steps of all ranks that are shown one by one; of more the spread is shown."""

MOST_RANKS = 16
"""Ranks that are shown, those with the longest steps; ``--json`` has all."""

MOST_OWNERS = 10
"""Owners that are shown by name; the rest is summed."""


def make_sections(traces: TraceSet, owners: Sequence[OwnerTime] | None = None) -> list[Section]:
    """Give every table that has rows, in the order of reading.

    Args:
        traces: at least one rank.
        owners: as from ``sum_owners``, with causes where they are known; left out: without.
    """
    found = sum_owners(traces.analyses) if owners is None else owners
    sections = (owner_section(traces, found), purpose_section(traces), time_section(traces))
    return [section for section in sections if section.rows]


def time_section(traces: TraceSet) -> Section:
    """Give where the time of each rank went: by step where they are few, else with the spread over steps."""
    shown, notes = _choose_ranks(traces.analyses)
    idle = "idle" if any(one.timeline.is_device for one in traces.analyses) else "host"  # Python and dispatch
    parts = ("time", "compute", "exposed\ncomm", "exposed\ncopies", idle, "hidden\nshare", "exposed\nshare")
    if sum(len(one.steps) for one in traces.analyses) <= MOST_STEP_ROWS:
        rows = [
            (str(one.rank), name, *_spell(overlap))
            for one in shown
            for name, overlap in _windows(one, with_whole=len(shown) == 1)
        ]
        columns = ("rank", "step")
    else:
        rows = [_spell_rank(one) for one in shown]
        columns = ("rank", "steps")
        notes = ("means; below step and exposed communication the middle half of the steps", *notes)
    return Section(
        title="Where the time went",
        columns=[
            *(Column(title) for title in columns),
            *(Column(title, is_number=True) for title in parts),
        ],
        rows=rows,
        notes=notes,
    )


def _windows(one: TraceAnalysis, *, with_whole: bool) -> list[tuple[str, Overlap]]:
    steps = [(str(step.step), step.overlap) for step in one.steps]
    return [*steps, ("whole", one.whole)] if with_whole or not steps else steps


def _choose_ranks(analyses: Sequence[TraceAnalysis]) -> tuple[Sequence[TraceAnalysis], tuple[str, ...]]:
    if len(analyses) <= MOST_RANKS:
        return analyses, ()
    longest = sorted(analyses, key=lambda one: -average([one]).overlap.step_ns)[:MOST_RANKS]
    note = f"the {MOST_RANKS} ranks with the longest steps, of {len(analyses)}; --json has all"
    return sorted(longest, key=lambda one: one.rank), (note,)


def _spell_rank(one: TraceAnalysis) -> tuple[str, ...]:
    mean = average([one])
    if not mean.are_steps:
        return (str(one.rank), "whole", *_spell(one.whole))
    step, compute, exposed, *rest = _spell(mean.overlap)
    return (
        str(one.rank),
        str(mean.windows),
        f"{step}\n{_spell_spread(mean.step)}",
        compute,
        f"{exposed}\n{_spell_spread(mean.exposed)}" if mean.overlap.comm_ns else exposed,
        *rest,
    )


def _spell_spread(spread: Spread) -> str:
    """Spell the middle half, the unit once where both ends have it: ``405-431 ms``."""
    low, high = format_ns(spread.quartile1_ns), format_ns(spread.quartile3_ns)
    number, unit = low.split()
    return f"{number}-{high}" if high.endswith(f" {unit}") else f"{low}-{high}"


def _spell(overlap: Overlap) -> tuple[str, ...]:
    """Give the window and the four parts that add up to it, then the two shares; n/a where nothing ran."""
    if not overlap.step_ns:
        return ("n/a",) * 7
    exposed = format_ns(overlap.exposed_comm_ns) if overlap.comm_ns else "none"
    return (
        format_ns(overlap.step_ns),
        format_ns(overlap.compute_ns),
        exposed,
        format_ns(overlap.exposed_copy_ns),
        format_ns(overlap.idle_ns),
        format_fraction(overlap.hidden_fraction),
        format_fraction(overlap.exposed_step_fraction if overlap.comm_ns else math.nan),
    )


def purpose_section(traces: TraceSet) -> Section:
    """Give what communication was for: means over the steps of all ranks, else over whole traces."""
    titles = ("count", "bytes", "comm", "hidden", "exposed", "waited")
    per = "per step" if average(traces.analyses).are_steps else "whole trace"
    return Section(
        title=f"What communication was for, {per}",
        columns=[Column("purpose"), *(Column(title, is_number=True) for title in titles)],
        rows=[
            (
                str(row.purpose),
                str(row.count),
                format_bytes(row.size_bytes) if row.size_bytes else "n/a",
                *(format_ns(time_ns) for time_ns in (row.comm_ns, row.hidden_ns, row.exposed_ns, row.wait_ns)),
            )
            for row in average_purposes(traces.analyses)
        ],
    )


def owner_section(traces: TraceSet, owners: Sequence[OwnerTime]) -> Section:
    """Give whose communication was exposed, and why where that is known; what is not shown by name is summed."""
    mean = average(traces.analyses)
    total_ns = sum(row.exposed_ns for row in owners)
    has_causes = any(row.cause for row in owners)
    shown, rest = owners[:MOST_OWNERS], owners[MOST_OWNERS:]
    rows = [
        (
            row.owner or UNATTRIBUTED,
            operation_words(row.operation),
            str(row.purpose),
            *([cause_words(row.cause)] if has_causes else []),
            format_ns(row.exposed_ns / mean.windows),
            format_fraction(row.exposed_ns / total_ns),
        )
        for row in shown
    ]
    if rest:
        rest_ns = sum(row.exposed_ns for row in rest)
        blank = ("",) * (3 if has_causes else 2)
        spelled = (format_ns(rest_ns / mean.windows), format_fraction(rest_ns / total_ns))
        rows.append((f"{len(rest)} more", *blank, *spelled))
    words = ("owner", "collective", "purpose", *(["cause"] if has_causes else []))
    return Section(
        title=f"Exposed communication by owner, {'per step' if mean.are_steps else 'whole trace'}",
        columns=[
            *(Column(title) for title in words),
            *(Column(title, is_number=True) for title in ("exposed", "share")),
        ],
        rows=rows,
    )
