"""One try of a fuzzer, and many: each from one number, within a time and a size, in processes that may die of it.

::

    numbers --blocks--> a process each --one line a try--> what was wrong, and a row a block

A process does a block of tries and ends, so that nothing of one try is left for long; one that hangs or dies costs the
try that it was at, and the block goes on behind it in another.
"""

import json
import multiprocessing
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final, Protocol

import dtbench

CPU_S: Final = 10
"""Of one try; no input of a fuzzer is larger than some hundred kB."""

MEMORY_BYTES: Final = 500 << 20
"""That one try may ask for beyond what its process has."""

PATIENCE_S: Final = 120
"""Of wall-clock time, for what sees no signal; a shared machine may be slow."""

_BUG: Final = "bug in dtbench"
_NO_MEMORY: Final = "not enough memory"


@dataclass(frozen=True)
class Outcome:
    """What came of an input.

    Attributes:
        answer: one word, ``answered`` or ``refused``.
        wrong: what should not have been, a sentence each.
    """

    answer: str
    wrong: tuple[str, ...] = ()


class Fuzzer(Protocol):
    """Makes inputs of one kind, and judges what dtbench makes of them.

    Attributes:
        block: tries that a process does, and that are lost where a command is stopped.
    """

    block: int

    def make(self, number: int, folder: Path) -> Path:
        """Write the input of a number, the same each time, into an empty folder; gives what to judge."""

    def judge(self, target: Path) -> Outcome:
        """Have dtbench answer, and hold the answer against what must be."""


@dataclass(frozen=True)
class Try:
    """A number's outcome and what it took."""

    number: int
    outcome: Outcome
    cpu_s: float = 0.0


class _LateError(BaseException):
    """No ``Exception``: whoever catches all of these must not catch this."""


def _stop(*_: object) -> None:
    raise _LateError


@contextmanager
def within_limits() -> Iterator[None]:
    """Yield what is done inside some seconds of CPU time and some memory beyond what the process has.

    Raises:
        _LateError: it takes longer.
        MemoryError: it asks for more.
    """
    before = resource.getrlimit(resource.RLIMIT_AS)
    heeded = signal.signal(signal.SIGPROF, _stop)
    resource.setrlimit(resource.RLIMIT_AS, (_size_bytes() + MEMORY_BYTES, before[1]))
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGPROF, heeded)


def _size_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


def judge(fuzzer: Fuzzer, target: Path) -> Outcome:
    """Judge one input within the limits; whatever is raised is wrong."""
    try:
        with within_limits():
            return fuzzer.judge(target)
    except _LateError:
        return Outcome("hung", (f"took more than {CPU_S} s of CPU time",))
    except MemoryError:
        return Outcome("swelled", (f"took more than {MEMORY_BYTES >> 20} MiB",))
    except BaseException as error:  # noqa: BLE001  that none comes is what is tested
        return Outcome("crashed", (describe_crash(error),))


def describe_crash(error: BaseException) -> str:
    """Say what was raised, and by whom of dtbench."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(dtbench.__path__[0])] or frames
    where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in own[:-4:-1])
    return f"{type(error).__name__}: {str(error)[:200]} at {where}"


def find_wrong_words(said: str) -> list[str]:
    """Say which words no answer may have."""
    wrong = [f"said to be a {_BUG}: {_line_of(said, _BUG)}"] if _BUG in said else []
    wrong += [f"said {_line_of(said, _NO_MEMORY)}"] if _NO_MEMORY in said else []
    wrong += ["a traceback was printed"] if "Traceback (most recent call last)" in said else []
    acting = sorted({letter for letter in said if acts(letter)})
    return wrong + ([f"printed as they are: {acting!r}"] if acting else [])


def acts(letter: str) -> bool:
    """Tell whether a character acts on a terminal, or turns text around, or is half of one."""
    code = ord(letter)
    is_control = (code < 0x20 and letter not in "\n\t") or 0x7F <= code < 0xA0
    return is_control or 0xD800 <= code < 0xE000 or 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069


def _line_of(said: str, words: str) -> str:
    return next(line for line in said.splitlines() if words in line)[:400]


def meet(fuzzer: Fuzzer, number: int) -> Try:
    """Make the input of a number, and judge it."""
    folder = Path(tempfile.mkdtemp(prefix="dtbench-fuzz-", dir=_fast_folder()))
    try:
        target = fuzzer.make(number, folder)
        before = time.process_time()
        outcome = judge(fuzzer, target)
        return Try(number, outcome, time.process_time() - before)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fast_folder() -> str | None:
    """Return a folder in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@dataclass
