"""Anyone's traces as a page: the answer, where the time went, what communication was for, whose was exposed."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dtbench.base.columns import Unit
from dtbench.base.units import count_things, format_bytes, format_fraction, format_ns, name_ranks, three_digits
from dtbench.base.vocabulary import PURPOSE_TIMES
from dtbench.report.page.losses import Losses, losses_table, say_limit
from dtbench.report.page.page import Cell, Column, Line, Page, Part, Row, Table, Tone, lines, numbers, words_of
from dtbench.report.page.rank_groups import group_tables, link_table
from dtbench.report.page.slowest_ranks import MOST_RANKS, SUMMED_UP, say_rest
from dtbench.report.words.advice import of_traces
from dtbench.report.words.causes import (
    UNATTRIBUTED,
    describe_cause,
    describe_causes,
    name_operation,
    spell_owner,
)
from dtbench.report.words.marks import Marks, format_least
from dtbench.report.words.trace_words import (
    advise_traces,
    answer_lines,
    bandwidth_notes,
    find_gaps,
    has_findings,
    make_adviser,
    remark_lines,
    say_lost,
)
from dtbench.traces.account.gaps import GapTime
from dtbench.traces.account.overlap_tax import CAVEAT
from dtbench.traces.job.means import MeanPurpose, Spread, average, average_purposes
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.ranks.stragglers import RankWaiting
from dtbench.traces.time.overlap import Overlap

MOST_STEP_ROWS = 12
"""Steps of all ranks that are shown one by one; of more the spread is shown."""

MOST_OWNERS = 10
"""Owners that are shown by name; the rest is summed."""

MOST_ADVICE = 3
"""Sentences on what would change the largest causes."""

LEAST_ADVISED = 0.01
"""Part of the exposed time below which nothing is said on what would change it."""

_AT_LEAST: Final = "at least "
_AT_MOST: Final = "at most "


def traces_page(traces: TraceSet) -> Page:
    """Make the page of anyone's traces; tables without rows are left out.

    Args:
        traces: at least one rank.
    """
    losses = find_trace_losses(traces)
    tables = (
        *([] if losses is None else [losses_table([losses], losses.per)]),
        owner_table(traces),
        purpose_table(traces),
        time_table(traces),
        gap_table(traces),
        waiting_table(traces),
        *group_tables(traces),
        link_table(traces),
        tax_table(traces),
    )
    first, *others = answer_lines(traces)
    return Page(
        title=_name_traces(traces),
        answer=(Line(first, Tone.STRONG), *lines(others)),
        parts=tuple(Part(table.key, "", (table,), is_folded=table.key not in _OPEN) for table in tables if table.rows),
        notes=lines(remark_lines(traces)),
    )


def _name_traces(traces: TraceSet) -> str:
    """Name the traces by how many ranks there are of how many."""
    shown = count_things(len(traces.analyses), "rank")
    return f"traces of {shown}" if traces.world_size is None else f"traces of {shown} of {traces.world_size}"


_OPEN: Final = ("losses", "owners", "times")
"""Tables that a medium which can fold shows at once."""


def time_table(traces: TraceSet) -> Table:
    """Return where the time of each rank went: by step where they are few, else with the spread over steps."""
    shown, notes = choose_ranks(traces)
    idle = "idle" if any(one.timeline.is_device for one in traces.analyses) else "host"  # Python and dispatch
    parts = ("time", "compute", "exposed\ncomm", "exposed\ncopies", idle)
    rows: list[Row]
    if sum(len(one.steps) for one in traces.analyses) <= MOST_STEP_ROWS:
        rows = [
            (str(one.rank), name, *_spell(overlap))
            for one in shown
            for name, overlap in _windows(one, with_whole=len(shown) == 1 and one.left is None)
        ]
        columns = ("rank", "step")
    else:
        rows = [_spell_rank(one) for one in shown]
        columns = ("rank", "steps")
        notes = ("means; below step and exposed communication the middle half of the steps", *notes)
    notes = (*notes, *_say_time_rest(traces.analyses, shown))
    return Table(
        title="Where the time went",
        columns=[
            *(Column(title) for title in columns),
            *numbers(Unit.NS, *parts),
            *numbers(Unit.FRACTION, "hidden\nshare", "exposed\nshare"),
        ],
        rows=rows,
        notes=notes,
        key="times",
    )


def _say_time_rest(every: Sequence[TraceAnalysis], shown: Sequence[TraceAnalysis]) -> tuple[str, ...]:
    """Say medians and ranges of the ranks that are not shown, of those whose means are of steps if any are."""
    are_shown = {one.rank for one in shown}
    rest = [average([one]) for one in every if one.rank not in are_shown]
    if not rest:
        return ()
    overlaps = [mean.overlap for mean in rest if mean.are_steps or not any(one.are_steps for one in rest)]
    times_ns = {
        words: [time_ns for one in overlaps if (time_ns := getattr(one, name)) is not None]
        for name, words in SUMMED_UP.items()
    }
    return (say_rest(len(rest), times_ns),)


def _count(number: int) -> Cell:
    """Return a number that is spelled with all its digits."""
    return Cell(str(number), value=number)


def _windows(one: TraceAnalysis, *, with_whole: bool) -> list[tuple[str, Overlap]]:
    """Return each window's name and its account."""
    steps = [(str(step.step), step.overlap) for step in one.steps]
    return [*steps, ("whole", one.whole)] if with_whole or not steps else steps


