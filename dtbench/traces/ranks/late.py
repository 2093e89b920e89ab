"""What a rank did instead, while the others waited for it: on its host, from the start of its step to its issue.

What a host did made its rank late only where it issued later than the others' hosts by most of the waiting, and where
the device ran dry meanwhile, by more than the others' did. The others
are always those of the collective in which it was waited for: what a rank does that never waits for it, another stage
of a pipeline or another replica, may be other work.

::

    rank 0   |step──fwd──c├──────────wait─────────┤
    rank 7        |step──copy_batch_to_gpu──fwd──c├┤       began late, then spent time in what the others did not
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, median_low
from typing import Final, NamedTuple

import numpy as np

from dtbench.base.units import format_ns
from dtbench.traces.account.host_work import HostStep, sum_names
from dtbench.traces.ranks.align import ABSENT
from dtbench.traces.ranks.clocks.clocks import Clocks
from dtbench.traces.ranks.clocks.times import Clock
from dtbench.traces.ranks.over_ranks import OverRanks
from dtbench.traces.reader.header import PROFILERS
from dtbench.traces.time.intervals import Intervals, clip, unite_all
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
_LOADING: Final = "DataLoader"


@dataclass(frozen=True)
class LateRank:
    """What one rank did while others waited for it: means over the steps in which they did so long, ns.

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
    caused_ns = {one.rank: one.caused_wait_ns for one in waiting.ranks if one.caused_wait_ns}
    together_ns = (one.caused_wait_ns for one in waiting.together)
    least_ns = _LEAST_CAUSED * sum((*caused_ns.values(), *together_ns, waiting.untold_ns, waiting.undecided_ns))
    by_rank = {timeline.rank: timeline for timeline in timelines}
    found = []
    for rank in sorted(caused_ns, key=lambda rank: -caused_ns[rank])[:_MOST_RANKS]:
        if caused_ns[rank] >= least_ns:
            waits = _find_waits(rank, over_ranks, by_rank)
            if waits:
                carrying = _keep_carrying(waits)
                late = _describe(rank, carrying, hosts, over_ranks.clocks, by_rank)
                found.append(replace(late, left_out=len(waits) - len(carrying)))
    return tuple(found)


def _keep_carrying(waits: Mapping[int, _Wait]) -> dict[int, _Wait]:
    """Keep the steps in which most was waited: why a rank was late by nothing much says nothing of those."""
    least_ns = _CARRIES * max(wait.waited_ns for wait in waits.values())
    return {number: wait for number, wait in waits.items() if wait.waited_ns >= least_ns}


def _find_waits(rank: int, over_ranks: OverRanks, by_rank: Mapping[int, RankTimeline]) -> dict[int, _Wait]:
    """Give, by number of step, the longest wait for a rank alone where it began last, and nothing it handed on."""
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
            if not over_ranks.collectives[rank][mine].is_last:
                continue
            others = [(other, int(group.index[row, column])) for column, other in enumerate(group.ranks)]
            others = [(other, index) for other, index in others if other != rank and index != ABSENT]
            skews = (over_ranks.collectives[other][i] for other, i in others)
            waited_ns = max((skew.own_ns for skew in skews), default=0)
            number = late.step_numbers[step]
            if waited_ns > (found[number].waited_ns if number in found else 0):
                shown = [(rank, mine), *others[:_MOST_OTHERS]]
                starts_ns = {one: by_rank[one].collectives[i].start_ns for one, i in shown}
                others_issue_ns = _others_issue_ns(others, over_ranks, by_rank)
                found[number] = _Wait(
                    waited_ns, issue_ns, frozenset(other for other, _ in others), others_issue_ns, starts_ns
                )
    return found


