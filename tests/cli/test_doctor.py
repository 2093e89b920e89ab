"""``dtbench doctor``, with machines that are not this one."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from dtbench.cli import machine_checks as room
from dtbench.cli.doctor import doctor
from dtbench.cli.machine_checks import Finding, check_disk, check_interface, check_software, judge_scenario
from dtbench.cli.torch_probe import CudaDevice, NoTorch, Torch, probe_torch
from dtbench.plan.plan import Machine
from dtbench.scenario.catalog import ListedScenario, list_scenarios

CPU_TORCH = Torch(version="2.13.0+cpu", cuda=None, nccl=None, has_gloo=True, devices=())
TWO_CORES = Machine(cpu_cores=2, cuda_devices=0)


def torch_with_gpus(count: int) -> Torch:
    device = CudaDevice(name="NVIDIA H100", memory_bytes=80 << 30)
    return Torch(version="2.11.0+cu128", cuda="12.8", nccl="2.27.3", has_gloo=True, devices=(device,) * count)


def listed(name: str) -> ListedScenario:
    return next(scenario for scenario in list_scenarios() if scenario.entry.name == name)


def found(findings: list[Finding], what: str) -> Finding:
    return next(finding for finding in findings if finding.what == what)


def test_a_machine_without_gpus_can_run_the_quickstart_over_gloo() -> None:
    ability = judge_scenario(listed("quickstart"), CPU_TORCH, TWO_CORES)
    assert ability.can_run
    assert "ranks on gloo" in ability.words


def test_a_scenario_for_eight_gpus_names_what_it_needs_and_what_there_is() -> None:
    ability = judge_scenario(listed("eight_gpus"), CPU_TORCH, TWO_CORES)
    assert not ability.can_run
    assert "8 CUDA devices" in ability.words
    assert "no CUDA device" in ability.words


def test_the_same_scenario_runs_where_there_are_eight() -> None:
    ability = judge_scenario(listed("eight_gpus"), torch_with_gpus(8), Machine(cpu_cores=64, cuda_devices=8))
    assert ability.can_run
    assert "8 ranks on nccl" in ability.words


def test_a_torch_that_lacks_a_knob_cannot_run_what_asks_for_it() -> None:
    older = TWO_CORES.model_copy(update={"torch": "2.11.0+cpu"})
    ability = judge_scenario(listed("bucket_view"), CPU_TORCH, older)
    assert not ability.can_run
    assert ability.words.startswith("parallel.batched_grad_copy needs torch 2.12 or newer, and this is 2.11.0+cpu")


def test_cells_that_are_too_many_blocks_together_are_not_planned_for_a_list(tmp_path: Path) -> None:
    text = listed("bucket_sweep").entry.path.read_text(encoding="utf-8").partition("\nmatrix:")[0]
    path = tmp_path / "many.yaml"
    caps = ", ".join(str(cap) for cap in range(1, 201))
    path.write_text(
        f"{text.replace('layers: 4', 'layers: 1000')}\nmatrix: {{parallel.bucket_cap_mb: [{caps}]}}\n", encoding="utf-8"
    )
    shipped = listed("bucket_sweep")
    many = replace(shipped, entry=replace(shipped.entry, name="many", path=path))
    ability = judge_scenario(many, CPU_TORCH, TWO_CORES)
    assert not ability.can_run
    assert "200 cells have 200,000 blocks together" in ability.words


def test_without_torch_nothing_can_run_and_the_reason_is_torch() -> None:
    assert judge_scenario(listed("ddp"), NoTorch("not installed"), TWO_CORES).words == "torch: not installed"


def test_a_torch_without_gloo_cannot_run_on_cpu() -> None:
    torch = Torch(version="2.13.0", cuda=None, nccl=None, has_gloo=False, devices=())
    assert judge_scenario(listed("ddp"), torch, TWO_CORES).words == "this torch has no gloo"


def test_a_broken_scenario_points_to_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "mine.yaml").write_text("# Is mine broken?\nfoo: 1\n")
    ability = judge_scenario(listed("mine"), CPU_TORCH, TWO_CORES)
    assert not ability.can_run
    assert "`dtbench check mine`" in ability.words


@pytest.mark.parametrize(
    ("version", "is_tested"),
    [
        ("2.10.1", False),
        ("2.11.0+cu128", True),
        ("2.13.0a0+git12", True),
        ("2.15.0+cu132", True),
        ("2.16.0", False),
        ("3.0.0", False),
    ],
)
def test_the_tested_range_of_torch_is_half_open(version: str, is_tested: bool) -> None:
    torch = Torch(version=version, cuda=None, nccl=None, has_gloo=True, devices=())
    assert torch.is_tested is is_tested
    assert (found(check_software(torch), "torch").advice is None) is is_tested


def test_missing_torch_comes_with_the_way_to_get_it() -> None:
    assert "pip install '.[run]'" in str(found(check_software(NoTorch("not installed")), "torch").advice)


def test_each_gpu_is_named_with_its_memory() -> None:
    assert found(check_software(torch_with_gpus(2)), "GPU 1").found == "NVIDIA H100, 80.0 GiB"


def test_a_cuda_build_that_sees_no_device_is_told_apart_from_a_cpu_build() -> None:
    assert "nvidia-smi" in found(check_software(torch_with_gpus(0)), "GPUs").found
    assert "built for CPU" in found(check_software(CPU_TORCH), "GPUs").found
    told = [found(check_software(torch), "NCCL").found for torch in (torch_with_gpus(1), torch_with_gpus(0), CPU_TORCH)]
    assert told == ["2.27.3", "2.27.3, of no use without a GPU", "none"]


def test_disk_is_looked_at_where_the_results_will_be_even_before_the_folder_exists(tmp_path: Path) -> None:
    assert "free for" in check_disk(tmp_path / "not" / "yet").found


def test_a_full_disk_comes_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1024})())
    assert "--results" in str(check_disk(tmp_path).advice)


def test_loopback_is_gloos_interface_unless_the_variable_says_otherwise() -> None:
    assert check_interface(None, ["eth0", "lo"]) == Finding("gloo's interface", "lo")
    assert check_interface("eth0", ["eth0", "lo"]).advice is None
    assert "eth0" in str(check_interface(None, ["eth0"]).advice)


def test_an_interface_that_does_not_exist_is_refused_with_those_that_do() -> None:
    assert "no such interface (eth0, lo)" in str(check_interface("ib0", ["eth0", "lo"]).advice)


def test_torch_is_asked_in_a_process_of_its_own() -> None:
    answer = '{"version": "2.12.1", "cuda": null, "nccl": null, "has_gloo": true, "devices": []}'
    assert probe_torch(f"print('noise'); print('{answer}'); print('bye')") == Torch("2.12.1", None, None, True, ())


def test_missing_broken_and_slow_torches_are_told_apart() -> None:
    missing = "raise ModuleNotFoundError(\"No module named 'torch'\")"
    assert probe_torch(missing) == NoTorch("not installed")
    assert probe_torch("raise ImportError('libcudart.so.13: cannot open')") == NoTorch(
        "broken: ImportError: libcudart.so.13: cannot open"
    )
    assert probe_torch("import os; os._exit(3)") == NoTorch("broken: importing it ended with code 3")
    assert probe_torch("import time; time.sleep(60)", timeout_s=0.2) == NoTorch("importing it took longer than 0.2 s")


def test_doctor_says_what_can_run_and_what_cannot(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("dtbench.cli.torch_probe.probe_torch", lambda: CPU_TORCH)
    doctor(results=tmp_path, as_json=False)
    printed = capsys.readouterr().out
    assert re.match(r"\d+ of \d+ scenarios can run here\n", printed)
    assert "can run: quickstart (" in printed
    assert "cannot run: eight_gpus: " in printed
    assert "2.13.0+cpu" in printed


def test_a_report_of_a_bug_has_the_same_words_as_markdown_and_as_a_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("dtbench.cli.torch_probe.probe_torch", lambda: NoTorch("not installed"))
    page = tmp_path / "doctor.html"
    doctor(results=tmp_path, as_markdown=True, html=page)
    printed = capsys.readouterr().out
    rows = printed.splitlines()
    assert re.fullmatch(r"\*\*0 of \d+ scenarios can run here\*\*", rows[0])
    assert "| torch | not installed |" in rows
    assert any(row.startswith("torch: install it as your cluster says") for row in rows)
    assert r"- cannot run: eight\_gpus: torch: not installed" in rows
    assert all(words in page.read_text() for words in ("eight_gpus: torch: not installed", "install it as your"))


def test_json_and_markdown_are_not_printed_together() -> None:
    with pytest.raises(typer.BadParameter, match="not both"):
        doctor(as_json=True, as_markdown=True)


def test_json_is_one_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("dtbench.cli.torch_probe.probe_torch", lambda: torch_with_gpus(1))
    monkeypatch.setattr(room, "count_cores", lambda: 7)
    doctor(results=tmp_path, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["machine"].pop("memory_bytes") > 0
    assert document["machine"] == {"cpu_cores": 7, "cuda_devices": 1, "torch": "2.11.0+cu128", "nodes": None}
    assert document["torch"]["devices"] == [{"name": "NVIDIA H100", "memory_bytes": 80 << 30}]
    by_name = {scenario["scenario"]: scenario["can_run"] for scenario in document["scenarios"]}
    assert by_name["one_gpu"]
    assert not by_name["eight_gpus"]