def choose_ranks(traces: TraceSet, most: int = MOST_RANKS) -> tuple[Sequence[TraceAnalysis], tuple[str, ...]]:
    """Choose the ranks with the longest steps, and the one that the others wait for, whose own steps may be short.

    Returns:
        the ranks in their order, and which they are in words; nothing where they are all.
    """
    if len(traces.analyses) <= most:
        return traces.analyses, ()
    straggler = traces.over_ranks.waiting.straggler
    by_length = sorted(traces.analyses, key=_order_by_length)
    longest = by_length[:most]
    late = [] if straggler is None else [one for one in by_length[most:] if one.rank == straggler.rank]
    shown = [*longest[: most - len(late)], *late]
    beside = f" and rank {late[0].rank}, waited for longest," if late else ""
    which = f"the {most - len(late)} ranks with the longest steps{beside} of {len(by_length)}; --json has all"
    return sorted(shown, key=lambda one: one.rank), (which,)


def _order_by_length(one: TraceAnalysis) -> tuple[int, ...]:
    """Return what sorts ranks by their mean step, longest first; of equals the one that exposed more comes first."""
    overlap = average([one]).overlap
    return -(overlap.step_ns or 0), -(overlap.exposed_comm_ns or 0), one.rank


def _spell_rank(one: TraceAnalysis) -> tuple[str | Cell, ...]:
    mean, rank = average([one]), Cell(str(one.rank), value=one.rank)
    if not mean.are_steps:
        return (rank, "whole", *_spell(one.whole))
    step, compute, exposed, *rest = _spell(mean.overlap)
    if mean.exposed and mean.windows > 1 and mean.overlap.comm_ns:
        exposed = _add_spread(exposed, mean.exposed)
    if mean.step and mean.windows > 1:
        step = _add_spread(step, mean.step)
    return (rank, str(mean.windows), step, compute, exposed, *rest)


def _add_spread(cell: Cell, spread: Spread) -> Cell:
    return replace(cell, words=f"{cell.words}\n{_spell_spread(spread)}")


def _spell_spread(spread: Spread) -> str:
    """Spell the middle half, the unit once where both ends have it: ``405-431 ms``."""
    low, high = format_ns(spread.quartile1_ns), format_ns(spread.quartile3_ns)
    number, unit = low.split()
    return f"{number}-{high}" if high.endswith(f" {unit}") else f"{low}-{high}"


def _spell(overlap: Overlap) -> tuple[Cell, ...]:
    """Return the window and the four parts that add up to it, then the two shares; n/a what was not seen.

    Communication that was not seen was exposed, hidden, or ran where copies or nothing else did.
    """
    least, most = (_AT_LEAST, _AT_MOST) if overlap.is_least else ("", "")
    exposed = "none" if overlap.comm_ns == 0 else _bound(least, format_ns(overlap.exposed_comm_ns))
    hidden = math.nan if overlap.is_least else overlap.hidden_fraction
    share = overlap.exposed_step_fraction
    return (
        Cell(format_ns(overlap.step_ns), value=overlap.step_ns),
        Cell(format_ns(overlap.compute_ns), value=overlap.compute_ns),
        Cell(exposed, value=overlap.exposed_comm_ns),
        Cell(_bound(most, format_ns(overlap.exposed_copy_ns)), value=overlap.exposed_copy_ns),
        Cell(_bound(most, format_ns(overlap.idle_ns)), value=overlap.idle_ns),
        Cell(format_fraction(hidden), value=hidden),
        Cell(_bound(least, format_fraction(share)), value=share),
    )


