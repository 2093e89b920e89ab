"""Weights gathered over the tensor axis: what is planned, by hand, and what is refused, with what would work."""

from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.errors import PlanError
from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.plan.plan import Machine, make_plan, plan_reference
from dtbench.plan.traffic.parameters import list_parameters
from dtbench.scenario.schema.model import Mlp
from dtbench.scenario.schema.scenario import Ddp, Scenario

Make = Callable[..., Scenario]
LAPTOP = Machine(cpu_cores=2, cuda_devices=0)
MLP = {"kind": "mlp", "layers": 3, "dim": 16, "hidden_dim": 24}
TIMED = {"kind": "timed", "layers": 2, "dim": 16, "hidden_dim": None, "forward_ms": 0, "backward_ms": 20}
FSDP1 = {"kind": "fsdp1", "shards": 2, "tensor": 2, "gather_weights": "async"}
DDP = {"kind": "ddp", "replicas": 2, "tensor": 2, "gather_weights": "sync"}


def test_each_parameter_is_gathered_and_its_gradient_reduced_and_the_output_put_together(scenario: Make) -> None:
    traffic = make_plan(scenario(model=MLP, parallel=FSDP1, accumulation={"micro_batches": 2}), LAPTOP).traffic
    assert traffic is not None
    weights = 4 * 3 * (24 * 16 + 24 + 16 * 24 + 16)
    output = 4 * 4 * 32 * 16  # 4 rows of 32 vectors of 16
    found = {one.operation: (one.count, one.size_bytes) for one in traffic if one.purpose is Purpose.TENSOR}
    assert found == {
        Operation.ALL_GATHER: (2 * (12 + 1), 2 * weights + output),
        Operation.REDUCE_SCATTER: (2 * 12, 2 * weights),
    }
    shards = [one for one in traffic if one.purpose is Purpose.GRAD_REDUCE]
    assert [(one.axis, one.size_bytes) for one in shards] == [(Axis.SHARD, weights // 2)], "biases are parts, too"


def test_a_block_without_a_hidden_width_has_one_product(scenario: Make) -> None:
    single = Mlp(kind="mlp", layers=2, dim=16, hidden_dim=None)
    assert [(one.name, one.shape) for one in list_parameters(single)] == [
        ("layers.0.up.weight", (16, 16)),
        ("layers.0.up.bias", (16,)),
        ("layers.1.up.weight", (16, 16)),
        ("layers.1.up.bias", (16,)),
    ]
    flops = make_plan(scenario(model=single.model_dump()), LAPTOP).flops_per_step
    assert flops == (6 * 2 - 2) * 16 * 16 * 8 * 32


def test_a_first_block_that_computes_after_its_gradients_asks_for_its_inputs(scenario: Make) -> None:
    cut = {"kind": "ddp", "replicas": 1, "tensor": 2}
    counts = []
    for at in ("exit", "entry"):
        traffic = make_plan(
            scenario(model={**TIMED, "hidden_dim": 16, "backward_at": at}, parallel=cut), LAPTOP
        ).traffic
        assert traffic is not None
        counts.append(sum(one.count for one in traffic if one.purpose is Purpose.TENSOR))
    assert counts == [3, 4]


def test_the_reference_of_gathered_weights_is_one_process(scenario: Make) -> None:
    wanted = scenario(model=TIMED, parallel=FSDP1)
    single, plan = plan_reference(wanted, make_plan(wanted, LAPTOP))
    assert isinstance(single.parallel, Ddp)
    assert (single.parallel.gather_weights, plan.ranks) == (None, 1)


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"model": MLP, "parallel": {**DDP, "tensor": 1}}, "parallel.gather_weights needs parallel.tensor above 1"),
        (
            {"model": MLP, "parallel": {**FSDP1, "kind": "fsdp2"}},
            "FSDP2 takes DTensors as they are, so leave it out, or use parallel.kind=fsdp1",
        ),
        ({"parallel": DDP}, "cuts the sequence, and attention needs all of it; use model.kind=mlp or timed"),
        (
            {"model": {"kind": "custom", "factory": "some:thing"}, "parallel": DDP},
            "parallel.gather_weights is not there for a model of your own",
        ),
        (
            {"model": {**MLP, "compile": {"backend": "eager"}}, "parallel": DDP},
            "parallel.gather_weights with model.compile would gather otherwise than planned",
        ),
        (
            {"model": {**MLP, "activation_checkpointing": {"kind": "full"}}, "parallel": DDP},
            "parallel.gather_weights with model.activation_checkpointing would gather otherwise than planned",
        ),
        (
            {"model": MLP, "parallel": {**DDP, "tensor": 3}},
            "model.dim=16 is not a multiple of parallel.tensor=3",
        ),
        (
            {"model": MLP, "data": {"global_batch": 8, "sequence_length": 31}, "parallel": DDP},
            "data.sequence_length=31 is not a multiple of parallel.tensor=2",
        ),
        (
            {"model": MLP, "parallel": {**DDP, "sequence_parallel": True}},
            "parallel.sequence_parallel is not there for a model of kind `mlp`",
        ),
        (
            {"model": TIMED, "parallel": {"kind": "ddp", "replicas": 2, "tensor": 2}},
            "model.hidden_dim=null: one product is not cut column- and row-wise; parallel.gather_weights works",
        ),
    ],
)
def test_what_cannot_be_gathered_is_refused_with_what_would_work(
    scenario: Make, sections: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(PlanError) as error:
        make_plan(scenario(**sections), LAPTOP)
    assert sentence in str(error.value)
