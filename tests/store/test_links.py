"""A run folder from somebody else: nothing in it leads out of it, and its lock destroys nothing."""

import contextlib
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import dtbench
from dtbench.base.errors import StoreError
from dtbench.cli.main import main as dtbench_command
from dtbench.report.tb_plugin.load import Loader
from dtbench.report.tb_plugin.progress import make_progress
from dtbench.report.tb_plugin.refusal import Refusal
from dtbench.report.tb_plugin.run_list import RunList
from dtbench.report.tb_plugin.runs import FoundRun, LogDirectory
from dtbench.report.timeline import open_run_timeline
from dtbench.store.find_run import find_run
from dtbench.store.layout import RunFolder, new_run_folder
from dtbench.store.lock import hold_run, is_held
from dtbench.store.read import read_run

EXAMPLES = Path(__file__).parents[2] / "results" / "example"
PRECIOUS = "precious words of the user's\n"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious"
    path.write_text(PRECIOUS)
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (example,) = EXAMPLES.iterdir() if not (EXAMPLES / "run.json").exists() else (EXAMPLES,)
    return Path(shutil.copytree(example, tmp_path / "run"))


@pytest.mark.parametrize("name", [".lock", "run.json", "cells/new.json", "env.json"])
def test_a_link_in_a_run_is_refused_wherever_it_is(run: Path, precious: Path, name: str) -> None:
    read_run(run)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(precious)
    with pytest.raises(StoreError, match="is a link, and links in a run's folder are not followed"):
        read_run(run)


def test_a_linked_folder_in_a_run_is_refused_and_a_run_that_is_linked_is_read(run: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(run)
    assert read_run(tmp_path / "latest") == read_run(run)
    (run / "plots").symlink_to(tmp_path)
    with pytest.raises(StoreError, match="plots: is a link"):
        read_run(run)


READERS: dict[str, Callable[[Path], object]] = {
    "analyze": lambda run: run_command("analyze", str(run)),
    "report": lambda run: run_command("report", str(run)),
    "report --json": lambda run: run_command("report", str(run), "--json"),
    "compare": lambda run: run_command("compare", f"{run}:ddp", f"{run}:fsdp2_tp"),
    "coverage": lambda run: run_command("coverage", str(run)),
    "export": lambda run: run_command("export", str(run), "--perfetto", str(run.parent / "out.tar")),
    "baseline": lambda run: run_command("baseline", "save", "x", f"{run}:ddp", "--results", str(run.parent)),
    "--resume": lambda run: run_command("run", "quickstart", str(run), "--resume"),
    "load_run": dtbench.load_run,
    "load_runs": lambda run: dtbench.load_runs(run).attrs,
    "load_collectives": lambda run: dtbench.load_collectives(run).attrs,
    "load_owners": lambda run: dtbench.load_owners(run).attrs,
    "export --table": lambda run: run_command("export", str(run), "--table", "cells"),
    "timeline": open_run_timeline,
    "/runs": lambda run: RunList(LogDirectory(run.resolve())).make_document(),
    "/progress": lambda run: make_progress(FoundRun(".", RunFolder(run))),
    "/overview": lambda run: Loader(LogDirectory(run.resolve())).summarize(FoundRun(".", RunFolder(run)), ""),
}
"""Of all that reads a run's folder."""


def run_command(*arguments: str) -> str:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        dtbench_command(arguments)
    return said.getvalue()


def read(reader: str, run: Path) -> str:
    """Return all that a reader says of a run, refusals included."""
    try:
        return str(READERS[reader](run))
    except (StoreError, Refusal, UserWarning) as error:
        return str(error)


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_follows_a_link_in_a_run(run: Path, tmp_path: Path, reader: str) -> None:
    name = "run.json" if reader == "/runs" else "cells/ddp/launch0/ranks/rank0.json"
    (run / name).rename(tmp_path / "outside.json")
    (run / name).symlink_to(tmp_path / "outside.json")
    assert "is a link, and links in a run's folder are not followed" in read(reader, run)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("name", ["run.json", "cells/ddp/launch0/launch.json", "cells/ddp/launch0/steps.parquet"])
def test_nobody_waits_for_a_pipe_in_a_run(run: Path, name: str) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    for reader in ("report", "load_runs", "/runs", "/progress"):
        if reader != "/runs" or name == "run.json":
            assert "is no file, and nothing else is read in a run's folder" in read(reader, run)


def test_a_lock_is_not_opened_through_a_link(tmp_path: Path, precious: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.lock.symlink_to(precious)
    with pytest.raises(StoreError, match="is a link, and nothing is written through it"), hold_run(folder):
        pass
    assert not is_held(folder)
    assert precious.read_text() == PRECIOUS


def test_a_lock_that_has_a_second_name_is_left_alone(tmp_path: Path, precious: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    os.link(precious, folder.lock)
    with pytest.raises(StoreError, match="is no file of its own"), hold_run(folder):
        pass
    assert precious.read_text() == PRECIOUS


def test_a_lock_with_other_words_in_it_holds_and_keeps_them(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.lock.write_text(PRECIOUS)
    with hold_run(folder):
        assert is_held(folder)
    assert folder.lock.read_text() == PRECIOUS


def test_a_lock_says_who_holds_it_and_asking_changes_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert not is_held(folder)
    assert not folder.path.exists()
    for _ in range(2):
        with hold_run(folder):
            assert int(folder.lock.read_text()) == os.getpid()
            with pytest.raises(StoreError, match=rf"pid {os.getpid()}\) is still writing"), hold_run(folder):
                pass
    assert not is_held(folder)


def test_a_run_that_begins_after_the_clock_was_set_back_is_the_latest(tmp_path: Path) -> None:
    now = new_run_folder(tmp_path, "a").path.name
    ahead = f"{int(now[:4])}{now[4:9]}{'235959'}-beef"
    (tmp_path / "b" / ahead).mkdir(parents=True)
    assert new_run_folder(tmp_path, "a").path.name > ahead
    (tmp_path / "b" / ahead).rmdir()
    (tmp_path / "b" / "99991231T235959-beef").mkdir()
    assert new_run_folder(tmp_path, "a").path.name < "9"


def test_the_latest_run_that_can_be_read_is_given_where_a_newer_format_lies_beside_it(
    run: Path, tmp_path: Path
) -> None:
    old, new = (tmp_path / "results" / "a" / f"2026010{day}T000000-beef" for day in (1, 2))
    for path in (old, new):
        shutil.copytree(run, path)
    said: list[str] = []
    assert find_run(None, tmp_path / "results", said.append) == new
    record = (new / "run.json").read_text()
    (new / "run.json").write_text(record.replace('"format_version": 1', '"format_version": 999'))
    assert not said
    assert find_run(None, tmp_path / "results", said.append) == old
    assert said == [f"{new} is later, but another version of dtbench wrote it; this is the latest that can be read"]
    shutil.rmtree(old)
    assert find_run(None, tmp_path / "results", said.append) == new, "its reader says what is wrong"
