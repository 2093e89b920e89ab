"""What the rank did that the others waited for."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dtbench.report.documents.traces import document_head as traces_document
from dtbench.report.words.trace_words import answer_lines
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.job import HasNoSteps, LacksSteps
from dtbench.traces.notes.note import pick_notes, say_notes
from dtbench.traces.ranks.late import LateRank, describe_late, describe_late_ranks

MS = 1_000  # us, as Kineto writes
Event = dict[str, Any]


def event(category: str, name: str, where: tuple[int, int], start: float, length: float, **more: Any) -> Event:
    process, thread = where
    return {
        "ph": "X", "cat": category, "name": name, "pid": process, "tid": thread,
        "ts": start, "dur": length, "args": more,
    }  # fmt: skip


def step(rank: int, begins: float, work: Sequence[tuple[str, float]], ends: float, number: int = 1) -> list[Event]:
    """Write a step that works, one thing after the other, then issues an all-reduce that all ranks leave together.

    What has no name was not recorded.
    """
    host, now, events = (1, 1), begins, []
    for name, length in work:
        if name:
            events.append(event("user_annotation", name, host, now, length))
        now += length
    said = {
        "Collective name": "allreduce",
        "Process Group Name": "dp",
        "Seq": number,
        "dtype": "Float",
        "Group size": 3,
        "Process Group Ranks": "[0, 1, 2]",
        "In msg nelems": 1024,
        "Out msg nelems": 1024,
    }
    calls = {"correlation": 10 * number}
    events += [
        event("cpu_op", "c10d::allreduce_", host, now, 40),
        event("cuda_runtime", "cudaLaunchKernel", host, now + 5, 10, **calls),
        event("kernel", "ncclDevKernel_AllReduce(a)", (0, 20), now + 30, ends - now - 30, **calls, **said),
        event("cuda_runtime", "cudaLaunchKernel", host, now + 60, 10, correlation=10 * number + 1),
        event("kernel", "gemm", (0, 7), ends + 10, 100, correlation=10 * number + 1),
        event("user_annotation", f"ProfilerStep#{number}", host, begins, now + 100 - begins),
    ]
    return events


@pytest.fixture
def tell(tmp_path: Path) -> Callable[[Sequence[list[Event]]], TraceSet]:
    def write(ranks: Sequence[list[Event]]) -> TraceSet:
        for rank, events in enumerate(ranks):
            told = {"distributedInfo": {"rank": rank, "world_size": len(ranks)}, "traceEvents": events}
            (tmp_path / f"rank{rank}.json").write_text(json.dumps(told))
        return analyze_traces([tmp_path])

    return write


def late_sentences(traces: TraceSet) -> list[str]:
    return [line for line in answer_lines(traces) if line.startswith("rank 2 ") and "is last" not in line]


def test_a_rank_that_began_late_and_copied_long_is_told_so(tell: Callable[..., TraceSet]) -> None:
    usual = [("forward", 2 * MS)]
    ranks = [step(rank, 0, usual, 20 * MS) for rank in (0, 1)]
    ranks.append(step(2, 7.6 * MS, [("copy_batch_to_gpu", 1.46 * MS), ("forward", 2 * MS)], 20 * MS))
    traces = tell(ranks)
    assert late_sentences(traces) == [
        "rank 2 began its step 7.60 ms late and then spent 1.46 ms in `copy_batch_to_gpu` (the others 0 ns)"
    ]
    waiting = traces_document(traces)["waiting"]
    assert isinstance(waiting, list)
    first, _, told = (one["meanwhile"] for one in waiting)
    assert first == "NaN"
    assert (told["began_late_ns"], told["name"], told["name_ns"]) == (7_600_000, "copy_batch_to_gpu", 1_460_000)


def test_what_was_waited_for_ranks_that_may_only_hand_on_is_in_the_document(tell: Callable[..., TraceSet]) -> None:
    traces = tell([step(rank, 0, [("forward", (2 + 7 * (rank == 2)) * MS)], 20 * MS) for rank in range(3)])
    assert traces_document(traces)["handed_on_ns"] == 0
    waiting = replace(traces.over_ranks.waiting, handed_on_ns=122)
    told = replace(traces, over_ranks=replace(traces.over_ranks, waiting=waiting))
    assert traces_document(told)["handed_on_ns"] == 122


def test_data_loading_is_named(tell: Callable[..., TraceSet]) -> None:
    loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    ranks = [step(rank, 0, [(loader, 0.2 * MS), ("forward", 2 * MS)], 20 * MS) for rank in (0, 1)]
    ranks.append(step(2, 0, [(loader, 9 * MS), ("forward", 2 * MS)], 20 * MS))
    assert late_sentences(tell(ranks)) == [f"rank 2 spent 9.00 ms in data loading (`{loader}`) (the others 200 us)"]


def test_means_are_over_the_steps_in_which_it_was_late(tell: Callable[..., TraceSet]) -> None:
    ranks = []
    for rank in range(3):
        events = []
        for number in range(3):
            extra = [("evaluate", (4 + 2 * number) * MS)] if rank == 2 and number < 2 else []
            begins = number * 40 * MS
            events += step(rank, begins, [*extra, ("forward", 2 * MS)], begins + 20 * MS, number + 1)
        ranks.append(events)
    assert late_sentences(tell(ranks)) == [
        "rank 2 spent 5.00 ms in `evaluate` (the others 0 ns), in the mean of 2 of 3 steps"
    ]


def test_why_a_rank_was_late_is_asked_of_the_steps_that_carry_the_waiting(tell: Callable[..., TraceSet]) -> None:
    ranks = []
    for rank in range(3):
        events = []
        for number in range(4):
            begins, work = number * 40 * MS, [("forward", 2 * MS)]
            if rank == 2:  # its host runs ahead, and its device is late by microseconds; but once it loads for long
                begins, work = begins - 1 * MS, [("load", 13 * MS), *work] if number == 2 else work
            one = step(rank, begins, work, number * 40 * MS + 20 * MS, number + 1)
            if rank == 2 and number != 2:
                delay_on_device(one, number * 40 * MS + 2 * MS + 60)
            events += one
        ranks.append(events)
    assert late_sentences(tell(ranks)) == [
        "rank 2 spent 13.0 ms in `load` (the others 0 ns), in the 1 of 4 steps that carry the waiting for it"
    ]


def test_a_rank_began_late_by_what_it_is_later_than_most_and_not_than_the_first(tell: Callable[..., TraceSet]) -> None:
    ranks = [step(rank, begins * MS, [("forward", 2 * MS)], 20 * MS) for rank, begins in enumerate((0, 4, 8))]
    ranks.append(step(3, 4.5 * MS, [("forward", 2 * MS)], 20 * MS))
    for events in ranks:
        for one in events:
            if "Group size" in one["args"]:
                one["args"] |= {"Group size": 4, "Process Group Ranks": "[0, 1, 2, 3]"}
    assert late_sentences(tell(ranks)) == ["rank 2 began its step 4.00 ms late and issued 8.00 ms after the first"]


def test_ranks_that_came_last_together_are_told_in_one_sentence(tell: Callable[..., TraceSet]) -> None:
    ranks = [step(rank, begins * MS, [("forward", 2 * MS)], 20 * MS) for rank, begins in enumerate((0, 2, 3, 8, 8.02))]
    for events in ranks:
        for one in events:
            if "Group size" in one["args"]:
                one["args"] |= {"Group size": 5, "Process Group Ranks": "[0, 1, 2, 3, 4]"}
    traces = tell(ranks)
    assert [one.beside for one in traces.late_ranks if one.beside] == [(4,), (3,)]
    assert [line for line in answer_lines(traces) if line.startswith("ranks 3-4 began")] == [
        "ranks 3-4 began their step 6.00 ms to 6.02 ms late and issued 8.02 ms after the first"
    ]


def test_ranks_that_came_last_together_for_different_reasons_are_told_by_reason() -> None:
    late = LateRank(
        rank=3, steps=1, waited_ns=100_000, began_late_ns=90_000, name="", name_ns=0, others_ns=0,
        host_late_ns=90_000, beside=(4, 5),
    )  # fmt: skip
    loading = replace(late, rank=5, beside=(3, 4), began_late_ns=0, name="load", name_ns=80_000)
    assert describe_late_ranks([late, replace(late, rank=4, beside=(3, 5)), loading]) == (
        "ranks 3-4 began their step 90.0 us late",
        "rank 5 spent 80.0 us in `load` (the others 0 ns)",
    )


def test_a_rank_that_began_late_by_more_than_was_waited_is_told_so_where_its_host_issued_as_late(
    tell: Callable[..., TraceSet],
) -> None:
    """The others' devices were busy for most of what it began late by, so that they waited little for it."""
    ranks = [step(rank, 0, [("forward", 2 * MS)], 20 * MS) for rank in (0, 1)]
    for events in ranks:
        launch = {"correlation": 999}
        events.append(event("cuda_runtime", "cudaLaunchKernel", (1, 1), 20, 10, **launch))
        events.append(event("kernel", "gemm_before", (0, 7), 60, 7 * MS - 60, **launch))
        delay_on_device(events, 7 * MS)
    ranks.append(step(2, 7 * MS, [("forward", 2 * MS)], 20 * MS))
    traces = tell(ranks)
    assert [(one.waited_ns, one.began_late_ns) for one in traces.late_ranks] == [(2_030_000, 7_000_000)]
    assert late_sentences(traces) == ["rank 2 began its step 7.00 ms late"]


