"""Runs programs against lanes of the link, one event after another, exactly as the emulated link serves them.

::

    rank 0   compute ████████ i0 ████████ i1 ........wait
    rank 1   compute ██████████████ i0 ████████ i1 ..wait           a collective begins when its last rank has issued it
    lane                            ░░░░░0░░░░░░░░░░░░1░░░░░░░      and its lane is free: begin = max(last issue, free)

Lanes are a rank's own, first in, first out; ``end = begin + service`` (``dtbench/worker/network/link.py``). All times
are ns from the step's start, which is the same on all ranks.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dtbench.base.vocabulary import Region
from dtbench.prediction.program import Collective, Compute, Enter, Host, Instruction, Issue, Program, Wait


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
        last_issue_ns: by the last rank of its group.
        begin_ns, end_ns: served in ``[begin, end)``.
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
class Execution:
    """What one rank did in the step, which ends with its program."""

    step_ns: int
    computed: tuple[Computed, ...]
    visited: tuple[Visited, ...]
    served: tuple[Served, ...]


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
    while not all(host.is_done for host in hosts):
        went_on = [host.run() for host in hosts]
        if not any(went_on):
            raise AssertionError("no program goes on: their collectives do not fit together")
    return {host.rank: host.conclude() for host in hosts}


class _Board:
    """When each rank issued each collective."""

    def __init__(self, ranks: frozenset[int]) -> None:
        self._ranks = ranks
        self._issues: dict[tuple[str, tuple[int, ...], int], list[int]] = {}

    def put(self, collective: Collective, number: int, issue_ns: int) -> None:
        """Say when one rank issued a collective; ``number`` counts those of its group."""
        self._issues.setdefault((collective.group, collective.ranks, number), []).append(issue_ns)

    def find_last(self, collective: Collective, number: int) -> int | None:
        """Return when the last rank issued it; None: some have not yet."""
        issues = self._issues[collective.group, collective.ranks, number]
        return max(issues) if len(issues) == len(self._ranks.intersection(collective.ranks)) else None


@dataclass
class _Lane:
    """Numbers of a rank's collectives that wait to be served, and when the lane is free."""

    queue: deque[int] = field(default_factory=deque)
    free_ns: int = 0


@dataclass
class _HostState:
    """How far one rank has come."""

    rank: int
    program: Program
    board: _Board
    place: int = 0
    now_ns: int = 0
    _computed: list[Computed] = field(default_factory=list)
    _visited: list[Visited] = field(default_factory=list)
    _issued: list[Served] = field(default_factory=list)
    _numbers: list[int] = field(default_factory=list)  # of each on its group
    _ended: set[int] = field(default_factory=set)
    _group_counts: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)
    _lanes: dict[str, _Lane] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Whether the program has ended."""
        return self.place == len(self.program)

    def run(self) -> bool:
        """Go on as far as possible; tells whether there was anything to do."""
        before = self.place
        while not self.is_done and self._execute(self.program[self.place]):
            self.place += 1
        return self.place > before

    def conclude(self) -> Execution:
        """Return what happened, once all ranks are done."""
        for name in self._lanes:
            self._serve(name)
        self._leave_region()
        return Execution(self.now_ns, tuple(self._computed), tuple(self._visited), tuple(self._issued))

    def _execute(self, instruction: Instruction) -> bool:
        """Do it; False: it is blocked by what other ranks have not issued yet."""
        match instruction:
            case Compute(duration_ns=duration_ns):
                self._computed.append(Computed(self.place, self.now_ns, self.now_ns + duration_ns))
                self.now_ns += duration_ns
            case Host(duration_ns=duration_ns):
                self.now_ns += duration_ns
            case Enter(region=region):
                self._leave_region()
                self._visited.append(Visited(region, self.now_ns, self.now_ns))
            case Issue():
                self._issue(instruction)
            case Wait(number=number):
                return self._wait(number)
        return True

    def _leave_region(self) -> None:
        if self._visited:
            self._visited[-1] = replace(self._visited[-1], end_ns=self.now_ns)

    def _issue(self, instruction: Issue) -> None:
        collective = instruction.collective
        group = (collective.group, collective.ranks)
        number = self._group_counts.get(group, 0)
        self._group_counts[group] = number + 1
        self.board.put(collective, number, self.now_ns)
        self._numbers.append(number)
        self._lanes.setdefault(collective.lane, _Lane()).queue.append(len(self._issued))
        visit = len(self._visited) - 1 if self._visited else None
        now_ns = self.now_ns
        self._issued.append(
            Served(collective, instruction.is_blocking, self.place, visit, now_ns, now_ns, now_ns, now_ns)
        )

    def _wait(self, number: int) -> bool:
        self._serve(self._issued[number].collective.lane)
        if number not in self._ended:
            return False
        one = self._issued[number]
        wait_ns = max(0, one.end_ns - self.now_ns)
        self.now_ns += wait_ns
        self._issued[number] = replace(one, wait_ns=one.wait_ns + wait_ns, used_ns=self.now_ns)
        return True

    def _serve(self, name: str) -> None:
        """Serve what all ranks have issued, in order."""
        lane = self._lanes[name]
        while lane.queue:
            number = lane.queue[0]
            one = self._issued[number]
            last_ns = self.board.find_last(one.collective, self._numbers[number])
            if last_ns is None:
                return
            begin_ns = max(last_ns, lane.free_ns)
            lane.free_ns = begin_ns + one.collective.service_ns
            self._issued[number] = replace(one, last_issue_ns=last_ns, begin_ns=begin_ns, end_ns=lane.free_ns)
            self._ended.add(number)
            lane.queue.popleft()
