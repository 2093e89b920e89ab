"""Kernels that were launched and are not in the trace: their step has no account, no cause, and a sentence says so."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.base.errors import TraceError
from dtbench.report.documents.traces import document_head as traces_document
from dtbench.report.page.cell_page import step_bar
from dtbench.report.page.looks import step_parts
from dtbench.report.words.trace_words import answer_lines, find_gaps
from dtbench.runs.cell.summarize_overlap import StepMean, summarize_ranks
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.means import average
from dtbench.traces.job.step_shifts import renumber_steps
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.lacking import (
    ComputeNotRecorded,
    EmptySteps,
    LostCopies,
    LostKernels,
    StepsSkipped,
    UnknownPurposes,
)
from dtbench.traces.notes.note import pick_notes, say_notes
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.rows.tables import OVERLAP
from tests.traces.conftest import draw_events

TRACE = """
step ProfilerStep#1      @1 |==========                    |
step ProfilerStep#2      @1 |          ==========          |
step ProfilerStep#3      @1 |                    ==========|
op c10d::allreduce_      @1 | =         =         =        |
call cudaLaunchKernel    @1 |abc       def       ghi       |
kernel gemm              @7 | aa  ccc   ddd ff    ggg  iii |
kernel ncclDevKernel_AllReduce_Sum @20 |   bb         eee       hhh   |
"""
GLOO = """
step ProfilerStep#1      @1 |==========          |
step ProfilerStep#2      @1 |          ==========|
range gloo:all_reduce    @9 |   ===       ===    |
op aten::mm              @1 |=====     =====     |
op c10d::allreduce_      @1 |      =         =   |
"""
GLOO_OF_THREE = """
step ProfilerStep#1      @1 |==========                    |
step ProfilerStep#2      @1 |          ==========          |
step ProfilerStep#3      @1 |                    ==========|
range gloo:all_reduce    @9 |   ===       ===       ===    |
op aten::mm              @1 |=====     =====     =====     |
op c10d::allreduce_      @1 | =         =         =        |
"""
Event = dict[str, object]


def write(path: Path, keeps: Callable[[Event], bool]) -> TraceSet:
    path.write_text(json.dumps({"traceEvents": [*filter(keeps, draw_events(TRACE))]}))
    return analyze_traces([path])


def write_cut(path: Path, events: list[Event]) -> TraceSet:
    path.write_text(json.dumps({"traceEvents": events})[:-2])
    return analyze_traces([path])


def is_kernel(event: Event, letters: str) -> bool:
    args = event["args"]
    assert isinstance(args, dict)
    return event["cat"] == "kernel" and chr(args.get("correlation", 0)) in letters


@pytest.mark.parametrize(
    ("letters", "lossy"),
    [("f", [2]), ("d", [1, 2]), ("df", [1, 2]), ("c", [1]), ("i", [3]), ("ghi", [2, 3]), ("fghi", [2, 3])],
)
def test_steps_of_lost_kernels_have_no_account_and_no_cause(tmp_path: Path, letters: str, lossy: list[int]) -> None:
    whole = write(tmp_path / "whole.json", lambda _: True)
    left = write(tmp_path / "left.json", lambda event: not is_kernel(event, letters))
    (before,), (after,) = whole.analyses, left.analyses
    assert not before.lost.steps
    assert list(after.lost.steps) == lossy
    for old, new in zip(before.steps, after.steps, strict=True):
        if new.step in lossy:
            assert (new.overlap.step_ns, new.overlap.compute_ns, new.overlap.exposed_comm_ns) == (None, None, None)
            assert all(row.exposed_ns is None and row.wait_ns != 0 for row in new.purposes)
        else:
            assert new.overlap == old.overlap
            assert new.purposes == old.purposes
    assert after.whole.exposed_comm_ns is None
    assert len(find_gaps(after, are_steps=True)) == len(after.steps) - len(lossy)
    owned_ns = sum(row.exposed_ns for row in left.owners)
    assert owned_ns == sum(step.overlap.exposed_comm_ns or 0 for step in after.steps)
    (note,) = map(str, pick_notes(left.notes, LostKernels))
    assert note.endswith(f"is not known in step{'s' if len(lossy) > 1 else ''} {'-'.join(map(str, lossy))}")
    assert not pick_notes(left.notes, EmptySteps)
    (document,) = json.loads(json.dumps(traces_document(left), allow_nan=False))["ranks"]
    lost = {"kernels": len(letters.replace("h", "")), "collectives": letters.count("h"), "steps": lossy}
    assert document["lost"] == lost
    assert [step["step"] for step in document["steps"] if step["at_least"]] == lossy
    assert document["whole"]["at_least"]
    assert [step["exposed_comm_ns"] for step in document["steps"] if step["step"] in lossy] == ["NaN"] * len(lossy)


def test_a_mean_of_the_steps_that_are_left_says_of_which_it_is_and_is_no_bound_of_all(tmp_path: Path) -> None:
    """The kernels of a step and of its collective are lost: other steps may have exposed more, or less."""
    whole = write(tmp_path / "whole.json", lambda _: True)
    assert answer_lines(whole)[0].startswith("step ")
    left = write(tmp_path / "left.json", lambda event: not is_kernel(event, "ef"))
    assert left.analyses[0].unseen == 1
    answer, *_, basis = answer_lines(left)
    assert answer.startswith("of 2 of 3 rank steps: step ")
    assert "at least" not in answer
    assert "exposed" in answer
    assert "mean of 2 steps, without 1 step not wholly known" in basis


def test_a_wait_in_a_step_of_lost_kernels_is_not_known_of_its_collective_either(tmp_path: Path) -> None:
    """What is lost may have run in the gap."""
    whole = COLLECTIVES.tabulate(write(tmp_path / "whole.json", lambda _: True).analyses)
    assert whole["wait_ns"].notna().tolist() == [True, False, False]
    for letter, is_known in (("a", False), ("i", True)):
        left = write(tmp_path / "left.json", lambda event, lost=letter: not is_kernel(event, lost))  # type: ignore[misc]
        assert COLLECTIVES.tabulate(left.analyses)["wait_ns"].notna().tolist() == [is_known, False, False]


def test_where_a_file_in_order_of_time_is_cut_the_last_step_is_not_whole(tmp_path: Path) -> None:
    in_time = sorted(draw_events(TRACE), key=lambda event: event["ts"])
    before = in_time.index(next(event for event in in_time if is_kernel(event, "i")))
    traces = write_cut(tmp_path / "cut.json", in_time[:before])
    whole = write(tmp_path / "whole.json", lambda _: True)
    assert traces.analyses[0].lost.steps == (3,)
    assert traces.analyses[0].steps[0] == whole.analyses[0].steps[0]
    assert "mean of 2 steps" in " ".join(answer_lines(traces))
    assert not pick_notes(traces.notes, EmptySteps)


@pytest.mark.parametrize("first", ["=", " ="], ids=["with the step", "later"])
def test_a_step_before_the_cut_is_whole_though_its_first_operator_begins_after_its_mark(
    tmp_path: Path, first: str
) -> None:
    events = draw_events(f"""
