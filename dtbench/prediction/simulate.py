"""Runs programs against lanes, one event after another: of the emulated link, of devices, of gloo's threads.

::

    rank 0   compute ████████ i0 ████████ i1 ........wait
    rank 1   compute ██████████████ i0 ████████ i1 ..wait           a collective begins when its last rank has issued it
    lane                            ░░░░░0░░░░░░░░░░░░1░░░░░░░      and its lane is free: begin = max(last issue, free)

Lanes are a rank's own, first in, first out. On the emulated link ``end = begin + service``
(``dtbench/worker/network/link.py``). Where ranks meet at the start instead (``Meeting.AT_START``), each holds its lane
from when that is free, and all wait for the last of them: ``end = max over ranks(start) + service``.

All times are ns from one moment, the same on all ranks: of one step its start.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from dtbench.base.vocabulary import Region
from dtbench.prediction.program import (
    Collective,
    Compute,
    Enter,
    Host,
    Instruction,
    Issue,
    Launch,
    Mark,
    Meeting,
    Program,
    Wait,
    Work,
)


@dataclass(frozen=True)
class Computed:
    """Compute in ``[start, end)``; ``place`` is its place in the program."""

    place: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Visited:
    """A region in ``[start, end)``."""

    region: Region
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Served:
    """One collective as a rank saw it.

    Attributes:
        place: of its issue in the program.
        visit: index into the rank's regions; None: issued before any.
        issue_ns: by this rank.
        last_issue_ns: when the last rank of its group was there: had issued it, or begun with it.
        begin_ns, end_ns: served in ``[begin, end)``; where ranks meet at the start, from this rank's own.
        wait_ns: the host was blocked for it, over all waits.
        used_ns: when the last wait for it returned; None: nobody waited.
    """

    collective: Collective
    is_blocking: bool
    place: int
    visit: int | None
    issue_ns: int
    last_issue_ns: int
    begin_ns: int
    end_ns: int
    wait_ns: int = 0
    used_ns: int | None = None


@dataclass(frozen=True)
class Way:
    """The last stretch of the longest way to a moment: what took until then, and what had to end before it began.

    Attributes:
        before: the way to its start; None: it begins with the program.
        rank: that did it.
        number: of what a lane did; None: the host was busy.
        start_ns, end_ns: when; work that stands launched in time, from its lane's end of the work before.
    """

    before: "Way | None"
    rank: int
    number: int | None
    start_ns: int
    end_ns: int

    def walk_back(self) -> Iterator["Way"]:
        """Yield its stretches, the last first."""
        one: Way | None = self
        while one is not None:
            yield one
            one = one.before


_Moment = tuple[int, Way | None]
"""A time, and the longest way to it."""


@dataclass(frozen=True)
class Execution:
    """What one rank did.

    Attributes:
        step_ns: when its program ended.
        computed, visited, served: in order of the program.
        ends_ns: when everything that it issued or launched ended, in that order.
        marks_ns: when it came to each of its marks, by name.
        way: the longest way to the end of its program; None: that took no time.
        ways: the same to each of ``ends_ns``.
    """

    step_ns: int
    computed: tuple[Computed, ...]
    visited: tuple[Visited, ...]
    served: tuple[Served, ...]
    ends_ns: tuple[int, ...] = ()
    marks_ns: Mapping[str, int] = field(default_factory=dict)
    way: Way | None = field(default=None, repr=False)
    ways: tuple[Way | None, ...] = field(default=(), repr=False)


def simulate(programs: Mapping[int, Program]) -> dict[int, Execution]:
    """Run the programs of ranks that take part in the same collectives.

    A rank that has no program is taken to have issued everything long before: one rank alone stands for many that do
    the same.

    Args:
        programs: by global rank.

    Raises:
        AssertionError: ranks wait for collectives that others never issue.
    """
    board = _Board(frozenset(programs))
    hosts = [_HostState(rank, program, board) for rank, program in programs.items()]
    while not all([host.go_on() for host in hosts]):  # noqa: C419  each goes on, whatever the others say
        if not board.take_news():
            raise AssertionError("no program goes on: their collectives do not fit together")
    return {host.rank: host.conclude() for host in hosts}


_Key = tuple[str, tuple[int, ...], int]
"""Group, its ranks, and a collective's number on it."""


