"""The emulated link in device traces: its spins are the collectives, what moved the data is counted once with them."""

from collections.abc import Callable
from pathlib import Path

from dtbench.base.vocabulary import Axis, Cause, Operation, Purpose, Region
from dtbench.traces.host.nesting import find_nesting
from dtbench.traces.job.explain import explain
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.spans.work import find_work
from dtbench.traces.who.collectives import Collective

LABEL = "dtbench::collective group=0 seq={seq} op={op} bytes=4096 axis=replicate async=1 owner={owner}"
FIRST = LABEL.format(seq=1, op="all_reduce", owner="bucket 0")
SECOND = LABEL.format(seq=2, op="all_reduce", owner="bucket 1")
SPIN = "at::cuda::(anonymous namespace)::spin_kernel(long)"
SAID = '{"Collective name": "allreduce", "Process Group Name": "0", "Seq": 41, "dtype": "Float", "Group size": 2}'


def analyze(path: Path) -> TraceAnalysis:
    return analyze_trace(read_trace(path))


def spans(collectives: tuple[Collective, ...]) -> list[tuple[int, int, str]]:
    return [(one.start_ns // 1000, one.end_ns // 1000, one.lane) for one in collectives]


def test_a_collective_lies_on_its_lane_for_as_long_as_the_link_serves_it_and_nccls_kernel_is_not_counted_beside(
    draw: Callable[..., Path],
) -> None:
    path = draw(f"""
        step ProfilerStep#1               @1   |====================|
        range dtbench::region backward    @1   |==========          |
        op aten::mm                       @1   |==                  |
        call cudaLaunchKernel             @1   |d                   |
        range {FIRST}                     @1   |  ====              |
        range dtbench::link group=0 seq=1 begun_ns=0 @1   |  ==                |
        call cudaLaunchKernel             @1   |  ab                |
        op nccl:all_reduce                @1   |    =               |
        call cudaLaunchKernelExC          @1   |    c               |
        kernel gemm                       @s7  | ddddddd            |
        kernel {SPIN}                     @s20 |      aaaaaaaa      |
        kernel ncclDevKernel_AllReduce    @s9  |      cc            | {SAID}
        """)
    one = analyze(path)
    assert spans(one.collectives) == [(6, 14, "0/s20")]
    assert one.steps[0].overlap.comm_ns == 8000
    assert one.steps[0].overlap.hidden_comm_ns == 2000
    assert one.steps[0].overlap.compute_ns == 7000
    (found,) = one.collectives
    assert (found.group, found.seq, found.operation, found.size_bytes) == ("0", 1, Operation.ALL_REDUCE, 4096)
    assert (found.axis, found.owner, found.is_async) == (Axis.REPLICATE, "bucket 0", True)
    assert (found.region, found.purpose) == (Region.BACKWARD, Purpose.GRAD_REDUCE)
    assert (found.dtype, found.group_size) == ("Float", 2), "what NCCL says of it is kept"
    trace = read_trace(path)
    assert set(find_work(trace, find_nesting(trace)).names) == {"gemm"}
    assert not one.unknown_names


def test_a_backend_that_ends_after_the_link_makes_the_collective_longer_and_one_that_began_before_does_not(
    draw: Callable[..., Path],
) -> None:
    one = analyze(
        draw(f"""
        range {FIRST}                     @1   |====                |
        range dtbench::link group=0 seq=1 begun_ns=0 @1   |==                  |
        call cudaLaunchKernel             @1   | a  b               |
        call cudaLaunchKernelExC          @1   |  c  d              |
        range {SECOND}                    @1   |    ===             |
        range dtbench::link group=0 seq=2 begun_ns=0 @1   |    =               |
        kernel {SPIN}                     @s20 |    aaaa    bbbb    |
        kernel ncclDevKernel_AllReduce    @s9  |    ccccccccdd      |
        """)
    )
    assert spans(one.collectives) == [(4, 12, "0/s20"), (12, 16, "0/s20")]
    assert (one.whole.comm_ns, one.whole.idle_ns) == (12000, 0)


def test_what_is_queued_on_a_lane_is_seen_as_queued(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw(f"""
        step ProfilerStep#1               @1   |=========================|
        range dtbench::region backward    @1   |=========================|
        op aten::mm                       @1   |=                        |
        call cudaLaunchKernel             @1   |m                        |
        range {FIRST}                     @1   |  ====                   |
        range dtbench::link group=0 seq=1 begun_ns=0 @1   |  ==                     |
        call cudaLaunchKernel             @1   |  a    b                 |
        call cudaLaunchKernelExC          @1   |    c    d               |
        range {SECOND}                    @1   |       ====              |
        range dtbench::link group=0 seq=2 begun_ns=0 @1   |       ==                |
        kernel gemm                       @s7  | mm                      |
        kernel {SPIN}                     @s20 |   aaaaaaaaaabbbbbbbbbb  |
        kernel ncclDevKernel_AllReduce    @s9  |     c    d              |
        """)
    )
    assert spans(one.collectives) == [(3, 13, "0/s20"), (13, 23, "0/s20")]
    (explained,) = explain([one]).analyses
    assert [split.by_cause.get(Cause.QUEUED) for split in explained.splits] == [None, 6000]
    assert explained.splits[1].parts[0].behind == 0


def test_a_block_that_spins_for_its_time_is_compute_beside_the_links_spin(draw: Callable[..., Path]) -> None:
    one = analyze(
        draw(f"""
        step ProfilerStep#1                      @1   |==============|
        range dtbench::timed layers.0 backward   @1   |==            |
        call cudaLaunchKernel                    @1   | m            |
        range {FIRST}                            @1   |   ===        |
        range dtbench::link group=0 seq=1 begun_ns=0 @1   |   ==         |
        call cudaLaunchKernel                    @1   |   a          |
        kernel {SPIN}                            @s7  |  mmmmmm      |
        kernel {SPIN}                            @s20 |    aaaaaaaa  |
        """)
    )
    assert one.steps[0].overlap.compute_ns == 6000
    assert (one.steps[0].overlap.comm_ns, one.steps[0].overlap.hidden_comm_ns) == (8000, 4000)
    assert spans(one.collectives) == [(4, 12, "0/s20")]


def test_nccls_kernels_without_a_link_are_collectives_as_ever(draw: Callable[..., Path]) -> None:
    alone = LABEL.format(seq=3, op="barrier", owner="")
    one = analyze(
        draw(f"""
        range {FIRST}                     @1   |====                |
        range dtbench::link group=0 seq=1 begun_ns=0 @1   |==                  |
        call cudaLaunchKernel             @1   | a                  |
        range {alone}                     @1   |      ===           |
        call cudaLaunchKernelExC          @1   |       d            |
        kernel {SPIN}                     @s20 |    aaaa            |
        kernel ncclDevKernel_AllReduce    @s9  |         ddd        |
        """)
    )
    assert spans(one.collectives) == [(4, 8, "0/s20"), (9, 12, "0/s9")]
    assert [found.operation for found in one.collectives] == [Operation.ALL_REDUCE, Operation.BARRIER]


def test_a_bracket_is_read_as_its_collectives(draw: Callable[..., Path]) -> None:
    """NCCL launches one kernel for all, in the first one's range."""
    one = analyze(
        draw(f"""
        range {FIRST}                     @1   |====                |
        range dtbench::link group=0 seq=1 begun_ns=0 @1   |=                   |
        call cudaLaunchKernel             @1   |a   b               |
        call cudaLaunchKernelExC          @1   |  c                 |
        range {SECOND}                    @1   |    ==              |
        range dtbench::link group=0 seq=2 begun_ns=0 @1   |    =               |
        kernel {SPIN}                     @s20 |    aaaabbbb        |
        kernel ncclDevKernel_SendRecv     @s9  |     cc             |
        """)
    )
    assert spans(one.collectives) == [(4, 8, "0/s20"), (8, 12, "0/s20")]
    assert one.whole.comm_ns == 8000
