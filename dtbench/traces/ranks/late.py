"""What a rank did instead, while the others waited for it: on its host, from the start of its step to its issue.

What a host did made its rank late only where it issued later than the others' hosts by most of the waiting, and where
the device ran dry meanwhile, by more than the others' did. The others
are always those of the collective in which it was waited for: what a rank does that never waits for it, another stage
of a pipeline or another replica, may be other work.

::

    rank 0   |step──fwd──c├──────────wait─────────┤
    rank 7        |step──copy_batch_to_gpu──fwd──c├┤       began late, then spent time in what the others did not

Ranks that came last together are asked each, beside those that waited for them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, median_low
from typing import Final, NamedTuple

import numpy as np

from dtbench.base.units import format_ns, name_ranks
from dtbench.traces.account.host_work import HostStep, sum_names
from dtbench.traces.ranks.align import ABSENT
from dtbench.traces.ranks.clocks.times import Clock
from dtbench.traces.ranks.over_ranks import OverRanks
from dtbench.traces.ranks.skew import CollectiveSkew
from dtbench.traces.reader.header import PROFILERS
from dtbench.traces.time.intervals import Intervals, clip, unite, unite_all
from dtbench.traces.timeline import SCATTER_NS, RankTimeline

_MOST_RANKS: Final = 3
_LEAST_CAUSED: Final = 0.2  # part of all waiting, but for what is known to be handed on, from which a rank is asked
_LEAST_SAID: Final = 0.05  # part of the longest wait below which a time explains nothing
_CARRIES: Final = 0.1  # part of the longest wait in a step from which another is looked at for why
_MOST: Final = 0.5  # part of the longest wait from which a host that issued so much later is why
_LEAST_NS: Final = 1_000  # below it a host's events are as late as their writing makes them
_INNER: Final = 0.8  # part of what lies around it from which the inner of two spans is what took the time
_EXPLAINS: Final = (
    2  # so many times what it explains a time of a host may be: beyond it, something else took most of it
)
_IS_WHY: Final = 0.5  # part of what the host was late by from which what it did longer than the others is why
_RAN_DRY: Final = 0.5  # part of what the host was late by from which the device's idling shows that it mattered
_MOST_OTHERS: Final = 16  # whose devices are looked at
_LITTLE: Final = 0.1  # part of what a rank began late by below which what it did since is not worth a word
_LOADING: Final = "DataLoader"
_NEVER: Final = np.iinfo(np.int64).max
_SPREAD: Final = 1.25  # so many times what a host was late by is what it issued after the first, where that is told


@dataclass(frozen=True)
class LateRank:
    """What a rank did while others waited for it, alone or with others: means over the steps in which they did so long.

    Times are in ns.

    Attributes:
        rank: global rank.
        steps: in how many.
        waited_ns: the longest wait for it in a step.
        began_late_ns: how much later than the others (median) it began its step; negative: earlier; None: none of them
            has these steps.
        name: what it spent more time in than the others did, before its issue, by a part of the wait that matters;
            empty: nothing, or nobody recorded what hosts did.
        name_ns: time in that.
        others_ns: median of the others' time in it, in the whole step, of those of whose hosts that was recorded.
        host_late_ns: how much later than the others' hosts (median) it issued; None: no issue is known.
        doubt_ns: by which its clock and that of the middle one of the others may be off.
        idle_ns: how much longer than the others' (median) its device had nothing to do by then; None: not known, or its
            rank has none.
        left_out: steps in which they waited much less for it.
        all_steps: that it has, also those in which nobody waited for it alone.
        is_device: its collectives run on a device; else on threads of its host.
        beside: ranks that came last with it; empty: it came alone.
        after_first_ns: how much later than the first of the others' hosts it issued; None: no issue is known.
    """

    rank: int
    steps: int
    waited_ns: int
    began_late_ns: int | None
    name: str
    name_ns: int
    others_ns: int
    host_late_ns: int | None
    doubt_ns: int = 0
    idle_ns: int | None = None
    left_out: int = 0
    all_steps: int = 0
    is_device: bool = True
    beside: tuple[int, ...] = ()
    after_first_ns: int | None = None

    @property
    def may_be_hosts(self) -> bool:
        """Whether its host issued later by most of the wait, and by more than clocks may be off."""
        least_ns = max(_MOST * self.waited_ns, _LEAST_NS, self.doubt_ns + 1)
        return self.host_late_ns is None or self.host_late_ns >= least_ns

    @property
    def least_ns(self) -> float:
        """Below which a time explains nothing of the wait."""
        return max(_LEAST_SAID * self.waited_ns, _LEAST_NS)


class _Wait(NamedTuple):
    """The longest wait for a rank in one step: how long, and by which of its collectives it was ended."""

    waited_ns: int
    issue_ns: int
    others: frozenset[int]  # of that collective
    others_issue_ns: int  # median, on the common clock
    first_issue_ns: int  # of them
    starts_ns: Mapping[int, int]  # when it started on its device, by rank, each on its own clock


class _Compared(NamedTuple):
    """A step of a late rank's host beside the others': by name, its own time before the issue, and all steps' hosts."""

    own_ns: Mapping[str, int]
    mine: HostStep
    others: Sequence[HostStep]  # that were recorded


