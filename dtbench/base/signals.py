"""What stops a command, and who hears it: one owner of Ctrl-C, SIGTERM and SIGHUP from its first line to its last.

The first signal is a ``KeyboardInterrupt`` wherever the command is, which closes what it has begun on the way out.
Those that follow while it closes do not disturb that, they make it hasten: who waits for something to end asks
``is_urgent``. After ``PATIENCE_S`` one interrupts again, for what can still be stuck.

A signal waits while C++ that does not expect one runs Python (``hold_signals``), and interrupts behind it.

What was ignored when the command began stays ignored, as ``nohup`` wants it.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

PATIENCE_S: Final = 5.0
_NAMES: Final = ("SIGINT", "SIGTERM", "SIGHUP")
EXIT_CTRL_C: Final = 128 + signal.SIGINT
_CTRL_C: Final = "stopped by the user (Ctrl-C)"


class Stopped(KeyboardInterrupt):
    """A signal asked the command to end; its text says which.

    Attributes:
        exit_code: 128 and the signal's number, as shells have it.
    """

    def __init__(self, number: int) -> None:
        name = signal.Signals(number).name
        super().__init__(_CTRL_C if number == signal.SIGINT else f"stopped by {name}")
        self.exit_code = 128 + number


@dataclass
class _Heard:
    """Signals since the command began."""

    count: int = 0
    last_s: float = 0.0
    before: dict[signal.Signals, Any] = field(default_factory=dict)
    is_held: bool = False
    waiting: int | None = None

    def hear(self, number: int, _frame: FrameType | None) -> None:
        now_s = time.monotonic()
        is_first, is_stuck = self.count == 0, now_s - self.last_s > PATIENCE_S
        self.count += 1
        if not is_first and not is_stuck:
            return
        self.last_s = now_s
        if self.is_held and is_first:
            self.waiting = number
            return
        self.waiting = None
        raise Stopped(number)


_heard = _Heard()


@contextmanager
def heed_signals(*, to_the_end: bool = False) -> Iterator[None]:
    """Hear what asks this process to end, for as long as the context lasts; a context inside another changes nothing.

    Outside the main thread nothing is heard.

    Args:
        to_the_end: the process ends after the context, and hears until then.
    """
    if _heard.before:
        yield
        return
    try:
        for number in _find_signals():
            before = signal.getsignal(number)
            if before not in (signal.SIG_IGN, None):  # None: set by what is not Python
                with suppress(ValueError):  # not the main thread
                    signal.signal(number, _heard.hear)
                    _heard.before[number] = before
        yield
    finally:
        if not to_the_end:
            for number, before in _heard.before.items():
                signal.signal(number, before)
            _heard.before.clear()
            _heard.count = 0


@contextmanager
def hold_signals() -> Iterator[None]:
    """Let the first signal wait until the context ends.

    For ``import torch``: its C++ runs Python that it does not expect to raise, and an interrupt there is an abort.

    Raises:
        Stopped: when the context ends, if one came.
    """
    if _heard.is_held:
        yield
        return
    _heard.is_held = True
    try:
        yield
    finally:
        _heard.is_held = False
        if _heard.waiting is not None:
            number, _heard.waiting = _heard.waiting, None
            raise Stopped(number)


def ignore_signals() -> None:
    """Hear nothing any more: all is closed, and Python's own end may not become another."""
    for number in _heard.before:
        signal.signal(number, signal.SIG_IGN)


def forget_signals() -> None:
    """Leave this process to whoever started it: what it was told to hear ends it at once, Ctrl-C it ignores.

    For processes that work for a command: theirs is the command's own end.
    """
    for number in _find_signals():
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)


def _find_signals() -> list[signal.Signals]:
    return [signal.Signals[name] for name in _NAMES if hasattr(signal, name)]


def is_urgent() -> bool:
    """Tell whether somebody has asked more than once."""
    return _heard.count > 1


def describe_stop(stop: KeyboardInterrupt) -> str:
    """Say what stopped a command."""
    return str(stop) or _CTRL_C
