"""A window over steps: what is outside is in no number of steps, and counted; what is inside is as without it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

import dtbench
from dtbench.base.errors import TraceError
from dtbench.cli.analyze import analyze
from dtbench.report.words.trace_words import answer_lines
from dtbench.traces.job.chosen_steps import StepRange, find_range
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.means import average
from dtbench.traces.notes.job import StepsChosen
from dtbench.traces.notes.lacking import CutStep, LostKernels, OutsideSteps
from dtbench.traces.notes.note import pick_notes
from dtbench.traces.rows.collective_table import COLLECTIVES

# Exposed: 2 us in step 1, 4 in step 2, 5 in step 3, 4 in step 4.
FIRST = """
step ProfilerStep#1               @1  |==========                              |
step ProfilerStep#2               @1  |          ==========                    |
step ProfilerStep#3               @1  |                    ==========          |
step ProfilerStep#4               @1  |                              ==========|
call cudaLaunchKernel             @1  |ac        df        gi        jl        |
kernel ncclDevKernel_AllReduce_Sum @20 |     cc        ffff      iiiii     llll | {"Process Group Name": "0"}
kernel gemm                       @7  |aaaaa     ddddd     ggggg     jjjjj     |
"""
ARGS = json.dumps({"Collective name": "allreduce", "Process Group Name": "0", "Process Group Ranks": "[0, 1]"})


def test_steps_inside_are_as_without_a_window_and_the_others_are_counted(recorded: Path) -> None:
    path = recorded / "fsdp2_tp_2x2_rank0.json.gz"
    (every,), (one,) = (analyze_traces([path], steps=find_range(steps)).analyses for steps in (None, (11, 12)))
    assert [step.step for step in every.steps] == [10, 11, 12]
    assert one.steps == every.steps[1:]
    assert one.accounts.steps == every.accounts.steps[1:]
    assert one.timeline.steps == every.timeline.steps[1:]
    assert one.left is not None
    assert one.left.steps == 1
    assert one.whole == every.whole


def test_what_is_exposed_is_of_the_window_alone(draw: Callable[..., Path]) -> None:
    exposed = {
        steps: sum(row.exposed_ns for row in analyze_traces([draw(FIRST)], steps=find_range(steps)).owners)
        for steps in (None, 2, (2, 3), (1, 4))
    }
    assert exposed == {None: 15000, 2: 4000, (2, 3): 9000, (1, 4): 15000}


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (StepRange(3, 9), "2 of 4 steps (steps 5-9 are not there)"),
        (StepRange(0, 5), "4 of 4 steps (steps 0 and 5 are not there)"),
        (StepRange(4, 5), "1 of 4 steps (step 5 is not there)"),
    ],
)
def test_steps_of_the_window_that_are_not_there_are_named(
    draw: Callable[..., Path], steps: StepRange, said: str
) -> None:
    (note,) = pick_notes(analyze_traces([draw(FIRST)], steps=steps).notes, StepsChosen)
    assert f"counted, {said}; whole traces" in str(note)


def test_a_note_says_how_many_of_how_many(draw: Callable[..., Path]) -> None:
    traces = analyze_traces([draw(FIRST)], steps=StepRange(2, 3))
    (note,) = pick_notes(traces.notes, StepsChosen)
    assert str(note) == "rank 0: steps 2-3 alone are counted, 2 of 4 steps; whole traces are of all of them"
    assert average(traces.analyses).windows == 2
    assert not pick_notes(traces.notes, OutsideSteps)  # what other steps issued is not outside all steps
    assert not pick_notes(analyze_traces([draw(FIRST)]).notes, StepsChosen)
    assert "mean of 2 steps (steps 2-3; 2 of 4 left out)" in str(dtbench.read_trace(draw(FIRST), steps=(2, 3)))


@pytest.mark.parametrize(
    ("lacks", "said"),
    [
        ("", "mean of 1 step of each (step 3; 3 of 4 left out)"),
        ("ProfilerStep#4", "mean of 1 step of each (step 3; 5 of 7 rank steps left out)"),
    ],
)
def test_what_a_window_leaves_out_is_counted_as_what_it_keeps_is(
    draw: Callable[..., Path], lacks: str, said: str
) -> None:
    paths = [
        draw(
            drawing,
            f"rank{rank}.json",
            distributedInfo={"rank": rank, "world_size": 2, "backend": "nccl"},
        )
        for rank, drawing in enumerate((FIRST, FIRST.replace(lacks, "evaluate") if lacks else FIRST))
    ]
    traces = analyze_traces(paths, steps=StepRange(3, 3))
    assert said in "".join(answer_lines(traces))


def test_rows_of_collectives_are_those_of_the_window(draw: Callable[..., Path]) -> None:
    rows = COLLECTIVES.tabulate(analyze_traces([draw(FIRST)], steps=StepRange(3, 4)).analyses)
    assert rows["step"].tolist() == [3, 4]


def test_what_is_lost_of_other_steps_makes_no_bound_of_these(draw: Callable[..., Path]) -> None:
    lacking = FIRST.replace("     llll |", "          |").replace("jjjjj     |", "jjjjjjjjjj|")
    every, window = (
        average(analyze_traces([draw(lacking)], steps=steps).analyses) for steps in (None, StepRange(1, 2))
    )
    assert (every.lost, every.left_out) != (0, 0)
    assert (window.lost, window.left_out) == (0, 0)
    assert not window.overlap.is_least
    assert window.overlap.exposed_comm_ns == 3000


def test_a_cut_step_outside_the_window_is_not_told_of(draw: Callable[..., Path]) -> None:
    cut = FIRST.replace("     llll |", "          |").replace("jjjjj     |", "j         |").replace("jl ", "j  ")
    assert pick_notes(analyze_traces([draw(cut)]).notes, CutStep)
    assert not pick_notes(analyze_traces([draw(cut)], steps=StepRange(1, 3)).notes, CutStep)
    assert not pick_notes(analyze_traces([draw(cut)], steps=StepRange(1, 3)).notes, LostKernels)


def test_a_window_without_steps_is_refused_and_says_which_there_are(draw: Callable[..., Path]) -> None:
    with pytest.raises(TraceError, match=r"the traces have no step 7-9: they have 1-4"):
        analyze_traces([draw(FIRST)], steps=StepRange(7, 9))
    with pytest.raises(TraceError, match="they have no steps at all"):
        analyze_traces([draw(FIRST.replace("ProfilerStep#", "my step "))], steps=StepRange(1, 2))


def test_who_waits_is_of_the_window_alone(draw: Callable[..., Path]) -> None:
    """Rank 1 comes late in step 3 alone: without that step nobody waits."""

    def rank(starts: str) -> str:
        return f"""
        step ProfilerStep#1 @1 |==========                    |
        step ProfilerStep#2 @1 |          ==========          |
        step ProfilerStep#3 @1 |                    ==========|
        call cudaLaunchKernel @1 |a         b         c         |
        call cudaLaunchKernel @1 | d         e         f        |
        kernel gemm @7 |aaa       bbb       ccc       |
        kernel ncclDevKernel_AllReduce_Sum @20 |{starts}| {ARGS}
        """

    ranks = ("   ddd       eee       ffffff ", "   ddd       eee          fff ")
    paths = [
        draw(
            rank(starts),
            f"rank{number}.json",
            distributedInfo={"rank": number, "world_size": 2, "backend": "nccl"},
        )
        for number, starts in enumerate(ranks)
    ]
    every, window = (analyze_traces(paths, steps=steps).over_ranks.waiting for steps in (None, StepRange(1, 2)))
    assert sum(one.caused_wait_ns or 0 for one in every.ranks) > 0
    assert sum(one.caused_wait_ns or 0 for one in window.ranks) == 0
    assert window.collectives < every.collectives
    assert window.outside == every.outside


def test_the_command_takes_a_window(draw: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    analyze([str(draw(FIRST))], steps="2-3", as_json=True)
    (rank,) = json.loads(capsys.readouterr().out)["ranks"]
    assert [step["step"] for step in rank["steps"]] == [2, 3]
    assert rank["steps_left_out"] == 2
    analyze([str(draw(FIRST))], steps="2-3", full=True)
    assert ["whole"] not in [line.split()[1:2] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(("text", "said"), [("3-", "are no steps"), ("five", "are no steps"), ("5-3", "say `3-5`")])
def test_a_window_that_is_none_is_refused_before_anything_is_read(text: str, said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        analyze(["nowhere.json"], steps=text)


def test_a_window_of_a_run_is_refused_with_what_to_give_instead() -> None:
    with pytest.raises(typer.BadParameter, match="--steps is for traces; give the run's traces folders"):
        analyze([str(Path(__file__).parents[2] / "results" / "example")], steps="1-2")