@pytest.mark.parametrize(("began_late_ns", "is_said"), [(399_999, True), (400_001, False)])
def test_a_late_start_that_was_mostly_caught_up_is_no_reason(began_late_ns: int, *, is_said: bool) -> None:
    one = LateRank(
        rank=2, steps=1, waited_ns=100_000, began_late_ns=began_late_ns, name="", name_ns=0, others_ns=0,
        host_late_ns=200_000,
    )  # fmt: skip
    assert (describe_late([one]) is not None) is is_said


@pytest.mark.parametrize(("loads_ms", "is_said"), [((0.1, 9), True), ((12, 3), False)])
def test_time_in_what_may_itself_have_been_waiting_is_no_reason(
    tell: Callable[..., TraceSet], loads_ms: tuple[float, float], *, is_said: bool
) -> None:
    """Before it came last, it waited itself for 10 ms: a name is a reason by what it took besides."""
    before, after = loads_ms
    work = [("forward", 2 * MS)]
    ranks = [[*step(rank, 12 * MS, work, 15 * MS, 1), *step(rank, 15.5 * MS, [], 40 * MS, 2)] for rank in (0, 1)]
    first = step(2, 0, work, 15 * MS, 1)
    second = step(2, 15.5 * MS, [("load", after * MS), ("other", (14 - after) * MS)], 40 * MS, 2)
    first.append(event("cpu_op", "load", (1, 1), 2.5 * MS, before * MS))
    ranks.append([*first, *second])
    for events in ranks:
        steps = [one for one in events if one["name"].startswith("ProfilerStep")]
        events.remove(steps[1])
        steps[0]["dur"] = steps[1]["ts"] + steps[1]["dur"] - steps[0]["ts"]
    assert any("in `load`" in line for line in late_sentences(tell(ranks))) is is_said


