"""Every knob has a receipt; a knob that was silenced disagrees with what was asked, one that was set agrees."""

import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dtbench.plan import Machine, make_plan
from dtbench.scenario.schema import AdamW, Ddp, Fsdp2, Fsdp2MixedPrecision, Precision, Scenario, Sgd
from dtbench.store.records import Receipt, ReceiptOutcome

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

BASE: dict[str, dict[str, Any]] = {
    "ddp": {"parallel": {"kind": "ddp", "replicas": 1}},
    "fsdp2": {"parallel": {"kind": "fsdp2", "shards": 1}},
}

# knob: the sections that ask for it, beside the base of its strategy
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "parallel.replicas": ("ddp", {"parallel": {"kind": "ddp", "replicas": 2}}),
    "parallel.bucket_cap_mb": ("ddp", {"parallel": {"kind": "ddp", "replicas": 1, "bucket_cap_mb": 3}}),
    "parallel.gradient_as_bucket_view": (
        "ddp",
        {"parallel": {"kind": "ddp", "replicas": 1, "gradient_as_bucket_view": True}},
    ),
    "parallel.static_graph": ("ddp", {"parallel": {"kind": "ddp", "replicas": 1, "static_graph": True}}),
    "parallel.find_unused_parameters": (
        "ddp",
        {"parallel": {"kind": "ddp", "replicas": 1, "find_unused_parameters": True}},
    ),
    "parallel.broadcast_buffers": ("ddp", {"parallel": {"kind": "ddp", "replicas": 1, "broadcast_buffers": False}}),
    "parallel.init_sync": ("ddp", {"parallel": {"kind": "ddp", "replicas": 1, "init_sync": False}}),
    "parallel.shards": ("fsdp2", {"parallel": {"kind": "fsdp2", "shards": 2}}),
    "parallel.tensor": ("fsdp2", {"parallel": {"kind": "fsdp2", "shards": 1, "tensor": 2}}),
    "parallel.sequence_parallel": (
        "fsdp2",
        {"parallel": {"kind": "fsdp2", "shards": 1, "tensor": 2, "sequence_parallel": True}},
    ),
    "parallel.reshard_after_forward": (
        "fsdp2",
        {"parallel": {"kind": "fsdp2", "shards": 1, "reshard_after_forward": False}},
    ),
    "parallel.mixed_precision.param_dtype": (
        "fsdp2",
        {"parallel": {"kind": "fsdp2", "shards": 1, "mixed_precision": {"param_dtype": "bfloat16"}}},
    ),
    "parallel.mixed_precision.reduce_dtype": (
        "fsdp2",
        {"parallel": {"kind": "fsdp2", "shards": 1, "mixed_precision": {"reduce_dtype": "bfloat16"}}},
    ),
    "parallel.mixed_precision.output_dtype": (
        "fsdp2",
        {"parallel": {"kind": "fsdp2", "shards": 1, "mixed_precision": {"output_dtype": "bfloat16"}}},
    ),
    "parallel.mixed_precision.cast_forward_inputs": (
        "fsdp2",
        {"parallel": {"kind": "fsdp2", "shards": 1, "mixed_precision": {"cast_forward_inputs": False}}},
    ),
    "parallel.cpu_offload": ("fsdp2", {"parallel": {"kind": "fsdp2", "shards": 1, "cpu_offload": True}}),
    "parallel.unshard_async_op": ("fsdp2", {"parallel": {"kind": "fsdp2", "shards": 1, "unshard_async_op": True}}),
    "parallel.forward_prefetch": ("fsdp2", {"parallel": {"kind": "fsdp2", "shards": 1, "forward_prefetch": 1}}),
    "parallel.backward_prefetch": ("fsdp2", {"parallel": {"kind": "fsdp2", "shards": 1, "backward_prefetch": 2}}),
    "optimizer.kind": ("ddp", {"optimizer": {"kind": "sgd"}}),
    "optimizer.lr": ("ddp", {"optimizer": {"kind": "adamw", "lr": 0.5}}),
    "optimizer.betas": ("ddp", {"optimizer": {"kind": "adamw", "betas": [0.5, 0.6]}}),
    "optimizer.eps": ("ddp", {"optimizer": {"kind": "adamw", "eps": 0.1}}),
    "optimizer.weight_decay": ("ddp", {"optimizer": {"kind": "adamw", "weight_decay": 0.3}}),
    "optimizer.foreach": ("ddp", {"optimizer": {"kind": "adamw", "foreach": True}}),
    "optimizer.fused": ("ddp", {"optimizer": {"kind": "adamw", "fused": True}}),
    "optimizer.momentum": ("ddp", {"optimizer": {"kind": "sgd", "momentum": 0.9}}),
    "precision.dtype": ("ddp", {"precision": {"dtype": "bfloat16"}}),
    "precision.autocast": ("ddp", {"precision": {"autocast": "bfloat16"}}),
    "gradient_clip_norm": ("ddp", {"gradient_clip_norm": 1.0}),
}
NEEDS_TWO_RANKS = {"parallel.replicas", "parallel.shards", "parallel.tensor", "parallel.sequence_parallel"}


