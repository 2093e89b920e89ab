"""What only a cell on devices has: purposes that its traces do not show, and the arithmetic that it is held against."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dtbench.base.vocabulary import Purpose
from dtbench.plan.plan import Machine, make_plan
from dtbench.runs.cell.summarize_cell import _compute_dtype, _find_unplanned
from dtbench.scenario.schema.scenario import Scenario

Make = Callable[..., Scenario]
OWN = {"kind": "custom", "function": "a:b"}


@pytest.mark.parametrize(
    ("device", "parallel", "unplanned"),
    [
        ("cuda", {"kind": "fsdp2", "shards": 2, "cpu_offload": True}, (Purpose.OTHER,)),
        ("cpu", {"kind": "fsdp2", "shards": 2, "cpu_offload": True}, ()),
        ("cuda", {"kind": "fsdp2", "shards": 2}, ()),
        (
            "cpu",
            {"kind": "ddp", "replicas": 2, "comm_hook": {"kind": "custom", "function": "a:b"}},
            (Purpose.GRAD_REDUCE,),
        ),
        ("cuda", {"kind": "fsdp2", "shards": 2, "all_gather": "a:b"}, (Purpose.UNSHARD,)),
        ("cuda", {"kind": "fsdp1", "shards": 2, "cpu_offload": True}, ()),
    ],
)
def test_no_plan_is_held_against_what_is_reduced_in_host_memory_or_by_a_persons_own_function(
    scenario: Make, device: str, parallel: dict[str, Any], unplanned: tuple[Purpose, ...]
) -> None:
    wanted = scenario(device=device, parallel=parallel)
    cell: Any = SimpleNamespace(scenario=wanted, plan=make_plan(wanted, Machine(cpu_cores=2, cuda_devices=2)))
    assert _find_unplanned(cell) == frozenset(unplanned)


@pytest.mark.parametrize(
    ("sections", "dtype"),
    [
        ({}, "float32"),
        ({"precision": {"dtype": "bfloat16"}}, "bfloat16"),
        ({"precision": {"autocast": "bfloat16"}}, "bfloat16"),
        *(
            ({"parallel": {"kind": kind, axis: 2, "mixed_precision": {"param_dtype": "bfloat16"}}}, "bfloat16")
            for kind, axis in (("ddp", "replicas"), ("fsdp1", "shards"), ("fsdp2", "shards"))
        ),
        ({"parallel": {"kind": "fsdp2", "shards": 2, "mixed_precision": {"reduce_dtype": "bfloat16"}}}, "float32"),
    ],
)
def test_a_cell_is_held_against_the_dtype_that_its_products_have(
    scenario: Make, sections: dict[str, Any], dtype: str
) -> None:
    assert _compute_dtype(scenario(device="cuda", **sections)) == dtype
