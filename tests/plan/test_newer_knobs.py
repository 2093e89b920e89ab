"""What only newer torches have: named where a scenario asks for it, before any rank starts."""

from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.errors import PlanError
from dtbench.base.torch_versions import TESTED_TORCH
from dtbench.base.vocabulary import DeviceKind, Purpose
from dtbench.plan.plan import Machine, Plan, make_plan
from dtbench.plan.rules.newer_knobs import NEWER, find_newer
from dtbench.plan.rules.rule import Case, find_reasons
from dtbench.scenario.schema.scenario import Scenario

DDP = {"kind": "ddp", "replicas": 2}
FSDP2 = {"kind": "fsdp2", "shards": 2}
ASKED: dict[str, list[dict[str, Any]]] = {
    "parallel.batched_grad_copy": [{**DDP, "batched_grad_copy": True}],
    "parallel.bucket_cap_mb": [
        {**DDP, "delay_all_reduce": ["layers.1"], "bucket_cap_mb": 0.5},
        {**DDP, "delay_all_reduce": ["layers.1"], "bucket_cap_mb_list": [1, 0.5]},
    ],
    "parallel.separate_reduce_scatter_group": [{**FSDP2, "separate_reduce_scatter_group": True}],
    "parallel.reduce_scatter_max_input_buffers": [{**FSDP2, "reduce_scatter_max_input_buffers": 2}],
    "parallel.reduce_scatter_unused_params": [{**FSDP2, "reduce_scatter_unused_params": True}],
    "parallel.symmetric_memory": [{**FSDP2, "symmetric_memory": True}],
    "parallel.keep_unsharded_storage": [{**FSDP2, "keep_unsharded_storage": True}],
    "parallel.lazy_bucket_allocation": [{**DDP, "lazy_bucket_allocation": True}],
    "parallel.mixed_precision.keep_dtype": [
        {**FSDP2, "mixed_precision": {"param_dtype": "bfloat16", "keep_dtype": ["layers.1"]}}
    ],
}
OLDER = [
    DDP,
    FSDP2,
    {**DDP, "bucket_cap_mb": 0.5},
    {**DDP, "delay_all_reduce": ["layers.1"]},
    {**DDP, "delay_all_reduce": ["layers.1"], "bucket_cap_mb": 2},
    {"kind": "fsdp1", "shards": 2},
]


FINALIZED = {"manual_backward_finalization": True}


@pytest.mark.parametrize("parallel", [{**DDP, **FINALIZED}, {**FSDP2, **FINALIZED}], ids=str)
def test_both_strategies_end_backward_by_hand_from_one_version_on(
    scenario: Callable[..., Scenario], parallel: dict[str, Any]
) -> None:
    (newer,) = find_newer(scenario(parallel=parallel))
    assert newer.says == "parallel.manual_backward_finalization needs torch 2.15 or newer"


@pytest.mark.parametrize("newer", [one for one in NEWER if one.knob in ASKED], ids=lambda newer: newer.knob)
def test_a_newer_knob_is_named_below_its_first_version_and_from_there_on_not(
    scenario: Callable[..., Scenario], newer: Any
) -> None:
    major, minor = newer.first
    for parallel in ASKED[newer.knob]:
        wanted = scenario(parallel=parallel)
        assert list(find_newer(wanted)) == [newer]
        (sentence,) = find_reasons(NEWER, Case(wanted, DeviceKind.CPU, torch=f"{major}.{minor - 1}.1+cu130"))
        assert sentence.endswith(
            f"needs torch {major}.{minor} or newer, and this is {major}.{minor - 1}.1+cu130; "
            "leave it out, or use a newer torch"
        )
        assert not list(find_reasons(NEWER, Case(wanted, DeviceKind.CPU, torch=f"{major}.{minor}.0")))


def test_what_every_tested_torch_has_asks_for_none_in_particular(scenario: Callable[..., Scenario]) -> None:
    assert not [newer for parallel in OLDER for newer in find_newer(scenario(parallel=parallel))]
    assert all(newer.first > TESTED_TORCH[0] for newer in NEWER)
    assert {newer.knob for newer in NEWER} == {*ASKED, "parallel.manual_backward_finalization"}


def test_a_plan_is_refused_where_this_torch_lacks_a_knob_and_not_where_another_runs_it(
    scenario: Callable[..., Scenario],
) -> None:
    wanted = scenario(parallel=ASKED["parallel.batched_grad_copy"][0])
    older = Machine(cpu_cores=2, cuda_devices=0, torch="2.11.0+cu130")
    with pytest.raises(
        PlanError, match=r"^parallel\.batched_grad_copy needs torch 2\.12 or newer, and this is 2\.11\.0\+cu130; leave"
    ):
        make_plan(wanted, older)
    for torch in ("2.12.0", None):
        make_plan(wanted, older.model_copy(update={"torch": torch}))
    make_plan(wanted.model_copy(update={"python": "/other/python"}), older)


@pytest.mark.parametrize(
    ("policy", "reduced"),
    [
        ({"param_dtype": "bfloat16"}, {"2.13.0+cpu": 2, "2.14.1": 2, "2.15.0+cu132": 4, None: 2}),
        ({"param_dtype": "bfloat16", "reduce_dtype": "bfloat16"}, {"2.14.1": 2, "2.15.0": 2}),
        ({"param_dtype": "bfloat16", "reduce_dtype": "float32"}, {"2.14.1": 4, "2.15.0": 4}),
        ({}, {"2.14.1": 4, "2.15.0": 4}),
    ],
)
def test_fsdp2_reduces_in_the_dtype_that_each_torch_takes_where_none_is_asked_for(
    scenario: Callable[..., Scenario], policy: dict[str, str], reduced: dict[str | None, int]
) -> None:
    """From 2.15 on gradients keep their parameters' dtype: twice the bytes of the computation's in bfloat16."""
    wanted = scenario(parallel={**FSDP2, "mixed_precision": policy})
    whole = scenario(parallel=FSDP2)
    full = reduced_bytes(make_plan(whole, Machine(cpu_cores=2, cuda_devices=0)))
    for version, item_bytes in reduced.items():
        plan = make_plan(wanted, Machine(cpu_cores=2, cuda_devices=0, torch=version))
        assert plan.torch == version
        assert 4 * reduced_bytes(plan) == item_bytes * full


def reduced_bytes(plan: Plan) -> int:
    return sum(one.size_bytes for one in plan.traffic or () if one.purpose is Purpose.GRAD_REDUCE)
