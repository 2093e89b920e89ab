"""Few ranks that stand for all: what they give is what all give, rank by rank; and how many are simulated."""

import random
from collections.abc import Callable
from math import prod
from typing import Any

import pytest

from dtbench.base.vocabulary import Axis
from dtbench.plan.plan import MeshAxis
from dtbench.plan.traffic.link import find_tier
from dtbench.prediction import predict
from dtbench.prediction.classes import find_representatives
from dtbench.prediction.costs import Costs, UnitCosts, count_host_ns, known_costs, same_costs, spread_host
from dtbench.prediction.predict import predict_slowest, predict_step, time_step
from dtbench.prediction.simulate import simulate
from dtbench.prediction.wire import group_along, has_even_tiers
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.scenario.schema.scenario import Scenario
from tests.prediction.situations import link, plan_of, timed

Make = Callable[..., Scenario]
LAYOUTS: dict[str, dict[str, Any]] = {
    "ddp": {"kind": "ddp", "replicas": 8, "bucket_cap_mb": 1.0},
    "ddp and tp": {"kind": "ddp", "replicas": 4, "tensor": 2},
    "fsdp1": {"kind": "fsdp1", "shards": 8},
    "fsdp2": {"kind": "fsdp2", "shards": 8, "unshard_async_op": True},
    "hsdp": {"kind": "fsdp2", "shards": 4, "replicas": 3, "unshard_async_op": True},
    "hsdp and tp": {"kind": "fsdp2", "shards": 3, "replicas": 2, "tensor": 2},
    "resharded to two": {"kind": "fsdp2", "shards": 8, "reshard_after_forward": 2},
}
DATA = {"global_batch": 48, "sequence_length": 8}


def slowed(rank: int) -> dict[str, Any]:
    return timed(4, 10, 20, slow_rank={"rank": rank, "factor": 1.5})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("where", ["nobody", "blocks", "link", "both"])
def test_few_ranks_give_what_all_give(scenario: Make, layout: str, where: str) -> None:
    numbers = random.Random(f"{layout} {where}")
    parallel = LAYOUTS[layout]
    ranks = parallel.get("replicas", 1) * parallel.get("shards", 1) * parallel.get("tensor", 1)
    for _ in range(3):
        rank, other = numbers.randrange(ranks), numbers.randrange(ranks)
        slow_link = {"slow_rank": {"rank": other, "factor": 1.3}} if where in ("link", "both") else {}
        asked = scenario(
            model=slowed(rank) if where in ("blocks", "both") else timed(4, 10, 20),
            parallel=parallel,
            network=link(numbers.choice((1, 9)), numbers.choice((3, 12)), **slow_link),
            data=DATA,
        )
        plan = plan_of(asked)
        costs = known_costs(asked, plan)
        every = predict_step(asked, plan, costs)
        steps_ns = [every.of(one).step_ns for one in range(plan.ranks)]
        assert time_step(asked, plan, costs, jitter_share=0.5) == max(steps_ns)
        slowest = predict_slowest(asked, plan, costs, jitter_share=0.5)
        assert slowest == every.of(slowest.rank)
        assert slowest.step_ns == max(steps_ns)


def test_each_that_stands_for_others_has_their_step(scenario: Make) -> None:
    """Rank 5 of a mesh of 2 x 3 x 2 is slow; so each place differs from its own, or not, in three ways: 8 ranks."""
    asked = scenario(model=slowed(5), parallel=LAYOUTS["hsdp and tp"], network=link(1, 5), data=DATA)
    plan = plan_of(asked)
    costs = known_costs(asked, plan)
    network = asked.network
    assert isinstance(network, EmulatedNetwork)
    chosen = find_representatives(costs, network, plan.mesh)
    assert len(chosen) == 8
    assert 5 in chosen
    every = predict_step(asked, plan, costs)
    alike: dict[tuple[bool, ...], set[int]] = {}
    for rank in range(plan.ranks):
        kind = tuple(
            group_along(plan.mesh, axis.name, rank).index(rank) == group_along(plan.mesh, axis.name, 5).index(5)
            for axis in plan.mesh
        )
        alike.setdefault(kind, set()).add(every.of(rank).step_ns)
    assert all(len(steps) == 1 for steps in alike.values())


