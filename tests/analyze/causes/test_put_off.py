"""What stands in a queue behind collectives that wait for a late rank is no reason to send less."""

import json
from collections.abc import Callable
from pathlib import Path

from dtbench.analyze.foreign import analyze_traces
from dtbench.analyze.trace_set import TraceSet
from dtbench.report.trace_words import answer_lines
from dtbench.vocabulary import Cause, MissingInput

JOB = {"world_size": 2, "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1]}]}


def reduce(draw: Callable[..., Path], *, is_late: bool) -> TraceSet:
    """Let two ranks reduce twice; the second all-reduce is issued while the first is under way on rank 0."""

    def said(seq: int) -> str:
        sizes = {"In msg nelems": 1024, "Out msg nelems": 1024, "dtype": "Float"}
        facts = {"Collective name": "allreduce", "Group size": 2, "Process Group Name": "0", "Seq": seq}
        return json.dumps({**facts, **sizes})

    fast = f"""
        step ProfilerStep#1             @1 |==================================|
        call cudaLaunchKernel           @1 |abcd                              |
        kernel gemm                     @7 |  a                               |
        kernel ncclDevKernel_AllReduce  @8 |   bbbbbbbbbbbbbbbb               | {said(1)}
        kernel ncclDevKernel_AllReduce  @8 |                   ccccccccccc    | {said(2)}
        kernel gemm                     @7 |    ddddddddddddddd               |
        """
    slow = f"""
        step ProfilerStep#1             @1 |==================================|
        call cudaLaunchKernel           @1 |abc                               |
        kernel gemm                     @7 |  {"aaaaaaaaaaaa" if is_late else "a           "}                    |
        kernel ncclDevKernel_AllReduce  @8 |   {" " * 11 if is_late else "b" * 11}bbbbb               | {said(1)}
        kernel ncclDevKernel_AllReduce  @8 |                   ccccccccccc    | {said(2)}
        """
    return analyze_traces(
        [
            draw(drawing, f"rank{rank}.json", distributedInfo={"rank": rank, **JOB}, host_name="one")
            for rank, drawing in enumerate((fast, slow))
        ]
    )


def test_it_is_queued_where_every_rank_was_in_time(draw: Callable[..., Path]) -> None:
    traces = reduce(draw, is_late=False)
    assert traces.analyses[0].splits[1].by_cause == {Cause.QUEUED: 11_000}
    assert "queued behind" in answer_lines(traces)[0]


def test_it_is_unknown_and_the_late_rank_comes_first_where_one_was_not(draw: Callable[..., Path]) -> None:
    traces = reduce(draw, is_late=True)
    queued, unknown = traces.analyses[0].splits[1].parts
    assert (queued.cause, queued.exposed_ns) == (
        Cause.QUEUED,
        1000,
    )  # for the rest the late rank was waited for, hidden
    assert (unknown.cause, unknown.exposed_ns) == (Cause.UNKNOWN, 10_000)
    assert unknown.missing[0] is MissingInput.PUT_OFF
    lines = answer_lines(traces)
    assert "queued behind" not in lines[0]
    assert any(line.startswith("rank 1 is last in 1 of 2") for line in lines)