@pytest.mark.parametrize("odd", [1, 2])
@pytest.mark.parametrize("by", [-1, 1])
def test_steps_that_a_rank_numbers_otherwise_are_paired_by_their_collectives(
    tell: Callable[..., TraceSet], odd: int, by: int
) -> None:
    ranks = []
    for rank in range(3):
        events = []
        for number in range(1, 4):
            begins, late = number * 40 * MS, 4 * MS if rank == 2 and number == 2 else 0
            events += step(rank, begins + late, [("forward", 2 * MS)], begins + 20 * MS, number)
        ranks.append(events)
    for one in ranks[odd]:
        if one["name"].startswith("ProfilerStep"):
            one["name"] = f"ProfilerStep#{int(one['name'].split('#')[1]) + by}"
    traces = tell(ranks)
    assert [one.timeline.step_numbers for one in traces.analyses] == [(1, 2, 3)] * 3
    assert [[step.step for step in one.steps] for one in traces.analyses] == [[1, 2, 3]] * 3
    assert late_sentences(traces) == ["rank 2 began its step 4.00 ms late, in one of 3 steps"]
    side = "higher" if by > 0 else "lower"
    assert (
        f"rank {odd}: steps are numbered 1 {side} than the others' that have the same collectives; they are given the"
        " others' numbers"
    ) in say_notes(traces.notes)
    assert not pick_notes(traces.notes, LacksSteps)
    assert not pick_notes(traces.notes, HasNoSteps)


def test_a_rank_whose_host_was_in_time_was_late_on_its_device(tell: Callable[..., TraceSet]) -> None:
    ranks = [step(rank, 0, [("forward", 2 * MS)], 20 * MS) for rank in range(3)]
    delay_on_device(ranks[2], 12 * MS)
    assert late_sentences(tell(ranks)) == [
        "rank 2 issued no later than the others: its device came late to what its host had launched"
    ]