step ProfilerStep#1      @1 |==========                    |
step ProfilerStep#2      @1 |          ==========          |
step ProfilerStep#3      @1 |                    ==========|
range gloo:all_reduce    @9 |   ===       ===       ===    |
op aten::mm              @1 |{first:<2}        ==        ==        |
op c10d::allreduce_      @1 |   =         =         =      |
op aten::add_            @1 |      =         =         =   |
""")
    in_time = sorted(events, key=lambda event: (event["ts"], -event["dur"]))
    traces = write_cut(tmp_path / "cut.json", in_time[:-1])
    (one,) = traces.analyses
    assert one.lost.steps == (3,)
    assert [step.overlap.exposed_comm_ns for step in one.steps] == [3_000, 3_000, None]
    assert not pick_notes(traces.notes, ComputeNotRecorded)


@pytest.mark.parametrize(("drawing", "kept"), [(TRACE, 16), (TRACE, 20), (TRACE, 23), (GLOO, 5), (GLOO, 7)])
def test_where_a_file_in_another_order_is_cut_no_step_is_known(tmp_path: Path, drawing: str, kept: int) -> None:
    traces = write_cut(tmp_path / "cut.json", draw_events(drawing)[:kept])
    (one,) = traces.analyses
    assert one.lost.steps == tuple(step.step for step in one.steps) != ()
    assert {step.overlap.step_ns for step in one.steps} == {None}
    assert (one.whole.compute_ns, one.whole.exposed_comm_ns, one.whole.idle_ns) == (None, None, None)
    assert not any(row.wait_ns or row.exposed_ns == 0 or row.wait_ns == 0 for row in one.whole_purposes)
    assert {account.gaps for account in (one.accounts.whole, *one.accounts.steps)} == {None}
    assert not traces.owners
    assert "the file was cut" in " ".join(say_notes(traces.notes))
    assert "what is left of the trace" in answer_lines(traces)[0]


def test_a_file_that_is_cut_before_its_kernels_is_refused_for_that(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="9 calls to launch kernels, and no kernel is in it: the file was cut"):
        write_cut(tmp_path / "cut.json", draw_events(TRACE)[:15])


def test_a_cut_file_without_step_marks_gives_no_cause(tmp_path: Path) -> None:
    unmarked = [event for event in draw_events(TRACE) if event["cat"] != "user_annotation"]
    assert write_cut(tmp_path / "whole.json", unmarked).analyses[0].whole.exposed_comm_ns is None
    assert not write_cut(tmp_path / "cut.json", unmarked[:-2]).owners


@pytest.mark.parametrize(
    "more",
    [
        """call cudaStreamBeginCapture @1 | = |
           call cudaLaunchKernel @1 |  ABC |
           call cudaStreamEndCapture @1 |     = |""",
        """call hipStreamBeginCapture @1 | = |
           call hipLaunchKernel @2 |  ABC |
           call hipStreamEndCapture @1 |     = |""",
        "call cuStreamBeginCapture_v2 @1 |           = |\ncall cuLaunchKernelEx @1 |            XYZ |",
        "call cudaStreamEndCapture @1 |     = |\ncall cudaLaunchKernel @1 |XYZ |",
        "call aclmdlRICaptureBegin @1 |= |\ncall aclrtLaunchKernel @1 | XYZ |\ncall aclmdlRICaptureEnd @1 |    = |",
        "call urCommandBufferAppendKernelLaunchExp @1 |        XYZ |",
        "call cudaMemcpyAsync @1 |        XYZ |",
        "call cudaMemsetAsync @1 |        XYZ |",
        "call cudaEventRecord @1 |        XYZ |",
        "call cudaStreamWaitEvent @1 |        XYZ |",
        "call cudaLaunchHostFunc @1 |        XYZ |",
        "call cudaGraphLaunch @1 |        XYZ |",  # no graph's work is tied to it in this trace
    ],
)
def test_calls_that_have_no_kernel_of_their_own_lost_none(tmp_path: Path, more: str) -> None:
    path = tmp_path / "more.json"
    path.write_text(json.dumps({"traceEvents": draw_events(TRACE + more)}))
    assert analyze_traces([path]).analyses[0].lost.kernels == 0


def test_captured_collectives_are_not_missed_either(tmp_path: Path) -> None:
    path = tmp_path / "captured.json"
    captured = """call cudaStreamBeginCapture @1 |                      = |
        range nccl:all_reduce       @1 |                       == |
        call cudaLaunchKernelExC    @1 |                       X |
        call cudaStreamEndCapture   @1 |                         = |"""
    path.write_text(json.dumps({"traceEvents": draw_events(TRACE + captured)}))
    assert analyze_traces([path]).analyses[0].timeline.unseen == ()


def test_a_launch_that_another_makes_is_one(tmp_path: Path) -> None:
    path = tmp_path / "nested.json"
    nested = "call hipExtModuleLaunchKernel @2 |ppp |\ncall hipModuleLaunchKernel @2 | q |\n"
    ran = "kernel gemm @7 |         pp |"
    for more, lost in ((nested + ran, 0), (nested, 1)):
        path.write_text(json.dumps({"traceEvents": draw_events(TRACE + more)}))
        assert analyze_traces([path]).analyses[0].lost.kernels == lost


def test_a_graph_whose_kernels_are_lost_is_one_where_another_shows_its_own(tmp_path: Path) -> None:
    path = tmp_path / "graphs.json"
    graphs = "call cudaGraphLaunch @2 |           p         q |\nkernel gemm @7 |             pp |"
    path.write_text(json.dumps({"traceEvents": draw_events(TRACE + graphs)}))
    (one,) = analyze_traces([path]).analyses
    assert (one.lost.kernels, one.lost.steps) == (1, (3,))


REPLAYED = """
step ProfilerStep#1      @1 |==========                    |
step ProfilerStep#2      @1 |          ==========          |
step ProfilerStep#3      @1 |                    =======   |
call cudaGraphLaunch     @1 |ab        cd        ef        |
kernel gemm              @7 | a  bbb    c  ddd    e  fff   |
kernel relu              @7 |  a         c         e       |
kernel gemm              @8 |  a         c         e       |
"""


@pytest.mark.parametrize(
    ("lost", "kernels", "lossy"),
    [
        ([], 0, []),
        ([("relu", "c")], 1, [2]),
        ([("relu", "c"), ("relu", "e")], 2, [2, 3]),
        ([("gemm", "c")], 2, [1, 2]),
        ([("gemm", "c"), ("relu", "e")], 3, [1, 2, 3]),
    ],
    ids=["nothing", "one", "the same of two", "with its first", "of two unlike"],
)
def test_kernels_that_one_replay_of_a_graph_lacks_are_lost(
    tmp_path: Path, lost: list[tuple[str, str]], kernels: int, lossy: list[int]
) -> None:
    """The graph of a, c and e has what that of b, d and f has, and more: these are whole."""
    for has_steps in (True, False):
        kept = [
            event
            for event in draw_events(REPLAYED)
            if not any(event["name"] == name and is_kernel(event, letter) for name, letter in lost)
            and (has_steps or event["cat"] != "user_annotation")
        ]
        path = tmp_path / "replayed.json"
        path.write_text(json.dumps({"traceEvents": kept}))
        traces = analyze_traces([path])
        (one,) = traces.analyses
        if has_steps:
            assert (one.lost.kernels, list(one.lost.steps)) == (kernels, lossy)
            assert [step.step for step in one.steps if step.overlap.compute_ns is None] == lossy
        elif len(lost) < 2:  # where nothing tells places, several must be alike
            assert one.lost.kernels == (kernels if lost != [("gemm", "c")] else 0)
        assert bool(pick_notes(traces.notes, LostKernels)) is bool(one.lost.kernels)


def test_without_steps_and_where_all_steps_lack_some_exposure_is_not_known(tmp_path: Path) -> None:
    no_steps = write(tmp_path / "a.json", lambda one: one["cat"] != "user_annotation" and not is_kernel(one, "f"))
    all_steps = write(tmp_path / "b.json", lambda one: not is_kernel(one, "cfi"))
    for traces in (no_steps, all_steps):
        assert not traces.owners
        assert "exposed is not known: kernels that were launched are not in the trace" in answer_lines(traces)[0]


def test_kernels_without_ids_are_not_lost_and_more_launches_than_such_kernels_are(tmp_path: Path) -> None:
    def strip(letters: str, gone: str = "") -> list[Event]:
        events = [event for event in draw_events(TRACE) if not is_kernel(event, gone)]
        for event in events:
            if is_kernel(event, letters):
                event["args"] = {}
        return events

    path = tmp_path / "stripped.json"
    for letters, gone, lost in (("f", "", 0), ("cf", "", 0), ("f", "c", 1), ("cfi", "", 0)):
        path.write_text(json.dumps({"traceEvents": strip(letters, gone)}))
        (one,) = analyze_traces([path]).analyses
        assert (one.lost.kernels, one.uncorrelated.without_id) == (lost, len(letters))


@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize("is_gloo", [True, False])
def test_a_step_before_ranges_that_are_missing_ends_with_its_own(
    tmp_path: Path, *, is_own: bool, is_gloo: bool
) -> None:
    drawing = GLOO_OF_THREE if is_gloo else TRACE
    events = [event for event in draw_events(drawing) if event["name"] != "ProfilerStep#2"]
    if is_own:
        events += draw_events("range dtbench::region forward @1 |=====|")
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": events}))
    traces = analyze_traces([path])
    (one,) = traces.analyses
    (note,) = map(str, pick_notes(traces.notes, StepsSkipped))
    is_bounded = is_gloo or not is_own  # steps of dtbench's own on a device run to the next one's first kernel
    assert ("how long it took is not known of step 1" in note) is not is_bounded
    assert [step.overlap.step_ns is None for step in one.steps] == [not is_bounded, False]
    assert not pick_notes(traces.notes, LostKernels)
    assert not pick_notes(traces.notes, UnknownPurposes)


COPIED = """
step ProfilerStep#1      @1 |==========                    |
step ProfilerStep#2      @1 |          ==========          |
call cudaLaunchKernel    @1 |a          d      g           |
call cudaMemcpyAsync     @1 |  b           e               |
call cudaMemsetAsync     @1 |    c           f             |
kernel gemm              @7 | aa         dd     gg         |
copy Memcpy DtoH         @7 |    bb          ee            |
copy Memset (Device)     @7 |      cc          ff          |
"""


@pytest.mark.parametrize(
    ("lost", "counted"), [("", 0), ("b", 1), ("be", 2), ("bcef", 4)], ids=["none", "a copy", "all copies", "all"]
)
def test_copies_and_fills_that_were_launched_and_are_not_there_are_counted(
    tmp_path: Path, lost: str, counted: int
) -> None:
    def is_there(event: Event) -> bool:
        args = event["args"]
        assert isinstance(args, dict)
        return event["cat"] != "gpu_memcpy" or chr(args["correlation"]) not in lost

    path = tmp_path / "copied.json"
    path.write_text(json.dumps({"traceEvents": [*filter(is_there, draw_events(COPIED))]}))
    traces = analyze_traces([path])
    (one,) = traces.analyses
    assert one.lost.copies == counted
    assert [note.copies for note in pick_notes(traces.notes, LostCopies)] == [counted] * bool(counted)
    are_known = [not lost, len(lost) < 2, not lost]  # of each step and of the whole trace
    assert renumber_steps(one, 7).lost.copy_steps == tuple(number - 7 for number in one.lost.copy_steps)
    overlaps = [*(step.overlap for step in one.steps), one.whole]
    assert [overlap.exposed_copy_ns is not None for overlap in overlaps] == are_known
    assert [overlap.idle_ns is not None for overlap in overlaps] == are_known
    assert [overlap.exposed_comm_ns for overlap in overlaps] == [0, 0, 0]
    accounts = [*one.accounts.steps, one.accounts.whole]
    assert [account.gaps is not None for account in accounts] == are_known
    assert [any(lane.copy_ns == 0 for lane in account.lanes) for account in accounts] == [False] * 3
    mean = average([one]).overlap
    assert (mean.step_ns, mean.compute_ns, mean.comm_ns, mean.is_decided) == (10_000, 3_000, 0, True)
    assert (mean.exposed_copy_ns is None, mean.idle_ns is None) == (bool(lost), bool(lost))
    (mean_of_rank,) = summarize_ranks(OVERLAP.tabulate(traces.analyses))
    assert (mean_of_rank.steps, mean_of_rank.exposed_copy_ns, mean_of_rank.idle_ns) == (
        (2, mean.exposed_copy_ns, mean.idle_ns)
    )


def test_what_a_step_of_lost_copies_waited_for_communication_is_not_known(tmp_path: Path) -> None:
    """The copy of step 2 waits for the collective there: without it, compute seems to have waited, and for longer."""
    drawing = """
