"""Ranks by host and by place in the mesh: named where that explains how they differ, and only there."""

from dataclasses import replace

import numpy as np
import pytest

from dtbench.base.vocabulary import Axis
from dtbench.report.words.rank_groups import describe_awaited_host, describe_slow_group
from dtbench.traces.ranks.by_group.groupings import Grouping, group_by_host, group_by_mesh, group_by_plan
from dtbench.traces.ranks.by_group.host_waits import AwaitedHost, find_awaited_host
from dtbench.traces.ranks.by_group.slow_group import SlowGroup, find_slow_group
from dtbench.traces.ranks.over_ranks import compare_ranks
from tests.traces.ranks.cluster import MIXES, Cluster, run_cluster

MS = 1_000_000.0
MESH = group_by_plan({Axis.PIPELINE: 4, Axis.DATA: 4, Axis.TENSOR: 4})


def some_times(seed: int, ranks: int = 64) -> dict[int, float]:
    random = np.random.default_rng(seed)
    return {rank: 40 * MS + float(random.normal(0, MS)) for rank in range(ranks)}


def find_awaited(job: Cluster) -> AwaitedHost | None:
    truth = run_cluster(job)
    timelines = truth.timelines()
    compared = compare_ranks(timelines)
    hosts = group_by_host(timelines, compared.clocks.machines)
    assert hosts is not None
    return find_awaited_host(hosts, compared, timelines)


def test_places_in_a_mesh_are_counted_from_the_outermost_axis() -> None:
    stages, replicas, tensor = MESH
    assert (stages.name, stages.members()["1"]) == ("pipeline stage", tuple(range(16, 32)))
    assert replicas.members()["2"][:5] == (8, 9, 10, 11, 24)
    assert tensor.members()["3"][:3] == (3, 7, 11)
    assert group_by_plan({Axis.SHARD: 8}) == [], "no two ranks share a place"
    assert group_by_plan({Axis.SHARD: 8, Axis.TENSOR: 1}) == []


@pytest.mark.parametrize(
    ("axis", "name"), [(0, "pipeline stage"), (1, "data-parallel rank"), (2, "tensor-parallel rank")]
)
def test_a_place_that_computes_longer_is_named(axis: int, name: str) -> None:
    slow = MESH[axis].members()["2"]
    times = {rank: time_ns + (12 * MS if rank in slow else 0) for rank, time_ns in some_times(axis).items()}
    found = find_slow_group(times, MESH)
    assert found is not None
    assert (found.grouping, found.label, found.ranks, found.groups) == (name, "2", slow, 4)
    assert found.share > 0.9
    assert found.median_ns - found.others_ns == pytest.approx(12 * MS, rel=0.1)


def test_what_no_place_explains_is_said_of_none() -> None:
    assert [seed for seed in range(200) if find_slow_group(some_times(seed), MESH)] == []
    one = some_times(1) | {13: 90 * MS}
    assert find_slow_group(one, MESH) is None, "one rank is no group"
    half = {rank: time_ns + (12 * MS if rank in (0, 1, 2) else 0) for rank, time_ns in some_times(2).items()}
    assert find_slow_group(half, MESH) is None, "three of sixteen"
    hardly = {rank: time_ns + (1.5 * MS if rank < 16 else 0) for rank, time_ns in some_times(3).items()}
    assert find_slow_group(hardly, MESH) is None, "3.8 % longer"
    few = {0: 40.0 * MS, 1: 41.0 * MS, 2: 60.0 * MS, 3: 61.0 * MS}
    assert find_slow_group(few, group_by_plan({Axis.DATA: 2, Axis.TENSOR: 2})) is None, "an accident of four ranks"
    assert find_slow_group(dict.fromkeys(range(64), 40.0 * MS), MESH) is None
    assert find_slow_group({}, MESH) is None


