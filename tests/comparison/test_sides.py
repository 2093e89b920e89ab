"""What a person names, and what is refused."""

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from dtbench.base.errors import ComparisonError, StoreError
from dtbench.comparison.comparison import Outcome
from dtbench.comparison.gate import Kept, judge, read_bound
from dtbench.comparison.reading.baselines import describe_baselines, remove_baseline, save_baseline
from dtbench.comparison.reading.sides import read_sides
from dtbench.comparison.run import compare_all, compare_paths
from dtbench.report.notebook.compared import ComparisonReport
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.run import summarize_only_cell, summarize_run
from dtbench.store.layout import RunFolder, baseline_file
from dtbench.store.records.run import Environment, RunStatus
from dtbench.store.write import write_record
from tests.report.shown import terminal_run

Runs = Callable[..., Path]
FOUR = (100.0, 101.0, 99.0, 100.0)
SLOW = (120.0, 121.0, 119.0, 120.0)


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory, write_run: Runs, cell: Any) -> Path:
    """Write one run for all tests of sides; gives the folder of all runs."""
    results = tmp_path_factory.mktemp("written") / "results"
    write_run(results, "small", "20260101T120000Z-aaaa", {"plain": cell(FOUR), "slow": cell(SLOW)})
    return results


@pytest.fixture
def two_cells(written: Path, results: Path) -> Path:
    """Return a copy of the run, with nothing beside it."""
    shutil.copytree(written, results)
    return results / "small" / "20260101T120000Z-aaaa"


@pytest.mark.parametrize(
    "named", ["{run}:slow", "{run}/cells/slow", "small:slow", "20260101T120000Z-aaaa:slow", "small/*:slow"]
)
def test_a_cell_is_named_in_every_way_that_help_says(two_cells: Path, results: Path, named: str) -> None:
    sides = read_sides(named.format(run=two_cells), results)
    assert list(sides) == ["slow"]
    assert [launch.name.split()[-1] for launch in sides["slow"].launches] == [f"launch{index}" for index in range(4)]


def test_what_a_cell_with_unseen_collectives_tells_of_communication_is_not_compared(
    two_cells: Path, results: Path
) -> None:
    named = (f"{two_cells}:plain", f"{two_cells}:slow")
    bound = read_bound("exposed_comm > 900 %")
    assert judge(bound, compare_paths(*named, results=results)).kept is Kept.KEPT
    path = RunFolder(two_cells).launch("slow", 2).overlap
    overlap = pd.read_parquet(path)
    overlap.attrs["unseen_collectives"] = 3
    overlap.to_parquet(path)
    found = compare_paths(*named, results=results)
    assert "3 collectives of slow were launched and not seen to run" in found.sentence
    assert judge(bound, found).kept is Kept.UNDECIDED
    step = next(one for one in found.metrics if one.metric == "step_time")
    assert step.outcome is Outcome.HIGHER


def test_one_run_alone_is_its_cells_against_the_first(two_cells: Path, results: Path) -> None:
    (found,) = compare_all([str(two_cells)], results=results)
    assert (found.baseline.label, found.candidate.label) == ("plain", "slow")
    assert found.baseline.is_interleaved
    assert found.metrics[0].candidate.median == 120e6
    assert found.sentence.startswith("slow is 20.0 % slower than plain (120 ms against 100 ms, 95 % interval ")


def test_cells_that_ran_one_after_the_other_did_not_take_turns(run_of: Runs, cell: Any, results: Path) -> None:
    run_of({"only": cell(FOUR)}, run_id="20260101T120000Z-aaaa")
    run_of({"only": cell(SLOW)}, run_id="20260102T120000Z-bbbb")
    found = compare_paths("20260101T120000Z-aaaa", "20260102T120000Z-bbbb", results=results)
    assert not found.baseline.is_interleaved
    assert any("did not take turns" in note for note in found.notes)
    assert (found.baseline.label, found.candidate.label) == ("20260101T120000Z-aaaa", "20260102T120000Z-bbbb")


