"""What a side does not know is no zero: no number of it, no owner, no change, and no bound that holds by it."""

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dtbench.base.errors import ComparisonError
from dtbench.base.vocabulary import Stage, StageOutcome, StatePart
from dtbench.comparison.comparison import CollectiveChange, Comparison, MetricChange, Outcome
from dtbench.comparison.gate import Kept, judge, read_bound
from dtbench.comparison.metrics import BY_NAME, EXPOSED_BY_OWNER, EXPOSED_BY_PURPOSE, WAIT
from dtbench.comparison.reading.measure import _find_doubt
from dtbench.comparison.run import compare_all, compare_paths, compare_sides
from dtbench.runs.run import summarize_run
from dtbench.runs.stage_summary import StageSummary
from dtbench.store.layout import RunFolder
from dtbench.store.records.baseline import Measurement
from dtbench.store.write import write_table

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "results" / "example"
TRACE = ROOT / "tests" / "traces" / "recorded" / "ddp_2ranks_rank0.json.gz"
SPANS_ALONE = ROOT / "tests" / "traces" / "cases" / "gloo_spans_alone.json"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The example under another name, its steps at another time: another measurement with the same numbers."""
    run = Path(shutil.copytree(EXAMPLE, tmp_path / "other"))
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    (run / "run.json").write_text(json.dumps({**record, "run_id": "other"}), encoding="utf-8")
    for path in run.glob("cells/*/launch*/steps.parquet"):
        table = pd.read_parquet(path)
        write_table(path, table.assign(start_ns=table["start_ns"] + 1))
    return run


def forget(run: Path, table: str, *columns: str, but_steps: int = 0, of_rank: int | None = None) -> None:
    """Make columns of a table unknown in all steps but the first so many; of one rank, if it is said which."""
    path = RunFolder(run).launch("ddp", 0).derived_table(table)
    frame = pd.read_parquet(path)
    attrs, kept = dict(frame.attrs), sorted(frame["step"].dropna().unique())[:but_steps]
    for column in (
        one for one in frame if one in columns or (str(one).startswith("exposed_") and "exposed_*" in columns)
    ):
        frame[column] = (
            frame[column]
            .astype("Int64")
            .where(frame["step"].isin(kept) | (of_rank is not None and frame["rank"] != of_rank))
        )
    frame.attrs = attrs
    write_table(path, frame)


def compare(baseline: Path, candidate: Path) -> Comparison:
    sides = [str(one / "cells" / "ddp") if one.is_dir() else str(one) for one in (baseline, candidate)]
    return compare_paths(sides[0], sides[1], results=ROOT / "results", force=True)


def find(comparison: Comparison, metric: str, subject: str = "") -> MetricChange:
    (change,) = [one for one in comparison.metrics if (one.metric, one.subject) == (metric, subject)]
    return change


def owners(comparison: Comparison) -> dict[str, CollectiveChange]:
    return {row.owner: row for row in comparison.collectives}


@pytest.mark.parametrize(("metric", "column"), [(WAIT, "wait_ns"), (EXPOSED_BY_PURPOSE, "exposed_ns")])
def test_a_number_of_a_purpose_that_no_step_knows_is_not_known(metric: str, column: str, other: Path) -> None:
    forget(other, "purposes", column)
    change = find(compare(EXAMPLE, other), metric, "grad_reduce")
    assert change.baseline.median > 0
    assert math.isnan(change.candidate.median)
    assert change.outcome is Outcome.UNKNOWN


def test_an_owner_of_which_nothing_is_known_has_no_change_and_does_not_lead(other: Path) -> None:
    forget(other, "collectives", "hidden_ns", "exposed_*")
    found = compare(EXAMPLE, other)
    assert "exposed" not in found.sentence
    for row in found.collectives:
        assert row.exposed_ns[0] > 0
        assert math.isnan(row.exposed_ns[1])
    assert find(found, EXPOSED_BY_OWNER, "bucket 3").outcome is Outcome.UNKNOWN


def test_steps_in_which_an_owner_is_not_known_are_in_none_of_its_means(other: Path) -> None:
    forget(other, "collectives", "hidden_ns", "exposed_*", but_steps=2)
    row = owners(compare(EXAMPLE, other))["bucket 3"]
    assert row.exposed_ns[1] == pytest.approx(row.exposed_ns[0], rel=0.05)
    assert row.count[0] == row.count[1] == 1


def test_steps_without_an_account_are_in_no_mean(other: Path) -> None:
    forget(other, "overlap", "compute_ns", "hidden_comm_ns", "exposed_comm_ns", "idle_ns", but_steps=2)
    found = compare(EXAMPLE, other)
    exposed = find(found, EXPOSED_BY_PURPOSE, "grad_reduce").candidate.median
    assert exposed == pytest.approx(find(found, "exposed_comm").candidate.median)
    assert sum(row.exposed_ns[1] for row in found.collectives) == pytest.approx(exposed)


@pytest.mark.parametrize("sides", [(TRACE, SPANS_ALONE), (SPANS_ALONE, TRACE)])
def test_traces_that_do_not_know_what_was_exposed_say_nothing_of_owners(sides: tuple[Path, Path]) -> None:
    found = compare(*sides)
    assert not re.search("(more|less) exposed", found.sentence)
    assert found.collectives == ()
    assert not found.is_mechanism_known, "what was issued is of no rank that both have"


def test_where_steps_may_not_stand_for_others_no_cause_is_told_and_a_note_says_why(other: Path) -> None:
    sides = [str(EXAMPLE / "cells" / "fsdp2_tp"), str(other / "cells" / "ddp")]
    whole = compare_paths(*sides, results=ROOT / "results", force=True)
    assert owners(whole)["bucket 3"].cause is not None
    steps = pd.read_parquet(RunFolder(other).launch("ddp", 0).steps)
    shorter = steps["duration_ns"].where(steps["phase"] != "MEASURED", steps["duration_ns"] // 4)
    write_table(RunFolder(other).launch("ddp", 0).steps, steps.assign(duration_ns=shorter))
    found = compare_paths(*sides, results=ROOT / "results", force=True)
    assert {row.cause for row in found.collectives} == {None}
    before, _, after = found.sentence.partition("may stand for no others, so what follows may not either; ")
    assert re.search("(more|less) exposed", after)
    assert "exposed" not in before
    (note,) = [note for note in found.notes if "NOT REPRESENTATIVE" in note]
    assert ": NOT REPRESENTATIVE: PROFILED steps took 4.2" in note
    assert note.endswith("; what was exposed there, and why, is no finding")
    assert not [note for note in whole.notes if "NOT REPRESENTATIVE" in note]


def test_a_launch_of_which_a_ranks_evidence_is_lost_is_left_out_with_its_sentence() -> None:
    whole = summarize_run(EXAMPLE).cells[0]
    lost = whole.model_copy(update={"rank_doubts": ("launch0: rank 1 is left out: it has no trace",)})
    assert _find_doubt(whole) is None
    assert _find_doubt(lost) == "launch0: rank 1 is left out: it has no trace"


@pytest.mark.parametrize(
    ("outcome", "doubt"),
    [
        (StageOutcome.WRONG, "its training state is not what it should be"),
        (StageOutcome.RAISED, "torch raised in a stage of its training state"),
        (StageOutcome.BROKEN, None),
        (StageOutcome.MENDED, None),
    ],
)
def test_a_launch_whose_training_state_came_back_wrong_is_left_out(outcome: StageOutcome, doubt: str | None) -> None:
    fields: dict[str, Any] = {"part": StatePart.MODEL, "stage": Stage.LOAD, "outcome": outcome, "matches_plan": None}
    whole = summarize_run(EXAMPLE).cells[0]
    assert _find_doubt(whole.model_copy(update={"stages": (StageSummary.model_construct(**fields),)})) == doubt


def test_changes_of_steps_that_may_stand_for_no_others_are_not_established(
    run_of: Any, cell: Any, results: Path
) -> None:
    for run_id in ("old", "new"):
        run = run_of({"only": cell((100.0, 101.0, 100.5, 99.7))}, name=f"of_{run_id}", run_id=run_id)
    for index in range(4):
        path = RunFolder(run).launch("only", index).steps
        steps = pd.read_parquet(path)
        longer = steps["duration_ns"].where(steps["phase"] != "PROFILED", steps["duration_ns"] * 5)
        write_table(path, steps.assign(duration_ns=longer))
    for named in (("old", "new"), ("new", "old")):
        found = compare_paths(*named, results=results)
        for change in found.metrics:
            if BY_NAME[change.metric].is_profiled:
                assert (change.outcome, change.test) == (Outcome.NOT_ESTABLISHED, None)
        assert find(found, "host_memory").outcome is Outcome.SAME
        steps_of_new = "PROFILED steps of of_new may stand for no others"
        assert found.sentence.endswith(f"; what was exposed is no finding: {steps_of_new}")
        for bound in ("exposed_comm > 1 ms", "exposed[layers.0] > 1 ms", "exposed_comm > 900%"):
            judged = judge(read_bound(bound), found)
            assert judged.kept is Kept.NOT_ESTABLISHED
            assert "; of_new: NOT REPRESENTATIVE: PROFILED steps took 5.0" in judged.words


def test_what_a_report_doubts_over_all_launches_a_comparison_doubts(tmp_path: Path) -> None:
    sweep = ROOT / "results" / "example_sweep"
    doubted = {cell.name for cell in summarize_run(sweep).cells if cell.doubts}
    for found in (*compare_all([str(sweep)], results=tmp_path), *compare_all([str(EXAMPLE)], results=tmp_path)):
        cell = found.candidate.label
        assert (cell in doubted) is any(doubt.startswith(f"{cell}: ") for doubt in found.doubts)
        causes = {row.cause for row in found.collectives}
        assert (causes == {None}) is bool(found.doubts)


@pytest.mark.parametrize("is_lost_before", [False, True])
def test_owners_that_a_side_does_not_know_are_no_change_of_what_is_exposed(
    other: Path, *, is_lost_before: bool
) -> None:
    path = RunFolder(other).launch("ddp", 0).derived_table("collectives")
    frame = pd.read_parquet(path)
    attrs = dict(frame.attrs)
    frame["owner"] = ""
    frame.attrs = attrs
    write_table(path, frame)
    comparison = compare(*((other, EXAMPLE) if is_lost_before else (EXAMPLE, other)))
    assert "exposed" not in comparison.sentence
    found = owners(comparison)
    known = 1 if is_lost_before else 0
    assert math.isnan(found["bucket 3"].exposed_ns[1 - known])
    assert found["bucket 3"].exposed_ns[known] > 0
    assert math.isnan(found[""].exposed_ns[known])
    change = find(comparison, EXPOSED_BY_OWNER, "bucket 3")
    values = (change.baseline.values, change.candidate.values)
    assert [math.isnan(value) for value in values[1 - known]] == [True]
    assert change.outcome is Outcome.UNKNOWN


def test_a_mean_of_one_rank_is_not_held_against_a_mean_of_both(other: Path) -> None:
    forget(other, "purposes", "wait_ns", of_rank=1)
    found = compare(EXAMPLE, other)
    assert find(found, WAIT, "grad_reduce").outcome is Outcome.UNKNOWN
    assert find(found, EXPOSED_BY_PURPOSE, "grad_reduce").outcome is Outcome.NOT_ENOUGH_LAUNCHES
    assert any(note.endswith("knows grad_reduce wait of rank 0 alone") for note in found.notes)
    assert judge(read_bound("wait[grad_reduce] > 5%"), found).kept is Kept.UNDECIDED


def test_where_the_account_of_one_rank_is_not_known_nothing_profiled_is_compared(other: Path) -> None:
    forget(other, "overlap", "exposed_comm_ns", of_rank=1)
    found = compare(EXAMPLE, other)
    profiled = {one.outcome for one in found.metrics if BY_NAME[one.metric].is_profiled}
    assert (profiled, found.collectives) == ({Outcome.UNKNOWN}, ())
    assert "knows exposed comm of rank 0 alone" in found.sentence
    assert found.mechanism_doubts == ()


def test_an_owner_known_on_one_rank_alone_is_not_compared(other: Path) -> None:
    forget(other, "collectives", "exposed_ns", of_rank=1)
    found = compare(EXAMPLE, other)
    assert {one.outcome for one in found.metrics if one.metric == EXPOSED_BY_OWNER} == {Outcome.UNKNOWN}
    assert not [row for row in found.collectives if row.owner]
    assert find(found, "exposed_comm").outcome is Outcome.NOT_ENOUGH_LAUNCHES


def multiply_cpu_time(folder: Path, cell: str, factor: int) -> Path:
    run = Path(shutil.copytree(ROOT / "results" / "example_sweep", folder / "sweep"))
    for path in run.glob(f"cells/{cell}/launch*/steps.parquet"):
        table = pd.read_parquet(path)
        write_table(path, table.assign(cpu_ns=factor * table["cpu_ns"]))
    return run


CELLS = ("micro_batches-1", "micro_batches-2")


@pytest.mark.parametrize("side", [0, 1])
def test_a_cpu_time_that_a_coarse_clock_did_not_see_is_not_known(tmp_path: Path, side: int) -> None:
    run = multiply_cpu_time(tmp_path, CELLS[side], 0)
    found = compare_paths(*(f"{run}:{cell}" for cell in CELLS), results=tmp_path)
    change = find(found, "cpu_time")
    assert (change.outcome, change.test) == (Outcome.UNKNOWN, None)
    assert all(math.isnan(value) for value in (change.ratio, change.low, change.high, change.p_value))
    assert judge(read_bound("cpu_time > 5%"), found).kept is Kept.UNDECIDED
    assert math.isnan(summarize_run(run).cells[side].cpu_ns_per_step)


@pytest.mark.parametrize("side", [0, 1])
def test_launches_whose_cpu_time_is_below_zero_are_not_compared(tmp_path: Path, side: int) -> None:
    run = multiply_cpu_time(tmp_path, CELLS[side], -1)
    with pytest.raises(ComparisonError, match=f"{CELLS[side]} has no launch that is complete and can be trusted"):
        compare_paths(*(f"{run}:{cell}" for cell in CELLS), results=tmp_path)


@pytest.mark.parametrize("metric", ["step_time", "tokens_per_second", "cpu_time", "time_to_first_step", "host_memory"])
@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_kept_number_that_is_no_reading_is_not_known(launch_of: Any, side_of: Any, metric: str, value: float) -> None:
    def side(label: str, place: int) -> Any:
        launches = []
        for index, time in enumerate((100.0, 101.0, 99.0, 100.5)):
            row = {"metric": metric, "subject": "", "value": time if place else value}
            launches.append(
                launch_of(index, time).model_copy(update={"measurements": (Measurement.model_validate(row),)})
            )
        return side_of(label, launches)

    change = find(compare_sides(side("old", 0), side("new", 1)), metric)
    assert (change.outcome, change.test) == (Outcome.UNKNOWN, None)
    assert math.isnan(change.p_value)
