"""The facts that causes are decided by: readiness, regions, blocking issues."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Cause, MissingInput, Region
from dtbench.traces.causes.split import CausePart, split_exposed
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.timeline import RankTimeline
from dtbench.traces.who.collectives import Collective

Draw = Callable[..., Path]
NODE = "autograd::engine::evaluate_function: MmBackward0"


def timeline_of(path: Path) -> RankTimeline:
    return analyze_trace(read_trace(path)).timeline


def only(path: Path) -> Collective:
    (collective,) = timeline_of(path).collectives
    return collective


def test_a_collective_is_ready_when_the_compute_launched_last_before_its_issue_ends(draw: Draw) -> None:
    path = draw("""
        op c10d::allreduce_               @1   |    ==              |
        call cudaLaunchKernel             @1   |a.b..c.d            |
        kernel gemm                       @s7  |     aaabbb     ddd |
        kernel ncclDevKernel_AllReduce    @s20 |            cccc    |
        """)
    assert only(path).ready_ns == 11_000


def test_compute_that_ends_after_the_start_did_not_make_the_input(draw: Draw) -> None:
    path = draw("""
        op c10d::allreduce_               @1   |    ==              |
        call cudaLaunchKernel             @1   |a.b..c.d            |
        kernel gemm                       @s7  |     aaabbb     ddd |
        kernel ncclDevKernel_AllReduce    @s20 |         ccccccc    |
        """)
    assert only(path).ready_ns == 8_000


def test_where_nothing_was_launched_before_a_collective_is_ready_at_its_issue(draw: Draw) -> None:
    path = draw("""
        op c10d::allreduce_               @1   |  ==                |
        call cudaLaunchKernel             @1   |   c.d              |
        kernel gemm                       @s7  |           ddd      |
        kernel ncclDevKernel_AllReduce    @s20 |       cccc         |
        """)
    assert only(path).ready_ns == 2_000


def test_an_unshard_could_be_issued_when_the_unit_before_begins_to_compute(draw: Draw) -> None:
    path = draw("""
        step ProfilerStep#1                    @1   |================================|
        range dtbench::region forward          @1   |================================|
        range FSDP::all_gather (a)             @1   |===                             |
        range FSDP::all_gather_copy_out (a)    @1   |     ==                         |
        range FSDP::all_gather (b)             @1   |           ===                  |
        op c10d::_allgather_base_              @1   | ==         ==                  |
        call cudaLaunchKernel                  @1   |  a  c d     b                  |
        kernel gemm                            @s7  |        ccddddddddddddddd       |
        kernel ncclDevKernel_AllGather         @s20 |    aaaa          bbbbbbbb      |
        """)
    first, second = timeline_of(path).collectives
    assert (first.ready_ns, second.ready_ns) == (1_000, 8_000)


def test_without_copy_out_ranges_the_unit_before_computes_after_its_gather(draw: Draw) -> None:
    gather = '{"Collective name": "allgather", "Process Group Name": "0", "Process Group Description": "mesh_fsdp"}'
    path = draw(f"""
        step ProfilerStep#1                    @1   |================================|
        range dtbench::region forward          @1   |================================|
        op c10d::_allgather_base_              @1   | ==         ==                  |
        call cudaLaunchKernel                  @1   |  a  c d     b                  |
        kernel gemm                            @s7  |        ccddddddddddddddd       |
        kernel ncclDevKernel_AllGather         @s20 |    aaaa          bbbbbbbb      | {gather}
        """)
    _, second = timeline_of(path).collectives
    assert second.ready_ns == 8_000


def test_the_first_unshard_of_backward_could_be_issued_with_its_first_compute(draw: Draw) -> None:
    path = draw("""
        step ProfilerStep#1                    @1   |================================|
        range dtbench::region forward          @1   |======                          |
        range dtbench::region backward         @1   |      ==========================|
        range FSDP::all_gather (a)             @1   |===                             |
        range FSDP::all_gather (b)             @1   |           ===                  |
        op c10d::_allgather_base_              @1   | ==         ==                  |
        call cudaLaunchKernel                  @1   |  a  c d     b                  |
        kernel gemm                            @s7  |        ccddddddddddddddd       |
        kernel ncclDevKernel_AllGather         @s20 |    aaaa          bbbbbbbb      |
        """)
    _, second = timeline_of(path).collectives
    assert second.ready_ns == 10_000  # d, launched in backward; c was launched in forward


def test_gradients_handed_over_at_the_end_were_computed_at_the_same_moment(draw: Draw) -> None:
    grad = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    path = draw(f"""
        step ProfilerStep#1                    @1   |================================|
        op {NODE}                              @1   |====                            |
        op {grad}                              @1   |    ==== ====                   |
        op c10d::allreduce_                    @1   |      =    =                    |
        call cudaLaunchKernel                  @1   |a    bc   d                     |
        kernel gemm                            @s7  |        aaaab                   |
        kernel ncclDevKernel_AllReduce         @s20 |             cccdddd            |
        """)
    assert [one.computed_ns for one in timeline_of(path).collectives] == [12_000, 12_000]


def test_regions_of_other_peoples_loops_come_from_the_engine(draw: Draw) -> None:
    path = draw(f"""
        step ProfilerStep#1                    @1   |================                |
        step ProfilerStep#2                    @1   |                ================|
        op aten::mm                            @1   |===             ===             |
        op {NODE}                              @2   |     == ===         ====        |
        op aten::add_                          @1   |            ==           ==     |
        """)
    regions = timeline_of(path).regions
    assert regions.regions == (Region.FORWARD, Region.BACKWARD, Region.OPTIMIZER) * 2
    assert regions.starts_ns.tolist() == [0, 5_000, 11_000, 16_000, 20_000, 24_000]
    assert regions.ends_ns.tolist() == [5_000, 11_000, 16_000, 20_000, 24_000, 32_000]


@pytest.mark.parametrize("between", ["Optimizer.step#Adam.step", "zero_grad"])
def test_each_micro_batch_and_each_model_of_a_step_has_a_forward_and_a_backward_of_its_own(
    draw: Draw, between: str
) -> None:
    made, ran = ('{{"Sequence number": {0}}}', '{{"Sequence number": {0}, "Fwd thread id": 1}}')
    path = draw(f"""
        step ProfilerStep#1   @1 |========================================|
        op aten::mm           @1 |===                                     | {made.format(5)}
        op {NODE}             @2 |     ==                                 | {ran.format(5)}
        op aten::mul          @1 |      =                                 | {made.format(9)}
        op {NODE}             @2 |        ===                             | {ran.format(9)}
        range {between}       @1 |            ==                          |
        op aten::mm           @1 |                ==                      | {made.format(7)}
        op aten::mm           @1 |                   ==                   | {made.format(8)}
        op {NODE}             @2 |                       ==               | {ran.format(8)}
        op {NODE}             @2 |                           ===          | {ran.format(7)}
        op aten::add_         @1 |                                ==      |
        """)
    regions = timeline_of(path).regions
    is_stepped = between.startswith("Optimizer")
    middle = [(Region.OPTIMIZER, 11_000, 16_000)] if is_stepped else []
    assert [
        (region, start, end)
        for region, start, end in zip(
            regions.regions, regions.starts_ns.tolist(), regions.ends_ns.tolist(), strict=True
        )
    ] == [
        (Region.FORWARD, 0, 5_000),
        (Region.BACKWARD, 5_000, 11_000),  # what ran inside a node recomputed what another one needs
        *middle,
        (Region.FORWARD, 16_000 if is_stepped else 11_000, 23_000),
        (Region.BACKWARD, 23_000, 30_000),
        (Region.OPTIMIZER, 30_000, 40_000),
    ]


@pytest.mark.parametrize(
    ("between", "region"),
    [
        ("Optimizer.step#Adam.step", Region.OPTIMIZER),
        ("torch.distributed.ddp.reducer::copy_bucket_to_grad", None),
        ("FSDP::root_post_backward_callback", None),
        ("aten::to", Region.BACKWARD),
    ],
)
def test_what_ends_a_backward_between_two_nodes_begins_another(draw: Draw, between: str, region: Region | None) -> None:
    path = draw(f"""
        step ProfilerStep#1   @1  |========================|
        op aten::mm           @1  |===                     |
        op {NODE}             @2  |     ==                 |
        range {between}       @1  |         ==             |
        range {between}       @s7 |              =         |
        op {NODE}             @2  |             =====      |
        """)
    regions = timeline_of(path).regions
    place = regions.place_at(9_000)
    assert (None if place is None else regions.regions[place]) is region
    assert regions.regions.count(Region.BACKWARD) == (1 if region is Region.BACKWARD else 2)


@pytest.mark.parametrize(
    ("thread", "where", "count"),
    [
        ("1", "         =  ", 2),  # the thread that called `backward` goes on: that is over
        ("2", "         =  ", 2),  # as the engine's does, which is the same on a CPU
        ("3", "         =  ", 1),  # of a data loader
        ("2", "      =     ", 1),  # inside a node
    ],
)
def test_where_no_operator_says_which_node_it_made_any_between_two_nodes_divides_backwards(
    draw: Draw, thread: str, where: str, count: int
) -> None:
    path = draw(f"""
        step ProfilerStep#1   @1  |========================|
        op aten::mm           @1  |===                     |
        op {NODE}             @2  |     ===                |
        op aten::ones_like    @{thread}  |{where}            |
        op {NODE}             @2  |             =====      |
        """)
    assert timeline_of(path).regions.regions.count(Region.BACKWARD) == count


def test_our_own_ranges_win_over_the_engine(draw: Draw) -> None:
    path = draw(f"""
        step ProfilerStep#1                    @1   |================                |
        range dtbench::region backward         @1   |    ==========                  |
        op aten::mm                            @1   |===                             |
        op {NODE}                              @2   |     == ===                     |
        """)
    assert timeline_of(path).regions.regions == (Region.BACKWARD,)


def test_without_steps_no_region_is_made_up(draw: Draw) -> None:
    path = draw(f"""
        op aten::mm                            @1   |===                             |
        op {NODE}                              @1   |     == ===                     |
        """)
    assert timeline_of(path).regions.regions == ()


def test_a_foreign_call_blocks_where_its_thread_does_nothing_until_the_end(draw: Draw) -> None:
    path = draw("""
        range FSDP::all_gather (a)   @1 |==========          |
        op c10d::_allgather_base_    @1 | ==                 |
        op aten::mm                  @1 |           ===      |
        op gloo:all_gather           @2 |  =======           |
        """)
    assert only(path).is_async is False


@pytest.mark.parametrize(
    ("around", "after"),
    [
        ("===                 ", "           ===      "),  # the span around the call ends before
        ("==========          ", "     ==    ===      "),  # the thread computes meanwhile
    ],
)
def test_a_foreign_call_does_not_block_where_its_thread_goes_on(draw: Draw, around: str, after: str) -> None:
    path = draw(f"""
        op AccumulateGrad            @1 |{around}|
        op c10d::allreduce_          @1 | ==                 |
        op aten::mm                  @1 |{after}|
        op gloo:all_reduce           @2 |  =======           |
        """)
    assert only(path).is_async is True


def test_a_foreign_wait_of_its_own_means_that_the_call_did_not_block(draw: Draw) -> None:
    path = draw("""
        op _c10d_functional::all_reduce   @1 |====                |
        op c10d::allreduce_               @1 | ==                 |
        op _c10d_functional::wait_tensor  @1 |    =====           |
        op aten::mm                       @1 |           ===      |
        op gloo:all_reduce                @2 |  =======           |
        """)
    assert only(path).is_async is True


def test_in_other_peoples_gloo_traces_nothing_is_said_to_queue(draw: Draw) -> None:
    path = draw("""
        step ProfilerStep#1  @1 |====================|
        op aten::mm          @1 |==                  |
        op c10d::allreduce_  @1 |  = =               |
        op gloo:all_reduce   @2 |   ====aaaa         |
        """)
    timeline = timeline_of(path)
    causes = {part.cause for one in split_exposed(timeline, [9_000, 9_000]) for part in one.parts}
    assert len(timeline.collectives) == 2
    assert Cause.QUEUED not in causes


def test_in_other_peoples_gloo_traces_what_may_have_queued_gets_no_surer_cause(draw: Draw) -> None:
    path = draw("""
        step ProfilerStep#1  @1 |====================|
        op autograd::engine::evaluate_function: MmBackward0 @1 |========            |
        op aten::mm          @1 |==  ==              |
        op c10d::allreduce_  @1 |  = =               |
        op gloo:all_reduce   @2 |   =====aaaaaa      |
        """)
    timeline = timeline_of(path)
    last = split_exposed(timeline, [one.start_ns for one in timeline.collectives])[1]
    assert last.parts == (
        CausePart(Cause.BANDWIDTH, 2_000),
        CausePart(Cause.UNKNOWN, 4_000, missing=(MissingInput.QUEUE,)),  # from its issue to its start
    )


def test_a_span_of_gloo_that_nobody_issued_is_unknown_for_want_of_its_launch(draw: Draw) -> None:
    path = draw("""
        op aten::mm          @1 |===                 |
        op gloo:all_reduce   @2 |  =======           |
        """)
    (split,) = split_exposed(timeline_of(path), [None])
    (part,) = split.parts
    assert (part.cause, part.exposed_ns) == (Cause.UNKNOWN, 6_000)
    assert part.missing == (MissingInput.RANKS, MissingInput.LAUNCH)


def test_a_hidden_collective_has_no_cause(draw: Draw) -> None:
    path = draw("""
        op aten::mm          @1 |==========          |
        op gloo:all_reduce   @2 |  =======           |
        """)
    (split,) = split_exposed(timeline_of(path), [None])
    assert split.parts == ()
    assert split.cause is None


def test_a_trace_without_communication_has_no_causes(draw: Draw) -> None:
    path = draw("op aten::mm @1 |====|")
    assert split_exposed(timeline_of(path), []) == ()


def test_last_starts_of_other_collectives_are_refused(draw: Draw) -> None:
    path = draw("op aten::mm @1 |====|")
    with pytest.raises(ValueError, match="longer"):
        split_exposed(timeline_of(path), [1])
