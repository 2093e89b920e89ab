"""What waits for a late rank, or stands in a queue behind what does, is no reason to send less."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Cause, MissingInput
from dtbench.report.words.trace_words import answer_lines
from dtbench.traces.causes.holders import Holders, find_holders
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.trace_set import TraceSet

JOB = {"world_size": 2, "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1]}]}


def said(seq: int) -> str:
    """What NCCL's event says of one all-reduce."""
    sizes = {"In msg nelems": 1024, "Out msg nelems": 1024, "dtype": "Float"}
    facts = {"Collective name": "allreduce", "Group size": 2, "Process Group Name": "0", "Seq": seq}
    return json.dumps({**facts, **sizes})


def analyze(draw: Callable[..., Path], *drawings: str) -> TraceSet:
    """Analyze one drawing a rank."""
    return analyze_traces(
        [
            draw(drawing, f"rank{rank}.json", distributedInfo={"rank": rank, **JOB}, host_name="one")
            for rank, drawing in enumerate(drawings)
        ]
    )


def reduce(draw: Callable[..., Path], *, is_late: bool) -> TraceSet:
    """Let two ranks reduce twice; the second all-reduce is issued while the first is under way on rank 0."""
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
    return analyze(draw, fast, slow)


def test_it_is_queued_where_every_rank_was_in_time(draw: Callable[..., Path]) -> None:
    traces = reduce(draw, is_late=False)
    assert traces.analyses[0].splits[1].by_cause == {Cause.QUEUED: 11_000}
    assert "queued behind" in answer_lines(traces)[0]


def test_what_lies_between_two_of_a_queue_does_not_make_it_free(draw: Callable[..., Path]) -> None:
    """A cast of 25 us stands between the all-reduces: with rank 1 in time, it and what follows come 10 us sooner."""
    fast = f"""
        step ProfilerStep#1             @1 |==========================================================|
        call cudaLaunchKernel           @1 |abcd                                                      |
        kernel gemm                     @7 |  a                                                       |
        kernel ncclDevKernel_AllReduce  @8 |   bbbbbbbbbbbbbbbb                                       | {said(1)}
        kernel ncclDevKernel_AllReduce  @8 |                                            ccccccccccc   | {said(2)}
        kernel gemm                     @7 |    ddddddddddddddd                                       |
        """
    slow = f"""
        step ProfilerStep#1             @1 |==========================================================|
        call cudaLaunchKernel           @1 |abc                                                       |
        kernel gemm                     @7 |  aaaaaaaaaaaa                                            |
        kernel ncclDevKernel_AllReduce  @8 |              bbbbb                                       | {said(1)}
        kernel ncclDevKernel_AllReduce  @8 |                                            ccccccccccc   | {said(2)}
        """
    traces = analyze(draw, fast, slow)
    put_off = Holders(16_000, 0, put_off_ns=10_000)  # of what held it from its issue on, what the cast did is no part
    timeline = traces.analyses[0].timeline
    assert find_holders(timeline, [14_000, 44_000], [1000, 0])[1] == put_off
    assert traces.analyses[0].splits[1].by_cause == {Cause.QUEUED: 1000, Cause.UNKNOWN: 10_000}


def test_one_of_which_nobody_knows_since_when_it_could_run_does_not_make_the_queue_free(
    draw: Callable[..., Path],
) -> None:
    """The launch of the second is lost, 25 us after the first: 10 us were waited, 5 of them it may be exposed for."""
    fast = f"""
        step ProfilerStep#1             @1 |==============================================================|
        call cudaLaunchKernel           @1 |ab de                                                         |
        kernel gemm                     @7 |  a                                                           |
        kernel ncclDevKernel_AllReduce  @8 |   bbbbbbbbbbbbbbbb                                           | {said(1)}
        kernel ncclDevKernel_AllReduce  @8 |                                            ccccc             | {said(2)}
        kernel ncclDevKernel_AllReduce  @8 |                                                 eeeeeeeeeee  | {said(3)}
        kernel gemm                     @7 |    ddddddddddddddd                                           |
        """
    slow = f"""
        step ProfilerStep#1             @1 |==============================================================|
        call cudaLaunchKernel           @1 |abc e                                                         |
        kernel gemm                     @7 |  aaaaaaaaaaaa                                                |
        kernel ncclDevKernel_AllReduce  @8 |              bbbbb                                           | {said(1)}
        kernel ncclDevKernel_AllReduce  @8 |                                            ccccc             | {said(2)}
        kernel ncclDevKernel_AllReduce  @8 |                                                 eeeeeeeeeee  | {said(3)}
        """
    (_, _, third) = find_holders(analyze(draw, fast, slow).analyses[0].timeline, [14_000, 44_000, 49_000], [1000, 0, 0])
    assert third.put_off_ns == 5000


def test_it_is_unknown_and_the_late_rank_comes_first_where_one_was_not(draw: Callable[..., Path]) -> None:
    traces = reduce(draw, is_late=True)
    queued, unknown = traces.analyses[0].splits[1].parts
    assert (queued.cause, queued.exposed_ns) == (Cause.QUEUED, 1000), "for the rest rank 1 was waited for, hidden"
    assert (unknown.cause, unknown.exposed_ns) == (Cause.UNKNOWN, 10_000)
    assert unknown.missing[0] is MissingInput.PUT_OFF
    lines = answer_lines(traces)
    assert "queued behind" not in lines[0]
    assert any(line.startswith("rank 1 is last in 1 of its 2") for line in lines)


@pytest.mark.parametrize(
    ("is_late", "causes"),
    [(False, {Cause.QUEUED: 4000, Cause.BANDWIDTH: 4000}), (True, {Cause.UNKNOWN: 8000})],
)
def test_what_its_own_hidden_wait_put_off_is_no_reason_to_send_less(
    draw: Callable[..., Path], causes: dict[Cause, int], *, is_late: bool
) -> None:
    """On rank 0 the second has more to hide behind than its transfer of 10 us, and runs out of it in its wait."""
    fast = f"""
        step ProfilerStep#1             @1 |==============================|
        call cudaLaunchKernel           @1 |abcd                          |
        kernel gemm                     @7 | a                            |
        kernel ncclDevKernel_AllReduce  @8 |  bbbb                        | {said(1)}
        kernel ncclDevKernel_AllReduce  @8 |      cccccccccccccccccccccc  | {said(2)}
        kernel gemm                     @7 |    dddddddddddddddd          |
        """
    slow = f"""
        step ProfilerStep#1             @1 |==============================|
        call cudaLaunchKernel           @1 |abcd                          |
        kernel gemm                     @7 | a                            |
        kernel gemm                     @7 |    dddddddddddddddddddddddd  |
        kernel ncclDevKernel_AllReduce  @8 |  bbbb                        | {said(1)}
        kernel ncclDevKernel_AllReduce  @8 |      {" " * 12 if is_late else "c" * 12}cccccccccc  | {said(2)}
        """
    traces = analyze(draw, fast, slow)
    assert traces.analyses[0].splits[1].by_cause == causes
    assert is_late == (traces.analyses[0].splits[1].parts[-1].missing[:1] == (MissingInput.PUT_OFF,))
    assert is_late == ("longer than what hides it" not in answer_lines(traces)[0])
