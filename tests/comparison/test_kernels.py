"""Which compute kernels got slower between two traces: only those that did the same work, and more than steps vary."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import dtbench
from dtbench.cli.compare import print_comparisons
from dtbench.comparison.comparison import KernelChange, KernelOutcome
from dtbench.comparison.kernels import MOST_KERNELS, find_kernel_changes
from dtbench.comparison.run import compare_paths
from dtbench.report.page.brief.comparison import comparison_brief
from dtbench.report.page.comparison_page import MOST_OWNERS, comparison_tables, kernels_table
from dtbench.report.words.kernel_names import shorten_apart

STEP_US = 1000
JITTER_US = (0, 2, 1, 3, 1, 2)


def write_trace(
    path: Path, kernels: Mapping[str, tuple[int | Sequence[int], float]], *, grid: Sequence[int] | None = (8, 1, 1)
) -> Path:
    """Write a trace of six steps in which kernels run so often, in each, for so many us and a little more.

    ``grid``: None: launch shapes are not told.
    """
    events: list[dict[str, Any]] = []

    def add(category: str, name: str, lane: str, begin: float, length: float, **args: Any) -> None:
        row = {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": lane, "ts": begin, "dur": length}
        events.append({**row, "args": args})

    number = 0
    for step, jitter in enumerate(JITTER_US):
        add("user_annotation", f"ProfilerStep#{step + 3}", "1", step * STEP_US, STEP_US)
        at = float(step * STEP_US)
        for name, (count, length) in kernels.items():
            for _ in range(count if isinstance(count, int) else count[step]):
                number += 1
                add("cuda_runtime", "cudaLaunchKernel", "1", at, 1, correlation=number)
                shape = {} if grid is None else {"grid": [*grid], "block": [128, 1, 1]}
                add("kernel", name, "7", at + 2, length + jitter, correlation=number, device=0, stream=7, **shape)
                at += length + 10
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def compare(before: Path, after: Path, **options: Any) -> dict[str, KernelChange]:
    found = compare_paths(str(before), str(after), results=before.parent, **options)
    return {row.name: row for row in found.kernels}


def test_a_kernel_that_takes_longer_at_equal_work_is_named(tmp_path: Path) -> None:
    before = write_trace(tmp_path / "before.json", {"gemm": (3, 100.0), "norm": (2, 50.0)})
    after = write_trace(tmp_path / "after.json", {"gemm": (3, 130.0), "norm": (2, 50.0)})
    rows = compare(before, after)
    assert list(rows) == ["gemm", "norm"]  # what costs a step most comes first
    gemm = rows["gemm"]
    assert (gemm.count, gemm.outcome, gemm.is_same_work) == ((3.0, 3.0), KernelOutcome.LONGER, True)
    assert gemm.median_ns == (101_000.0, 131_000.0)  # the last step, cut where the trace ends, does not count
    assert gemm.low > 1.2
    assert rows["norm"].outcome not in (KernelOutcome.LONGER, KernelOutcome.SHORTER)
    said = str(dtbench.compare(before, after))
    assert "compute kernels that took longer in these traces: gemm 101 us -> 131 us (+29.7 %, 3 runs per step)" in said


def test_kernels_that_run_more_often_did_other_work_and_are_not_called_slower(tmp_path: Path) -> None:
    before = write_trace(tmp_path / "before.json", {"gemm": (3, 100.0), "norm": (2, 50.0)})
    after = write_trace(tmp_path / "after.json", {"gemm": (4, 130.0), "silu": (2, 50.0)})
    rows = compare(before, after)
    assert not any(row.is_same_work for row in rows.values())
    assert {row.outcome for row in rows.values()} == {KernelOutcome.DIFFERENT_WORK}
    assert "took longer" not in str(dtbench.compare(before, after))
    frame = dtbench.compare(before, after).kernels.set_index("kernel")
    assert frame["baseline_median_ns"].isna()["silu"]  # it did not run, which is no time of 0
    assert frame.loc["silu", "baseline_count"] == 0


def test_another_launch_shape_is_other_work(tmp_path: Path) -> None:
    before = write_trace(tmp_path / "before.json", {"gemm": (3, 100.0)})
    after = write_trace(tmp_path / "after.json", {"gemm": (3, 130.0)}, grid=(16, 1, 1))
    found = compare_paths(str(before), str(after), results=tmp_path)
    assert [row.is_same_work for row in found.kernels] == [False, False]


@pytest.mark.parametrize("grids", [(None, None), ((8, 1, 1), None), (None, (8, 1, 1))])
def test_where_launch_shapes_are_not_told_it_is_not_known_whether_the_work_is_the_same(
    tmp_path: Path, grids: tuple[Sequence[int] | None, Sequence[int] | None], capsys: pytest.CaptureFixture[str]
) -> None:
    before = write_trace(tmp_path / "before.json", {"gemm": (3, 100.0), "norm": (1, 50.0)}, grid=grids[0])
    after = write_trace(tmp_path / "after.json", {"gemm": (3, 130.0), "silu": (1, 50.0)}, grid=grids[1])
    found = compare_paths(str(before), str(after), results=tmp_path)
    assert not any(row.is_same_work for row in found.kernels)
    of_gemm = {row.outcome for row in found.kernels if row.name == "gemm"}
    assert of_gemm == {KernelOutcome.UNKNOWN}
    assert {row.outcome for row in found.kernels if row.name != "gemm"} == {KernelOutcome.DIFFERENT_WORK}
    assert "of none is it known that it runs equally often in a step, with one launch" in found.kernels_not_compared
    assert "took longer" not in str(dtbench.compare(before, after))
    print_comparisons([found])
    unknown = sum(row.name == "gemm" for row in found.kernels)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"compute kernels did the same work, and of {unknown} it is not known" in shown


def test_equal_means_of_unlike_steps_are_not_the_same_work(tmp_path: Path) -> None:
    before = write_trace(tmp_path / "before.json", {"gemm": (2, 50.0), "norm": (1, 50.0)})
    after = write_trace(tmp_path / "after.json", {"gemm": ((0, 4, 0, 4, 2, 2), 70.0), "norm": (1, 50.0)})
    rows = {row.name: row for row in compare_paths(str(before), str(after), results=tmp_path).kernels}
    assert rows["gemm"].count[0] == rows["gemm"].count[1]
    assert rows["gemm"].outcome is KernelOutcome.DIFFERENT_WORK


def test_what_lies_below_the_threshold_is_not_named(tmp_path: Path) -> None:
    before = write_trace(tmp_path / "before.json", {"gemm": (3, 100.0)})
    after = write_trace(tmp_path / "after.json", {"gemm": (3, 130.0)})
    assert compare(before, after, threshold=0.5)["gemm"].outcome is not KernelOutcome.LONGER


def test_steps_that_are_too_few_establish_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(write_trace.__globals__, "JITTER_US", (0, 2, 1))
    before = write_trace(tmp_path / "before.json", {"gemm": (3, 100.0)})
    after = write_trace(tmp_path / "after.json", {"gemm": (3, 130.0)})
    assert compare(before, after)["gemm"].outcome is KernelOutcome.TOO_FEW
    assert "compute kernels are not compared: a side has fewer than 4 steps that count" in str(
        dtbench.compare(before, after)
    )


def test_runs_and_traces_of_threads_tell_no_kernels() -> None:
    root = Path(__file__).parents[2]
    cells = str(root / "results" / "example_sweep")
    found = compare_paths(f"{cells}:micro_batches-1", f"{cells}:micro_batches-4", results=root)
    assert found.kernels == ()
    assert found.kernels_not_compared == ""
    traces = root / "tests" / "traces" / "recorded"
    of_threads = compare_paths(
        str(traces / "ddp_2ranks_rank0.json.gz"),
        str(traces / "two_ranks_one_gpu/ddp/rank0.json.gz"),
        results=root,
        force=True,
    )
    assert of_threads.kernels == ()
    assert of_threads.kernels_not_compared.startswith("compute kernels are not compared: ")


def test_a_sentence_says_why_no_kernel_is_compared(tmp_path: Path) -> None:
    gemm, other, more = (
        write_trace(tmp_path / f"{name}.json", kernels)
        for name, kernels in (("a", {"gemm": (3, 100.0)}), ("b", {"silu": (3, 100.0)}), ("c", {"gemm": (4, 100.0)}))
    )
    for candidate, why in (
        (other, "none is in the traces of both sides"),
        (more, "none runs equally often in a step, with one launch shape, on both sides"),
    ):
        page = comparison_brief(compare_paths(str(gemm), str(candidate), results=tmp_path))
        assert f"compute kernels are not compared: {why}" in [line.words for line in page.answer]
    of_threads = find_kernel_changes([], [], ("a", "b"), 0.01, is_doubted=False)
    said = "compute kernels are not compared: a and b have none that ran on a device in a step that counts"
    assert of_threads.not_compared == said


def test_kernels_with_the_same_work_come_first_by_the_time_lost_and_the_screen_says_where_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {f"other{at}": (1, 20.0) for at in range(MOST_OWNERS)}
    before = write_trace(
        tmp_path / "before.json", {"gemm": (1, 60.0), "norm": (2, 20.0), "relu": (1, 30.0), "silu": (1, 90.0)}
    )
    after = write_trace(tmp_path / "after.json", {"gemm": (1, 50.0), "norm": (2, 40.0), "relu": (1, 33.0), **others})
    found = compare_paths(str(before), str(after), results=tmp_path)
    assert [row.name for row in found.kernels[:4]] == ["norm", "relu", "gemm", "silu"]
    assert {row.outcome.value for row in found.kernels[3:]} == {"different work"}  # the words of the screen
    monkeypatch.setenv("COLUMNS", "160")
    print_comparisons([found])
    assert "3 of 12 compute kernels did the same work: see --full" in capsys.readouterr().out
    print_comparisons([found], full=True)
    shown = capsys.readouterr().out
    assert all(row.name in shown for row in found.kernels)
    assert "see --json" not in shown


def test_kernels_beyond_those_that_are_told_are_counted_and_none_with_the_same_work_is(tmp_path: Path) -> None:
    before = write_trace(tmp_path / "before.json", {"gemm": (1, 1.0)})
    after = write_trace(tmp_path / "after.json", {"gemm": (1, 2.0), **{f"other{at}": (1, 3.0) for at in range(60)}})
    found = compare_paths(str(before), str(after), results=tmp_path)
    assert (len(found.kernels), found.kernels_left_out, found.kernels[0].name) == (MOST_KERNELS, 11, "gemm")
    (table,) = kernels_table(found)
    assert "11 more kernels that took less: left out" in table.said


def test_names_of_kernels_that_differ_do_so_when_cut_and_shapes_tell_equal_ones_apart(tmp_path: Path) -> None:
    begin, end = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<", f", {'float, ' * 9}4>"
    kernels = {f"{begin}{functor}{end}": (2, 20.0) for functor in ("Adam", "Sgd", "Lerp")}
    before = write_trace(tmp_path / "before.json", kernels)
    found = compare_paths(str(before), str(write_trace(tmp_path / "after.json", kernels)), results=tmp_path)
    assert "origins" not in {table.key for table in comparison_tables(found)}  # traces tell none
    (table,) = kernels_table(found)
    assert len({row[0] for row in table.words}) == len(kernels)
    assert max(len(row[0]) for row in table.words) < 60
    assert table.columns[1].plain_title == "runs baseline"
    reshaped = write_trace(tmp_path / "reshaped.json", kernels, grid=(16, 1, 1))
    (table,) = kernels_table(compare_paths(str(before), str(reshaped), results=tmp_path))
    assert table.columns[1].plain_title == "launch shape"
    assert len({row[:2] for row in table.words}) == 2 * len(kernels)


def test_names_that_differ_in_two_places_are_cut_around_the_one_that_tells_them_apart() -> None:
    begin, between, end = "at::native::elementwise_kernel<", ", at::native::Functor" * 9, ", int" * 20
    names = [f"{begin}{one}{between}{other}{end}" for one, other in ("ax", "ay", "bx")]
    short = shorten_apart(names)
    assert len({*short.values()}) == len(names)
    assert max(map(len, short.values())) < 60
    whole = shorten_apart([*names, "gemm"])
    assert whole["gemm"] == "gemm"
