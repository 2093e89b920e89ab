"""Several traces at once: each is read and analysed in a process of its own, and what is left of it comes back small.

::

    this process                              worker 0, worker 1, ...
      waiting: rank 5, rank 2, rank 7   --->    read, analyse, forget
      answers: rank 0, rank 3           <---    ``TraceAnalysis`` by pickle

A worker holds one trace at a time, so memory is bounded by their number.

[Note: how workers start] A process with one thread forks: it has loaded everything already, so a worker costs a few
milliseconds. One with more threads (a notebook, a program that uses torch) must not, since a lock that another thread
holds would stay locked in the copy; it starts interpreters. Neither is ``multiprocessing``, which would run a person's
script again in every worker.
"""

import os
import pickle
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from dtbench.machine.processes import count_cores
from dtbench.traces.garbage import without_collection
from dtbench.traces.rank.file import Answer, TraceFile, Unusable, analyze_file, serve

_GZIP_RATIO: Final = 12  # what gzip makes of Kineto's JSON: 10 to 20
_WORTH_BYTES: Final = 48 * 1024 * 1024  # below it, one process is done before others have started and answered
_MEMORY_PER_BYTE: Final = 1.0  # peak memory of an analysis over the uncompressed size, with some room
_SERVE: Final = ("-P", "-c", "from dtbench.traces.rank.file import serve_standard; serve_standard()")


def analyze_files(files: Sequence[TraceFile], *, workers: int | None = None) -> list[Answer]:
    """Read and analyse traces, several at once where that is worth it; the answers are in the order of the files.

    A file of several ranks or devices has an answer for each.

    Args:
        files: one per rank, mostly.
        workers: processes to use at most; None: one per usable core, fewer where memory would not do.
    """
    expected = [_estimate_bytes(file.path) for file in files]
    if len(files) < 2 or sum(expected) < _WORTH_BYTES or os.name == "nt":  # Windows cannot wait for several pipes
        return [answer for file in files for answer in analyze_file(file)]
    wanted = min(count_cores(), _count_that_fit(max(expected))) if workers is None else workers
    count = min(wanted, len(files))
    if count < 2:
        return [answer for file in files for answer in analyze_file(file)]
    return _analyze_in_processes(files, expected, count)


def _estimate_bytes(path: Path) -> int:
    """Guess the uncompressed size; 0 for a file that is not there, which the reader will say."""
    try:
        return path.stat().st_size * (_GZIP_RATIO if path.suffix == ".gz" else 1)
    except OSError:
        return 0


def _count_that_fit(largest_bytes: int) -> int:
    import psutil

    return int(psutil.virtual_memory().available / (_MEMORY_PER_BYTE * max(largest_bytes, 1)))


@dataclass(frozen=True)
class _Worker:
    """A process that analyses one trace after another.

    Attributes:
        questions, answers: the pipes to and from it.
        kill: ends it at once.
        wait: gives its exit code once it has ended; negative: the signal that ended it.
    """

    questions: IO[bytes]
    answers: IO[bytes]
    kill: Callable[[], None]
    wait: Callable[[], int]

    def ask(self, file: TraceFile) -> None:
        """Hand it a trace; one that has died will have no answer."""
        with suppress(OSError):
            pickle.dump(file, self.questions)
            self.questions.flush()

    def read_answers(self) -> tuple[Answer, ...]:
        """Return its answers to one file, at least one; none: it died."""
        try:
            with without_collection():  # looking for garbage in an answer doubles the time
                answers: tuple[Answer, ...] = pickle.load(self.answers)
        except (EOFError, pickle.UnpicklingError):
            return ()
        return answers

    def end(self) -> int:
        """End it if it has not ended, and give its exit code."""
        with suppress(OSError):
            self.questions.close()
        self.answers.close()
        self.kill()
        return self.wait()


def _analyze_in_processes(files: Sequence[TraceFile], expected: Sequence[int], count: int) -> list[Answer]:
    import selectors

    waiting = deque(sorted(range(len(files)), key=lambda index: -expected[index]))  # long ones first
    answers: dict[int, tuple[Answer, ...]] = {}
    workers: list[_Worker] = []
    try:
        with selectors.DefaultSelector() as busy:

            def ask(worker: _Worker) -> None:
                index = waiting.popleft()
                worker.ask(files[index])
                busy.register(worker.answers, selectors.EVENT_READ, (worker, index))

            for _ in range(count):
                ask(_start_among(workers))
            while busy.get_map():
                for key, _ in busy.select():
                    busy.unregister(key.fileobj)
                    worker, index = key.data
                    found = worker.read_answers()
                    if not found:
                        workers.remove(worker)
                    answers[index] = found or (_describe_death(worker, files[index]),)
                    if waiting:
                        ask(worker if found else _start_among(workers))
    finally:
        for worker in workers:
            worker.end()
    return [answer for index in range(len(files)) for answer in answers[index]]


def _start_among(workers: list[_Worker]) -> _Worker:
    """Start a worker that the caller will end with the others."""
    workers.append(_start())
    return workers[-1]


def _describe_death(worker: _Worker, file: TraceFile) -> Unusable:
    exit_code = worker.end()
    if exit_code < 0:
        how = f"was killed by signal {-exit_code}, perhaps for want of memory; --workers 1 needs the least"
    else:
        how = f"ended with exit code {exit_code} and no answer; --workers 1 shows why"
    return Unusable(file, f"{file.label}: the process that read it {how}")


def _start() -> _Worker:
    """Start a worker. See [Note: how workers start]."""
    return _fork() if can_fork() else _start_interpreter()


def can_fork() -> bool:
    """Tell whether this process has one thread only; where that cannot be told, it may have more."""
    tasks = Path("/proc/self/task")
    return sys.platform == "linux" and tasks.is_dir() and len(list(tasks.iterdir())) == 1


def _fork() -> _Worker:
    question_end, questions = os.pipe()
    answers, answer_end = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(questions)
        os.close(answers)
        serve(os.fdopen(question_end, "rb"), os.fdopen(answer_end, "wb"))
    os.close(question_end)
    os.close(answer_end)  # so that the pipe ends with the worker

    def wait() -> int:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

    return _Worker(
        questions=os.fdopen(questions, "wb"),
        answers=os.fdopen(answers, "rb"),
        kill=lambda: os.kill(process, signal.SIGKILL),
        wait=wait,
    )


def _start_interpreter() -> _Worker:
    """Start one that finds dtbench where this process did, and no module of the folder that it stands in (-P)."""
    import subprocess

    here = str(Path(__file__).parents[3])
    paths = [path for path in sys.path if path]
    environment = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",  # before numpy: its threads would take cores from the other workers
        "PYTHONPATH": os.pathsep.join([*paths, *([here] if here not in paths else [])]),
    }
    process = subprocess.Popen(
        [sys.executable, *_SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert process.stdin is not None
    assert process.stdout is not None
    return _Worker(questions=process.stdin, answers=process.stdout, kill=process.kill, wait=process.wait)
