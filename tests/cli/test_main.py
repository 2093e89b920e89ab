"""What every command shares: help, version, and how errors become sentences and exit codes."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from dtbench import __version__
from dtbench.base.errors import LaunchError
from dtbench.cli.main import VERBS, main, make_app, run_app


def fails() -> None:
    """Refuse."""
    raise LaunchError("Rank 3 [died] in step 17.")


def breaks() -> None:
    """Fall over."""
    raise KeyError("layers")


def stops() -> None:
    """Be interrupted."""
    raise KeyboardInterrupt


def works() -> None:
    """Do nothing."""


def exit_code(*arguments: str) -> int | str | None:
    app = make_app([("fails", fails), ("breaks", breaks), ("stops", stops), ("works", works)])
    with pytest.raises(SystemExit) as caught:
        run_app(app, arguments)
    return caught.value.code


def test_a_command_that_works_exits_with_zero() -> None:
    assert exit_code("works") == 0


def test_a_refusal_is_its_sentence_and_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("fails") == LaunchError.exit_code
    printed = capsys.readouterr()
    assert printed.err == "Rank 3 [died] in step 17.\n"
    assert printed.out == ""


def test_a_bug_is_one_sentence_that_says_how_to_see_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("breaks") == 1
    assert capsys.readouterr().err == (
        "This is a bug in dtbench (KeyError: 'layers'); run again with `dtbench --debug ...` for the traceback.\n"
    )


@pytest.mark.parametrize(("verb", "raised"), [("fails", "LaunchError: Rank 3"), ("breaks", "KeyError: 'layers'")])
def test_debug_shows_the_traceback(verb: str, raised: str, capsys: pytest.CaptureFixture[str]) -> None:
    exit_code("--debug", verb)
    printed = capsys.readouterr().err
    assert "Traceback (most recent call last)" in printed
    assert raised in printed


def test_control_c_is_said_and_exits_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("stops") == 130
    assert capsys.readouterr().err == "stopped\n"


def test_an_unknown_verb_exits_with_two_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("work") == 2
    assert "'work'" in capsys.readouterr().err


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_help_lists_the_verbs_with_their_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = capsys.readouterr().out
    assert "check" in printed
    assert "List the scenarios" in printed


def test_each_verb_has_its_row_in_the_table_of_commands() -> None:
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `dtbench ([a-z]+)", page, re.MULTILINE)
    assert set(rows) == {name for name, _ in VERBS} | {"baseline"}


def test_numpy_gets_one_thread_unless_the_person_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    for expected in ("1", "3"):
        with pytest.raises(SystemExit):
            main(["--version"])
        assert os.environ["OPENBLAS_NUM_THREADS"] == expected
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")


def test_a_pipe_that_is_closed_early_is_no_bug() -> None:
    command = f"{sys.executable} -m dtbench check quickstart --json | head -c 1"
    finished = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert finished.stdout == "{"
    assert "bug" not in finished.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full")
def test_a_full_disk_is_no_bug() -> None:
    command = [sys.executable, "-m", "dtbench", "list"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert b"the output: cannot be written (No space left on device)" in done.stderr
    assert b"bug" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def run_into_closed(*arguments: object, closed: str) -> tuple[int, str]:
    """Run a command of which nobody reads an output; gives its exit code, and what it said on the other one."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **dict.fromkeys(closed.split(), write_end)}
        command = [sys.executable, "-P", "-m", "dtbench", *map(str, arguments)]
        done = subprocess.run(command, **streams, text=True, check=False)  # type: ignore[call-overload]
    finally:
        os.close(write_end)
    return done.returncode, (done.stdout or "") + (done.stderr or "")


TESTS = Path(__file__).parents[1]
TRACE = TESTS / "traces" / "recorded" / "ddp_2ranks_rank0.json.gz"
RUN = TESTS.parent / "results" / "example"


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
@pytest.mark.quick("list", "--help", "analyze --json")
@pytest.mark.parametrize(
    "arguments",
    [("list",), ("schema",), ("--help",), ("analyze", TRACE), ("analyze", TRACE, "--json"), ("report", RUN)],
    ids=["list", "schema", "--help", "analyze", "analyze --json", "report"],
)
def test_a_reader_that_is_gone_ends_a_command_as_sigpipe_would(arguments: tuple[object, ...]) -> None:
    assert run_into_closed(*arguments, closed="stdout") == (141, "")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
def test_an_error_that_nobody_reads_keeps_its_code() -> None:
    assert run_into_closed("report", "nosuch", closed="stderr") == (6, "")
    assert run_into_closed("report", "nosuch", closed="stdout stderr") == (6, "")


@pytest.mark.ranks
@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
def test_a_run_goes_on_to_its_end_though_nobody_reads_what_it_says(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch runs the ranks; install the extra `run`")
    from tests.faults.signals import write_scenario

    wanted = write_scenario(tmp_path)
    code, _ = run_into_closed("run", wanted, "--set", "repeat=1", "--results", tmp_path, closed="stdout stderr")
    assert code in (0, 8, 141)
    (run,) = tmp_path.glob("*/*/run.json")
    assert json.loads(run.read_text())["status"] == "complete"
    assert list(run.parent.glob("cells/*/launch0/overlap.parquet"))


def test_a_run_that_failed_names_the_command_that_runs_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(request: object) -> Path:
        raise LaunchError("cell ddp: rank 1 killed by SIGKILL", folder=tmp_path)

    monkeypatch.setattr(import_module("dtbench.cli.run"), "train", fail)
    with pytest.raises(SystemExit) as ended:
        main(["run", "quickstart", "--set", "model.layers=2"])
    assert ended.value.code == LaunchError.exit_code
    rest = "`dtbench run quickstart --set model.layers=2 --resume` runs the rest"
    assert f"cell ddp: rank 1 killed by SIGKILL; {rest}" in " ".join(capsys.readouterr().err.split())
