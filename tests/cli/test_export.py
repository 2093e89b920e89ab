"""``dtbench export``: what is meant, what is refused, what is printed."""

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.errors import StoreError, TraceError
from dtbench.cli.main import main
from dtbench.plan.plan import Machine, make_plan
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.layout import RunFolder
from dtbench.store.records.run import CellRecord, RunRecord, RunStatus
from dtbench.store.write import write_record

TRACE = Path(__file__).parents[1] / "traces" / "recorded" / "ddp_2ranks_rank0.json.gz"


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["export", *map(str, arguments)])
    return int(caught.value.code or 0)


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the refusal without the box around it."""
    return " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.fixture
def make_run(tmp_path: Path, scenario: Callable[..., Scenario]) -> Callable[..., Path]:
    """Make a run whose launches, by cell, have a trace of rank 0 each."""

    def make(traced: dict[str, tuple[int, ...]], launches: tuple[int, ...] = (0, 1)) -> Path:
        path = tmp_path / "results" / "small" / "20260101T000000-aaaa"
        plan = make_plan(scenario(), Machine(cpu_cores=2, cuda_devices=0))
        record = RunRecord(
            dtbench_version="0",
            name="small",
            run_id=path.name,
            question="Why?",
            overrides=(),
            status=RunStatus.COMPLETE,
            reason=None,
            started_unix_ns=0,
            ended_unix_ns=None,
            cells=tuple(
                CellRecord(name=name, scenario=scenario(), plan=plan, launches=launches) for name in ("ddp", "fsdp2")
            ),
        )
        write_record(RunFolder(path).run, record)
        for cell, indices in traced.items():
            for index in indices:
                folder = RunFolder(path).launch(cell, index)
                folder.traces.mkdir(parents=True)
                shutil.copy(TRACE, folder.trace(0, 1))
        return path

    return make


def test_a_trace_becomes_an_archive_that_says_where_to_open_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(TRACE, "--perfetto", tmp_path / "out.tar") == 0
    printed = capsys.readouterr().out
    assert "https://ui.perfetto.dev" in printed
    assert "0_rank0.json" in printed
    assert tarfile.is_tarfile(tmp_path / "out.tar")


def test_json_says_how_far_each_rank_is_moved(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(TRACE, "--perfetto", tmp_path / "out.tar", "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["format_version"] == 1
    assert found["size_bytes"] == (tmp_path / "out.tar").stat().st_size
    assert found["ranks"] == [
        {
            "rank": 0,
            "trace": str(TRACE),
            "member": "0_rank0.json",
            "offset_ns": 0,
            "clock_offset_ns": 0,
            "clock_uncertainty_ns": None,
            "clock_drift": 0.0,
        }
    ]


def test_ranks_that_have_no_trace_are_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run(TRACE, "--perfetto", tmp_path / "out.tar")
    assert "1 of the 2 ranks is there" in " ".join(capsys.readouterr().out.split())


def test_without_a_format_it_says_which_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(TRACE) == 2
    assert "--perfetto OUT.tar" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("out.tar.gz", "a tar file without compression"), ("out", "call it out.tar"), ("", "is a folder")],
)
def test_another_kind_of_file_is_refused(
    name: str, sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(TRACE, "--perfetto", tmp_path / name) == 2
    assert sentence in said(capsys)


def test_what_is_there_is_only_replaced_by_force(tmp_path: Path) -> None:
    out = tmp_path / "out.tar"
    out.write_text("mine")
    assert run(TRACE, "--perfetto", out) == 2
    assert out.read_text() == "mine"
    assert run(TRACE, "--perfetto", out, "--force") == 0
    assert tarfile.is_tarfile(out)


def test_an_archive_is_not_replaced_by_itself(tmp_path: Path) -> None:
    out = tmp_path / "out.tar"
    run(TRACE, "--perfetto", out)
    before = out.read_bytes()
    assert run(out, "--perfetto", out, "--force") == 2
    assert out.read_bytes() == before
    assert run(out, "--perfetto", tmp_path / "again.tar") == 0
    assert (tmp_path / "again.tar").read_bytes() == before


def test_the_only_launch_with_traces_is_meant(make_run: Callable[..., Path], tmp_path: Path) -> None:
    assert run(make_run({"fsdp2": (1,)}), "--perfetto", tmp_path / "out.tar") == 0


def test_ranks_of_the_launch_that_left_no_trace_are_said_to_be_out(
    make_run: Callable[..., Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run_folder = make_run({"ddp": (0,)})
    shutil.copy(TRACE, RunFolder(run_folder).launch("ddp", 0).trace(1, 1))
    trace = RunFolder(run_folder).launch("ddp", 0).trace(1, 1)
    trace.write_bytes(trace.read_bytes()[:-500])
    run(run_folder, "--perfetto", tmp_path / "out.tar")
    assert "rank 1 is left out: its trace is cut short" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "several cells, `ddp` and `fsdp2`; name one: --cell ddp"),
        (("--cell", "ddp"), "several launches, `0` and `1`; name one: --launch 0"),
        (("--cell", "dpp"), "did you mean `ddp`?"),
        (("--cell", "ddp", "--launch", "7"), "no launch `7` with traces"),
        (("--cell", "ddp", "--launch", "1"), None),
        (("--cell", "fsdp2"), None),
    ],
)
def test_of_several_launches_one_must_be_named(
    options: tuple[str, ...],
    sentence: str | None,
    make_run: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    made = make_run({"ddp": (0, 1), "fsdp2": (0,)})
    code = run(made, "--perfetto", tmp_path / "out.tar", *options)
    refusal = said(capsys)
    assert (code, (tmp_path / "out.tar").exists()) == ((0, True) if sentence is None else (2, False))
    assert (sentence or "") in refusal


def test_a_run_is_found_by_its_scenarios_name(make_run: Callable[..., Path], tmp_path: Path) -> None:
    make_run({"ddp": (0,)})
    assert run("small", "--results", tmp_path / "results", "--perfetto", tmp_path / "out.tar") == 0
    assert run("--results", tmp_path / "results", "--perfetto", tmp_path / "latest.tar") == 0
    assert run("smoll", "--results", tmp_path / "results", "--perfetto", tmp_path / "no.tar") == StoreError.exit_code


def test_a_run_without_traces_is_refused(make_run: Callable[..., Path], tmp_path: Path) -> None:
    assert run(make_run({}), "--perfetto", tmp_path / "out.tar") == TraceError.exit_code


def test_cells_are_refused_for_traces(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(TRACE, "--cell", "ddp", "--perfetto", tmp_path / "out.tar") == 2
    assert "traces were given" in capsys.readouterr().err


def test_two_runs_are_refused(make_run: Callable[..., Path], tmp_path: Path) -> None:
    made = make_run({"ddp": (0,)})
    assert run(made, made, "--perfetto", tmp_path / "out.tar") == 2


def test_no_room_is_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert run(TRACE, "--perfetto", tmp_path / "file" / "out.tar") == StoreError.exit_code
    assert "cannot be written" in capsys.readouterr().err
