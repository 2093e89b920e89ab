"""``dtbench analyze`` on traces: what it prints."""

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from dtbench.base.errors import StoreError, TraceError
from dtbench.cli.analyze import analyze
from dtbench.cli.main import main
from dtbench.traces.job import foreign
from dtbench.traces.rank.file import Answer, TraceFile, analyze_file
from dtbench.traces.rows.collective_table import COLLECTIVES


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


def test_the_tables_fit_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for full in (False, True):
        analyze([str(recorded / "ddp_2ranks_rank0.json.gz")], full=full)
        lines = capsys.readouterr().out.splitlines()
        tables = [line.rstrip() for line in lines if "  " in line and "dtbench whatif" not in line]
        assert max(map(len, tables)) <= 80  # sentences wrap on a terminal only, and commands that are copied never
    assert any(line.split()[:2] == ["0", "whole"] for line in lines)
    assert any("grad_reduce" in line and "12.0 MiB" in line for line in lines)


def test_names_that_no_rule_knows_are_shown(capsys: pytest.CaptureFixture[str], draw: Callable[..., Path]) -> None:
    analyze([str(draw("kernel my_all_gather @s7 |==|"))])
    assert "may be communication (1 time): my_all_gather" in capsys.readouterr().out


def test_every_collective_is_in_the_document_with_the_columns_of_its_table(
    capsys: pytest.CaptureFixture[str], recorded: Path
) -> None:
    found = document(capsys, recorded / "fsdp2_tp_2x2_rank0.json.gz")
    assert all(list(row) == list(COLLECTIVES.dtypes) for row in found["collectives"])
    (rank,) = found["ranks"]
    issued = sum(purpose["count"] for step in rank["steps"] for purpose in step["purposes"])
    assert sum(row["step"] != "NaN" for row in found["collectives"]) == issued
    assert sum(row["exposed_ns"] for row in found["collectives"]) == rank["whole"]["exposed_comm_ns"]
    assert found["uncorrelated"] == {
        **dict.fromkeys(
            ["launched_before", "without_id", "launch_missing", "graph_launched", "ambiguous", "without_operator"], 0
        ),
        "collective_without_span": 0,
    }


def test_ranks_are_read_by_as_many_workers_as_asked_for(
    capsys: pytest.CaptureFixture[str], recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def remember(files: list[TraceFile], *, workers: int | None) -> list[Answer]:
        asked.append((len(files), workers))
        return [answer for file in files for answer in analyze_file(file)]

    monkeypatch.setattr(foreign, "analyze_files", remember)
    for rank in range(3):
        shutil.copy(recorded / "ddp_2ranks_rank0.json.gz", tmp_path / f"{rank}.json.gz")
    analyze([str(tmp_path)], workers=2)
    assert asked == [(3, 2)]


def test_a_folder_without_traces_is_refused_and_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"holds neither a run \(run\.json\) nor traces") as caught:
        analyze([str(tmp_path)], results=tmp_path / "results")
    assert str(tmp_path) in str(caught.value)


def test_one_broken_rank_costs_a_note_that_names_it(
    capsys: pytest.CaptureFixture[str], recorded: Path, tmp_path: Path
) -> None:
    shutil.copy(recorded / "ddp_2ranks_rank0.json.gz", tmp_path / "rank0.json.gz")
    (tmp_path / "rank1.json").write_bytes(b"\xff\xfe\x00 no trace")
    notes = document(capsys, tmp_path)["notes"]
    assert [note for note in notes if note.startswith(f"left out: {tmp_path / 'rank1.json'}: ")] == notes[:1]
    assert [note.partition(":")[0] for note in notes[1:]] == ["rank 0 alone of 2"]


def test_a_missing_trace_is_refused_as_a_trace_and_a_missing_run_as_a_run(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be opened"):
        analyze([str(tmp_path / "none.json.gz")])
    with pytest.raises(StoreError):
        analyze(["no-such-run"], results=tmp_path)


def test_of_several_targets_those_that_are_no_traces_are_named(draw: Callable[..., Path], tmp_path: Path) -> None:
    trace, empty = draw("kernel gemm @s7 |==|"), tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(typer.BadParameter, match="none/here: no such file or folder"):
        analyze([str(trace), str(tmp_path / "none" / "here")])
    with pytest.raises(typer.BadParameter, match=r"give one run, or only traces: .*empty is none"):
        analyze([str(trace), str(empty)])


def test_a_users_own_kernels_are_told_by_a_file_of_patterns(
    capsys: pytest.CaptureFixture[str], draw: Callable[..., Path], tmp_path: Path
) -> None:
    trace = draw("kernel my_ring @s7 |==|\nkernel gemm @s8 |=|")
    patterns = tmp_path / "kernels.yaml"
    patterns.write_text("- {pattern: my_ring, kind: comm, operation: all_gather}\n")
    assert document(capsys, trace)["ranks"][0]["whole"]["comm_ns"] == 0
    analyze([str(trace)], as_json=True, patterns=patterns)
    found = json.loads(capsys.readouterr().out)
    assert found["ranks"][0]["whole"]["comm_ns"] == 2000
    assert found["collectives"][0]["operation"] == "all_gather"


def test_the_command_that_bounds_an_advice_stands_ready_for_pasting(
    capsys: pytest.CaptureFixture[str], recorded: Path
) -> None:
    """A replay would read the traces once more, so that nobody waits for it who did not ask."""
    trace = str(recorded / "ddp_2ranks_rank0.json.gz")
    analyze([trace])
    (command,) = (line for line in capsys.readouterr().out.splitlines() if "--change" in line)
    words = shlex.split(command[command.index("dtbench") :])
    assert words == ["dtbench", "whatif", trace, "--change", "hidden: bucket 2, grad_reduce"]
    with pytest.raises(SystemExit) as ended:
        main(words[1:])
    assert not ended.value.code
    assert "bucket 2" in capsys.readouterr().out
    analyze([trace], full=True)
    assert "`dtbench whatif TRACES --change 'hidden: bucket 2, grad_reduce'`" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_folder_whose_traces_lie_deeper_is_a_folder_of_traces(
    capsys: pytest.CaptureFixture[str], draw: Callable[..., Path], tmp_path: Path
) -> None:
    trace = draw("kernel gemm @s7 |==|")
    place = tmp_path / "profile" / "iteration_10" / "rank0_trace.json"
    place.parent.mkdir(parents=True)
    trace.rename(place)
    assert document(capsys, tmp_path / "profile")["ranks"][0]["whole"]["compute_ns"] == 2000