@pytest.mark.parametrize(
    ("parallel", "slow", "count"),
    [
        ({"kind": "ddp", "replicas": 4096}, None, 1),
        ({"kind": "fsdp2", "shards": 1024, "tensor": 4}, None, 1),
        ({"kind": "ddp", "replicas": 4096}, 77, 2),
        ({"kind": "fsdp2", "shards": 8, "replicas": 64, "tensor": 8}, 77, 8),
        ({"kind": "fsdp2", "shards": 4096, "reshard_after_forward": 8}, 77, 3),
    ],
)
def test_of_thousands_few_are_simulated(
    scenario: Make, monkeypatch: pytest.MonkeyPatch, parallel: dict[str, Any], slow: int | None, count: int
) -> None:
    counts = []

    def count_programs(programs: Any) -> Any:
        counts.append(len(programs))
        return simulate(programs)

    monkeypatch.setattr(predict, "simulate", count_programs)
    model = timed(4, 10, 20) if slow is None else slowed(slow)
    data = {"global_batch": 4096, "sequence_length": 8}
    asked = scenario(model=model, parallel=parallel, network=link(1, 1), data=data)
    plan = plan_of(asked)
    time_step(asked, plan, known_costs(asked, plan), jitter_share=0.5)
    assert counts == [count]


def test_tiers_are_even_where_every_group_of_an_axis_uses_the_same() -> None:
    """Held against all groups of all ranks."""
    for seed in range(60):
        numbers = random.Random(f"tiers {seed}")
        names = numbers.sample([Axis.REPLICATE, Axis.SHARD, Axis.TENSOR], numbers.randint(1, 3))
        mesh = tuple(MeshAxis(name=name, size=numbers.randint(1, 6)) for name in names)
        ranks = prod(axis.size for axis in mesh)
        nodes = {"ranks_per_node": numbers.randint(1, ranks), "bandwidth_gb_per_s": 1.0}
        network = EmulatedNetwork.model_validate(
            {"kind": "emulated", "bandwidth_gb_per_s": 2.0, "between_nodes": nodes}
        )
        tiers = {
            (axis.name, find_tier(network, group_along(mesh, axis.name, rank)))
            for axis in mesh
            for rank in range(ranks)
        }
        assert has_even_tiers(network, mesh) == (len(tiers) == len(mesh)), (mesh, nodes)


def test_parts_of_an_axis_may_be_on_one_node_or_on_two() -> None:
    """Twelve shards, nodes of six, groups of four: 0-3 are on one node, 4-7 on two."""
    mesh = (MeshAxis(name=Axis.SHARD, size=12),)
    nodes = {"ranks_per_node": 6, "bandwidth_gb_per_s": 1.0}
    network = EmulatedNetwork.model_validate({"kind": "emulated", "bandwidth_gb_per_s": 2.0, "between_nodes": nodes})
    assert has_even_tiers(network, mesh)
    assert not has_even_tiers(network, mesh, within=4)
    assert has_even_tiers(network, mesh, within=3)
    costs = dict.fromkeys(range(12), Costs((UnitCosts(1, 1),)))
    assert [*find_representatives(costs, network, mesh, 4)] == [*range(12)]
    assert [*find_representatives(costs, network, mesh, 3)] == [0]


def test_the_host_that_was_spread_is_counted_again(scenario: Make) -> None:
    asked = scenario(model=timed(3, 10, 20), parallel={"kind": "ddp", "replicas": 2}, network=link(1, 1))
    known = same_costs(Costs((UnitCosts(10, 20),) * 3), plan_of(asked))[0]
    for batches in (1, 2, 3):
        found = count_host_ns(spread_host(known, 8_000_000, micro_batches=batches), micro_batches=batches)
        assert found == pytest.approx(8_000_000, abs=10)