step ProfilerStep#1      @1 |==========                    |
step ProfilerStep#2      @1 |          ==========          |
step ProfilerStep#3      @1 |                    ==========|
op c10d::allreduce_      @1 | =         =         =        |
call cudaLaunchKernel    @1 |ab  c     de  f     gh  i     |
call cudaMemcpyAsync     @1 |             k                |
kernel gemm              @7 | aa   cc   dd     ff gg   ii  |
kernel ncclDevKernel_AllReduce_Sum @20 |   bb        eee      hh      |
copy Memcpy DtoH         @7 |               kk             |
"""
    path, waits_ns = tmp_path / "trace.json", []
    for is_lost in (False, True):
        kept = [one for one in draw_events(drawing) if not (is_lost and one["cat"] == "gpu_memcpy")]
        path.write_text(json.dumps({"traceEvents": kept}))
        (one,) = analyze_traces([path]).analyses
        rows = [*(step.purposes[0] for step in one.steps), one.whole_purposes[0]]
        waits_ns.append([row.wait_ns for row in rows])
        assert not any(row.is_wait_least for row in rows)
    assert COLLECTIVES.tabulate([one])["wait_ns"].isna().tolist()[1]
    whole_ns, left_ns = waits_ns
    assert (whole_ns[:2], whole_ns[-1]) == ([1_000, 0], 1_000)
    assert left_ns == [1_000, None, whole_ns[2], None]


def test_a_step_may_begin_with_a_copy_that_is_lost(draw: Callable[..., Path]) -> None:
    """Until its first kernel: the main lane had done all that was launched before, and stood idle for the copy."""
    kernels = """
