"""The real worker, in which one rank meets its fate: ``python faulty_rank.py KIND:PHASE:RANK:MS --order FILE``.

The fate comes MS milliseconds after the rank has come into the phase, wherever it is by then.
"""

import ctypes
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from dtbench.base.vocabulary import Phase, Region
from dtbench.store.journal import JournalWriter, RankState
from dtbench.worker import __main__ as worker

SENTENCE = "planted: the data loader lost its file"


def raise_in_main_thread() -> None:
    """Raise between two instructions of the thread that trains, again where that was in a finalizer."""

    def fail(_number: int, _frame: FrameType | None) -> None:
        raise RuntimeError(SENTENCE)

    def try_again(_ignored: object) -> None:
        clock = threading.Timer(0.005, FATES["raise"])
        clock.daemon = True
        clock.start()

    signal.signal(signal.SIGUSR2, fail)
    sys.unraisablehook = try_again


HOARD: list[bytearray] = []


def limit_memory() -> None:
    """Let the process have no more memory than it has."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - not a path of ours
        pages = int(file.read().split()[0])
    limit = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with suppress(MemoryError):
        while True:  # what the allocator still has
            HOARD.append(bytearray(1 << 20))
    os.kill(os.getpid(), signal.SIGUSR2)


FATES: dict[str, Callable[[], Any]] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "raise": lambda: os.kill(os.getpid(), signal.SIGUSR2),
    "exit 3": lambda: os._exit(3),
    "exit 0": lambda: os._exit(0),
    "segfault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "memory": limit_memory,
}
PHASES: dict[str, tuple[str, Callable[..., bool]]] = {
    "starting": ("begin", lambda _ns: True),
    "WARMUP": ("enter_step", lambda phase, _step, _ns: phase is Phase.WARMUP),
    "MEASURED": ("enter_step", lambda phase, _step, _ns: phase is Phase.MEASURED),
    "PROFILED": ("enter_step", lambda phase, _step, _ns: phase is Phase.PROFILED),
    "estimating": ("enter_step", lambda phase, _step, _ns: phase is None),
    "stage": ("beat", lambda region, _ns: region is Region.STATE_DICT),
    "finishing": ("set_state", lambda state, _ns: state is RankState.FINISHING),
}
"""Which word to the journal begins each."""


def plant(kind: str, phase: str, delay_s: float) -> None:
    """Start the clock when the journal first says that this rank is in the phase."""
    begun: list[None] = []

    def begin() -> None:
        if not begun:
            begun.append(None)
            clock = threading.Timer(delay_s, FATES[kind])
            clock.daemon = True
            clock.start()

    def after(method: str, is_it: Callable[..., bool]) -> None:
        original = getattr(JournalWriter, method)

        def patched(self: JournalWriter, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            if is_it(*args):
                begin()
            return result

        setattr(JournalWriter, method, patched)

    method, is_it = PHASES[phase]
    after(method, is_it)


def main() -> None:
    """Plant what the first argument says, then be the worker."""
    kind, phase, rank, delay_ms = sys.argv.pop(1).split(":")
    if int(os.environ.get("RANK", "0")) == int(rank):
        raise_in_main_thread()
        plant(kind, phase, float(delay_ms) / 1000)
    worker.main()
    worker.leave()


if __name__ == "__main__":
    main()