def test_two_runs_of_several_cells_are_compared_cell_by_cell(
    two_cells: Path, run_of: Runs, cell: Any, results: Path
) -> None:
    other = run_of({"slow": cell(SLOW[:1]), "plain": cell(SLOW[:1])}, run_id="20260102T120000Z-bbbb")
    found = compare_all([str(two_cells), str(other)], results=results)
    assert [Path(one.candidate.paths[0]).name for one in found] == ["plain", "slow"]
    with pytest.raises(ComparisonError, match="2 cells in common; name one"):
        compare_paths(str(two_cells), str(other), results=results)


def test_a_cell_that_only_one_of_two_runs_has_is_left_out_and_named(run_of: Runs, cell: Any, results: Path) -> None:
    cells = {"a": cell(FOUR[:1]), "b": cell(FOUR[:1])}
    run_of({**cells, "c": cell(FOUR[:1])}, name="old", run_id="20260101T120000Z-aaaa")
    run_of({**cells, "d": cell(SLOW[:1]), "e": cell(SLOW[:1])}, name="new", run_id="20260102T120000Z-bbbb")
    found = compare_all(["old", "new"], results=results)
    assert [one.candidate.label for one in found] == ["new:a", "new:b"]
    said = ("old has 1 cell that new has not: `c`", "new has 2 cells that old has not: `d` and `e`")
    assert {one.left_out for one in found} == {said}


def test_a_pattern_pools_the_launches_of_all_runs_that_match(run_of: Runs, cell: Any, results: Path) -> None:
    for run_id in ("20260101T120000Z-aaaa", "20260102T120000Z-bbbb"):
        run_of({"only": cell(FOUR[:2])}, run_id=run_id)
    side = read_sides("small/*", results)["only"]
    assert [launch.name for launch in side.launches] == [
        f"{run_id} launch{index}" for run_id in ("20260101T120000Z-aaaa", "20260102T120000Z-bbbb") for index in (0, 1)
    ]
    assert side.labels == ("small/*",)


def test_a_run_of_which_nobody_knows_where_it_ran_is_pooled_with_a_note(
    run_of: Runs, cell: Any, results: Path, environment: Environment
) -> None:
    for run_id in ("20260101T120000Z-aaaa", "20260102T120000Z-bbbb"):
        run = RunFolder(run_of({"only": cell(FOUR[:1])}, run_id=run_id))
        if run_id.endswith("aaaa"):
            run.environment.unlink()
            run.launch("only", 0).environment.unlink()
    side = read_sides("small/*", results)["only"]
    assert (side.silent, side.environment) == (("20260101T120000Z-aaaa",), environment)
    run_of({"only": cell(FOUR[:1])}, run_id="20260103T120000Z-cccc")
    found = compare_paths("small/*[ab]", "20260103T120000Z-cccc", results=results)
    assert "small/*[ab]: it is not known on which machine and software 20260101T120000Z-aaaa ran" in found.notes


def test_runs_of_other_settings_are_not_pooled_nor_those_of_unlike_environments_unless_forced(
    run_of: Runs, cell: Any, results: Path, environment: Environment
) -> None:
    run_of({"only": cell(FOUR[:1])}, name="a", run_id="20260101T120000Z-aaaa")
    run_of({"only": cell(FOUR[:1], parallel={"forward_prefetch": 1})}, name="a", run_id="20260102T120000Z-bbbb")
    with pytest.raises(ComparisonError, match=r"not match runs of one thing.*parallel.forward_prefetch 0 and 1"):
        read_sides("a/*", results, force=True)
    run_of({"only": cell(FOUR[:1])}, name="b", run_id="20260101T120000Z-cccc")
    elsewhere = environment.model_copy(update={"host": "cluster", "processor": "another"})
    run_of({"only": cell(FOUR[:1], environment=elsewhere)}, name="b", run_id="20260102T120000Z-dddd")
    with pytest.raises(ComparisonError, match=r"unlike environments.*processor .* and another"):
        read_sides("b/*", results)
    assert len(read_sides("b/*", results, force=True)["only"].launches) == 2


