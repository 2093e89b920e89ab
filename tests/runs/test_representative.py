"""PROFILED steps not like MEASURED ones, or not like each other: the headline says it, and no cause is a finding."""

import json
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dtbench
from dtbench.base.vocabulary import CAUSE_PHRASES, Phase
from dtbench.cli.main import main
from dtbench.report.documents.traces import document_head as traces_document
from dtbench.report.page.checklist import answer_line
from dtbench.report.words import sentences
from dtbench.report.words.doubts import NO_FINDING
from dtbench.report.words.trace_words import advise_traces, answer_lines
from dtbench.runs.cell.statistics import summarize_ratio
from dtbench.runs.doubt_words import describe_doubt
from dtbench.runs.representative import (
    Doubt,
    DoubtKind,
    TracedSteps,
    doubt_launches,
    doubt_phases,
    doubt_steps,
    doubt_traces,
    doubt_traffic,
    read_steps_of_traces,
)
from dtbench.runs.run import summarize_run
from dtbench.runs.summary import CellSummary
from dtbench.store.layout import RunFolder
from dtbench.store.write import write_table
from dtbench.traces.job.foreign import analyze_traces
from tests.known import known

EXAMPLE = Path(__file__).parents[2] / "results" / "example"
MS = 1_000_000
Change = Callable[[pd.DataFrame, pd.DataFrame], tuple[pd.DataFrame, pd.DataFrame]]
"""Of a cell's timed steps and of its overlap."""


