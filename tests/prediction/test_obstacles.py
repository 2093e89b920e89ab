"""What has no closed form is refused with a sentence, never guessed."""

from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.errors import PredictionError
from dtbench.base.record import Record
from dtbench.plan.plan import Machine, make_plan
from dtbench.prediction.costs import Costs, UnitCosts, same_costs
from dtbench.prediction.obstacles import FORESEEN, find_obstacles, find_unforeseen
from dtbench.prediction.predict import predict_step
from dtbench.scenario.schema.scenario import Ddp, Fsdp1, Fsdp2, Scenario
from tests.prediction.situations import link, plan_of, timed

Make = Callable[..., Scenario]

KINDS: dict[str, type[Record]] = {"ddp": Ddp, "fsdp1": Fsdp1, "fsdp2": Fsdp2}
UNFORESEEN: dict[str, dict[str, Any]] = {
    "ddp": {
        "gather_weights": "sync",
        "wrap": False,
        "find_unused_parameters": True,
        "skip_all_reduce_unused_params": True,
        "manual_backward_finalization": True,
        "comm_hook": {"kind": "noop"},
        "delay_all_reduce": ["layers.1"],
        "ignore": ["layers.1"],
        "python_reducer": True,
        "compiled_autograd": True,
        "optimizer_in_backward": True,
        "join": {},
        "mixed_precision": {"param_dtype": "bfloat16"},
    },
    "fsdp1": {"gather_weights": "sync", "cpu_offload": True, "sync_module_states": True},
    "fsdp2": {
        "gather_weights": "sync",
        "blocks_per_unit": 2,
        "cpu_offload": True,
        "all_gather": "module:Gather",
        "reduce_scatter": "module:Reduce",
        "all_reduce_hook": "module:halve",
        "symmetric_memory": True,
        "post_optimizer_event": True,
        "manual_backward_finalization": True,
    },
}
"""Knobs that no closed form stands for, with a value each."""


MLP = {"kind": "mlp", "layers": 2, "dim": 64, "hidden_dim": 64}


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"network": {"kind": "real"}}, r"network\.kind=real has no known cost"),
        ({"model": {**MLP, "activation_checkpointing": {"kind": "full"}}}, "activation_checkpointing"),
        ({"model": {**MLP, "compile": {"backend": "eager"}}}, "an order of its own"),
        ({"parallel": {"find_unused_parameters": True}}, "find_unused_parameters"),
        ({"parallel": {"delay_all_reduce": ["layers.1"]}}, "delay_all_reduce"),
        ({"parallel": {"optimizer_in_backward": True}}, "optimizer_in_backward"),
        ({"parallel": {"comm_hook": {"kind": "powersgd"}, "bucket_cap_mb": 4096.0}}, "powersgd"),
    ],
)
def test_what_has_no_closed_form_is_refused(scenario: Make, sections: dict[str, Any], sentence: str) -> None:
    parallel = {"kind": "ddp", "replicas": 2, **sections.get("parallel", {})}
    asked = scenario(**{"model": timed(2, 0, 20), "network": link(1, 1), **sections, "parallel": parallel})
    plan = plan_of(asked)
    with pytest.raises(PredictionError, match=sentence):
        predict_step(asked, plan, same_costs(Costs((UnitCosts(1, 1),) * 2), plan))


@pytest.mark.parametrize(
    ("model", "parallel", "sentence"),
    [
        ({"backward_at": "entry"}, {}, r"model\.backward_at=entry"),
        ({}, {"tensor": 2, "gather_weights": "async"}, r"parallel\.gather_weights waits inside hooks"),
    ],
)
def test_what_waits_inside_hooks_is_refused(
    scenario: Make, model: dict[str, Any], parallel: dict[str, Any], sentence: str
) -> None:
    asked = scenario(
        model=timed(2, 0, 20, **model), network=link(1, 1), parallel={"kind": "ddp", "replicas": 2, **parallel}
    )
    plan = plan_of(asked)
    with pytest.raises(PredictionError, match=sentence):
        predict_step(asked, plan, same_costs(Costs((UnitCosts(1, 1),) * 2), plan))


def test_a_transformer_over_a_tensor_axis_is_refused(scenario: Make) -> None:
    asked = scenario(parallel={"kind": "fsdp2", "shards": 2, "tensor": 2}, network=link(1, 1))
    plan = plan_of(asked)
    with pytest.raises(PredictionError, match="exchanges inside its blocks"):
        predict_step(asked, plan, same_costs(Costs((UnitCosts(1, 1),) * 2), plan))


def test_all_reasons_are_named_at_once(scenario: Make) -> None:
    model = {**MLP, "activation_checkpointing": {"kind": "full"}}
    asked = scenario(model=model, parallel={"kind": "ddp", "replicas": 2, "find_unused_parameters": True})
    assert len(list(find_obstacles(asked, plan_of(asked)))) == 3


def test_streams_are_not_written_down(scenario: Make) -> None:
    asked = scenario(model=timed(2, 0, 20), device="cuda")
    plan = make_plan(asked, Machine(cpu_cores=2, cuda_devices=2))
    assert any("on CUDA streams decide" in sentence for sentence in find_obstacles(asked, plan))


@pytest.mark.parametrize("strategy", KINDS)
def test_every_knob_is_either_foreseen_or_an_obstacle(scenario: Make, strategy: str) -> None:
    kind, base = KINDS[strategy], {"kind": strategy, "replicas" if strategy == "ddp" else "shards": 2}
    nested = {name for name in kind.model_fields if isinstance(kind.model_fields[name].default, tuple(FORESEEN))}
    assert set(kind.model_fields) - FORESEEN[kind] - nested == set(UNFORESEEN[strategy]), "decide what a new knob does"
    for knob, value in UNFORESEEN[strategy].items():
        asked = scenario(model=timed(2, 0, 20), network=link(1, 1), parallel={**base, knob: value})
        (name,) = find_unforeseen(asked)
        assert name.startswith(f"parallel.{knob}")
        assert any(f"parallel.{knob}" in sentence for sentence in find_obstacles(asked, plan_of(scenario())))


@pytest.mark.parametrize("kind", [one for one in FORESEEN if "MixedPrecision" in one.__name__])
def test_every_dtype_is_foreseen(kind: type[Record]) -> None:
    assert FORESEEN[kind] == set(kind.model_fields)


def test_a_knob_that_nobody_listed_is_an_obstacle_once_it_is_set(scenario: Make) -> None:
    class Later(Fsdp2):
        reverse_order: bool = False

    asked = scenario(model=timed(2, 0, 20), network=link(1, 1), parallel={"kind": "fsdp2", "shards": 2})
    plan = plan_of(asked)
    for is_set in (False, True):
        later = Later(kind="fsdp2", shards=2, reverse_order=is_set)
        found = list(find_obstacles(asked.model_copy(update={"parallel": later}), plan))
        told = "parallel.reverse_order: nobody has written down what it changes; leave it out"
        assert found == ([told] if is_set else [])
