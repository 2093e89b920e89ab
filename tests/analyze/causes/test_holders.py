"""Who held a collective up: another one on its stream, or one of its process group on any stream."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.analyze.causes.holders import Holders, find_holders
from dtbench.analyze.reader import read_trace
from dtbench.analyze.trace_analysis import analyze_trace

SAID = '{"Collective name": "%s", "Process Group Name": "%s", "dtype": "Float"}'
NOBODY = Holders(0, None)
HELD = Holders(6000, 0)  # from its issue to its start


@pytest.mark.parametrize(
    ("streams", "groups", "operations", "second"),
    [
        (("20", "20"), ("0", "0"), ("allreduce", "allgather"), HELD),
        (("20", "21"), ("0", "0"), ("allreduce", "allgather"), HELD),
        (("20", "20"), ("0", "1"), ("allreduce", "allgather"), HELD),
        (("20", "21"), ("0", "1"), ("allreduce", "allgather"), NOBODY),
        (("20", "21"), ("0", "0"), ("send", "recv"), NOBODY),
    ],
    ids=["stream and group", "group", "stream", "neither", "a pair's own communicator"],
)
def test_a_stream_and_a_communicator_serve_one_after_another(
    draw: Callable[..., Path],
    streams: tuple[str, str],
    groups: tuple[str, str],
    operations: tuple[str, str],
    second: Holders,
) -> None:
    said = [SAID % pair for pair in zip(operations, groups, strict=True)]
    path = draw(f"""
        call cudaLaunchKernel     @1            |c a   b              |
        kernel gemm               @7            | ccc                 |
        kernel ncclDevKernel_One  @{streams[0]} |    aaaaaaaa         | {said[0]}
        kernel ncclDevKernel_Two  @{streams[1]} |            bbbb     | {said[1]}
        """)
    timeline = analyze_trace(read_trace(path)).timeline
    assert [one.issue_ns for one in timeline.collectives] == [2000, 6000]
    first, found = find_holders(timeline)
    assert first == NOBODY
    assert found == second


def test_what_holds_both_the_stream_and_the_communicator_counts_once(draw: Callable[..., Path]) -> None:
    said = SAID % ("allreduce", "0")
    path = draw(f"""
        call cudaLaunchKernel       @1  |abcd                 |
        kernel gemm                 @7  |                  ddd|
        kernel ncclDevKernel_One    @20 |    aaaa             | {said}
        kernel ncclDevKernel_Two    @21 |        bbbbb        | {said}
        kernel ncclDevKernel_Three  @20 |             ccc     | {said}
        """)
    assert find_holders(analyze_trace(read_trace(path)).timeline)[2] == Holders(9000, 1)
