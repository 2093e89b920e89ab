"""Causes in a trace without a backward: of evaluation, of inference, of forward alone."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Cause, MissingInput
from dtbench.traces.job.explain import explain
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace
from tests.known import known


def describe(group: str) -> str:
    """Return the metadata of an all-reduce on a group that is described."""
    said = {"Collective name": "allreduce", "Process Group Name": "5", "Process Group Description": group}
    return json.dumps({**said, "Group size": 2})


def analyze(path: Path) -> TraceAnalysis:
    return explain([analyze_trace(read_trace(path))]).analyses[0]


def exposed(one: TraceAnalysis) -> dict[str, tuple[float, int]]:
    """Return count and exposed ns of each purpose in the first step."""
    return {str(purpose.purpose): (purpose.count, known(purpose.exposed_ns)) for purpose in one.steps[0].purposes}


FORWARD_ONLY = """
    step ProfilerStep#1                          @1  |====================|
    op aten::mm                                  @1  |== ==  =            |
    op {operator}                                @1  |  =   =             |
    op c10d::allreduce_                          @1  |  =   =             |
    call cudaLaunchKernel                        @1  |a bc  d  e          |
    kernel gemm                                  @s7 | aaa                |
    kernel ncclDevKernel_AllReduce               @s8 |    bbbb            |{said}
    kernel gemm                                  @s7 |        ccc         |
    kernel ncclDevKernel_AllReduce               @s8 |           dd       |{said}
    kernel gemm                                  @s7 |             eeee   |
    """


@pytest.mark.parametrize(
    ("operator", "said"),
    [
        ("_ReduceFromModelParallelRegion", ""),
        ("LinearWithGradAccumulationAndAsyncCommunication", ""),
        ("aten::add", describe("TENSOR_MODEL_PARALLEL_GROUP")),
        ("aten::add", describe("mesh_tp")),
    ],
)
def test_tensor_parallel_sums_of_a_forward_alone_are_needed_at_once(
    draw: Callable[..., Path], operator: str, said: str
) -> None:
    one = analyze(draw(FORWARD_ONLY.format(operator=operator, said=said)))
    assert exposed(one) == {"tensor": (2, 6_000)}
    assert [split.by_cause for split in one.splits] == [{Cause.NEEDED_AT_ONCE: 4_000}, {Cause.NEEDED_AT_ONCE: 2_000}]


@pytest.mark.parametrize(
    "drawing",
    [
        FORWARD_ONLY.replace("op aten::mm ", "range loss.backward()"),  # another engine's, say
        FORWARD_ONLY.replace("step ProfilerStep#1 ", "range no_step_mark "),
    ],
)
def test_where_nothing_shows_that_a_step_has_no_backward_its_region_is_not_known(
    draw: Callable[..., Path], drawing: str
) -> None:
    one = analyze(draw(drawing.format(operator="_ReduceFromModelParallelRegion", said="")))
    assert {str(purpose.purpose) for purpose in one.whole_purposes} == {"tensor"}
    assert all(MissingInput.REGION in part.missing for split in one.splits for part in split.parts)


def test_after_the_last_compute_of_a_forward_alone_nothing_is_left_to_hide_behind(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw("""
        step ProfilerStep#1            @1  |==============|
        op aten::mm                    @1  |==            |
        op _ReduceFromTensorModelParallelRegion @1 |  =   |
        op c10d::allreduce_            @1  |  =           |
        call cudaLaunchKernel          @1  |a b           |
        kernel gemm                    @s7 | aaa          |
        kernel ncclDevKernel_AllReduce @s8 |    bbbb      |
        """)
    )
    assert exposed(one) == {"tensor": (1, 4_000)}
    assert [split.by_cause for split in one.splits] == [{Cause.TAIL: 4_000}]


def test_a_sharded_optimizer_gathers_what_it_updated_and_could_not_do_so_earlier(draw: Callable[..., Path]) -> None:
    """Its second gather depends on the second update, not on what computed after the first gather."""
    said = describe("DATA_PARALLEL_GROUP").replace("allreduce", "_allgather_base")
    one = analyze(
        draw(f"""
        step ProfilerStep#1            @1  |========================|
        range Optimizer.step#Adam.step @1  |======                  |
        op aten::_fused_adam           @1  |=  =                    |
        op c10d::_allgather_base_      @1  | =  =                   |
        call cudaLaunchKernel          @1  |ab cd   e               |
        op aten::mm                    @1  |        =               |
        kernel adam                    @s7 | aaaa                   |
        kernel ncclDevKernel_AllGather @s8 |     bb                 |{said}
        kernel adam                    @s7 |       cccc             |
        kernel ncclDevKernel_AllGather @s8 |           dddd         |{said}
        kernel gemm                    @s7 |               eee      |
        """)
    )
    assert exposed(one) == {"unshard": (2, 6_000)}
    assert [collective.ready_ns for collective in one.collectives] == [5_000, 11_000]
    assert [split.by_cause for split in one.splits] == [{Cause.NEEDED_AT_ONCE: 2_000}, {Cause.NEEDED_AT_ONCE: 4_000}]


@pytest.mark.parametrize("mark", ["ProfilerStep#1", "no_step_mark"])
def test_a_reduction_that_compute_hid_in_part_is_of_no_known_cause_without_its_region(
    draw: Callable[..., Path], mark: str
) -> None:
    """It may be the last of a backward, behind which nothing is left, however much ran beside it."""
    said = '{"Input Dims": [[4]], "Concrete Inputs": ["", "True", "-1"]}'
    moved = '{"Input Dims": [[4]], "Input type": ["float"]}'
    one = analyze(
        draw(f"""
        range {mark}                          @1 |================|
        range DistributedDataParallel.forward @1 |==              |
        op aten::mm                           @1 |==        =     |
        op autograd::engine::evaluate_function: torch::autograd::AccumulateGrad @1 |  =====         |
        op c10d::allreduce_                   @1 |    =           | {said}
        op aten::mul                          @1 |      =         |
        range gloo:all_reduce                 @2 |     =====      | {moved}
        """)
    )
    (split,) = one.splits
    if mark == "no_step_mark":
        assert [(part.cause, MissingInput.REGION in part.missing) for part in split.parts] == [(Cause.UNKNOWN, True)]
    else:
        assert all(MissingInput.REGION not in part.missing for part in split.parts)
