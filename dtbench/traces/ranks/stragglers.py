"""Who the others wait for: how often each rank is last, and how much of communication is waiting for the last."""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dtbench.base.units import count_things, format_fraction, format_ns, name_ranks
from dtbench.traces.ranks.align import ABSENT
from dtbench.traces.ranks.handed_on import Caused, find_undecided, sum_caused
from dtbench.traces.ranks.match import Matches
from dtbench.traces.ranks.skew import GroupSkew
from dtbench.traces.skeleton import Skeleton
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.time.overlap import divide

_WHY_UNDECIDED: Final = "several came last there, or may have"
_LONGEST_OPEN: Final = "who is waited for longest is not known"
_NEARLY: Final = 0.8
"""Part of the longest wait for a rank from which another was waited for nearly as long."""


@dataclass(frozen=True)
class RankWaiting:
    """What one rank waited, and was waited for, over all collectives whose skew is known.

    Attributes:
        rank: global rank.
        collectives: number of them, and of those in which it waits for nobody and was last.
        last: how often this rank alone began last, by more than clocks may be off, where it is known of every rank when
            it began; None: it is in no such collective.
        undecided: in how many of its collectives it is not known who was last, or for whom ranks waited.
        comm_ns: sum of their spans.
        skew_wait_ns: sum of its waits for the last rank; where not every rank of the group was seen, at least this, and
            None where it waited for none that was.
        caused_wait_ns: sum over the others of how long they waited for it alone, from when the last but it had begun,
            as far as it did not only hand on what it had waited itself (``handed_on.py``); None: likewise, and where
            all of it may have been handed on from ranks that were not seen.
    """

    rank: int
    collectives: int
    last: int | None
    comm_ns: int
    skew_wait_ns: int | None
    caused_wait_ns: int | None
    undecided: int = 0

    @property
    def wait_fraction(self) -> float:
        """Part of its communication that is waiting for the last rank; NaN without communication or where not known."""
        return divide(self.skew_wait_ns, self.comm_ns)


@dataclass(frozen=True)
class LateTogether:
    """Ranks that came last together, so that none of them alone is waited for.

    Attributes:
        ranks: at least two.
        collectives: in how many.
        caused_wait_ns: sum over the others of how long they waited for these alone.
    """

    ranks: tuple[int, ...]
    collectives: int
    caused_wait_ns: int


@dataclass(frozen=True)
class Waiting:
    """The waiting of all ranks.

    Attributes:
        ranks: in order of rank; those with a collective whose skew is known.
        collectives: how many such collectives there are.
        partial: how many of them not every rank of the group has, or may have: their waits are lower bounds.
        left_out: how many of these every rank has, and one is left out of what is said over ranks.
        launched: events that a trace lost, and that are counted from their launches.
        unknown: how many matched collectives say nothing about skew.
        alone: events of single ranks that were found in no other trace: of them nothing is said.
        astray: how many of the unknown ran when clocks were not as they are taken to be.
        is_size_told: some trace tells how many ranks there are.
        handed_on_ns: sum of waits for ranks that had been delayed by waiting themselves, or may have been.
        untold_ns: the part of that of which no trace tells whether they waited so long.
        together: ranks that came last together, those first that were waited for longest.
        undecided: in how many, of which every rank is compared, it is not known for whom ranks waited: several may have
            been last, as far as clocks tell.
        undecided_ns: how long ranks waited in these, summed over them.
        open_ns: the part of that which they may have waited for one rank alone, and of what they waited, at least, in
            those that are ``partial``.
        outside: where anything ran in steps, how many whose skew is known ran outside all: of them nothing is said.
    """

    ranks: tuple[RankWaiting, ...]
    collectives: int
    partial: int
    launched: int
    unknown: int
    alone: int = 0
    left_out: int = 0
    astray: int = 0
    is_size_told: bool = True
    handed_on_ns: int = 0
    untold_ns: int = 0
    together: tuple[LateTogether, ...] = ()
    undecided: int = 0
    undecided_ns: int = 0
    open_ns: int = 0
    outside: int | None = None

    @property
    def wait_fraction(self) -> float:
        """Part of all ranks' communication that is waiting for the last rank; where some are not seen, at least this.

        NaN without communication, and where nobody waited for a rank that was seen and some were not.
        """
        waits_ns = [one.skew_wait_ns for one in self.ranks if one.skew_wait_ns is not None]
        return divide(
            sum(waits_ns) if any(waits_ns) or not self.partial else None, sum(one.comm_ns for one in self.ranks)
        )

    @property
    def stragglers(self) -> tuple[RankWaiting, ...]:
        """The rank that the others waited longest for, and those for which they waited nearly as long, in their order.

        Whoever caused the waits of which that is not known: none where another may be the longest.
        """
        ranked = sorted(self.ranks, key=lambda one: -(one.caused_wait_ns or 0))
        longest_ns = (ranked[0].caused_wait_ns or 0) if ranked else 0
        next_ns = (ranked[1].caused_wait_ns or 0) if len(ranked) > 1 else 0
        if not longest_ns or (self.open_ns and longest_ns <= next_ns + self.open_ns):
            return ()
        return tuple(one for one in self.ranks if (one.caused_wait_ns or 0) >= _NEARLY * longest_ns)

    @property
    def straggler(self) -> RankWaiting | None:
        """The one rank that the others waited longest for; None: for none alone, for several alike, or not known."""
        return self.stragglers[0] if len(self.stragglers) == 1 else None

    @property
    def uncompared(self) -> int:
        """How many matched collectives say nothing about who waits, clocks aside."""
        return self.unknown - self.astray


