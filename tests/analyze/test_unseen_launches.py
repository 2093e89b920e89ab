"""Collectives that were launched and whose kernels a device trace does not have."""

from collections.abc import Callable
from pathlib import Path

from dtbench.analyze.collectives import Launch
from dtbench.analyze.reader import read_trace
from dtbench.analyze.trace_analysis import analyze_trace
from dtbench.vocabulary import Operation


def unseen(path: Path) -> tuple[Launch, ...]:
    return analyze_trace(read_trace(path)).timeline.unseen


def test_a_launch_whose_kernel_is_missing_says_what_it_was(draw: Callable[..., Path]) -> None:
    path = draw("""
        op record_param_comms            @1  | ====   ====      | {"Collective name": "allreduce", "Process Group Name": "7", "Seq": 12}
        range nccl:all_reduce            @1  |  ==     ==       |
        call cudaLaunchKernel            @1  |  a      bb       |
        kernel ncclDevKernel_AllReduce   @s9 |     aaaa         |
        """)  # fmt: skip  # noqa: E501
    assert unseen(path) == (Launch(Operation.ALL_REDUCE, "7", 12, 9_000, 11_000),)


def test_only_collectives_count_and_only_without_any_kernel(draw: Callable[..., Path]) -> None:
    path = draw("""
        op aten::mm                      @1  |==                |
        range nccl:all_gather            @1  |   ======         |
        call cudaLaunchKernel            @1  |a  b  c           |
        call cudaEventRecord             @1  |    d             |
        kernel ncclDevKernel_AllGather   @s9 |         ccc      |
        """)
    assert unseen(path) == ()


def test_where_every_kernel_is_there_nothing_is_unseen(draw: Callable[..., Path]) -> None:
    path = draw("""
        range nccl:all_reduce            @1  | ====   ====      |
        call cudaLaunchKernel            @1  |  a      b        |
        kernel ncclDevKernel_AllReduce   @s9 |     aaaa  bb     |
        """)
    assert unseen(path) == ()