@pytest.mark.parametrize(("apart_us", "is_said"), [(7, False), (9, True)])
def test_a_rank_that_came_apart_by_no_more_than_ranks_that_come_together_is_not_said_to_be_late(
    apart_us: float, *, is_said: bool
) -> None:
    """Eight ranks that come together come apart by up to 7 us."""
    one = LateRank(
        rank=2, steps=1, waited_ns=int(apart_us * 1_000), began_late_ns=0, name="", name_ns=0, others_ns=0,
        host_late_ns=0,
    )  # fmt: skip
    assert (describe_late([one]) is not None) is is_said


def delay_on_device(events: list[Event], start: float) -> None:
    """Let the all-reduce of a rank start later on its device, and end when it did."""
    kernel = next(one for one in events if one["name"].startswith("nccl"))
    kernel["dur"] -= start - kernel["ts"]
    kernel["ts"] = start


def test_what_a_host_did_longer_than_the_others_made_it_not_late_where_it_issued_first(
    tell: Callable[..., TraceSet],
) -> None:
    ranks = [step(rank, 6 * MS, [("forward", 2 * MS)], 20 * MS) for rank in (0, 1)]
    ranks.append(step(2, 0, [("forward", 7 * MS)], 20 * MS))
    delay_on_device(ranks[2], 15 * MS)
    assert late_sentences(tell(ranks)) == [
        "rank 2 issued no later than the others: its device came late to what its host had launched"
    ]


def test_a_host_that_was_late_by_little_of_the_wait_is_told_by_how_little(tell: Callable[..., TraceSet]) -> None:
    ranks = [step(rank, 0, [("forward", 2 * MS)], 20 * MS) for rank in (0, 1)]
    ranks.append(step(2, 0, [("forward", 2.2 * MS)], 20 * MS))
    delay_on_device(ranks[2], 12 * MS)
    (said,) = late_sentences(tell(ranks))
    assert said == (
        "rank 2 issued 200 us later than the others, of 9.97 ms of waiting for it: its device came late to what its"
        " host had launched"
    )


def test_a_host_that_was_late_by_no_more_than_clocks_may_be_off_is_in_time_as_far_as_they_tell() -> None:
    one = LateRank(
        rank=2, steps=1, waited_ns=100_000, began_late_ns=0, name="forward", name_ns=90_000, others_ns=0,
        host_late_ns=40_000, doubt_ns=50_000,
    )  # fmt: skip
    assert describe_late([one]) == (
        "rank 2 issued no later than the others, as far as clocks tell: its device came late to what its host had"
        " launched"
    )


@pytest.mark.parametrize("busy_ms", [0, 2, 9])
def test_what_a_host_did_while_its_device_was_busy_made_no_rank_late(
    tell: Callable[[Sequence[list[Event]]], TraceSet], busy_ms: int
) -> None:
    """Rank 2's host begins late and copies; its device still computes what was launched before, or it does not."""
    ranks = [step(rank, 0, [("forward", 2 * MS)], 20 * MS) for rank in range(3)]
    ranks[2] = step(2, 7 * MS, [("copy_batch_to_gpu", 1 * MS), ("forward", 2 * MS)], 20 * MS)
    launch = {"correlation": 999}
    ranks[2].append(event("cuda_runtime", "cudaLaunchKernel", (1, 1), -20, 10, **launch))
    ranks[2].append(event("kernel", "gemm_before", (0, 7), 0, max(1, busy_ms * MS), **launch))
    (said,) = late_sentences(tell(ranks))
    of_host = said.startswith("rank 2 began its step 7.00 ms late and then spent 1.00 ms in `copy_batch_to_gpu`")
    of_device = said == (
        "rank 2 came late on its device, which was busy for longer than the others', whatever its host did"
    )
    assert (of_host, of_device) == ((busy_ms < 9), (busy_ms == 9))


def test_nothing_is_told_of_one_rank_alone_or_where_nobody_waits(tell: Callable[..., TraceSet]) -> None:
    assert not tell([step(0, 0, [("forward", 2 * MS)], 20 * MS)]).late_ranks
    assert not tell([step(rank, 0, [("forward", 2 * MS)], 20 * MS) for rank in range(3)]).late_ranks


def test_a_host_that_was_late_with_nothing_to_show_for_it_is_passed_over() -> None:
    one = LateRank(
        rank=2, steps=1, waited_ns=100_000, began_late_ns=0, name="", name_ns=0, others_ns=0, host_late_ns=90_000
    )  # fmt: skip
    assert describe_late([one]) is None


