"""A forked rank cannot be told from one that was started afresh, but by its parent and by what it need not import."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from dtbench.launch.forked.servers import can_fork
from dtbench.launch.last_words import OF_EXIT

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.skipif(not can_fork(), reason="ranks are forked on Linux only"),
]

GIVEN = {"PYTHONUNBUFFERED": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1", **os.environ}
DESCRIBE = """
import json, os, random, sys, threading
is_forked = "torch" in sys.modules
import numpy, psutil, torch
print(json.dumps({
    "argv": sys.argv, "folder": os.getcwd(), "path": sys.path[0], "name": __name__, "rank": os.environ["RANK"],
    "session": os.getsid(0) == os.getpid(), "threads": threading.active_count(),
    "torch threads": torch.get_num_threads(), "cache": os.environ.get("TORCHINDUCTOR_CACHE_DIR"),
    "signals": [str(signal) for signal in map(__import__("signal").getsignal, (2, 15))],
    "descriptors": sum(one.path.startswith(os.getcwd()) for one in psutil.Process().open_files()),
    "children": len(psutil.Process().children()),
}))
randoms = [random.random(), numpy.random.rand(), torch.rand(()).item()]
print(json.dumps({"is_forked": is_forked, "hash": hash("a"), "randoms": randoms}))
"""


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], list[str]]:
    """Return the command that runs a script."""

    def write(text: str) -> list[str]:
        path = tmp_path / "script.py"
        path.write_text(text, encoding="utf-8")
        return [sys.executable, str(path), "an argument"]

    return write


def finish(command: list[str], folder: Path, rank: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={**GIVEN, "RANK": str(rank), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        start_new_session=True,
    )


def test_a_forked_rank_finds_what_a_fresh_process_finds(
    forked: tuple[str, ...], script: Callable[[str], list[str]], tmp_path: Path
) -> None:
    command = script("import torch._dynamo\n" + DESCRIBE.replace('"torch" in', '"pandas" in'))
    fresh, copy = (finish(whole, tmp_path, 1) for whole in (command, [*forked, *command]))
    assert (fresh.returncode, copy.returncode) == (0, 0), copy.stderr
    assert copy.stdout.splitlines()[0] == fresh.stdout.splitlines()[0]
    assert [line for line in copy.stderr.splitlines() if not OF_EXIT.match(line)] == fresh.stderr.splitlines()


def test_neighbours_share_no_random_state_and_no_hashes(
    forked: tuple[str, ...], script: Callable[[str], list[str]], tmp_path: Path
) -> None:
    command = [*forked, *script(DESCRIBE)]
    finished = (finish(command, tmp_path, rank).stdout for rank in (0, 0, 1))
    first, again, other = (json.loads(text.splitlines()[1]) for text in finished)
    assert first["is_forked"]
    assert other["is_forked"]
    assert first["hash"] != other["hash"] or "PYTHONHASHSEED" in os.environ
    assert len({number for one in (first, again, other) for number in one["randoms"]}) == 9


@pytest.mark.parametrize(
    ("text", "code", "word"),
    [
        ("raise SystemExit(7)", 7, ""),
        ("raise SystemExit('a sentence')", 1, "a sentence"),
        ("{}['key']", 1, "KeyError: 'key'"),
        ("import atexit; atexit.register(print, 'at exit')", 0, "at exit"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV, ""),
    ],
)
def test_the_end_of_a_forked_rank_is_that_of_the_process_its_launcher_knows(
    forked: tuple[str, ...], script: Callable[[str], list[str]], tmp_path: Path, text: str, code: int, word: str
) -> None:
    ended = finish([*forked, *script(text)], tmp_path)
    assert ended.returncode == code
    assert word in ended.stdout + ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_to_the_process_that_the_launcher_knows_ends_the_forked_rank(
    forked: tuple[str, ...], script: Callable[[str], list[str]], number: signal.Signals
) -> None:
    command = [*forked, *script("import os, time; print(os.getpid()); time.sleep(60)")]
    with subprocess.Popen(command, env=GIVEN, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        rank = psutil.Process(int(process.stdout.readline()))
        process.send_signal(number)
        assert process.wait(30) == -number
        psutil.wait_procs([rank], timeout=30)
        assert not rank.is_running()


def test_a_rank_with_a_variable_that_imports_read_is_no_fork(
    forked: tuple[str, ...], script: Callable[[str], list[str]], tmp_path: Path
) -> None:
    fresh = finish([*forked, *script(DESCRIBE)], tmp_path, TORCH_SHOW_CPP_STACKTRACES="1")
    assert not json.loads(fresh.stdout.splitlines()[1])["is_forked"]
    assert fresh.stderr == "not forked, since other variables are set here: TORCH_SHOW_CPP_STACKTRACES\n"


def test_the_ranks_of_a_launch_are_forked(launch: Callable[..., Any], scenario: Callable[..., Any]) -> None:
    launched = launch(scenario(correctness={"enabled": False}))
    logs = [launched.folder.log(rank).read_text(encoding="utf-8") for rank in range(2)]
    assert ["not forked" in log for log in logs] == [False, False], logs
