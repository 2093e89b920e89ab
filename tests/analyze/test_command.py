"""``dtbench analyze`` on traces: what it prints."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench.cli.analyze import analyze
from dtbench.errors import StoreError, TraceError


def document(capsys: pytest.CaptureFixture[str], *targets: Path) -> Any:
    analyze([str(target) for target in targets], as_json=True)
    return json.loads(capsys.readouterr().out)


def test_json_carries_the_account_of_every_step_in_integers(capsys: pytest.CaptureFixture[str], recorded: Path) -> None:
    found = document(capsys, recorded / "fsdp2_tp_2x2_rank0.json.gz")
    assert (found["format_version"], found["unread"], found["unknown_names"]) == (1, 0, [])
    (rank,) = found["ranks"]
    assert rank["rank"] == 0
    assert [step["step"] for step in rank["steps"]] == [10, 11, 12]
    parts = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
    for step in rank["steps"]:
        assert sum(step[part] for part in parts) == step["step_ns"]
        assert sum(purpose["exposed_ns"] for purpose in step["purposes"]) == step["exposed_comm_ns"]
    assert sum(rank["whole"][part] for part in parts) == rank["whole"]["window_ns"]


def test_a_number_that_cannot_be_computed_is_the_word_nan(
    capsys: pytest.CaptureFixture[str], draw: Callable[..., Path]
) -> None:
    found = document(capsys, draw("kernel gemm @s7 |==|"))
    assert found["ranks"][0]["whole"]["hidden_fraction"] == "NaN"
    assert found["ranks"][0]["steps"] == []


def test_the_tables_fit_a_narrow_terminal(capsys: pytest.CaptureFixture[str], recorded: Path) -> None:
    analyze([str(recorded / "ddp_2ranks_rank0.json.gz")])
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert any(line.split()[:2] == ["0", "whole"] for line in lines)
    assert any("grad_reduce" in line and "12.0 MiB" in line for line in lines)


def test_names_that_no_rule_knows_are_shown(capsys: pytest.CaptureFixture[str], draw: Callable[..., Path]) -> None:
    analyze([str(draw("kernel my_all_gather @s7 |==|"))])
    assert "may be communication (1 times): my_all_gather" in capsys.readouterr().out


def test_a_missing_trace_is_refused_as_a_trace_and_a_missing_run_as_a_run(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be opened"):
        analyze([str(tmp_path / "none.json.gz")])
    with pytest.raises(StoreError):
        analyze(["no-such-run"], results=tmp_path)