def sum_waiting(
    skews: Sequence[GroupSkew], matches: Matches, timelines: Sequence[Skeleton], may_hand_on: Set[int]
) -> Waiting:
    """Sum the skew of all collectives by rank; where any rank has steps, of those that one of these issued.

    Args:
        skews: of every matched group.
        matches: the groups.
        timelines: distinct ranks; say what was issued in steps.
        may_hand_on: ranks that meet others elsewhere, whose delays they may hand on.
    """
    if not any(timeline.steps for timeline in timelines):
        return _sum_all(skews, matches, may_hand_on)
    inside = _keep_steps(skews, timelines)
    outside = _count_known(skews) - _count_known(inside)
    found = _sum_all(inside, matches, may_hand_on)
    return replace(found, unknown=found.unknown - outside, outside=outside)


def _keep_steps(skews: Sequence[GroupSkew], timelines: Sequence[Skeleton]) -> list[GroupSkew]:
    """Take what ran outside the steps of all its ranks as not known."""
    in_step = {timeline.rank: timeline.columns.step.is_told for timeline in timelines}
    kept = []
    for skew in skews:
        is_inside = _are_inside(skew, in_step)
        if is_inside.all():
            kept.append(skew)
            continue
        kept.append(
            replace(
                skew,
                is_known=skew.is_known & is_inside,
                last_column=np.where(is_inside, skew.last_column, ABSENT),
                is_late=skew.is_late & is_inside[:, None],
                handed_on_ns=np.where(is_inside[:, None], skew.handed_on_ns, 0),
                untold_ns=np.where(is_inside[:, None], skew.untold_ns, 0),
            )
        )
    return kept


def _are_inside(skew: GroupSkew, in_step: Mapping[int, Bools]) -> Bools:
    """Tell which collectives of a group a rank of it issued in a step, shape ``(m,)``."""
    index = skew.group.index
    is_inside = np.zeros(len(index), dtype=np.bool_)
    for rank, own in zip(skew.group.ranks, index.T, strict=True):
        is_inside |= in_step[rank][own] & (own != ABSENT)
        if is_inside.all():
            break
    return is_inside


def _count_known(skews: Sequence[GroupSkew]) -> int:
    return sum(int(skew.is_known.sum()) for skew in skews)


