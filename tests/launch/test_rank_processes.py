"""Processes of ranks: who ended how and when, and that nothing of them is left."""

import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from dtbench.base.errors import LaunchError
from dtbench.launch import rank_processes
from dtbench.launch.rank_processes import RankProcess, RankProcesses

SLEEPS = "import time; time.sleep(60)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"


@pytest.fixture(params=["pidfd", "asking"])
def seen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """See ends as Linux tells them, and as other systems have to ask for them."""
    if request.param == "asking":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
        monkeypatch.delattr(os, "waitid", raising=False)


def ranks(tmp_path: Path, *programs: str) -> list[RankProcess]:
    return [
        RankProcess((sys.executable, "-c", text), dict(os.environ), tmp_path / f"rank{rank}.log")
        for rank, text in enumerate(programs)
    ]


@pytest.mark.usefixtures("seen")
def test_all_that_end_well_are_no_failures(tmp_path: Path) -> None:
    with RankProcesses(ranks(tmp_path, "print('out')", "import sys; print('err', file=sys.stderr)")) as processes:
        assert processes.wait() == ()
    assert sorted((one.rank, one.exit_code, one.was_told) for one in processes.ended) == [(0, 0, False), (1, 0, False)]
    assert (tmp_path / "rank0.log").read_text() == "out\n"
    assert (tmp_path / "rank1.log").read_text() == "err\n"


@pytest.mark.usefixtures("seen")
def test_the_first_that_fails_ends_the_others(tmp_path: Path) -> None:
    began_s = time.monotonic()
    with RankProcesses(ranks(tmp_path, SLEEPS, "import os; os._exit(3)", SLEEPS)) as processes:
        first, *others = processes.wait()
    assert (first.rank, first.exit_code, first.was_told) == (1, 3, False)
    assert {(one.rank, one.exit_code, one.was_told) for one in others} == {
        (0, -signal.SIGTERM, True),
        (2, -signal.SIGTERM, True),
    }
    assert time.monotonic() - began_s < rank_processes.SETTLE_S + rank_processes.GRACE_S


@pytest.mark.usefixtures("seen")
def test_how_the_others_stand_can_be_seen_before_any_is_told(tmp_path: Path) -> None:
    stood: list[str] = []
    stops = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    fails = "import time; time.sleep(1); raise SystemExit(3)"
    with RankProcesses(ranks(tmp_path, stops, fails)) as processes:
        processes.on_failure = lambda: stood.append(psutil.Process(processes.pids[0]).status())
        processes.wait()
    assert stood == [psutil.STATUS_STOPPED]


@pytest.mark.usefixtures("seen")
def test_what_follows_by_itself_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_processes, "SETTLE_S", 4.0)
    sign = tmp_path / "sign"
    leads = f"import pathlib; pathlib.Path({str(sign)!r}).touch(); 1/0"
    follows = (
        f"import os, pathlib, time\nwhile not pathlib.Path({str(sign)!r}).exists(): time.sleep(0.01)\ntime.sleep(1)"
    )
    with RankProcesses(ranks(tmp_path, f"{follows}\nos._exit(9)", leads, SLEEPS)) as processes:
        failed = processes.wait()
    assert [(one.rank, one.exit_code, one.was_told) for one in failed] == [
        (1, 1, False),
        (0, 9, False),
        (2, -signal.SIGTERM, True),
    ]
    assert failed[0].monotonic_ns < failed[1].monotonic_ns < failed[2].monotonic_ns


def test_a_rank_that_says_it_is_not_done_failed_though_it_left_with_zero(tmp_path: Path) -> None:
    processes = RankProcesses(ranks(tmp_path, SLEEPS, "pass"), has_failed=lambda one: one.rank == 1)
    with processes:
        assert [one.rank for one in processes.wait()] == [1]
    assert [(one.rank, one.was_told) for one in processes.ended] == [(1, False), (0, True)]


def test_a_stopped_rank_and_a_deaf_one_end_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_processes, "GRACE_S", 0.5)
    with RankProcesses(ranks(tmp_path, SLEEPS, DEAF)) as processes:
        while (tmp_path / "rank1.log").read_text() != "1\n":
            time.sleep(0.01)
        os.kill(processes.pids[0], signal.SIGSTOP)
        processes.end()
        assert [(one.rank, one.exit_code) for one in processes.ended] == [(0, -signal.SIGTERM), (1, -signal.SIGKILL)]


def test_what_a_rank_started_goes_with_it(tmp_path: Path) -> None:
    starts = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', '{SLEEPS}']).pid, flush=True)"
    with RankProcesses(ranks(tmp_path, starts)) as processes:
        assert processes.wait() == ()
    child = int((tmp_path / "rank0.log").read_text())
    end_s = time.monotonic() + 10
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end_s, "a child outlived its rank"
        time.sleep(0.01)


def interrupt(processes: RankProcesses) -> None:
    with processes:
        assert all(map(psutil.pid_exists, processes.pids.values()))
        raise KeyboardInterrupt


def test_an_interrupt_leaves_nothing_running(tmp_path: Path) -> None:
    processes = RankProcesses(ranks(tmp_path, SLEEPS, SLEEPS))
    with pytest.raises(KeyboardInterrupt):
        interrupt(processes)
    assert not any(map(psutil.pid_exists, processes.pids.values()))


@pytest.mark.parametrize(
    ("command", "why"), [("/absent/python", "No such file or directory"), ("python\0", "embedded null byte")]
)
def test_what_cannot_be_started_is_a_sentence(tmp_path: Path, command: str, why: str) -> None:
    with pytest.raises(LaunchError, match=f"rank 0 cannot be started .{why}."):
        RankProcesses([RankProcess((command,), {}, tmp_path / "log")]).__enter__()
