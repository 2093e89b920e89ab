"""Collectives that were launched and whose kernels a device trace does not have."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

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


SAID = '{"Collective name": "%s", "Process Group Name": "%s", "Group size": %d}'


@pytest.mark.parametrize(
    ("first", "second", "kernels", "count"),
    [
        (("allreduce", "0", 2), ("allreduce", "0", 2), "aa", 1),
        (("allreduce", "0", 1), ("allreduce", "0", 1), "aa", 0),
        (("allreduce", "0", 2), ("allreduce", "1", 2), "aa", 0),
        (("allreduce", "0", 2), ("wait", "0", 2), "aa", 0),
        (("allreduce", "0", 2), ("allreduce", "0", 2), "aa xx", 0),
        (("allreduce", "0", 2), ("allreduce", "0", 2), "aa cc", 0),
    ],
    ids=["lost", "one rank", "another group", "a wait", "its launch alone is lost", "launched together at the end"],
)
def test_a_record_without_launch_and_kernel_is_lost_where_others_like_it_have_both(
    draw: Callable[..., Path], first: tuple[str, str, int], second: tuple[str, str, int], kernels: str, count: int
) -> None:
    path = draw(f"""
        op record_param_comms            @1  | ====              | {SAID % first}
        op record_param_comms            @1  |       ====        | {SAID % second}
        call cudaLaunchKernel            @1  |  a         c      |
        kernel ncclDevKernel_AllReduce   @s9 |          {kernels:9}|
        """)
    assert unseen(path) == (Launch(None, "0", None, 7_000, 7_000),) * count


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "fsdp2_tp"])
def test_what_is_lost_is_counted_alike_with_and_without_its_launches(recorded: Path, tmp_path: Path, name: str) -> None:
    content = json.loads(gzip.decompress((recorded / "two_ranks_one_gpu" / name / "rank0.json.gz").read_bytes()))
    events = content["traceEvents"]
    kernels = [one for one in events if one.get("name", "").startswith("ncclDevKernel")][1:9:2]
    ids = {one["args"]["correlation"] for one in kernels}
    for keeps_launches in (True, False):
        content["traceEvents"] = [
            one
            for one in events
            if one not in kernels
            and (keeps_launches or one.get("cat") == "kernel" or one.get("args", {}).get("correlation") not in ids)
        ]
        path = tmp_path / "rank0.json"
        path.write_text(json.dumps(content))
        assert len(unseen(path)) == 4
