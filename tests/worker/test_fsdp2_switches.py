"""What FSDP2's switches do to the live units of real ranks, beside the traffic that ``test_traffic`` compares."""

from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.errors import PlanError
from dtbench.plan.plan import Machine, make_plan, plan_reference
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.records.rank import ReceiptOutcome
from tests.newer_torch import plan_what_torch_refuses, skip_where_torch_lacks

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

MLP = {"kind": "mlp", "layers": 2, "dim": 64, "hidden_dim": 96}
FORKED = {"kind": "custom", "factory": "example_model:build_forked", "arguments": {"width": 16}}
MACHINE = Machine(cpu_cores=2, cuda_devices=0)
WIDTH = 16


def _fsdp2(**knobs: Any) -> dict[str, Any]:
    return {"kind": "fsdp2", "shards": 2, **knobs}


@pytest.mark.ranks
@pytest.mark.parametrize(("is_reduced", "linears"), [(False, 2), (True, 4)])
def test_unused_parameters_are_reduced_as_zeros_where_that_is_asked_for(
    launch: Callable[..., Any], scenario: Callable[..., Scenario], is_reduced: bool, linears: int
) -> None:
    """Each of two units has two linears, 16 * 16 + 16 numbers of 4 bytes, of which one is used."""
    skip_where_torch_lacks("parallel.reduce_scatter_unused_params")
    launched = launch(scenario(model=FORKED, parallel=_fsdp2(reduce_scatter_unused_params=is_reduced)))
    count, size_bytes = launched.traffic["grad_reduce", "shard", "reduce_scatter"]
    assert (count, size_bytes) == (2, linears * (WIDTH * WIDTH + WIDTH) * 4)
    assert launched.correctness.passed, launched.correctness
    (receipt,) = [one for one in launched.rank().receipts if one.knob == "parallel.reduce_scatter_unused_params"]
    assert (receipt.outcome, receipt.got) == (ReceiptOutcome.AGREES, str(is_reduced).lower())


@pytest.mark.usefixtures("lone_group")
@pytest.mark.parametrize("is_kept", [False, True])
def test_gathered_parameters_leave_their_memory_where_it_is_kept(
    scenario: Callable[..., Scenario], is_kept: bool
) -> None:
    from dtbench.worker.loop.building import make_model, make_train_step
    from dtbench.worker.mesh import build_mesh
    from dtbench.worker.models.batches import Batches
    from dtbench.worker.parallelize.strategy import parallelize
    from dtbench.worker.recording.recorder import Recorder

    skip_where_torch_lacks("parallel.keep_unsharded_storage")
    wanted = scenario(model=MLP, parallel={"kind": "fsdp2", "shards": 1, "keep_unsharded_storage": is_kept})
    plan, device = make_plan(wanted, MACHINE), torch.device("cpu")
    model = make_model(wanted, device)
    parallel = parallelize(model, build_mesh(plan), wanted, plan, Recorder())
    step = make_train_step(wanted, parallel, model, Recorder())
    step.run(Batches(wanted, model.make_batch, device, rows=slice(None)).make(0))
    block: Any = parallel.model.get_submodule("layers.0")
    (group,) = block._get_fsdp_state()._fsdp_param_groups
    sizes = {one.all_gather_outputs[0].untyped_storage().size() > 0 for one in group.fsdp_params}
    assert sizes == {is_kept}


class _Event:
    """An event that a CPU can record."""

    def __init__(self, _device: object) -> None: ...

    def record(self) -> None: ...