def test_runs_beside_one_of_an_unknown_environment_are_held_against_each_other(
    run_of: Runs, cell: Any, results: Path, environment: Environment
) -> None:
    unknown = run_of({"only": cell(FOUR[:1])}, run_id="20260101T120000Z-aaaa")
    for path in unknown.rglob("env.json"):
        path.unlink()
    run_of({"only": cell(FOUR[:1])}, run_id="20260102T120000Z-bbbb")
    elsewhere = environment.model_copy(update={"processor": "another"})
    run_of({"only": cell(FOUR[:1], environment=elsewhere)}, run_id="20260103T120000Z-cccc")
    with pytest.raises(ComparisonError, match=r"unlike environments: \S+-bbbb and \S+-cccc differ: processor"):
        read_sides("small/*", results)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (["small"], None),
        (["small:slo", "small:plain"], "has no cell `slo`; did you mean `slow`?"),
        (["small:slow", "small"], r"has several cells, `plain` and `slow`; say which: `small:plain`"),
        (["small:slow", "small:slow"], "is on both sides"),
        (["small:slow"], "name a second one"),
    ],
)
def test_what_cannot_be_compared_is_told_and_what_to_name_instead(
    two_cells: Path, results: Path, named: list[str], said: str | None
) -> None:
    assert two_cells.exists()
    if said is None:
        assert compare_all(named, results=results)
    else:
        with pytest.raises(ComparisonError, match=said):
            compare_all(named, results=results)


def test_a_baseline_against_the_run_that_it_was_saved_from_says_so(two_cells: Path, results: Path) -> None:
    save_baseline("main", f"{two_cells}:plain", results=results)
    with pytest.raises(ComparisonError, match="on both sides: `main` was saved from it, so run the scenario again;"):
        compare_all(["main", "small:plain"], results=results)


def test_a_copy_of_a_run_is_the_same_measurement(two_cells: Path, results: Path) -> None:
    copy = Path(shutil.copytree(two_cells, results / "small" / "copied"))
    other = Path(shutil.copytree(two_cells, results / "elsewhere" / two_cells.name))
    for one in (copy, other):
        with pytest.raises(ComparisonError, match=r"copies of one measurement \(20260101T120000Z-aaaa launch0 started"):
            compare_all([f"{two_cells}:plain", f"{one}:plain"], results=results)
    save_baseline("main", f"{copy}:plain", results=results)
    with pytest.raises(ComparisonError, match="copies of one measurement"):
        compare_all(["main", f"{two_cells}:plain"], results=results)
    with pytest.raises(ComparisonError, match=r"`small/\*:plain` matches copies of one measurement: .*copied"):
        read_sides("small/*:plain", results)
    (found,) = compare_all([f"{copy}:plain", f"{other}:slow"], results=results)
    assert found.baseline.is_interleaved, "they took turns"


def test_a_copy_under_another_name_and_run_id_is_the_same_measurement(two_cells: Path, results: Path) -> None:
    copy = Path(shutil.copytree(two_cells, results / "other" / "20260101T130000Z-bbbb"))
    record = json.loads((copy / "run.json").read_text(encoding="utf-8"))
    named = {"name": "other", "run_id": copy.name, "started_unix_ns": 3}
    (copy / "run.json").write_text(json.dumps({**record, **named}), encoding="utf-8")
    for path in copy.glob("cells/*/launch*/*.parquet"):  # as versions wrote them that did not say whose a table is
        table = pd.read_parquet(path)
        table.attrs = {}
        table.to_parquet(path)
    save_baseline("renamed", f"{copy}:plain", results=results)
    for other in (f"{copy}:plain", "renamed"):
        with pytest.raises(ComparisonError, match="copies of one measurement"):
            compare_all([f"{two_cells}:plain", other], results=results)


def test_nothing_of_a_name_is_refused_and_a_baseline_with_a_name_like_it_is_told(
    two_cells: Path, results: Path
) -> None:
    save_baseline("main", f"{two_cells}:plain", results=results)
    with pytest.raises(StoreError, match="The baseline `main` has a name like it"):
        read_sides("mian", results)
    with pytest.raises(StoreError, match="No run matches `nothing/\\*`"):
        read_sides("nothing/*", results)


def test_a_launch_that_failed_is_left_out_and_told(run_of: Runs, cell: Any, results: Path) -> None:
    run_of({"plain": cell(FOUR), "slow": cell((*SLOW, 500.0), failed=(4,))})
    (found,) = compare_all(["small"], results=results)
    assert found.candidate.launches == 4
    assert any("launch4" in note and "rank 1 died" in note for note in found.notes)
    run_of({"plain": cell(FOUR), "slow": cell((500.0,), failed=(0,))}, run_id="20260102T120000Z-bbbb")
    with pytest.raises(ComparisonError, match=r"slow has no launch that is complete and can be trusted: .*rank 1 died"):
        compare_all(["20260102T120000Z-bbbb"], results=results)


