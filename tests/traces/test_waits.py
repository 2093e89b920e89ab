"""Waits: time a consumer stood still, less what computed meanwhile."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Cause
from dtbench.comparison.comparison import Outcome
from dtbench.comparison.metrics import WAIT
from dtbench.comparison.run import compare_paths
from dtbench.report.words.trace_words import answer_lines
from dtbench.runs.cell.summarize_overlap import fill_waits
from dtbench.traces.job.explain import explain
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.means import average_purposes
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.rows.tables import PURPOSES
from dtbench.traces.who.collectives import Collective

BUCKET = "dtbench::collective group=0 seq={seq} op=all_reduce bytes=8 axis=replicate async=1 owner=bucket {bucket}"
GATHER = "dtbench::collective group=1 seq=1 op=all_gather bytes=8 axis=shard async=0 owner="
HOOK = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
NODE = "autograd::engine::evaluate_function: MmBackward0"


def collectives(path: Path) -> tuple[Collective, ...]:
    return analyze_trace(read_trace(path)).timeline.collectives


def waits(path: Path) -> dict[str, int | None]:
    (step,) = analyze_trace(read_trace(path)).steps
    return {str(purpose.purpose): purpose.wait_ns for purpose in step.purposes}


def test_a_labelled_wait_belongs_to_the_purpose_of_its_collective(draw: Callable[..., Path]) -> None:
    path = draw(f"""
        step ProfilerStep#1           @1 |==============|
        range dtbench::region forward @1 |==============|
        range FSDP::all_gather (0)    @1 |==========    |
        range {GATHER}                @1 | ==           |
        range dtbench::wait group=1 seq=1 @1 |    ======    |
        op aten::copy_                @1 |      =       |
        op aten::mm                   @1 |          === |
        range gloo:all_gather         @2 |  =======     |
        """)
    assert waits(path) == {"unshard": 5000}


def test_a_functional_wait_belongs_to_the_latest_functional_collective(draw: Callable[..., Path]) -> None:
    path = draw("""
        step ProfilerStep#1               @1 |====================|
        range dtbench::region forward     @1 |==========          |
        range dtbench::region optimizer   @1 |          ==========|
        op aten::mm                       @1 |=                  =|
        op _c10d_functional::all_reduce   @1 | ==        ==       |
        op c10d::allreduce_               @1 | =         =        |
        op _c10d_functional::wait_tensor  @1 |    ===        =    |
        range gloo:all_reduce             @2 |  =====     ====    | {"Input Dims": [[512]], "Input type": ["float"]}
        """)
    assert waits(path) == {"tensor": 3000, "other": 1000}


def test_ddp_waits_for_the_buffers_that_it_broadcasts_before_it_goes_on(draw: Callable[..., Path]) -> None:
    label = "dtbench::collective group=0 seq=1 op=broadcast bytes=8 axis=replicate async=1 owner="
    path = draw(f"""
        step ProfilerStep#1                    @1 |==============|
        range dtbench::region forward          @1 |==============|
        range DistributedDataParallel.forward  @1 |============= |
        range {label}                          @1 | ==           |
        range gloo:broadcast                   @2 |   =====      |
        op aten::mm                            @1 |         ==== |
        """)
    assert waits(path) == {"other": 5000}
    assert [split.by_cause for split in explain([analyze_trace(read_trace(path))]).analyses[0].splits] == [
        {Cause.NEEDED_AT_ONCE: 5000}
    ]


def test_ddps_wait_without_an_event_runs_from_the_last_node_to_the_end_of_each_bucket(
    draw: Callable[..., Path],
) -> None:
    path = draw(f"""
        step ProfilerStep#1            @1 |==========================|
        range DistributedDataParallel.forward @1 |=                         |
        range dtbench::region backward @1 |====================      |
        op {NODE}                      @1 |=== ====                  |
        op aten::mm                    @1 | ==  ==                   |
        range {BUCKET.format(seq=1, bucket=0)} @1 |  =                       |
        range {BUCKET.format(seq=2, bucket=1)} @1 |      =                   |
        range gloo:all_reduce          @2 |   =========              |
        range gloo:all_reduce          @3 |       ===========        |
        op aten::copy_                 @1 |            ==     ==     |
        """)
    # from 8 (end of the last node) to 12 (bucket 0) and, after its copy out, from 14 to 18 (bucket 1)
    assert waits(path) == {"grad_reduce": 8000}


def test_ddps_wait_ends_with_backward_even_where_gloos_span_is_closed_later(draw: Callable[..., Path]) -> None:
    path = draw(f"""
        step ProfilerStep#1            @1 |====================|
        range DistributedDataParallel.forward @1 |=                   |
        range dtbench::region backward @1 |==========          |
        op {NODE}                      @1 |=====               |
        op aten::mm                    @1 |===                 |
        range {BUCKET.format(seq=1, bucket=0)} @1 |    =               |
        range gloo:all_reduce          @2 |     ==========     |
        """)
    assert waits(path) == {"grad_reduce": 5000}


def test_hooks_of_a_loop_without_ddp_may_wait_where_nobody_sees(draw: Callable[..., Path]) -> None:
    """A future's wait leaves no event, and nothing in C++ waits at the end of backward."""
    path = draw(
        """
        step ProfilerStep#1            @1 |====================|
        range dtbench::region backward @1 |=================== |
        op {hook}                      @1 | =======            |
        range {label}                  @1 |  =                 |
        op {hook}                      @1 |         ========   |
        op aten::mm                    @1 |         =          |
        range gloo:all_reduce          @2 |   =====            |
        """.format(hook=HOOK, label=BUCKET.format(seq=1, bucket="").removesuffix("bucket "))
    )
    assert waits(path) == {"grad_reduce": None}
    (line,) = (line for line in answer_lines(analyze_traces([path])) if line.startswith("gradient wait"))
    assert line == "gradient wait n/a: not every consumer of it can be seen in the traces"


