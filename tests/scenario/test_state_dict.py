"""Stages that cannot be run are refused before anything starts, each with what would work."""

from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.errors import PlanError
from dtbench.plan.plan import Machine, make_plan
from dtbench.scenario.schema.scenario import Scenario

Make = Callable[..., Scenario]
MACHINE = Machine(cpu_cores=2, cuda_devices=0)


def refuse(scenario: Scenario) -> str:
    with pytest.raises(PlanError) as refused:
        make_plan(scenario, MACHINE)
    return str(refused.value)


def test_both_parts_go_through_the_stages_unless_one_is_named(scenario: Make) -> None:
    asked = scenario(state_dict={"stages": ["shard", "gather"]}).state_dict
    assert asked is not None
    assert [str(part) for part in asked.parts] == ["model", "optimizer"]
    assert make_plan(scenario(state_dict={"stages": ["shard"]}), MACHINE).ranks == 2


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"stages": ["gather", "gather"]}, "state_dict.stages names `gather` twice"),
        ({"stages": ["gather"], "parts": ["model", "model"]}, "state_dict.parts names `model` twice"),
        ({"stages": []}, "state_dict.stages is empty"),
        ({"stages": ["gather"], "parts": []}, "state_dict.parts is empty"),
        ({"stages": ["read", "save"]}, "put `save` before it"),
        ({"stages": ["flatten"], "parts": ["model"]}, "`flatten` is of optimizers"),
        ({"stages": ["stage_pinned"]}, "`stage_pinned` needs CUDA"),
        ({"stages": ["pre_load"]}, "`pre_load` is what FSDP1 over a tensor axis does"),
        ({"stages": ["gather"], "steps": 1}, "state_dict.steps=1 leaves no step after the first one"),
        (
            {"stages": ["load"], "steps": 4, "broken": [{"part": "model", "stage": "load", "says": "words"}]},
            "leave one of the two out",
        ),
        (
            {"stages": ["gather"], "broken": [{"part": "model", "stage": "load", "says": "words"}]},
            "state_dict.broken names `load` of the model, which state_dict does not ask for",
        ),
        (
            {"stages": ["load"], "broken": 2 * [{"part": "model", "stage": "load", "says": "words"}]},
            "state_dict.broken names `load of the model` twice",
        ),
    ],
)
def test_stages_that_cannot_be_run_are_refused(scenario: Make, section: dict[str, Any], words: str) -> None:
    assert words in refuse(scenario(state_dict=section))


def test_the_state_of_an_optimizer_inside_backward_is_refused_with_the_part_that_works(scenario: Make) -> None:
    parallel = {"kind": "ddp", "replicas": 2, "optimizer_in_backward": True}
    words = refuse(scenario(parallel=parallel, state_dict={"stages": ["gather"]}))
    assert "state_dict.parts=[model] works" in words
    make_plan(scenario(parallel=parallel, state_dict={"stages": ["gather"], "parts": ["model"]}), MACHINE)


def test_a_stage_that_torch_breaks_is_refused_unless_it_is_known_to_be_broken(scenario: Make) -> None:
    parallel = {"kind": "fsdp1", "shards": 2}
    asked: dict[str, Any] = {"stages": ["gather_offload"], "parts": ["model"]}
    assert "frees what it copied from" in refuse(scenario(parallel=parallel, state_dict=asked))
    asked["broken"] = [{"part": "model", "stage": "gather_offload", "says": "storage of size 0"}]
    make_plan(scenario(parallel=parallel, state_dict=asked), MACHINE)
