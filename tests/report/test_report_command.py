"""``dtbench report`` on finished summaries; which run is meant is tested with the command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from dtbench.cli.report import print_report, report
from dtbench.runs.summary import RunSummary

RUN = "20260101T120000Z-ab12"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "small" / RUN).mkdir(parents=True)
    (tmp_path / "small" / RUN / "run.json").touch()
    return tmp_path


def test_json_is_the_whole_summary_and_a_number_that_is_unknown_stays_so(
    make_run: Callable[..., RunSummary],
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("dtbench.runs.run.summarize_run", lambda folder: make_run(path=str(folder)))
    report("small", results, as_json=True)
    printed = capsys.readouterr().out
    assert json.loads(printed)["cells"][0]["model_flops_utilization"] == "NaN"
    again = RunSummary.model_validate_json(printed)
    assert again.path == str(results / "small" / RUN)
    assert again.cells[1].purposes == make_run().cells[1].purposes


def test_the_report_of_the_latest_run_is_the_default(
    make_run: Callable[..., RunSummary],
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("dtbench.runs.run.summarize_run", lambda folder: make_run(path=str(folder)))
    report(None, results, as_json=False)
    printed = capsys.readouterr().out
    assert "Where a profiled step went, mean over ranks" in printed
    assert f"\n  dtbench report {results / 'small' / RUN}\n" in printed
    report(None, results, as_json=False, full=True)
    assert "gradient wait  12.3 ms per step" in capsys.readouterr().out


def test_the_command_that_shows_a_run_is_left_out_where_it_was_just_given(
    make_run: Callable[..., RunSummary],
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("dtbench.runs.run.summarize_run", lambda folder: make_run(path=str(folder)))
    for named, is_told in ((None, True), ("small", True), (RUN, False), (str(results / "small" / RUN), False)):
        report(named, results, as_json=False)
        assert ("  dtbench report " in capsys.readouterr().out) is is_told


def test_paths_and_commands_are_never_broken_however_narrow_the_terminal(
    make_run: Callable[..., RunSummary], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_report(make_run())
    assert "\n  dtbench report results/small/20260101T120000Z-ab12\n" in capsys.readouterr().out


def test_a_report_in_a_pipe_is_as_wide_as_a_log(
    make_run: Callable[..., RunSummary], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_report(make_run(), full=True)
    assert max(len(line) for line in capsys.readouterr().out.splitlines()) == 160
    monkeypatch.setenv("COLUMNS", "80")
    print_report(make_run(), full=True)
    drawn = capsys.readouterr().out.partition("Look further")[0]  # below are paths, which are not folded
    assert max(len(line) for line in drawn.splitlines()) == 80


def test_one_cell_can_be_asked_for(
    make_run: Callable[..., RunSummary],
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("dtbench.runs.run.summarize_run", lambda folder: make_run(path=str(folder)))
    report("small", results, as_json=True, cell="fsdp2_tp")
    assert [cell["name"] for cell in json.loads(capsys.readouterr().out)["cells"]] == ["fsdp2_tp"]
    report("small", results, as_json=False, cell="ddp")
    printed = capsys.readouterr().out
    assert "All cells" not in printed
    assert "gradient wait  12.3 ms per step" in printed
    with pytest.raises(typer.BadParameter, match=r"the run has no cell `fsdp2_pt`; did you mean `fsdp2_tp`?"):
        report("small", results, as_json=False, cell="fsdp2_pt")
    with pytest.raises(typer.BadParameter, match="it has `ddp` and `fsdp2_tp`"):
        report("small", results, as_json=False, cell="zzz")
