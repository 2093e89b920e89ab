"""Device events and who asked for them, each way of not knowing by an example."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dtbench.traces.host.correlate import Attribution, Uncorrelated, attribute, count_uncorrelated, find_links
from dtbench.traces.host.nesting import find_nesting
from dtbench.traces.reader import read_trace
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.trace import Sparse, Trace

NODE = "autograd::engine::evaluate_function: MmBackward0"


def count(path: Path) -> Uncorrelated:
    trace = read_trace(path)
    return count_uncorrelated(find_links(trace, find_nesting(trace))[1])


def test_kernels_launched_inside_an_operator_are_no_class_of_their_own(draw: Callable[..., Path]) -> None:
    path = draw("""
        op aten::mm             @1   |===    |
        call cudaLaunchKernel   @1   | a     |
        kernel gemm             @s7  |   a   |
        copy Memcpy DtoD        @s7  |    a  |
        """)
    assert count(path) == Uncorrelated()


def test_an_id_below_all_calls_was_launched_before_the_trace_and_one_among_them_is_missing(
    draw: Callable[..., Path],
) -> None:
    path = draw("""
        op aten::mm             @1   |=======     |
        call cudaLaunchKernel   @1   | c    e     |
        kernel gemm             @s7  |aabbcc  ee  |
        kernel relu             @s7  |      dd  ff|
        kernel untied           @s8  |=           |
        """)
    assert count(path) == Uncorrelated(launched_before=2, without_id=1, launch_missing=2)


@pytest.mark.parametrize(
    ("gemm", "expected"),
    [
        ("aabbccddeeffgg", Uncorrelated(launched_before=1, launch_missing=4)),
        ("aabbcc  ee    ", Uncorrelated(launched_before=2)),
    ],
)
def test_an_id_below_all_calls_is_no_proof_where_calls_of_its_likes_are_lost(
    draw: Callable[..., Path], gemm: str, expected: Uncorrelated
) -> None:
    """The calls of d, f and g are: so may b's be, not a's, which began before any operator."""
    path = draw(f"""
        op aten::mm             @1   |=======       |
        call cudaLaunchKernel   @1   | c    e       |
        kernel gemm             @s7  |{gemm}|
        """)
    assert count(path) == expected


def test_an_id_below_all_calls_is_no_proof_where_an_operator_before_them_lacks_its_launch(
    draw: Callable[..., Path],
) -> None:
    rest = """op aten::empty          @1   |=        =   |
        call cudaLaunchKernel   @1   |       c   e |
        kernel gemm             @s7  |a   b   c   e|
        """

    def count_with(names: str, bars: str) -> Uncorrelated:
        operators = "\n".join(f"op {name} @{name} |{bars}|" for name in names)
        calls = "\n".join(f"call cudaLaunchKernel @{name} |      x   y  |" for name in names)
        return count(draw(f"{operators}\n{calls}\n{rest}"))

    before, missing = Uncorrelated(launched_before=2, without_operator=2), Uncorrelated(1, 0, 1, without_operator=2)
    assert count_with("mnop"[:3], "  ==  ==  ==") == missing
    assert count_with("mn", "  ==  ==  ==") == before  # a batch may be put together on the host
    assert count_with("mno", "      ==  ==") == before
    assert count_with("mno", "  ==  ==  == =") == before  # the last ones launch nothing either


def test_without_any_call_nothing_is_said_to_have_been_launched_before(draw: Callable[..., Path]) -> None:
    assert count(draw("kernel gemm @s7 |aabb|")) == Uncorrelated(launch_missing=2)


def test_every_kernel_of_a_graph_is_counted_as_such(draw: Callable[..., Path]) -> None:
    path = draw("""
        op replay               @1   |===     |
        call cudaGraphLaunch    @1   | a      |
        kernel gemm             @s7  |   a a a|
        """)
    assert count(path) == Uncorrelated(graph_launched=3)


def test_a_kernel_whose_id_two_calls_carry_is_ambiguous(draw: Callable[..., Path]) -> None:
    path = draw("""
        op aten::mm             @1   |=====    |
        call cudaLaunchKernel   @1   | a       |
        call hipLaunchKernel    @2   |   a     |
        kernel gemm             @s7  |     a   |
        """)
    assert count(path) == Uncorrelated(ambiguous=1)


def test_a_launch_under_an_annotation_alone_has_no_operator(draw: Callable[..., Path]) -> None:
    path = draw("""
        range combine           @1   |===    |
        call cudaLaunchKernel   @1   | a   b |
        kernel gemm             @s7  |   a  b|
        """)
    assert count(path) == Uncorrelated(without_operator=2)


def attribute_calls(trace: Trace) -> Attribution:
    return attribute(trace, find_nesting(trace), np.flatnonzero(trace.is_one_of(("cuda_runtime",))))


def names(trace: Trace, events: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> list[str | None]:
    return [None if event == NOTHING else trace.name_of(event) for event in events.tolist()]


def test_the_operator_that_asked_lies_past_the_plumbing_and_the_annotation_is_no_step(
    draw: Callable[..., Path],
) -> None:
    trace = read_trace(
        draw("""
        step ProfilerStep#1                 @1 |====================|
        range my range                      @1 | =========          |
        op aten::mm                         @1 |  =======      ===  |
        op _c10d_functional::all_reduce     @1 |   =====            |
        op c10d::allreduce_                 @1 |    ===        ===  |
        range nccl:all_reduce               @1 |    ==         ==   |
        call cudaLaunchKernel               @1 |    a          b   c|
        """)
    )
    found = attribute_calls(trace)
    assert names(trace, found.operators) == ["aten::mm", "aten::mm", None]
    assert names(trace, found.annotations) == ["my range", None, None]
    assert names(trace, found.nodes) == [None, None, None]


def with_numbers(trace: Trace, numbers: dict[str, tuple[int, int]]) -> Trace:
    """Return events by name the autograd number and the number of the thread that ran the forward."""
    events = [event for event in range(len(trace)) if trace.name_of(event) in numbers]
    columns = np.array([numbers[trace.name_of(event)] for event in events], dtype=np.int64)
    places = np.array(events, dtype=np.int64)
    backward = columns[:, 1] > 0
    return replace(
        trace,
        sequence=Sparse(places, columns[:, 0]),
        forward_thread=Sparse(places[backward], columns[backward, 1]),
    )


TWO_THREADS = f"""
    op aten::t              @1 | =                |
    op aten::mm             @1 |   ==             |
    op aten::add            @1 |         =        |
    op {NODE}               @2 |           =====  |
    op aten::mm of backward @2 |            ===   |
    call cudaLaunchKernel   @2 |             a    |
    op aten::mul            @3 |     =            |
    """


def test_backward_work_finds_the_last_forward_operator_with_its_number_on_the_thread_it_names(
    draw: Callable[..., Path],
) -> None:
    trace = with_numbers(
        read_trace(draw(TWO_THREADS)),
        {"aten::t": (7, 0), "aten::mm": (7, 0), "aten::add": (8, 0), "aten::mul": (9, 0), NODE: (7, 1)},
    )
    found = attribute_calls(trace)
    assert names(trace, found.nodes) == [NODE]
    assert names(trace, found.forwards) == ["aten::mm"]


def test_a_number_that_another_threads_operator_also_has_is_left_alone(draw: Callable[..., Path]) -> None:
    """Nothing tells which thread the profiler's number 1 means."""
    trace = with_numbers(read_trace(draw(TWO_THREADS)), {"aten::mm": (7, 0), "aten::mul": (7, 0), NODE: (7, 1)})
    assert names(trace, attribute_calls(trace).forwards) == [None]


