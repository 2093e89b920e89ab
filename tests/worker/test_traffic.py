"""Every strategy and every knob on real ranks: what they issue equals the plan's formula, and they train correctly."""

from collections.abc import Callable
from typing import Any

import pytest

from dtbench.plan.plan import Machine, make_plan
from dtbench.store.records.rank import ReceiptOutcome
from tests.newer_torch import skip_where_torch_lacks

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
pytestmark = pytest.mark.ranks

MODEL = {"kind": "transformer", "layers": 2, "dim": 64, "heads": 4, "kv_heads": 2, "ffn_dim": 96, "vocab_size": 250}
MLP = {"kind": "mlp", "layers": 3, "dim": 64, "hidden_dim": 96}
TIMED = {"kind": "timed", "layers": 3, "dim": 64, "hidden_dim": 96, "forward_ms": 0, "backward_ms": 0}
BIG = {**MODEL, "dim": 256, "ffn_dim": 704, "vocab_size": 2048}

CASES: dict[str, dict[str, Any]] = {
    "ddp, torch's default buckets": {"model": BIG, "parallel": {"kind": "ddp", "replicas": 2}},
    "ddp, buckets of 1 MiB": {"model": BIG, "parallel": {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 1}},
    "ddp, half a MiB, views": {
        "model": BIG,
        "parallel": {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 0.5, "gradient_as_bucket_view": True},
    },
    "ddp, unused parameters": {
        "model": BIG,
        "parallel": {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 1, "find_unused_parameters": True},
    },
    "ddp, static graph": {
        "model": BIG,
        "parallel": {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 1, "static_graph": True},
    },
    "ddp, tied head": {
        "model": {**BIG, "tied_head": True},
        "parallel": {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 1},
    },
    "ddp, bfloat16": {
        "model": BIG,
        "precision": {"dtype": "bfloat16"},
        "parallel": {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 1},
    },
    "fsdp2, uneven shards": {
        "data": {"global_batch": 6, "sequence_length": 32},
        "parallel": {"kind": "fsdp2", "shards": 3},
    },
    "fsdp2, never resharded": {"parallel": {"kind": "fsdp2", "shards": 2, "reshard_after_forward": False}},
    "fsdp2, root resharded too": {"parallel": {"kind": "fsdp2", "shards": 2, "reshard_after_forward": True}},
    "fsdp2, bfloat16 weights": {
        "parallel": {
            "kind": "fsdp2",
            "shards": 2,
            "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "float32"},
        }
    },
    "fsdp2, tied head": {"model": {**MODEL, "tied_head": True}, "parallel": {"kind": "fsdp2", "shards": 2}},
    "tensor parallel alone": {"parallel": {"kind": "fsdp2", "shards": 1, "tensor": 2}},
    "fsdp2 and tensor": {"parallel": {"kind": "fsdp2", "shards": 2, "tensor": 2}},
    "fsdp2, tensor and sequence": {"parallel": {"kind": "fsdp2", "shards": 2, "tensor": 2, "sequence_parallel": True}},
    "fsdp2, tensor and sequence, bfloat16": {
        "parallel": {
            "kind": "fsdp2",
            "shards": 2,
            "tensor": 2,
            "sequence_parallel": True,
            "mixed_precision": {"param_dtype": "bfloat16"},
        }
    },
    "mlp, ddp": {"model": MLP, "parallel": {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 0.05}},
    "mlp, fsdp1, nothing in the root": {"model": MLP, "parallel": {"kind": "fsdp1", "shards": 2}},
    "mlp, fsdp2, nothing in the root": {"model": MLP, "parallel": {"kind": "fsdp2", "shards": 2}},
    "mlp, fsdp2 and tensor": {"model": MLP, "parallel": {"kind": "fsdp2", "shards": 1, "tensor": 2}},
    "timed, ddp": {"model": TIMED, "parallel": {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 0.03}},
    "timed, fsdp2 and tensor": {"model": TIMED, "parallel": {"kind": "fsdp2", "shards": 2, "tensor": 2}},
    "mlp without biases, ddp and tensor": {
        "model": {**MLP, "bias": False},
        "parallel": {"kind": "ddp", "replicas": 1, "tensor": 2},
    },
}

_ACCUMULATED = {"micro_batches": 2}
_HYBRID = {"kind": "fsdp1", "shards": 2, "replicas": 2, "sharding_strategy": "HYBRID_SHARD"}
_EVEN = {"global_batch": 6, "sequence_length": 32}


def _ddp(**knobs: Any) -> dict[str, Any]:
    return {"parallel": {"kind": "ddp", "replicas": 2, **knobs}}


def _fsdp1(**knobs: Any) -> dict[str, Any]:
    return {"parallel": {"kind": "fsdp1", "shards": 2, **knobs}}


def _fsdp2(**knobs: Any) -> dict[str, Any]:
    return {"parallel": {"kind": "fsdp2", "shards": 2, **knobs}}