def test_a_cell_without_a_launch_to_trust_is_left_out_where_others_can_be_compared(
    run_of: Runs, cell: Any, results: Path
) -> None:
    run_of({"plain": cell(FOUR), "broken": cell((500.0,), failed=(0,)), "slow": cell(SLOW)})
    (found,) = compare_all(["small"], results=results)
    assert (found.baseline.label, found.candidate.label) == ("plain", "slow")
    (words,) = found.left_out
    assert words.startswith("broken has no launch that is complete and can be trusted: ")
    assert ComparisonReport(found).notes[0] == f"WARNING: left out: {words}"
    assert "rank 1 died" in words
    run_of(
        {"plain": cell((500.0,), failed=(0,)), "broken": cell(FOUR), "slow": cell(SLOW)},
        run_id="20260102T120000Z-bbbb",
    )
    with pytest.raises(ComparisonError, match="plain has no launch that is complete"):
        compare_all(["20260102T120000Z-bbbb"], results=results)


def test_rounds_stay_together_where_a_launch_of_one_side_is_left_out(run_of: Runs, cell: Any, results: Path) -> None:
    drift = (100.0, 110.0, 130.0, 150.0, 190.0, 250.0)
    run_of({"plain": cell(drift), "slow": cell([1.1 * time for time in drift], failed=(2,))})
    (found,) = compare_all(["small"], results=results)
    assert found.metrics[0].test == "paired t"
    assert found.metrics[0].low == pytest.approx(1.1, rel=0.02)
    assert len(found.metrics[0].candidate.values) == 5


def test_a_baseline_says_the_same_as_its_run_when_the_run_is_gone(two_cells: Path, results: Path) -> None:
    before = compare_paths("small:plain", "small:slow", results=results)
    saved = save_baseline("main", "small:plain", results=results)
    assert saved.labels[0] == "plain"
    kept = compare_paths("main", "small:slow", results=results)
    assert kept.baseline.label == "main"
    assert kept.metrics == before.metrics
    assert kept.collectives == before.collectives
    assert kept.mechanism == before.mechanism
    (row,) = describe_baselines(results)
    assert (row.name, row.of, row.launches, row.step_time, row.torch) == (
        *("main", "20260101T120000Z-aaaa:plain", "4", "100 ms", "2.13.0+cpu"),
    )
    save_baseline("other", "small:slow", results=results)
    shutil.rmtree(two_cells)
    gone = compare_paths("main", "other", results=results)
    assert gone.metrics == before.metrics
    remove_baseline("main", results)
    assert not baseline_file(results, "main").exists()
    with pytest.raises(StoreError, match="no baseline is called `main`; there are `other`"):
        remove_baseline("main", results)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("../main", "cannot name a baseline"),
        ("small", "is the name of a scenario or run"),
        ("20260101T120000Z-aaaa", "is the name of a scenario or run"),
        ("[bold]", "cannot name a baseline"),
    ],
)
def test_a_name_that_is_no_file_name_or_means_a_run_is_no_baseline(
    two_cells: Path, results: Path, name: str, said: str
) -> None:
    with pytest.raises(ComparisonError, match=said):
        save_baseline(name, f"{two_cells}:plain", results=results)


def test_a_broken_baseline_is_refused_with_its_file(two_cells: Path, results: Path) -> None:
    save_baseline("main", f"{two_cells}:plain", results=results)
    baseline_file(results, "main").write_text("{")
    with pytest.raises(StoreError, match=r"main\.json: broken"):
        compare_all(["main", "small:slow"], results=results)


