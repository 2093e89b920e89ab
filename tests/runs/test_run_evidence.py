"""Take evidence out of a run, one kind at a time: no figure turns into zero, and no further check passes."""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dtbench.base.errors import StoreError
from dtbench.base.vocabulary import Purpose
from dtbench.report.words.sentences import check_word, wait_word
from dtbench.runs.run import summarize_run
from dtbench.runs.summary import RunSummary
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.records.checks import CheckOutcome
from dtbench.store.write import write_table
from tests.known import known
from tests.report.shown import terminal_run

EXAMPLE = Path(__file__).parents[2] / "results" / "example"


def forget(table: str, *columns: str, rank: int | None = None) -> Callable[[LaunchFolder], None]:
    """Make columns of a table unknown, of one rank or of all."""

    def apply(folder: LaunchFolder) -> None:
        frame = pd.read_parquet(folder.derived_table(table))
        attrs = dict(frame.attrs)
        for column in columns:
            known = frame[column].astype("Int64")
            frame[column] = known.mask(frame["rank"] == rank if rank is not None else known.notna())
        frame.attrs = attrs
        write_table(folder.derived_table(table), frame)

    return apply


def forget_owners(folder: LaunchFolder) -> None:
    frame = pd.read_parquet(folder.derived_table("collectives"))
    write_table(folder.derived_table("collectives"), frame.assign(owner="", cause="unknown"))


def lose(name: str) -> Callable[[LaunchFolder], None]:
    """Delete a file of a launch."""
    return lambda folder: (folder.path / name).unlink()


ACCOUNT = ("compute_ns", "comm_ns", "hidden_comm_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
LOSSES: dict[str, Callable[[LaunchFolder], None]] = {
    "what computes": forget("overlap", "compute_ns", "hidden_comm_ns", "exposed_comm_ns", "idle_ns"),
    "what computes, on one rank": forget("overlap", *ACCOUNT, rank=1),
    "any account": forget("overlap", "step_ns", *ACCOUNT),
    "waits": forget("purposes", "wait_ns"),
    "what was hidden": forget("purposes", "hidden_ns", "exposed_ns"),
    "sizes": forget("purposes", "size_bytes"),
    "what was exposed of collectives": forget("collectives", "exposed_ns", "hidden_ns"),
    "owners": forget_owners,
    "a rank's record": lose("ranks/rank1.json"),
    "a table": lose("purposes.parquet"),
    "the order of the ranks' steps": lose("steps.parquet"),
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "example"))


def flatten(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from flatten(one, f"{path}.{key}")
    elif isinstance(value, list):
        for place, one in enumerate(value):
            named = isinstance(one, Mapping) and next((one[k] for k in ("rank", "purpose", "name") if k in one), None)
            yield from flatten(one, f"{path}[{place if named in (None, False) else named}]")
    else:
        yield path, value


def figures(summary: RunSummary) -> dict[str, Any]:
    """Return the numbers of the cells' answers; how many steps or launches there are may be none."""
    document = json.loads(summary.model_dump_json())
    return {
        path: value
        for path, value in flatten(document["cells"])
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and not re.search(r"scenario|plan\b|(step_time|profiler_cost)\.count", path)
    }


def passed(summary: RunSummary) -> set[str]:
    checks = summary.checks
    return set() if checks is None else {one.words for one in checks.results if one.outcome is CheckOutcome.PASSED}


@pytest.fixture(scope="module")
def whole() -> RunSummary:
    return summarize_run(EXAMPLE)


@pytest.mark.parametrize("loss", LOSSES)
def test_what_a_run_lost_is_not_zero_and_passes_no_check(loss: str, run: Path, whole: RunSummary) -> None:
    LOSSES[loss](RunFolder(run).launch("ddp", 0))
    try:
        left = summarize_run(run)
    except StoreError:
        return  # refused with a sentence
    before, after = figures(whole), figures(left)
    wrong = [f"{path} {before[path]} -> 0" for path in before if before[path] and after.get(path) == 0]
    assert not wrong, "\n".join(wrong)
    assert passed(left) <= passed(whole)
    assert terminal_run(left) is not None


def keep_rows(table: str, choose: Callable[[pd.DataFrame], Any]) -> Callable[[LaunchFolder], None]:
    """Take rows out of a file of a launch."""

    def apply(folder: LaunchFolder) -> None:
        path = folder.steps if table == "steps" else folder.derived_table(table)
        frame = pd.read_parquet(path)
        attrs = dict(frame.attrs)
        kept = frame[choose(frame)]
        kept.attrs = attrs
        write_table(path, kept)

    return apply


def forget_steal(folder: LaunchFolder) -> None:
    frame = pd.read_parquet(folder.steps)
    attrs = dict(frame.attrs)
    frame["stolen_fraction"] = float("nan")
    frame.attrs = attrs
    write_table(folder.steps, frame)


@pytest.mark.parametrize(
    ("loss", "note"),
    [
        (
            keep_rows("steps", lambda rows: (rows["phase"] != "MEASURED") | (rows["step"] < 10)),
            "launch0: 2 of 8 MEASURED steps are there: the table of steps lost the others",
        ),
        (
            keep_rows("overlap", lambda rows: rows["step"] < 17),
            "launch0: where the time went is told of 1 of 3 PROFILED steps: the table of accounts lost the others",
        ),
        (
            forget_steal,
            (
                "launch0: what other virtual machines of the host had of the cores is not known of 11 of 11 steps:"
                " none is left out for it"
            ),
        ),
    ],
)
def test_what_all_ranks_lost_alike_is_noted(
    loss: Callable[[LaunchFolder], None], note: str, run: Path, whole: RunSummary
) -> None:
    loss(RunFolder(run).launch("ddp", 0))
    cell, before = summarize_run(run).cells[0], whole.cells[0]
    assert note in cell.notes
    assert note not in before.notes


@pytest.mark.parametrize(("phase", "steps"), [("MEASURED", 8), ("PROFILED", 3)])
def test_nothing_is_judged_where_no_rank_timed_the_steps_of_a_phase(phase: str, steps: int, run: Path) -> None:
    keep_rows("steps", lambda rows: rows["phase"] != phase)(RunFolder(run).launch("ddp", 0))
    summary = summarize_run(run)
    lost = f"launch0: 0 of {steps} {phase} steps are there: the table of steps lost the others"
    assert summary.cells[0].rank_doubts == (lost,)
    assert check_word(summary.cells[0]) == "not judged"
    assert not [words for words in passed(summary) if "ddp" in words]
    assert known(summary.checks).outcome is CheckOutcome.NOT_JUDGED


def test_a_wait_whose_purpose_nobody_knows_is_not_none(run: Path, whole: RunSummary) -> None:
    assert wait_word(whole.cells[0], Purpose.UNSHARD) == "none"
    keep_rows("purposes", lambda rows: rows["rank"] < 0)(RunFolder(run).launch("ddp", 0))
    assert wait_word(summarize_run(run).cells[0], Purpose.UNSHARD) == "n/a"