class Block:
    """Tries of numbers that follow each other, done or not."""

    first: int
    beyond: int
    answers: dict[str, int] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    cpu_s: float = 0.0
    slowest_s: float = 0.0

    def add(self, done: Try) -> None:
        """Count a try."""
        self.answers[done.outcome.answer] = self.answers.get(done.outcome.answer, 0) + 1
        self.cpu_s += done.cpu_s
        self.slowest_s = max(self.slowest_s, done.cpu_s)
        if done.outcome.wrong:
            self.failures.append({"number": done.number, "wrong": list(done.outcome.wrong)})

    @property
    def count(self) -> int:
        """Tries that are done."""
        return sum(self.answers.values())


@dataclass
class _Worker:
    block: Block
    process: Any
    lines: Connection
    heard_s: float


def run(fuzzer: Fuzzer, numbers: Sequence[range], *, workers: int, on_done: Callable[[Block], None]) -> None:
    """Do blocks of tries, several at once; ``on_done`` gets each as it ends."""
    waiting = list(reversed([Block(block.start, block.stop) for block in numbers]))
    busy: list[_Worker] = []
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                busy.append(_start(fuzzer, waiting.pop()))
            ready = wait([worker.lines for worker in busy], timeout=1.0)
            for worker in list(busy):
                is_alive = _hear(worker) if worker.lines in ready else True
                if is_alive and time.monotonic() - worker.heard_s < PATIENCE_S:
                    continue
                busy.remove(worker)
                _end(worker, is_alive=is_alive)
                done = worker.block.count == worker.block.beyond - worker.block.first
                on_done(worker.block) if done else waiting.append(worker.block)
    finally:
        for worker in busy:
            worker.process.kill()
            worker.process.join()


def _start(fuzzer: Fuzzer, block: Block) -> _Worker:
    lines, end = multiprocessing.Pipe(duplex=False)
    numbers = range(block.first + block.count, block.beyond)
    process = multiprocessing.get_context("fork").Process(target=_work, args=(fuzzer, numbers, end), daemon=True)
    process.start()
    end.close()
    return _Worker(block, process, lines, time.monotonic())


def _work(fuzzer: Fuzzer, numbers: range, lines: Connection) -> None:
    for number in numbers:
        lines.send(meet(fuzzer, number))


def _hear(worker: _Worker) -> bool:
    """Take what a worker has done; tells whether it may do more."""
    try:
        worker.block.add(worker.lines.recv())
    except EOFError:
        return False
    worker.heard_s = time.monotonic()
    return True


def _end(worker: _Worker, *, is_alive: bool) -> None:
    """End a worker; the try that it hangs in or died of is wrong."""
    worker.process.kill() if is_alive else None
    worker.process.join()
    number = worker.block.first + worker.block.count
    if number < worker.block.beyond:
        how = f"hung for {PATIENCE_S} s" if is_alive else f"its process ended with {worker.process.exitcode}"
        worker.block.add(Try(number, Outcome("died", (how,))))


def read_blocks(path: Path) -> list[Block]:
    """Return the blocks that are done."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Block(**json.loads(line)) for line in lines]


def write_block(path: Path, block: Block) -> None:
    """Keep a block that is done."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(block)) + "\n")


def split(numbers: range, done: Sequence[Block], *, size: int) -> list[range]:
    """Split numbers into blocks of a size, without those that are done."""
    gone = {number for block in done for number in range(block.first, block.beyond)}
    left = [number for number in numbers if number not in gone]
    blocks: list[range] = []
    for number in left:
        if blocks and blocks[-1].stop == number and len(blocks[-1]) < size:
            blocks[-1] = range(blocks[-1].start, number + 1)
        else:
            blocks.append(range(number, number + 1))
    return blocks


def describe(blocks: Sequence[Block]) -> str:
    """Say what came of all tries."""
    answers: Counter[str] = Counter()
    for block in blocks:
        answers.update(block.answers)
    count, cpu_s = answers.total(), sum(block.cpu_s for block in blocks)
    failures = sum(len(block.failures) for block in blocks)
    said = ", ".join(f"{number} {answer}" for answer, number in answers.most_common())
    slowest_s = max((block.slowest_s for block in blocks), default=0.0)
    each_ms = 1000 * cpu_s / max(count, 1)
    return (
        f"{count} tries: {said}; {failures} with something wrong; {each_ms:.1f} ms each, {slowest_s:.1f} s the longest"
    )


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