def _bound(words: str, number: str) -> str:
    """Say that a number is a bound; of n/a it is none."""
    return number if number == "n/a" else f"{words}{number}"


def purpose_table(traces: TraceSet) -> Table:
    """Return what communication was for: means over the steps of all ranks, else over whole traces."""
    mean, purposes = average(traces.analyses), average_purposes(traces.analyses)
    per = "per step" if mean.are_steps else "whole trace"
    marks = Marks.of(part for row in purposes for part in (row.part, row.wait_part))
    return Table(
        title=f"What communication was for, {per}",
        columns=[
            Column("purpose"),
            *numbers(Unit.COUNT, "count"),
            *numbers(Unit.BYTES, "bytes"),
            *numbers(Unit.NS, *PURPOSE_TIMES.values(), "waited"),
        ],
        rows=[
            (
                str(row.purpose),
                Cell(f"{least}{three_digits(row.count) if row.count % 1 else f'{row.count:.0f}'}", value=row.count),
                Cell(_bound(_AT_LEAST if row.unsized else least, format_bytes(row.size_bytes)), value=row.size_bytes),
                *(
                    Cell(marks.mark(_bound(least, format_ns(time_ns)), row.part), value=time_ns)
                    for time_ns in (getattr(row, name) for name in PURPOSE_TIMES)
                ),
                Cell(marks.mark(_spell_wait(row, _AT_LEAST if mean.lost else ""), row.wait_part), value=row.wait_ns),
            )
            for row in purposes
            for least in (_AT_LEAST if mean.lost or row.is_least else "",)
        ],
        notes=(*marks.lines, *bandwidth_notes(traces)),
        key="purposes",
    )


def _spell_wait(row: MeanPurpose, least: str) -> str:
    return _bound(_AT_LEAST if row.is_wait_least else least, format_ns(row.wait_ns))


def find_trace_losses(traces: TraceSet) -> Losses | None:
    """Return what anyone's traces left exposed; None: nothing, or causes are no finding."""
    if not traces.owners or not has_findings(traces):
        return None
    mean = average(traces.analyses)
    step_ns = math.nan if mean.overlap.step_ns is None else mean.overlap.step_ns
    rows = [of_traces(row) for row in traces.owners]
    limits = (*say_lost(mean.lost), *([] if mean.part is None else [say_limit(mean.part)]))
    losses = Losses("", rows, mean.windows, step_ns, make_adviser(traces), limits)
    return losses if mean.are_steps else replace(losses, whole="trace")


def owner_table(traces: TraceSet) -> Table:
    """Return whose communication was exposed, why, and what would change it; what is not shown by name is summed."""
    mean = average(traces.analyses)
    per = "per step" if mean.are_steps else "whole trace"
    owners = sorted(traces.owners, key=lambda row: -row.exposed_ns)
    total_ns = sum(row.exposed_ns for row in owners)

    def figures(exposed_ns: int) -> tuple[Cell, Cell]:
        mean_ns, share = exposed_ns / mean.windows, exposed_ns / total_ns
        return Cell(format_ns(mean_ns), value=mean_ns), Cell(format_fraction(share), value=share)

    rest = owners[MOST_OWNERS:]
    return Table(
        title=f"Exposed communication by owner and cause, {per}",
        columns=[
            *(Column(title) for title in ("owner", "collective", "purpose", "cause")),
            *numbers(Unit.NS, "exposed"),
            *numbers(Unit.FRACTION, "share"),
        ],
        rows=[
            (
                spell_owner(row.owner) if row.owner else UNATTRIBUTED,
                name_operation(row.operation),
                str(row.purpose),
                describe_cause(row.cause, waited_for=row.waited_for, behind=row.behind),
                *figures(row.exposed_ns),
            )
            for row in owners
        ],
        notes=(
            *say_lost(mean.lost),
            *([describe_causes(owners, mean.windows)] if rest else []),
            *_advise(traces),
        ),
        key="owners",
        first=MOST_OWNERS,
        rest=(f"{len(rest)} more", "", "", "", *figures(sum(row.exposed_ns for row in rest))) if rest else None,
    )


