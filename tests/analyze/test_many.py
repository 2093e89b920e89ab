"""Several traces at once: the same answers from processes as from one, and what becomes of those that die."""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtbench.analyze import many
from dtbench.analyze.many import Analyzed, TraceFile, Unusable, analyze_files
from dtbench.analyze.tabulate import collective_rows, overlap_rows
from dtbench.vocabulary import Axis


@pytest.fixture
def files(tmp_path: Path, recorded: Path) -> list[TraceFile]:
    """Eight ranks' traces, one of them broken."""
    made = []
    for rank in range(8):
        path = tmp_path / f"rank{rank}.json.gz"
        shutil.copy(recorded / "ddp_2ranks_rank0.json.gz", path)
        made.append(TraceFile(path, rank, {"0": Axis.SHARD}))
    made[3].path.write_bytes(b"hello")
    return made


@pytest.fixture
def always_in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "_WORTH_BYTES", 0)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Collect the workers that are started."""
    workers: list[subprocess.Popen[bytes]] = []
    start = many._start

    def start_and_keep() -> "subprocess.Popen[bytes]":
        workers.append(start())
        return workers[-1]

    monkeypatch.setattr(many, "_start", start_and_keep)
    yield workers
    assert all(worker.poll() is not None for worker in workers)


@pytest.mark.usefixtures("always_in_processes")
def test_processes_give_what_one_process_gives_in_the_same_order(
    files: list[TraceFile], started: list["subprocess.Popen[bytes]"]
) -> None:
    together = analyze_files(files, workers=2)
    alone = analyze_files(files, workers=1)
    assert len(started) == 2
    assert [answer.file for answer in together] == [answer.file for answer in alone] == files
    assert [type(answer) for answer in together] == [Unusable if rank == 3 else Analyzed for rank in range(8)]
    for mine, theirs in zip(together, alone, strict=True):
        match mine, theirs:
            case Analyzed(), Analyzed():
                for rows in (overlap_rows, collective_rows):
                    assert list(rows([mine.analysis])) == list(rows([theirs.analysis]))
                assert mine.analysis.timeline.rank == theirs.analysis.rank
                assert {str(one.axis) for one in mine.analysis.collectives} == {"replicate"}
            case _:
                assert mine == theirs


def test_small_traces_are_not_worth_a_process(files: list[TraceFile], started: list["subprocess.Popen[bytes]"]) -> None:
    assert len(analyze_files(files[:2])) == 2
    assert started == []


MORTAL_WORKER = """
import os
from dtbench.analyze import serve
analyze = serve.analyze_file
def die_of_rank_9(file):
    return {death} if file.rank == 9 else analyze(file)
serve.analyze_file = die_of_rank_9
serve.serve()
"""


@pytest.mark.usefixtures("always_in_processes")
@pytest.mark.parametrize(
    ("death", "sentence"),
    [
        ("os.kill(os.getpid(), 9)", "was killed by signal 9, perhaps for want of memory"),
        ("os._exit(3)", "ended with exit code 3"),
        ("print('about to die') or 1 / 0", "ended with exit code 1"),
    ],
)
def test_a_worker_that_dies_costs_its_trace_and_nothing_else(
    files: list[TraceFile],
    started: list["subprocess.Popen[bytes]"],
    monkeypatch: pytest.MonkeyPatch,
    death: str,
    sentence: str,
) -> None:
    monkeypatch.setattr(many, "_SERVE", ("-c", MORTAL_WORKER.format(death=death)))
    deadly = TraceFile(files[4].path, rank=9)
    *others, dead = analyze_files([files[0], files[1], files[2], deadly], workers=2)
    assert all(isinstance(answer, Analyzed) for answer in others)
    assert isinstance(dead, Unusable)
    assert sentence in dead.reason
    assert str(deadly.path) in dead.reason
    assert len(started) <= 3  # the dead one was replaced, if there was more to do


@pytest.mark.usefixtures("always_in_processes")
def test_ctrl_c_ends_the_workers(
    files: list[TraceFile], started: list["subprocess.Popen[bytes]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "_SERVE", ("-c", MORTAL_WORKER.format(death="__import__('time').sleep(60)")))
    timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    before = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        analyze_files([TraceFile(files[0].path, rank=9), TraceFile(files[1].path, rank=9)], workers=2)
    timer.join()
    assert time.monotonic() - before < 30
    assert len(started) == 2


def test_a_worker_runs_no_module_of_the_folder_that_it_stands_in(
    files: list[TraceFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "_WORTH_BYTES", 0)
    (tmp_path / "numpy.py").write_text("raise SystemExit('the wrong numpy')")
    monkeypatch.chdir(tmp_path)
    assert all(isinstance(answer, Analyzed) for answer in analyze_files(files[:2], workers=2))


def test_fewer_processes_where_memory_would_not_do(
    files: list[TraceFile], started: list["subprocess.Popen[bytes]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "_WORTH_BYTES", 0)
    monkeypatch.setattr(many, "_MEMORY_PER_BYTE", 1e12)
    monkeypatch.setattr(many, "count_usable_cores", lambda: 4)
    assert len(analyze_files(files)) == 8
    assert len(started) == 0
