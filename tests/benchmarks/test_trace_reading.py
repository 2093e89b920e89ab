"""The benchmark runs and fills its table; what it measures is no test's business."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tests" / "traces" / "recorded" / "ddp_2ranks_rank0.json.gz"


def run(*options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.benchmarks.trace_reading", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_table_is_printed_and_no_bound_is_claimed_for_a_small_trace(tmp_path: Path) -> None:
    done = run("--source", str(SOURCE), "--folder", str(tmp_path), "--sizes", "1", "--rounds", "1", "--rank-mb", "0")
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if line[:1] == "|"]
    by_what = {row[1]: row for row in rows}
    assert {"load", "whole answer", "load, peak memory", "whole answer, peak memory"} <= set(by_what)
    assert by_what["load"][2].endswith("x limit") or "pysimdjson is missing" in done.stdout
    assert {row[4] for row in rows[2:]} == {""}
    assert [file.name for file in tmp_path.iterdir()] == ["repeated_1mb.json.gz"]


def test_a_source_that_is_missing_is_named(tmp_path: Path) -> None:
    done = run("--source", str(tmp_path / "none.json.gz"))
    assert done.returncode == 2
    assert "none.json.gz: no such file" in done.stderr


def test_a_child_of_a_large_process_would_look_large_so_the_benchmark_stays_small(tmp_path: Path) -> None:
    code = (
        "import sys, tests.benchmarks.trace_reading; print(sorted({'numpy', 'pandas', 'msgspec'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_is_compared_with_hta_is_what_the_whole_answer_says() -> None:
    trace = str(ROOT.parent / "shared" / "traces" / "mi300x_ddp_rank.json.gz")
    if not Path(trace).is_file():
        pytest.skip("the shared GPU traces are not beside this checkout")
    asked = [[sys.executable, "-m", "tests.benchmarks.overlap_answer", trace]]
    asked.append([sys.executable, "-m", "dtbench", "analyze", trace, "--json"])
    lean, full = (
        json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
        for command in asked
    )
    (rank,) = full["ranks"]
    assert len(lean["steps"]) == len(rank["steps"]) > 0
    for said in rank["steps"]:
        for field, value in lean["steps"][str(said["step"])].items():
            assert said["at_least" if field == "is_least" else field] == value
    assert lean["whole"].pop("is_least") == rank["whole"]["at_least"]
    assert lean["whole"].pop("step_ns") == rank["whole"]["window_ns"]
    assert {field: rank["whole"][field] for field in lean["whole"]} == lean["whole"]