def find_late_ranks(
    over_ranks: OverRanks, timelines: Sequence[RankTimeline], hosts: Mapping[int, Sequence[HostStep]]
) -> tuple[LateRank, ...]:
    """Find what those did that the others waited for longest; nothing where the times of some host fit no device's.

    Args:
        over_ranks: who waited for whom.
        timelines: of all ranks.
        hosts: the steps of each rank's host.
    """
    if not all(timeline.fits_host for timeline in timelines):
        return ()
    waiting = over_ranks.waiting
    alone = [((one.rank,), one.caused_wait_ns) for one in waiting.ranks if one.caused_wait_ns]
    together = [(one.ranks, one.caused_wait_ns) for one in waiting.together]
    all_ns = sum((*(caused_ns for _, caused_ns in (*alone, *together)), waiting.untold_ns, waiting.undecided_ns))
    by_rank = {timeline.rank: timeline for timeline in timelines}
    found: list[LateRank] = []
    for some in (alone, together):
        for late, caused_ns in sorted(some, key=lambda one: (-one[1], one[0]))[:_MOST_RANKS]:
            if caused_ns >= _LEAST_CAUSED * all_ns and set(late) <= by_rank.keys():
                found += _ask(late, over_ranks, by_rank, hosts)
    return tuple(found)


def _ask(
    late: Sequence[int],
    over_ranks: OverRanks,
    by_rank: Mapping[int, RankTimeline],
    hosts: Mapping[int, Sequence[HostStep]],
) -> Iterator[LateRank]:
    """Yield what each of some ranks did that came last alone or together; nothing of one of which that is not known."""
    for rank in late:
        waits = _find_waits(rank, late, over_ranks, by_rank)
        if waits:
            carrying = _keep_carrying(waits)
            one = _describe(rank, carrying, hosts, over_ranks, by_rank)
            beside = tuple(other for other in late if other != rank)
            yield replace(one, left_out=len(waits) - len(carrying), beside=beside)


def _keep_carrying(waits: Mapping[int, _Wait]) -> dict[int, _Wait]:
    """Keep the steps in which most was waited: why a rank was late by nothing much says nothing of those."""
    least_ns = _CARRIES * max(wait.waited_ns for wait in waits.values())
    return {number: wait for number, wait in waits.items() if wait.waited_ns >= least_ns}