def _advise(traces: TraceSet) -> list[str]:
    """Say what would change the largest causes beside the first, of which the answer speaks."""
    least_ns = LEAST_ADVISED * sum(row.exposed_ns for row in traces.owners)
    return [f"{one.why}: {one.words}" for one in advise_traces(traces)[1:] if one.exposed_ns >= least_ns][:MOST_ADVICE]


_GAP_PARTS: Final = {
    "gap_ns": "stalled",
    "comm_wait_ns": "waits for\ncomm",
    "host_wait_ns": "waits for\nhost",
    "host_sync_ns": "in a\nsync",
    "launch_gap_ns": "launch\ngaps",
    "other_ns": "other",
}
"""Columns of ``gaps`` that are shown, each with its title."""
_DISJOINT: Final = ("comm_wait_ns", "host_wait_ns", "launch_gap_ns", "other_ns")
_MORE_UNKNOWN: Final = ("comm_wait_ns", "host_wait_ns", "host_sync_ns")
"""Of which more may have passed while it is not known whether the next work was launched."""


def gap_table(traces: TraceSet) -> Table:
    """Return why the compute stream stood still, for each rank: means over steps, else the whole trace.

    All parts of a rank are of the same steps, and add up. A part that is not known in some step is at least the mean of
    what was seen of it, and not known where that is nothing: to leave that step out would leave out its other parts,
    which may be the longest. Left out are steps with a wait that is in no part, unless there are no others.
    """
    are_steps = average(traces.analyses).are_steps
    rows: list[Row] = []
    left_out = []
    for one in choose_ranks(traces)[0]:
        gaps = find_gaps(one, are_steps=are_steps)
        known = [gap for gap in gaps if gap.gap_ns == sum(getattr(gap, part) or 0 for part in _DISJOINT)]
        if gaps:
            rows.append((str(one.rank), gaps[0].lane, *(_gap_cell(known or gaps, part) for part in _GAP_PARTS)))
        if 0 < len(known) < len(gaps):
            left_out.append(f"rank {one.rank}: of the {len(known)} of {len(gaps)} steps of which all parts are known")
    are_bounds = any(words_of(cell).startswith(_AT_LEAST) for row in rows for cell in row)
    least = "at least: of some time the trace does not say when the next work was launched, or what it waited for"
    return Table(
        title=f"Why the main compute stream stalled, {'per step' if are_steps else 'whole trace'}",
        columns=[Column("rank"), Column("stream"), *numbers(Unit.NS, *_GAP_PARTS.values())],
        rows=rows,
        notes=(
            "in a sync: the part of waiting for the host in which it sat in a synchronising call",
            *([least] if are_bounds else []),
            *left_out,
        ),
        key="gaps",
    )


def _gap_cell(gaps: Sequence[GapTime], part: str) -> Cell:
    known = [time_ns for gap in gaps if (time_ns := getattr(gap, part)) is not None]
    return Cell(_gap_words(gaps, part), value=sum(known) / len(gaps) if known else None)


def _gap_words(gaps: Sequence[GapTime], part: str) -> str:
    """Return the mean of a part of some windows' gaps, as a bound where more of it may not be known."""
    known = [time_ns for gap in gaps if (time_ns := getattr(gap, part)) is not None]
    mean_ns = sum(known) / len(gaps)
    if len(known) == len(gaps):
        unknown_ns = sum(_unknown_ns(gap, part) for gap in gaps) / len(gaps)
        return format_least(mean_ns, unknown_ns)
    return f"{_AT_LEAST}{format_ns(mean_ns)}" if mean_ns else "n/a"


def _unknown_ns(gap: GapTime, part: str) -> int:
    """Return how much more a part of a window's gaps may be."""
    if part not in _MORE_UNKNOWN:
        return 0
    return gap.launch_unknown_ns - (0 if part == "comm_wait_ns" else gap.perhaps_comm_ns)


