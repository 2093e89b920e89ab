"""What DDP can be told beside its plain knobs, on real ranks: traffic, results, receipts, and the functions reached."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from dtbench.plan.plan import Machine, make_plan
from dtbench.seeds.functions import choose
from dtbench.store.records.rank import ReceiptOutcome
from tests.newer_torch import skip_where_torch_lacks

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
pytestmark = pytest.mark.ranks

MLP = {"kind": "mlp", "layers": 3, "dim": 64, "hidden_dim": 96}
WATCHING = {**MLP, "running_statistics": True}
UNUSED = {**MLP, "unused_layers": 1}
SPARSE = {
    "kind": "transformer",
    "layers": 1,
    "dim": 64,
    "heads": 4,
    "ffn_dim": 96,
    "vocab_size": 250,
    "sparse_embedding": True,
}
SGD = {"kind": "sgd", "lr": 0.05}


@dataclass(frozen=True)
class Case:
    """Sections of a scenario, and functions of DDP that its ranks must have called."""

    sections: dict[str, Any]
    reached: tuple[str, ...] = ()


def _ddp(**knobs: Any) -> dict[str, Any]:
    return {"parallel": {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 0.04, **knobs}}


def _joined(iterations: list[int], **knobs: Any) -> dict[str, Any]:
    return {
        "model": MLP,
        "data": {"global_batch": 12, "sequence_length": 8, "iterations": iterations},
        "optimizer": SGD,
        **_ddp(join={}, **knobs),
    }


_BROADCAST = (
    "_sync_buffers",
    "_sync_module_buffers",
    "_default_broadcast_coalesced",
    "_distributed_broadcast_coalesced",
)
_JOIN = (
    *("join", "join_hook", "join_device", "join_process_group", "_check_global_requires_backward_grad_sync"),
    *("_check_and_sync_module_buffers", "_sync_final_model", "_match_all_reduce_for_bwd_pass", "_find_common_rank"),
    "_distributed_rank",
)

CASES: dict[str, Case] = {
    "buffers are broadcast": Case({"model": WATCHING, **_ddp()}, _BROADCAST),
    "buffers are broadcast once for accumulated micro-batches": Case(
        {"model": WATCHING, **_ddp(), "accumulation": {"micro_batches": 2}}, _BROADCAST
    ),
    "buffers stay apart": Case({"model": WATCHING, **_ddp(broadcast_buffers=False)}),
    "buffers are averaged after forward": Case(
        {"model": WATCHING, **_ddp(buffer_comm_hook={})},
        ("_register_buffer_comm_hook", "_sync_buffers", "_check_sync_bufs_post_fwd"),
    ),
    "buffers are averaged before forward": Case(
        {"model": WATCHING, **_ddp(buffer_comm_hook={"location": "pre_forward"})},
        ("_register_buffer_comm_hook", "_sync_buffers", "_check_sync_bufs_pre_fwd"),
    ),
    "parameters and buffers are ignored": Case(
        {"model": WATCHING, **_ddp(ignore=["layers.1", "layers.0.running_mean"])},
        ("_set_params_and_buffers_to_ignore_for_model",),
    ),
    "ignored and accumulated": Case(
        {"model": MLP, **_ddp(ignore=["layers.0.up"]), "accumulation": {"micro_batches": 2}},
        ("_set_params_and_buffers_to_ignore_for_model", "no_sync"),
    ),
    "sparse gradients": Case({"model": SPARSE, "optimizer": SGD, **_ddp()}),
    "sparse gradients and unused parameters": Case(
        {"model": SPARSE, "optimizer": SGD, **_ddp(find_unused_parameters=True)}
    ),
    "unused parameters": Case({"model": UNUSED, **_ddp(find_unused_parameters=True)}),
    "unused parameters are not reduced": Case(
        {"model": UNUSED, **_ddp(find_unused_parameters=True, skip_all_reduce_unused_params=True)}
    ),
    "unused parameters of a static graph": Case({"model": UNUSED, **_ddp(static_graph=True)}, ("_set_static_graph",)),
    "many outputs": Case({"model": {**MLP, "outputs": 16}, **_ddp(find_unused_parameters=True)}),
    "many outputs that are not cloned": Case(
        {"model": {**MLP, "outputs": 16}, **_ddp(find_unused_parameters=True, ddp_sink_clone=False)},
        ("_set_ddp_sink_clone",),
    ),
    "backward is finalised by hand": Case(
        {"model": MLP, **_ddp(manual_backward_finalization=True), "accumulation": {"micro_batches": 2}},
        (
            *("require_manual_backward_finalization.setter", "_check_manual_backward_finalization_supported"),
            "finalize_backward",
        ),
    ),
    "encoded and decoded": Case(
        {"model": MLP, **_ddp(comm_hook={"kind": "encode_and_decode"})}, ("register_comm_hook", "_check_comm_hook")
    ),
    "encoded as float16": Case({"model": MLP, **_ddp(comm_hook={"kind": "encode_and_decode", "dtype": "float16"})}),
    "the plain hook in C++": Case(
        {"model": MLP, **_ddp(comm_hook={"kind": "allreduce", "builtin": True})}, ("_register_builtin_comm_hook",)
    ),
    "float16 in C++": Case(
        {"model": MLP, **_ddp(comm_hook={"kind": "fp16_compress", "builtin": True})}, ("_register_builtin_comm_hook",)
    ),
    "a group of one that is not wrapped": Case(
        {"model": MLP, "parallel": {"kind": "ddp", "replicas": 1, "wrap": False}}
    ),
    "a python reducer": Case(
        {"model": MLP, "parallel": {"kind": "ddp", "replicas": 2, "python_reducer": True}},
        ("_register_accum_grad_hook",),
    ),
    "join, the first rank has fewer iterations": Case(_joined([2, 3]), _JOIN),
    "join, the last rank has fewer iterations": Case(_joined([3, 1]), _JOIN),
    "join, all ranks have as many": Case(_joined([3, 3]), ("join", "join_hook")),
    "join divides by the ranks that are left": Case(
        {**_joined([1, 3]), **_ddp(join={"divide_by_initial_world_size": False})}, _JOIN
    ),
    "join with unused parameters": Case(
        {**_joined([1, 2], find_unused_parameters=True), "model": UNUSED}, (*_JOIN, "_match_unused_params_allreduce")
    ),
    "join with buffers": Case({**_joined([1, 2]), "model": WATCHING}, (*_JOIN, *_BROADCAST)),
    "several iterations without join": Case(
        {"model": MLP, "data": {"global_batch": 12, "sequence_length": 8, "iterations": [2, 2]}, **_ddp()}
    ),
}


def _probed(**sections: Any) -> dict[str, Any]:
    return {"measure": {"probes": ["distributed"]}, **sections}


def _is_here(function: str) -> bool:
    listed = choose([f"distributed.{prefix}{function}" for prefix in ("", "DistributedDataParallel.")])
    return all(one.is_in(torch.__version__) for one in listed)


def _called(launched: Any, ranks: int = 2) -> dict[str, int]:
    """Return the calls of each function of DDP, summed over ranks."""
    calls: dict[str, int] = {}
    for rank in range(ranks):
        probes = launched.rank(rank).extras.probes
        assert probes is not None
        for one in probes.functions:
            name = one.name.removeprefix("DistributedDataParallel.")
            calls[name] = calls.get(name, 0) + one.calls
    return calls


@pytest.mark.quick(
    "join, the first rank has fewer iterations",
    "buffers are broadcast",
    "sparse gradients",
)
@pytest.mark.parametrize("name", CASES)
def test_traffic_equals_the_formula_training_the_single_process_and_the_functions_are_called(
    launch: Callable[..., Any], scenario: Callable[..., Any], name: str
) -> None:
    for knob in CASES[name].sections["parallel"]:
        skip_where_torch_lacks(f"parallel.{knob}")
    wanted = scenario(**_probed(**CASES[name].sections))
    plan = make_plan(wanted, Machine(cpu_cores=2, cuda_devices=0))
    launched = launch(wanted)
    assert launched.correctness.passed, launched.correctness
    for rank in range(plan.ranks):
        record = launched.rank(rank)
        assert [one for one in record.receipts if one.outcome is ReceiptOutcome.DISAGREES] == []
        assert record.traffic_is_stable
        assert {(t.purpose, t.axis, t.operation): (t.count, t.size_bytes) for t in record.traffic} == {
            (t.purpose, t.axis, t.operation): (t.count, t.size_bytes) for t in plan.traffic or ()
        }
    called = _called(launched, plan.ranks)
    assert [function for function in CASES[name].reached if not called[function]] == []


@pytest.mark.quick("forget")
@pytest.mark.parametrize("function", ["average", "forget"])
def test_a_hook_of_ones_own_is_found_called_and_checked(
    launch: Callable[..., Any], scenario: Callable[..., Any], function: str
) -> None:
    hook = {"kind": "custom", "function": f"example_hooks:{function}"}
    launched = launch(scenario(model=MLP, **_ddp(comm_hook=hook)))
    assert launched.correctness.passed is (function == "average")
    assert launched.rank().planned is None
    assert [one for one in launched.rank().receipts if one.outcome is ReceiptOutcome.DISAGREES] == []


def test_a_hook_that_does_nothing_leaves_nothing_to_send(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    launched = launch(scenario(model=MLP, correctness={"enabled": False}, **_ddp(comm_hook={"kind": "noop"})))
    assert launched.traffic == {}
    assert launched.rank(0).losses[-1] != launched.rank(1).losses[-1]


LIFECYCLE = (
    *("env_vars", "logging_data", "logging_sample_rate", "mistake", "data_parallel_params", "check_finalized"),
    *("train_and_eval", "broadcast_buffers", "deepcopy", "pickle", "update_process_group", "remove_autograd_hooks"),
)
_LIVED = (
    *("_dump_DDP_relevant_env_vars", "_get_ddp_logging_data", "_set_ddp_runtime_logging_sample_rate"),
    *("_log_and_throw", "_get_data_parallel_params", "_check_reducer_finalized", "train", "broadcast_buffers"),
    *("broadcast_buffers.setter", "__getstate__", "__setstate__", "_check_default_group", "_update_process_group"),
    "_remove_autograd_hooks",
)


def test_a_model_trains_as_before_after_all_that_is_done_to_it(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    launched = launch(scenario(**_probed(model=WATCHING, **_ddp(lifecycle=list(LIFECYCLE)))))
    lived = launched.rank().extras.lifecycle.calls
    assert [one.call for one in lived] == list(LIFECYCLE)
    assert [one for one in lived if not one.passed] == []
    assert lived[-1].gradient_error > 0.1, "without hooks nothing is reduced"
    assert all(min(one.duration_ns) > 0 for one in lived)
    receipts = {one.knob: one for one in launched.rank().receipts}
    assert receipts["parallel.lifecycle"].outcome is ReceiptOutcome.AGREES
    called = _called(launched)
    assert [function for function in _LIVED if _is_here(function) and not called[function]] == []


@pytest.mark.thorough
def test_in_low_precision_sums_in_another_order_are_no_change(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    """Copies and rebuilt reducers have other buckets, so that three ranks sum in another order: 1e-3 in bfloat16."""
    parallel = {"kind": "ddp", "replicas": 3, "bucket_cap_mb": 0.05, "lifecycle": ["deepcopy", "remove_autograd_hooks"]}
    data = {"global_batch": 6, "sequence_length": 16}
    launched = launch(scenario(precision={"dtype": "bfloat16"}, data=data, parallel=parallel))
    copied, unhooked = launched.rank().extras.lifecycle.calls
    assert copied.passed
    assert copied.gradient_error > 1e-6
    assert unhooked.passed
    assert unhooked.gradient_error > 0.1


def test_over_gloo_a_model_does_not_train_on_once_it_is_told_the_rows_of_sparse_gradients(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    launched = launch(scenario(**_probed(model=SPARSE, optimizer=SGD, **_ddp(lifecycle=["sparse_metadata"]))))
    (told,) = launched.rank().extras.lifecycle.calls
    assert (told.passed, "layout Sparse" in (told.error or "")) == (True, True)
    assert _called(launched)["_set_sparse_metadata"]


@pytest.mark.thorough
def test_backward_is_compiled_with_the_hooks_of_the_python_reducer(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    compiled = {**MLP, "compile": {"what": "model", "backend": "eager"}}
    launched = launch(
        scenario(
            **_probed(
                model=compiled,
                parallel={"kind": "ddp", "replicas": 2, "python_reducer": True, "compiled_autograd": True},
            )
        )
    )
    assert launched.correctness.passed
    assert [one for one in launched.rank().receipts if one.outcome is ReceiptOutcome.DISAGREES] == []


@pytest.mark.thorough
def test_dynamo_asks_for_the_wrapper_that_runs(launch: Callable[..., Any], scenario: Callable[..., Any]) -> None:
    compiled = {**MLP, "compile": {"backend": "aot_eager"}}
    launched = launch(scenario(**_probed(model=compiled, parallel={"kind": "ddp", "replicas": 2})))
    assert launched.correctness.passed
    assert _called(launched)["_get_active_ddp_module"]


def test_what_a_rank_that_has_joined_shadows_is_gradient_reduction_in_its_trace_too(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    from dtbench.base.vocabulary import Purpose
    from dtbench.traces.rank.analysis import analyze_trace
    from dtbench.traces.reader import read_trace
    from dtbench.traces.who.facts import RankFacts

    wanted = scenario(**_joined([1, 3]))
    launched = launch(wanted)
    plan = make_plan(wanted, Machine(cpu_cores=2, cuda_devices=0))
    (planned,) = [one for one in plan.traffic or () if one.purpose is Purpose.GRAD_REDUCE]
    for rank in range(2):
        trace = read_trace(launched.folder.find_traces()[rank])
        analysis = analyze_trace(trace, rank=rank, facts=RankFacts.of(launched.rank(rank)))
        found = [one for one in analysis.collectives if one.purpose is Purpose.GRAD_REDUCE]
        steps = 2  # one pays for the profiler's start
        assert len(found) == steps * planned.count
        assert sum(one.size_bytes or 0 for one in found) == steps * planned.size_bytes