def _others_issue_ns(
    others: Sequence[tuple[int, int]], over_ranks: OverRanks, by_rank: Mapping[int, RankTimeline]
) -> int:
    issues = [
        _common(over_ranks.clocks.by_rank[other], issue_ns)
        for other, index in others
        if (issue_ns := by_rank[other].collectives[index].issue_ns) is not None
        and not over_ranks.clocks.astray.has(other, issue_ns)
    ]
    return median_low(issues) if issues else np.iinfo(np.int64).max


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
    clocks: Clocks,
    timelines: Mapping[int, RankTimeline],
) -> LateRank:
    devices, idle_ns = _Devices(timelines), list[float | None]()
    began_ns: list[int] = []
    doubt_ns = 0
    compared: list[_Compared] = []
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
        compared.append(
            _Compared(sum_names(mine.spans, wait.issue_ns), mine, [step for _, step in others if step.total_ns])
        )
    spent, usual = _compare_names(compared)
    name = _choose(spent, usual, _LEAST_SAID * sum(wait.waited_ns for wait in waits.values()))
    late_ns = [_common(clocks.by_rank[rank], wait.issue_ns) - wait.others_issue_ns for wait in waits.values()]
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
        all_steps=len(timelines[rank].step_numbers),
        is_device=timelines[rank].is_device,
        host_late_ns=round(sum(late_ns) / len(late_ns)) if min(late_ns) > -np.iinfo(np.int64).max // 2 else None,
    )


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


def _choose(spent: Mapping[str, Sequence[int]], usual: Mapping[str, Sequence[float]], least_ns: float) -> str:
    """Return the innermost name that takes most of the time beyond the others'; empty: none takes enough."""
    times: dict[str, float] = {name: sum(mine) - sum(usual[name]) for name, mine in spent.items()}
    longest = max(times.values(), default=0.0)
    inner = [name for name, time_ns in times.items() if time_ns >= _INNER * longest and longest >= max(least_ns, 1)]
    return min(inner, key=lambda one: (sum(spent[one]), one), default="")


def describe_late(one: LateRank) -> str | None:
    """Say what a rank did instead; None: the traces show nothing that explains its lateness.

    What its host did is told only where its host issued later by most of the wait, and by more than clocks may be off;
    what it spent time in only where the others spent so much less that it explains a part of the wait that matters; and
    where that is far more than the host was late by, what was left of it at the issue. Nothing where no wait for it was
    longer than ranks that come together come apart by.

    ``rank 7 began its step 7.60 ms late and then spent 1.46 ms in `copy_batch_to_gpu` (the others 0 ns)``
    """
    if one.waited_ns <= SCATTER_NS:
        return None
    said = _describe_host(one) if one.may_be_hosts else _describe_device(one)
    if not said:
        return None
    return f"rank {one.rank} {said}{_describe_steps(one)}"


def _describe_steps(one: LateRank) -> str:
    """Say in which steps it was so."""
    all_steps = max(one.all_steps, one.steps + one.left_out)
    if one.left_out:
        where = f"the {one.steps} of {all_steps} steps that carry the waiting for it"
        return f", in {where}" if one.steps == 1 else f", in the mean of {where}"
    if one.steps == 1:
        return f", in one of {all_steps} steps" if all_steps > 1 else ""
    return f", in the mean of {one.steps}{f' of {all_steps}' if all_steps > one.steps else ''} steps"


def _describe_host(one: LateRank) -> str:
    """Say what made a host late, unless its device was busy meanwhile; empty: nothing shows it."""
    said, told_ns = [], 0
    if (
        one.began_late_ns is not None
        and max(one.least_ns, one.doubt_ns + 1) <= one.began_late_ns <= _EXPLAINS * one.waited_ns
    ):
        said.append(f"began its step {format_ns(one.began_late_ns)} late")
        told_ns += one.began_late_ns
    if one.name and one.name_ns - one.others_ns >= one.least_ns:
        where = _name_work(one.name)
        then = "then " if said else ""
        said.append(f"{then}spent {format_ns(one.name_ns)} in {where} (the others {format_ns(one.others_ns)})")
        told_ns += one.name_ns - one.others_ns
    late_ns = max(one.began_late_ns or 0, one.name_ns - one.others_ns) if one.host_late_ns is None else one.host_late_ns
    if said and one.idle_ns is not None and one.idle_ns < _RAN_DRY * min(late_ns, one.waited_ns):
        return "came late on its device, which was busy for longer than the others', whatever its host did"
    if told_ns < _IS_WHY * min(late_ns, one.waited_ns):
        return ""
    has_caught_up = told_ns > _EXPLAINS * late_ns
    return " and ".join(said) + (f", of which {format_ns(late_ns)} were left at its issue" if has_caught_up else "")


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
