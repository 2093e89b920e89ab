"""How a thread's waits, its own time and its flights add up, on a clock that the test turns."""

from dataclasses import dataclass

from dtbench.base.vocabulary import Operation, Purpose, Region
from dtbench.live.waits import SLOTS, Label, Waits

GRADIENTS = Label(Purpose.GRAD_REDUCE, Operation.REDUCE_SCATTER, Region.BACKWARD)
WEIGHTS = Label(Purpose.UNSHARD, Operation.ALL_GATHER, Region.FORWARD, "layers.0")


@dataclass
class Clock:
    ns: int = 1_000

    def __call__(self) -> int:
        return self.ns


def begin() -> tuple[Waits, Clock]:
    clock = Clock()
    waits = Waits(clock)
    waits.begin_step()
    return waits, clock


def wait(waits: Waits, clock: Clock, number: int, length_ns: int) -> None:
    standing = waits.begin_wait(number, Region.BACKWARD)
    clock.ns += length_ns
    waits.end_wait(standing)


def test_pieces_of_own_time_and_waits_add_up_to_the_step() -> None:
    waits, clock = begin()
    clock.ns += 10
    first = waits.issue(WEIGHTS, clock.ns, is_async=True)
    clock.ns += 20
    wait(waits, clock, first, 5)
    clock.ns += 3
    second = waits.issue(GRADIENTS, clock.ns, is_async=True)
    clock.ns += 4
    wait(waits, clock, second, 6)
    clock.ns += 7
    told, ended_ns = waits.end_step()
    assert [(wait.label, wait.own_ns, wait.wait_ns) for wait in told.waits] == [(WEIGHTS, 30, 5), (GRADIENTS, 7, 6)]
    assert told.tail_ns == 7
    assert ended_ns == 1_000 + 55 == 1_000 + sum(one.own_ns + one.wait_ns for one in told.waits) + told.tail_ns
    assert told.flight_ns == (20 + 5) + (4 + 6)
    assert told.sums == {(Purpose.UNSHARD, Region.BACKWARD): 5, (Purpose.GRAD_REDUCE, Region.BACKWARD): 6}
    assert (told.wait_ns, told.unseen, told.untold) == (11, 0, 0)


def test_a_blocking_call_is_all_wait() -> None:
    waits, clock = begin()
    clock.ns += 10
    number = waits.issue(GRADIENTS, clock.ns, is_async=False)
    clock.ns += 2
    wait(waits, clock, number, 5)
    told, _ = waits.end_step()
    assert [(wait.own_ns, wait.wait_ns) for wait in told.waits] == [(10, 7)]
    assert told.flight_ns == 7


def test_a_wait_inside_a_wait_counts_once() -> None:
    waits, clock = begin()
    inner = waits.issue(WEIGHTS, clock.ns, is_async=True)
    outer = waits.begin_waits(GRADIENTS, Region.BACKWARD, ())
    clock.ns += 1
    wait(waits, clock, inner, 5)
    clock.ns += 1
    waits.end_wait(outer)
    told, _ = waits.end_step()
    assert told.sums == {(Purpose.GRAD_REDUCE, Region.BACKWARD): 7}
    assert told.untold == 1, "since when the outer's were in flight is not known"
    assert told.unseen == 0


def test_flights_that_overlap_are_one_and_cross_the_border_of_steps() -> None:
    waits, clock = begin()
    first = waits.issue(WEIGHTS, clock.ns, is_async=True)
    clock.ns += 10
    second = waits.issue(WEIGHTS, clock.ns, is_async=True)
    clock.ns += 10
    wait(waits, clock, first, 1)
    clock.ns += 4
    told, _ = waits.end_step()
    assert told.flight_ns == 25
    clock.ns += 100  # between steps
    waits.begin_step()
    clock.ns += 3
    wait(waits, clock, second, 2)
    clock.ns += 50
    told, _ = waits.end_step()
    assert (told.flight_ns, told.wait_ns, told.unseen) == (5, 2, 0)


def test_what_nobody_waits_for_is_unseen_when_the_step_after_ends() -> None:
    waits, clock = begin()
    number = waits.issue(WEIGHTS, clock.ns, is_async=True)
    assert waits.end_step()[0].unseen == 0
    waits.begin_step()
    assert waits.end_step()[0].unseen == 1
    waits.begin_step()
    assert waits.begin_wait(number, None) is None
    assert waits.end_step()[0].unseen == 0


def test_a_second_wait_and_one_between_steps_count_nothing() -> None:
    waits, clock = begin()
    number = waits.issue(WEIGHTS, clock.ns, is_async=True)
    wait(waits, clock, number, 5)
    wait(waits, clock, number, 5)
    later = waits.issue(WEIGHTS, clock.ns, is_async=True)
    assert waits.end_step()[0].wait_ns == 5
    wait(waits, clock, later, 5)
    waits.begin_step()
    told, _ = waits.end_step()
    assert (told.wait_ns, told.unseen) == (0, 0)


def test_a_wait_that_its_step_does_not_see_the_end_of_disturbs_no_other() -> None:
    waits, clock = begin()
    standing = waits.begin_waits(GRADIENTS, None, ())
    waits.end_step()
    waits.end_wait(standing)
    waits.begin_step()
    number = waits.issue(WEIGHTS, clock.ns, is_async=True)
    wait(waits, clock, number, 5)
    assert waits.end_step()[0].wait_ns == 5


def test_memory_is_bounded_over_100_000_events_and_sums_have_them_all() -> None:
    waits, clock = begin()
    for _ in range(50_000):
        number = waits.issue(WEIGHTS, clock.ns, is_async=True)
        clock.ns += 1
        wait(waits, clock, number, 2)
    told, _ = waits.end_step()
    assert len(told.waits) == SLOTS
    assert told.wait_ns == 100_000
    assert told.tail_ns == 50_000 - SLOTS
    waits.begin_step()
    for _ in range(100_000):
        waits.issue(WEIGHTS, clock.ns, is_async=True)
    assert len(waits._flights) <= 4096
    waits.end_step()
    waits.begin_step()
    assert waits.end_step()[0].unseen == 4096, "the others were counted in the step that issued them"