def test_unlike_environments_are_refused_by_name_and_warned_of_when_forced(
    run_of: Runs, cell: Any, results: Path, environment: Environment
) -> None:
    other = environment.model_copy(
        update={"torch": "2.12.0", "cores": 4, "variables": {"OMP_NUM_THREADS": "3", "NCCL_ALGO": "Ring"}}
    )
    run_of({"only": cell(FOUR[:1])}, run_id="20260101T120000Z-aaaa")
    run_of({"only": cell(SLOW[:1], environment=other)}, run_id="20260102T120000Z-bbbb")
    differing = (
        "cores 2 against 4; torch 2.13.0+cpu against 2.12.0; variable OMP_NUM_THREADS 1 against 3; "
        "variable NCCL_ALGO - against Ring"
    )
    with pytest.raises(ComparisonError, match="unlike environments") as refused:
        compare_paths("20260101T120000Z-aaaa", "20260102T120000Z-bbbb", results=results)
    assert differing in str(refused.value)
    assert "--force" in str(refused.value)
    forced = compare_paths("20260101T120000Z-aaaa", "20260102T120000Z-bbbb", results=results, force=True)
    assert forced.notes[0].startswith("WARNING")
    assert differing in forced.notes[0]


def test_launches_of_one_side_that_ran_in_unlike_environments_are_refused_and_warned_of_when_forced(
    two_cells: Path, results: Path, environment: Environment
) -> None:
    other = environment.model_copy(update={"processor": "Xeon", "torch": "2.12.0"})
    for index in (2, 3):
        write_record(RunFolder(two_cells).launch("slow", index).environment, other)
    told = "launch0 and launch2, launch3 differ: processor AMD EPYC and Xeon; torch 2.13.0+cpu and 2.12.0"
    with pytest.raises(ComparisonError, match="unlike environments") as refused:
        compare_paths("small:plain", "small:slow", results=results)
    assert f"within slow, {told}" in str(refused.value)
    forced = compare_paths("small:plain", "small:slow", results=results, force=True)
    assert forced.notes[0] == (f"WARNING: unlike environments, so any difference may be theirs: within slow, {told}")
    save_baseline("mixed", "small:slow", results=results)
    with pytest.raises(ComparisonError, match="within mixed, launch0 and launch2, launch3 differ: processor"):
        compare_paths("mixed", "small:plain", results=results)
    plain, slow = summarize_run(two_cells).cells
    assert "the ranks of launch2, launch3 ran torch 2.12.0 on Xeon, 2 cores" in slow.notes
    assert not [note for note in plain.notes if "the ranks of" in note]
    RunFolder(two_cells).launch("plain", 1).environment.unlink()
    assert read_sides("small:plain", results)["plain"].silent == ("launch1",)


@pytest.mark.parametrize("has_run_copy", [True, False])
@pytest.mark.parametrize("lost", [range(4), range(1, 2)])
def test_a_lost_environment_makes_a_comparison_and_its_gate_no_surer(
    two_cells: Path, results: Path, environment: Environment, lost: range, *, has_run_copy: bool
) -> None:
    for index in lost:
        folder = RunFolder(two_cells).launch("slow", index)
        write_record(folder.environment, environment.model_copy(update={"processor": "Xeon", "cores": 64}))
    with pytest.raises(ComparisonError, match=r"processor AMD EPYC (?:against|and) Xeon"):
        compare_paths("small:plain", "small:slow", results=results)
    for index in lost:
        RunFolder(two_cells).launch("slow", index).environment.unlink()
    if not has_run_copy:
        RunFolder(two_cells).environment.unlink()
    found = compare_paths("small:plain", "small:slow", results=results)
    where = "it is not known on which machine and software "
    if len(lost) == 4:
        assert (found.candidate.machine, found.candidate.torch) == ("", "")
        assert f"{where}slow ran; whether they are alike is not checked" in found.notes
    else:
        assert f"slow: {where}launch1 ran" in found.notes
    kept = judge(read_bound("step_time > 50%"), found)
    who = "slow" if len(lost) == 4 else "launch1 of slow"
    assert found.clauses[1] == f"{where}{who} ran: whether environments are alike is not checked"
    assert (kept.kept, kept.words.rpartition("; ")[2]) == (Kept.NOT_ESTABLISHED, f"{where}{who} ran")
    assert judge(read_bound("step_time > 1%"), found).kept is Kept.EXCEEDED
    save_baseline("slower", "small:slow", results=results)
    again = compare_paths("small:plain", "slower", results=results)
    assert judge(read_bound("step_time > 50%"), again).kept is Kept.NOT_ESTABLISHED