@pytest.fixture(scope="module")
def lone_group() -> Iterator[None]:
    import torch.distributed as dist

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        yield
        dist.destroy_process_group()


def read_receipts(built: Scenario, asked: Scenario) -> dict[str, Receipt]:
    """Train two steps as ``built`` says, then compare with what ``asked`` wanted."""
    from dtbench.worker.batches import Batches
    from dtbench.worker.mesh import build_mesh
    from dtbench.worker.parallelize.strategy import parallelize
    from dtbench.worker.recorder import Recorder
    from dtbench.worker.session import make_model, make_train_step
    from dtbench.worker.train import read_training_receipts

    plan = make_plan(built, Machine(cpu_cores=1, cuda_devices=0))
    model = make_model(built, torch.device("cpu"))
    parallel = parallelize(model, build_mesh(plan), built, plan)
    step = make_train_step(built, parallel, model, Recorder())
    batches = Batches(built, model.make_batch, torch.device("cpu"), rows=slice(None))
    for number in range(2):
        step.run(batches.make(number))
    receipts = (*parallel.read_receipts(asked.parallel), *read_training_receipts(step, asked))
    return {receipt.knob: receipt for receipt in receipts}


@pytest.mark.usefixtures("lone_group")
@pytest.mark.parametrize("knob", ASKED)
def test_a_silenced_knob_disagrees(scenario: Callable[..., Scenario], knob: str) -> None:
    strategy, sections = ASKED[knob]
    if knob.startswith("optimizer.") and sections["optimizer"]["kind"] == "sgd" and knob != "optimizer.kind":
        silenced = scenario(**{**BASE[strategy], "optimizer": {"kind": "sgd"}})
    else:
        silenced = scenario(**BASE[strategy])
    receipt = read_receipts(silenced, scenario(**{**BASE[strategy], **sections}))[knob]
    assert receipt.outcome is ReceiptOutcome.DISAGREES, receipt
    assert receipt.asked != receipt.got


@pytest.mark.usefixtures("lone_group")
@pytest.mark.parametrize("knob", [knob for knob in ASKED if knob not in NEEDS_TWO_RANKS])
def test_a_knob_that_was_set_agrees_or_says_why_it_has_no_effect(scenario: Callable[..., Scenario], knob: str) -> None:
    strategy, sections = ASKED[knob]
    wanted = scenario(**{**BASE[strategy], **sections})
    receipt = read_receipts(wanted, wanted)[knob]
    assert receipt.outcome is not ReceiptOutcome.DISAGREES, receipt
    assert receipt.outcome is ReceiptOutcome.AGREES or receipt.note


@pytest.mark.usefixtures("lone_group")
def test_defaults_agree_with_torchs_own(scenario: Callable[..., Scenario]) -> None:
    for sections in BASE.values():
        default = scenario(**sections)
        wrong = [r for r in read_receipts(default, default).values() if r.outcome is ReceiptOutcome.DISAGREES]
        assert wrong == []


def test_every_knob_of_the_schema_has_a_receipt() -> None:
    def knobs(record: Any, prefix: str) -> set[str]:
        return {f"{prefix}.{name}" for name in record.model_fields if name != "kind" and name != "mixed_precision"}

    wanted = {
        "optimizer.kind",
        "gradient_clip_norm",
        *knobs(Precision, "precision"),
        *knobs(Fsdp2MixedPrecision, "parallel.mixed_precision"),
    }
    wanted |= knobs(Ddp, "parallel") | knobs(Fsdp2, "parallel") | knobs(AdamW, "optimizer") | knobs(Sgd, "optimizer")
    assert wanted == set(ASKED)


def test_prefetch_without_async_unshard_is_said_to_have_no_effect_on_gloo(
    scenario: Callable[..., Scenario], lone_group: None
) -> None:
    sections = ASKED["parallel.forward_prefetch"][1]
    receipt = read_receipts(scenario(**sections), scenario(**sections))["parallel.forward_prefetch"]
    assert receipt.outcome is ReceiptOutcome.NO_EFFECT
    assert "unshard_async_op" in receipt.note
