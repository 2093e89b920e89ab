"""``dtbench check``."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from dtbench.base.errors import PlanError, ScenarioError
from dtbench.cli.main import main
from dtbench.machine.processes import count_cores, name_processor


def run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as caught:
        main(["check", *arguments])
    return caught.value.code


def test_the_plan_of_every_cell_is_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert run("quickstart") == 0
    printed = capsys.readouterr().out
    for words in (
        "How much communication",
        "fsdp2_tp",
        "cpu (gloo)",
        "shard 2 x tensor 2",
        "5.05 M",
        "grad_reduce",
        "all_reduce",
    ):
        assert words in printed


def test_a_scenario_for_eight_gpus_is_checked_without_any(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("eight_gpus", "--json") == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert {(cell["plan"]["device"], cell["plan"]["ranks"]) for cell in cells} == {("cuda", 8)}


def test_what_a_device_sends_follows_the_ring_factors(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("eight_gpus", "--json") == 0
    cells = {cell["name"]: cell for cell in json.loads(capsys.readouterr().out)["cells"]}
    gradients = sum(part["size_bytes"] for part in cells["ddp"]["plan"]["traffic"])
    assert cells["ddp"]["wire_bytes"] == gradients * 2 * 7 // 8
    gathered, scattered = (part["size_bytes"] for part in cells["fsdp2"]["plan"]["traffic"])
    assert cells["fsdp2"]["wire_bytes"] == gathered * 7 // 8 + scattered * 7 // 8


def test_what_a_persons_own_hook_sends_is_not_known(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(
        "# What does my hook cost?\nschema_version: 1\ndevice: cpu\n"
        "model: {kind: mlp, layers: 2, dim: 64, hidden_dim: 64}\n"
        "data: {global_batch: 8, sequence_length: 8}\noptimizer: {kind: sgd, lr: 0.1}\n"
        "parallel: {kind: ddp, replicas: 2, comm_hook: {kind: custom, function: 'hooks:mine'}}\n"
    )
    assert run(str(file), "--json") == 0
    assert {cell["wire_bytes"] for cell in json.loads(capsys.readouterr().out)["cells"]} == {None}
    assert run(str(file)) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Note: a function of your own does what grad_reduce is for: nothing is planned of it, nor" in printed
    assert "unknown" in printed
    assert "0 B" not in printed
    assert "Planned traffic" not in printed


def test_what_not_every_torch_can_do_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("bucket_view") == 0
    printed = capsys.readouterr().out
    assert printed.count("Note: parallel.batched_grad_copy needs torch 2.12 or newer") == 1
    assert run("bucket_view", "--json") == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [cell["needs_torch"] for cell in cells] == [
        {"parallel.batched_grad_copy": "2.12"} if cell["scenario"]["parallel"]["batched_grad_copy"] else {}
        for cell in cells
    ]
    assert {bool(cell["needs_torch"]) for cell in cells} == {True, False}


@pytest.mark.parametrize("name", ["one_gpu", "eight_gpus", "sixteen_gpus"])
def test_a_gpu_preset_is_planned_within_eighty_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(name) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert all(word in "\n".join(rows) for word in ("ranks", "mesh", "parameters", "wire/device"))
    table = rows[: next(place for place, line in enumerate(rows) if line.startswith(("size:", "Nothing")))]
    assert max(map(len, table)) <= 80
    words = {word for line in table for word in line.split()}
    assert name == "one_gpu" or {"reduce_scatter", "grad_reduce", "replicate"} <= words


def test_json_has_scenario_and_plan_of_each_cell_and_the_overrides(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("quickstart", "--set", "model.layers=2", "--set", "cells.ddp.seed=5", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["name"] == "quickstart"
    assert document["overrides"] == ["model.layers=2", "cells.ddp.seed=5"]
    assert [cell["scenario"]["model"]["layers"] for cell in document["cells"]] == [2, 2]
    assert [cell["scenario"]["seed"] for cell in document["cells"]] == [5, 0]
    assert document["cells"][0]["plan"]["traffic"]


def test_a_single_rank_says_that_nothing_crosses_a_wire(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("one_gpu") == 0
    assert "Nothing has to cross a wire" in capsys.readouterr().out


def test_mistakes_go_to_standard_error_and_nothing_else_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("quickstart", "--set", "model.layer=2", "--json") == ScenarioError.exit_code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert (
        printed.err == "--set model.layer=2: `layer` is not a field of `model` of kind `transformer`; "
        "did you mean `model.layers`?\n"
    )


def test_a_plan_that_cannot_be_names_every_cell_it_concerns(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("quickstart", "--set", "data.global_batch=3") == PlanError.exit_code
    printed = capsys.readouterr().err
    assert "quickstart, cell `ddp`: " in printed
    assert "quickstart, cell `fsdp2_tp`: " in printed


def test_an_interpreter_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    absent = tmp_path / "bin" / "python"
    assert run("quickstart", "--set", f"python={absent}") == PlanError.exit_code
    assert f"python: {absent} is no program here; is the path right?" in capsys.readouterr().err
    assert run("quickstart", "--set", f"python={sys.executable}") == 0


def test_how_long_a_run_takes_is_told_by_one_that_is_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("quickstart", "--results", str(tmp_path)) == 0
    assert "How long a run takes is not known" in capsys.readouterr().out
    example = Path(__file__).parents[2] / "results" / "example"
    copy = tmp_path / "quickstart" / "20260101T000000-aaaa"
    shutil.copytree(example, copy)
    environment = json.loads((copy / "env.json").read_text())
    (copy / "env.json").write_text(json.dumps({**environment, "processor": "another"}))
    assert run("quickstart", "--results", str(tmp_path)) == 0
    assert "How long a run takes is not known" in capsys.readouterr().out  # of this machine
    here = {"processor": name_processor(), "cores": count_cores()}
    (copy / "env.json").write_text(json.dumps({**environment, **here}))
    assert run("quickstart", "--results", str(tmp_path)) == 0
    run_id = json.loads((example / "run.json").read_text())["run_id"]
    assert f"A run takes about 60 s, by run {run_id}" in capsys.readouterr().out
    assert run("quickstart", "--results", str(tmp_path), "--set", "repeat=4") == 0
    assert "A run takes about 4 min" in capsys.readouterr().out
    assert run("quickstart", "--results", str(tmp_path), "--set", "model.layers=2") == 0
    assert "How long a run takes is not known" in capsys.readouterr().out
    assert run("quickstart", "--results", str(tmp_path), "--cell", "ddp") == 0
    assert f"at most, as that had 1 more cell, by run {run_id}" in capsys.readouterr().out
    record = json.loads((copy / "run.json").read_text())
    alone = {"cells": record["cells"][:1], "only": ["ddp"], "checklist": {}}
    (copy / "run.json").write_text(json.dumps({**record, **alone}))
    assert run("quickstart", "--results", str(tmp_path)) == 0
    assert f"for `ddp`, by run {run_id}, and nothing is known of `fsdp2_tp`" in capsys.readouterr().out
