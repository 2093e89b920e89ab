"""Compute of a real model, found from how long regions were: what went in comes out, and what cannot be is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.errors import PredictionError
from dtbench.base.vocabulary import Region
from dtbench.prediction.compute import OF_A_STEP, Compute, calibrate_compute, share_compute
from dtbench.prediction.costs import RankCosts, same_costs
from dtbench.prediction.predict import MEAN_JITTER, time_regions, time_step
from dtbench.prediction.products import count_products
from dtbench.scenario.schema.model import Mlp, Transformer
from dtbench.scenario.schema.scenario import Scenario
from tests.prediction.situations import link, plan_of, timed

Make = Callable[..., Scenario]
MS = 1_000_000
MLP = {"kind": "mlp", "layers": 4, "dim": 256, "hidden_dim": 512, "bias": False}  # of 1 MiB a block
TRANSFORMER = {"kind": "transformer", "layers": 3, "dim": 256, "heads": 4, "ffn_dim": 512, "vocab_size": 512}
PREFETCHED = {"kind": "fsdp2", "shards": 2, "unshard_async_op": True, "forward_prefetch": 1}


def cost_of(asked: Scenario, computed: Compute) -> RankCosts:
    assert isinstance(asked.model, Mlp | Transformer)
    products = count_products(asked.model, asked.data.sequence_length)
    batches = asked.accumulation.micro_batches
    return same_costs(share_compute(products, computed, micro_batches=batches), plan_of(asked))


@pytest.mark.parametrize("model", [MLP, TRANSFORMER])
@pytest.mark.parametrize(
    ("parallel", "sections"),
    [
        ({"kind": "ddp", "replicas": 2, "bucket_cap_mb": 0.5}, {}),
        ({"kind": "ddp", "replicas": 2, "bucket_cap_mb": 9.0}, {"gradient_clip_norm": 1.0}),
        ({"kind": "fsdp1", "shards": 2}, {}),
        ({"kind": "fsdp2", "shards": 2}, {"gradient_clip_norm": 1.0}),
        (PREFETCHED, {}),
        (PREFETCHED, {"accumulation": {"micro_batches": 2}}),
        ({**PREFETCHED, "separate_reduce_scatter_group": True}, {"accumulation": {"micro_batches": 3}}),
    ],
)
@pytest.mark.parametrize("latency_ms", [1, 40])
def test_what_was_computed_is_found_from_its_regions(
    scenario: Make, model: dict[str, Any], parallel: dict[str, Any], sections: dict[str, Any], latency_ms: int
) -> None:
    """Of a link that hides, and of one that is the limit."""
    data = {"global_batch": 12, "sequence_length": 8}
    asked = scenario(model=model, parallel=parallel, network=link(latency_ms, 5), data=data, **sections)
    plan, computed = plan_of(asked), Compute(80 * MS, 170 * MS, 7 * MS)
    costs = cost_of(asked, computed)
    measured_ns = time_regions(asked, plan, costs, jitter_share=MEAN_JITTER)
    found = calibrate_compute(asked, plan, measured_ns)
    told_ns = time_regions(asked, plan, found, jitter_share=MEAN_JITTER)
    assert told_ns == pytest.approx(measured_ns, abs=0.01 * MS)
    assert time_step(asked, plan, found, jitter_share=MEAN_JITTER) == pytest.approx(sum(measured_ns.values()), abs=MS)
    for before, after in zip(costs[0].units, found[0].units, strict=True):
        assert after.forward_ns == pytest.approx(before.forward_ns, abs=0.1 * MS)
        assert after.backward_ns == pytest.approx(before.backward_ns, abs=0.1 * MS)
    assert found[0].optimizer_ns == pytest.approx(7 * MS, abs=0.1 * MS)


def test_a_region_is_compute_and_what_is_exposed_in_it(scenario: Make) -> None:
    """Four blocks of 1 MiB in buckets of one, 40 ms each on the link: the last ends 40 after the last block."""
    asked = scenario(model=MLP, parallel={"kind": "ddp", "replicas": 2, "bucket_cap_mb": 1.0}, network=link(40, 0))
    measured_ns = {Region.FORWARD: 80.0 * MS, Region.BACKWARD: 240.0 * MS, Region.OPTIMIZER: 5.0 * MS}
    found = calibrate_compute(asked, plan_of(asked), measured_ns)[0]
    assert [round(unit.forward_ns / MS) for unit in found.units] == [20] * 4
    backward_ms = [unit.backward_ns / MS for unit in found.units]
    assert sum(backward_ms) == pytest.approx(200, abs=0.1)
    assert backward_ms[0] == pytest.approx(0.75 * backward_ms[1], abs=0.01)
    assert round(found.optimizer_ns / MS, 2) == 5


def test_parts_add_up_to_what_was_computed() -> None:
    products = count_products(Transformer.model_validate(TRANSFORMER), 8)
    costs = share_compute(products, Compute(1_000_003, 2_000_005, 7), micro_batches=1)
    assert sum(unit.forward_ns for unit in costs.units) + costs.forward_after_ns == 1_000_003
    assert sum(unit.backward_ns for unit in costs.units) + costs.backward_before_ns == 2_000_005
    assert costs.optimizer_ns == 7


@pytest.mark.parametrize(
    ("model", "measured_ms", "said"),
    [
        (MLP, (10, 200, 5), r"^forward of a measured step takes 10.0 ms, less than the 160 ms that its communication"),
        (MLP, (200, 100, 5), r"^backward of a measured step takes 100 ms, less than the 320 ms"),
        (timed(4, 10, 20), (200, 400, 5), "model.kind=timed: how its blocks share what they compute is not known"),
    ],
)
def test_regions_that_no_compute_gives_are_refused(
    scenario: Make, model: dict[str, Any], measured_ms: tuple[int, int, int], said: str
) -> None:
    """Gathers of 40 ms before each of 4 blocks; in backward those of 3 again, and a reduction after each of 4."""
    asked = scenario(model=model, parallel={"kind": "fsdp1", "shards": 2}, network=link(40, 0))
    measured_ns = dict(zip(OF_A_STEP, (ms * MS for ms in measured_ms), strict=True))
    with pytest.raises(PredictionError, match=said):
        calibrate_compute(asked, plan_of(asked), measured_ns)