def _find_waits(
    rank: int, together: Sequence[int], over_ranks: OverRanks, by_rank: Mapping[int, RankTimeline]
) -> dict[int, _Wait]:
    """Give, by number of step, the longest wait for these ranks alone where they began last, and nothing handed on."""
    late = by_rank[rank]
    found: dict[int, _Wait] = {}
    for group in over_ranks.matches.groups:
        if rank not in group.ranks:
            continue
        own = group.ranks.index(rank)
        for row in np.flatnonzero(group.index[:, own] != ABSENT).tolist():
            mine = int(group.index[row, own])
            step, issue_ns = late.step_of[mine], late.collectives[mine].issue_ns
            if step is None or issue_ns is None or over_ranks.clocks.astray.has(rank, issue_ns):
                continue
            skew = over_ranks.collectives[rank][mine]
            if not (skew.is_last if len(together) == 1 else skew.late_together == tuple(together)):
                continue
            others = [(other, int(group.index[row, column])) for column, other in enumerate(group.ranks)]
            others = [(other, index) for other, index in others if other not in together and index != ABSENT]
            skews = (over_ranks.collectives[other][i] for other, i in others)
            waited_ns = max((skew.own_ns for skew in skews), default=0)
            number = late.step_numbers[step]
            if waited_ns > (found[number].waited_ns if number in found else 0):
                shown = [(rank, mine), *others[:_MOST_OTHERS]]
                starts_ns = {one: by_rank[one].collectives[i].start_ns for one, i in shown}
                issues_ns = _find_issues(others, over_ranks, by_rank)
                found[number] = _Wait(
                    waited_ns=waited_ns,
                    issue_ns=issue_ns,
                    others=frozenset(other for other, _ in others),
                    others_issue_ns=median_low(issues_ns),
                    first_issue_ns=min(issues_ns),
                    starts_ns=starts_ns,
                )
    return found


def _find_own_waits(late: RankTimeline, skews: Sequence[CollectiveSkew], step: int, until_ns: int) -> Intervals:
    """Return when a rank waited for others in what it issued in a step before a moment."""
    waits = [
        (one.start_ns, one.start_ns + (skew.skew_wait_ns or 0))
        for one, skew, place in zip(late.collectives, skews, late.step_of, strict=True)
        if place == step and one.issue_ns is not None and one.issue_ns < until_ns
    ]
    return unite([start_ns for start_ns, _ in waits], [end_ns for _, end_ns in waits])


def _find_issues(
    others: Sequence[tuple[int, int]], over_ranks: OverRanks, by_rank: Mapping[int, RankTimeline]
) -> list[int]:
    """Return when the others issued, on the common clock; of none of which that is known: never."""
    issues = [
        _common(over_ranks.clocks.by_rank[other], issue_ns)
        for other, index in others
        if (issue_ns := by_rank[other].collectives[index].issue_ns) is not None
        and not over_ranks.clocks.astray.has(other, issue_ns)
    ]
    return issues or [_NEVER]


def _common(clock: Clock, time_ns: int) -> int:
    return int(clock.to_common(np.array([time_ns], dtype=np.int64))[0])


class _Devices:
    """When the device of each rank computed or communicated; ranks are looked at once, and only if asked for."""

    def __init__(self, timelines: Mapping[int, RankTimeline]) -> None:
        self._timelines = timelines
        self._busy: dict[int, Intervals] = {}

    def sum_idle(self, rank: int, start_ns: int, end_ns: int) -> int | None:
        """Return for how long a device had nothing to do; None: the rank has none."""
        timeline = self._timelines[rank]
        if not timeline.is_device:
            return None
        if rank not in self._busy:
            self._busy[rank] = unite_all(timeline.compute, *(one.span for one in timeline.collectives))
        return max(0, end_ns - start_ns) - clip(self._busy[rank], start_ns, end_ns).length_ns


def _find_excess(
    rank: int, wait: _Wait, begins_ns: Mapping[int, int], began_late_ns: int, devices: _Devices
) -> float | None:
    """Return how much longer than the others' a late rank's device had nothing to do before its collective."""
    mine_ns = devices.sum_idle(rank, begins_ns[rank] - max(0, began_late_ns), wait.starts_ns[rank])
    others_ns = [
        idle_ns
        for one, start_ns in wait.starts_ns.items()
        if one != rank and one in begins_ns and (idle_ns := devices.sum_idle(one, begins_ns[one], start_ns)) is not None
    ]
    return None if mine_ns is None or not others_ns else mine_ns - median(others_ns)