def _sum_all(skews: Sequence[GroupSkew], matches: Matches, may_hand_on: Set[int]) -> Waiting:
    ranks = sorted({rank for skew in skews for rank in skew.group.ranks})
    row_of = {rank: row for row, rank in enumerate(ranks)}
    sums = np.zeros((len(ranks), 5), dtype=np.int64)
    partial, undecided, undecided_ns, open_ns = 0, 0, 0, 0
    caused = sum_caused(skews, may_hand_on)
    may_miss: set[int] = set()
    can_be_last: set[int] = set()
    for skew in skews:
        rows = [row_of[rank] for rank in skew.group.ranks]
        known = skew.begins & skew.awaits & skew.is_known[:, None]
        last, last_alone = _sum_lasts(skew, known)
        is_partial = skew.is_known & ~skew.begins_everywhere
        is_undecided = find_undecided(skew, may_hand_on)
        waits_ns = _keep(skew.wait_ns, known)
        waited_ns = waits_ns.sum(axis=1)
        misses_some = np.flatnonzero(known[is_partial].any(axis=0)).tolist()
        may_miss.update(skew.group.ranks[column] for column in misses_some)
        can_be_last.update(skew.group.ranks if (skew.is_known & ~is_partial).any() else ())
        sums[rows, 0] += known.sum(axis=0) + last_alone
        sums[rows, 1] += last
        sums[rows, 2] += _keep(skew.span_ns, known).sum(axis=0)
        sums[rows, 3] += waits_ns.sum(axis=0)
        sums[rows, 4] += (known & (is_undecided | is_partial)[:, None]).sum(axis=0)
        undecided += int(is_undecided.sum())
        undecided_ns += int(waited_ns[is_undecided].sum())
        partial += int(is_partial.sum())
        open_ns += int(waited_ns[is_partial].sum())
        is_open = is_undecided & (skew.late_count < 2)
        open_ns += int(np.minimum(waits_ns[is_open], skew.apart_ns[is_open, None]).sum())
    return Waiting(
        ranks=tuple(
            _make(rank, row, caused, can_be_last=rank in can_be_last, may_miss=rank in may_miss)
            for rank, row in zip(ranks, sums.tolist(), strict=True)
            if row[0]
        ),
        collectives=_count_known(skews),
        partial=partial,
        launched=sum(int((skew.is_launched & skew.is_known[:, None]).sum()) for skew in skews),
        unknown=sum(len(group.index) for group in matches.groups) - _count_known(skews),
        alone=sum(matches.alone.values()),
        left_out=sum(int((skew.is_known & skew.leaves_out).sum()) for skew in skews),
        astray=sum(int((skew.is_astray & ~skew.is_known).sum()) for skew in skews),
        is_size_told=matches.is_size_told,
        handed_on_ns=caused.handed_on_ns,
        untold_ns=sum(caused.untold_ns.values()),
        together=_rank_together(caused),
        undecided=undecided,
        undecided_ns=undecided_ns,
        open_ns=open_ns,
    )


def _sum_lasts(skew: GroupSkew, known: Bools) -> tuple[Ints, Ints]:
    """Return how often each rank of a group alone was last, and how often of these it waits for nobody.

    Args:
        skew: of the group.
        known: shape ``(m, r)``: that rank waits for the last one.
    """
    rows = np.flatnonzero(skew.is_known & (skew.last_column != ABSENT))
    columns = skew.last_column[rows]
    begins = skew.begins[rows, columns]
    is_alone = begins & ~known[rows, columns]
    last, alone = (np.bincount(columns[those], minlength=len(skew.group.ranks)) for those in (begins, is_alone))
    return last, alone


def _keep(table: Ints, kept: Bools) -> Ints:
    """Return a table with 0 in place of all that is not kept; itself where all is."""
    return table if kept.all() else np.where(kept, table, 0)


def _rank_together(caused: Caused) -> tuple[LateTogether, ...]:
    found = [LateTogether(ranks, count, caused.waited_ns[ranks]) for ranks, count in caused.together.items() if count]
    return tuple(sorted(found, key=lambda one: (-one.caused_wait_ns, one.ranks)))


def _make(rank: int, sums: Sequence[int], caused: Caused, *, can_be_last: bool, may_miss: bool) -> RankWaiting:
    """Put together what is known of one rank; where it cannot be last it is not known who was."""
    collectives, last, comm_ns, skew_wait_ns, undecided = sums
    caused_wait_ns = caused.waited_ns[rank,] or (None if caused.untold_ns[rank] else 0)
    return RankWaiting(
        rank=rank,
        collectives=collectives,
        last=last if can_be_last else None,
        comm_ns=comm_ns,
        skew_wait_ns=None if may_miss and not skew_wait_ns else skew_wait_ns,
        caused_wait_ns=caused_wait_ns if can_be_last else None,
        undecided=undecided,
    )


def describe_waiting(waiting: Waiting) -> tuple[str, ...]:
    """Say who waits for whom, in a sentence each; nothing where no ranks can be compared."""
    if not waiting.collectives:
        return _describe_part(waiting)
    sentences = [*_describe_undecided(waiting), *_describe_stragglers(waiting)]
    sentences += [*_describe_together(waiting), *_describe_others(waiting)]
    return (*_describe_part(waiting), *sentences, *_describe_rest(waiting), *_describe_launched(waiting))


