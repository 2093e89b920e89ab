"""The canary on real ranks: silent for whoever waits, loud where a wait is missing and nothing else shows it."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.errors import LaunchError
from dtbench.base.vocabulary import Operation, Purpose, Region

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
pytestmark = pytest.mark.ranks

LINK = {"kind": "emulated", "latency_us": 1000.0, "bandwidth_gb_per_s": 1.0}
DDP: dict[str, Any] = {"kind": "ddp", "replicas": 2}
FSDP1: dict[str, Any] = {"kind": "fsdp1", "shards": 2}
FSDP2: dict[str, Any] = {"kind": "fsdp2", "shards": 2}
ASYNC = {**FSDP2, "unshard_async_op": True, "forward_prefetch": 1}
TENSOR = {**FSDP2, "shards": 1, "tensor": 2}
MLP = {"kind": "mlp", "layers": 2, "dim": 64, "hidden_dim": 128}
POWERSGD = {"kind": "powersgd", "start_powersgd_iter": 2}
CUSTOM = {"kind": "custom", "factory": "example_model:build", "arguments": {"width": 16}}

HONEST: dict[str, dict[str, Any]] = {
    "ddp, small buckets": {"parallel": {**DDP, "bucket_cap_mb": 0.05}},
    "ddp, views of buckets": {"parallel": {**DDP, "gradient_as_bucket_view": True, "static_graph": True}},
    "ddp, unused parameters": {"parallel": {**DDP, "find_unused_parameters": True}},
    "ddp, float16": {"parallel": {**DDP, "comm_hook": {"kind": "fp16_compress"}}},
    "ddp, powersgd": {"parallel": {**DDP, "comm_hook": POWERSGD, "bucket_cap_mb": 4096}},
    "ddp, delayed": {"parallel": {**DDP, "delay_all_reduce": ["layers.1"]}},
    "ddp, optimizer in backward": {"parallel": {**DDP, "optimizer_in_backward": True}},
    "ddp, accumulated": {"parallel": DDP, "accumulation": {"micro_batches": 2}},
    "ddp, tensor": {"parallel": {**DDP, "tensor": 2}, "gradient_clip_norm": 1.0},
    "fsdp1": {"parallel": FSDP1, "gradient_clip_norm": 1.0},
    "fsdp1, hybrid": {"parallel": {**FSDP1, "replicas": 2, "sharding_strategy": "HYBRID_SHARD"}},
    "fsdp1, tensor": {"parallel": {**FSDP1, "tensor": 2}},
    "fsdp2, asynchronous": {"parallel": ASYNC, "gradient_clip_norm": 1.0},
    "fsdp2, bfloat16": {
        "parallel": {**FSDP2, "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "float32"}}
    },
    "hsdp": {"parallel": {**FSDP2, "replicas": 2}},
    "fsdp2, tensor and sequence": {"parallel": {**FSDP2, "tensor": 2, "sequence_parallel": True}},
    "tensor, sharded loss": {"parallel": {**TENSOR, "loss_parallel": True}},
    "compiled": {"parallel": FSDP2, "model": {**MLP, "compile": {"backend": "aot_eager"}}},
    "compiled, ddp": {"parallel": DDP, "model": {**MLP, "compile": {"what": "model", "backend": "aot_eager"}}},
    "custom, ddp": {"parallel": DDP, "model": CUSTOM},
    "custom, tensor": {"parallel": {**FSDP2, "tensor": 2}, "model": CUSTOM},
}


@pytest.mark.quick(
    "ddp, small buckets",
    "fsdp1",
    "fsdp2, asynchronous",
)
@pytest.mark.parametrize("strategy", HONEST)
def test_whoever_waits_sees_the_same_numbers_however_late_they_come(
    launch: Callable[..., Any], scenario: Callable[..., Any], strategy: str
) -> None:
    launched = launch(scenario(**HONEST[strategy], network=LINK))
    assert launched.correctness.passed
    canary = launched.canary
    assert canary.reason is None
    assert (canary.passed, canary.steps, canary.is_equal, canary.missed) == (True, 2, True, ())
    last = launched.rank(1)
    assert last.extras.canary.collectives == sum(row.count for row in last.traffic), (
        "a broadcast's root receives nothing"
    )


def test_a_result_of_which_only_torch_keeps_the_work_arrives(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    """Under join DDP's reducer keeps the work that counts the ranks which are left, and waits for it in backward."""
    join = {**DDP, "join": {"divide_by_initial_world_size": False}}
    rows = {"global_batch": 12, "sequence_length": 8, "iterations": [1, 2]}
    canary = launch(scenario(parallel=join, data=rows, model=MLP, optimizer={"kind": "sgd"}, network=LINK)).canary
    assert (canary.passed, canary.is_equal, canary.missed) == (True, True, ())


