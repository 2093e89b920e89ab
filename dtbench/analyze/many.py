"""Several traces at once: each is read and analysed in a process of its own, and what is left of it comes back small.

::

    this process                              worker 0, worker 1, ... (``serve.py``)
      waiting: rank 5, rank 2, rank 7   --->    read, analyse, forget
      answers: rank 0, rank 3           <---    ``TraceAnalysis`` by pickle

A worker holds one trace at a time, so memory is bounded by their number. They are plain interpreters that are told over
their standard input, not ``multiprocessing``: that would run a person's script again in each of them, torch and all.
"""

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dtbench.analyze.read_trace import read_trace
from dtbench.analyze.trace import Unread
from dtbench.analyze.trace_analysis import TraceAnalysis, analyze_trace
from dtbench.errors import TraceError
from dtbench.vocabulary import Axis

_GZIP_RATIO: Final = 12  # what gzip makes of Kineto's JSON: 10 to 20
_WORTH_BYTES: Final = 24 * 1024 * 1024  # below it, one process is done before a second has started
_END_S: Final = 10.0  # a process whose pipe broke is about to end
_SERVE: Final = ("-P", "-m", "dtbench.analyze.serve")
_MEMORY_PER_BYTE: Final = 1.0  # peak memory of an analysis over the uncompressed size, with some room


@dataclass(frozen=True)
class TraceFile:
    """A trace to be analysed, and what is known of it from elsewhere.

    Attributes:
        path: of the file.
        rank: where somebody knows it better than the trace.
        process_groups: mesh axis by torch's name of the group, where somebody knows.
    """

    path: Path
    rank: int | None = None
    process_groups: Mapping[str, Axis | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Analyzed:
    """A trace that was read; ``said_rank`` and ``world_size`` are None where it does not say."""

    file: TraceFile
    analysis: TraceAnalysis
    said_rank: int | None
    world_size: int | None
    unread: Unread


@dataclass(frozen=True)
class Unusable:
    """A trace that no number can come from, and why: a sentence that names the file."""

    file: TraceFile
    reason: str


Answer = Analyzed | Unusable


def analyze_file(file: TraceFile) -> Answer:
    """Read and analyse one trace in this process."""
    try:
        trace = read_trace(file.path)
        analysis = analyze_trace(trace, rank=file.rank, process_groups=file.process_groups)
    except TraceError as error:
        return Unusable(file, str(error))
    except MemoryError:
        return Unusable(file, f"{file.path}: this machine has not enough memory to read it; try --workers 1")
    return Analyzed(file, analysis, trace.rank, trace.world_size, trace.unread)


def analyze_files(files: Sequence[TraceFile], *, workers: int | None = None) -> list[Answer]:
    """Read and analyse traces, several at once where that is worth it; the answers are in the order of the files.

    Args:
        files: one per rank.
        workers: processes to use at most; None: one per usable core, fewer where memory would not do.
    """
    expected = [_estimate_bytes(file.path) for file in files]
    if len(files) < 2 or sum(expected) < _WORTH_BYTES:
        return [analyze_file(file) for file in files]
    wanted = min(count_usable_cores(), _count_that_fit(max(expected))) if workers is None else workers
    count = min(wanted, len(files))
    return [analyze_file(file) for file in files] if count < 2 else _analyze_in_processes(files, expected, count)


def count_usable_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _estimate_bytes(path: Path) -> int:
    """Guess the uncompressed size; 0 for a file that is not there, which the reader will say."""
    try:
        return path.stat().st_size * (_GZIP_RATIO if path.suffix == ".gz" else 1)
    except OSError:
        return 0


def _count_that_fit(largest_bytes: int) -> int:
    import psutil

    return int(psutil.virtual_memory().available / (_MEMORY_PER_BYTE * max(largest_bytes, 1)))


def _analyze_in_processes(files: Sequence[TraceFile], expected: Sequence[int], count: int) -> list[Answer]:
    from concurrent.futures import ThreadPoolExecutor

    waiting = deque(sorted(range(len(files)), key=lambda index: -expected[index]))  # long ones first
    answers: dict[int, Answer] = {}
    workers = [_Worker() for _ in range(count)]

    def work(worker: _Worker) -> None:
        while True:
            try:
                index = waiting.popleft()
            except IndexError:
                return
            answers[index] = worker.analyze(files[index])

    with ThreadPoolExecutor(count) as threads:
        try:
            for future in [threads.submit(work, worker) for worker in workers]:
                future.result()
        finally:  # Ctrl-C, too: the threads see their workers end, and find nothing more to do
            waiting.clear()
            for worker in workers:
                worker.stop()
    return [answers[index] for index in range(len(files))]


class _Worker:
    """A process that analyses one trace after another; one that died is replaced for the next trace."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def analyze(self, file: TraceFile) -> Answer:
        """Let the process analyse a trace; should it die, that is the answer."""
        process = self._process = self._process or _start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(pickle.dumps(file))
            process.stdin.flush()
            answer: Answer = pickle.load(process.stdout)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):  # ValueError: stopped, its pipes are closed
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_END_S)
            self.stop()
            return Unusable(file, f"{file.path}: {_describe_end(process.returncode)}")
        return answer

    def stop(self) -> None:
        """End the process; what it was doing is lost."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()


def _start() -> "subprocess.Popen[bytes]":
    """Start a worker that finds dtbench where this process did, and no module of the folder that it stands in (-P)."""
    here = str(Path(__file__).parents[2])
    paths = [path for path in sys.path if path]
    environment = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",  # before numpy: its threads would take cores from the other workers
        "PYTHONPATH": os.pathsep.join([*paths, *([here] if here not in paths else [])]),
    }
    return subprocess.Popen(
        [sys.executable, *_SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )


def _describe_end(exit_code: int) -> str:
    if exit_code < 0:
        return (
            f"the process that read it was killed by signal {-exit_code}, perhaps for want of memory; "
            "--workers 1 needs the least"
        )
    return f"the process that read it ended with exit code {exit_code} and no answer; --workers 1 shows why"