@pytest.mark.parametrize(("doubt_ns", "said"), [(50_000, None), (49_998, "rank 2 began its step 50.0 us late")])
def test_a_start_that_is_later_by_no_more_than_clocks_may_be_off_is_not_told(doubt_ns: int, said: str | None) -> None:
    one = LateRank(
        rank=2,
        steps=1,
        waited_ns=100_000,
        began_late_ns=50_000,
        name="",
        name_ns=0,
        others_ns=0,
        host_late_ns=90_000,
        doubt_ns=doubt_ns,
    )
    assert describe_late([one]) == said


ON_DEVICE = "its device came late to what its host had launched"


@pytest.mark.parametrize(
    ("host_late_ns", "said"),
    [
        (100_000, "rank 2 began its step 40.0 us late and then spent 60.0 us in `x` (the others 0 ns)"),
        (
            49_999,
            "rank 2 issued 50.0 us later than the others, of 100 us of waiting for it: " + ON_DEVICE,
        ),
    ],
)
def test_what_a_host_did_is_why_only_where_it_was_late_by_most_of_the_waiting(host_late_ns: int, said: str) -> None:
    one = LateRank(
        rank=2, steps=1, waited_ns=100_000, began_late_ns=40_000, name="x", name_ns=60_000, others_ns=0,
        host_late_ns=host_late_ns,
    )  # fmt: skip
    assert describe_late([one]) == said
    told = describe_late([replace(one, is_device=False)])
    assert told == said.replace(ON_DEVICE, "what it had issued started late")


def test_a_host_that_caught_up_since_is_told_with_what_was_left_at_its_issue() -> None:
    one = LateRank(
        rank=2, steps=1, waited_ns=100_000, began_late_ns=0, name="x", name_ns=130_000, others_ns=0,
        host_late_ns=60_000,
    )  # fmt: skip
    assert describe_late([one]) == (
        "rank 2 spent 130 us in `x` (the others 0 ns), of which 60.0 us were left at its issue"
    )


@pytest.mark.parametrize(
    ("steps", "of_all", "said"),
    [
        (1, 1, ""),
        (1, 5, ", in one of 5 steps"),
        (3, 5, ", in the mean of 3 of 5 steps"),
        (5, 5, ", in the mean of 5 steps"),
    ],
)
def test_what_was_so_in_some_steps_is_no_habit(steps: int, of_all: int, said: str) -> None:
    one = LateRank(
        rank=2, steps=steps, waited_ns=100_000, began_late_ns=90_000, name="", name_ns=0, others_ns=0,
        host_late_ns=90_000, all_steps=of_all,
    )  # fmt: skip
    assert describe_late([one]) == f"rank 2 began its step 90.0 us late{said}"


@pytest.mark.parametrize(("waited_ns", "late_ns"), [(900, 800), (10_000, 600)])
def test_what_is_below_a_microsecond_is_no_lateness(waited_ns: int, late_ns: int) -> None:
    one = LateRank(
        rank=2, steps=1, waited_ns=waited_ns, began_late_ns=late_ns, name="x", name_ns=late_ns, others_ns=0,
        host_late_ns=9_000,
    )  # fmt: skip
    assert describe_late([one]) is None


def test_what_others_did_in_many_short_spans_is_no_zero(tell: Callable[..., TraceSet]) -> None:
    many = [("aten::mm", 0.05 * MS)] * 60  # each below a hundredth of the step, 3 ms together
    ranks = [step(rank, 0, many, 20 * MS) for rank in (0, 1)]
    ranks.append(step(2, 0, [("aten::mm", 8 * MS), *many], 20 * MS))
    assert late_sentences(tell(ranks)) == ["rank 2 spent 11.0 ms in `aten::mm` (the others 3.00 ms)"]


def test_what_a_rank_spent_no_more_time_in_than_the_others_made_it_not_late(tell: Callable[..., TraceSet]) -> None:
    ranks = [step(rank, 0, [("forward", 4 * MS)], 20 * MS) for rank in (0, 1)]
    ranks.append(step(2, 7.6 * MS, [("forward", 3.5 * MS)], 20 * MS))
    assert late_sentences(tell(ranks)) == ["rank 2 began its step 7.60 ms late"]