FAULTS = {
    "ddp": (DDP, "nobody waits for all-reduces", Purpose.GRAD_REDUCE, Operation.ALL_REDUCE),
    "ddp, fp16": (
        {**DDP, "comm_hook": {"kind": "fp16_compress"}},
        "nobody waits for all-reduces",
        Purpose.GRAD_REDUCE,
        None,
    ),
    "ddp, powersgd": (
        {**DDP, "comm_hook": POWERSGD, "bucket_cap_mb": 4096},
        "nobody waits for all-reduces",
        Purpose.GRAD_REDUCE,
        None,
    ),
    "ddp, a hook": (
        {**DDP, "comm_hook": {"kind": "allreduce"}},
        "the hook forgets",
        Purpose.GRAD_REDUCE,
        Operation.ALL_REDUCE,
    ),
    "ddp, a hook's future": (
        {**DDP, "comm_hook": {"kind": "allreduce"}},
        "the hook forgets its future",
        Purpose.GRAD_REDUCE,
        None,
    ),
    "ddp, delayed": (
        {**DDP, "delay_all_reduce": ["layers.1"]},
        "the delayed all-reduce is dropped",
        Purpose.GRAD_REDUCE,
        Operation.ALL_REDUCE,
    ),
    "ddp under tensor": (
        {**DDP, "tensor": 2},
        "nobody waits for all-reduces",
        Purpose.GRAD_REDUCE,
        Operation.ALL_REDUCE,
    ),
    "ddp's tensor axis": (
        {**DDP, "tensor": 2},
        "nobody waits for tensor all-reduces",
        Purpose.TENSOR,
        Operation.ALL_REDUCE,
    ),
    "fsdp1 gathers": (FSDP1, "nobody waits for all-gathers", Purpose.UNSHARD, Operation.ALL_GATHER),
    "fsdp1 scatters": (FSDP1, "nobody waits for reduce-scatters", Purpose.GRAD_REDUCE, Operation.REDUCE_SCATTER),
    "fsdp1, hybrid": (
        {**FSDP1, "replicas": 2, "sharding_strategy": "HYBRID_SHARD"},
        "nobody waits for all-reduces",
        Purpose.GRAD_REDUCE,
        Operation.ALL_REDUCE,
    ),
    "fsdp1's tensor axis": (
        {**FSDP1, "tensor": 2},
        "nobody waits for tensor all-reduces",
        Purpose.TENSOR,
        Operation.ALL_REDUCE,
    ),
    "fsdp2 gathers": (FSDP2, "nobody waits for all-gathers", Purpose.UNSHARD, Operation.ALL_GATHER),
    "fsdp2 gathers, asynchronous": (ASYNC, "nobody waits for all-gathers", Purpose.UNSHARD, Operation.ALL_GATHER),
    "fsdp2 without work": (ASYNC, "gathers give no work", Purpose.UNSHARD, Operation.ALL_GATHER),
    "fsdp2 scatters": (FSDP2, "nobody waits for reduce-scatters", Purpose.GRAD_REDUCE, Operation.REDUCE_SCATTER),
    "hsdp": ({**FSDP2, "replicas": 2}, "nobody waits for all-reduces", Purpose.GRAD_REDUCE, Operation.ALL_REDUCE),
    "tensor axis": (TENSOR, "nobody waits for tensor all-reduces", Purpose.TENSOR, Operation.ALL_REDUCE),
    "tensor axis, functional": (TENSOR, "nobody waits for tensors", Purpose.TENSOR, Operation.ALL_REDUCE),
    "sequence": (
        {**FSDP2, "tensor": 2, "sequence_parallel": True},
        "nobody waits for tensor all-gathers",
        Purpose.TENSOR,
        Operation.ALL_GATHER,
    ),
}