def _last(*moments: _Moment) -> _Moment:
    return max(moments, key=lambda one: one[0])


class _Board:
    """When each rank was there for each collective."""

    def __init__(self, ranks: frozenset[int]) -> None:
        self._ranks = ranks
        self._there: dict[_Key, list[_Moment]] = {}
        self._has_news = False

    def put(self, key: _Key, moment: _Moment) -> None:
        """Say when one rank was there."""
        self._there.setdefault(key, []).append(moment)
        self._has_news = True

    def find_last(self, key: _Key) -> _Moment | None:
        """Return when the last rank was there; None: some are not yet."""
        there = self._there[key]
        return _last(*there) if len(there) == len(self._ranks.intersection(key[1])) else None

    def take_news(self) -> bool:
        """Tell whether anything was put since this was asked last."""
        had, self._has_news = self._has_news, False
        return had


@dataclass
class _Lane:
    """Numbers of what waits to be done on it, and when it is free."""

    queue: deque[int] = field(default_factory=deque)
    free: _Moment = (0, None)


_Launched = tuple[Work, _Moment]


@dataclass
class _HostState:
    """How far one rank has come."""

    rank: int
    program: Program
    board: _Board
    place: int = 0
    _now: _Moment = (0, None)
    _computed: list[Computed] = field(default_factory=list)
    _visited: list[Visited] = field(default_factory=list)
    _given: list[Served | _Launched] = field(default_factory=list)
    _issued: dict[int, tuple[_Key, _Moment]] = field(default_factory=dict)
    _is_there: set[int] = field(default_factory=set)  # collectives that have begun to wait for other ranks
    _ends: dict[int, _Moment] = field(default_factory=dict)
    _group_counts: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)
    _lanes: dict[str, _Lane] = field(default_factory=dict)
    _marks_ns: dict[str, int] = field(default_factory=dict)

    @property
    def now_ns(self) -> int:
        """How late it is on this rank."""
        return self._now[0]

    def go_on(self) -> bool:
        """Go on as far as possible; tells whether all has been done."""
        while True:
            while self.place < len(self.program) and self._execute(self.program[self.place]):
                self.place += 1
            if not self._serve(self._lanes.values()):
                return self.place == len(self.program) and not any(lane.queue for lane in self._lanes.values())

    def conclude(self) -> Execution:
        """Return what happened, once all ranks are done."""
        self._leave_region()
        ends = [self._ends[number] for number in range(len(self._given))]
        return Execution(
            self.now_ns,
            tuple(self._computed),
            tuple(self._visited),
            tuple(one for one in self._given if isinstance(one, Served)),
            tuple(end_ns for end_ns, _ in ends),
            self._marks_ns,
            self._now[1],
            tuple(way for _, way in ends),
        )

    def _execute(self, instruction: Instruction) -> bool:
        """Do it; False: it is blocked by what other ranks have not issued yet."""
        match instruction:
            case Compute(duration_ns=duration_ns):
                self._computed.append(Computed(self.place, self.now_ns, self.now_ns + duration_ns))
                self._now = self._follow(self._now, duration_ns)
            case Host(duration_ns=duration_ns):
                self._now = self._follow(self._now, duration_ns)
            case Launch(work=work):
                self._give(work.lane, (work, self._now))
            case Enter(region=region):
                self._leave_region()
                self._visited.append(Visited(region, self.now_ns, self.now_ns))
            case Issue():
                self._issue(instruction)
            case Wait():
                return self._wait(instruction)
            case Mark(name=name):
                self._marks_ns[name] = self.now_ns
        return True

    def _follow(self, before: _Moment, duration_ns: int, number: int | None = None) -> _Moment:
        start_ns, way = before
        end_ns = start_ns + duration_ns
        return end_ns, Way(way, self.rank, number, start_ns, end_ns) if duration_ns else way

    def _leave_region(self) -> None:
        if self._visited:
            self._visited[-1] = replace(self._visited[-1], end_ns=self.now_ns)

    def _give(self, lane: str, what: Served | _Launched) -> None:
        self._lanes.setdefault(lane, _Lane()).queue.append(len(self._given))
        self._given.append(what)

    def _issue(self, instruction: Issue) -> None:
        collective, now_ns = instruction.collective, self.now_ns
        group = (collective.group, collective.ranks)
        number = self._group_counts.get(group, 0)
        self._group_counts[group] = number + 1
        key = (*group, number)
        self._issued[len(self._given)] = (key, self._now)
        if collective.meeting is Meeting.AT_ISSUE:
            self.board.put(key, self._now)
        visit = len(self._visited) - 1 if self._visited else None
        self._give(
            collective.lane,
            Served(collective, instruction.is_blocking, self.place, visit, now_ns, now_ns, now_ns, now_ns),
        )

    def _wait(self, instruction: Wait) -> bool:
        number = instruction.number
        if number not in self._ends:
            self._serve(self._lanes.values())
        if number not in self._ends:
            return False
        before_ns = self.now_ns
        self._now = _last(self._now, self._follow(self._ends[number], instruction.return_ns))
        one = self._given[number]
        if isinstance(one, Served):
            wait_ns = self.now_ns - before_ns
            self._given[number] = replace(one, wait_ns=one.wait_ns + wait_ns, used_ns=self.now_ns)
        return True

    def _serve(self, lanes: Iterable[_Lane]) -> bool:
        """Do what can be done on some lanes, in order; tells whether that was anything."""
        before = len(self._ends)
        served = -1
        while served != len(self._ends):
            served = len(self._ends)
            for lane in lanes:
                while lane.queue and self._serve_first(lane):
                    lane.queue.popleft()
        return len(self._ends) > before

    def _serve_first(self, lane: _Lane) -> bool:
        """Do what a lane has to do first; False: it waits for another lane, or another rank."""
        number = lane.queue[0]
        one = self._given[number]
        after = one.collective.after if isinstance(one, Served) else one[0].after
        if any(other not in self._ends for other in after):
            return False
        free = _last(lane.free, *(self._ends[other] for other in after))
        if not isinstance(one, Served):
            lane.free = self._ends[number] = self._work(number, one, free)
            return True
        begin = self._begin_collective(number, one, free)
        if begin is None:
            return False
        collective = one.collective
        self._ends[number] = self._follow(begin, collective.service_ns, number)
        held_ns = collective.service_ns if collective.held_ns is None else collective.held_ns
        lane.free = self._follow(begin, held_ns, number)
        return True

    def _work(self, number: int, one: _Launched, free: _Moment) -> _Moment:
        work, launched = one
        return _last(self._follow(free, work.busy_ns, number), self._follow(launched, work.reach_ns, number))

    def _begin_collective(self, number: int, one: Served, free: _Moment) -> _Moment | None:
        """Return when all are there and it is served; None: ranks are missing."""
        collective = one.collective
        key, issued = self._issued[number]
        own = _last(free, self._follow(issued, collective.launch_ns, number))
        meets_at_start = collective.meeting is Meeting.AT_START
        if meets_at_start and number not in self._is_there:
            self._is_there.add(number)
            self.board.put(key, own)
        last = self.board.find_last(key) if collective.waits else own
        if last is None:
            return None
        begin = _last(own, last)
        begin_ns, end_ns = own[0] if meets_at_start else begin[0], begin[0] + collective.service_ns
        self._given[number] = replace(one, last_issue_ns=last[0], begin_ns=begin_ns, end_ns=end_ns)
        return begin
