"""The check against a single process passes on every strategy and fails on each planted fault."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.newer_torch import plan_what_torch_refuses

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
pytestmark = pytest.mark.ranks

DDP = {"kind": "ddp", "replicas": 2}
FSDP2 = {"kind": "fsdp2", "shards": 2}
FSDP1 = {"kind": "fsdp1", "shards": 2}
TENSOR = {"kind": "fsdp2", "shards": 1, "tensor": 2}
ASYNC = {**FSDP2, "unshard_async_op": True, "forward_prefetch": 1}


@pytest.mark.quick(
    str(DDP),
    str(ASYNC),
)
@pytest.mark.parametrize(
    "parallel", [DDP, FSDP2, TENSOR, ASYNC, {**TENSOR, "shards": 2, "sequence_parallel": True}], ids=str
)
def test_an_honest_run_equals_the_single_process(
    launch_fresh: Callable[..., Any], scenario: Callable[..., Any], parallel: dict[str, Any]
) -> None:
    result = launch_fresh(scenario(parallel=parallel, gradient_clip_norm=1.0)).correctness
    assert result.passed
    assert 0 < result.gradient_error < 1e-5
    assert result.loss_error < 1e-6


FAULTS = {
    "ddp": (DDP, "drop all-reduce"),
    "fsdp2 gathers": (FSDP2, "drop all-gather"),
    "tensor": (TENSOR, "drop tensor all-reduce"),
    "fsdp2, a wait": (ASYNC, "late gathers, one wait skipped"),
    "ddp under tensor": ({**DDP, "tensor": 2}, "drop all-reduce"),
    "ddp's tensor axis": ({**DDP, "tensor": 2}, "drop tensor all-reduce"),
    "fsdp1 gathers": (FSDP1, "drop all-gather"),
    "fsdp1 scatters": (FSDP1, "drop reduce-scatter"),
    "fsdp1's tensor axis": ({**FSDP1, "tensor": 2}, "drop tensor all-reduce"),
    "fsdp1, hybrid": ({**FSDP1, "replicas": 2, "sharding_strategy": "HYBRID_SHARD"}, "drop all-reduce"),
    "hsdp": ({**FSDP2, "replicas": 2}, "drop all-reduce"),
    "hsdp and tensor": ({**FSDP2, "replicas": 2, "tensor": 2}, "drop reduce-scatter"),
}


@pytest.mark.quick("ddp", "fsdp2 gathers", "tensor", "fsdp1 scatters")
@pytest.mark.parametrize(("parallel", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_breaks_the_check(
    launch: Callable[..., Any], scenario: Callable[..., Any], parallel: dict[str, Any], fault: str
) -> None:
    assert not launch(scenario(parallel=parallel), fault).correctness.passed


def test_late_gathers_alone_do_not_break_the_check(launch: Callable[..., Any], scenario: Callable[..., Any]) -> None:
    assert launch(scenario(parallel=ASYNC), "late gathers").correctness.passed


def test_bfloat16_stays_within_its_stated_bound(launch: Callable[..., Any], scenario: Callable[..., Any]) -> None:
    parallel = {**FSDP2, "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "float32"}}
    result = launch(scenario(parallel=parallel)).correctness
    assert result.passed
    assert 1e-4 < result.gradient_error < 5e-2


def test_a_norm_that_lacks_an_axis_breaks_the_check_even_under_adam(
    launch: Callable[..., Any], scenario: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_what_torch_refuses(monkeypatch)
    parallel = {**FSDP1, "tensor": 2}  # torch's own clip_grad_norm_ leaves the tensor axis out there
    result = launch(scenario(parallel=parallel, gradient_clip_norm=0.1)).correctness
    assert not result.passed
    assert "norm" in result.worst_parameter


@pytest.mark.parametrize(("norm", "passes"), [(1.0, True), (1.003, True), (1.03, False), (float("nan"), False)])
def test_a_norm_may_be_rounded_but_not_wrong(
    tmp_path: Any, scenario: Callable[..., Any], norm: float, passes: bool
) -> None:
    import torch

    from dtbench.worker.loop.correctness import NORM, compare_with_reference, write_reference

    gradients = {"w": torch.ones(2), NORM: torch.tensor(1.0)}
    write_reference(tmp_path / "reference.pt", [1.0] * 5, gradients)
    found = {**gradients, NORM: torch.tensor(norm)}
    assert compare_with_reference(tmp_path / "reference.pt", [1.0] * 5, found, scenario()).passed is passes


@pytest.mark.parametrize("place", [1, 2, 4])
def test_a_loss_that_is_no_number_never_passes(tmp_path: Any, scenario: Callable[..., Any], place: int) -> None:
    import torch

    from dtbench.worker.loop.correctness import compare_with_reference, write_reference

    gradients = {"w": torch.ones(2)}
    write_reference(tmp_path / "reference.pt", [1.0] * 5, gradients)
    losses = [1.0] * 5
    assert compare_with_reference(tmp_path / "reference.pt", losses, gradients, scenario()).passed
    losses[place] = float("nan")
    assert not compare_with_reference(tmp_path / "reference.pt", losses, gradients, scenario()).passed