def divide(ranks: Sequence[list[Event]]) -> Sequence[list[Event]]:
    """Let ranks 0 and 1 reduce among themselves, and ranks 2 and 3."""
    for rank, events in enumerate(ranks):
        for one in events:
            if "Group size" in one["args"]:
                first = rank // 2 * 2
                name = f"dp{first}"
                one["args"] |= {
                    "Group size": 2,
                    "Process Group Ranks": f"[{first}, {first + 1}]",
                    "Process Group Name": name,
                }
    return ranks


def test_what_ranks_did_that_never_waited_for_it_explains_nothing(tell: Callable[..., TraceSet]) -> None:
    """Another stage of a pipeline computes less, another replica begins its steps earlier."""
    other = [step(rank, 0, [("mm", 1 * MS)], 30 * MS) for rank in (0, 1)]
    mine = [step(rank, 5 * MS, [("mm", 8 * MS), ("", slept * MS)], 30 * MS) for rank, slept in ((2, 6), (3, 0))]
    traces = tell(divide([*other, *mine]))
    assert [(one.rank, one.began_late_ns, one.name, one.host_late_ns) for one in traces.late_ranks] == [
        (2, 0, "", 6_000_000)
    ]
    assert late_sentences(traces) == []


def test_a_late_rank_is_compared_with_those_that_waited_for_it(tell: Callable[..., TraceSet]) -> None:
    usual = [("mm", 1 * MS)]
    other = [step(rank, 7 * MS, [("load", 9 * MS), *usual], 30 * MS) for rank in (0, 1)]
    mine = [step(2, 3 * MS, [("load", 9 * MS), *usual], 30 * MS), step(3, 0, usual, 30 * MS)]
    assert late_sentences(tell(divide([*other, *mine]))) == [
        "rank 2 began its step 3.00 ms late and then spent 9.00 ms in `load` (the others 0 ns)"
    ]


@pytest.mark.parametrize("idles", [True, False])
def test_a_device_is_compared_with_those_that_waited_for_it(tell: Callable[..., TraceSet], *, idles: bool) -> None:
    """The device of rank 2 runs dry as long as those of another replica, and longer than that which waits for it."""
    other = [step(rank, 0, [("load", 9 * MS)], 30 * MS) for rank in (0, 1)]
    mine = [step(2, 0, [("load", 9 * MS)], 30 * MS), step(3, 0, [("mm", 1 * MS)], 30 * MS)]
    if not idles:
        launch = {"correlation": 999}
        mine[0].append(event("cuda_runtime", "cudaLaunchKernel", (1, 1), -20, 10, **launch))
        mine[0].append(event("kernel", "gemm_before", (0, 7), 0, 8.5 * MS, **launch))
    said = late_sentences(tell(divide([*other, *mine])))
    assert said == [
        "rank 2 spent 9.00 ms in `load` (the others 0 ns)"
        if idles
        else "rank 2 came late on its device, which was busy for longer than the others', whatever its host did"
    ]


def test_what_lies_around_an_issue_may_be_the_waiting_itself(tell: Callable[..., TraceSet]) -> None:
    ranks = [step(rank, 0, [("forward", 2 * MS)], 20 * MS) for rank in (0, 1)]
    last = step(2, 0, [("forward", 2 * MS), ("load", 9 * MS)], 20 * MS)
    around = event("user_annotation", "FSDP::pre_forward (0)", (1, 1), 0, 11.2 * MS)
    inner = event("cpu_op", "c10d::_allgather_base_", (1, 1), 11.1 * MS, 20)
    assert late_sentences(tell([*ranks, [*last, around, inner]])) == [
        "rank 2 spent 9.00 ms in `load` (the others 0 ns)"
    ]


def test_others_whose_hosts_were_not_recorded_are_not_said_to_have_done_nothing(tell: Callable[..., TraceSet]) -> None:
    ranks = [step(rank, 0, [], 20 * MS) for rank in (0, 1)]
    ranks.append(step(2, 0, [("load", 9 * MS)], 20 * MS))
    assert not [line for line in late_sentences(tell(ranks)) if "the others 0 ns" in line]


def test_compiled_code_is_called_alike_on_all_ranks(tell: Callable[..., TraceSet]) -> None:
    names = [f"## Call CompiledFxGraph f{rank}xk3qzv7w2m5c8n1b4l6 ##" for rank in range(3)]
    ranks = [step(rank, 0, [(names[rank], 2 * MS)], 20 * MS) for rank in (0, 1)]
    ranks.append(step(2, 0, [(names[2], 9 * MS)], 20 * MS))
    assert late_sentences(tell(ranks)) == ["rank 2 spent 9.00 ms in `Call CompiledFxGraph ...` (the others 2.00 ms)"]