def test_fsdps_synchronous_wait_is_seen_in_a_trace_without_our_ranges(draw: Callable[..., Path]) -> None:
    path = draw("""
        step ProfilerStep#1           @1 |==============|
        range FSDP::all_gather (0)    @1 |=========     |
        op c10d::_allgather_base_     @1 | ==           | {"Input Dims": [[4], [2]], "Input type": ["float", "float"]}
        op aten::mm                   @1 |          === |
        range gloo:all_gather         @2 |  ======      | {"Input Dims": [[2]], "Input type": ["float"]}
        """)
    assert waits(path) == {"unshard": 5000}


def test_a_synchronous_call_is_waited_for_until_the_collective_ends(draw: Callable[..., Path]) -> None:
    drawing = """
        step ProfilerStep#1           @1 |==============|
        op aten::mm                   @1 |          ==  |
        op c10d::allreduce_           @1 | ==           | {{"Concrete Inputs": ["", "{is_async}", "-1"]}}
        range gloo:all_reduce         @2 |  ======      |
        """
    assert waits(draw(drawing.format(is_async="False"))) == {"other": 5000}
    assert waits(draw(drawing.format(is_async="True"))) == {"other": None}  # its `Work.wait` leaves no event


def test_nobody_is_seen_to_wait_for_a_blocking_collective_that_was_not_seen_to_run(draw: Callable[..., Path]) -> None:
    (one,) = collectives(path := draw("""
        step ProfilerStep#1           @1 |==============|
        op aten::mm                   @1 |          ==  |
        op c10d::barrier              @1 | ==           | {"Concrete Inputs": ["", "", "-1", "False"]}
        """))  # fmt: skip
    assert (one.first_wait_ns, one.is_wait_seen) == (None, False)
    assert waits(path) == {"other": None}


def test_fsdp1s_collectives_are_known_by_its_ranges_and_have_no_owner(draw: Callable[..., Path]) -> None:
    gather, reduce, replicas = collectives(
        draw(f"""
        step ProfilerStep#1                                   @1 |====================|
        op aten::mm                                           @1 |                   =|
        range FullyShardedDataParallel._pre_forward           @1 |=====               |
        op c10d::_allgather_base_                             @1 | =                  |
        op {HOOK}                                             @1 |      ============  |
        range FullyShardedDataParallel._post_backward_hook    @1 |       ===========  |
        op c10d::_reduce_scatter_base_                        @1 |        ==          |
        op c10d::allreduce_                                   @1 |             ==     |
        range gloo:all_gather                                 @2 |  ==                |
        range gloo:all_reduce                                 @2 |          ==        |
        range gloo:all_reduce                                 @3 |               ==   |
        """)
    )
    assert [str(one.purpose) for one in (gather, reduce, replicas)] == ["unshard", "grad_reduce", "grad_reduce"]
    assert {one.owner for one in (gather, reduce, replicas)} == {""}
    assert [one.ready_ns for one in (gather, reduce, replicas)] == [1000, 8000, 13000]


