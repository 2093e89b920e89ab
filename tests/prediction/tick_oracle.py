"""The same machine as ``prediction/simulate.py``, one tick after the other and without any cleverness."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from dtbench.prediction.program import Collective, Compute, Host, Issue, Launch, Meeting, Program, Wait, Work

_MOST_TICKS = 5_000


@dataclass
class _Given:
    """Something on a lane."""

    what: Work | Collective
    given: int
    key: tuple[object, ...] = ()
    there: int | None = None
    end: int | None = None
    free: int | None = None


@dataclass
class _Rank:
    program: Program
    place: int = 0
    busy_until: int = 0
    given: list[_Given] = field(default_factory=list)
    lanes: dict[str, deque[int]] = field(default_factory=dict)
    counts: dict[tuple[object, ...], int] = field(default_factory=dict)

    def has_ended(self, number: int, tick: int) -> bool:
        end = self.given[number].end
        return end is not None and end <= tick


def run_ticks(programs: Mapping[int, Program], most_ticks: int = _MOST_TICKS) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Return of each rank when its host was done, and when everything that it gave to lanes ended."""
    ranks = {rank: _Rank(program) for rank, program in programs.items()}
    for tick in range(most_ticks):
        while sum(_advance(rank, one, ranks, tick) for rank, one in ranks.items()):
            pass
        if all(_is_done(one, tick) for one in ranks.values()):
            ends = {rank: tuple(given.end or 0 for given in one.given) for rank, one in ranks.items()}
            return {rank: (one.busy_until, ends[rank]) for rank, one in ranks.items()}
    raise AssertionError("it does not end")


def _is_done(one: _Rank, tick: int) -> bool:
    is_over = one.place == len(one.program) and one.busy_until <= tick
    return is_over and all(one.has_ended(number, tick) for number in range(len(one.given)))


def _advance(rank: int, one: _Rank, ranks: Mapping[int, _Rank], tick: int) -> bool:
    """Do whatever can be done in this tick; tell whether that was anything."""
    changed = _advance_host(one, tick)
    for lane in one.lanes.values():
        while lane and (free := one.given[lane[0]].free) is not None and free <= tick:
            lane.popleft()
            changed = True
        if lane and one.given[lane[0]].end is None:
            changed |= _begin(rank, one, one.given[lane[0]], ranks, tick)
    return changed


def _advance_host(one: _Rank, tick: int) -> bool:
    changed = False
    while one.place < len(one.program) and one.busy_until <= tick:
        instruction = one.program[one.place]
        if isinstance(instruction, Wait) and not one.has_ended(instruction.number, tick - instruction.return_ns):
            break
        one.place, one.busy_until, changed = one.place + 1, tick, True
        match instruction:
            case Host(duration_ns=duration) | Compute(duration_ns=duration):
                one.busy_until = tick + duration
            case Launch(work=work):
                _give(one, work.lane, _Given(work, tick))
            case Issue(collective=collective):
                group = (collective.group, collective.ranks)
                number = one.counts[group] = one.counts.get(group, -1) + 1
                there = tick if collective.meeting is Meeting.AT_ISSUE else None
                _give(one, collective.lane, _Given(collective, tick, (*group, number), there))
    return changed


def _give(one: _Rank, lane: str, given: _Given) -> None:
    one.lanes.setdefault(lane, deque()).append(len(one.given))
    one.given.append(given)


def _begin(rank: int, one: _Rank, given: _Given, ranks: Mapping[int, _Rank], tick: int) -> bool:
    what = given.what
    if not all(one.has_ended(number, tick) for number in what.after):
        return False
    if isinstance(what, Work):
        given.end = given.free = max(given.given + what.reach_ns, tick + what.busy_ns)
        return True
    if tick < given.given + what.launch_ns:
        return False
    changed = given.there is None
    if changed:
        given.there = tick
    others = [
        next((mate.there for mate in ranks[other].given if mate.key == given.key), None)
        for other in what.ranks
        if other in ranks and other != rank
    ]
    if what.waits and any(there is None for there in others):
        return changed
    given.end = tick + what.service_ns
    given.free = given.end if what.held_ns is None else tick + what.held_ns
    return True
