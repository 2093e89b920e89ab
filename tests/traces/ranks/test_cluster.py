"""Jobs of many hosts whose clocks are apart: who is late, why ranks wait, and how far clocks are off, is found."""

from collections import Counter

import numpy as np
import pytest

from dtbench.base.vocabulary import Cause
from dtbench.traces.causes.split import split_exposed
from dtbench.traces.ranks.over_ranks import OverRanks, compare_ranks
from tests.traces.ranks.cluster import MIXES, Cluster, Truth, host_offsets, run_cluster

APART_NS = (100_000, 2_000_000, 50_000_000)
LATE_NS = 900_000
"""By so much one rank comes late; others come up to 15 us apart."""


def late_job(ranks: int, mix: str, seed: int) -> Truth:
    """Run a job with one late rank; seeds differ in who that is, and in how far clocks are apart."""
    late = int(np.random.default_rng(seed).integers(ranks))
    return run_cluster(
        Cluster(ranks=ranks, mix=mix, apart_ns=APART_NS[seed % len(APART_NS)], late={late: LATE_NS}, seed=seed)
    )


def find_main_cause(truth: Truth, compared: OverRanks) -> Cause:
    """Return why most of what ranks left exposed is, all ranks but the late ones together."""
    causes = Counter[Cause]()
    for timeline in truth.timelines():
        if timeline.rank not in truth.job.late:
            starts_ns = [one.last_start_ns for one in compared.collectives[timeline.rank]]
            for split in split_exposed(timeline, starts_ns):
                causes.update(split.by_cause)
    return causes.most_common(1)[0][0]


def judge_clocks(truth: Truth, compared: OverRanks) -> tuple[int, int]:
    """Count the hosts whose clock is off by no more than is said, and all of them, against the first host's."""
    first = [truth.kept[int(place)] for place in np.unique(truth.host[truth.kept], return_index=True)[1]]
    clocks = [compared.clocks.by_rank[rank] for rank in first]
    found_ns = np.array([clock.offset_ns - clocks[0].offset_ns for clock in clocks])
    within_ns = np.array([(clock.uncertainty_ns or 0) + (clocks[0].uncertainty_ns or 0) for clock in clocks])
    off_ns = np.abs(found_ns - host_offsets(truth, first))
    return int((off_ns <= within_ns).sum()) - 1, len(first) - 1


def check_answers(ranks: int, mix: str, seeds: range) -> None:
    """Hold answers against the truth: the right rank and cause in 99 of 100 jobs, clocks in as many of their hosts."""
    right, inside, hosts = 0, 0, 0
    for seed in seeds:
        truth = late_job(ranks, mix, seed)
        compared = compare_ranks(truth.timelines())
        assert compared.clocks.out_of_step == frozenset(), (mix, seed)
        straggler, (late,) = compared.waiting.straggler, truth.job.late
        is_right = straggler is not None and straggler.rank == late
        right += is_right and find_main_cause(truth, compared) is Cause.SKEW
        well, of = judge_clocks(truth, compared)
        inside, hosts = inside + well, hosts + of
    assert right >= 0.99 * len(seeds), (mix, right, len(seeds))
    assert inside >= 0.99 * hosts, (mix, inside, hosts)


@pytest.mark.parametrize(("ranks", "jobs"), [(16, 3), (64, 1)])
@pytest.mark.parametrize("mix", MIXES)
def test_who_is_late_and_why_others_wait_is_found_whatever_clocks_say(mix: str, ranks: int, jobs: int) -> None:
    check_answers(ranks, mix, range(jobs))


@pytest.mark.thorough
@pytest.mark.parametrize("mix", MIXES)
def test_the_same_of_a_hundred_jobs(mix: str) -> None:
    check_answers(64, mix, range(100))


@pytest.mark.thorough
@pytest.mark.parametrize(("mix", "seeds"), [("tensor", range(34)), ("expert", range(34, 67)), ("data", range(67, 100))])
def test_the_same_of_a_thousand_ranks(mix: str, seeds: range) -> None:
    check_answers(1024, mix, seeds)


@pytest.mark.parametrize("mix", MIXES)
def test_without_a_late_rank_none_is_named_for_much(mix: str) -> None:
    truth = run_cluster(Cluster(ranks=32, mix=mix, seed=5))
    compared = compare_ranks(truth.timelines())
    assert compared.clocks.out_of_step == frozenset()
    most_ns = max(one.caused_wait_ns or 0 for one in compared.waiting.ranks)
    assert most_ns < 0.2 * sum(one.skew_wait_ns or 0 for one in compared.waiting.ranks)


@pytest.mark.parametrize("mix", MIXES)
def test_where_traces_are_missing_no_other_rank_is_blamed(mix: str) -> None:
    late = 12
    for missing in ({3}, {late}, {8, 9, 10, 11, late, 13, 14, 15}):
        truth = run_cluster(Cluster(ranks=32, mix=mix, late={late: LATE_NS}, missing=frozenset(missing), seed=2))
        compared = compare_ranks(truth.timelines())
        assert compared.clocks.out_of_step == frozenset()
        assert {one.rank for one in compared.waiting.stragglers} <= {late}
        well, hosts = judge_clocks(truth, compared)
        assert well == hosts


def test_the_generator_keeps_its_promise() -> None:
    """Nobody leaves before all have come, and the late rank is the one that is waited for."""
    truth = run_cluster(Cluster(late={5: LATE_NS}))
    for one in truth.ran:
        for index in np.unique(one.group):
            mine = one.group == index
            assert one.end_ns[mine].min() > one.start_ns[mine].max()
    caused_ns = truth.caused_wait_ns()
    assert caused_ns[:8].sum() > 0.9 * caused_ns.sum(), "its host hands on to the other"
    assert caused_ns.argmax() == 5
    assert len(truth.members["world", 0]) == 16