def lengthen_profiled(factor: float) -> Change:
    def change(steps: pd.DataFrame, overlap: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        is_profiled = steps["phase"] == Phase.PROFILED.value
        longer = (steps["duration_ns"] * np.where(is_profiled, factor, 1)).astype("int64")
        return steps.assign(duration_ns=longer), overlap

    return change


def lengthen_step(place: int, factor: int) -> Change:
    def change(steps: pd.DataFrame, overlap: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        number = sorted(overlap["step"].unique())[place]
        more_ns = overlap["step_ns"] * np.where(overlap["step"] == number, factor - 1, 0)
        return steps, overlap.assign(step_ns=overlap["step_ns"] + more_ns, idle_ns=overlap["idle_ns"] + more_ns)

    return change


def forget(phase: str, kept: int = 0) -> Change:
    """As if only so many steps of a phase had left their times."""

    def change(steps: pd.DataFrame, overlap: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        first = sorted(steps[steps["phase"] == phase]["step"].unique())[:kept]
        return steps[(steps["phase"] != phase) | steps["step"].isin(first)].reset_index(drop=True), overlap

    return change


def shorten_all(factor: float) -> Change:
    """As if the steps of a training took less than what is exposed in the traces."""

    def change(steps: pd.DataFrame, overlap: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        return steps.assign(duration_ns=(steps["duration_ns"] * factor).astype("int64")), overlap

    return change


def drift(exposed_ms: Sequence[float]) -> Change:
    def change(steps: pd.DataFrame, overlap: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        step = int(overlap["step"].min())
        first = overlap[overlap["step"] == step]
        parts = [first.assign(step=step + number, exposed_comm_ns=int(ms * MS)) for number, ms in enumerate(exposed_ms)]
        drifted = pd.concat(parts, ignore_index=True)
        more_ns = drifted["exposed_comm_ns"] - pd.concat([first["exposed_comm_ns"]] * len(parts), ignore_index=True)
        sums = {name: drifted[name] + more_ns for name in ("step_ns", "comm_ns")}
        return steps, drifted.assign(**sums)

    return change


def leave(steps: pd.DataFrame, overlap: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    return steps, overlap


def change_run(folder: Path, change: Change) -> CellSummary:
    """Change the first cell of a copy of the example; gives its answer."""
    shutil.copytree(EXAMPLE, folder)
    launch = RunFolder(folder).launch("ddp", 0)
    paths = (launch.steps, launch.overlap)
    for path, table in zip(paths, change(*(pd.read_parquet(path) for path in paths)), strict=True):
        write_table(path, table)
    purposes, numbers = launch.path / "purposes.parquet", pd.read_parquet(launch.overlap)["step"].unique()
    table = pd.read_parquet(purposes)
    if more := [number for number in numbers if number not in set(table["step"])]:
        of_first = table[table["step"] == table["step"].min()]
        table = pd.concat([table, *(of_first.assign(step=number) for number in more)])
        write_table(purposes, table[table["step"].isin(numbers)])
    # Only these tables are changed: that they no longer fit the others is another doubt.
    return summarize_run(folder).cells[0].model_copy(update={"rank_doubts": ()})


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        (lengthen_profiled(3.03), DoubtKind.UNLIKE_MEASURED, "PROFILED steps took 3.24 x as long as MEASURED ones"),
        (lengthen_profiled(0.524), DoubtKind.UNLIKE_MEASURED, "PROFILED steps took 0.560 x as long"),
        (lengthen_profiled(1.2), DoubtKind.UNLIKE_MEASURED, "PROFILED steps took 1.28 x"),
        (lengthen_profiled(1.15), DoubtKind.UNSURE_MEASURED, "1.23 x as long as MEASURED ones, which may be 1.18 x to"),
        (forget("MEASURED"), DoubtKind.UNCOMPARED, "step times of MEASURED or of PROFILED steps are not known"),
        (forget("PROFILED"), DoubtKind.UNCOMPARED, "step times of MEASURED or of PROFILED steps are not known"),
        (forget("MEASURED", 1), DoubtKind.UNSURE_MEASURED, "as long as MEASURED ones, of too few steps to be sure"),
        (shorten_all(0.15), DoubtKind.EXPOSED_BEYOND_STEP, "is more than a whole MEASURED step of 69.0 ms"),
        (lengthen_step(1, 4_000_000), DoubtKind.ONE_STEP_UNLIKE, "step 17 took 4,"),
        (lengthen_step(2, 3), DoubtKind.ONE_STEP_UNLIKE, "step 18 took 3.13 x as long as the others"),
        (drift((97, 112, 124, 152, 161, 191)), DoubtKind.DRIFT, "rises over 6 steps, between 97.0 ms and 191 ms"),
        (drift((191, 161, 152, 124, 97)), DoubtKind.DRIFT, "falls over 5 steps, between 97.0 ms and 191 ms"),
    ],
)
def test_the_headline_says_why_and_gives_no_cause(tmp_path: Path, change: Change, kind: DoubtKind, said: str) -> None:
    cell = change_run(tmp_path / "run", change)
    assert [doubt.kind for doubt in cell.doubts] == [kind]
    answer = sentences.answer_sentence(cell)
    assert answer is not None
    assert "REPRESENTATIVE" in answer
    assert said in answer
    assert not any(phrase in answer for phrase in CAUSE_PHRASES.values())
    settles = " More launches may settle it: `--set repeat=4`." if kind is DoubtKind.UNSURE_MEASURED else ""
    assert sentences.advice_sentences(cell) == [f"{NO_FINDING}{settles}"]
    assert any(said in note for note in sentences.cell_notes(cell))


def test_a_trace_with_fewer_collectives_than_measured_steps_had_is_doubted(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "run")
    path = RunFolder(tmp_path / "run").launch("ddp", 0).path / "purposes.parquet"
    table = pd.read_parquet(path)
    is_mine = (table["rank"] == 1) & (table["step"] == 17)
    count = int(table["count"][is_mine].sum())
    table["count"] -= (is_mine & (table["purpose"] == "grad_reduce")).astype(int)
    write_table(path, table)
    (doubt,) = summarize_run(tmp_path / "run").cells[0].doubts
    assert doubt == Doubt(DoubtKind.OTHER_TRAFFIC, (1.0, count, count - 1), launch=0)
    assert describe_doubt(doubt) == (
        f"rank 1 recorded {count} collectives in each MEASURED step, and its trace has {count - 1} in a PROFILED one: "
        "some are lost, or other steps issue others (launch 0)"
    )


@pytest.mark.parametrize(
    ("recorded", "traced", "doubts"),
    [
        ({0: 3, 1: 3}, {0: (3, 3), 1: (3, 2, 4)}, [(1, 3, 2)]),
        ({0: 3, 1: 3}, {0: (0,), 1: (2,)}, [(0, 3, 0)]),
        ({0: 3}, {0: (3, 3), 1: (7,)}, []),  # rank 1 recorded none, or different ones
        ({0: 3, 1: 3}, {0: (3,)}, []),  # rank 1 has no trace: said elsewhere
    ],
)
def test_who_recorded_what_its_trace_lacks_is_named(
    recorded: dict[int, int], traced: dict[int, tuple[int, ...]], doubts: list[tuple[int, int, int]]
) -> None:
    assert [doubt.values for doubt in doubt_traffic(recorded, traced)] == doubts


def test_json_and_notebooks_have_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_run(tmp_path / "run", lengthen_profiled(3.03))
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path / "run"), "--json"])
    (document, other) = json.loads(capsys.readouterr().out)["cells"]
    assert [doubt["kind"] for doubt in document["doubts"]] == ["unlike_measured"]
    assert other["doubts"] == []
    run = dtbench.load_run(tmp_path / "run")
    assert "REPRESENTATIVE" in str(run)
    doubted, other_panel = (axes.get_title(loc="left") for axes in run.plot_owners().axes)
    assert doubted.startswith("ddp: NOT REPRESENTATIVE: PROFILED steps took 3.24 x")
    assert "REPRESENTATIVE" not in other_panel


@pytest.mark.parametrize(
    "change",
    [
        leave,
        lengthen_profiled(1.1),
        drift((100, 90, 105, 96, 101, 99)),
        drift((100, 101, 102, 103, 104, 105)),  # one way, and hardly
        drift((1, 2, 3, 4, 5, 6)),  # of a step of 480 ms
        lengthen_step(0, 1),
    ],
)
def test_steps_like_the_others_keep_their_causes(tmp_path: Path, change: Change) -> None:
    cell = change_run(tmp_path / "run", change)
    assert cell.doubts == ()
    answer = sentences.answer_sentence(cell)
    assert answer is not None
    assert "bucket" in answer
    assert "REPRESENTATIVE" not in answer


@pytest.mark.parametrize("ratio", [0.3, 0.79, 0.81, 1.0, 1.24, 1.26, 3.24, 50.0])
def test_a_ratio_is_doubted_outside_its_range(ratio: float) -> None:
    measured = [100.0, 100.1, 99.9, 100.0] * 4
    found_ratio = summarize_ratio([ratio * time for time in measured], measured)
    cost = (found_ratio.median, found_ratio.low, found_ratio.high)
    found = [doubt.kind for doubt in doubt_phases(cost, math.nan, 100.0)]
    assert found == ([] if 0.8 <= ratio <= 1.25 else [DoubtKind.UNLIKE_MEASURED])


def test_a_ratio_of_one_step_has_no_interval_and_comes_back_from_json() -> None:
    (doubt,) = doubt_phases((3.0, math.nan, math.nan), math.nan, math.nan)
    assert doubt.values == (3.0,)
    cell = summarize_run(EXAMPLE).cells[0].model_copy(update={"doubts": (doubt,)})
    assert CellSummary.model_validate_json(cell.model_dump_json()).doubts == (doubt,)


def test_what_nobody_measured_is_no_reason_but_that_nobody_can_compare() -> None:
    nothing = (math.nan, math.nan, math.nan)
    assert [doubt.kind for doubt in doubt_phases(nothing, 5.0, math.nan)] == [DoubtKind.UNCOMPARED]
    assert list(doubt_steps(TracedSteps({}, {}))) == []
    assert list(doubt_steps(TracedSteps({1: 0.0, 2: 10.0, 3: 10.0}, {}))) == [], "a step of which nothing was seen"


@pytest.mark.parametrize("odd", [0, 3, 5])
@pytest.mark.parametrize("factor", [1e-6, 0.4, 2.5, 4e6])
def test_the_odd_step_is_named_wherever_it_lies(odd: int, factor: float) -> None:
    step_ns = {10 + at: 100.0 * (factor if at == odd else 1 + at / 100) for at in range(6)}
    (doubt,) = doubt_steps(TracedSteps(step_ns, dict.fromkeys(step_ns, 1.0)))
    assert doubt.kind is DoubtKind.ONE_STEP_UNLIKE
    assert doubt.values[0] == 10 + odd
    assert doubt.values[1] == pytest.approx(factor, rel=0.05)


def test_of_two_steps_that_are_unlike_nobody_knows_which_is_the_odd_one() -> None:
    (doubt,) = doubt_steps(TracedSteps({2: 5.0, 3: 14.5}, {2: 1.0, 3: 1.0}))
    assert (doubt.kind, doubt.values) == (DoubtKind.TWO_STEPS_UNLIKE, (3.0, 2.0, 2.9))
    assert describe_doubt(doubt) == "step 3 took 2.90 x as long as step 2, and there is no third"
    assert list(doubt_steps(TracedSteps({2: 14.5, 3: 14.5 / 2}, {}))) == []
    (of_launches,) = doubt_launches({0: 14.5, 1: 5.0})
    assert (of_launches.kind, of_launches.values, of_launches.launch) == (DoubtKind.TWO_LAUNCHES_UNLIKE, (2.9,), 0)


def test_the_answer_of_two_traced_steps_that_are_unlike_has_no_cause_and_no_advice() -> None:
    traces = dtbench.read_trace(Path(__file__).parents[1] / "traces" / "recorded" / "pipelines" / "1f1b").traces
    answer, doubt, no_finding, *_ = answer_lines(traces)
    assert not any(phrase in answer for phrase in CAUSE_PHRASES.values())
    assert doubt == "NOT REPRESENTATIVE: step 2 took 2.58 x as long as step 3, and there is no third"
    assert no_finding == NO_FINDING
    assert advise_traces(traces) == []


CPU = """
step ProfilerStep#1 @1 |====            |
step ProfilerStep#{again} @1 |    ====        |
step ProfilerStep#2 @1 |        ====    |
step ProfilerStep#{last} @1 |            ====|
op aten::mm         @1 |==  ==  ==  ==  |
range gloo:all_reduce @2 | ==  ==  ==  == |
"""


@pytest.mark.parametrize(("again", "last", "count"), [(1, 3, 1), (1, 2, 2), (4, 2, 1), (4, 3, 0), (1, 1, 2)])
def test_ranges_that_carry_a_number_again_are_counted_and_said(
    draw: Callable[..., Path], capsys: pytest.CaptureFixture[str], again: int, last: int, count: int
) -> None:
    path = draw(CPU.format(again=again, last=last))
    traces = dtbench.read_trace(path)
    assert traces.traces.analyses[0].repeated_steps == count
    with pytest.raises(SystemExit) as ended:
        main(["analyze", str(path)])
    assert not ended.value.code
    document = traces_document(traces.traces)
    assert document["doubts"] == ([{"kind": "repeated_number", "values": [count], "launch": None}] if count else [])
    said = f"{count} range{'s carry' if count > 1 else ' carries'} the number of an earlier step"
    assert (said in capsys.readouterr().out) is (count > 0)


@pytest.mark.parametrize(("cell", "factor"), [("ddp", 3.0), ("fsdp2_tp", 3.0), ("fsdp2_tp", 0.5)])
def test_the_answer_of_a_run_says_that_steps_do_not_stand_for_it(tmp_path: Path, cell: str, factor: float) -> None:
    run = tmp_path / "run"
    shutil.copytree(Path(__file__).parents[2] / "results" / "example", run)
    path = run / "cells" / cell / "launch0" / "steps.parquet"
    steps = pd.read_parquet(path)
    hit = steps["phase"] == "PROFILED"
    steps.loc[hit, "duration_ns"] = (steps.loc[hit, "duration_ns"] * factor).astype("int64")
    steps.to_parquet(path)
    checks = known(summarize_run(run).checks)
    assert checks.doubted == (cell,)
    if cell == "ddp":
        assert answer_line(checks).startswith("NOT REPRESENTATIVE: PROFILED steps of ddp do not")
    else:  # its leading cause is a finding of steps that stand for no others
        assert answer_line(checks) == "no answer: of 4 checks 1 could not be judged"


def test_a_measured_step_far_longer_than_the_others_is_named_though_the_median_holds(tmp_path: Path) -> None:
    def lengthen(steps: pd.DataFrame, overlap: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        factors = steps["step"].map({11: 1000, 12: 2}).fillna(1)
        return steps.assign(duration_ns=(steps["duration_ns"] * factors).astype("int64")), overlap

    steps = pd.read_parquet(RunFolder(EXAMPLE).launch("ddp", 0).steps)
    number = 11
    assert set(steps["phase"][steps["step"].isin((number, number + 1))]) == {Phase.MEASURED.value}
    (said,) = (note for note in change_run(tmp_path / "run", lengthen).notes if "the median holds" in note)
    assert f"step {number} took " in said
    assert "of 8 MEASURED steps" in said
    assert f"step {number + 1} " not in said


def test_a_launch_whose_profiled_steps_are_unlike_the_others_is_named() -> None:
    assert list(doubt_launches({0: 100.0, 1: 105.0, 2: 98.0})) == []
    (doubt,) = doubt_launches({0: 500.0, 1: 100.0, 3: 100.0})
    assert (doubt.kind, doubt.values, doubt.launch) == (DoubtKind.ONE_LAUNCH_UNLIKE, (5.0,), 0)
    assert describe_doubt(doubt) == "PROFILED steps of one launch took 5.00 x as long as the others (launch 0)"


def test_a_mean_over_fewer_ranks_is_no_drift(draw: Callable[..., Path]) -> None:
    """One rank has 20 steps, the other the first 10 of them, and each exposes the same in every step."""
    for rank, (count, exposed) in enumerate(((20, 8), (10, 1))):
        rows = [f"range gloo:all_reduce @2 |{' ' * 10 * step}{'=' * exposed}|" for step in range(count)]
        steps = [f"step ProfilerStep#{step} @1 |{' ' * 10 * step}==========|" for step in range(count)]
        work = [f"op aten::mm @1 |{' ' * (10 * step + 9)}=|" for step in range(count)]
        draw("\n".join(rows + steps + work), f"rank{rank}.json", distributedInfo={"rank": rank, "world_size": 2})
        folder = draw("step ProfilerStep#1 @1 |=|", "other.json").parent
    (folder / "other.json").unlink()
    found = read_steps_of_traces(analyze_traces([folder]).analyses)
    assert set(found.exposed_ns) == set(range(10))
    assert not [doubt for doubt in doubt_steps(found) if doubt.kind is DoubtKind.DRIFT]


def test_steps_of_one_rank_and_then_of_another_are_no_series(draw: Callable[..., Path]) -> None:
    """One rank has steps 0 to 4, the other steps 10 to 14, and each exposes the same in every step."""
    for rank, exposed in enumerate((8, 1)):
        rows = [f"range gloo:all_reduce @2 |{' ' * 10 * step}{'=' * exposed}|" for step in range(5)]
        steps = [f"step ProfilerStep#{step + 10 * rank} @1 |{' ' * 10 * step}==========|" for step in range(5)]
        work = [f"op aten::mm @1 |{' ' * (10 * step + 9)}=|" for step in range(5)]
        folder = draw(
            "\n".join(rows + steps + work), f"rank{rank}.json", distributedInfo={"rank": rank, "world_size": 2}
        ).parent
    traces = analyze_traces([folder])
    assert list(doubt_traces(traces.analyses)) == []
    assert set(read_steps_of_traces(traces.analyses).exposed_ns) == set(range(5))
    assert "NOT REPRESENTATIVE" not in " ".join(answer_lines(traces))


def test_a_drift_of_one_of_ranks_without_a_common_step_is_one(draw: Callable[..., Path]) -> None:
    for rank in (0, 1):
        rows = [f"range gloo:all_reduce @2 |{' ' * 10 * step}{'=' * (1 + step if rank else 4)}|" for step in range(8)]
        steps = [f"step ProfilerStep#{step + 10 * rank} @1 |{' ' * 10 * step}==========|" for step in range(8)]
        work = [f"op aten::mm @1 |{' ' * (10 * step + 9)}=|" for step in range(8)]
        folder = draw(
            "\n".join(rows + steps + work), f"rank{rank}.json", distributedInfo={"rank": rank, "world_size": 2}
        ).parent
    (doubt,) = doubt_traces(analyze_traces([folder]).analyses)
    assert (doubt.kind, doubt.values[2]) == (DoubtKind.DRIFT, 8)