def test_a_rank_that_began_now_late_now_early_did_not_begin_late(tell: Callable[..., TraceSet]) -> None:
    ranks = []
    for rank in range(3):
        events = []
        for number in range(2):
            base = number * 40 * MS
            begins = base + (6 * MS if rank == 2 and number == 0 else 0 if rank == 2 else 6 * MS * number)
            work = [("forward", 2 * MS)] if rank != 2 or number == 0 else [("forward", 2 * MS), ("load", 9 * MS)]
            events += step(rank, begins, work, base + 20 * MS, number + 1)
        ranks.append(events)
    assert not [line for line in late_sentences(tell(ranks)) if "began its step" in line]


def test_a_rank_that_begins_now_earlier_now_later_is_not_late_in_the_mean(tell: Callable[..., TraceSet]) -> None:
    ranks: list[list[Event]] = [[], [], []]
    for number, late in enumerate((3, -3), start=1):
        for rank in range(3):
            begins = (number * 40 + 5 + (late if rank == 2 else 0)) * MS
            work = [("evaluate", (6 - late) * MS)] if rank == 2 else [("forward", 2 * MS)]
            ranks[rank] += step(rank, begins, work, (number * 40 + 25) * MS, number)
    traces = tell(ranks)
    assert [(one.rank, one.steps, one.began_late_ns) for one in traces.late_ranks] == [(2, 2, 0)]
    assert late_sentences(traces) == ["rank 2 spent 6.00 ms in `evaluate` (the others 0 ns), in the mean of 2 steps"]


def test_what_the_others_did_as_long_explains_nothing(tell: Callable[..., TraceSet]) -> None:
    ranks = [step(rank, 0, [("copy_batch", 1.39 * MS)], 20 * MS) for rank in (0, 1)]
    ranks.append(step(2, 7.5 * MS, [("copy_batch", 1.46 * MS)], 20 * MS))
    traces = tell(ranks)
    assert late_sentences(traces) == ["rank 2 began its step 7.50 ms late"]
    assert [one.name for one in traces.late_ranks] == [""]


def test_hosts_that_were_not_recorded_spent_no_known_time(tell: Callable[..., TraceSet]) -> None:
    late = step(2, 0, [("load_batch", 7 * MS), ("forward", 2 * MS)], 20 * MS)
    ranks = [step(rank, 0, [("forward", 2 * MS)], 20 * MS) for rank in (0, 1)]
    kept = ("kernel", "cuda_runtime")
    bare = [[one for one in rank if one["cat"] in kept or one["name"].startswith("ProfilerStep")] for rank in ranks]
    assert late_sentences(tell([*ranks, late])) == ["rank 2 spent 7.00 ms in `load_batch` (the others 0 ns)"]
    assert late_sentences(tell([*bare, late])) == []
    assert late_sentences(tell([bare[0], ranks[1], late])) == ["rank 2 spent 7.00 ms in `load_batch` (the others 0 ns)"]


@pytest.mark.parametrize("without", [(0, 1), (0,)])
def test_hosts_without_any_operator_spent_no_known_time_in_one(
    tell: Callable[..., TraceSet], without: tuple[int, ...]
) -> None:
    def work(load: float) -> list[Event]:
        events = step(2 if load > 1 else 0, 0, [("batch", 0.5 * MS), ("forward", load * MS)], 20 * MS)
        return [{**one, "cat": "cpu_op"} if one["name"] == "forward" else one for one in events]

    ranks = [work(1), work(1), work(9)]
    told = "rank 2 spent 9.00 ms in `forward` (the others 1.00 ms)"
    assert late_sentences(tell(ranks)) == [told]
    for rank in without:
        ranks[rank] = [one for one in ranks[rank] if one["cat"] != "cpu_op"]
    assert late_sentences(tell(ranks)) == ([] if len(without) > 1 else [told])


