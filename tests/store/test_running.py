"""Runs on one machine that see each other, through notes in a folder of the test."""

import subprocess
import sys
from pathlib import Path

import pytest

from dtbench.store.records.run import Neighbour
from dtbench.store.running import announce, describe_neighbours, find_neighbours

HOLD = """
import sys
from pathlib import Path
from dtbench.store.running import announce
with announce(Path(sys.argv[1]), Path(sys.argv[2])):
    print("here", flush=True)
    sys.stdin.read()
    if len(sys.argv) > 3:
        import os
        os._exit(1)
"""


def start(notes: Path, run: str, *more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", HOLD, run, str(notes), *more]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "here\n"
    return other


def test_two_runs_see_each_other_for_as_long_as_both_run(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with announce(tmp_path / "mine", notes):
        assert find_neighbours(notes) == (), "nobody is its own neighbour"
        with start(notes, "/results/theirs") as other:
            (seen,) = find_neighbours(notes)
            assert (seen.pid, seen.run) == (other.pid, "/results/theirs")
            other.communicate()
        assert find_neighbours(notes) == ()
    assert list(notes.iterdir()) == []


def test_a_note_that_its_process_left_behind_counts_for_nothing_and_goes(tmp_path: Path) -> None:
    with start(tmp_path, "/results/killed", "dies") as other:
        other.communicate()
    assert len(list(tmp_path.iterdir())) == 1
    assert find_neighbours(tmp_path) == ()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", '{"pid": "x"}', "\x00"])
def test_whatever_else_lies_there_is_no_run(tmp_path: Path, text: str) -> None:
    (tmp_path / "1-a.json").write_text(text)
    (tmp_path / "2-b.json").mkdir()
    assert find_neighbours(tmp_path) == ()
    assert find_neighbours(tmp_path / "none") == ()


def test_a_folder_that_cannot_be_written_keeps_nobody_from_running(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with announce(tmp_path / "mine", tmp_path / "file" / "notes"):
        assert find_neighbours(tmp_path / "file" / "notes") == ()


def test_neighbours_are_named() -> None:
    assert describe_neighbours(()) is None
    one = Neighbour(pid=4711, user="ada", run="/r/a")
    assert describe_neighbours((one,)) == (
        "another run of dtbench was on this machine: /r/a of ada (pid 4711); "
        "steps in which ranks had to wait for it are left out"
    )
    assert "2 other runs of dtbench were" in (describe_neighbours((one, one)) or "")