step ProfilerStep#1      @1 |==========          |
step ProfilerStep#2      @1 |          ==========      |
call cudaLaunchKernel    @1 |a b         d             |
kernel gemm              @7 | aa             dddddddddd|
kernel gemm              @8 |    bbb                   |
call cudaMemcpyAsync     @1 | x        c               |
copy Memcpy HtoD         @7 |   x       ccccc          |
"""
    for missing, unsure_ns, is_known in (("", 0, True), ("c", 6_000, False)):
        drawing = "\n".join(
            line.replace("c" * 5, " " * 5) if missing and line.startswith("copy") else line
            for line in kernels.splitlines()
        )
        (one,) = analyze_traces([draw(drawing)]).analyses
        assert (one.steps[0].unsure_end_ns, one.steps[1].unsure_ns) == (unsure_ns, unsure_ns)
        assert [step.overlap.exposed_copy_ns is not None for step in one.steps] == [is_known] * 2
        assert [step.overlap.step_ns is not None for step in one.steps] == [is_known] * 2


def test_a_mean_step_without_copies_is_drawn_and_told_without_them() -> None:
    bar = step_bar("rank 0", StepMean(10_000, 4_000, 3_000, 1_000, 2_000, None, None), step_parts("idle"))
    assert bar.lengths_ns == (4_000, 2_000, None, None)
    assert bar.words[2:] == ("n/a", "n/a")
    assert bar.end == "exposed 20.0 % of step, hidden 33.3 % of comm, exposed copy and idle n/a"
