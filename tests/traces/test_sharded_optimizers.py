"""Sharded optimizers without ranges: ZeRO-2 and ZeRO-3, recorded, and what only looks like one."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Cause
from dtbench.report.words.knobs import Knob
from dtbench.report.words.trace_words import advise_traces, answer_lines
from dtbench.traces.job.explain import explain
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace

PARAMETERS_BYTES = 4 * (2 * (192 * 192 + 192) + 192 * 8 + 8)


def analyze(path: Path) -> TraceAnalysis:
    return analyze_trace(read_trace(path))


def purposes(one: TraceAnalysis) -> list[dict[str, tuple[float, int | float | None]]]:
    return [{str(row.purpose): (row.count, row.size_bytes) for row in step.purposes} for step in one.steps]


@pytest.mark.parametrize(("name", "owner", "norm_bytes"), [("zero2", "AdamW", 4), ("zero3", "ZeRO-3", 8)])
def test_parameters_and_gradients_of_zero_are_told_and_no_knob_of_fsdp_or_ddp_is_named(
    recorded: Path, name: str, owner: str, norm_bytes: int
) -> None:
    folder = recorded / "zero" / name
    for path in sorted(folder.iterdir()):
        one = analyze(path)
        whole = (1, PARAMETERS_BYTES)
        assert purposes(one) == [{"unshard": whole, "grad_reduce": whole, "other": (1, norm_bytes)}] * 2
        owners = {str(c.purpose): c.owner for c in one.collectives}
        assert owners == {"unshard": owner, "grad_reduce": owner, "other": ""}
    traces = analyze_traces([folder])
    assert {analysis.marks.gathers_after_update for analysis in traces.analyses} == {name == "zero2"}
    said = " ".join([*answer_lines(traces), *(one.words for one in advise_traces(traces))])
    assert "gradient wait" in said
    assert "unshard wait" in said
    assert not any(str(knob) in said for knob in Knob)


def test_where_not_every_step_gathers_after_its_optimizer_nothing_is_taken_for_a_sharded_one(
    draw: Callable[..., Path],
) -> None:
    moved = '{"Input Dims": [[4], [2]], "Input type": ["float", "float"]}'
    one = analyze(
        draw(f"""
        step ProfilerStep#1                                @1 |==========          |
        step ProfilerStep#2                                @1 |          ==========|
        op autograd::engine::evaluate_function: Mm         @1 |=         =         |
        op c10d::allreduce_                                @1 |  =         =       | {moved}
        range Optimizer.step#SGD.step                      @1 |     =         =    |
        op c10d::_allgather_base_                          @1 |               =    | {moved}
        op c10d::_allgather_base_                          @1 |       =            | {moved}
        range gloo:all_reduce                              @2 |   =         =      | {moved}
        range gloo:all_gather                              @2 |        =           | {moved}
        """)
    )
    assert "unshard" not in {str(row.purpose) for step in one.steps for row in step.purposes}


def moved(elements: int) -> str:
    return f'{{"Input Dims": [[{elements}]], "Input type": ["float"]}}'


def owned(one: TraceAnalysis) -> list[tuple[str, str, str]]:
    """Return operation, purpose and owner of the first step's collectives, in order of issue."""
    found = sorted(zip(one.step_of, one.collectives, strict=True), key=lambda each: each[1].issue_ns or 0)
    return [(str(made.operation), str(made.purpose), made.owner) for step, made in found if step == 0]


@pytest.mark.parametrize(
    ("gathered", "model", "expected"),
    [
        (512, "my.forward", [("all_reduce", "grad_reduce", "AdamW"), ("all_gather", "unshard", "AdamW")]),
        (128, "my.forward", [("all_reduce", "grad_reduce", "AdamW"), ("all_gather", "unshard", "AdamW")]),
        (1, "my.forward", [("all_reduce", "other", ""), ("all_gather", "other", "")]),
        (512, "DistributedDataParallel.forward", [("all_reduce", "other", ""), ("all_gather", "other", "")]),
    ],
    ids=["parameters", "in fewer bits", "a loss", "beside DDP"],
)
def test_what_is_gathered_after_a_step_is_parameters_where_it_is_as_large_as_what_was_reduced(
    draw: Callable[..., Path], gathered: int, model: str, expected: list[tuple[str, str, str]]
) -> None:
    one = analyze(
        draw(f"""
        step ProfilerStep#1                                @1 |==========          |
        step ProfilerStep#2                                @1 |          ==========|
        range {model}                                      @1 |=         =         |
        op autograd::engine::evaluate_function: Mm         @1 | =         =        |
        op c10d::allreduce_                                @1 |  =         =       | {moved(512)}
        range Optimizer.step#AdamW.step                    @1 |     =         =    |
        op c10d::_allgather_base_                          @1 |       =         =  | {moved(gathered)}
        range gloo:all_reduce                              @2 |   =         =      | {moved(512)}
        range gloo:all_gather                              @2 |        =         = | {moved(gathered)}
        """)
    )
    assert owned(one) == expected