def test_a_node_whose_forward_ran_before_the_trace_finds_nothing(draw: Callable[..., Path]) -> None:
    trace = with_numbers(read_trace(draw(TWO_THREADS)), {"aten::mm": (8, 0), NODE: (7, 1)})
    assert names(trace, attribute_calls(trace).forwards) == [None]


@pytest.mark.parametrize("node_start", [11_000, 12_000], ids=["at the node", "at the operator inside"])
def test_without_numbers_the_arrow_that_ends_in_a_node_leads_to_its_forward(
    draw: Callable[..., Path], node_start: int
) -> None:
    trace = read_trace(draw(TWO_THREADS))
    arrows = np.array([[1_000, 99_000], [3_000, node_start]], dtype=np.int64)
    found = attribute_calls(replace(trace, flows=arrows))
    assert names(trace, found.forwards) == ["aten::mm"]


FRAMES = """
    python nn.Module: Net_0     @1 |==========        |
    python nn.Module: Linear_3  @1 |  ====            |
    python forward              @1 |  ===             |
    op aten::mm                 @1 |   ==             |
    op aten::add                @1 |       =          |
    call cudaLaunchKernel       @1 |    a  b          |
    """


def test_a_module_is_the_path_of_python_frames_around_the_call(draw: Callable[..., Path]) -> None:
    trace = read_trace(draw(FRAMES + "call cudaLaunchKernel @2 |    c             |"))
    assert attribute_calls(trace).modules == ("Net_0.Linear_3", "Net_0", "")


def test_the_hierarchy_that_an_operator_carries_comes_before_the_frames(draw: Callable[..., Path]) -> None:
    trace = read_trace(draw(FRAMES))
    carrier = [trace.name_of(event) for event in range(len(trace))].index("aten::mm")
    assert attribute_calls(replace(trace, modules={carrier: "TOP(Net).fc(Linear)"})).modules == (
        "TOP(Net).fc(Linear)",
        "Net_0",
    )


def test_the_module_of_backward_work_is_that_of_its_forward_operator(draw: Callable[..., Path]) -> None:
    trace = with_numbers(
        read_trace(draw("python nn.Module: Linear_3  @1 |  ====            |" + TWO_THREADS)),
        {"aten::mm": (7, 0), NODE: (7, 1)},
    )
    assert attribute_calls(trace).modules == ("Linear_3",)


def test_between_fsdps_hooks_the_unit_runs(draw: Callable[..., Path]) -> None:
    trace = read_trace(
        draw("""
        range FSDP::pre_forward             @1 |=                       |
        range FSDP::pre_forward (layers.0)  @1 |  ==                    |
        range FSDP::post_forward (layers.0) @1 |        =               |
        range FSDP::post_forward            @1 |             =          |
        op aten::mm                         @1 |    = =     =    =      |
        call cudaLaunchKernel               @1 |    a b     c    d      |
        call cudaLaunchKernel               @2 |     e                  |
        """)
    )
    assert attribute_calls(trace).modules == ("layers.0", "layers.0", "root", "", "")


def test_an_arrow_into_a_node_inside_a_node_is_the_inner_ones(draw: Callable[..., Path]) -> None:
    """A recomputed forward runs its own backward inside the node of the checkpoint."""
    trace = read_trace(
        draw(f"""
        op aten::mm                                              @1 |==                |
        op autograd::engine::evaluate_function: OuterBackward    @1 |   =========      |
        op {NODE}                                                @1 |     ====         |
        call cudaLaunchKernel                                    @1 |   a  b           |
        """)
    )
    found = attribute_calls(replace(trace, flows=np.array([[0, 5_000]], dtype=np.int64)))
    assert names(trace, found.forwards) == [None, "aten::mm"]
