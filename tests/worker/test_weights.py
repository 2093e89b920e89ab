"""First values depend on seed, name and whole shape alone, and a rank holds its share of them and one parameter."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

from dtbench.scenario.schema.scenario import Scenario
from dtbench.worker.models.built import BuiltModel

Make = Callable[..., Scenario]
CPU = torch.device("cpu")
MLP = {"kind": "mlp", "layers": 2, "dim": 48, "hidden_dim": 64}


def build(scenario: Scenario) -> BuiltModel:
    from dtbench.worker.loop.building import make_model

    return make_model(scenario, CPU)


def values(scenario: Scenario) -> dict[str, Any]:
    built = build(scenario)
    built.materialize(built.module)
    return dict(built.module.state_dict())


@pytest.mark.parametrize("model", [{}, MLP], ids=["transformer", "mlp"])
def test_a_model_is_built_without_memory_for_it(scenario: Make, model: dict[str, Any]) -> None:
    module = build(scenario(model=model)).module
    assert all(parameter.is_meta for parameter in module.parameters())
    assert not list(module.buffers())


def test_values_are_the_same_each_time_and_others_for_another_seed_or_name(scenario: Make) -> None:
    first, again, other = values(scenario(seed=1)), values(scenario(seed=1)), values(scenario(seed=2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])
    assert not torch.equal(first["layers.0.attention.wq.weight"], first["layers.1.attention.wq.weight"])


def test_a_parameter_does_not_hang_on_the_ones_around_it(scenario: Make) -> None:
    short, long = values(scenario(model={"layers": 1})), values(scenario(model={"layers": 3}))
    assert all(torch.equal(short[name], long[name]) for name in short)


def test_lower_precision_is_the_rounded_float32(scenario: Make) -> None:
    exact, rounded = values(scenario()), values(scenario(precision={"dtype": "bfloat16"}))
    assert all(torch.equal(exact[name].bfloat16(), rounded[name]) for name in exact)


def test_a_tied_head_stays_tied(scenario: Make) -> None:
    built = build(scenario(model={"tied_head": True}))
    built.materialize(built.module)
    module: Any = built.module
    assert module.head.weight is module.embedding.weight
    assert not module.head.weight.is_meta


def test_norms_start_at_one_biases_at_zero_matrices_with_the_stated_spread(scenario: Make) -> None:
    transformer, mlp = values(scenario()), values(scenario(model=MLP))
    assert torch.equal(transformer["norm.weight"], torch.ones(64))
    assert float(transformer["embedding.weight"].std()) == pytest.approx(0.02, rel=0.05)
    assert torch.equal(mlp["layers.0.up.bias"], torch.zeros(64))
    assert float(mlp["layers.0.up.weight"].std()) == pytest.approx(48**-0.5, rel=0.05)


def test_parameters_of_an_mlp_are_listed_as_the_module_has_them(scenario: Make) -> None:
    from dtbench.plan.traffic.parameters import known_parameters

    for bias in (True, False):
        wanted = scenario(model={**MLP, "bias": bias})
        found = {name: tuple(parameter.shape) for name, parameter in build(wanted).module.named_parameters()}
        listed = known_parameters(wanted.model) or ()
        assert list(found.items()) == [(parameter.name, parameter.shape) for parameter in listed]


STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp over tensor": {"parallel": {"kind": "ddp", "replicas": 1, "tensor": 2}},
    "ddp, tied": {"parallel": {"kind": "ddp", "replicas": 2}, "model": {"tied_head": True}},
    "fsdp1, tied": {"parallel": {"kind": "fsdp1", "shards": 2}, "model": {"tied_head": True}},
    "fsdp1 over tensor": {"parallel": {"kind": "fsdp1", "shards": 1, "tensor": 2}},
    "fsdp2, tied": {"parallel": {"kind": "fsdp2", "shards": 2}, "model": {"tied_head": True}},
    "fsdp2 in uneven shards": {
        "parallel": {"kind": "fsdp2", "shards": 3},
        "data": {"global_batch": 6, "sequence_length": 16},
    },
    "fsdp2 in uneven shards over tensor": {
        "parallel": {"kind": "fsdp2", "shards": 3, "tensor": 2},
        "data": {"global_batch": 6, "sequence_length": 16},
    },
    "hybrid over tensor": {"parallel": {"kind": "fsdp2", "replicas": 2, "shards": 2, "tensor": 2}},
    "mlp, fsdp2 over tensor": {"parallel": {"kind": "fsdp2", "shards": 2, "tensor": 2}, "model": MLP},
}


@pytest.mark.quick(
    "fsdp1 over tensor",
)
@pytest.mark.ranks
@pytest.mark.parametrize("name", STRATEGIES)
def test_each_strategy_starts_from_the_single_process_weights(
    launch: Callable[..., Any], scenario: Make, name: str
) -> None:
    result = launch(scenario(**STRATEGIES[name])).correctness
    assert result.passed
    assert result.loss_error < 1e-6


@pytest.mark.usefixtures("lone_group")
@pytest.mark.parametrize("place", ["cpu", "meta"])
def test_values_are_put_where_the_part_of_a_parameter_is_and_not_where_its_mesh_is(place: str) -> None:
    """FSDP2 that offloads has its parts in host memory, and a mesh of devices."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    from dtbench.worker.models.weights import _like

    mesh = init_device_mesh("cpu", (1,))
    parameter = DTensor.from_local(torch.zeros(4, 3, device=place), mesh, [Shard(0)], run_check=False)
    part = _like(parameter, torch.ones(4, 3, device=place))
    assert isinstance(part, DTensor)
    assert part.to_local().device.type == place
    assert (part.placements, part.shape, part.requires_grad) == (parameter.placements, parameter.shape, False)
