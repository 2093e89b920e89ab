"""Every knob has a receipt; a knob that was silenced disagrees with what was asked, one that was set agrees."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.errors import MissingError
from dtbench.plan.plan import Machine, make_plan
from dtbench.scenario.schema.ddp import (
    OF_PLAIN_MODEL,
    BufferCommHook,
    Ddp,
    DdpMixedPrecision,
    EncodeAndDecode,
    Fp16Compress,
    PlainAllReduce,
    PowerSgd,
)
from dtbench.scenario.schema.scenario import (
    Accumulation,
    AdamW,
    Fsdp1,
    Fsdp1MixedPrecision,
    Fsdp2,
    Fsdp2MixedPrecision,
    Precision,
    Scenario,
    Sgd,
)
from dtbench.store.records.rank import Receipt, ReceiptOutcome
from tests.newer_torch import FIRST_TORCH, plan_what_torch_refuses, skip_where_torch_lacks, torch_version

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

BASE: dict[str, dict[str, Any]] = {
    "ddp": {"parallel": {"kind": "ddp", "replicas": 1}},
    "fsdp1": {"parallel": {"kind": "fsdp1", "shards": 1}},
    "fsdp2": {"parallel": {"kind": "fsdp2", "shards": 1}},
}


def _set(strategy: str, **knobs: Any) -> tuple[str, dict[str, Any]]:
    """Ask for knobs of a strategy on one rank, or on those that the knobs name."""
    return strategy, {"parallel": {**BASE[strategy]["parallel"], **knobs}}


def _mixed(strategy: str, **knobs: Any) -> tuple[str, dict[str, Any]]:
    return _set(strategy, mixed_precision=knobs)


POWERSGD = {"kind": "powersgd"}
ACCUMULATION = {"micro_batches": 2}
CAREFUL = {
    "kind": "custom",
    "factory": "tests.worker.example_model:build_careful",
    "arguments": {"width": 16},
}
MLP = {"kind": "mlp", "layers": 2, "dim": 64, "hidden_dim": 96}

# strategy and knob: the sections that ask for it, beside the base of its strategy
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "ddp parallel.replicas": _set("ddp", replicas=2),
    "ddp parallel.tensor": _set("ddp", tensor=2),
    "ddp parallel.sequence_parallel": _set("ddp", tensor=2, sequence_parallel=True),
    "ddp parallel.loss_parallel": _set("ddp", tensor=2, loss_parallel=True),
    "ddp parallel.bucket_cap_mb": _set("ddp", bucket_cap_mb=3),
    "ddp parallel.bucket_cap_mb_list": _set("ddp", bucket_cap_mb_list=[3, 4]),
    "ddp parallel.gradient_as_bucket_view": _set("ddp", gradient_as_bucket_view=True),
    "ddp parallel.static_graph": _set("ddp", static_graph=True),
    "ddp parallel.find_unused_parameters": _set("ddp", find_unused_parameters=True),
    "ddp parallel.skip_all_reduce_unused_params": _set(
        "ddp", find_unused_parameters=True, skip_all_reduce_unused_params=True
    ),
    "ddp parallel.broadcast_buffers": _set("ddp", broadcast_buffers=False),
    "ddp parallel.init_sync": _set("ddp", init_sync=False),
    "ddp parallel.batched_grad_copy": _set("ddp", batched_grad_copy=True),
    "ddp parallel.lazy_bucket_allocation": _set("ddp", lazy_bucket_allocation=True),
    "ddp parallel.manual_backward_finalization": _set("ddp", manual_backward_finalization=True),
    "ddp parallel.comm_hook.kind": _set("ddp", comm_hook={"kind": "fp16_compress"}),
    "ddp parallel.comm_hook.matrix_approximation_rank": _set(
        "ddp", comm_hook={**POWERSGD, "matrix_approximation_rank": 4}
    ),
    "ddp parallel.comm_hook.start_powersgd_iter": _set("ddp", comm_hook={**POWERSGD, "start_powersgd_iter": 3}),
    "ddp parallel.comm_hook.min_compression_rate": _set("ddp", comm_hook={**POWERSGD, "min_compression_rate": 3.0}),
    "ddp parallel.comm_hook.use_error_feedback": _set("ddp", comm_hook={**POWERSGD, "use_error_feedback": False}),
    "ddp parallel.comm_hook.warm_start": _set("ddp", comm_hook={**POWERSGD, "warm_start": False}),
    "ddp parallel.comm_hook.builtin": _set("ddp", comm_hook={"kind": "allreduce", "builtin": True}),
    "ddp parallel.comm_hook.dtype": _set("ddp", comm_hook={"kind": "encode_and_decode", "dtype": "float16"}),
    "ddp parallel.wrap": _set("ddp", wrap=False),
    "ddp parallel.ddp_sink_clone": _set("ddp", find_unused_parameters=True, ddp_sink_clone=False),
    "ddp parallel.buffer_comm_hook.location": _set("ddp", buffer_comm_hook={"location": "pre_forward"}),
    "ddp parallel.ignore": _set("ddp", ignore=["layers.1"]),
    "ddp parallel.python_reducer": _set("ddp", python_reducer=True),
    "ddp parallel.compiled_autograd": (
        "ddp",
        {
            **_set("ddp", python_reducer=True, compiled_autograd=True)[1],
            "model": {**MLP, "compile": {"what": "model", "backend": "eager"}},
        },
    ),
    "ddp parallel.delay_all_reduce": _set("ddp", delay_all_reduce=["layers.1"]),
    "ddp parallel.optimizer_in_backward": _set("ddp", optimizer_in_backward=True),
    "ddp parallel.mixed_precision.param_dtype": _mixed("ddp", param_dtype="bfloat16"),
    "ddp parallel.mixed_precision.reduce_dtype": _mixed("ddp", reduce_dtype="bfloat16", param_dtype="bfloat16"),
    "ddp parallel.mixed_precision.buffer_dtype": _mixed("ddp", buffer_dtype="bfloat16", param_dtype="bfloat16"),
    "fsdp1 parallel.shards": _set("fsdp1", shards=2),
    "fsdp1 parallel.replicas": _set("fsdp1", shards=2, replicas=2, sharding_strategy="HYBRID_SHARD"),
    "fsdp1 parallel.tensor": _set("fsdp1", tensor=2),
    "fsdp1 parallel.sequence_parallel": _set("fsdp1", tensor=2, sequence_parallel=True),
    "fsdp1 parallel.loss_parallel": _set("fsdp1", tensor=2, loss_parallel=True),
    "fsdp1 parallel.sharding_strategy": _set("fsdp1", shards=2, sharding_strategy="SHARD_GRAD_OP"),
    "fsdp1 parallel.use_orig_params": _set("fsdp1", use_orig_params=True),
    "fsdp1 parallel.backward_prefetch": _set("fsdp1", backward_prefetch="BACKWARD_POST"),
    "fsdp1 parallel.forward_prefetch": _set("fsdp1", forward_prefetch=True),
    "fsdp1 parallel.limit_all_gathers": _set("fsdp1", limit_all_gathers=False),
    "fsdp1 parallel.mixed_precision.param_dtype": _mixed("fsdp1", param_dtype="bfloat16"),
    "fsdp1 parallel.mixed_precision.reduce_dtype": _mixed("fsdp1", reduce_dtype="bfloat16"),
    "fsdp1 parallel.mixed_precision.buffer_dtype": _mixed("fsdp1", buffer_dtype="bfloat16"),
    "fsdp1 parallel.mixed_precision.keep_low_precision_grads": _mixed("fsdp1", keep_low_precision_grads=True),
    "fsdp1 parallel.mixed_precision.cast_forward_inputs": _mixed("fsdp1", cast_forward_inputs=True),
    "fsdp1 parallel.mixed_precision.cast_root_forward_inputs": _mixed("fsdp1", cast_root_forward_inputs=False),
    "fsdp1 parallel.cpu_offload": _set("fsdp1", cpu_offload=True),
    "fsdp1 parallel.sync_module_states": _set("fsdp1", sync_module_states=True),
    "fsdp1 parallel.sharded_state": _set("fsdp1", sharded_state="sharded_tensor"),
    "fsdp2 parallel.shards": _set("fsdp2", shards=2),
    "fsdp2 parallel.replicas": _set("fsdp2", replicas=2),
    "fsdp2 parallel.tensor": _set("fsdp2", tensor=2),
    "fsdp2 parallel.sequence_parallel": _set("fsdp2", tensor=2, sequence_parallel=True),
    "fsdp2 parallel.loss_parallel": _set("fsdp2", tensor=2, loss_parallel=True),
    "fsdp2 parallel.blocks_per_unit": _set("fsdp2", blocks_per_unit=2),
    "fsdp2 parallel.reshard_after_forward": _set("fsdp2", reshard_after_forward=False),
    "fsdp2 parallel.reshard_after_backward": (
        "fsdp2",
        {**_set("fsdp2", reshard_after_backward=False)[1], "accumulation": ACCUMULATION},
    ),
    "fsdp2 parallel.mixed_precision.param_dtype": _mixed("fsdp2", param_dtype="bfloat16"),
    "fsdp2 parallel.mixed_precision.keep_dtype": (
        "fsdp2",
        {**_mixed("fsdp2", param_dtype="bfloat16", keep_dtype=["blocks.1.norm"])[1], "model": CAREFUL},
    ),
    "fsdp2 parallel.mixed_precision.reduce_dtype": _mixed("fsdp2", reduce_dtype="bfloat16"),
    "fsdp2 parallel.mixed_precision.output_dtype": _mixed("fsdp2", output_dtype="bfloat16"),
    "fsdp2 parallel.mixed_precision.cast_forward_inputs": _mixed("fsdp2", cast_forward_inputs=False),
    "fsdp2 parallel.cpu_offload": _set("fsdp2", cpu_offload=True),
    "fsdp2 parallel.unshard_async_op": _set("fsdp2", unshard_async_op=True),
    "fsdp2 parallel.forward_prefetch": _set("fsdp2", forward_prefetch=1),
    "fsdp2 parallel.backward_prefetch": _set("fsdp2", backward_prefetch=2),
    "fsdp2 parallel.separate_reduce_scatter_group": _set("fsdp2", separate_reduce_scatter_group=True),
    "fsdp2 parallel.reduce_scatter_max_input_buffers": _set("fsdp2", reduce_scatter_max_input_buffers=2),
    "fsdp2 parallel.force_sum_reduction": _set("fsdp2", force_sum_reduction=True),
    "fsdp2 parallel.shard_dim": ("fsdp2", {**_set("fsdp2", shard_dim={"layers.1.up.weight": 1})[1], "model": MLP}),
    "fsdp2 parallel.all_gather": _set("fsdp2", all_gather="tests.worker.example_hooks:Gather"),
    "fsdp2 parallel.reduce_scatter": _set("fsdp2", reduce_scatter="tests.worker.example_hooks:Reduce"),
    "fsdp2 parallel.all_reduce_hook": _set("fsdp2", all_reduce_hook="tests.worker.example_hooks:halve"),
    "fsdp2 parallel.process_group_memory": _set("fsdp2", process_group_memory=True),
    "fsdp2 parallel.gradient_divide_factor": _set("fsdp2", gradient_divide_factor=4.0),
    "fsdp2 parallel.needless_in_backward": (
        "fsdp2",
        {**_set("fsdp2", needless_in_backward=["layers.0"])[1], "model": {**MLP, "hidden_dim": None}},
    ),
    "fsdp2 parallel.reduce_scatter_unused_params": _set("fsdp2", reduce_scatter_unused_params=True),
    "fsdp2 parallel.keep_unsharded_storage": _set("fsdp2", keep_unsharded_storage=True),
    "fsdp2 parallel.manual_backward_finalization": _set("fsdp2", manual_backward_finalization=True),
    "ddp optimizer.kind": ("ddp", {"optimizer": {"kind": "sgd"}}),
    "ddp optimizer.lr": ("ddp", {"optimizer": {"kind": "adamw", "lr": 0.5}}),
    "ddp optimizer.betas": ("ddp", {"optimizer": {"kind": "adamw", "betas": [0.5, 0.6]}}),
    "ddp optimizer.eps": ("ddp", {"optimizer": {"kind": "adamw", "eps": 0.1}}),
    "ddp optimizer.weight_decay": ("ddp", {"optimizer": {"kind": "adamw", "weight_decay": 0.3}}),
    "ddp optimizer.foreach": ("ddp", {"optimizer": {"kind": "adamw", "foreach": True}}),
    "ddp optimizer.fused": ("ddp", {"optimizer": {"kind": "adamw", "fused": True}}),
    "ddp optimizer.momentum": ("ddp", {"optimizer": {"kind": "sgd", "momentum": 0.9}}),
    "ddp precision.dtype": ("ddp", {"precision": {"dtype": "bfloat16"}}),
    "ddp precision.autocast": ("ddp", {"precision": {"autocast": "bfloat16"}}),
    "ddp gradient_clip_norm": ("ddp", {"gradient_clip_norm": 1.0}),
    "ddp accumulation.micro_batches": ("ddp", {"accumulation": ACCUMULATION}),
    "ddp accumulation.sync": ("ddp", {"accumulation": {**ACCUMULATION, "sync": "every"}}),
    "fsdp1 accumulation.sync": ("fsdp1", {"accumulation": {**ACCUMULATION, "sync": "every"}}),
    "fsdp2 accumulation.sync": ("fsdp2", {"accumulation": {**ACCUMULATION, "sync": "every"}}),
}
NEEDS_CUDA = {
    "ddp parallel.mixed_precision.param_dtype": "copies parameters on CUDA streams",
    "ddp parallel.mixed_precision.reduce_dtype": "copies parameters on CUDA streams",
    "ddp parallel.mixed_precision.buffer_dtype": "copies parameters on CUDA streams",
    "fsdp1 parallel.cpu_offload": "pins memory",
    "fsdp1 parallel.sync_module_states": "wants the module on an accelerator",
}
"""Knobs that the plan refuses on CPU (``dtbench.plan.rules.refusals``): set only where there is a device."""


def needs_ranks(knob: str) -> bool:
    """Tell whether a knob can only be set on more than one rank: ``test_traffic`` sets those."""
    parallel = ASKED[knob][1].get("parallel", {})
    return any(parallel.get(axis, 1) > 1 for axis in ("replicas", "shards", "tensor"))


def mark_slow(knob: str) -> Any:
    """Leave a knob to each night that compiles for most of a minute."""
    return pytest.param(knob, marks=pytest.mark.thorough) if "compiled_autograd" in knob else knob


def read_receipts(built: Scenario, asked: Scenario) -> dict[str, Receipt]:
    """Train two steps as ``built`` says, then compare with what ``asked`` wanted."""
    from dtbench.worker.loop.building import make_model, make_train_step
    from dtbench.worker.loop.train import read_training_receipts
    from dtbench.worker.mesh import build_mesh
    from dtbench.worker.models.batches import Batches
    from dtbench.worker.parallelize.strategy import parallelize
    from dtbench.worker.recording.recorder import Recorder

    device = torch.device("cuda" if built.device == "cuda" else "cpu")
    plan = make_plan(built, Machine(cpu_cores=1, cuda_devices=1))
    model = make_model(built, device)
    parallel = parallelize(model, build_mesh(plan), built, plan, Recorder())
    step = make_train_step(built, parallel, model, Recorder())
    batches = Batches(built, model.make_batch, device, rows=slice(None))
    for number in range(2):
        step.run(batches.make(number))
    receipts = (*parallel.read_receipts(asked.parallel), *read_training_receipts(step, asked))
    return {receipt.knob: receipt for receipt in receipts}


def silence(knob: str) -> dict[str, Any]:
    """Return the sections that ask for everything but the knob."""
    strategy, sections = ASKED[knob]
    path = knob.split(" ")[1].split(".")
    quiet = copy.deepcopy({**BASE[strategy], **sections})
    if knob == "ddp optimizer.kind":
        return {**quiet, "optimizer": {"kind": "adamw"}}
    section: Any = quiet
    for name in path[:-1]:
        section = section[name]
    if path[-1] == "kind":
        return BASE[strategy]
    section.pop(path[-1])
    alone = needs_ranks(knob) or knob in NEEDS_CUDA or path[-1] == "reshard_after_backward"
    return BASE[strategy] if alone else quiet


@pytest.mark.usefixtures("lone_group")
@pytest.mark.parametrize("knob", ASKED)
def test_a_silenced_knob_disagrees(scenario: Callable[..., Scenario], knob: str) -> None:
    if knob in ("ddp parallel.skip_all_reduce_unused_params", "ddp accumulation.micro_batches"):
        silenced = scenario(**BASE["ddp"])
    else:
        silenced = scenario(**silence(knob))
    strategy, sections = ASKED[knob]
    receipt = read_receipts(silenced, scenario(**{**BASE[strategy], **sections}))[knob.split(" ")[1]]
    assert receipt.outcome is ReceiptOutcome.DISAGREES, receipt
    assert receipt.asked != receipt.got


@pytest.mark.usefixtures("lone_group")
@pytest.mark.parametrize(
    "knob", [mark_slow(knob) for knob in ASKED if not needs_ranks(knob) and knob not in NEEDS_CUDA]
)
def test_a_knob_that_was_set_agrees_or_says_why_it_has_no_effect(scenario: Callable[..., Scenario], knob: str) -> None:
    skip_where_torch_lacks(knob.split(" ")[1])
    strategy, sections = ASKED[knob]
    sections = {**sections, "optimizer": {"kind": "sgd"}} if "keep_low_precision" in knob else sections
    wanted = scenario(**{**BASE[strategy], **sections})
    receipt = read_receipts(wanted, wanted)[knob.split(" ")[1]]
    assert receipt.outcome is not ReceiptOutcome.DISAGREES, receipt
    assert receipt.outcome is ReceiptOutcome.AGREES or receipt.note


def skip_where_there_are_no_streams() -> None:
    """A CPU build of torch makes streams that do nothing; a CUDA build without a device makes none."""
    try:
        torch.Stream()
    except RuntimeError as error:
        pytest.skip(f"DDP's mixed precision makes a stream, and this torch cannot: {error}")


@pytest.mark.usefixtures("lone_group")
@pytest.mark.parametrize("knob", NEEDS_CUDA)
def test_a_knob_that_cpus_refuse_is_read_back_once_wrapped(
    scenario: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch, knob: str
) -> None:
    import torch.distributed.fsdp._init_utils as fsdp

    from dtbench.worker.loop.building import make_model
    from dtbench.worker.mesh import build_mesh
    from dtbench.worker.parallelize.strategy import parallelize
    from dtbench.worker.recording.recorder import Recorder

    if "mixed_precision" in knob:
        skip_where_there_are_no_streams()
    plan_what_torch_refuses(monkeypatch)
    # what refuses to broadcast from host memory; gloo can
    monkeypatch.setattr(fsdp, "_check_module_states_for_sync_module_states", lambda _states: None)
    strategy, sections = ASKED[knob]
    for asked, outcome in ((sections, ReceiptOutcome.DISAGREES), ({}, ReceiptOutcome.AGREES)):
        wanted = scenario(**{**BASE[strategy], **sections})
        built = scenario(**{**BASE[strategy], **({} if asked else sections)})
        plan = make_plan(built, Machine(cpu_cores=1, cuda_devices=0))
        wrapped = parallelize(make_model(built, torch.device("cpu")), build_mesh(plan), built, plan, Recorder())
        receipts = {receipt.knob: receipt for receipt in wrapped.read_receipts(wanted.parallel)}
        found = receipts[knob.split(" ")[1]]
        assert found.outcome is outcome or found.note == "parameters are in host memory already", found
        assert asked or all(receipt.outcome is not ReceiptOutcome.DISAGREES for receipt in receipts.values()), receipts


@pytest.mark.gpu
@pytest.mark.usefixtures("lone_group")
@pytest.mark.parametrize("knob", NEEDS_CUDA)
def test_a_knob_that_cpus_refuse_agrees_on_a_device(scenario: Callable[..., Scenario], knob: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip(f"needs a CUDA device: torch {NEEDS_CUDA[knob]}")
    strategy, sections = ASKED[knob]
    torch.cuda.set_device(0)  # else a mesh chooses, and warns
    wanted = scenario(**{**BASE[strategy], **sections, "device": "cuda"})
    assert read_receipts(wanted, wanted)[knob.split(" ")[1]].outcome is ReceiptOutcome.AGREES


@pytest.mark.usefixtures("lone_group")
def test_defaults_agree_with_torchs_own(scenario: Callable[..., Scenario]) -> None:
    for sections in BASE.values():
        default = scenario(**sections)
        wrong = [r for r in read_receipts(default, default).values() if r.outcome is ReceiptOutcome.DISAGREES]
        assert wrong == []


def test_every_knob_of_the_schema_has_a_receipt() -> None:
    def knobs(record: Any, prefix: str) -> set[str]:
        nested = {"mixed_precision", "comm_hook", "buffer_comm_hook"}
        nested |= {"join", "lifecycle"}  # need steps that a session runs: test_ddp_functions
        nested |= {"symmetric_memory", "post_optimizer_event"}  # need what CPUs have not: test_fsdp2_switches
        nested |= {"gather_weights"}  # needs a tensor axis: test_gathered
        return {f"{prefix}.{name}" for name in record.model_fields if name != "kind" and name not in nested}

    wanted = {"ddp optimizer.kind", "ddp gradient_clip_norm", "ddp parallel.comm_hook.kind"}
    for record, prefix in (
        (Ddp, "ddp parallel"),
        (DdpMixedPrecision, "ddp parallel.mixed_precision"),
        (PowerSgd, "ddp parallel.comm_hook"),
        (PlainAllReduce, "ddp parallel.comm_hook"),
        (Fp16Compress, "ddp parallel.comm_hook"),
        (EncodeAndDecode, "ddp parallel.comm_hook"),
        (BufferCommHook, "ddp parallel.buffer_comm_hook"),
        (Fsdp1, "fsdp1 parallel"),
        (Fsdp1MixedPrecision, "fsdp1 parallel.mixed_precision"),
        (Fsdp2, "fsdp2 parallel"),
        (Fsdp2MixedPrecision, "fsdp2 parallel.mixed_precision"),
        (AdamW, "ddp optimizer"),
        (Sgd, "ddp optimizer"),
        (Precision, "ddp precision"),
        (Accumulation, "ddp accumulation"),
    ):
        wanted |= knobs(record, prefix)
    assert wanted <= set(ASKED)
    assert {knob for knob in ASKED if knob not in wanted} == {"fsdp1 accumulation.sync", "fsdp2 accumulation.sync"}


def test_a_model_without_the_wrapper_reads_back_what_it_has(scenario: Callable[..., Scenario]) -> None:
    from dtbench.worker.parallelize.ddp_receipts import read_unwrapped_receipts

    parallel = scenario(**ASKED["ddp parallel.wrap"][1]).parallel
    assert isinstance(parallel, Ddp)
    assert [one.knob for one in read_unwrapped_receipts(parallel, 1)] == [f"parallel.{name}" for name in OF_PLAIN_MODEL]


@pytest.mark.parametrize(("field", "other"), [("lr", 0.5), ("betas", [0.5, 0.6]), ("weight_decay", 0.3)])
def test_an_optimizer_inside_backward_is_read_back_too(
    scenario: Callable[..., Scenario], lone_group: None, field: str, other: Any
) -> None:
    strategy = _set("ddp", optimizer_in_backward=True)[1]
    built = scenario(**strategy)
    asked = scenario(**strategy, optimizer={"kind": "adamw", field: other})
    receipts = read_receipts(built, asked)
    assert receipts[f"optimizer.{field}"].outcome is ReceiptOutcome.DISAGREES
    agreeing = [name for name, receipt in receipts.items() if receipt.outcome is ReceiptOutcome.AGREES]
    assert {"optimizer.kind", "optimizer.eps", "optimizer.foreach", "parallel.optimizer_in_backward"} <= set(agreeing)


def test_prefetch_without_async_unshard_is_said_to_have_no_effect_on_gloo(
    scenario: Callable[..., Scenario], lone_group: None
) -> None:
    sections = ASKED["fsdp2 parallel.forward_prefetch"][1]
    receipt = read_receipts(scenario(**sections), scenario(**sections))["parallel.forward_prefetch"]
    assert receipt.outcome is ReceiptOutcome.NO_EFFECT
    assert "unshard_async_op" in receipt.note


@pytest.mark.parametrize(("ahead", "outcome"), [(False, ReceiptOutcome.NO_EFFECT), (True, ReceiptOutcome.AGREES)])
def test_a_group_for_reductions_matters_on_gloo_where_gathers_are_issued_ahead_of_them(
    scenario: Callable[..., Scenario], lone_group: None, ahead: bool, outcome: ReceiptOutcome
) -> None:
    skip_where_torch_lacks("parallel.separate_reduce_scatter_group")
    sections = _set("fsdp2", separate_reduce_scatter_group=True, unshard_async_op=ahead)[1]
    receipt = read_receipts(scenario(**sections), scenario(**sections))["parallel.separate_reduce_scatter_group"]
    assert (receipt.outcome, bool(receipt.note)) == (outcome, not ahead)


@pytest.mark.usefixtures("lone_group")
@pytest.mark.parametrize("knob", FIRST_TORCH)
def test_a_knob_of_a_newer_torch_is_refused_where_it_is_lacking(scenario: Callable[..., Scenario], knob: str) -> None:
    if torch_version() >= FIRST_TORCH[knob]:
        pytest.skip("this torch has it")
    strategy, sections = next((asked for name, asked in ASKED.items() if name.endswith(f" {knob}")), ("", {}))
    if not strategy:
        pytest.skip("a CPU is refused it first; test_torch_versions tells what an older torch lacks")
    wanted = scenario(**{**BASE[strategy], **sections})
    with pytest.raises(MissingError, match=rf"has no such knob: {re.escape(knob)}; leave it out or use a newer torch"):
        read_receipts(wanted, wanted)


@pytest.mark.usefixtures("lone_group")
@pytest.mark.parametrize("caps", [{"bucket_cap_mb": 0.5}, {"bucket_cap_mb_list": [1, 0.5]}])
def test_a_fraction_beside_delayed_reductions_is_refused_where_torch_takes_whole_numbers(
    scenario: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch, caps: dict[str, Any]
) -> None:
    monkeypatch.delattr("torch.nn.parallel.distributed._BucketCapacityConfig", raising=False)  # as in torch 2.11
    wanted = scenario(**_set("ddp", delay_all_reduce=["layers.1"], **caps)[1])
    with pytest.raises(MissingError, match=r"in whole MiB only beside parallel.delay_all_reduce, not 0\.5; round it"):
        read_receipts(wanted, wanted)


def test_a_knob_that_torch_lacks_is_refused_by_name_and_version() -> None:
    from dtbench.worker.parallelize.knobs import require_arguments, require_methods

    def older(bucket_cap_mb: float) -> None: ...

    with pytest.raises(MissingError, match=rf"torch {re.escape(torch.__version__)} .*parallel.batched_grad_copy"):
        require_arguments(older, ["bucket_cap_mb", "batched_grad_copy"], "parallel")
    with pytest.raises(MissingError, match=r"parallel\.separate_reduce_scatter_group"):
        require_methods(object, [("separate_reduce_scatter_group", "set_separate_reduce_scatter_group")], "parallel")