def test_work_whose_launch_is_missing_is_of_no_known_step_and_no_mean(tell: Callable[..., TraceSet]) -> None:
    ranks = [step(rank, 0, [("forward", 2 * MS)], 20 * MS) for rank in (0, 1, 2)]
    bare = [one for one in ranks[0] if one["cat"] not in ("cuda_runtime", "cpu_op")]
    traces = tell([bare, *ranks[1:]])
    notes = [note for note in say_notes(traces.notes) if note.startswith("rank 0")]
    (said,) = (note for note in notes if "launch" in note)
    assert "no launch was recorded in step 1, so which step the work on its device belongs to is not known" in said
    assert not any("nothing ran" in note or "outside all steps" in note for note in notes)
    assert any("none of rank 0" in line for line in answer_lines(traces))
    assert answer_lines(traces)[0].startswith("of ranks 1-2 alone, of 3: step ")


def test_a_mean_is_over_all_steps_also_those_in_which_its_spans_are_short(tell: Callable[..., TraceSet]) -> None:
    ranks = []
    for rank in range(3):
        events = []
        for number in range(2):
            begins, many = number * 40 * MS, [("aten::mm", 0.05 * MS)] * 60
            extra = [("aten::mm", 8 * MS)] if number == 0 else [("load", 5 * MS)]
            events += step(rank, begins, [*(extra if rank == 2 else []), *many], begins + 20 * MS, number + 1)
        ranks.append(events)
    assert late_sentences(tell(ranks)) == [
        "rank 2 spent 7.00 ms in `aten::mm` (the others 3.00 ms), in the mean of 2 steps"
    ]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Activity Buffer Request", "the profiler's own `Activity Buffer Request`"),
        ("Lazy Function Loading", "`Lazy Function Loading`"),
        ("Activity Buffer Request", None),
    ],
    ids=["the profiler's", "CUDA's", "beside work"],
)
def test_what_kineto_calls_overhead_is_told_where_no_thread_did_anything_beside(
    tell: Callable[..., TraceSet], name: str, told: str | None
) -> None:
    """It has no thread: where one of the rank went on meanwhile, it may have held another."""
    ranks = [step(rank, 0, [("forward", 2 * MS)], 20 * MS) for rank in (0, 1)]
    late = step(2, 0, [("forward", 11 * MS)], 20 * MS)
    late[0] |= {"ts": 9 * MS, "dur": 2 * MS}
    late.append(event("overhead", name, (-1, 0), 100, 8 * MS))
    if told is None:
        late.append(event("cpu_op", "aten::mm", (1, 2), 4 * MS, 10))
    ranks.append(late)
    said = [] if told is None else [f"rank 2 spent 8.00 ms in {told} (the others 0 ns)"]
    assert late_sentences(tell(ranks)) == said


def profile(events: list[Event], *, calls: bool) -> list[Event]:
    """Add operators and, where Python's calls were recorded, one of these."""
    more = [event("cpu_op", "aten::mm", (1, 1), 100, 10)]
    return [*events, *more, *([event("python_function", "train.py(3): step", (1, 1), 100, 20)] if calls else [])]


MORE = "the profiler recorded more of rank 2 than of ranks 0-1 (with_stack): how late it is without that is not known"
UNLIKE = "rank 2 recorded with_stack, and ranks 0-1 did not: that takes time of the host, and makes a rank late"


def test_of_a_late_rank_that_was_profiled_more_heavily_that_is_told(tell: Callable[..., TraceSet]) -> None:
    def run(*recorded: bool, late: int = 2) -> TraceSet:
        ranks = [
            profile(step(rank, 0, [("forward", (9 if rank == late else 2) * MS)], 20 * MS), calls=calls)
            for rank, calls in enumerate(recorded)
        ]
        return tell(ranks)

    heavy = run(False, False, True)
    assert MORE in answer_lines(heavy)
    assert UNLIKE in say_notes(heavy.notes)
    other = run(False, False, True, late=1)
    assert not [line for line in answer_lines(other) if "profiler" in line]
    assert UNLIKE in say_notes(other.notes)
    alike = run(True, True, True)
    assert not [line for line in (*answer_lines(alike), *say_notes(alike.notes)) if "with_stack" in line]


def test_a_profiler_makes_no_device_late(tell: Callable[..., TraceSet]) -> None:
    """A rank whose host was in time is late whatever was recorded of it."""
    ranks = [profile(step(rank, 0, [("forward", 2 * MS)], 20 * MS), calls=rank == 2) for rank in range(3)]
    delay_on_device(ranks[2], 12 * MS)
    traces = tell(ranks)
    assert "its device came late" in late_sentences(traces)[0]
    assert MORE not in answer_lines(traces)
    assert UNLIKE in say_notes(traces.notes)