def _spell_last(one: RankWaiting) -> str | Cell:
    """Spell in how many collectives a rank was last; where that is known of none, it is no zero."""
    if one.last is None or (not one.last and one.undecided >= one.collectives):
        return "n/a"
    return Cell(str(one.last), value=one.last)


_UNDECIDED: Final = (
    "undecided: in so many of its collectives it is not known who was last, or for whom ranks waited; it may have been"
    " last, and others may have waited for it, in these, too"
)


def waiting_table(traces: TraceSet) -> Table:
    """Return who waits for whom, over all collectives that could be compared over ranks."""
    waiting = traces.over_ranks.waiting
    shown = sorted(waiting.ranks, key=lambda one: -(one.caused_wait_ns or 0))[:MOST_RANKS]
    return Table(
        title=f"Waiting for the last rank, {'whole traces' if waiting.outside is None else 'all steps together'}",
        columns=[
            Column("rank"),
            *numbers(Unit.COUNT, "collectives", "was last", "undecided"),
            *numbers(Unit.NS, "waited"),
            *numbers(Unit.FRACTION, "of its comm"),
            *numbers(Unit.NS, "others waited"),
        ],
        rows=[
            (
                str(one.rank),
                _count(one.collectives),
                _spell_last(one),
                _count(one.undecided),
                Cell(format_ns(one.skew_wait_ns), value=one.skew_wait_ns),
                Cell(format_fraction(one.wait_fraction), value=one.wait_fraction),
                Cell(format_ns(one.caused_wait_ns), value=one.caused_wait_ns),
            )
            for one in sorted(shown, key=lambda one: one.rank)
        ],
        notes=(
            *_say_waiting_rest(waiting.ranks, shown),
            *((_UNDECIDED,) if any(one.undecided for one in shown) else ()),
        ),
        key="waiting",
    )


def _say_waiting_rest(every: Sequence[RankWaiting], shown: Sequence[RankWaiting]) -> tuple[str, ...]:
    """Say which ranks of many are shown, and of the others medians and ranges."""
    if len(every) == len(shown):
        return ()
    rest = [one for one in every if one not in shown]
    times_ns = {
        "waited": [one.skew_wait_ns for one in rest if one.skew_wait_ns is not None],
        "others waited": [one.caused_wait_ns for one in rest if one.caused_wait_ns is not None],
    }
    which = f"the {len(shown)} ranks that others wait for longest, of {len(every)}"
    return (f"{which}; {say_rest(len(rest), times_ns)}",)


def tax_table(traces: TraceSet) -> Table:
    """Return how much slower the same kernels ran under communication."""
    found = [(one.rank, one.accounts.overlap_tax) for one in choose_ranks(traces)[0]]
    shown = [(rank, tax) for rank, tax in found if tax is not None and (tax.kernels or tax.regionless_count)]
    untold = [rank for rank, _ in found if rank not in {rank for rank, _ in shown}]
    unlike = sum(tax.unlike_count for _, tax in found if tax is not None)
    regionless = sum(tax.regionless_count for _, tax in found if tax is not None)
    nowhere = "not compared, since it is not known in which region of the step they ran"
    return Table(
        title="Overlap tax: the same kernels under communication and alone, whole trace",
        columns=[
            Column("rank"),
            *numbers(None, "under / alone"),
            *numbers(Unit.NS, "costs"),
            *numbers(Unit.COUNT, "kernels", "runs compared"),
            *numbers(Unit.FRACTION, "runs slower"),
        ],
        rows=[
            (
                Cell(str(rank), value=rank),
                Cell(f"{tax.ratio:.2f} x" if tax.kernels else "n/a", value=tax.ratio),
                Cell(f"{'-' if tax.tax_ns < 0 else ''}{format_ns(abs(tax.tax_ns))}", value=tax.tax_ns),
                _count(len(tax.kernels)),
                _count(tax.compared_count),
                Cell(format_fraction(tax.slower_fraction), value=tax.slower_fraction),
            )
            for rank, tax in shown
        ],
        notes=(
            *([f"no kernel that can be compared ran both ways: {name_ranks(untold)}"] if untold else []),
            *([f"{nowhere}: {count_things(regionless, 'run')}"] if regionless else []),
            *([f"not compared, since alone their kernels take unlike times: {unlike} runs"] if unlike else []),
            CAVEAT,
        ),
        key="tax",
    )