def _describe(
    rank: int,
    waits: Mapping[int, _Wait],
    hosts: Mapping[int, Sequence[HostStep]],
    over_ranks: OverRanks,
    timelines: Mapping[int, RankTimeline],
) -> LateRank:
    clocks, own = over_ranks.clocks, timelines[rank]
    devices, idle_ns = _Devices(timelines), list[float | None]()
    began_ns: list[int] = []
    doubt_ns = 0
    compared: list[_Compared] = []
    waited_ns = Counter[str]()
    steps = {step.number: step for step in hosts.get(rank, ())}
    for number, wait in waits.items():
        mine = steps.get(number)
        others = [(one, step) for one in sorted(wait.others) for step in hosts.get(one, ()) if step.number == number]
        others = [(one, step) for one, step in others if not clocks.astray.has(one, step.start_ns)]
        if mine is None or not others or clocks.astray.has(rank, mine.start_ns):
            continue
        middle_ns, middle = median_low((_common(clocks.by_rank[one], step.start_ns), one) for one, step in others)
        began_ns.append(_common(clocks.by_rank[rank], mine.start_ns) - middle_ns)
        begins_ns = {rank: mine.start_ns, **{one: step.start_ns for one, step in others}}
        idle_ns.append(_find_excess(rank, wait, begins_ns, began_ns[-1], devices))
        doubt_ns = max(doubt_ns, *clocks.doubts_ns(rank, [middle]).tolist())
        recorded = [step for _, step in others if step.total_ns]
        compared.append(_Compared(sum_names(mine.spans, wait.issue_ns), mine, recorded))
        step = own.step_numbers.index(number)
        own_waits = _find_own_waits(own, over_ranks.collectives[rank], step, wait.issue_ns)
        waited_ns += _sum_waited(mine, own_waits, wait.issue_ns)
    spent, usual = _compare_names(compared)
    least_ns = _LEAST_SAID * sum(wait.waited_ns for wait in waits.values())
    name = _choose(spent, usual, waited_ns, least_ns)
    issued_ns = [_common(clocks.by_rank[rank], wait.issue_ns) for wait in waits.values()]
    return LateRank(
        rank=rank,
        steps=len(waits),
        waited_ns=round(sum(wait.waited_ns for wait in waits.values()) / len(waits)),
        began_late_ns=round(sum(began_ns) / len(began_ns)) if began_ns else None,
        name=name,
        name_ns=round(sum(spent[name]) / len(spent[name])) if name else 0,
        others_ns=round(sum(usual[name]) / len(usual[name])) if name else 0,
        doubt_ns=doubt_ns,
        idle_ns=_find_mean(idle_ns),
        all_steps=len(own.step_numbers),
        is_device=own.is_device,
        host_late_ns=_find_lateness(issued_ns, [wait.others_issue_ns for wait in waits.values()]),
        after_first_ns=_find_lateness(issued_ns, [wait.first_issue_ns for wait in waits.values()]),
    )


def _find_lateness(issued_ns: Sequence[int], others_ns: Sequence[int]) -> int | None:
    """Return how much later a host issued than others, in the mean; None: some issue of theirs is not known."""
    if _NEVER in others_ns:
        return None
    return round(sum(mine - other for mine, other in zip(issued_ns, others_ns, strict=True)) / len(issued_ns))


def _compare_names(compared: Sequence[_Compared]) -> tuple[dict[str, list[int]], dict[str, list[float]]]:
    """Return the time in each name, of a late rank and the median of the others, in the steps where both are known.

    Of an operator it is known where operators were recorded at all: one that is not there took no time.
    """
    operators = {span.name for one in compared for span in one.mine.spans if span.is_operator}
    spent, usual = dict[str, list[int]](), dict[str, list[float]]()
    for name in {name for one in compared for name in one.own_ns}:
        for one in compared:
            if name in operators and not one.mine.has_operators:
                continue
            recorded = [step.total_ns for step in one.others if step.has_operators or name not in operators]
            if recorded:
                spent.setdefault(name, []).append(one.own_ns.get(name, 0))
                usual.setdefault(name, []).append(median(times_ns.get(name, 0) for times_ns in recorded))
    return spent, usual