def test_of_several_optimizers_each_has_what_comes_before_and_after_its_own_step(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw(f"""
        step ProfilerStep#1                                @1 |===============          |
        op autograd::engine::evaluate_function: Mm         @1 |=     =                  |
        op c10d::allreduce_                                @1 | =                       | {moved(4096)}
        range Optimizer.step#Adam.step                     @1 |   =                     |
        op c10d::allreduce_                                @1 |       =                 | {moved(512)}
        range Optimizer.step#AdamW.step                    @1 |          =              |
        op c10d::_allgather_base_                          @1 |            =            | {moved(512)}
        range gloo:all_reduce                              @2 |  =                      | {moved(4096)}
        range gloo:all_reduce                              @2 |        =                | {moved(512)}
        range gloo:all_gather                              @2 |             =           | {moved(512)}
        """)
    )
    assert owned(one) == [
        ("all_reduce", "other", ""),
        ("all_reduce", "grad_reduce", "AdamW"),
        ("all_gather", "unshard", "AdamW"),
    ]


def say(collective: str, elements: int, group: str = "DATA_PARALLEL_GROUP_WITH_CP") -> str:
    """Return what NCCL says of a collective in float32 over a group of Megatron's."""
    return json.dumps(
        {
            "Collective name": collective,
            "dtype": "Float",
            "In msg nelems": elements,
            "Out msg nelems": elements,
            "Process Group Name": group,
            "Process Group Description": group,
            "Group size": 2,
        }
    )


@pytest.mark.parametrize(
    ("gathered", "purpose"), [(1 << 16, "unshard"), (20, "other")], ids=["parameters", "predictions"]
)
def test_parameters_whose_gradients_hooks_scatter_are_gathered_wherever_that_is(
    draw: Callable[..., Path], gathered: int, purpose: str
) -> None:
    node = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    over_instances = say("allreduce", 1 << 15, "INTER_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP")
    one = analyze(
        draw(f"""
        step ProfilerStep#1                  @1  |====================|
        op c10d::_allgather_base_            @1  |=                   |
        op aten::mm                          @1  | =                  |
        op {node}                            @2  |   ==               |
        op c10d::_reduce_scatter_base_       @2  |   =                |
        op c10d::allreduce_                  @2  |    =               |
        range Optimizer.step#FusedAdam.step  @1  |             =      |
        call cudaLaunchKernel                @1  |xa                  |
        call cudaLaunchKernel                @2  |   kh               |
        kernel ncclDevKernel_AllGather       @s9 | xx                 | {say("_allgather_base", gathered)}
        kernel gemm                          @s7 |   a                |
        kernel ncclDevKernel_ReduceScatter   @s8 |      kk            | {say("_reduce_scatter_base", 1 << 16)}
        kernel ncclDevKernel_AllReduce       @s8 |        hh          | {over_instances}
        """)
    )
    assert [found[1] for found in owned(one)] == [purpose, "grad_reduce", "grad_reduce"]
    if purpose == "unshard":
        # The sum over instances is of what was scattered: its second reduction, which its first one cannot delay.
        assert [made.owner for made in one.collectives] == ["FusedAdam"] * 3
        causes = {cause for split in explain([one]).analyses[0].splits for cause in split.by_cause}
        assert not causes & {Cause.QUEUED, Cause.LATE_READY}


def test_what_is_issued_in_an_optimizers_own_step_is_that_optimizers(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw(f"""
        step ProfilerStep#1                                    @1 |==========|
        op aten::mm                                            @1 |=         |
        range Optimizer.step#ZeroRedundancyOptimizer.step      @1 |  =====   |
        op c10d::broadcast_                                    @1 |   =      | {moved(512)}
        range gloo:broadcast                                   @2 |    =     | {moved(512)}
        """)
    )
    assert owned(one) == [("broadcast", "unshard", "ZeroRedundancyOptimizer")]


@pytest.mark.parametrize(("elements", "purpose"), [(10, "other"), (1 << 10, "unshard")])
def test_a_gather_of_a_few_bytes_over_data_is_no_layers_parameters(
    draw: Callable[..., Path], elements: int, purpose: str
) -> None:
    said = json.dumps(
        {
            "Collective name": "_allgather_base",
            "Process Group Name": "3",
            "Process Group Description": "mesh_dp",
            "Group size": 2,
            "dtype": "Float",
            "In msg nelems": elements,
            "Out msg nelems": 2 * elements,
        }
    )
    one = analyze_trace(
        read_trace(
            draw(f"""
            step ProfilerStep#1                  @1  |==========|
            op c10d::_allgather_base_            @1  |   =      |
            call cudaLaunchKernel                @1  |b  a      |
            kernel gemm                          @7  | bb       |
            kernel ncclDevKernel_AllGather       @8  |    aaa   | {said}
            """)
        )
    )
    assert [str(found.purpose) for found in one.collectives] == [purpose]
