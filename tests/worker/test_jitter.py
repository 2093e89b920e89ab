"""Units that this machine cannot time are refused on all ranks alike, with one that it can."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="the worker room imports torch")

from dtbench.base.errors import PlanError
from dtbench.base.units import NS_PER_MS, NS_PER_S, NS_PER_US
from dtbench.base.vocabulary import Region
from dtbench.machine.stolen_time import StolenClock
from dtbench.scenario.schema.model import Straggler, Timed
from dtbench.worker.loop.jitter import advise_ms, find_jitter_ns, require_exact_units
from dtbench.worker.loop.store_exchange import StoreExchange
from dtbench.worker.models.known_cost import KnownCost, Sleep
from tests.worker.thread_store import ThreadStore


class Missing:
    """A pause whose tries miss by given times, one after another, other ones whenever it is asked again."""

    def __init__(self, *asked: Sequence[int]) -> None:
        self.asked = asked
        self.tried: list[tuple[int, int]] = []

    def take(self, duration_ns: int, done_ns: int = 0) -> None:
        raise AssertionError("no step has begun")

    def try_out(self, duration_ns: int, times: int) -> Iterator[int]:
        missed_ns = self.asked[min(len(self.tried), len(self.asked) - 1)]
        self.tried.append((duration_ns, times))
        yield from (missed_ns[index % len(missed_ns)] for index in range(times))

    def look_back(self, duration_ns: int) -> list[int]:
        return []


def units(forward_ms: float, backward_ms: float) -> Timed:
    return Timed(kind="timed", layers=2, forward_ms=forward_ms, backward_ms=backward_ms)


def meet(asked: Timed, pauses: Sequence[Missing], waited_s: list[float] | None = None) -> list[str]:
    """Try on some ranks at once; gives what each says, or the sentence with which it refuses."""
    store = ThreadStore()
    waits_s: list[float] = [] if waited_s is None else waited_s

    def rank(place: int) -> str:
        try:
            cost, exchange = KnownCost(asked, place, pauses[place]), StoreExchange(store, place, len(pauses))
            return require_exact_units(cost, exchange, wait_s=waits_s.append)
        except PlanError as error:
            return f"refused: {error}"

    with ThreadPoolExecutor(len(pauses)) as ranks:
        return list(ranks.map(rank, range(len(pauses))))


def meet_alone(asked: Timed, *missed_ns: int) -> str:
    (said,) = meet(asked, [Missing(*[[missed] for missed in missed_ns])])
    return said


def test_jitter_is_what_a_unit_is_late_by_on_average() -> None:
    assert find_jitter_ns(Missing([7]), 200 * NS_PER_MS) == 7
    assert find_jitter_ns(Missing([*[7] * 19, 907]), 200 * NS_PER_MS) == 52


def test_tries_that_others_disturbed_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second try is late by 9 ms, and in each of these others had the machine."""
    readings_ns = iter([NS_PER_S, *(NS_PER_S * (1 + index // 2) for index in range(1, 26))])
    stolen = StolenClock()
    monkeypatch.setattr(stolen, "read_ns", lambda: next(readings_ns))
    assert find_jitter_ns(Missing([7, 9 * NS_PER_MS]), 20 * NS_PER_MS, stolen) == 7


def test_rare_late_units_refuse_nothing_and_many_do() -> None:
    rare, often = [0] * 19 + [9 * NS_PER_MS], [0, 0, 0, 9 * NS_PER_MS]
    assert meet(units(20, 0), [Missing(rare)]) == ["model.forward_ms=20 misses its time by 360 us, 1.8 % of it"]
    assert meet(units(20, 0), [Missing(often)])[0].startswith("refused")


@pytest.mark.parametrize(("duration_ns", "times"), [(NS_PER_MS, 500), (20 * NS_PER_MS, 25), (NS_PER_S, 20), (1, 500)])
def test_a_unit_is_tried_for_half_a_second_and_twenty_times_at_least(duration_ns: int, times: int) -> None:
    pause = Missing([0])
    find_jitter_ns(pause, duration_ns)
    assert pause.tried == [(duration_ns, times)]


def test_the_worst_rank_decides_and_all_refuse_with_the_same_sentence() -> None:
    said = meet(units(1, 0), [Missing([10 * NS_PER_US]), Missing([80 * NS_PER_US]), Missing([20 * NS_PER_US])])
    sentence = (
        "refused: model.forward_ms=1 misses its time by 80.0 us, 8.0 % of it (mean of tries on the worst "
        "of 3 ranks at once); the limit is 5 % of a unit, so use 20 or more here"
    )
    assert said == [sentence] * 3


def test_both_units_are_named_where_both_are_too_short() -> None:
    assert meet_alone(units(20, 30), 2 * NS_PER_MS, 3 * NS_PER_MS, 2 * NS_PER_MS, 3 * NS_PER_MS) == (
        "refused: model.forward_ms=20 misses its time by 2.00 ms, 10.0 % of it and model.backward_ms=30 misses "
        "its time by 3.00 ms, 10.0 % of it (mean of tries on one rank); the limit is 5 % of a unit, so use 100 or more "
        "here"
    )


@pytest.mark.parametrize(("jitter_ns", "is_refused"), [(NS_PER_MS, False), (NS_PER_MS + 1, True)])
def test_a_unit_of_which_the_jitter_is_a_twentieth_is_taken_and_more_is_not(jitter_ns: int, is_refused: bool) -> None:
    assert meet_alone(units(20, 0), jitter_ns).startswith("refused") == is_refused


def test_a_burst_of_other_work_refuses_nothing_and_lasting_jitter_does() -> None:
    burst, quiet = 9 * NS_PER_MS, 80 * NS_PER_US
    assert meet_alone(units(20, 0), burst, burst, quiet) == (
        "model.forward_ms=20 misses its time by 80.0 us, 0.4 % of it"
    )
    assert meet_alone(units(20, 0), burst, burst, burst, quiet).startswith("refused")


@pytest.mark.parametrize(("unit_ms", "waits_s"), [(20, [2, 8]), (19, [])])
def test_a_burst_is_waited_for_where_quiet_would_help(unit_ms: int, waits_s: list[float]) -> None:
    waited_s: list[float] = []
    meet(units(unit_ms, 0), [Missing([9 * NS_PER_MS])], waited_s)
    assert waited_s == waits_s


def test_a_unit_that_is_exact_is_tried_once() -> None:
    pause, waited_s = Missing([0]), list[float]()
    meet(units(20, 0), [pause], waited_s)
    assert len(pause.tried) == 1
    assert waited_s == []


def test_the_jitter_that_was_found_stays_with_the_cost() -> None:
    cost = KnownCost(units(20, 40), 0, Missing([80 * NS_PER_US]))
    said = require_exact_units(cost, StoreExchange(ThreadStore(), 0, 1))
    assert cost.jitter_ns == {Region.FORWARD: 80 * NS_PER_US, Region.BACKWARD: 80 * NS_PER_US}
    assert said == (
        "model.forward_ms=20 misses its time by 80.0 us, 0.4 % of it and model.backward_ms=40 misses its time by "
        "80.0 us, 0.2 % of it"
    )


def test_no_time_is_never_too_short() -> None:
    pause = Missing([NS_PER_S])
    assert meet(units(0, 0), [pause]) == ["blocks take no time of their own"]
    assert pause.tried == []


def test_the_slow_ranks_own_unit_is_tried_and_held_against_the_shortest() -> None:
    slow = units(20, 0).model_copy(update={"slow_rank": Straggler(rank=1, factor=3.0)})
    pauses = [Missing([0]), Missing([NS_PER_MS + 1])]
    assert all(sentence.startswith("refused: model.forward_ms=20") for sentence in meet(slow, pauses))
    assert [pause.tried[0][0] for pause in pauses] == [20 * NS_PER_MS, 60 * NS_PER_MS]


@pytest.mark.parametrize(
    ("jitter_ns", "works_ms"),
    [(60_000, 20), (1_000_000, 20), (1_000_001, 30), (1_600_000, 50), (2_600_000, 100), (10_000_000, 200)],
)
def test_the_unit_that_is_advised_is_round(jitter_ns: int, works_ms: int) -> None:
    assert advise_ms(jitter_ns) == works_ms


@given(st.integers(1, NS_PER_S))
def test_the_unit_that_is_advised_would_be_taken(jitter_ns: int) -> None:
    works_ms = advise_ms(jitter_ns)
    assert not meet_alone(units(works_ms, 0), jitter_ns).startswith("refused")
    assert works_ms == 20 or works_ms / 2.5 <= jitter_ns / NS_PER_MS * 20, "and it is no longer than it need be"


def test_a_sleep_of_a_millisecond_is_too_short_on_this_machine() -> None:
    assert find_jitter_ns(Sleep(), NS_PER_MS) > 0.05 * NS_PER_MS