def sum_up_waiting(waiting: Waiting) -> tuple[str, ...]:
    """Say the same, and for whom in one sentence, whose times are all that ranks wait, as far as that is known."""
    if not waiting.collectives:
        return _describe_part(waiting)
    late, named_ns = _find_together(waiting), sum(one.caused_wait_ns or 0 for one in waiting.stragglers)
    is_open = _is_longest_open(waiting)
    parts = []
    if waiting.undecided:
        where = f"{waiting.undecided} of {count_things(waiting.collectives, 'collective')}"
        parts.append(f"{format_ns(waiting.undecided_ns)} for ranks that are not known, in {where} ({_WHY_UNDECIDED})")
    if late is not None:
        named_ns += late.caused_wait_ns
        together = f"last together in {late.collectives} of {waiting.collectives}"
        parts.append(f"{format_ns(late.caused_wait_ns)} for {name_ranks(late.ranks)}, {together}")
    if waiting.stragglers:
        parts.append(_sum_up_stragglers(waiting.stragglers))
    if named_ns and (rest_ns := _sum_told(waiting) - named_ns):
        parts.append(f"{format_ns(rest_ns)} for others")
    if untold_ns := sum(time_ns for time_ns, _ in _find_untold(waiting)):
        parts.append(f"{format_ns(untold_ns)} counted for none (why: --full)")
    parts += [_LONGEST_OPEN] if is_open and parts else []
    summed = [f"summed over ranks they wait {'; '.join(parts)}"] if parts else [_LONGEST_OPEN] if is_open else []
    return (*_describe_part(waiting), *summed, *_describe_launched(waiting))


def _sum_up_stragglers(late: Sequence[RankWaiting]) -> str:
    waits_ns = [one.caused_wait_ns or 0 for one in late]
    if len(late) > 1:
        each = f"{format_ns(min(waits_ns))} to {format_ns(max(waits_ns))} for each of"
        return f"{each} {name_ranks([one.rank for one in late])}, about alike"
    return f"{format_ns(waits_ns[0])} for rank {late[0].rank}, {_count_last(late[0])}"


def _count_last(one: RankWaiting) -> str:
    known = " of which that is known" if one.undecided else ""
    return f"last in {one.last} of its {one.collectives - one.undecided}{known}"


def _describe_part(waiting: Waiting) -> tuple[str, ...]:
    """Say what part of communication is waiting, and of which it is not known who was last."""
    if not waiting.collectives:
        what = f"{count_things(waiting.astray, 'collective')} that ranks have in common, clocks disagree by too much"
        return (f"who waits for whom is not known: in {what}",) if waiting.astray else ()
    without = f", without {waiting.alone} that could not be found in any other trace" if waiting.alone else ""
    without += f", without {waiting.outside} outside all steps" if waiting.outside else ""
    without += f", without {waiting.astray} in which clocks disagree" if waiting.astray else ""
    without += f", without {waiting.uncompared} that do not tell who waits" if waiting.uncompared else ""
    over = f"({count_things(waiting.collectives, 'collective')}{without})"
    are_all = not without
    comm = f"the {'' if are_all else 'compared '}communication of {count_things(len(waiting.ranks), 'rank')}"
    if math.isnan(waiting.wait_fraction):
        sentences = [f"how much of {comm} is waiting for the last rank to begin is not known {over}"]
    else:
        share = f"{'at least ' if waiting.partial else ''}{format_fraction(waiting.wait_fraction)}"
        sentences = [f"{share} of {comm} is waiting for the last of them to begin {over}"]
    return (*sentences, *_describe_partial(waiting))


def _describe_stragglers(waiting: Waiting) -> list[str]:
    """Name the rank that the others wait for longest, or those that may as well be called it."""
    late = waiting.stragglers
    if not late:
        return []
    waits_ns = [one.caused_wait_ns or 0 for one in late]
    if len(late) > 1:
        who = f"{name_ranks([one.rank for one in late])} are waited for about alike"
        return [f"{who}: {format_ns(min(waits_ns))} to {format_ns(max(waits_ns))} for each, summed over ranks"]
    (one,) = late
    waited = f"the others wait {format_ns(waits_ns[0])} for it alone, summed over ranks"
    return [f"rank {one.rank} is {_count_last(one)}; {waited}"]