def _find_mean(times_ns: Sequence[float | None]) -> int | None:
    known = [time_ns for time_ns in times_ns if time_ns is not None]
    return round(sum(known) / len(known)) if known and len(known) == len(times_ns) else None


def _sum_waited(mine: HostStep, own_waits: Intervals, issue_ns: int) -> Counter[str]:
    """Sum by name what it took before the issue while its rank waited itself; nested ones of a name count twice."""
    borders_ns = [(one.start_ns, max(one.start_ns, min(one.end_ns, issue_ns))) for one in mine.spans]
    times_ns = own_waits.covered_inside(np.array(borders_ns, dtype=np.int64).reshape(-1, 2))
    waited_ns = Counter[str]()
    for span, time_ns in zip(mine.spans, times_ns, strict=True):
        waited_ns[span.name] += time_ns
    return waited_ns


def _choose(
    spent: Mapping[str, Sequence[int]],
    usual: Mapping[str, Sequence[float]],
    waited_ns: Counter[str],
    least_ns: float,
) -> str:
    """Return the innermost name that takes most of the time beyond the others'; empty: none takes enough.

    Not what a name took while its rank waited for others: it may only have waited, too.
    """
    times: dict[str, float] = {name: sum(mine) - sum(usual[name]) - waited_ns[name] for name, mine in spent.items()}
    longest = max(times.values(), default=0.0)
    inner = [name for name, time_ns in times.items() if time_ns >= _INNER * longest and longest >= max(least_ns, 1)]
    return min(inner, key=lambda one: (sum(spent[one]), one), default="")


def describe_late_ranks(late: Sequence[LateRank]) -> tuple[str, ...]:
    """Say what ranks did instead; ranks that came last together, and did so for the same reason, in one sentence."""
    groups: dict[tuple[Sequence[int], _Reason | None], list[LateRank]] = {}
    for one in late:
        groups.setdefault((tuple(sorted((one.rank, *one.beside))), _find_reason(one)), []).append(one)
    return tuple(filter(None, map(describe_late, groups.values())))


def describe_late(late: Sequence[LateRank]) -> str | None:
    """Say what a rank did instead, or several that share a reason; None: the traces show nothing that explains it.

    What its host did is told only where its host issued later by most of the wait, and by more than clocks may be off;
    what it spent time in only where the others spent so much less that it explains a part of the wait that matters; and
    where that is far more than the host was late by, what was left of it at the issue. Nothing where no wait for it was
    longer than ranks that come together come apart by.

    ``rank 7 began its step 7.60 ms late and then spent 1.46 ms in `copy_batch_to_gpu` (the others 0 ns)``
    """
    first, reason = late[0], _find_reason(late[0])
    if reason is None:
        return None
    said = _describe_host(late, reason) if first.may_be_hosts else _describe_device(first)
    return f"{name_ranks([one.rank for one in late])} {said}{_describe_steps(first)}"


def _describe_steps(one: LateRank) -> str:
    """Say in which steps it was so."""
    all_steps = max(one.all_steps, one.steps + one.left_out)
    if one.left_out:
        where = f"the {one.steps} of {all_steps} steps that carry the waiting for it"
        return f", in {where}" if one.steps == 1 else f", in the mean of {where}"
    if one.steps == 1:
        return f", in one of {all_steps} steps" if all_steps > 1 else ""
    return f", in the mean of {one.steps}{f' of {all_steps}' if all_steps > one.steps else ''} steps"


