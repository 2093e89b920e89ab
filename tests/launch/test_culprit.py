"""Of several ranks that ended, which one the others followed: from exit codes, what ranks said, and their logs."""

import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

from dtbench.launch.local import Ended, describe_failures
from dtbench.store.layout import LaunchFolder

DUMP = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x01 (most recent call first):\n  File in b\n"
KILLED, SEGFAULT, ABORTED = -signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT


@pytest.fixture
def folder(tmp_path: Path) -> LaunchFolder:
    folder = LaunchFolder(tmp_path)
    folder.logs.mkdir(parents=True)
    return folder


def leave_log(folder: LaunchFolder, rank: int, text: str, *, unix_ns: int = 0) -> None:
    folder.log(rank).write_text(text)
    os.utime(folder.log(rank), ns=(unix_ns, unix_ns))


def leave_failure(folder: LaunchFolder, rank: int, *, unix_ns: int) -> None:
    path = folder.events(rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"event":"failed","unix_ns":{unix_ns}}}\n')


def find_culprit(folder: LaunchFolder, *ended: Ended) -> tuple[int, str]:
    first = describe_failures(folder, ended, hung=(), ranks=len(ended))[0]
    return first.rank, first.what


@pytest.mark.parametrize("crash", [SEGFAULT, ABORTED])
def test_a_crash_follows_a_kill_from_outside(folder: LaunchFolder, crash: int) -> None:
    """Gloo crashes in some ranks that lose a peer; a killed one has no last words."""
    leave_log(folder, 0, DUMP, unix_ns=5)
    found = find_culprit(folder, Ended(0, crash), Ended(1, KILLED), Ended(2, -signal.SIGTERM))
    assert found == (1, "killed by SIGKILL")


def test_what_died_of_its_own_mistake_is_the_culprit_of_what_raised_later(folder: LaunchFolder) -> None:
    leave_failure(folder, 0, unix_ns=900)
    leave_log(folder, 1, DUMP, unix_ns=800)
    assert find_culprit(folder, Ended(0, 1), Ended(1, SEGFAULT)) == (1, "killed by SIGSEGV")


def test_what_raised_before_another_crashed_is_its_culprit(folder: LaunchFolder) -> None:
    leave_log(folder, 0, DUMP, unix_ns=900)
    leave_failure(folder, 1, unix_ns=800)
    assert find_culprit(folder, Ended(0, SEGFAULT), Ended(1, 1)) == (1, "raised")


def test_a_crash_that_says_nothing_is_taken_for_the_culprit(folder: LaunchFolder) -> None:
    leave_failure(folder, 0, unix_ns=800)
    leave_log(folder, 1, "step 3\n", unix_ns=900)
    assert find_culprit(folder, Ended(0, 1), Ended(1, SEGFAULT)) == (1, "killed by SIGSEGV")


def test_the_first_of_two_crashes_is_the_culprit(folder: LaunchFolder) -> None:
    leave_log(folder, 0, DUMP, unix_ns=900)
    leave_log(folder, 1, DUMP, unix_ns=800)
    assert find_culprit(folder, Ended(0, ABORTED), Ended(1, SEGFAULT)) == (1, "killed by SIGSEGV")
