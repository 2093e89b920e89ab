"""Owners and regions by the names around an issue."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Operation, Purpose, Region
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader.read import read_trace
from dtbench.traces.who.owners import Asker, find_owner, find_region

NODE = "autograd::engine::evaluate_function: MmBackward0"
UNIT = "FSDP::all_gather (layers.0)"


@pytest.mark.parametrize(
    ("asker", "owner"),
    [
        (Asker("aten::mm", is_operator=True, module="Linear_3"), "aten::mm of Linear_3"),
        (Asker("aten::mm", is_operator=True, module=""), "aten::mm"),
        (Asker("", is_operator=False, module="Linear_3"), "Linear_3"),
        (Asker("dispatch(F)", is_operator=False, module="MoE_1"), "dispatch(F)"),
        (Asker("DistributedDataParallel.forward", is_operator=False, module=""), ""),
        (Asker("torch::autograd::AccumulateGrad", is_operator=True, module=""), ""),
        (Asker("Optimizer.step#AdamW.step", is_operator=False, module="Net_0"), "Net_0"),
        (Asker("Optimizer.step#PostLocalSGDOptimizer.step", is_operator=False, module=""), "PostLocalSGDOptimizer"),
        (Asker("", is_operator=False, module=""), ""),
    ],
)
def test_the_owner_is_what_asked_and_what_torch_puts_around_everything_is_nobody(asker: Asker, owner: str) -> None:
    assert find_owner(Purpose.TENSOR, (), asker) == owner


@pytest.mark.parametrize("purpose", [Purpose.UNSHARD, Purpose.GRAD_REDUCE])
def test_parameters_and_gradients_belong_to_units_and_never_to_an_operator(purpose: Purpose) -> None:
    asker = Asker("aten::mm", is_operator=True, module="Linear_3")
    assert find_owner(purpose, (UNIT,), asker) == "layers.0"
    assert find_owner(purpose, ("c10d::allreduce_",), asker) == ""


def test_what_ddp_broadcasts_before_its_forward_is_its_buffers() -> None:
    asker = Asker("DistributedDataParallel.forward", is_operator=False, module="")
    assert find_owner(Purpose.OTHER, (), asker, Operation.BROADCAST) == "buffers"
    assert find_owner(Purpose.OTHER, (), asker, Operation.ALL_REDUCE) == "", "an uneven join's, or anything"


def test_the_total_norm_belongs_to_the_clipping_whatever_operator_asks() -> None:
    asker = Asker("aten::linalg_vector_norm", is_operator=True, module="")
    assert find_owner(Purpose.OTHER, ("c10d::allreduce_", "dtbench::clip_grad_norm_"), asker) == "clip_grad_norm_"
    assert find_owner(Purpose.OTHER, ("c10d::allreduce_",), asker) == "aten::linalg_vector_norm"


def test_the_mean_of_models_over_ranks_belongs_to_what_averages_them() -> None:
    asker = Asker("aten::add", is_operator=True, module="")
    above = ("c10d::allreduce_", "dtbench::average_parameters")
    assert find_owner(Purpose.OTHER, above, asker) == "average_parameters"


@pytest.mark.parametrize(
    ("above", "region"),
    [
        ((UNIT, "FSDP::pre_forward (layers.0)", NODE), Region.BACKWARD),  # computed again by a checkpoint
        ((UNIT, "FSDP::pre_forward (layers.0)"), Region.FORWARD),
        ((UNIT, "FSDP::backward_prefetch for layers.0", "FSDP::pre_backward (layers.1)"), Region.BACKWARD),
        (("FSDP::post_backward_reduce", "FSDP::root_post_backward_callback"), Region.BACKWARD),
        (("FullyShardedDataParallel._post_backward_hook",), Region.BACKWARD),
        (("FullyShardedDataParallel._pre_forward", "FullyShardedDataParallel.forward"), Region.FORWARD),
        (("Optimizer.step#SGD.step",), Region.OPTIMIZER),
        (("## backward ##",), Region.BACKWARD),
        (("forward_backward_func",), None),
        ((UNIT,), None),
    ],
)
def test_the_innermost_name_that_says_a_region_decides_and_the_engine_is_backward(
    above: tuple[str, ...], region: Region | None
) -> None:
    assert find_region(above, in_module=False) is region


def test_a_module_that_runs_says_forward_only_where_no_name_says_more() -> None:
    assert find_region((), in_module=True) is Region.FORWARD
    assert find_region((NODE,), in_module=True) is Region.BACKWARD


@pytest.mark.parametrize(("dtype", "owner"), [("float", "buffers"), ("long int", "buffers"), ("int", "")])
def test_how_ddp_laid_out_its_buckets_anew_is_none_of_its_buffers(
    draw: Callable[..., Path], dtype: str, owner: str
) -> None:
    sized = f'{{"Input Dims": [[[15]]], "Input type": ["{dtype}"]}}'
    path = draw(f"""
        step ProfilerStep#1                  @1 |====================|
        op DistributedDataParallel.forward   @1 | ============       |
        op c10d::broadcast_                  @1 |  ==                |
        op gloo:broadcast                    @g |   =====            | {sized}
        """)
    (one,) = analyze_trace(read_trace(path)).collectives
    assert one.owner == owner