@dataclass(frozen=True)
class _Reason:
    """Why a rank was late, so far as ranks can share it.

    Attributes:
        rank: where nobody else can have the same; None: others may.
        steps: in how many it was so, of how many, and how many are left out.
        began_late, name: its host began its step late, and spent time in that; empty: in nothing.
        is_busy: but its device was busy meanwhile.
        has_caught_up: at its issue less was left of it.
    """

    rank: int | None
    steps: tuple[int, int, int]
    began_late: bool = False
    name: str = ""
    is_busy: bool = False
    has_caught_up: bool = False


def _find_reason(one: LateRank) -> _Reason | None:
    """Find what made a rank late; None: nothing shows it."""
    steps = (one.steps, one.all_steps, one.left_out)
    if one.waited_ns <= SCATTER_NS:
        return None
    if not one.may_be_hosts:
        return _Reason(one.rank, steps)
    late_ns = max(one.began_late_ns or 0, one.name_ns - one.others_ns) if one.host_late_ns is None else one.host_late_ns
    told_ns, began_late_ns, name = 0, one.began_late_ns or 0, ""
    most_ns = _EXPLAINS * max(one.waited_ns, one.host_late_ns or 0)
    began_late = max(one.least_ns, one.doubt_ns + 1) <= began_late_ns <= most_ns
    if began_late:
        told_ns += began_late_ns
    if one.name and one.name_ns - one.others_ns >= max(one.least_ns, _LITTLE * told_ns):
        name = one.name
        told_ns += one.name_ns - one.others_ns
    if not told_ns:
        return None
    if one.idle_ns is not None and one.idle_ns < _RAN_DRY * min(late_ns, one.waited_ns):
        return _Reason(None, steps, is_busy=True)
    if told_ns < _IS_WHY * min(late_ns, one.waited_ns):
        return None
    return _Reason(None, steps, began_late, name, has_caught_up=told_ns > _EXPLAINS * late_ns)


def _describe_host(late: Sequence[LateRank], reason: _Reason) -> str:
    """Say what made hosts late, unless their devices were busy meanwhile."""
    its = "its" if len(late) == 1 else "their"
    if reason.is_busy:
        was, host = ("device, which was", "host") if len(late) == 1 else ("devices, which were", "hosts")
        return f"came late on {its} {was} busy for longer than the others', whatever {its} {host} did"
    said = []
    if reason.began_late:
        said.append(f"began {its} step {_spell([one.began_late_ns or 0 for one in late])} late")
    if reason.name:
        spent, others = (_spell([getattr(one, part) for one in late]) for part in ("name_ns", "others_ns"))
        said.append(f"{'then ' if said else ''}spent {spent} in {_name_work(reason.name)} (the others {others})")
    if reason.has_caught_up:
        left = _spell([one.host_late_ns or 0 for one in late])
        return f"{' and '.join(said)}, of which {left} were left at {its} issue"
    first_ns = max(one.after_first_ns or 0 for one in late)
    if first_ns > _SPREAD * max(one.host_late_ns or 0 for one in late):
        said.append(f"issued {format_ns(first_ns)} after the first")
    return " and ".join(said)


def _spell(times_ns: Sequence[int]) -> str:
    """Spell a time, or between what several lie."""
    low, high = format_ns(min(times_ns)), format_ns(max(times_ns))
    return low if low == high else f"{low} to {high}"


def _name_work(name: str) -> str:
    if name.startswith(PROFILERS):
        return f"the profiler's own `{name.removeprefix(PROFILERS)}`"
    return f"data loading (`{name}`)" if _LOADING in name else f"`{name.strip('# ') or name}`"


def _describe_device(one: LateRank) -> str:
    """Say that a rank came late whose host was in time, or late by too little to explain it."""
    late_ns = one.host_late_ns or 0
    then = "its device came late to what its host had launched" if one.is_device else "what it had issued started late"
    if late_ns > one.doubt_ns:
        issued = f"issued {format_ns(late_ns)} later than the others, of {format_ns(one.waited_ns)} of waiting for it"
    else:
        issued = f"issued no later than the others{', as far as clocks tell' if late_ns > 0 else ''}"
    return f"{issued}: {then}"
