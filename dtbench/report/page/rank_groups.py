"""Groups of ranks: a table of hosts or places in the mesh, where something is said of one; how fast links were."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from dtbench.base.columns import Unit
from dtbench.base.units import count_things, format_bandwidth, format_fraction, format_ns
from dtbench.report.page.page import Cell, Column, Row, Table, numbers
from dtbench.report.words.rank_groups import name_some_ranks
from dtbench.traces.job.means import average
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.ranks.by_group.groupings import HOST, Grouping
from dtbench.traces.ranks.by_group.link_speed import LinkSpeed

MOST_GROUPS: Final = 16
"""Groups that a narrow medium shows, those that others wait for longest first."""


def group_tables(traces: TraceSet) -> Iterator[Table]:
    """Yield a table for each way to divide ranks of which the answer names a group."""
    named = {HOST} if traces.awaited_host is not None else set[str]()
    named |= {traces.slow_group.grouping} if traces.slow_group is not None else set()
    if not traces.over_ranks.is_one_job:
        return
    yield from (_group_table(traces, one) for one in traces.groupings if one.name in named)


def _group_table(traces: TraceSet, grouping: Grouping) -> Table:
    means = {one.rank: average([one]) for one in traces.analyses}
    any_steps = any(mean.are_steps for mean in means.values())
    waiting = {one.rank: one for one in traces.over_ranks.waiting.ranks}

    def row(label: str, ranks: Sequence[int]) -> Row:
        overlaps = [means[rank].overlap for rank in ranks if means[rank].are_steps is any_steps]
        known = [waiting[rank] for rank in ranks if rank in waiting]
        caused_ns = [one.caused_wait_ns for one in known if one.caused_wait_ns is not None]
        return (
            label,
            name_some_ranks(ranks),
            _median_cell([one.compute_ns for one in overlaps]),
            _median_cell([one.exposed_comm_ns for one in overlaps]),
            _median_cell([one.skew_wait_ns for one in known]),
            Cell(format_ns(sum(caused_ns)), value=sum(caused_ns)) if caused_ns else "n/a",
        )

    def caused(ranks: Sequence[int]) -> int:
        return sum(waiting[rank].caused_wait_ns or 0 for rank in ranks if rank in waiting)

    members = sorted(grouping.members().items(), key=lambda item: -caused(item[1]))
    per = "per step" if any_steps else "whole trace"
    return Table(
        title=f"By {grouping.name}",
        columns=[
            Column(grouping.name),
            Column("ranks"),
            *numbers(Unit.NS, f"compute\n{per}", f"exposed comm\n{per}", "waited\nin all", "others waited\nin all"),
        ],
        rows=[row(label, ranks) for label, ranks in members],
        notes=("medians over ranks; others waited: for ranks of it alone, summed",),
        key=f"by_{grouping.name.replace(' ', '_').replace('-', '_')}",
        first=MOST_GROUPS,
        more=f"and {len(members) - MOST_GROUPS} more, for whose ranks others waited less",
    )


def _median_cell(times_ns: Sequence[float | None]) -> Cell:
    known = [time_ns for time_ns in times_ns if time_ns is not None]
    middle_ns = median(known) if known else None
    return Cell(format_ns(middle_ns), value=middle_ns)


_UNION: Final = (
    "link: bytes over the time in which any collective of the group moved some, waits for the last rank left out,"
    " median over ranks; with nccl-tests' factors (busbw)"
)
_UNDERSTATES: Final = (
    "of each collective by itself (busbw) is less than the link's where several of a group run at once"
)


def link_table(traces: TraceSet) -> Table:
    """Return how fast the links of process groups were, beside what each collective is told by itself."""
    links = traces.links
    return Table(
        title="How fast links were",
        columns=[
            Column("groups"),
            *numbers(Unit.COUNT, "ranks of each", "collectives"),
            *numbers(Unit.PER_SECOND, "link", "of each\nby itself"),
            *numbers(Unit.FRACTION, "several\nat once"),
        ],
        rows=[
            (
                _name_groups(one),
                Cell(str(one.size), value=one.size),
                Cell(str(one.collectives), value=one.collectives),
                Cell(format_bandwidth(one.busbw), value=one.busbw),
                Cell(format_bandwidth(one.alone), value=one.alone),
                Cell(format_fraction(one.at_once), value=one.at_once),
            )
            for one in links
        ],
        notes=(_UNION, *_note_links(links)),
        key="links",
        first=MOST_GROUPS,
        more=f"and {count_things(len(links) - MOST_GROUPS, 'more group')}",
    )


def _note_links(links: Sequence[LinkSpeed]) -> Iterator[str]:
    if any(one.is_understated for one in links):
        yield _UNDERSTATES
    left_out = sum(one.left_out for one in links)
    if left_out:
        of = f"{left_out} of {count_things(left_out + sum(one.collectives for one in links), 'collective')}"
        yield f"without {of}, summed over ranks: when they, or one beside them, moved how many bytes is not known"


def _name_groups(one: LinkSpeed) -> str:
    return f"along {one.axis}" if one.axis else f"group {one.group}" if one.group else "not told"