@pytest.mark.quick(
    "ddp",
    "fsdp1 gathers",
    "fsdp2 gathers, asynchronous",
    "fsdp2 without work",
    "fsdp2 scatters",
)
@pytest.mark.parametrize(("parallel", "fault", "purpose", "operation"), FAULTS.values(), ids=FAULTS)
def test_a_wait_that_is_missing_is_found_where_the_network_is_too_fast_for_results_to_show_it(
    launch: Callable[..., Any],
    scenario: Callable[..., Any],
    parallel: dict[str, Any],
    fault: str,
    purpose: Purpose,
    operation: Operation | None,
) -> None:
    model = {} if "sequence_parallel" in parallel else {"model": MLP}
    launched = launch(scenario(parallel=parallel, network=LINK, **model), fault)
    assert launched.correctness.passed, "results alone must not show it, or the canary proves nothing here"
    canary = launched.canary
    assert canary.passed is False
    assert {missed.purpose for missed in canary.missed} == {purpose}
    if operation is not None:
        assert {missed.operation for missed in canary.missed} == {operation}


@pytest.mark.quick(str(FSDP1), str(ASYNC))
@pytest.mark.parametrize("parallel", [FSDP2, FSDP1, ASYNC], ids=str)
def test_the_unit_that_was_read_too_early_is_named(
    launch: Callable[..., Any], scenario: Callable[..., Any], parallel: dict[str, Any]
) -> None:
    launched = launch(scenario(parallel=parallel, network=LINK), "nobody waits for the second all-gather")
    assert launched.correctness.passed
    (missed,) = launched.canary.missed
    assert (missed.purpose, missed.operation, missed.region) == (
        Purpose.UNSHARD,
        Operation.ALL_GATHER,
        Region.FORWARD,
    )
    assert (missed.owner, missed.count, missed.was_awaited) == ("layers.0", 1, False)


def test_the_bucket_that_was_read_too_early_is_named(launch: Callable[..., Any], scenario: Callable[..., Any]) -> None:
    parallel = {**DDP, "bucket_cap_mb": 0.05}
    launched = launch(scenario(parallel=parallel, network=LINK, model=MLP), "nobody waits for the second all-reduce")
    (missed,) = launched.canary.missed
    assert (missed.owner, missed.region) == ("bucket 1", Region.BACKWARD)


def test_a_step_that_cannot_compute_with_poison_ends_with_a_sentence(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    with pytest.raises(LaunchError, match="something reads a collective's result before it is done"):
        launch(scenario(network=LINK, model=MLP), "an index is read early")


def test_the_canary_changes_nothing_that_is_recorded_and_runs_only_where_it_is_asked_for(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    def run(**sections: Any) -> Any:
        launched = launch(scenario(parallel=FSDP2, model=MLP, **sections))
        rank = launched.rank()
        shutil.rmtree(launched.folder.path)
        return rank

    silent = run(network=LINK, correctness={"canary": False})
    asked, real = run(network=LINK), run()
    for field in ("losses", "traffic", "owned", "carried", "bucket_bytes_per_step"):
        assert getattr(asked, field) == getattr(silent, field)
    assert [receipt.knob for receipt in asked.receipts] == [receipt.knob for receipt in silent.receipts]
    assert silent.extras.canary is None
    assert real.extras.canary is None, "a real network runs it only when asked"
    wished = run(correctness={"enabled": False, "canary": True})
    assert wished.correctness is None
    assert wished.extras.canary.passed


def test_random_numbers_are_drawn_again_so_that_steps_repeat_themselves(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    model = {"kind": "custom", "factory": "example_model:build_with_dropout"}
    launched = launch(scenario(model=model, parallel=FSDP2, correctness={"enabled": False, "canary": True}))
    assert (launched.canary.passed, launched.canary.is_equal) == (True, True)


def test_of_a_model_that_does_not_repeat_itself_nobody_can_tell(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    model = {**CUSTOM, "factory": "example_model:build_restless"}
    launched = launch(scenario(model=model, parallel=FSDP2, correctness={"enabled": False, "canary": True}))
    assert launched.canary.passed is None
    assert "does not repeat itself" in str(launched.canary.reason)


def test_a_single_rank_waits_for_nobody(launch: Callable[..., Any], scenario: Callable[..., Any]) -> None:
    launched = launch(scenario(parallel={"kind": "ddp", "replicas": 1}, model=MLP, network=LINK))
    assert launched.canary.passed is None
    assert "single rank" in str(launched.canary.reason)