CASES |= {
    "ddp, a list of caps": {"model": BIG, **_ddp(bucket_cap_mb_list=[0.5, 2, 4])},
    "ddp, float16 on the wire": _ddp(comm_hook={"kind": "fp16_compress"}),
    "ddp, the plain hook": _ddp(comm_hook={"kind": "allreduce"}),
    "ddp, powersgd": _ddp(comm_hook={"kind": "powersgd", "matrix_approximation_rank": 4}),
    "ddp, powersgd compresses vectors too": _ddp(
        comm_hook={"kind": "powersgd", "matrix_approximation_rank": 64, "min_compression_rate": 0.01}
    ),
    "ddp, delayed": _ddp(delay_all_reduce=["layers.1", "norm"]),
    "ddp, delayed and checkpointed": {
        "model": {**MODEL, "activation_checkpointing": {"kind": "full"}},
        **_ddp(delay_all_reduce=["layers.1", "norm"]),
    },
    "ddp, checkpointed and compiled": {
        "model": {**MODEL, "activation_checkpointing": {"kind": "full"}, "compile": {"backend": "aot_eager"}},
        **_ddp(),
    },
    "ddp, optimizer in backward": {**_ddp(optimizer_in_backward=True), "gradient_clip_norm": None},
    "ddp, unused parameters skipped": _ddp(find_unused_parameters=True, skip_all_reduce_unused_params=True),
    "ddp, batched copy": _ddp(batched_grad_copy=True),
    "ddp accumulates": {**_ddp(), "accumulation": _ACCUMULATED},
    "ddp accumulates, reduced every time": {**_ddp(), "accumulation": {**_ACCUMULATED, "sync": "every"}},
    "ddp accumulates, unused parameters": {**_ddp(find_unused_parameters=True), "accumulation": _ACCUMULATED},
    "ddp and tensor": _ddp(tensor=2, bucket_cap_mb=0.05, gradient_as_bucket_view=True),
    "ddp, tensor and sequence, accumulates": {
        **_ddp(tensor=2, sequence_parallel=True),
        "accumulation": _ACCUMULATED,
    },
    "ddp, tensor, sequence and loss": _ddp(tensor=2, sequence_parallel=True, loss_parallel=True),
    "ddp and tensor, unused parameters": _ddp(tensor=2, bucket_cap_mb=0.05, find_unused_parameters=True),
    "fsdp1": _fsdp1(),
    "fsdp1, three shards, original parameters": {
        "data": _EVEN,
        "parallel": {"kind": "fsdp1", "shards": 3, "use_orig_params": True},
    },
    "fsdp1, SHARD_GRAD_OP accumulates": {
        **_fsdp1(sharding_strategy="SHARD_GRAD_OP"),
        "accumulation": _ACCUMULATED,
    },
    "fsdp1, NO_SHARD": _fsdp1(sharding_strategy="NO_SHARD", use_orig_params=True),
    "fsdp1, HYBRID_SHARD accumulates": {"parallel": _HYBRID, "accumulation": _ACCUMULATED},
    "fsdp1, _HYBRID_SHARD_ZERO2": {"parallel": {**_HYBRID, "sharding_strategy": "_HYBRID_SHARD_ZERO2"}},
    "fsdp1, bfloat16, reduced in float32": _fsdp1(
        use_orig_params=True, mixed_precision={"param_dtype": "bfloat16", "reduce_dtype": "float32"}
    ),
    "fsdp1, tied head": {"model": {**MODEL, "tied_head": True}, **_fsdp1()},
    "fsdp1, accumulates, reduced every time": {**_fsdp1(), "accumulation": {**_ACCUMULATED, "sync": "every"}},
    "fsdp1, prefetch": _fsdp1(forward_prefetch=True, backward_prefetch="BACKWARD_POST", limit_all_gathers=False),
    "fsdp1 and tensor": {**_fsdp1(tensor=2, use_orig_params=True), "gradient_clip_norm": None},
    "fsdp1, tensor, sequence and loss": {
        **_fsdp1(tensor=2, sequence_parallel=True, loss_parallel=True),
        "gradient_clip_norm": None,
    },
    "fsdp1, tensor alone": {
        "parallel": {"kind": "fsdp1", "shards": 1, "tensor": 2},
        "gradient_clip_norm": None,
    },
    "fsdp1, hybrid and tensor": {"parallel": {**_HYBRID, "tensor": 2}, "gradient_clip_norm": None},
    "hsdp": _fsdp2(replicas=2),
    "hsdp, reduce-scattered every time": {
        **_fsdp2(replicas=2),
        "accumulation": {**_ACCUMULATED, "sync": "reduce_scatter"},
    },
    "hsdp, asynchronous gathers": _fsdp2(replicas=2, unshard_async_op=True, forward_prefetch=1, backward_prefetch=2),
    "hsdp and tensor": _fsdp2(replicas=2, tensor=2),
    "ddp, a group of one": {"parallel": {"kind": "ddp", "replicas": 1}},
    "fsdp1, a group of one": {"parallel": {"kind": "fsdp1", "shards": 1}},
    "fsdp2, a group of one": {"parallel": {"kind": "fsdp2", "shards": 1}},
    "fsdp2, replicas only": {"parallel": {"kind": "fsdp2", "shards": 1, "replicas": 2}},
    "fsdp2, resharded over two of four": {"parallel": {"kind": "fsdp2", "shards": 4, "reshard_after_forward": 2}},
    "fsdp2 accumulates": {**_fsdp2(), "accumulation": _ACCUMULATED},
    "fsdp2 accumulates, kept whole between": {
        **_fsdp2(reshard_after_backward=False),
        "accumulation": {"micro_batches": 4},
    },
    "fsdp2 accumulates, tensor and sequence": {
        **_fsdp2(tensor=2, sequence_parallel=True),
        "accumulation": _ACCUMULATED,
    },
    "fsdp2, reduce-scatters apart": _fsdp2(separate_reduce_scatter_group=True, force_sum_reduction=True),
    "fsdp2, tensor and loss": _fsdp2(tensor=2, loss_parallel=True),
    "fsdp2, columns sharded, rows uneven": {
        "model": {**MLP, "dim": 63, "hidden_dim": 96},
        **_fsdp2(shard_dim={"layers.0.up.weight": 0, "layers.0.down.weight": 1, "layers.2.down.weight": 1}),
    },
    "fsdp2, two blocks a unit": {"model": {**MLP, "layers": 3}, **_fsdp2(blocks_per_unit=2)},
    "fsdp2, all blocks in a unit, accumulates": {**_fsdp2(blocks_per_unit=9), "accumulation": _ACCUMULATED},
    "fsdp2, memory of the group's own": _fsdp2(process_group_memory=True),
    "fsdp2, divided by four": _fsdp2(gradient_divide_factor=4.0, force_sum_reduction=True),
    "hsdp, divided by the shards": _fsdp2(replicas=2, gradient_divide_factor=2.0),
    "fsdp2, the first block not gathered in backward": {
        "model": {**MLP, "hidden_dim": None},
        **_fsdp2(needless_in_backward=["layers.0"]),
        "accumulation": _ACCUMULATED,
    },
    "fsdp2, gathers into one place": _fsdp2(keep_unsharded_storage=True),
    "fsdp2, backward ended by hand": {**_fsdp2(manual_backward_finalization=True), "accumulation": _ACCUMULATED},
    "ddp, buckets allocated when needed": _ddp(lazy_bucket_allocation=True, bucket_cap_mb=0.05),
    "ddp, backward ended by hand": {
        **_ddp(manual_backward_finalization=True, bucket_cap_mb=0.05),
        "accumulation": _ACCUMULATED,
    },
    "fsdp2, bfloat16 weights, reduced as this torch does": _fsdp2(mixed_precision={"param_dtype": "bfloat16"}),
}


