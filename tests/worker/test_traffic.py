"""What real ranks issue in a step equals the plan's formula, collective by collective and byte by byte."""

from collections.abc import Callable
from typing import Any

import pytest

from dtbench.plan import Machine, make_plan

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
pytestmark = pytest.mark.ranks

MODEL = {"kind": "transformer", "layers": 2, "dim": 64, "heads": 4, "kv_heads": 2, "ffn_dim": 96, "vocab_size": 250}
MLP = {"kind": "mlp", "layers": 3, "dim": 64, "hidden_dim": 96}
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
    "mlp without biases, ddp and tensor": {
        "model": {**MLP, "bias": False},
        "parallel": {"kind": "ddp", "replicas": 1, "tensor": 2},
    },
}


@pytest.mark.parametrize("name", CASES)
def test_traffic_equals_the_formula(launch: Callable[..., Any], scenario: Callable[..., Any], name: str) -> None:
    wanted = scenario(**CASES[name], gradient_clip_norm=1.0, correctness={"enabled": False})
    launched = launch(wanted)
    plan = make_plan(wanted, Machine(cpu_cores=2, cuda_devices=0))
    assert launched.traffic == {
        (str(t.purpose), str(t.axis), str(t.operation)): (t.count, t.size_bytes) for t in plan.traffic or ()
    }
    assert all(launched.rank(rank).traffic_is_stable for rank in range(plan.ranks))


def test_ddp_issues_the_buckets_that_the_plan_names_in_order(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    from dtbench.traffic.ddp import ddp_bucket_bytes
    from dtbench.traffic.parameters import known_parameters

    wanted = scenario(
        model=BIG, parallel={"kind": "ddp", "replicas": 2, "bucket_cap_mb": 1}, correctness={"enabled": False}
    )
    steps = launch(wanted).rank().bucket_bytes_per_step
    assert steps[-1] == ddp_bucket_bytes(wanted, wanted.parallel, known_parameters(wanted.model) or ())
    assert len(steps[0]) == 1, "the first step is unbucketed"