def test_a_variable_or_an_interpreter_that_the_scenario_varies_is_no_unlike_environment(
    run_of: Runs, cell: Any, results: Path, environment: Environment
) -> None:
    varied = environment.model_copy(update={"variables": {"OMP_NUM_THREADS": "2"}})
    run_of(
        {
            "one": cell(FOUR[:1], env={"OMP_NUM_THREADS": "1"}),
            "two": cell(FOUR[:1], env={"OMP_NUM_THREADS": "2"}, environment=varied),
        }
    )
    (found,) = compare_all(["small"], results=results)
    (change,) = found.environment
    assert (change.what, change.is_declared) == ("variable OMP_NUM_THREADS", True)
    assert [one.field for one in found.treatment] == ["env.OMP_NUM_THREADS"]


def test_settings_that_differ_are_the_treatment_and_are_listed(run_of: Runs, cell: Any, results: Path) -> None:
    run_of({"plain": cell(FOUR[:1]), "ahead": cell(FOUR[:1], parallel={"forward_prefetch": 1}, asynchronous=5)})
    (found,) = compare_all(["small"], results=results)
    assert [(one.field, one.baseline, one.candidate) for one in found.treatment] == [
        ("parallel.forward_prefetch", "0", "1")
    ]
    assert [(one.what, one.subject, one.baseline, one.candidate) for one in found.mechanism] == [
        ("async", "unshard all-gather", "0 of 5", "5 of 5"),
        ("receipt", "parallel.forward_prefetch", "0", "1"),
    ]
    assert "unshard all-gather: 5 of 5 asynchronous against 0 of 5" in found.sentence


@pytest.mark.parametrize("named", ["x" * 300, "x/" * 3000, "é" * 200, ":*", "**x", "*/**x:plain", ""])
@pytest.mark.usefixtures("two_cells")
def test_a_name_that_no_folder_can_have_is_refused_with_a_sentence(results: Path, named: str) -> None:
    with pytest.raises(StoreError):
        compare_paths(named, "small:slow", results=results)


def spoil_table(path: Path, **columns: str) -> None:
    pd.read_parquet(path).assign(**columns).to_parquet(path, index=False)


def drop_durations(path: Path) -> None:
    pd.read_parquet(path).drop(columns=["duration_ns"]).to_parquet(path, index=False)


def put_a_folder_there(path: Path) -> None:
    path.unlink()
    path.mkdir()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


@pytest.mark.parametrize(
    ("name", "spoil", "said"),
    [
        ("steps.parquet", drop_durations, "lacks the columns duration_ns"),
        ("steps.parquet", lambda path: spoil_table(path, duration_ns="long"), "does not hold what it should"),
        ("steps.parquet", put_a_folder_there, "is a folder"),
        ("steps.parquet", cut, "not a readable table"),
        ("launch.json", cut, "broken"),
        ("ranks/rank0.json", cut, "broken"),
        ("overlap.parquet", lambda path: spoil_table(path, step_ns="long"), r"does not hold what it should \(.*long"),
        ("collectives.parquet", lambda path: spoil_table(path, purpose="nonsense"), r"should \(.*nonsense"),
        ("collectives.parquet", lambda path: spoil_table(path, operation="nonsense"), r"should \(.*nonsense"),
    ],
)
def test_a_launch_with_a_broken_file_is_left_out_and_the_file_is_named(
    two_cells: Path, results: Path, name: str, spoil: Callable[[Path], None], said: str
) -> None:
    launch = RunFolder(two_cells).launch("slow", 1)
    spoil(launch.path / name)
    sides = read_sides(str(two_cells), results)
    assert [one.name for one in sides["slow"].launches] == ["launch0", "launch2", "launch3"]
    (note,) = sides["slow"].notes
    assert re.search(f"slow launch1 of .* is left out: {re.escape(str(launch.path / name))}: .*{said}", note)
    assert (len(sides["plain"].launches), sides["plain"].notes) == (4, ())
    summary = summarize_run(two_cells)
    plain, slow = summary.cells
    assert (plain.status, slow.status) == (RunStatus.COMPLETE, RunStatus.FAILED)
    assert (slow.launches, len(slow.launch_medians_ns), slow.step_time.median) == ((0, 2, 3), 3, 120e6)
    assert slow.reason is not None
    assert re.search(said, slow.reason)
    assert any("launch1 is left out" in one and name in one for one in slow.notes)


