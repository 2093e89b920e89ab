"""Several traces at once: the same answers from processes as from one, and what becomes of those that die."""

import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dtbench.traces.job import many
from dtbench.traces.job.many import analyze_files
from dtbench.traces.rank import file as trace_file
from dtbench.traces.rank.file import Analyzed, TraceFile, Unusable
from dtbench.traces.reader.source import TraceSource
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.rows.tables import OVERLAP


@pytest.fixture
def files(tmp_path: Path, recorded: Path) -> list[TraceFile]:
    """Eight ranks' traces, one of them broken."""
    made = []
    for rank in range(8):
        path = tmp_path / f"rank{rank}.json.gz"
        shutil.copy(recorded / "ddp_2ranks_rank0.json.gz", path)
        made.append(TraceFile(TraceSource(path), rank))
    made[3].path.write_bytes(b"hello")
    return made


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Collect the exit codes of the workers that were started; all have ended when the test has."""
    monkeypatch.setattr(many, "_WORTH_BYTES", 0)
    exit_codes: list[int] = []
    workers = []
    start = many._start

    def start_and_keep() -> many._Worker:
        worker = start()

        def wait() -> int:
            exit_codes.append(worker.wait())
            return exit_codes[-1]

        workers.append(replace(worker, wait=wait))
        return workers[-1]

    monkeypatch.setattr(many, "_start", start_and_keep)
    yield exit_codes
    assert len(exit_codes) == len(workers)


@pytest.fixture(params=["fork", "interpreter"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Choose how workers start; the threads that other tests' libraries left behind hold no lock that ours need."""
    monkeypatch.setattr(many, "can_fork", lambda: request.param == "fork")
    return str(request.param)


@pytest.mark.usefixtures("way")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_processes_give_what_one_process_gives_in_the_same_order(files: list[TraceFile], starts: list[int]) -> None:
    together = analyze_files(files, workers=2)
    alone = analyze_files(files, workers=1)
    assert len(starts) == 2
    assert [answer.file for answer in together] == [answer.file for answer in alone] == files
    assert [type(answer) for answer in together] == [Unusable if rank == 3 else Analyzed for rank in range(8)]
    for mine, theirs in zip(together, alone, strict=True):
        match mine, theirs:
            case Analyzed(), Analyzed():
                for rows in (OVERLAP.list_rows, COLLECTIVES.list_rows):
                    assert list(rows([mine.analysis])) == list(rows([theirs.analysis]))
                assert mine.analysis.timeline.rank == theirs.analysis.rank
            case _:
                assert mine == theirs


def test_what_is_known_from_elsewhere_reaches_the_worker(files: list[TraceFile], starts: list[int]) -> None:
    copies = [replace(file, rank=file.rank + 10 if file.rank is not None else None) for file in files[:2]]
    found = [answer.analysis.rank for answer in analyze_files(copies, workers=2) if isinstance(answer, Analyzed)]
    assert found == [10, 11]
    assert len(starts) == 2


def test_small_traces_are_not_worth_a_process(
    files: list[TraceFile], starts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "_WORTH_BYTES", 10**9)
    assert len(analyze_files(files[:2])) == 2
    assert starts == []


MORTAL_WORKER = """
import os, time
from dtbench.traces.rank import file as trace_file
analyze = trace_file.analyze_file
def die_of_rank_9(file):
    return {death} if file.rank == 9 else analyze(file)
trace_file.analyze_file = die_of_rank_9
"""


def make_mortal(monkeypatch: pytest.MonkeyPatch, death: str) -> None:
    """Let every worker evaluate ``death`` when it meets rank 9."""
    program = MORTAL_WORKER.format(death=death)
    monkeypatch.setattr(many, "_SERVE", ("-c", program + "trace_file.serve_standard()"))
    monkeypatch.setattr(trace_file, "analyze_file", trace_file.analyze_file)  # so that it is put back
    exec(program, {})


@pytest.mark.usefixtures("way")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize(
    ("death", "sentence"),
    [
        ("os.kill(os.getpid(), 9)", "was killed by signal 9, perhaps for want of memory"),
        ("os._exit(3)", "ended with exit code 3"),
        ("print('about to die') or 1 / 0", "ended with exit code 1"),
    ],
)
def test_a_worker_that_dies_costs_its_trace_and_nothing_else(
    files: list[TraceFile], starts: list[int], monkeypatch: pytest.MonkeyPatch, death: str, sentence: str
) -> None:
    make_mortal(monkeypatch, death)
    deadly = replace(files[0], rank=9)
    dead, *others = analyze_files([deadly, *files[:3], *files[4:]], workers=2)
    assert all(isinstance(answer, Analyzed) for answer in others)
    assert isinstance(dead, Unusable)
    assert sentence in dead.reason
    assert str(deadly.path) in dead.reason
    assert len(starts) in (2, 3)  # the dead one was replaced, unless the other had answered everything by then


@pytest.mark.usefixtures("way")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_where_every_worker_dies_every_trace_has_its_sentence(
    files: list[TraceFile], starts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_mortal(monkeypatch, "os._exit(3)")
    answers = analyze_files([replace(file, rank=9) for file in files], workers=3)
    assert [type(answer) for answer in answers] == [Unusable] * 8
    assert starts == [3] * 8


@pytest.mark.usefixtures("way")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_ctrl_c_ends_the_workers(files: list[TraceFile], starts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    make_mortal(monkeypatch, "time.sleep(60)")
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            analyze_files([replace(file, rank=9) for file in files[:2]], workers=2)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert starts == [-9, -9]


def test_an_interpreter_runs_no_module_of_the_folder_that_it_stands_in(
    files: list[TraceFile], starts: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "can_fork", lambda: False)
    (tmp_path / "numpy.py").write_text("raise SystemExit('the wrong numpy')")
    monkeypatch.chdir(tmp_path)
    assert all(isinstance(answer, Analyzed) for answer in analyze_files(files[:2], workers=2))
    assert len(starts) == 2


def test_a_process_with_several_threads_does_not_fork() -> None:
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        assert not many.can_fork()
    finally:
        done.set()
        other.join()


def test_where_memory_would_not_do_for_two_one_process_reads_all(
    files: list[TraceFile], starts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "count_cores", lambda: 4)
    monkeypatch.setattr(many, "_MEMORY_PER_BYTE", 1e12)
    assert len(analyze_files(files)) == 8
    assert starts == []
