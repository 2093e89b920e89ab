"""In whose call a collective of DTensor's was issued, forward and backward."""

from collections.abc import Callable
from pathlib import Path

from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace

LABEL = "dtbench::collective group=2 seq={seq} op=all_reduce bytes=8 axis=tensor async=1 owner="
NODE = "autograd::engine::evaluate_function: RedistributeBackward"
FORWARD = '{"Sequence number": 7}'
BACKWARD = '{"Sequence number": 7, "Fwd thread id": 1}'


def owners(path: Path) -> list[str]:
    return [collective.owner for collective in analyze_trace(read_trace(path)).collectives]


def test_in_forward_the_innermost_module_around_the_issue_owns_it(draw: Callable[..., Path]) -> None:
    path = draw(f"""
        step ProfilerStep#1             @1 |==========|
        range dtbench::region forward   @1 |==========|
        op aten::mm                     @1 |=         |
        range dtbench::module root      @1 | ======== |
        range dtbench::module a.b       @1 |  =====   |
        range {LABEL.format(seq=1)}     @1 |   ==     |
        range gloo:all_reduce           @2 |    ===   |
        """)
    assert owners(path) == ["a.b"]


def test_in_backward_it_is_the_module_whose_operator_made_the_node(draw: Callable[..., Path]) -> None:
    path = draw(f"""
        step ProfilerStep#1             @1 |====================|
        range dtbench::region forward   @1 |==========          |
        range dtbench::region backward  @1 |          ==========|
        range dtbench::module a         @1 |====                |
        op aten::type_as                @1 |  =                 | {FORWARD}
        range dtbench::module b         @1 |    ====            |
        op Redistribute                 @1 |      =             | {FORWARD}
        op {NODE}                       @1 |            =====   | {BACKWARD}
        op aten::mm                     @1 |                 =  | {FORWARD}
        range {LABEL.format(seq=1)}     @1 |             ==     |
        range gloo:all_reduce           @2 |              ===   |
        """)
    # type_as makes no node and so carries the next one's number; mm comes after it, in a step of its own
    assert owners(path) == ["b"]


def test_a_node_made_before_the_trace_leaves_it_without_an_owner(draw: Callable[..., Path]) -> None:
    path = draw(f"""
        step ProfilerStep#1             @1 |====================|
        range dtbench::region backward  @1 |          ==========|
        range dtbench::module a         @1 |====                |
        op Redistribute                 @1 |  =                 | {{"Sequence number": 8}}
        op {NODE}                       @1 |            =====   | {BACKWARD}
        op aten::mm                     @1 |                 =  |
        range {LABEL.format(seq=1)}     @1 |             ==     |
        range gloo:all_reduce           @2 |              ===   |
        """)
    assert owners(path) == [""]


def test_what_is_recomputed_in_backward_belongs_to_the_module_that_recomputes(draw: Callable[..., Path]) -> None:
    path = draw(f"""
        step ProfilerStep#1             @1 |====================|
        range dtbench::region backward  @1 |          ==========|
        range dtbench::module a         @1 |====                |
        op Redistribute                 @1 |  =                 | {FORWARD}
        op {NODE}                       @1 |           ======   | {BACKWARD}
        range dtbench::module b         @1 |            ====    |
        op aten::mm                     @1 |                 =  |
        range {LABEL.format(seq=1)}     @1 |             ==     |
        range gloo:all_reduce           @2 |              ===   |
        """)
    assert owners(path) == ["b"]


def test_on_a_device_the_same_ranges_name_the_same_owners(draw: Callable[..., Path]) -> None:
    path = draw(f"""
        step ProfilerStep#1                @1  |====================|
        range dtbench::region forward      @1  |==========          |
        range dtbench::region backward     @1  |          ==========|
        range dtbench::module a            @1  | =========          |
        op Redistribute                    @1  |   ======           | {FORWARD}
        op _c10d_functional::all_reduce    @1  |    ====            |
        call cudaLaunchKernel              @1  |     a              |
        op {NODE}                          @1  |            =====   | {BACKWARD}
        op _c10d_functional::all_reduce    @1  |             ==     |
        call cudaLaunchKernel              @1  |             b      |
        kernel ncclDevKernel_AllReduce     @s7 |      aa            |
        kernel ncclDevKernel_AllReduce     @s7 |              bb    |
        """)
    assert owners(path) == ["a", "a"]