@pytest.mark.quick(
    "ddp, torch's default buckets",
    "fsdp2, tensor and sequence",
    "fsdp2, bfloat16 weights, reduced as this torch does",
)
@pytest.mark.parametrize("name", CASES)
def test_traffic_equals_the_formula_and_training_the_single_process(
    launch: Callable[..., Any], scenario: Callable[..., Any], name: str
) -> None:
    for knob in CASES[name].get("parallel", {}):
        skip_where_torch_lacks(f"parallel.{knob}")
    wanted = scenario(**{"gradient_clip_norm": 1.0, **CASES[name]})
    launched = launch(wanted)
    plan = make_plan(wanted, Machine(cpu_cores=2, cuda_devices=0, torch=str(torch.__version__)))
    assert launched.traffic == {
        (str(t.purpose), str(t.axis), str(t.operation)): (t.count, t.size_bytes) for t in plan.traffic or ()
    }
    assert all(launched.rank(rank).traffic_is_stable for rank in range(plan.ranks))
    assert launched.correctness.passed, launched.correctness
    assert [r for r in launched.rank().receipts if r.outcome is ReceiptOutcome.DISAGREES] == []


def test_groups_that_a_strategy_makes_are_recorded_with_their_axis(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    skip_where_torch_lacks("parallel.separate_reduce_scatter_group")
    rank = launch(scenario(**_fsdp2(separate_reduce_scatter_group=True), correctness={"enabled": False})).rank()
    assert [str(group.axis) for group in rank.process_groups] == ["shard", "shard"]
    assert len({group.name for group in rank.process_groups}) == 2
    assert {group.ranks for group in rank.process_groups} == {(0, 1)}


def test_ddp_issues_the_buckets_that_the_plan_names_in_order(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    from dtbench.plan.traffic.ddp import ddp_bucket_bytes
    from dtbench.plan.traffic.parameters import known_parameters

    wanted = scenario(
        model=BIG, parallel={"kind": "ddp", "replicas": 2, "bucket_cap_mb": 1}, correctness={"enabled": False}
    )
    steps = launch(wanted).rank().bucket_bytes_per_step
    assert steps[-1] == ddp_bucket_bytes(wanted, wanted.parallel, known_parameters(wanted.model) or ())
    assert len(steps[0]) == 1, "the first step is unbucketed"