def test_a_launch_without_the_record_of_a_rank_is_not_compared(two_cells: Path, results: Path) -> None:
    (two_cells / "cells/slow/launch1/ranks/rank0.json").unlink()
    slow = read_sides(str(two_cells), results)["slow"]
    assert [one.name for one in slow.launches] == ["launch0", "launch2", "launch3"]
    assert [note for note in slow.notes if "the record of rank 0 is missing" in note]
    (found,) = compare_all([str(two_cells)], results=results)
    assert [found.baseline.left_out, found.candidate.left_out] == [(), ("launch1",)]
    name, pattern = two_cells.name, f"*/{two_cells.name}:slow"
    assert read_sides(pattern, results)["slow"].left_out == (f"{name}:slow launch1",)


def test_what_a_report_notes_of_a_cell_a_comparison_notes_of_its_side(two_cells: Path, results: Path) -> None:
    for index in range(4):
        launch = RunFolder(two_cells).launch("slow", index)
        steps = pd.read_parquet(launch.steps)
        steps.assign(stolen_fraction=steps["stolen_fraction"].where(steps["step"] != 1, 0.5)).to_parquet(launch.steps)
        path = launch.rank_record(0)
        record = json.loads(path.read_text(encoding="utf-8"))
        record["warmup"] = {"steps": 60, "settled": False, "reason": "time was up"}
        path.write_text(json.dumps({**record, "traffic_is_stable": index != 3}), encoding="utf-8")
    (found,) = compare_all([str(two_cells)], results=results)
    names = [f"launch{index}" for index in range(4)]
    assert [note for note in found.notes if note.startswith("slow: ")] == [
        "slow: warm-up NOT settled after 60 steps: time was up",
        (
            f"slow: {', '.join(names)}: 1 MEASURED step is left out: "
            "other virtual machines had 2.0 % of the cores or more in it"
        ),
        "slow: launch3: rank 0 issued different collectives in different MEASURED steps",
    ]
    judged = judge(read_bound("mechanism changed"), found)
    said = "undecided, launch3 of slow issued different collectives in different MEASURED steps"
    assert (judged.kept, judged.words.split(": ")[-1]) == (Kept.UNDECIDED, said)


def test_a_launch_that_did_not_end_is_not_compared(two_cells: Path, results: Path) -> None:
    path = RunFolder(two_cells).launch("slow", 1).launch
    record = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**record, "status": "running"}), encoding="utf-8")
    slow = read_sides(str(two_cells), results)["slow"]
    assert [one.name for one in slow.launches] == ["launch0", "launch2", "launch3"]
    why = "launch1 is running by its record, though its run ended: was the record edited?"
    assert f"slow launch1 of 20260101T120000Z-aaaa is left out: {why}" in slow.notes


def test_a_folder_where_a_file_should_be_is_left_out_and_named(two_cells: Path) -> None:
    launch = RunFolder(two_cells).launch("slow", 1)
    launch.steps.unlink()
    launch.journal(0).mkdir(parents=True)
    _, slow = summarize_run(two_cells).cells
    assert list(slow.unreadable) == [1]
    assert str(launch.journal(0)) in slow.unreadable[1]


def test_one_flipped_bit_of_a_table_is_found(run_of: Runs, cell: Any) -> None:
    run = run_of({"slow": cell(SLOW[:2])})
    steps = RunFolder(run).launch("slow", 1).steps
    whole = steps.read_bytes()
    for place in range(40, 400, 20):
        steps.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        (slow,) = summarize_run(run).cells
        found = slow.launch_medians_ns
        assert list(slow.unreadable) == [1] or found == (120e6, 121e6), place


def _show(run: Path) -> str:
    console = Console(width=400)
    with console.capture() as captured:
        console.print(terminal_run(summarize_run(run)))
    return captured.get()