def test_each_collective_knows_its_own_first_wait(draw: Callable[..., Path]) -> None:
    first, second = collectives(
        draw(f"""
        step ProfilerStep#1               @1 |====================|
        range dtbench::region forward     @1 |====================|
        op aten::mm                       @1 |      =             |
        range {GATHER}                    @1 | =                  |
        range {GATHER.replace("seq=1", "seq=2")} @1 |   =                |
        range dtbench::wait group=1 seq=2 @1 |         =====      |
        range dtbench::wait group=1 seq=1 @1 |        =     =     |
        range gloo:all_gather             @2 |  =====             |
        range gloo:all_gather             @3 |    ==========      |
        """)
    )
    assert (first.first_wait_ns, first.first_wait_end_ns) == (8000, 9000)
    assert (second.first_wait_ns, second.first_wait_end_ns) == (9000, 14000)


def test_a_functional_wait_is_for_the_oldest_collective_with_that_output(draw: Callable[..., Path]) -> None:
    large, small = collectives(
        draw("""
        step ProfilerStep#1               @1 |====================|
        op aten::mm                       @1 |=                  =|
        op _c10d_functional::all_reduce   @1 | ==                 |
        op c10d::allreduce_               @1 | =                  | {"Input Dims": [[8]], "Input type": ["float"]}
        op _c10d_functional::all_reduce   @1 |    ==              |
        op c10d::allreduce_               @1 |    =               | {"Input Dims": [[2]], "Input type": ["float"]}
        op _c10d_functional::wait_tensor  @1 |        ===         | {"Input Dims": [[8]], "Input type": ["float"]}
        op _c10d_functional::wait_tensor  @1 |            ==      | {"Input Dims": [[2]], "Input type": ["float"]}
        range gloo:all_reduce             @2 |  =========         | {"Input Dims": [[8]], "Input type": ["float"]}
        range gloo:all_reduce             @3 |     =========      | {"Input Dims": [[2]], "Input type": ["float"]}
        """)
    )
    assert (large.first_wait_ns, large.first_wait_end_ns) == (8000, 11000)
    assert (small.first_wait_ns, small.first_wait_end_ns) == (12000, 14000)


def test_a_bucket_that_ended_before_backward_did_was_waited_for_at_its_end_for_no_time(
    draw: Callable[..., Path],
) -> None:
    (bucket,) = collectives(
        draw(f"""
        step ProfilerStep#1            @1 |==========|
        range DistributedDataParallel.forward @1 |=         |
        range dtbench::region backward @1 |==========|
        op {NODE}                      @1 |========  |
        op aten::mm                    @1 | == ====  |
        range {BUCKET.format(seq=1, bucket=0)} @1 |  =       |
        range gloo:all_reduce          @2 |   ==     |
        """)
    )
    assert (bucket.first_wait_ns, bucket.first_wait_end_ns) == (8000, 8000)


def test_a_bucket_is_ready_when_the_last_compute_before_its_issue_ends(
    draw: Callable[..., Path],
) -> None:
    first, second = collectives(
        draw(f"""
        step ProfilerStep#1            @1 |====================|
        range dtbench::region backward @1 |====================|
        op {HOOK}                      @1 | ============       |
        op torch::autograd::AccumulateGrad @1 |  ==                |
        op aten::mul                   @1 |    ==              |
        range {BUCKET.format(seq=1, bucket=0)} @1 |       ==           |
        range {BUCKET.format(seq=2, bucket=1)} @1 |          ==        |
        range gloo:all_reduce          @2 |        ====        |
        range gloo:all_reduce          @3 |           ====     |
        """)
    )
    assert (first.ready_ns, second.ready_ns) == (6000, 6000)