def test_of_a_stage_and_its_hosts_the_stage_is_named() -> None:
    stages, hosts = MESH[0], Grouping("host", {rank: f"node{rank // 8}" for rank in range(64)})
    times = {rank: time_ns + (12 * MS if 16 <= rank < 32 else 0) for rank, time_ns in some_times(4).items()}
    found = find_slow_group(times, [hosts, stages])
    assert found is not None
    assert (found.grouping, found.label) == ("pipeline stage", "1")
    times = {rank: time_ns + (12 * MS if 16 <= rank < 24 else 0) for rank, time_ns in some_times(4).items()}
    found = find_slow_group(times, [hosts, stages])
    assert found is not None
    assert (found.grouping, found.label) == ("host", "node2")


@pytest.mark.parametrize("mix", MIXES)
def test_hosts_wait_for_the_host_of_the_late_rank_also_where_its_neighbours_only_hand_on(mix: str) -> None:
    found = find_awaited(Cluster(ranks=32, mix=mix, late={13: 900_000}, seed=3))
    assert found is not None
    assert (found.host, found.ranks, found.hosts) == ("node1", tuple(range(8, 16)), 4)
    assert found.waiting == ("node0", "node2", "node3")


def test_no_host_is_named_where_none_is_waited_for_most() -> None:
    assert find_awaited(Cluster(ranks=32, seed=4)) is None
    assert find_awaited(Cluster(ranks=32, late=dict.fromkeys((1, 9, 17, 25), 900_000), seed=4)) is None


def test_a_host_is_not_blamed_for_a_rank_whose_trace_is_missing() -> None:
    found = find_awaited(Cluster(ranks=32, late={13: 900_000}, missing=frozenset(range(8, 16)), seed=3))
    assert found is None


def test_hosts_are_told_by_name_and_clock() -> None:
    truth = run_cluster(Cluster(ranks=16))
    timelines = truth.timelines()
    machines = compare_ranks(timelines).clocks.machines
    hosts = group_by_host(timelines, machines)
    assert hosts is not None
    assert hosts.members() == {"node0": tuple(range(8)), "node1": tuple(range(8, 16))}
    alike = [replace(one, host="worker") for one in timelines]
    assert group_by_host(alike, machines) is None, "containers of several machines bear one name"
    assert group_by_host([replace(one, host=None) for one in timelines], machines) is None
    assert group_by_host(timelines[:8], machines[:1]) is None
    (tensor, *_) = group_by_mesh(timelines)
    assert tensor.members()["3"] == (3, 11)
    untold = [replace(one, collectives=tuple(replace(c, group_ranks=()) for c in one.collectives)) for one in timelines]
    assert group_by_mesh(untold) == []


def test_sentences_name_hosts_ranks_and_times() -> None:
    awaited = AwaitedHost("node97", tuple(range(776, 784)), tuple(f"node{at}" for at in range(17)), 128, 3_210_000_000)
    said = "17 of 128 hosts wait mostly for node97 (ranks 776-783): 3.21 s, summed over their ranks"
    assert describe_awaited_host(awaited) == said
    one = replace(awaited, waiting=("node3",), hosts=2)
    assert describe_awaited_host(one).startswith("1 of 2 hosts waits mostly for node97")
    slow = SlowGroup("tensor-parallel rank", "3", tuple(range(3, 1024, 8)), 8, 45 * MS, 40 * MS, 0.97)
    assert describe_slow_group(slow, "computes", "per step") == (
        "tensor-parallel rank 3 (128 ranks) computes 45.0 ms per step, the other 7 tensor-parallel ranks 40.0 ms"
        " (medians over ranks): the tensor-parallel rank explains 97.0 % of the variance over ranks"
    )
    two = replace(slow, grouping="pipeline stage", label="1", ranks=tuple(range(8, 16)), groups=2)
    assert "pipeline stage 1 (ranks 8-15) computes 45.0 ms per step, the other pipeline stage 40.0 ms" in (
        describe_slow_group(two, "computes", "per step")
    )