def _find_together(waiting: Waiting) -> LateTogether | None:
    """Return the ranks that came last together, where these were waited for longer than any one."""
    late = next(iter(waiting.together), None)
    least_ns = max((one.caused_wait_ns or 0 for one in waiting.stragglers), default=0)
    return late if late is not None and late.caused_wait_ns > least_ns else None


def _describe_together(waiting: Waiting) -> list[str]:
    late = _find_together(waiting)
    if late is None:
        return []
    who = f"{name_ranks(late.ranks)} come last together in {late.collectives} of {waiting.collectives}"
    return [f"{who}; the others wait {format_ns(late.caused_wait_ns)} for them alone, summed over ranks"]


def _describe_others(waiting: Waiting) -> list[str]:
    """Say how long ranks waited for those that are not named: other ranks, and others that came last together."""
    late = _find_together(waiting)
    named_ns = sum(one.caused_wait_ns or 0 for one in waiting.stragglers) + (0 if late is None else late.caused_wait_ns)
    rest_ns = _sum_told(waiting) - named_ns
    if not rest_ns or not named_ns:
        return []
    return [f"for others, each alone or several together, they wait {format_ns(rest_ns)} more, summed over ranks"]


def _sum_told(waiting: Waiting) -> int:
    """Sum how long ranks waited for others, each alone or several together."""
    alone_ns = sum(one.caused_wait_ns or 0 for one in waiting.ranks)
    return alone_ns + sum(one.caused_wait_ns for one in waiting.together)


def _describe_rest(waiting: Waiting) -> list[str]:
    """Say how long ranks waited beside what is told of single ranks, and why that is counted for none."""
    reasons = [f"{format_ns(time_ns)} {why}" for time_ns, why in _find_untold(waiting)]
    return [f"waits that are counted for none, summed over ranks: {'; '.join(reasons)}"] if reasons else []


def _find_untold(waiting: Waiting) -> list[tuple[int, str]]:
    """Return how long ranks waited that is counted for none, and why."""
    waited_ns = sum(one.skew_wait_ns or 0 for one in waiting.ranks)
    told_ns = _sum_told(waiting)
    rest_ns = waited_ns - told_ns - waiting.handed_on_ns - waiting.undecided_ns
    reasons = []
    if waiting.handed_on_ns:
        before = "for ranks that may only hand on how long they waited for others before"
        reasons.append((waiting.handed_on_ns, before))
    if rest_ns > 0 and told_ns and not waiting.partial:
        why = "while several had not come yet, or in several collectives at once"
        reasons.append((rest_ns, why))
    return reasons


def _describe_undecided(waiting: Waiting) -> list[str]:
    """Say in how many it is not known for whom ranks waited, and whether that leaves open for whom they did longest."""
    is_open = _is_longest_open(waiting)
    if not waiting.undecided:
        return [_LONGEST_OPEN] if is_open else []
    part = f"{waiting.undecided} of {count_things(waiting.collectives, 'collective')}"
    waited = f"{format_ns(waiting.undecided_ns)} of waiting, summed over ranks"
    most = f"; {_LONGEST_OPEN}" if is_open else ""
    return [f"for whom ranks wait is not known in {part} ({waited}): {_WHY_UNDECIDED}{most}"]


def _is_longest_open(waiting: Waiting) -> bool:
    return not waiting.stragglers and any(one.caused_wait_ns for one in waiting.ranks)


def _describe_partial(waiting: Waiting) -> list[str]:
    sentences = []
    unseen = waiting.partial - waiting.left_out
    if unseen and not waiting.is_size_told:
        what = f"{count_things(unseen, 'collective')} may be of more ranks than are here, as no trace says of how many"
        sentences.append(f"{what}: who was last there is not known")
    elif unseen:
        are = "is not seen on every rank of its" if unseen == 1 else "are not seen on every rank of their"
        sentences.append(f"{count_things(unseen, 'collective')} {are} group: who was last there is not known")
    if waiting.left_out:
        are = "is also" if waiting.left_out == 1 else "are also"
        what = f"{count_things(waiting.left_out, 'collective')} {are} of a rank that is compared with no other"
        sentences.append(f"{what} (see the notes): who was last there is not known")
    return sentences


def _describe_launched(waiting: Waiting) -> list[str]:
    if not waiting.launched:
        return []
    are = "is in no trace, and counted from its launch"
    are = are if waiting.launched == 1 else "are in no trace, and counted from their launches"
    return [f"{waiting.launched} of their kernels {are}"]
