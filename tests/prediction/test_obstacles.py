"""What has no closed form is refused with a sentence, never guessed."""

from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.errors import PredictionError
from dtbench.plan.plan import Machine, make_plan
from dtbench.prediction.costs import Costs, UnitCosts, same_costs
from dtbench.prediction.obstacles import find_obstacles
from dtbench.prediction.predict import predict_step
from dtbench.scenario.schema.scenario import Scenario
from tests.prediction.situations import link, plan_of, timed

Make = Callable[..., Scenario]


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
