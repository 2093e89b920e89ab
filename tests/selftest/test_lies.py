"""The selftest can fail: each planted lie turns its row red, on real ranks, where the untouched row is green."""

import gzip
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.vocabulary import Kind, Purpose
from dtbench.launch.local import WORKER
from dtbench.launch.run import Observer
from dtbench.selftest.records import RowOutcome, SelftestRecord
from dtbench.selftest.run import Selftest, judge_run, plan_selftest, run_selftest
from dtbench.store.layout import LaunchFolder, RunFolder

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
QUIET = "DTBENCH_QUIET_MACHINE"
pytestmark = [
    pytest.mark.ranks,
    pytest.mark.timed,
    pytest.mark.skipif(not os.environ.get(QUIET), reason=f"times ranks to 2 ms: set {QUIET}=1 if nothing else runs"),
]

SEED = 0
ROWS = ("tail", "clock", "late_issue", "compressed")
LYING_WORKER = Path(__file__).parent / "lying_worker.py"


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory, forked: tuple[str, ...]) -> tuple[Selftest, SelftestRecord]:
    """Return the rows that lies are told in, untouched."""
    planned = plan_selftest(SEED, ROWS)
    results = tmp_path_factory.mktemp("honest")
    return planned, run_selftest(
        planned, results, observer=Observer(), on_row=lambda _row: None, worker=(*forked, *WORKER)
    )


@pytest.fixture
def lie(tmp_path: Path, forked: tuple[str, ...]) -> Callable[[str, str], RowOutcome]:
    """Run one row with a lie in its ranks."""

    def run(told: str, row: str) -> RowOutcome:
        worker = (*forked, sys.executable, str(LYING_WORKER), told)
        planned = plan_selftest(SEED, (row,))
        record = run_selftest(planned, tmp_path, observer=Observer(), on_row=lambda _row: None, worker=worker)
        return record.rows[0]

    return run


def find_row(record: SelftestRecord, name: str) -> RowOutcome:
    return next(row for row in record.rows if row.row == name)


def failed(row: RowOutcome) -> set[str]:
    return {check.what for check in row.checks if not check.passed}


def require_green(record: SelftestRecord, name: str) -> None:
    """Skip where the untouched row failed: its ranks are timed, and a busy machine fails it as a lie does."""
    row = find_row(record, name)
    if not row.passed:
        pytest.skip(f"the untouched row failed, so nothing can be said of a lie: {'; '.join(row.reasons)}")


@pytest.mark.parametrize(
    ("told", "name", "caught_by"),
    [
        ("never wait for gathers", "late_issue", "step"),
        ("drop a bucket", "tail", "traffic"),
        ("ignore bandwidth", "compressed", "exposed communication"),
        ("skip compute without communication", "tail", "estimates"),
    ],
)
def test_a_lie_in_the_ranks_turns_its_row_red(
    honest: tuple[Selftest, SelftestRecord],
    lie: Callable[[str, str], RowOutcome],
    told: str,
    name: str,
    caught_by: str,
) -> None:
    require_green(honest[1], name)
    row = lie(told, name)
    assert not row.passed
    assert caught_by in failed(row), row.reasons
    if caught_by in ("step", "exposed communication"):
        assert any("less than it can be" in reason for reason in row.reasons)


def copy_run(honest: tuple[Selftest, SelftestRecord], folder: Path) -> RunFolder:
    """Copy the honest run without what was derived from its traces."""
    import shutil

    copied = folder / "run"
    shutil.copytree(honest[1].run, copied)
    for table in ("overlap", "purposes", "collectives"):
        for path in copied.rglob(f"{table}.parquet"):
            path.unlink()
    return RunFolder(copied)


def shift_clock(launch: LaunchFolder, rank: int, shift_us: int) -> None:
    """Move everything in a rank's trace to later."""
    path = launch.find_traces()[rank]
    trace = json.loads(gzip.decompress(path.read_bytes()))
    for event in trace["traceEvents"]:
        if "ts" in event:
            event["ts"] += shift_us
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))


def test_a_clock_that_is_off_by_5_ms_turns_the_clock_row_red(
    honest: tuple[Selftest, SelftestRecord], tmp_path: Path
) -> None:
    selftest, record = honest
    require_green(record, "clock")
    run = copy_run(honest, tmp_path)
    assert find_row(judge_run(selftest, run.path), "clock").passed, "a copy is as good"
    shift_clock(run.launch("tail", 0), rank=1, shift_us=5_000)
    row = find_row(judge_run(selftest, run.path), "clock")
    assert "clocks" in failed(row), row.reasons


def test_compute_taken_for_communication_and_the_reverse_turns_rows_red(
    honest: tuple[Selftest, SelftestRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    selftest, record = honest
    require_green(record, "tail")
    swap_kinds(monkeypatch)
    run = copy_run(honest, tmp_path)
    row = find_row(judge_run(selftest, run.path), "tail")
    assert not row.passed
    assert {"exposed communication", "estimates"} & failed(row), row.reasons


def swap_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the analyser take compute for communication and communication for compute."""
    from dataclasses import replace

    from dtbench.traces.rank.cpu_contents import find_cpu_contents

    def swapped(trace: Any, facts: Any) -> Any:
        contents = find_cpu_contents(trace, facts)
        kinds = dict(contents.kinds)
        kinds[Kind.COMPUTE], kinds[Kind.COMM] = kinds[Kind.COMM], kinds[Kind.COMPUTE]
        return replace(contents, kinds=kinds)

    monkeypatch.setattr("dtbench.traces.rank.analysis.find_cpu_contents", swapped)


def test_purposes_that_are_swapped_turn_the_row_red(
    honest: tuple[Selftest, SelftestRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dtbench.traces.who.purposes import find_purpose

    selftest, record = honest
    require_green(record, "late_issue")
    swaps = {Purpose.UNSHARD: Purpose.GRAD_REDUCE, Purpose.GRAD_REDUCE: Purpose.UNSHARD}
    monkeypatch.setattr(
        "dtbench.traces.cpu.gloo.find_purpose", lambda *args: swaps.get(find_purpose(*args), Purpose.OTHER)
    )
    row = find_row(judge_run(selftest, copy_run(honest, tmp_path).path), "late_issue")
    assert {"cause", "operation"} & failed(row), row.reasons
