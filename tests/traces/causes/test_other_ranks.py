"""Causes of which the other ranks decide: where nobody saw what they did, nobody knows the cause."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Cause, MissingInput
from dtbench.report.words.trace_words import answer_lines
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.trace_set import TraceSet
from tests.traces.test_set_clocks import draw as draw_steps

JOB = {"world_size": 2, "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1]}]}


def said(seq: int) -> str:
    return json.dumps(
        {
            "Collective name": "allreduce",
            "dtype": "Float",
            "In msg nelems": 1024,
            "Out msg nelems": 1024,
            "Group size": 2,
            "Process Group Name": "0",
            "Seq": seq,
        }
    )


@pytest.fixture
def traces(draw: Callable[..., Path]) -> TraceSet:
    """Two steps of rank 0, each with an all-reduce; the trace of rank 1 ends with its first."""
    first = f"""
        step ProfilerStep#1             @1 |==========          |
        op c10d::allreduce_             @1 | =                  |
        call cudaLaunchKernel           @1 |ab                  |
        kernel gemm                     @7 |  aa                |
        kernel ncclDevKernel_AllReduce  @8 |    bbbb            | {said(1)}
        """
    second = f"""
        step ProfilerStep#2             @1 |          ==========|
        op c10d::allreduce_             @1 |           =        |
        call cudaLaunchKernel           @1 |          cd        |
        kernel gemm                     @7 |            cc      |
        kernel ncclDevKernel_AllReduce  @8 |              dddd  | {said(2)}
        """
    return analyze_traces(
        [
            draw(drawing, f"rank{rank}.json", distributedInfo={"rank": rank, **JOB}, host_name="one")
            for rank, drawing in enumerate((first.rstrip() + second, first))
        ]
    )


def test_a_collective_that_no_other_trace_has_has_no_cause_that_one_rank_alone_would_show(traces: TraceSet) -> None:
    seen, unseen = traces.analyses[0].splits
    assert "unknown" not in seen.by_cause or seen.parts[0].missing != (MissingInput.EVENTS,)
    assert [(str(part.cause), part.exposed_ns, part.missing) for part in unseen.parts] == [
        ("unknown", 4000, (MissingInput.EVENTS,))
    ]


def test_the_share_of_waiting_says_what_it_leaves_out(traces: TraceSet) -> None:
    (line,) = [line for line in answer_lines(traces) if "is waiting for the last of them" in line]
    assert " of the compared communication of " in line
    assert line.endswith("(1 collective, without 1 that could not be found in any other trace)")


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_whose_traces_are_there_are_not_what_is_missing(draw: Callable[..., Path], size: int) -> None:
    """Exchanges launched before the trace began: nobody says whether they send, receive or both."""
    drawing = """
        call cudaLaunchKernel      @1 |    a             |
        kernel gemm                @7 |a    aa           |
        kernel ncclKernel_SendRecv @8 |       bbbb       |
        """
    traces = analyze_traces(
        [draw(drawing, f"rank{rank}.json", distributedInfo={"rank": rank, "world_size": size}) for rank in range(2)]
    )
    missing = {one for rank in traces.analyses for split in rank.splits for part in split.parts for one in part.missing}
    assert missing == {MissingInput.RANKS if size == 3 else MissingInput.WAITS}
    assert any("Give the traces of all ranks" in line for line in answer_lines(traces)) is (size == 3)


LATE_US = (-2_900, 1_500, -1_700, 600, -800, 2_600, 600, -2_900)


def test_where_ends_say_that_clocks_may_be_off_by_much_of_a_collective_nobody_waited_and_nothing_is_transfer(
    tmp_path: Path,
) -> None:
    """Rank 2, on a host of its own, leaves all-reduces of 4 ms up to 2.9 ms before the others and 2.6 after them."""
    for rank in range(3):
        events = draw_steps(rank, ranks=3, steps=8)
        for number, event in enumerate(one for one in events if "AllReduce" in one["name"]):
            event["ts"] += LATE_US[number] if rank == 2 else 0
        told = {"distributedInfo": {"rank": rank, "world_size": 3}, "host_name": f"host {rank}", "traceEvents": events}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(told))
    traces = analyze_traces([tmp_path])
    for one in traces.analyses:
        assert {part.missing for split in one.splits for part in split.parts} == {(MissingInput.CLOCKS,)}
        assert {(skew.skew_wait_ns, skew.transfer_ns, skew.last_rank) for skew in one.skews} == {(None, None, None)}
    said = " ".join(answer_lines(traces))
    assert "in 8 collectives that ranks have in common, clocks disagree by too much" in said
    assert "transfer" not in said


@pytest.mark.parametrize(
    ("kernel", "collective", "of_both"),
    [
        ("ncclDevKernel_SendRecv", "", ("unknown", (MissingInput.WAITS,))),
        ("mscclKernel_Sum_half", "", ("unknown", (MissingInput.WAITS,))),
        ("ncclDevKernel_Broadcast", "broadcast", ("unknown", (MissingInput.WAITS,))),
        ("ncclDevKernel_AllReduce", "allreduce", ("needed_at_once", ())),
    ],
)
@pytest.mark.parametrize("world_size", [2, 4])
def test_what_may_have_waited_for_another_rank_is_not_called_needed_at_once(
    draw: Callable[..., Path], kernel: str, collective: str, of_both: object, world_size: int
) -> None:
    """Rank 1 comes late; of a coalesced send and receive, or a kernel that nobody knows, no trace tells who waits."""
    told = said(1).replace("allreduce", collective).replace('"Group size": 2', f'"Group size": {world_size}')
    traces = analyze_traces(
        [
            draw(
                f"""
                step ProfilerStep#1             @1 |====================|
                op c10d::some_                  @1 | ==                 |
                op aten::mm                     @1 |    =               |
                call cudaLaunchKernel           @1 |ab  c               |
                call cudaStreamWaitEvent        @1 |   =                |
                kernel gemm                     @7 |{begin}             |
                kernel {kernel}                 @8 |  {comm}            | {told if collective else ""}
                kernel gemm                     @7 |          cc        |
                """,
                f"rank{rank}.json",
                distributedInfo={"rank": rank, "world_size": world_size},
                host_name="one",
            )
            for rank, (begin, comm) in enumerate((("  a    ", " bbbbbbb"), ("  aaaaa", "     bbb")))
        ]
    )
    for one in traces.analyses:
        (split,) = one.splits
        parts = [(str(part.cause), part.missing) for part in split.parts if part.cause is not Cause.SKEW]
        assert parts == [of_both if world_size == 2 else ("unknown", (MissingInput.RANKS,))]


def test_a_wait_for_a_rank_that_may_hand_on_what_ranks_without_trace_did_has_no_cause(
    draw: Callable[..., Path],
) -> None:
    def name(operation: str, group: str, ranks: tuple[int, int]) -> str:
        facts = {"Collective name": operation, "Group size": 2, "Process Group Name": group}
        return json.dumps({**facts, "Process Group Ranks": str(list(ranks)), "Seq": 1, "dtype": "Float"})

    met, gathered = name("allreduce", "tensor", (0, 1)), name("allgather", "data", (1, 3))
    first = f"""
        call cudaLaunchKernel           @1 |ab                  |
        kernel gemm                     @7 |  a                 |
        kernel ncclDevKernel_AllReduce  @8 |   bbbbbbbbbbbbb    | {met}
        """
    second = f"""
        call cudaLaunchKernel           @1 |abc                 |
        kernel gemm                     @7 |             b      |
        kernel ncclDevKernel_AllGather  @8 |  aaaaaaaaaaa       | {gathered}
        kernel ncclDevKernel_AllReduce  @9 |              cc    | {met}
        """
    traces = analyze_traces(
        [
            draw(drawing, f"rank{rank}.json", distributedInfo={"rank": rank, "world_size": 4}, host_name="one")
            for rank, drawing in enumerate((first, second))
        ]
    )
    (part,) = traces.analyses[0].splits[0].parts
    assert (part.cause, part.exposed_ns, part.missing[0]) == (Cause.UNKNOWN, 13_000, MissingInput.LATENESS)
    assert (traces.over_ranks.waiting.straggler, traces.late_ranks) == (None, ())
    assert not [line for line in answer_lines(traces) if line.startswith("waited for") or "is last in" in line]


LEAVES_US = ((0, 0, 0, 0), (0, 0, 0, 0), (900, -700, 300, -200), (-400, 800, -900, 600))


def test_where_no_trace_tells_which_ranks_share_a_group_that_is_what_is_missing(tmp_path: Path) -> None:
    """Four ranks reduce in pairs; all traces have all steps, and ranks leave their collectives apart."""
    for rank, leaves_us in enumerate(LEAVES_US):
        events = draw_steps(rank, ranks=2, steps=4)
        for number, event in enumerate(one for one in events if "AllReduce" in one["name"]):
            event["ts"] += leaves_us[number]
            for said in ("Process Group Name", "Process Group Ranks", "Seq"):
                del event["args"][said]
        told = {"distributedInfo": {"rank": rank, "world_size": 4}, "host_name": "one", "traceEvents": events}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(told))
    traces = analyze_traces([tmp_path])
    assert traces.over_ranks.matches.undecided
    missing = {one for rank in traces.analyses for split in rank.splits for part in split.parts for one in part.missing}
    assert missing == {MissingInput.GROUP}
    advised = " ".join(answer_lines(traces))
    assert "; missing: which ranks share its process group)" in advised
    assert "Record the same steps on all ranks" not in advised
