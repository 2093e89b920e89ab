"""What no remedy can gain more than: by hand where the answer is known, and at random where a rule must hold."""

from dataclasses import replace

import pytest

from dtbench.base.errors import PredictionError
from dtbench.base.vocabulary import Operation, Purpose
from dtbench.replay.changes.apart import Apart
from dtbench.replay.changes.change import Owner, list_collectives
from dtbench.replay.changes.hidden import Hidden
from dtbench.replay.compose import compose, serve
from dtbench.replay.gains import Gain, measure_gains
from dtbench.replay.graph import JobGraph
from dtbench.replay.read import Recorded
from dtbench.replay.run import replay
from dtbench.traces.job.trace_set import gather_ranks
from tests.replay.hand_made import Written, make_random


def record(graph: JobGraph) -> Recorded:
    return Recorded(graph, (1,), replay(graph).rank_steps_ns, gather_ranks([]))


def name(owner: str) -> Owner:
    return Owner(owner, Purpose.GRAD_REDUCE, Operation.ALL_REDUCE)


def two_buckets(times: int = 1) -> JobGraph:
    """Buckets ready at 20 and 50 that take 40 and 30, and compute that ends at 60."""
    begun = Written().begin().spend(20 * times).issue("a", 40 * times)
    return {0: begun.spend(30 * times).issue("b", 30 * times).spend(10 * times).sit(0, 1).end().finish()}


def test_a_hidden_bucket_that_delays_the_tail_gains_less_than_it_takes_and_more_than_nothing() -> None:
    gains = measure_gains(record(two_buckets()), [name("b"), name("a")])
    assert (gains.step_ns, gains.host_times) == (90, None)
    assert gains.rows == (
        Gain(None, None, 70, 30),
        Gain(None, Purpose.GRAD_REDUCE, 70, 30),
        Gain(name("b"), Purpose.GRAD_REDUCE, 30, 30),
        Gain(name("a"), Purpose.GRAD_REDUCE, 40, 10),
    )


def test_with_hosts_as_measured_there_is_less_to_hide_behind() -> None:
    """Hosts take 0.85: buckets are ready at 17 and 42.5, compute ends at 51, and the step at 87."""
    gains = measure_gains(record(two_buckets(1_000)), [name("a"), name("b")], 87_000)
    assert gains.step_ns == pytest.approx(87_000, rel=1e-3)
    assert gains.host_times == pytest.approx(0.85, abs=5e-3)
    saved = {row.owner: row.saving_ns for row in gains.rows}
    assert saved[name("b")] == 30_000
    assert saved[name("a")] == pytest.approx(87_000 - 42_500 - 30_000, rel=0.01)
    assert saved[None] == pytest.approx(87_000 - 51_000, rel=0.01)
    for no_host_explains in (None, 10_000):
        gains = measure_gains(record(two_buckets(1_000)), [name("a")], no_host_explains)
        assert (gains.step_ns, gains.host_times, gains.rows[-1].saving_ns) == (90_000, None, 10_000)
    assert measure_gains(record(two_buckets(1_000)), [], 90_001).host_times == 1.0


def test_what_does_not_fit_gains_nothing_that_is_said() -> None:
    fits = record(two_buckets())
    with pytest.raises(PredictionError, match=r"step 1 comes out 10\.0% shorter than it was recorded"):
        measure_gains(replace(fits, rank_steps_ns={0: (100,)}), [name("a")])


def test_an_owner_that_is_not_in_these_steps_is_left_out() -> None:
    gains = measure_gains(record(two_buckets()), [name("c"), name("a")])
    assert [row.owner for row in gains.rows] == [None, None, name("a")]


def test_a_queue_of_its_own_may_gain_more_than_hiding_so_that_it_does_not_bound_it() -> None:
    """Issued at 0 (40 long), 10 (5 long, needed at once), 20 (7 long, and waited for at the end)."""
    written = Written().begin().issue("gather", 40).spend(10).issue("small", 5).sit(1).spend(10).issue("late", 7)
    graph = {0: written.sit(0, 2).end().finish()}
    hidden = measure_gains(record(graph), [name("small")]).rows[-1].saving_ns
    apart = 62 - replay(Apart((name("small"),), "small").apply(graph)).steps_ns[0]
    assert (hidden, apart) == (5, 15)


def test_nobody_gains_more_by_less() -> None:
    for seed in range(60):
        graph = make_random(seed)
        owners = list(dict.fromkeys(Owner.of(one) for rank in graph.values() for _, one in list_collectives(rank)))
        if not owners:
            continue
        every, purpose, *each = measure_gains(record(graph), owners).rows
        for one in (every, purpose, *each):
            assert 0 <= one.saving_ns <= one.own_ns, seed
        assert max(one.saving_ns for one in each) <= purpose.saving_ns <= every.saving_ns, seed


def test_collectives_served_otherwise_are_as_composed_anew() -> None:
    for seed in range(60):
        graph = make_random(seed)
        hidden = Hidden().apply(graph)
        for rank, one in graph.items():
            assert serve(compose(one), hidden[rank]) == compose(hidden[rank]), seed
