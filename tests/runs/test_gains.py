"""What a replay says that no remedy can gain more than: kept beside a launch, read once, meaned over launches."""

import math
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pandas as pd
import pytest

from dtbench.base.errors import PredictionError
from dtbench.base.vocabulary import Operation, Purpose
from dtbench.replay.changes.change import Owner
from dtbench.replay.gains import Gain, Gains
from dtbench.replay.read import DisturbedError
from dtbench.runs.cell.summarize_gains import summarize_gains
from dtbench.runs.reading import gains as reading
from dtbench.runs.reading.cell_data import LaunchData
from dtbench.runs.reading.gains import GAINS, LaunchGains, read_gains
from dtbench.runs.run import analyze_run, summarize_run
from dtbench.runs.summary import GainsSummary, OwnerGain
from dtbench.store.layout import RunFolder
from dtbench.store.read import read_table
from dtbench.store.write import write_table
from tests.conftest import make_scenario
from tests.runs.test_run import MadeRun, fill_launch, make_run

MS = 1_000_000
BUCKET = Owner("bucket 2", Purpose.GRAD_REDUCE, Operation.ALL_REDUCE)


@pytest.fixture(scope="module")
def analyzed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose traces were analysed."""
    path = tmp_path_factory.mktemp("run") / "run"
    run = make_run(path, make_scenario(correctness={"enabled": False}), planned_bytes=3 * 4_194_304)
    fill_launch(run.launch, Path(__file__).parents[1] / "traces" / "recorded")
    analyze_run(path)
    return path


@pytest.fixture
def run(analyzed: Path, tmp_path: Path) -> MadeRun:
    """A copy of it, with its times."""
    shutil.copytree(analyzed, tmp_path / "run")
    return MadeRun(RunFolder(tmp_path / "run"))


def find_gains(run: MadeRun) -> GainsSummary | None:
    return summarize_run(run.folder.path).cells[0].gains


def test_who_analyses_a_launch_leaves_what_no_remedy_gains_more_than(run: MadeRun) -> None:
    table = read_table(run.launch.derived_table("gains"))
    assert {name: str(dtype) for name, dtype in table.dtypes.items()} == GAINS.dtypes
    assert [one if isinstance(one, str) else None for one in table["owner"]] == [None, None, "bucket 2"]
    gains = find_gains(run)
    assert gains is not None
    assert not gains.refused
    assert [(one.owner, one.purpose) for one in gains.rows] == [
        (None, None),
        (None, Purpose.GRAD_REDUCE),
        ("bucket 2", Purpose.GRAD_REDUCE),
    ]
    every, purpose, own = (one.saving_ns for one in gains.rows)
    assert 0 < own <= purpose <= every
    assert own <= gains.rows[2].own_ns
    tail = next(row for row in summarize_run(run.folder.path).cells[0].owners if row.owner == "bucket 2")
    assert tail.at_most_ns is not None
    assert own < tail.at_most_ns


def test_a_run_of_an_older_version_reads_as_before(run: MadeRun) -> None:
    """What another version made is no reason to read its traces again."""
    whole = summarize_run(run.folder.path)
    run.launch.derived_table("gains").unlink()
    again = summarize_run(run.folder.path)
    assert not run.launch.derived_table("gains").exists()
    (cell,) = whole.cells
    as_before = whole.model_copy(update={"cells": (cell.model_copy(update={"gains": None}),)})
    assert again.model_dump_json() == as_before.model_dump_json()


def test_traces_that_are_newer_are_not_what_was_replayed(run: MadeRun) -> None:
    path = run.launch.derived_table("gains")
    before_ns = min(one.stat().st_mtime_ns for one in run.launch.find_traces().values()) - 1
    os.utime(path, ns=(before_ns, before_ns))
    assert read_gains(run.launch) is None


def spoil(frame: pd.DataFrame, name: str, value: float | str) -> pd.DataFrame:
    return frame.assign(**{name: value})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda frame: spoil(frame, "saving_ns", -1.0), "`saving_ns` is less than nothing, or more than `own_ns`"),
        (lambda frame: spoil(frame, "saving_ns", 1e18), "`saving_ns` is less than nothing, or more than `own_ns`"),
        (lambda frame: spoil(frame, "purpose", "luck"), "'luck' is not a valid Purpose"),
        (lambda frame: pd.concat([frame, frame[:1]]), "it has a row twice"),
        (lambda frame: spoil(frame, "step_ns", "long"), "long"),
    ],
)
def test_a_table_that_cannot_be_says_so(run: MadeRun, change: Callable[[pd.DataFrame], pd.DataFrame], why: str) -> None:
    path = run.launch.derived_table("gains")
    write_table(path, change(read_table(path)))
    kept = read_gains(run.launch)
    assert kept is not None
    assert not len(kept.rows)
    assert kept.refused.startswith(f"{path}: does not hold what it should (")
    assert why in kept.refused


def test_a_broken_table_or_one_of_another_launch_is_named_and_takes_nothing_else_with_it(run: MadeRun) -> None:
    path = run.launch.derived_table("gains")
    table = read_table(path)
    table.attrs["place"] = {**table.attrs["place"], "launch": 7}
    write_table(path, table)
    strange = read_gains(run.launch)
    assert strange is not None
    assert "launch 7, and lies in" in strange.refused
    path.write_bytes(b"PAR1")
    (cell,) = summarize_run(run.folder.path).cells
    assert cell.gains is not None
    assert (cell.gains.rows, math.isnan(cell.gains.step_ns)) == ((), True)
    assert cell.gains.refused.startswith(f"{path}: not a readable table")
    assert cell.owners


@pytest.mark.parametrize(
    ("error", "is_left_out"), [(PredictionError("it does not fit"), False), (DisturbedError("others had it"), True)]
)
def test_why_a_replay_is_refused_is_kept(
    run: MadeRun, monkeypatch: pytest.MonkeyPatch, error: PredictionError, *, is_left_out: bool
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(reading, "read_graph", refuse)
    analyze_run(run.folder.path)
    kept = read_gains(run.launch)
    assert kept is not None
    assert (len(kept.rows), kept.refused, kept.is_left_out) == (0, str(error), is_left_out)
    assert find_gains(run) == GainsSummary(refused=str(error))


def launch(number: int, gains: LaunchGains | None) -> LaunchData:
    return cast("LaunchData", SimpleNamespace(place=SimpleNamespace(launch=number), gains=gains))


def told(step_ms: float, savings_ms: Mapping[str, float], host_times: float | None = 0.9) -> LaunchGains:
    rows = [
        Gain(
            Owner(owner, Purpose.GRAD_REDUCE, Operation.ALL_REDUCE),
            Purpose.GRAD_REDUCE,
            own_ns=50 * MS,
            saving_ns=saving * MS,
        )
        for owner, saving in savings_ms.items()
    ]
    return LaunchGains(GAINS.tabulate(Gains(step_ms * MS, host_times, tuple(rows))))


def own(owner: str, saving_ms: float) -> OwnerGain:
    return OwnerGain(
        owner=owner,
        purpose=Purpose.GRAD_REDUCE,
        operation=Operation.ALL_REDUCE,
        own_ns=50 * MS,
        saving_ns=saving_ms * MS,
    )


FIRST = told(80, {"bucket 0": 14, "bucket 1": 30})
SECOND = told(82, {"": 7, "bucket 1": 32})
PROFILED = told(94, {"bucket 1": 34}, None)


def test_gains_are_means_over_launches_of_the_owners_that_all_of_them_have() -> None:
    launches = [launch(0, FIRST), launch(2, SECOND), launch(3, None)]
    assert summarize_gains(launches, None) == GainsSummary(
        step_ns=81 * MS, is_measured=True, launches=(0, 2), rows=(own("bucket 1", 31),)
    )
    assert summarize_gains(launches[:1], None) == GainsSummary(
        step_ns=80 * MS, is_measured=True, launches=(0,), rows=(own("bucket 0", 14), own("bucket 1", 30))
    )


def test_of_launches_all_are_as_measured_or_none() -> None:
    assert summarize_gains([launch(0, FIRST), launch(1, PROFILED)], None) == GainsSummary(
        refused="the host's time explains the MEASURED step of some launches alone"
    )


def test_steps_as_measured_are_not_told_where_measured_ones_are_not_to_be_gone_by() -> None:
    assert summarize_gains([launch(0, FIRST)], "others had the cores") == GainsSummary(
        refused="it is of steps as MEASURED, which are not gone by: others had the cores"
    )
    assert summarize_gains([launch(0, PROFILED)], "others had the cores") == GainsSummary(
        step_ns=94 * MS, launches=(0,), rows=(own("bucket 1", 34),)
    )


def test_one_launch_that_does_not_fit_refuses_and_one_that_others_disturbed_does_not() -> None:
    nothing = GAINS.tabulate(None)
    misfit, disturbed = LaunchGains(nothing, "it does not fit"), LaunchGains(nothing, "others had it", is_left_out=True)
    assert summarize_gains([launch(0, FIRST), launch(1, misfit)], None) == GainsSummary(
        refused="launch 1: it does not fit"
    )
    found = summarize_gains([launch(0, FIRST), launch(1, disturbed)], None)
    assert found is not None
    assert (found.launches, found.refused) == ((0,), "")
    assert summarize_gains([launch(0, disturbed)], None) == GainsSummary(refused="others had it")


def test_where_nobody_asked_nothing_is_said() -> None:
    assert summarize_gains([launch(0, None)], None) is None
    assert summarize_gains([launch(0, LaunchGains(GAINS.tabulate(None)))], None) is None
