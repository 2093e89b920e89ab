"""Where the steps of a device trace begin."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Purpose
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.means import average
from dtbench.traces.job.trace_set import find_lacking
from dtbench.traces.notes.lacking import (
    ComputeNotRecorded,
    CutStep,
    EmptySteps,
    OutsideSteps,
    StepsBeginUnsure,
    StepsUntold,
)
from dtbench.traces.notes.note import pick_notes, say_notes
from dtbench.traces.time.overlap import NOT_SEEN

RECORDED = Path(__file__).parent / "recorded" / "two_ranks_one_gpu"
# a, d, g: the next batch is copied at once on a stream of its own; c, f, i: an all-gather, before its step computes
COPIED_EARLY = """
step ProfilerStep#1               @1  |=========                             |
step ProfilerStep#2               @1  |         =========                    |
step ProfilerStep#3               @1  |                  =========           |
call cudaMemcpyAsync              @1  |a        d        g                   |
call cudaLaunchKernel             @1  | cb       fe       ih                 |
copy Memcpy_HtoD                  @9  | aa       dd       gg                 |
kernel ncclDevKernel_AllGather    @20 |   cc         ff          ii          |
kernel gemm                       @7  |     bbbbbbbb   eeeeeeeeee  hhhhhhhhhh|
"""


def test_a_copy_of_the_next_batch_begins_no_step_while_the_one_before_computes(draw: Callable[..., Path]) -> None:
    (one,) = analyze_traces([draw(COPIED_EARLY)]).analyses
    starts = [(step.start_ns, step.end_ns) for step in one.timeline.steps]
    assert starts == [(1000, 14000), (14000, 26000), (26000, 38000)]


def test_what_is_launched_after_the_last_mark_is_of_no_step(draw: Callable[..., Path]) -> None:
    unmarked = COPIED_EARLY.replace("ProfilerStep#3", "some_range")
    (one,) = analyze_traces([draw(unmarked)]).analyses
    assert [(step.start_ns, step.end_ns) for step in one.timeline.steps] == [(1000, 14000), (14000, 26000)]
    assert [row.count for row in one.steps[1].purposes] == [1]
    assert [note.collectives for note in find_lacking([one]) if isinstance(note, OutsideSteps)] == [1]


def test_what_is_launched_after_the_last_range_is_of_it_where_ranges_end_early(draw: Callable[..., Path]) -> None:
    """What is launched between two of them is of the step before, too."""
    apart = COPIED_EARLY.replace("ProfilerStep#3", "some_range").replace("|=========      ", "|=======        ")
    apart += """call cudaLaunchKernel            @1  |        x                             |
    kernel memset                     @30 |         x                            |
    """
    (one,) = analyze_traces([draw(apart)]).analyses
    assert [(step.start_ns, step.end_ns) for step in one.timeline.steps] == [(1000, 14000), (14000, 38000)]


def test_what_is_launched_after_the_last_range_is_of_no_step_where_nothing_is_launched_between_short_ones(
    draw: Callable[..., Path],
) -> None:
    """Ranges of a host that only launches are so short that what a profiler does between two is a part of them."""
    apart = """
    step ProfilerStep#1               @1  |==                        |
    step ProfilerStep#2               @1  |    ==                    |
    step some_range                   @1  |        ==                |
    call cudaLaunchKernel             @1  |a   b   d                 |
    kernel gemm                       @7  | aaaaaaa bbbbbbb ddddddddd|
    """
    (one,) = analyze_traces([draw(apart)]).analyses
    assert [(step.start_ns, step.end_ns) for step in one.timeline.steps] == [(1000, 9000), (9000, 17000)]


@pytest.mark.parametrize("early", [True, False])
def test_a_step_whose_work_all_began_early_begins_with_it(draw: Callable[..., Path], *, early: bool) -> None:
    gathered = "   bb" if early else "           bb"
    drawing = f"""
    step ProfilerStep#1            @1  |=====            |
    step ProfilerStep#2            @1  |     =====       |
    call cudaLaunchKernel          @1  |a    b           |
    kernel gemm                    @7  | aaaaaaaa        |
    kernel ncclDevKernel_AllGather @20 |{"   " + gathered:17}|
    """
    (one,) = analyze_traces([draw(drawing)]).analyses
    assert one.timeline.steps[1].start_ns == (6000 if early else 14000)


def draw_lost(idle: str, call: str) -> str:
    """Draw two steps, the second of which begins with b."""
    return f"""
    step ProfilerStep#1     @1 |===={" " * len(idle)}                    |
    step ProfilerStep#2     @1 |    {"=" * len(idle)}====================|
    call cudaLaunchKernel   @1 |a   {idle}{call}  c                |
    kernel gemm             @7 | aaa{idle} bbbbbbb ccc d      |
    call cudaLaunchKernel   @1 |    {idle}     d              |
    """


IDLE = " " * 25


def test_a_step_whose_first_launch_is_lost_begins_with_it_where_the_device_had_stood_idle(
    draw: Callable[..., Path],
) -> None:
    whole, lost = (analyze_traces([draw(draw_lost(IDLE, call))]) for call in ("b", " "))
    (one,), (other,) = whole.analyses, lost.analyses
    assert one.timeline.steps == other.timeline.steps
    assert one.timeline.steps[1].start_ns == 30_000
    assert other.uncorrelated.launch_missing == 1
    assert not pick_notes(lost.notes, StepsBeginUnsure)
    assert not any(note.unsure_ns for note in pick_notes(lost.notes, CutStep))


def test_a_step_begins_with_no_work_from_before_the_trace_though_the_device_stood_idle_before_it(
    draw: Callable[..., Path],
) -> None:
    """b and a were launched before the first step, which c is the first of; the call of d is lost."""
    whole, lost = (
        analyze_traces(
            [
                draw(f"""
            step ProfilerStep#1     @1 |========={IDLE}         |
            call cudaLaunchKernel   @1 | c{call}e     {IDLE}         |
            kernel gemm             @7 |aaa{IDLE}bbb ccc dd eee|
            """)
            ]
        )
        for call in ("d", " ")
    )
    (one,), (other,) = whole.analyses, lost.analyses
    assert one.timeline.steps[0].start_ns == 32_000
    assert (other.uncorrelated.launched_before, other.uncorrelated.launch_missing) == (2, 1)
    assert one.timeline.steps == other.timeline.steps
    assert not pick_notes(lost.notes, StepsBeginUnsure)


def test_where_a_step_begins_is_not_known_where_the_device_worked_and_its_first_launch_is_lost(
    draw: Callable[..., Path],
) -> None:
    traces = analyze_traces([draw(draw_lost("", " "))])
    (one,) = traces.analyses
    assert [step.start_ns for step in one.timeline.steps] == [1_000, 13_000]
    assert [note for note in say_notes(traces.notes) if "launches or copies are lost" in note] == [
        (
            "rank 0: launches or copies are lost, and where step 1 begins or ends is not known to within 8.00 us, so"
            " how long it took, and what ran then, is not known"
        ),
        (
            "rank 0: launches or copies are lost, and where step 2 begins is not known to within 8.00 us, so it is left"
            " out: from its first kernel to the trace's last are 5.00 us, and it took the host 20.0 us and others"
            " 12.0 us"
        ),
    ]
    assert not average([one]).are_steps


def test_work_before_what_is_known_to_be_of_the_step_before_is_none_of_a_step(draw: Callable[..., Path]) -> None:
    drawing = """
    step ProfilerStep#1     @1 |====              |
    step ProfilerStep#2     @1 |    ==============|
    call cudaLaunchKernel   @1 |a  c e            |
    kernel gemm             @7 | aaaa bbb ccc eee |
    """
    traces = analyze_traces([draw(drawing)])
    (one,) = traces.analyses
    assert (one.uncorrelated.launch_missing, one.steps[1].unsure_ns) == (1, 0)
    assert not [note for note in say_notes(traces.notes) if "launches or copies are lost" in note]


def test_a_lost_mark_of_a_step_takes_no_other_steps_times(tmp_path: Path) -> None:
    source = Path(__file__).parent / "recorded" / "two_ranks_one_gpu" / "ddp"
    whole = analyze_traces([source])
    for rank in (0, 1):
        trace = json.loads(gzip.decompress((source / f"rank{rank}.json.gz").read_bytes()))
        if rank:
            trace["traceEvents"] = [one for one in trace["traceEvents"] if one["name"] != "ProfilerStep#3"]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace))
    traces = analyze_traces([tmp_path])
    first, _, last = whole.analyses[1].steps
    assert [(one.step, one.overlap, one.purposes) for one in traces.analyses[1].steps] == [
        (one.step, one.overlap, one.purposes) for one in (first, last)
    ]
    assert traces.analyses[1].whole == whole.analyses[1].whole
    assert (
        "rank 1: no range of step 3 is there, though steps around have one: what ran then is in no number per step"
        in (say_notes(traces.notes))
    )


UNSURE = """
step ProfilerStep#1                   @1  |====                                       |
step ProfilerStep#2                   @1  |    ====================                   |
step ProfilerStep#3                   @1  |                        ==========         |
call cudaLaunchKernel                 @1  |a c               e     g                  |
kernel gemm                           @7  | aaaaaaaaa             eeeeeeeeeegggggggggg|
kernel ncclDevKernel_AllReduce_Sum    @20 |          dddddddd                         |
kernel ncclDevKernel_AllGather_Ring   @20 |  cc                                       |
"""


def stretch(drawing: str, *columns: int) -> str:
    """Repeat what a drawing has in some columns so often that steps are 1,000 times as long as what is not sure."""
    lines = []
    for line in drawing.strip().splitlines():
        name, bars, _ = line.split("|")
        cells = [cell * (LONG + 1) if column in columns else cell for column, cell in enumerate(bars)]
        lines.append(f"{name}|{''.join(cells)}|")
    return "\n".join(lines)


LONG = 13_000


@pytest.mark.parametrize("is_comm", [True, False])
def test_a_step_that_may_begin_earlier_keeps_no_zero_of_what_ran_in_that_time(
    draw: Callable[..., Path], *, is_comm: bool
) -> None:
    """d, whose launch is lost, is of step 1 or of step 2, which where d computes did not communicate either way."""
    drawing = UNSURE if is_comm else UNSURE.replace("ncclDevKernel_AllReduce_Sum ", "gemm                        ")
    traces = analyze_traces([draw(stretch(drawing, 5, 27, 38))])
    (one,) = traces.analyses
    first, second, third = one.steps
    assert [step.unsure_ns for step in one.steps] == [0, 13_000, 0]
    assert [step.unsure_end_ns for step in one.steps] == [13_000, 0, 0]
    assert (second.overlap.step_ns, second.overlap.compute_ns) == (LONG * 1_000 + 10_000, LONG * 1_000 + 10_000)
    zero = None if is_comm else 0
    assert (second.overlap.comm_ns, second.overlap.exposed_comm_ns) == (zero, zero)
    assert (second.overlap.exposed_copy_ns, second.overlap.idle_ns) == (0, None)
    assert first.overlap.exposed_comm_ns == (8_000 if is_comm else 0)
    assert (third.overlap.comm_ns, third.overlap.idle_ns) == (0, 0)
    told = [(row.purpose, row.comm_ns, row.exposed_ns, row.hidden_ns) for row in second.purposes]
    assert told == ([(Purpose.OTHER, None, None, 0)] if is_comm else [])
    assert second.untold == ({Purpose.OTHER} if is_comm else set())
    lanes = {lane.lane.split("/")[1]: lane.comm_ns for lane in one.accounts.steps[1].lanes}
    assert lanes["20"] == zero
    assert third.purposes == ()
    mean = average([one])
    assert (mean.windows, mean.overlap.idle_ns is None) == ((2, False) if is_comm else (3, True))
    assert not pick_notes(traces.notes, StepsBeginUnsure)
    assert not pick_notes(traces.notes, StepsUntold)
    assert not pick_notes(traces.notes, ComputeNotRecorded)


def test_two_steps_have_no_account_where_the_border_between_them_is_not_known(draw: Callable[..., Path]) -> None:
    """A whole trace has no such border: its account is what it was."""
    traces, known = (analyze_traces([draw(drawing)]) for drawing in (UNSURE, UNSURE.replace("a c  ", "a cd ")))
    (one,), (other,) = traces.analyses, known.analyses
    first, second, third = one.steps
    assert [step.overlap for step in (first, second)] == [NOT_SEEN] * 2
    assert third.overlap == other.steps[2].overlap
    assert {row.comm_ns for step in (first, second) for row in step.purposes} == {None}
    assert [account.lanes for account in one.accounts.steps[:2]] == [(), ()]
    assert one.whole == other.whole
    mean = average([one])
    assert (mean.windows, mean.left_out, mean.overlap) == (1, 2, third.overlap)
    assert pick_notes(traces.notes, StepsUntold) == [StepsUntold((0,), (1, 2), 13_000)]
    for kind in (EmptySteps, StepsBeginUnsure, ComputeNotRecorded):
        assert not pick_notes(traces.notes, kind)
    assert not pick_notes(known.notes, StepsUntold)


def test_a_step_that_lacks_as_much_at_its_begin_as_it_has_of_the_next_is_as_long_as_it_seems(
    draw: Callable[..., Path],
) -> None:
    """b and d begin steps 2 and 3, and their launches are lost."""
    traces = analyze_traces(
        [
            draw("""
            step ProfilerStep#1     @1 |====                          |
            step ProfilerStep#2     @1 |    ====                      |
            step ProfilerStep#3     @1 |        ====                  |
            call cudaLaunchKernel   @1 |a    c   e                    |
            kernel gemm             @7 | aaaaaaaaabbbbccccccddddeeeeee|
            """)
        ]
    )
    (one,) = traces.analyses
    assert [step.unsure_ns for step in one.steps] == [0, 4_000, 4_000]
    assert [step.overlap.step_ns for step in one.steps] == [None, 10_000, None]
    assert [note.steps for note in pick_notes(traces.notes, StepsUntold)] == [(1, 3)]
    assert [note.steps for note in pick_notes(traces.notes, StepsBeginUnsure)] == [(2,)]


def test_where_the_last_step_ends_is_not_known_where_the_launch_of_what_came_after_it_is_lost(
    draw: Callable[..., Path],
) -> None:
    drawing = """
    step ProfilerStep#1     @1 |====                      |
    step ProfilerStep#2     @1 |    ====                  |
    call cudaLaunchKernel   @1 |a   c   d e               |
    kernel gemm             @7 | aaaaaaaaaccccccccddddeeee|
    """
    known, lost = (analyze_traces([draw(one)]).analyses[0] for one in (drawing, drawing.replace("d e ", "  e ")))
    assert [step.overlap.step_ns for step in known.steps] == [9_000, 8_000]
    assert [step.overlap.step_ns for step in lost.steps] == [9_000, None]


@pytest.mark.parametrize(
    ("name", "rank", "number", "known"),
    [
        ("skew", 1, 3, [False, False, True]),
        ("skew", 1, 4, [True, False, False]),
        ("at_once", 0, 4, [True, False, False]),
        ("sendrecv", 0, 4, [True, False, False]),
    ],
)
def test_a_lost_first_launch_takes_the_time_of_its_step_and_of_the_one_before(
    tmp_path: Path, name: str, rank: int, number: int, known: list[bool]
) -> None:
    source = Path(__file__).parent / "recorded" / "two_ranks_one_gpu" / name / f"rank{rank}.json.gz"
    trace = json.loads(gzip.decompress(source.read_bytes()))
    events = trace["traceEvents"]
    (mark,) = [one for one in events if one["name"] == f"ProfilerStep#{number}" and one["cat"] == "user_annotation"]
    ran = {one["args"]["correlation"] for one in events if one.get("cat") == "kernel"}
    first = min(
        (one for one in events if one["name"] == "cudaLaunchKernel" and one["args"]["correlation"] in ran),
        key=lambda one: (one["ts"] < mark["ts"], one["ts"]),
    )
    path = tmp_path / "rank.json"
    path.write_text(json.dumps({**trace, "traceEvents": [one for one in events if one is not first]}))
    (whole,), (lossy,) = (analyze_traces([of]).analyses for of in (source, path))
    expected = [step.overlap if is_known else NOT_SEEN for step, is_known in zip(whole.steps, known, strict=True)]
    assert [step.overlap for step in lossy.steps] == expected
    assert [average([lossy]).overlap] == [one for one in expected if one is not NOT_SEEN]


@pytest.mark.parametrize("are_first", [False, True])
def test_work_whose_calls_are_lost_at_large_is_not_from_before_the_trace(tmp_path: Path, *, are_first: bool) -> None:
    """The driver's calls of collectives alone are left; or the host's ranges, and no operator nor call, for a while."""
    trace = json.loads(gzip.decompress((RECORDED / "fsdp2" / "rank0.json.gz").read_bytes()))
    times_us = [float(one["ts"]) for one in trace["traceEvents"] if one.get("ph") == "X"]
    until_us = min(times_us) + 0.1 * (max(times_us) - min(times_us))
    categories = ("cpu_op", "cuda_runtime", "cuda_driver") if are_first else ("cuda_runtime",)
    kept = [
        one
        for one in trace["traceEvents"]
        if one.get("cat") not in categories or (are_first and float(one["ts"]) > until_us)
    ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({**trace, "traceEvents": kept}))
    (whole,), (lossy,) = (analyze_traces([of]).analyses for of in (RECORDED / "fsdp2" / "rank0.json.gz", path))
    assert lossy.uncorrelated.launched_before == 0
    for before, after in zip(whole.steps, lossy.steps, strict=True):
        if after.overlap.step_ns is not None:
            doubt_ns = max(after.unsure_ns, after.unsure_end_ns)
            assert after.overlap.step_ns == pytest.approx(before.overlap.step_ns, abs=doubt_ns + 1, rel=0.002)


def test_a_first_step_without_the_hosts_first_rows_has_no_account(tmp_path: Path) -> None:
    """Of DDP no range shows that calls are lost; the step lacks operators that the others have."""
    trace = json.loads(gzip.decompress((RECORDED / "ddp" / "rank0.json.gz").read_bytes()))
    times_us = [float(one["ts"]) for one in trace["traceEvents"] if one.get("ph") == "X"]
    until_us = min(times_us) + 0.1 * (max(times_us) - min(times_us))
    of_host = ("cpu_op", "cuda_runtime", "cuda_driver")
    kept = [one for one in trace["traceEvents"] if one.get("cat") not in of_host or float(one["ts"]) > until_us]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({**trace, "traceEvents": kept}))
    (whole,), (lossy,) = (analyze_traces([of]).analyses for of in (RECORDED / "ddp" / "rank0.json.gz", path))
    first, *others = (step.overlap for step in lossy.steps)
    assert (first.step_ns, first.compute_ns, first.exposed_comm_ns, first.idle_ns) == (None,) * 4
    assert others == [step.overlap for step in whole.steps[1:]]