def test_a_run_of_which_no_launch_can_be_read_is_refused(two_cells: Path, results: Path) -> None:
    cells = ("plain", "slow")
    for cell, index in ((cell, index) for cell in cells for index in range(4)):
        cut(RunFolder(two_cells).launch(cell, index).launch)
        if (cell, index) == ("plain", 3):  # one cell can be read, the other cannot
            plain, slow = summarize_run(two_cells).cells
            assert (plain.launches, plain.status, slow.launches) == ((), RunStatus.FAILED, (0, 1, 2, 3))
            assert math.isnan(plain.step_time.median)
            shown = _show(two_cells)
            assert "plain/launch0/launch.json: broken" in shown
            assert "plain/launch3/launch.json: broken" in shown
            assert "no step was measured" not in shown
            assert "within one launch" not in shown
            with pytest.raises(StoreError, match=r"plain/launch0/launch\.json: broken"):
                summarize_only_cell(read_run_data(two_cells, cell="plain"))
    with pytest.raises(StoreError, match=r"launch0/launch\.json: broken"):
        summarize_run(two_cells)
    with pytest.raises(ComparisonError, match="no launch"):
        compare_all([str(two_cells)], results=results)


def test_a_derived_table_of_a_version_without_owners_still_compares(two_cells: Path, results: Path) -> None:
    table = RunFolder(two_cells).launch("slow", 1).derived_table("collectives")
    whole = pd.read_parquet(table)
    for lacking in (whole.drop(columns=["owner"]), whole.assign(owner=None)):
        lacking.to_parquet(table, index=False)
        assert len(read_sides(str(two_cells), results)["slow"].launches) == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda document: document.update(labels=[]), "labels"),
        (lambda document: document["launches"][0]["measurements"][0].update(value=1e308), "no launch has a step_time"),
        (lambda document: document["launches"][0]["measurements"][0].update(value=-1.0), "no launch has a step_time"),
        (
            lambda document: document["launches"][0]["measurements"][0].update(value="Infinity"),
            "no launch has a step_time",
        ),
    ],
)
@pytest.mark.usefixtures("two_cells")
def test_a_baseline_with_what_nobody_can_have_measured_is_refused_and_hides_no_other(
    results: Path, change: Callable[[Any], None], said: str
) -> None:
    for name in ("broken", "whole"):
        save_baseline(name, "small:plain", results=results)
    document = json.loads(baseline_file(results, "broken").read_text(encoding="utf-8"))
    change(document)
    baseline_file(results, "broken").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(StoreError, match=said):
        compare_paths("broken", "small:slow", results=results)
    broken, whole = describe_baselines(results)
    assert (broken.name, broken.launches, whole.launches) == ("broken", "n/a", "4")
    assert said in broken.of


def test_steps_that_took_no_time_are_none_that_ran(run_of: Runs, cell: Any, results: Path) -> None:
    run = run_of({"none": cell((0.0, 0.0, 0.0, 0.0)), "slow": cell(SLOW)})
    with pytest.raises(ComparisonError, match="is 0, which cannot be"):
        compare_all([str(run)], results=results)


@pytest.mark.parametrize("threshold", [float("nan"), float("inf"), -0.01])
@pytest.mark.usefixtures("two_cells")
def test_a_threshold_that_hides_everything_or_nothing_is_refused(results: Path, threshold: float) -> None:
    with pytest.raises(ComparisonError, match="the threshold is"):
        compare_paths("small:plain", "small:slow", results=results, threshold=threshold)


def test_a_report_of_cells_of_unlike_environments_asks_the_rule_that_a_comparison_has(
    two_cells: Path, environment: Environment
) -> None:
    assert summarize_run(two_cells).cells[0].unlike == {}
    for index in range(4):
        folder = RunFolder(two_cells).launch("slow", index)
        write_record(folder.environment, environment.model_copy(update={"variables": {"OMP_NUM_THREADS": "8"}}))
    plain, slow = summarize_run(two_cells).cells
    assert plain.unlike == {"slow": "variable OMP_NUM_THREADS 1 and 8"}
    assert slow.unlike == {"plain": "variable OMP_NUM_THREADS 1 and 8"}
    for index in range(4):
        RunFolder(two_cells).launch("slow", index).environment.unlink()
    plain, slow = summarize_run(two_cells).cells
    assert (plain.unlike, slow.unlike, plain.silent_launches, slow.silent_launches) == ({}, {}, (), (0, 1, 2, 3))
