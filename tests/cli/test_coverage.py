"""``dtbench coverage``."""

import html
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dtbench.cli.main import main
from dtbench.plan.plan import Machine, make_plan
from dtbench.report.page.coverage_page import sum_up
from dtbench.runs.function_coverage import Evidence, State, cover
from dtbench.scenario.schema.scenario import Scenario
from dtbench.seeds.functions import FUNCTIONS, Reach
from dtbench.store.layout import RunFolder
from dtbench.store.records.probes import LineRecord, TracedFunction
from dtbench.store.records.run import CellRecord, LaunchRecord, RunRecord, RunStatus
from dtbench.store.write import write_record

TORCH = "2.13.0"


def make_run(results: Path, scenario: Scenario, ran: set[str], *, name: str = "small") -> RunFolder:
    """Make a run of one traced launch in which some functions ran one line."""
    plan = make_plan(scenario, Machine(cpu_cores=2, cuda_devices=0))
    run = RunRecord(
        dtbench_version="0",
        name=name,
        run_id="20260101T000000-abcd",
        question="Why?",
        overrides=(),
        status=RunStatus.COMPLETE,
        reason=None,
        started_unix_ns=0,
        ended_unix_ns=1,
        cells=(CellRecord(name="cell", scenario=scenario, plan=plan, launches=(0,)),),
    )
    folder = RunFolder(results / name / run.run_id)
    write_record(folder.run, run)
    launch = folder.launch("cell", 0)
    functions = tuple(
        TracedFunction(
            file=one.file,
            name=one.name,
            calls=3 if one.name in ran else 0,
            lines=(5,) if one.name in ran else (),
            executable_lines=3,
        )
        for one in FUNCTIONS
        if one.is_in(TORCH)
    )
    if scenario.measure.line_coverage:
        record = LineRecord(rank=0, python="3", torch=TORCH, tracer="sys.settrace", functions=functions)
        write_record(launch.lines(0), record)
    complete = LaunchRecord(
        cell="cell",
        index=0,
        status=RunStatus.COMPLETE,
        started_unix_ns=0,
        duration_ns=1,
        reason=None,
        failures=(),
    )
    write_record(launch.launch, complete)
    return folder


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["coverage", *arguments])
    printed = capsys.readouterr()
    code = caught.value.code
    assert isinstance(code, int)
    return code, printed.out, printed.err


@pytest.fixture
def results(tmp_path: Path, scenario: Callable[..., Scenario]) -> Path:
    make_run(tmp_path, scenario(measure={"line_coverage": True}), {"sync_grad_hook"})
    make_run(tmp_path, scenario(), set(), name="unwatched")
    return tmp_path


def test_json_has_every_function_with_what_a_program_needs(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "--results", str(results), "--json")
    document = json.loads(out)
    assert (code, document["format_version"], len(document["functions"])) == (0, 1, len(FUNCTIONS))
    hook = next(one for one in document["functions"] if one["name"] == "sync_grad_hook")
    wanted: dict[str, Any] = {
        "file": "torch/distributed/tensor/parallel/_data_parallel_utils.py",
        "class": "driven",
        "reached": True,
        "scenario": "small",
        "calls": 3,
        "total_ns": None,
        "confirmed_by_lines": True,
    }
    assert {name: hook[name] for name in wanted} == wanted
    assert sum(one["reached"] for one in document["functions"]) == 1


def test_what_the_installed_torch_lacks_does_not_count() -> None:
    rows = cover([Evidence("ddp", finished=True)]).functions
    first, *others = (row for row in rows if row.reach is Reach.DRIVEN)
    words = sum_up([replace(first, state=State.ABSENT), *others])
    assert f"Reached: 0 of {len(others)} functions" in words
    assert "these do not count. 1 of the list is not in this torch." in words
    assert f"Of {len(others)} it is not known: " in words


