"""The event simulator against timelines by eye, and against a clock that ticks through every nanosecond."""

import random
from dataclasses import dataclass, field

import pytest

from dtbench.base.vocabulary import Region
from dtbench.prediction.program import Collective, Compute, Enter, Host, Issue, Program, Wait, make_serial
from dtbench.prediction.simulate import simulate
from tests.prediction.situations import draw_programs, make_collective


def test_a_lane_serves_one_after_another() -> None:
    """::

    host    ██20██i0 ██20██i1 ....wait
    lane          ░░░░0 30░░░░░░░1 30░░░
    """
    one = make_collective("a", 30)
    program: Program = (Compute(20), Issue(one, is_blocking=False), Compute(20), Issue(one, is_blocking=False), Wait(1))
    execution = simulate({0: program})[0]
    assert [(served.issue_ns, served.begin_ns, served.end_ns) for served in execution.served] == [
        (20, 20, 50),
        (40, 50, 80),
    ]
    assert execution.step_ns == 80
    assert execution.served[1].wait_ns == 40


def test_groups_run_beside_each_other_unless_they_share_a_lane() -> None:
    def step_ns(lane: str | None) -> int:
        issues = tuple(Issue(make_collective(name, 30, lane=lane), is_blocking=False) for name in "ab")
        return simulate({0: (*issues, Wait(0), Wait(1))})[0].step_ns

    assert step_ns(None) == 30
    assert step_ns("") == 60


def test_a_collective_begins_when_its_last_rank_has_issued_it() -> None:
    one = make_collective("a", 30)
    programs: dict[int, Program] = {
        0: (Compute(10), Issue(one, is_blocking=True), Wait(0)),
        1: (Compute(50), Issue(one, is_blocking=True), Wait(0)),
    }
    fast, slow = simulate(programs).values()
    assert (fast.served[0].begin_ns, fast.served[0].end_ns, fast.served[0].wait_ns) == (50, 80, 70)
    assert (slow.served[0].begin_ns, slow.served[0].wait_ns) == (50, 30)
    assert fast.served[0].last_issue_ns == slow.served[0].issue_ns


def test_regions_hold_what_happened_in_them() -> None:
    program: Program = (
        Enter(Region.FORWARD),
        Compute(5),
        Enter(Region.BACKWARD),
        Compute(10),
        Issue(make_collective("a", 7), is_blocking=True),
        Wait(0),
        Enter(Region.OPTIMIZER),
        Host(3),
    )
    execution = simulate({0: program})[0]
    assert [(one.region, one.start_ns, one.end_ns) for one in execution.visited] == [
        (Region.FORWARD, 0, 5),
        (Region.BACKWARD, 5, 22),
        (Region.OPTIMIZER, 22, 25),
    ]
    assert execution.served[0].visit == 1


def test_programs_that_do_not_fit_together_are_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="do not fit together"):
        simulate({0: (Issue(make_collective("a", 1), is_blocking=True), Wait(0)), 1: (Compute(1),)})


def test_what_nobody_waits_for_is_served_all_the_same() -> None:
    execution = simulate({0: (Issue(make_collective("a", 30), is_blocking=False), Compute(10))})[0]
    assert (execution.step_ns, execution.served[0].end_ns) == (10, 30)


@dataclass
class Ticking:
    """One rank of the oracle, which knows nothing but the present nanosecond."""

    program: Program
    place: int = 0
    busy: int = 0
    issued: list[Collective] = field(default_factory=list)
    lanes: dict[str, list[int]] = field(default_factory=dict)
    begun: dict[int, int] = field(default_factory=dict)
    done_ns: int | None = None

    def ended(self, number: int, now: int) -> bool:
        return number in self.begun and now >= self.begun[number] + self.issued[number].service_ns

    def step(self, now: int) -> bool:
        """Do one thing that takes no time; tells whether there was one."""
        if self.busy or self.place == len(self.program):
            return False
        instruction = self.program[self.place]
        if isinstance(instruction, Wait) and not self.ended(instruction.number, now):
            return False
        if isinstance(instruction, Compute | Host):
            self.busy = instruction.duration_ns
        if isinstance(instruction, Issue):
            self.lanes.setdefault(instruction.collective.lane, []).append(len(self.issued))
            self.issued.append(instruction.collective)
        self.place += 1
        return True

    def count(self, one: Collective) -> int:
        return sum(other.group == one.group for other in self.issued)


def tick_through(programs: dict[int, Program]) -> dict[int, Ticking]:
    """Run the programs nanosecond by nanosecond."""
    ranks = {rank: Ticking(program) for rank, program in programs.items()}
    now = 0
    while any(rank.done_ns is None for rank in ranks.values()):
        while any([rank.step(now) for rank in ranks.values()] + [begin_one(ranks, rank, now) for rank in ranks]):
            pass
        for rank in ranks.values():
            if rank.done_ns is None and rank.place == len(rank.program) and not rank.busy:
                rank.done_ns = now
            rank.busy = max(0, rank.busy - 1)
        now += 1
        assert now < 10_000, "the oracle stands still"
    return ranks


def begin_one(ranks: dict[int, Ticking], rank: int, now: int) -> bool:
    """Let a free lane of a rank take the next collective that all have issued."""
    mine = ranks[rank]
    for queue in mine.lanes.values():
        waiting = [number for number in queue if number not in mine.begun]
        if not waiting or any(number in mine.begun and not mine.ended(number, now) for number in queue):
            continue
        one = mine.issued[waiting[0]]
        nth = sum(other.group == one.group for other in mine.issued[: waiting[0] + 1])
        if all(ranks[other].count(one) >= nth for other in one.ranks):
            mine.begun[waiting[0]] = now
            return True
    return False


@pytest.mark.parametrize("seed", range(150))
def test_events_agree_with_a_clock_that_ticks(seed: int) -> None:
    programs = draw_programs(random.Random(seed))
    executions, oracle = simulate(programs), tick_through(programs)
    for rank, execution in executions.items():
        assert execution.step_ns == oracle[rank].done_ns
        assert [one.begin_ns for one in execution.served] == [begun for _, begun in sorted(oracle[rank].begun.items())]


@pytest.mark.parametrize("seed", range(40))
def test_waiting_after_every_issue_never_makes_a_step_shorter(seed: int) -> None:
    programs = draw_programs(random.Random(seed))
    serial = simulate({rank: make_serial(program) for rank, program in programs.items()})
    assert all(serial[rank].step_ns >= execution.step_ns for rank, execution in simulate(programs).items())