def test_an_unshard_could_have_been_issued_when_the_unit_before_began_to_compute(draw: Callable[..., Path]) -> None:
    second_gather = GATHER.replace("seq=1", "seq=2")
    third_gather = GATHER.replace("seq=1", "seq=3")
    first, second, third = collectives(
        draw(f"""
        step ProfilerStep#1               @1 |==============================|
        range dtbench::region forward     @1 |====================          |
        range dtbench::region backward    @1 |                    ==========|
        range {GATHER}                    @1 | =                            |
        range dtbench::wait group=1 seq=1 @1 |  ===                         |
        op aten::mm                       @1 |      ====                    |
        range {second_gather}             @1 |          =                   |
        range dtbench::wait group=1 seq=2 @1 |           ===                |
        range {third_gather}              @1 |                      =       |
        range dtbench::wait group=1 seq=3 @1 |                       ==     |
        range gloo:all_gather             @2 |  ===      ===         ==     |
        """)
    )
    assert (first.ready_ns, second.ready_ns, third.ready_ns) == (1000, 6000, 10000)  # the first: at once


def test_on_a_device_the_gap_that_a_collective_closes_is_a_wait(draw: Callable[..., Path]) -> None:
    path = draw("""
        step ProfilerStep#1               @1   |====================|
        range FSDP::all_gather (0)        @1   |  =                 |
        call cudaLaunchKernel             @1   |a.b.c               |
        kernel gemm                       @s7  |   aaa      ccc     |
        kernel ncclDevKernel_AllGather    @s20 |    bbbbbbb         |
        """)
    assert waits(path) == {"unshard": 5000}  # from 6, where the compute stream ran dry, to 11


def test_a_gap_before_a_kernel_that_was_launched_late_is_the_hosts_not_a_wait(draw: Callable[..., Path]) -> None:
    path = draw("""
        step ProfilerStep#1               @1   |====================|
        range FSDP::all_gather (0)        @1   |  =                 |
        call cudaLaunchKernel             @1   |a.b........c        |
        kernel gemm                       @s7  |   aaa      ccc     |
        kernel ncclDevKernel_AllGather    @s20 |    bbbbbbb         |
        """)
    assert waits(path) == {"unshard": 0}


def test_a_wait_begins_no_earlier_than_the_launch_of_the_kernel_that_waits(draw: Callable[..., Path]) -> None:
    path = draw("""
        step ProfilerStep#1               @1   |====================|
        range FSDP::all_gather (0)        @1   |  =                 |
        call cudaLaunchKernel             @1   |a.b......c          |
        kernel gemm                       @s7  |   aaa      ccc     |
        kernel ncclDevKernel_AllGather    @s20 |    bbbbbbb         |
        """)
    assert waits(path) == {"unshard": 2000}


@pytest.mark.parametrize(
    ("beside", "words"), [("    dd", ", 50.0 % of it while other streams computed"), ("dd    ", "")]
)
def test_a_wait_of_the_main_stream_during_which_others_computed_is_said_to_be_one(
    draw: Callable[..., Path], beside: str, words: str
) -> None:
    """A branch of the model runs backward on a stream of its own while the main one waits for gradients."""
    said = '{"Collective name": "allreduce", "Process Group Name": "0", "Group size": 2, "Seq": 1}'
    path = draw(f"""
        step ProfilerStep#1                                     @1 |====================|
        range DistributedDataParallel.forward                   @1 |=                   |
        op autograd::engine::evaluate_function: AccumulateGrad  @1 |  ==                |
        op c10d::allreduce_                                     @1 |  =                 |
        call cudaLaunchKernel                                   @1 |a bdc               |
        kernel gemm                                             @7 |  aaaaaa            |
        kernel ncclDevKernel_AllReduce                          @8 |        bbbb        | {said}
        kernel gemm                                             @9 |    {beside}          |
        kernel adam                                             @7 |            cccc    |
        """)
    (line,) = (line for line in answer_lines(analyze_traces([path])) if line.startswith("gradient wait"))
    assert line.endswith(f"%){words}")