def test_a_run_that_nobody_named_and_that_cannot_be_read_is_left_out_and_said(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torn = RunFolder(results / "other" / "20260102T000000-beef")
    torn.path.mkdir(parents=True)
    torn.run.write_text("{")
    code, out, _ = call(capsys, "--results", str(results))
    assert code == 0
    assert "Note: a run is left out: " in out
    assert "run.json: broken" in " ".join(out.split())
    lost, note = json.loads(call(capsys, "--results", str(results), "--json")[1])["notes"]
    assert "20260102T000000-beef" in note
    assert lost == "in small rank 1 left no traced lines: calls, and what was not reached, are of the other ranks"


def test_the_table_has_a_row_for_each_function_and_sums_up_by_class(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(capsys, "small", "--results", str(results))
    assert code == 0
    here = [one for one in FUNCTIONS if one.is_in(TORCH)]
    assert f"Reached: 1 of {sum(one.reach is Reach.DRIVEN for one in here)} functions" in out
    assert f"{len(FUNCTIONS) - len(here)} of the list are not in this torch." in " ".join(out.split())
    assert "not in this torch (torch has it since 2.15, and this is 2.13.0)" in " ".join(out.split())
    assert "not reached (nothing in torch 2.13 calls it): _rewrite_spec_if_needed" in out
    for file in {one.file for one in FUNCTIONS}:
        assert file in out


def test_the_page_in_a_file_has_every_function_and_what_the_command_prints_first(
    results: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    code, out, _ = call(capsys, "small", "--results", str(results), "--html", str(page))
    assert (code, out.startswith("Reached: 1 of ")) == (0, True)
    words = page.read_text()
    assert "Reached: 1 of " in words
    assert all(html.escape(one.name) in words for one in FUNCTIONS)
    assert call(capsys, "small", "--results", str(results), "--html", str(tmp_path))[0] == 2


def test_a_run_that_was_not_watched_is_refused_with_what_to_do(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = call(capsys, "unwatched", "--results", str(results))
    assert (code, out) == (6, "")
    assert "has neither probes nor traced lines" in err
    assert "--set measure.probes=true" in err


def test_a_folder_without_watched_runs_says_how_to_make_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "--results", str(tmp_path))
    assert code == 6
    assert "`dtbench coverage --run <scenario>`" in err


def test_run_without_a_scenario_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "--run")
    assert code == 2
    assert "--run needs scenarios" in err


def test_an_override_without_run_is_refused(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "--set", "model.layers=2", "--results", str(results))
    assert code == 2
    assert "--set changes what --run runs" in err


def test_lines_and_probes_that_disagree_end_with_the_code_of_numbers_not_to_be_trusted(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dtbench.runs import function_coverage

    whole = function_coverage.cover

    def contradict(evidence: Any) -> Any:
        found = whole(evidence)
        wrong = replace(found.functions[0], remarks=("they differ",), disagreements=1)
        return replace(found, functions=(wrong, *found.functions[1:]))

    monkeypatch.setattr(function_coverage, "cover", contradict)
    code, out, err = call(capsys, "--results", str(results))
    assert code == 8
    assert "sync_grad_hook: they differ" in err
    assert "Reached:" in out


@pytest.mark.ranks
def test_run_watches_a_scenario_in_both_ways_and_confirms_one_with_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="ranks need it")
    file = tmp_path / "tiny.yaml"
    file.write_text(
        "# What does DDP run?\n"
        "schema_version: 1\n"
        "device: cpu\n"
        "model: {kind: mlp, layers: 2, dim: 16, hidden_dim: 32}\n"
        "data: {global_batch: 4, sequence_length: 8}\n"
        "parallel: {kind: ddp, replicas: 2}\n"
        "correctness: {enabled: false}\n"
        "measure: {warmup: {max_steps: 8}, measured_steps: 4, profiled_steps: 1}\n",
        encoding="utf-8",
    )
    code, out, err = call(
        capsys, "--run", str(file), "--set", "model.layers=1", "--results", str(tmp_path / "r"), "--json"
    )
    assert code == 0, err
    document = json.loads(out)
    assert len(document["runs"]) == 2
    rows = {one["name"]: one for one in document["functions"]}
    forward = rows["DistributedDataParallel.forward"]
    assert (forward["reached"], forward["confirmed_by_lines"], forward["scenario"]) == (True, True, "tiny")
    assert forward["calls"] == 2 * (8 + 4 + 1 + 1), "two ranks, the step that pays for the profiler too"
    assert forward["total_ns"] > forward["profiled_ns"] > forward["exposed_ns"] >= 0
    assert forward["profiled_calls"] == 2
    assert not rows["sync_grad_hook"]["reached"]
    assert 0 < document["cost_per_call_ns"] < 1_000_000
