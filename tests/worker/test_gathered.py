"""Weights that are gathered over the tensor axis: they train correctly, send what is planned, and reach the hook."""

from collections.abc import Callable
from typing import Any

import pytest

from dtbench.plan.plan import Machine, make_plan
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.records.rank import Receipt, ReceiptOutcome

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
pytestmark = pytest.mark.ranks

MLP = {"kind": "mlp", "layers": 2, "dim": 16, "hidden_dim": 24}
SINGLE = {"kind": "mlp", "layers": 2, "dim": 16, "hidden_dim": None, "bias": False}
DDP = {"kind": "ddp", "replicas": 2, "tensor": 2}
FSDP1 = {"kind": "fsdp1", "shards": 2, "tensor": 2}
STEPS = 8 + 4 + 1 + 1
"""Warm-up, measured, the one that pays for the profiler, profiled; as ``make_scenario`` has them."""

CASES: dict[str, dict[str, Any]] = {
    "ddp": {"parallel": DDP},
    "ddp, several micro-batches": {"parallel": DDP, "accumulation": {"micro_batches": 2}},
    "fsdp1": {"parallel": FSDP1},
    "fsdp1, original parameters": {"parallel": {**FSDP1, "use_orig_params": True}},
    "fsdp1, several micro-batches": {"parallel": FSDP1, "accumulation": {"micro_batches": 2}},
    "fsdp1, bfloat16": {
        "parallel": {**FSDP1, "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "float32"}},
    },
    "fsdp1, one product a block": {"parallel": FSDP1, "model": SINGLE},
    "ddp, one block": {"parallel": DDP, "model": {**MLP, "layers": 1}},
    "ddp, clipped": {"parallel": DDP, "gradient_clip_norm": 0.1},
}


def gathers(launched: Any) -> Receipt:
    receipts: tuple[Receipt, ...] = launched.rank().receipts
    return next(one for one in receipts if one.knob == "parallel.gather_weights")


def probed(launched: Any) -> dict[str, Any]:
    return {one.name: one for one in launched.rank().extras.probes.functions}


@pytest.mark.quick("async-ddp")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("how", ["sync", "async"])
def test_gathered_weights_train_as_one_process_does_and_send_what_is_planned(
    launch: Callable[..., Any], scenario: Callable[..., Scenario], case: str, how: str
) -> None:
    fields = {"model": MLP, **CASES[case]}
    fields["parallel"] = {**fields["parallel"], "gather_weights": how}
    wanted = scenario(**fields)
    launched = launch(wanted)
    assert launched.correctness.passed, launched.correctness
    assert [one for one in launched.rank().receipts if one.outcome is ReceiptOutcome.DISAGREES] == []
    assert gathers(launched).got == how
    traffic = make_plan(wanted, Machine(cpu_cores=2, cuda_devices=0)).traffic
    assert traffic is not None
    planned = {(str(t.purpose), str(t.axis), str(t.operation)): (t.count, t.size_bytes) for t in traffic}
    assert launched.traffic == planned


@pytest.mark.quick("ddp async", "fsdp1 async")
@pytest.mark.parametrize(
    ("parallel", "how", "branch"),
    [
        (DDP, "sync", "plain"),
        (DDP, "async", "awaited"),
        (FSDP1, "sync", "plain"),
        (FSDP1, "async", "awaited on the compute stream"),
    ],
    ids=["ddp sync", "ddp async", "fsdp1 sync", "fsdp1 async"],
)
def test_asynchronous_gradients_reach_the_hook_unfinished_and_others_do_not(
    launch: Callable[..., Any], scenario: Callable[..., Scenario], parallel: dict[str, Any], how: str, branch: str
) -> None:
    wanted = scenario(
        model=MLP,
        correctness={"enabled": False},
        parallel={**parallel, "gather_weights": how},
        measure={"probes": ["_data_parallel_utils"]},
    )
    launched = launch(wanted)
    hook = probed(launched)["sync_grad_hook"]
    assert [(one.name, one.calls) for one in hook.branches] == [(branch, 8 * STEPS)], "8 parameters"


def test_a_gradient_and_its_collective_are_told_by_the_parameters_name(
    launch: Callable[..., Any], scenario: Callable[..., Scenario]
) -> None:
    from dtbench.base.ranges import parse_probe_range
    from dtbench.traces.reader import read_trace
    from dtbench.traces.rows.launch_tables import read_tables

    names = {f"layers.{index}.{name}" for index in range(2) for name in ("up.weight", "down.weight")}
    for parallel in (DDP, FSDP1):
        wanted = scenario(
            model={**MLP, "bias": False},
            correctness={"enabled": False},
            parallel={**parallel, "gather_weights": "async"},
            measure={"probes": ["_data_parallel_utils", "fsdp"], "profiled_steps": 2},
        )
        launched = launch(wanted)
        collectives = read_tables(launched.folder).collectives
        of_steps = collectives[collectives["step"].notna()]
        awaited = of_steps[of_steps["awaited_by"] == "_data_parallel_utils.sync_grad_hook"]
        assert awaited.groupby("owner").size().to_dict() == dict.fromkeys(names, 2 * 4), "steps and ranks"
        assert set(awaited["operation"]) == {"reduce_scatter"}
        assert (awaited["wait_ns"] >= 0).all()
        found = [parse_probe_range(name) for name in read_trace(launched.folder.find_traces()[0]).names]
        told = {one[1] for one in found if one is not None and one[0] == "_data_parallel_utils.sync_grad_hook"}
        assert told == names
        unflattened = {one[1] for one in found if one is not None and one[0].endswith("post_unflatten_transform")}
        assert unflattened == (names if parallel is FSDP1 else set())


def test_gradients_of_products_that_are_cut_are_named_too(
    launch: Callable[..., Any], scenario: Callable[..., Scenario]
) -> None:
    from dtbench.base.ranges import parse_probe_range
    from dtbench.traces.reader import read_trace

    wanted = scenario(correctness={"enabled": False}, parallel=FSDP1, measure={"probes": ["_data_parallel_utils"]})
    launched = launch(wanted)
    found = [parse_probe_range(name) for name in read_trace(launched.folder.find_traces()[0]).names]
    told = {one[1] for one in found if one is not None and one[0] == "_data_parallel_utils.sync_grad_hook"}
    assert {"embedding.weight", "layers.1.ffn.w2.weight", "norm.weight"} <= told
