"""Steps that a person's own ranges mark: as the profiler's marks would, and no step is guessed where ranks disagree."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dtbench
from dtbench.base.errors import TraceError
from dtbench.cli.analyze import analyze
from dtbench.report.words.trace_words import answer_lines
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.notes.files import LeftOut, NamedSteps
from dtbench.traces.notes.lacking import NoSteps, OutsideSteps
from dtbench.traces.notes.note import pick_notes

# Between the ranges is an evaluation: kernel x and collective y, of no step.
MARKED = """
range {0}                          @1  |==========                              |
range evaluate                     @1  |          =====                         |
range {1}                          @1  |               ==========               |
range evaluate                     @1  |                         ===            |
call cudaLaunchKernel              @1  |ac        xy   df        v              |
kernel ncclDevKernel_AllReduce_Sum @20 |     cc       yy    ff                  |
kernel gemm                        @7  |aaaaa     xxxx ddddd     vvv            |
"""


def name_steps(*names: str) -> str:
    first, second = (name.ljust(20) for name in names)
    return (
        "\n".join(line.replace("{0}".ljust(20), first).replace("{1}".ljust(20), second) for line in MARKED.splitlines())
        .replace("{0}", names[0])
        .replace("{1}", names[1])
    )


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (("my_step", "my_step"), [0, 1]),
        (("my_step 7", "my_step 9"), [7, 9]),
        (("my_step#7", "my_step#8"), [7, 8]),
        (("my_step[7]", "my_step[8]"), [7, 8]),
        (("my_step_12", "my_step_13"), [12, 13]),
    ],
)
def test_ranges_of_a_name_are_steps_and_end_with_their_ranges(
    draw: Callable[..., Path], names: tuple[str, str], numbers: list[int]
) -> None:
    traces = analyze_traces([draw(name_steps(*names))], step_range="my_step")
    (one,) = traces.analyses
    assert [step.step for step in one.steps] == numbers
    assert [(step.start_ns, step.end_ns) for step in one.timeline.steps] == [(0, 10000), (15000, 25000)]
    assert [step.overlap.exposed_comm_ns for step in one.steps] == [2000, 2000]
    assert [note.collectives for note in pick_notes(traces.notes, OutsideSteps)] == [1]
    (said,) = pick_notes(traces.notes, NamedSteps)
    assert (said.ranks, said.ranges, said.is_numbered) == ((0,), 2, numbers[0] != 0)


def test_a_step_on_threads_is_its_range(draw: Callable[..., Path]) -> None:
    drawing = """
    range my_step      @1  |==========     ==========|
    op aten::mm        @1  |=====    ===== ========  |
    """
    (one,) = analyze_traces([draw(drawing)], step_range="my_step").analyses
    assert [step.overlap.step_ns for step in one.steps] == [10000, 10000]
    assert [step.overlap.compute_ns for step in one.steps] == [6000, 8000]


def test_marks_of_the_profiler_are_no_steps_then_and_ranges_inside_others_neither(draw: Callable[..., Path]) -> None:
    drawing = """
    step ProfilerStep#4 @1  |====================|
    range my_step       @1  |==========          |
    range my_step       @2  |  ===               |
    range my_step       @1  |          ==========|
    op aten::mm         @1  | ====      ====     |
    """
    traces = analyze_traces([draw(drawing)], step_range="my_step")
    assert [step.step for step in traces.analyses[0].steps] == [0, 1]
    (said,) = pick_notes(traces.notes, NamedSteps)
    assert str(said) == (
        "rank 0: steps are the 2 ranges named `my_step`, numbered from 0 on, in their order; "
        "1 range inside others is none; 1 ProfilerStep range is none"
    )


def test_a_range_that_begins_in_a_step_and_ends_after_it_is_none_and_takes_no_other_with_it(
    draw: Callable[..., Path],
) -> None:
    drawing = """
    range my_step  @1  |======                        |
    range my_step  @2  |     ========                 |
    range my_step  @3  |       =                      |
    range my_step  @1  |             =====            |
    range my_step  @2  |                 ======       |
    range my_step  @1  |                        ======|
    op aten::mm    @1  | ===   ==    ===   ==   ===   |
    """
    traces = analyze_traces([draw(drawing)], step_range="my_step")
    (one,) = traces.analyses
    assert [(step.start_ns, step.end_ns) for step in one.timeline.steps] == [(0, 6000), (13000, 18000), (24000, 30000)]
    assert [step.step for step in one.steps] == [0, 2, 4], "ranks that lose others so are paired by these all the same"
    (said,) = pick_notes(traces.notes, NamedSteps)
    assert str(said) == (
        "rank 0: steps are the 3 ranges named `my_step`, numbered from 0 on, in their order; 1 range inside others is"
        " none; 2 ranges that begin in a step and end after it are none"
    )


def test_ranks_that_have_as_many_ranges_are_paired_whichever_of_them_overlap(draw: Callable[..., Path]) -> None:
    paths = [
        draw(
            f"range s @1 |===     |\nrange s @2 |{second}|\nrange s @1 |      ==|\nop aten::mm @1 |== == ==|",
            f"rank{rank}.json",
            distributedInfo={"rank": rank, "world_size": 2, "backend": "gloo"},
        )
        for rank, second in enumerate(("   ===  ", "  ===   "))
    ]
    analyses = analyze_traces(paths, step_range="s").analyses
    assert [[step.step for step in one.steps] for one in analyses] == [[0, 1, 2], [0, 2]]


def test_ranges_with_the_number_of_a_step_before_are_no_steps(draw: Callable[..., Path]) -> None:
    traces = analyze_traces([draw(name_steps("my_step 7", "my_step 7"))], step_range="my_step")
    (one,) = traces.analyses
    assert [(step.start_ns, step.end_ns) for step in one.timeline.steps] == [(0, 10000)]
    assert [note.collectives for note in pick_notes(traces.notes, OutsideSteps)] == [2]
    (said,) = pick_notes(traces.notes, NamedSteps)
    assert str(said) == (
        "rank 0: steps are the 1 range named `my_step`, numbered as they are; 1 range with the number of a step before"
        " is none"
    )
    doubt = next(line for line in answer_lines(traces) if "REPRESENTATIVE" in line)
    assert doubt == "NOT REPRESENTATIVE: 1 range carries the number of an earlier step, and is no step of its own"


def test_a_name_that_is_not_there_is_asked_after(draw: Callable[..., Path]) -> None:
    drawing = name_steps("my_step", "my_step")
    with pytest.raises(TraceError, match=r"no range is named `my_stp`; did you mean `my_step` \(2 ranges\)\?"):
        analyze_traces([draw(drawing)], step_range="my_stp")
    with pytest.raises(TraceError, match=r"there are `my_step` \(2\), `evaluate` \(2\)"):
        analyze_traces([draw(drawing)], step_range="iteration")
    bare = draw("step ProfilerStep#1 @1 |====|\nop aten::mm @1 | == |")
    with pytest.raises(TraceError, match=r"none is a loop's own; `with torch.profiler.record_function\("):
        analyze_traces([bare], step_range="iteration")


def test_ranks_with_unlike_many_ranges_are_refused_unless_they_are_numbered(draw: Callable[..., Path]) -> None:
    def of_rank(rank: int, drawing: str) -> Path:
        return draw(drawing, f"rank{rank}.json", distributedInfo={"rank": rank, "world_size": 2, "backend": "gloo"})

    def drawing(*names: str) -> str:
        lines = [f"range {name} @1 |{' ' * 6 * at}===== |" for at, name in enumerate(names)]
        return "\n".join([*lines, "op aten::mm @1 | ===   ===   ===   |"])

    unlike = [of_rank(0, drawing("s", "s", "s")), of_rank(1, drawing("s", "s"))]
    with pytest.raises(TraceError, match=r"do not agree .*rank0.json has 3, .*rank1.json 2.*number them"):
        analyze_traces(unlike, step_range="s")
    numbered = [of_rank(0, drawing("s 1", "s 2", "s 3")), of_rank(1, drawing("s 2", "s 3"))]
    steps = [[step.step for step in one.steps] for one in analyze_traces(numbered, step_range="s").analyses]
    assert steps == [[1, 2, 3], [2, 3]]
    lacking = [of_rank(0, drawing("s", "s", "s")), of_rank(1, drawing("t", "t", "t"))]
    traces = analyze_traces(lacking, step_range="s")
    assert [one.rank for one in traces.analyses] == [0]
    assert len(pick_notes(traces.notes, LeftOut)) == 1


def test_traces_without_marks_say_which_ranges_may_be_steps(draw: Callable[..., Path]) -> None:
    (said,) = pick_notes(analyze_traces([draw(name_steps("train step 3", "train step 4"))]).notes, NoSteps)
    assert "(`--range 'train step'` takes the 2 ranges of that name as steps)" in str(said)
    (said,) = pick_notes(analyze_traces([draw("op aten::mm @1 |==|")]).notes, NoSteps)
    assert "--range" not in str(said)


def test_the_timeline_and_a_window_know_the_same_steps(draw: Callable[..., Path]) -> None:
    report = dtbench.read_trace(draw(name_steps("my_step", "my_step")), step_range="my_step", steps=1)
    assert report.overlap["step"].tolist() == [1]
    assert report.timeline().document.shown_steps == [1]
    report.plot_timeline(1)


def test_the_command_takes_the_name(draw: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    analyze([str(draw(name_steps("my_step", "my_step")))], step_range="my_step", as_json=True)
    answer: Any = json.loads(capsys.readouterr().out)
    assert [step["step"] for step in answer["ranks"][0]["steps"]] == [0, 1]
