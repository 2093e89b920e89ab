"""Collectives that were launched and whose kernels a device trace does not have."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Operation
from dtbench.report.words.trace_words import answer_lines, remark_lines
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.notes.lacking import NotSeenToRun
from dtbench.traces.notes.note import pick_notes
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.who.collectives import Launch


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


@pytest.mark.parametrize(
    ("said", "more", "count"),
    [
        ({"Group size": 2}, "range nccl:all_reduce @1 |  ==      |", 1),
        ({"Group size": 2}, "range user @1 |==        |", 0),
        ({"Group size": 1}, "range nccl:all_reduce @1 |  ==      |", 0),
        ({"Group size": 2}, "range nccl:all_reduce @1 |  ==      |\ncall cudaMemcpyAsync @1 |  a |", 0),
        ({"Group size": 2}, "range nccl:all_reduce @1 |  ==      |\nrange nccl:coalesced @1 |       == |", 1),
        ({}, "range nccl:all_reduce @1 |  ==      |", 1),
    ],
    ids=[
        "lost",
        "another backend",
        "one rank",
        "a copy carries it out",
        "coalesced: their end is lost",
        "size not told",
    ],
)
def test_a_record_that_its_library_began_is_lost_though_no_other_is_there(
    draw: Callable[..., Path], said: dict[str, int], more: str, count: int
) -> None:
    path = draw(
        f"""
        op record_param_comms            @1  | ====    | {json.dumps({"Collective name": "allreduce", **said})}
        {more}
        call cudaLaunchKernel            @1  |m        |
        kernel gemm                      @s7 | m       |
        copy Memcpy DtoD                 @s9 |    {"a" if "cpy" in more else "="}    |
        """,
        distributedInfo={"rank": 0, "world_size": 2},
    )
    assert len(unseen(path)) == count


def test_what_is_coalesced_is_not_lost_where_its_end_launched(draw: Callable[..., Path]) -> None:
    """Two all-reduces coalesced; another, waited for before those began, is lost."""
    reduced = SAID % ("allreduce", "0", 2)
    path = draw(f"""
        op record_param_comms            @1  | ===       ===  ===            | {reduced}
        op record_param_comms            @1  |      =                        | {SAID % ("wait", "0", 1)}
        range nccl:all_reduce            @1  |  =         =    =             |
        range nccl:coalesced             @1  |                    ====       |
        call cudaLaunchKernel            @1  |                     a         |
        kernel ncclDevKernel_AllReduce   @s9 |                          aaaa |
        """)
    assert [launch.start_ns for launch in unseen(path)] == [1_000]


def test_a_rank_of_one_group_of_untold_size_misses_nothing_where_it_is_alone(draw: Callable[..., Path]) -> None:
    drawing = """
        op record_param_comms            @1  | ====    |
        range nccl:all_reduce            @1  |  ==     |
        call cudaLaunchKernel            @1  |m        |
        kernel gemm                      @s7 | m       |
        """
    for ranks, count in ((1, 0), (2, 1)):
        assert len(unseen(draw(drawing, distributedInfo={"rank": 0, "world_size": ranks}))) == count


def lose(path: Path, into: Path, is_lost: Callable[[list[str]], list[str]], *, keeps_launches: bool) -> Path:
    """Write a recorded trace without some kernels of NCCL: of all their names in order, those that are chosen."""
    content = json.loads(gzip.decompress(path.read_bytes()))
    events = content["traceEvents"]
    kernels = [one for one in events if one.get("name", "").startswith("ncclDevKernel")]
    lost = is_lost([f"{one['name']} {place}" for place, one in enumerate(kernels)])
    kernels = [one for place, one in enumerate(kernels) if f"{one['name']} {place}" in lost]
    ids = {one["args"]["correlation"] for one in kernels}
    content["traceEvents"] = [
        one
        for one in events
        if one not in kernels
        and (keeps_launches or one.get("cat") == "kernel" or one.get("args", {}).get("correlation") not in ids)
    ]
    into.write_text(json.dumps(content))
    return into


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "fsdp2_tp"])
@pytest.mark.parametrize("keeps_launches", [True, False])
def test_what_is_lost_is_counted_alike_with_and_without_its_launches(
    recorded: Path, tmp_path: Path, name: str, *, keeps_launches: bool
) -> None:
    path = recorded / "two_ranks_one_gpu" / name / "rank0.json.gz"
    left = lose(path, tmp_path / "rank0.json", lambda names: names[1:9:2], keeps_launches=keeps_launches)
    assert len(unseen(left)) == 4


@pytest.mark.parametrize(
    ("name", "kind", "count"),
    [
        ("ddp", "", 18),
        ("fsdp2", "", 36),
        ("sendrecv", "", 3),
        ("fsdp2", "ReduceScatter", 12),
        ("fsdp2", "AllReduce", 3),
    ],
)
def test_no_zero_of_communication_is_exact_where_all_of_it_or_all_of_a_kind_is_lost_with_its_launches(
    recorded: Path, tmp_path: Path, name: str, kind: str, count: int
) -> None:
    """In every step: nothing is left in the trace that any other could be held against."""
    left = lose(
        recorded / "two_ranks_one_gpu" / name / "rank1.json.gz",
        tmp_path / "rank1.json",
        lambda names: [one for one in names if kind in one],
        keeps_launches=False,
    )
    traces = analyze_traces([left])
    (one,) = traces.analyses
    assert one.unseen == count
    for overlap in (*(step.overlap for step in one.steps), one.whole):
        assert overlap.is_least
        assert (overlap.exposed_comm_ns is None) is (not kind)
        assert overlap.comm_ns != 0
    (note,) = pick_notes(traces.notes, NotSeenToRun)
    assert (note.ranks, note.collectives) == ((1,), count)


@pytest.mark.parametrize(("kernels", "seen_ns"), [("==   ===", []), ("==", [9_000]), ("", [3_000, 9_000])])
def test_a_kernel_without_an_id_may_be_that_of_any_launch_before_it(
    draw: Callable[..., Path], kernels: str, seen_ns: list[int]
) -> None:
    """The kernels are there; what is missing is the ids."""
    path = draw(f"""
        range nccl:all_reduce            @1  | ====   ====      |
        call cudaLaunchKernel            @1  |a  b     c        |
        kernel gemm                      @s7 | aa               |
        kernel ncclDevKernel_AllReduce   @s9 |     {kernels:13}|
        """)
    assert [launch.start_ns for launch in unseen(path)] == seen_ns


def test_kernels_without_ids_are_said_to_lack_those_and_to_be_there(draw: Callable[..., Path]) -> None:
    traces = analyze_traces(
        [
            draw("""
        step ProfilerStep#1              @1  |===================|
        range nccl:all_reduce            @1  | ====   ====       |
        call cudaLaunchKernel            @1  |a  b    c   d      |
        kernel gemm                      @s7 | aa  ====       dd |
        kernel ncclDevKernel_AllReduce   @s9 |     ==   ===      |
        """)
        ]
    )
    (one,) = traces.analyses
    assert (one.unseen, one.lost.kernels, one.uncorrelated.without_id) == (0, 0, 3)
    assert one.steps[0].overlap.comm_ns == 5_000
    said = "\n".join((*answer_lines(traces), *remark_lines(traces)))
    assert "3 that carry no id of their launch" in said
    assert "at least" not in said
    assert "not seen to run" not in said
    assert "not in the trace" not in said


def test_what_was_waited_where_a_collective_is_lost_is_a_bound(draw: Callable[..., Path]) -> None:
    one = analyze_trace(
        read_trace(
            draw("""
        step ProfilerStep#1              @1  |==================================================|
        range nccl:all_reduce            @1  | = =                                              |
        call cudaLaunchKernel            @1  |abcde                                             |
        kernel gemm                      @s7 |     aa    c                                   e  |
        kernel ncclDevKernel_AllReduce   @s9 |       bbbb                                       |
        """)
        )
    )
    (step,) = one.steps
    (row,) = step.purposes
    assert (row.wait_ns, row.is_wait_least) == (4_000, True)
    gaps = one.accounts.steps[0].gaps
    assert gaps is not None
    assert (gaps.comm_wait_ns, gaps.host_wait_ns) == (4_000, 0)
    assert gaps.launch_unknown_ns == gaps.perhaps_comm_ns == 15_000  # of 35 us, less the longest launch
    assert gaps.unexplained_ns == 0
