"""Every refused combination fails in the installed torch, and what the refusal names instead trains correctly."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from dtbench.base.errors import LaunchError, PlanError
from dtbench.base.vocabulary import DeviceKind
from dtbench.plan.plan import Machine, make_plan
from dtbench.plan.rules.refusals import REFUSALS
from dtbench.plan.rules.rule import Case, Rule, find_reasons
from dtbench.scenario.schema.scenario import Scenario
from tests.newer_torch import plan_what_torch_refuses, torch_version

MODEL = {"kind": "transformer", "layers": 2, "dim": 64, "heads": 4, "kv_heads": 2, "ffn_dim": 96, "vocab_size": 250}
MACHINE = Machine(cpu_cores=2, cuda_devices=0)
WITH_DEVICES = Machine(cpu_cores=2, cuda_devices=2)
ON_CPUS = [refusal for refusal in REFUSALS if DeviceKind.CPU in refusal.devices]  # others need two CUDA devices


def _ddp(**knobs: Any) -> dict[str, Any]:
    return {"parallel": {"kind": "ddp", "replicas": 2, **knobs}}


def _fsdp1(**knobs: Any) -> dict[str, Any]:
    return {"parallel": {"kind": "fsdp1", "shards": 2, **knobs}}


def _fsdp2(**knobs: Any) -> dict[str, Any]:
    return {"parallel": {"kind": "fsdp2", "shards": 1, **knobs}}


def _compiled(**settings: Any) -> dict[str, Any]:
    return {"model": {**MODEL, "compile": {"backend": "aot_eager", **settings}}}


EXAMPLES: dict[str, dict[str, Any]] = {
    "compiled transformer over tensor parallelism": {
        "parallel": {"kind": "fsdp2", "shards": 1, "tensor": 2},
        **_compiled(),
    },
    "fsdp1 in a compiled model": {**_fsdp1(), **_compiled(what="model")},
    "fsdp1 over tensor parallelism with original parameters that are not sharded": _fsdp1(
        tensor=2, use_orig_params=True, sharding_strategy="NO_SHARD"
    ),
    "fsdp1 clips over tensor parallelism": {**_fsdp1(tensor=2), "gradient_clip_norm": 0.1},
    "fsdp1 original parameters accumulate over tensor parallelism": {
        **_fsdp1(tensor=2, use_orig_params=True),
        "accumulation": {"micro_batches": 2},
    },
    "fsdp1 hybrid over one shard": _fsdp1(shards=1, replicas=2, sharding_strategy="HYBRID_SHARD"),
    "fsdp1 offloads on cpu": _fsdp1(cpu_offload=True),
    "fsdp1 synchronizes module states on cpu": _fsdp1(sync_module_states=True),
    "fsdp1 optimizer states over tensor parallelism": {
        **_fsdp1(tensor=2),
        "state_dict": {"stages": ["shard"], "parts": ["optimizer"], "rounds": 1},
    },
    "fsdp1 offloads a whole state dict on cpu": {
        **_fsdp1(),
        "state_dict": {"stages": ["gather_offload"], "parts": ["model"], "rounds": 1},
    },
    "fsdp1 loads a flattened optimizer state": {
        **_fsdp1(),
        "state_dict": {"stages": ["unflatten"], "parts": ["optimizer"], "rounds": 1},
    },
    "fsdp1 keeps low precision gradients for adamw": _fsdp1(
        mixed_precision={"param_dtype": "bfloat16", "keep_low_precision_grads": True}
    ),
    "ddp compresses to bfloat16 over gloo": _ddp(comm_hook={"kind": "bf16_compress"}),
    "ddp mixed precision on cpu": _ddp(mixed_precision={"param_dtype": "bfloat16"}),
    "ddp mixed precision without a dtype of the copies": _ddp(mixed_precision={"reduce_dtype": "bfloat16"}),
    "ddp mixed precision beside a hook": _ddp(
        mixed_precision={"param_dtype": "bfloat16"}, comm_hook={"kind": "fp16_compress"}
    ),
    "ddp reduces sparse gradients over nccl": {
        **_ddp(),
        "device": "cuda",
        "model": {**MODEL, "sparse_embedding": True},
        "optimizer": {"kind": "sgd", "lr": 0.01},
    },
    "fsdp2 offloads over the link on a device": {
        **_fsdp2(shards=2, cpu_offload=True),
        "device": "cuda",
        "network": {"kind": "emulated", "latency_us": 1000, "bandwidth_gb_per_s": 1.0},
    },
    "powersgd in several buckets over gloo": _ddp(bucket_cap_mb=0.1, comm_hook={"kind": "powersgd"}),
    "ddp static graph accumulates": {**_ddp(static_graph=True), "accumulation": {"micro_batches": 2}},
    "ddp delayed all-reduce accumulates": {
        **_ddp(delay_all_reduce=["layers.1"]),
        "accumulation": {"micro_batches": 2},
        # on this network the canary withholds what nobody has waited for
        "network": {"kind": "emulated", "latency_us": 1000, "bandwidth_gb_per_s": 1.0},
    },
    "ddp delayed all-reduce below float32": {
        **_ddp(delay_all_reduce=["layers.1"]),
        "precision": {"dtype": "bfloat16"},
    },
    "ddp delayed all-reduce with an optimizer in backward": _ddp(
        delay_all_reduce=["layers.1"], optimizer_in_backward=True
    ),
    "ddp optimizer in backward over tensor parallelism": _ddp(tensor=2, optimizer_in_backward=True),
    "ddp optimizer in backward reduces every micro-batch": {
        **_ddp(optimizer_in_backward=True),
        "accumulation": {"micro_batches": 2, "sync": "every"},
    },
}

MODEL = {"kind": "transformer", "layers": 2, "dim": 64, "heads": 4, "kv_heads": 2, "ffn_dim": 96, "vocab_size": 250}
COMPILED = {**MODEL, "compile": {"what": "blocks", "backend": "aot_eager"}}
EXAMPLES |= {
    "compiled ddp with a first bucket below 1 MiB": {**_ddp(bucket_cap_mb=0.05), "model": COMPILED},
    "fsdp2 in one full graph": {**_fsdp2(shards=2), **_compiled(what="model", fullgraph=True)},
    "fsdp2 in symmetric memory on cpu": _fsdp2(shards=2, symmetric_memory=True),
    "fsdp2 waits for an event on cpu": _fsdp2(shards=2, post_optimizer_event=True),
    "fsdp2 divides in a reduction over gloo": _fsdp2(shards=2, gradient_divide_factor=4.0),
    "fsdp2 divides twice over one shard": _fsdp2(replicas=2, gradient_divide_factor=4.0, force_sum_reduction=True),
    "fsdp1 in full graphs": {**_fsdp1(), **_compiled(fullgraph=True)},
}


UNDER = {"fsdp1 loads a flattened optimizer state": "sets in any order"}
"""Rows that fail only in some processes, and the planted condition under which they always do."""


FIRST_TO_FAIL = {
    "fsdp1 in a compiled model": (2, 12),
    "fsdp1 optimizer states over tensor parallelism": (2, 13),
}
"""Rows that the oldest supported torches get right; the first that does not."""


def test_every_refusal_has_an_example() -> None:
    assert {refusal.name for refusal in REFUSALS} == set(EXAMPLES)


def apply_instead(sections: dict[str, Any], refusal: Rule) -> dict[str, Any]:
    """Return the sections with the fields set that the refusal names."""
    changed = copy.deepcopy(sections)
    for path, value in refusal.instead.items():
        *parents, field = path.split(".")
        section = changed
        for parent in parents:
            section = section.setdefault(parent, {})
        section[field] = yaml.safe_load(value)
    return changed


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_the_plan_refuses_with_an_alternative_that_it_plans(scenario: Callable[..., Scenario], refusal: Rule) -> None:
    sections = EXAMPLES[refusal.name]
    machine = MACHINE if DeviceKind.CPU in refusal.devices else WITH_DEVICES
    with pytest.raises(PlanError) as refused:
        make_plan(scenario(**sections), machine)
    assert refusal.says in str(refused.value)
    assert all(path in str(refused.value) for path in refusal.instead)
    assert make_plan(scenario(**apply_instead(sections, refusal)), machine).ranks >= 2


@pytest.mark.parametrize("refusal", [one for one in REFUSALS if one.until], ids=lambda refusal: refusal.name)
def test_what_torch_has_mended_is_refused_before_that_version_alone(
    scenario: Callable[..., Scenario], refusal: Rule
) -> None:
    assert refusal.until is not None
    wanted, (major, minor) = scenario(**EXAMPLES[refusal.name]), refusal.until
    device = next(iter(refusal.devices))
    assert [*find_reasons(REFUSALS, Case(wanted, device, torch=f"{major}.{minor}.0+cpu"))] == []
    for older in (f"{major}.{minor - 1}.1", None):
        assert any(refusal.says in words for words in find_reasons(REFUSALS, Case(wanted, device, torch=older)))


@pytest.mark.quick(
    "ddp compresses to bfloat16 over gloo",
)
@pytest.mark.ranks
@pytest.mark.parametrize("refusal", ON_CPUS, ids=lambda refusal: refusal.name)
def test_torch_still_fails_on_what_is_refused(
    launch: Callable[..., Any],
    scenario: Callable[..., Scenario],
    refusal: Rule,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
    first = FIRST_TO_FAIL.get(refusal.name, (0, 0))
    if torch_version() < first:
        pytest.skip(f"torch before {first[0]}.{first[1]} gets it right")
    if refusal.until is not None and torch_version() >= refusal.until:
        pytest.skip(f"torch {refusal.until[0]}.{refusal.until[1]} has mended it")
    plan_what_torch_refuses(monkeypatch)
    sections = {**EXAMPLES[refusal.name], "measure": {"stall_timeout_s": 8}}
    if "precision" not in sections:  # what torch gets wrong may be small; what it gets right differs by 1e-7
        sections["correctness"] = {"loss_tolerance": 1e-6}
    wanted = scenario(**sections)
    try:
        launched = launch(wanted, fault=UNDER.get(refusal.name))
    except LaunchError:
        return  # torch raised, died or hung
    stages = [stage for rank in range(make_plan(wanted, MACHINE).ranks) for stage in launched.rank(rank).extras.stages]
    if any(stage.mismatched or stage.raised for stage in stages):
        return
    assert not (launched.correctness.passed and (wanted.network.kind == "real" or launched.canary.passed))


@pytest.mark.quick(
    "ddp compresses to bfloat16 over gloo",
)
@pytest.mark.ranks
@pytest.mark.parametrize("refusal", ON_CPUS, ids=lambda refusal: refusal.name)
def test_what_a_refusal_names_instead_trains_correctly(
    launch: Callable[..., Any], scenario: Callable[..., Scenario], refusal: Rule
) -> None:
    pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
    assert launch(scenario(**apply_instead(EXAMPLES[refusal.name], refusal))).correctness.passed