def test_no_wait_is_zero_where_a_silent_host_may_have_waited_for_one_of_several(draw: Callable[..., Path]) -> None:
    """The thread of the backward pass waits for the last bucket; the one that launches the optimizer shows nothing."""
    path = draw("""
        step ProfilerStep#1              @1   |==========================================================|
        op c10d::allreduce_              @2   | =  =                                                     |
        call cudaLaunchKernel            @2   |ab cd                                                     |
        call cudaEventSynchronize        @2   |        ============================================      |
        call cudaLaunchKernel            @1   |                                                     e    |
        kernel gemm                      @s7  |aaa                                                       |
        kernel gemm                      @s7  |   cccccccccc                                             |
        kernel gemm                      @s7  |                                                      ee  |
        kernel ncclDevKernel_AllReduce   @s20 |   bbbbbb                                                 |
        kernel ncclDevKernel_AllReduce   @s20 |          dddddddddddddddddddddddddddddddddddddddddd      |
        """)
    one = analyze_trace(read_trace(path))
    assert [collective.is_wait_seen for collective in one.collectives] == [True, False]
    assert waits(path) == {"other": None}
    gaps = one.accounts.steps[0].gaps
    assert gaps is not None
    assert gaps.comm_wait_ns is None


RECORDED = Path(__file__).parent / "recorded" / "two_ranks_one_gpu"


def test_a_wait_that_is_seen_in_part_is_a_mean_over_all_steps_and_said_to_be_at_least() -> None:
    """In a step of the late rank none was seen, and not every consumer can be: a mean without it is of long ones."""
    traces = analyze_traces([RECORDED / "fsdp2"])
    rows = [row for one in traces.analyses for step in one.steps for row in step.purposes if row.purpose == "unshard"]
    assert [row.is_wait_least for row in rows if row.wait_ns is None] == [True]
    (mean,) = (row for row in average_purposes(traces.analyses) if row.purpose == "unshard")
    assert mean.is_wait_least
    assert mean.wait_part is None
    assert mean.wait_ns == round(sum(row.wait_ns or 0 for row in rows) / len(rows))
    assert mean.exposed_ns is not None
    assert mean.wait_ns <= mean.exposed_ns
    (line,) = (line for line in answer_lines(traces) if line.startswith("unshard wait"))
    assert line.startswith("unshard wait at least ")
    table = PURPOSES.tabulate(traces.analyses)
    waits_ns = fill_waits(table[table["purpose"] == "unshard"])
    assert round(waits_ns.sum() / len(waits_ns)) == mean.wait_ns


def test_a_wait_that_is_seen_in_part_is_no_difference(tmp_path: Path) -> None:
    changed = compare_paths(str(RECORDED / "fsdp2"), str(RECORDED / "fsdp2_tp"), results=tmp_path, force=True)
    (row,) = (one for one in changed.metrics if (one.metric, one.subject) == (WAIT, "unshard"))
    assert row.outcome is Outcome.UNKNOWN


def test_beside_a_wait_that_is_seen_what_is_not_seen_is_no_zero(draw: Callable[..., Path]) -> None:
    """The main stream waits for the first bucket; for the second a thread may, which shows nothing of it."""
    path = draw("""
        step ProfilerStep#1              @1 |==============================================================|
        op c10d::allreduce_              @2 | =       =                                                    |
        call cudaLaunchKernel            @2 |ab       d                                                    |
        call cudaStreamWaitEvent         @2 |   =                                                          |
        call cudaLaunchKernel            @2 |     c                                                        |
        call cudaEventSynchronize        @2 |            ============================================      |
        call cudaLaunchKernel            @1 |                                                         e    |
        kernel gemm                      @s7|aa                                                            |
        kernel gemm                      @s7|         cccccc                                               |
        kernel gemm                      @s7|                                                          ee  |
        kernel ncclDevKernel_AllReduce   @s20|  bbbbbbb                                                    |
        kernel ncclDevKernel_AllReduce   @s20|              dddddddddddddddddddddddddddddddddddddddddd     |
        """)
    (step,) = analyze_trace(read_trace(path)).steps
    assert [(row.wait_ns is not None, row.is_wait_least) for row in step.purposes] == [(True, True)]