@pytest.mark.usefixtures("lone_group")
@pytest.mark.parametrize("knob", ["symmetric_memory", "post_optimizer_event"])
def test_what_cpus_have_not_is_read_back_where_something_stands_in_for_it(
    scenario: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch, knob: str
) -> None:
    import torch.distributed.fsdp._fully_shard._fsdp_collectives as collectives

    from dtbench.worker.loop.building import make_model, make_train_step
    from dtbench.worker.mesh import build_mesh
    from dtbench.worker.models.batches import Batches
    from dtbench.worker.parallelize.strategy import parallelize
    from dtbench.worker.recording.recorder import Recorder

    skip_where_torch_lacks(f"parallel.{knob}")
    plan_what_torch_refuses(monkeypatch)
    monkeypatch.setattr(torch, "Event", _Event)
    if hasattr(collectives, "SymmMemAllocMixin"):
        monkeypatch.setattr(collectives.SymmMemAllocMixin, "__init__", lambda *_anything: None)
    device = torch.device("cpu")
    for is_set in (True, False):
        wanted = scenario(model=MLP, parallel={"kind": "fsdp2", "shards": 1, knob: is_set})
        plan = make_plan(wanted, MACHINE)
        model = make_model(wanted, device)
        parallel = parallelize(model, build_mesh(plan), wanted, plan, Recorder())
        step = make_train_step(wanted, parallel, model, Recorder())
        step.run(Batches(wanted, model.make_batch, device, rows=slice(None)).make(0))
        for asked in (True, False):
            parallel_asked: Any = wanted.parallel
            changed = parallel_asked.model_copy(update={knob: asked})
            (receipt,) = [one for one in parallel.read_receipts(changed) if one.knob == f"parallel.{knob}"]
            assert (receipt.outcome is ReceiptOutcome.AGREES) == (asked == is_set)


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("knobs", "collective", "is_right"),
    [
        ({"all_gather": "example_hooks:Gather"}, ("unshard", "shard", "all_gather"), True),
        ({"reduce_scatter": "example_hooks:Reduce"}, ("grad_reduce", "shard", "all_reduce"), True),
        ({"all_reduce_hook": "example_hooks:look"}, ("grad_reduce", "shard", "reduce_scatter"), True),
        ({"all_reduce_hook": "example_hooks:halve"}, ("grad_reduce", "shard", "reduce_scatter"), False),
    ],
    ids=str,
)
def test_a_persons_own_collectives_are_what_ranks_issue_and_what_training_shows(
    launch: Callable[..., Any],
    scenario: Callable[..., Scenario],
    knobs: dict[str, str],
    collective: tuple[str, str, str],
    is_right: bool,
) -> None:
    launched = launch(scenario(model=MLP, parallel=_fsdp2(**knobs)))
    assert collective in launched.traffic
    assert launched.correctness.passed is is_right, launched.correctness
    (knob,) = knobs
    (receipt,) = [one for one in launched.rank().receipts if one.knob == f"parallel.{knob}"]
    assert (receipt.outcome, receipt.got) == (ReceiptOutcome.AGREES, knobs[knob])


@pytest.mark.usefixtures("lone_group")
def test_what_is_no_collective_of_torchs_kind_is_refused(scenario: Callable[..., Scenario]) -> None:
    from dtbench.worker.parallelize.fsdp2_own import set_own

    wanted: Any = scenario(parallel=_fsdp2(all_gather="tests.worker.example_hooks:halve"), model=MLP).parallel
    with pytest.raises(PlanError, match=r"parallel\.all_gather: `.*:halve` is no subclass of torch's AllGather"):
        set_own({}, wanted, ())


def test_the_single_process_scales_gradients_as_the_ranks_do(scenario: Callable[..., Scenario]) -> None:
    """Four ranks that divide their sum by two have twice their mean."""
    wanted = scenario(parallel=_fsdp2(replicas=2, gradient_divide_factor=2.0))
    single, _ = plan_reference(wanted, make_plan(wanted, MACHINE))
    assert getattr(single.parallel, "gradient_divide_factor", None) == 0.5


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"parallel": _fsdp2(needless_in_backward=["layers.0"]), "model": MLP}, "backward needs the parameters of"),
        (
            {"parallel": _fsdp2(needless_in_backward=["layers.1"]), "model": {**MLP, "hidden_dim": None}},
            "backward needs the parameters of `layers.1`",
        ),
        (
            {"parallel": _fsdp2(shard_dim={"layers.1.up.weight": 1}), "model": {**MLP, "dim": 63}},
            r"`layers\.1\.up\.weight` of shape \(96, 63\) cannot be cut along 1 into 2 equal parts; 0 works",
        ),
        (
            {"parallel": _fsdp2(process_group_memory=True, all_gather="example_hooks:Gather"), "model": MLP},
            "parallel.process_group_memory and parallel.all_gather both say where",
        ),
        (
            {"parallel": _fsdp2(shard_dim={"blocks": 1}), "model": MLP},
            "parallel.shard_dim: `blocks` names no parameter or module",
        ),
        (
            {
                "parallel": _fsdp2(manual_backward_finalization=True),
                "accumulation": {"micro_batches": 2, "sync": "every"},
            },
            "parallel.manual_backward_finalization ends all backwards of a step at once",
        ),
        (
            {
                "parallel": {"kind": "ddp", "replicas": 2, "manual_backward_finalization": True},
                "accumulation": {"micro_batches": 2, "sync": "every"},
            },
            "parallel.manual_backward_finalization ends one backward of a step",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    scenario: Callable[..., Scenario], sections: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(PlanError, match=sentence):
        make_plan(scenario(**sections), MACHINE)


@pytest.mark.usefixtures("lone_group")
def test_a_unit_that_is_none_of_the_models_is_refused(scenario: Callable[..., Scenario]) -> None:
    from dtbench.worker.parallelize.fsdp2_switches import set_switches

    wanted = Scenario.model_validate(scenario(parallel=_fsdp2(needless_in_backward=["blocks.7"]), model=MLP))
    with pytest.raises(PlanError, match=r"parallel\.needless_in_backward: `blocks\.7` is no unit; `blocks\.0` is one"):
        set_switches({"": object(), "blocks.0": object()}, wanted.parallel)  # type: ignore[arg-type]
