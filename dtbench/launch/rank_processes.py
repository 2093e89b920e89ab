"""The processes of one launch's ranks on this machine: started together, watched until each has ended, left by none.

::

    start      a process a rank, each the first of its own session: Ctrl-C in a terminal is for the launcher alone
    wait       until all have ended well, or one has not
    settle     those that lost it end by themselves within ``SETTLE_S``: how each ended says who followed whom
    end        SIGTERM, and SIGKILL after ``GRACE_S``; then whatever is left of a rank's own children

A process is seen to end through its pidfd (``pidfd_open(2)``) where there is one, else by asking often.
"""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from dtbench.base.errors import LaunchError
from dtbench.base.units import NS_PER_S

RESOLUTION_NS: Final = 50_000_000
"""Ends closer than this have no order: the launcher is one of many threads on cores that its ranks keep busy."""
SETTLE_S: Final = 1.0
GRACE_S: Final = 5.0
_ASK_S: Final = 0.02
"""How often a system without pidfd is asked."""
_ASK_OTHERS_S: Final = 0.1
"""How often other machines are asked."""


@dataclass(frozen=True)
class Ended:
    """How and when one rank's process ended.

    Attributes:
        exit_code: negative: the signal that ended it.
        monotonic_ns: when that was seen.
        was_told: the launcher had told it to end.
    """

    rank: int
    exit_code: int
    monotonic_ns: int = 0
    was_told: bool = False


@dataclass(frozen=True)
class RankProcess:
    """What one rank is started with.

    Attributes:
        command: program and arguments.
        environment: all its variables.
        log: file that takes its standard output and error.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path


@dataclass
class RankProcesses:
    """Use as a context: leaving it, however, ends what still runs.

    Attributes:
        ended: in order of time.
        is_urgent: asked while ranks are ending: nobody wants to wait for them any more.
        has_failed: whether a rank that has ended should not have, or not like this.
        on_failure: called once, when the first has failed and none of the others has been told.
        is_over: asked while all is well here: a rank on another machine has failed; None: there is no other machine.
        first: number of the first of these ranks.
    """

    ranks: Sequence[RankProcess]
    is_urgent: Callable[[], bool] = lambda: False
    has_failed: Callable[[Ended], bool] = lambda one: one.exit_code != 0
    on_failure: Callable[[], None] = lambda: None
    is_over: Callable[[], bool] | None = None
    first: int = 0
    ended: list[Ended] = field(default_factory=list)
    _started: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _told: set[int] = field(default_factory=set)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def __enter__(self) -> Self:
        try:
            for rank, one in enumerate(self.ranks, self.first):
                self._start(rank, one)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._leave()

    def _start(self, rank: int, one: RankProcess) -> None:
        try:
            one.log.parent.mkdir(parents=True, exist_ok=True)
            with one.log.open("wb") as log:
                process = subprocess.Popen(
                    list(one.command),
                    env=dict(one.environment),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:  # ValueError: a NUL character
            why = getattr(error, "strerror", None) or str(error)
            raise LaunchError(f"rank {rank} cannot be started ({why}): {one.command[0]}") from error
        self._started[rank] = process
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):  # no more descriptors: this one is asked
                self._selector.register(os.pidfd_open(process.pid), selectors.EVENT_READ, rank)

    @property
    def running(self) -> tuple[int, ...]:
        """Ranks whose process has not ended."""
        seen = {one.rank for one in self.ended}
        return tuple(rank for rank in self._started if rank not in seen)

    @property
    def pids(self) -> Mapping[int, int]:
        """Process of each rank."""
        return {rank: process.pid for rank, process in self._started.items()}

    def wait(self) -> tuple[Ended, ...]:
        """Wait for all ranks; gives those that failed, in order of time. Ends the others once one has."""
        while self.running and not self._has_any_failed():
            self._look(None if self.is_over is None else _ASK_OTHERS_S)
        if self._has_any_failed():
            self.on_failure()
            self._look_until(time.monotonic_ns() + round(SETTLE_S * NS_PER_S))
            self.end()
        return tuple(filter(self.has_failed, self.ended))

    def _has_any_failed(self) -> bool:
        return any(map(self.has_failed, self.ended)) or (self.is_over is not None and self.is_over())

    def end(self) -> None:
        """End all ranks that still run; one that is stopped goes on for it."""
        self._tell(signal.SIGTERM)
        if hasattr(signal, "SIGCONT"):
            self._tell(signal.SIGCONT)
        self._look_until(time.monotonic_ns() + round(GRACE_S * NS_PER_S), is_over=self.is_urgent)
        self._tell(getattr(signal, "SIGKILL", signal.SIGTERM))
        self._look_until(time.monotonic_ns() + round(GRACE_S * NS_PER_S))

    def _tell(self, number: signal.Signals) -> None:
        for rank in self.running:
            self._told.add(rank)
            with suppress(OSError):
                self._started[rank].send_signal(number)

    def _look_until(self, end_ns: int, *, is_over: Callable[[], bool] = lambda: False) -> None:
        while self.running and time.monotonic_ns() < end_ns and not is_over():
            self._look(_ASK_S)

    def _look(self, timeout_s: float | None) -> None:
        """Wait for an end, and note all that have come."""
        watched = len(self._selector.get_map())
        if watched:
            self._selector.select(timeout_s if watched >= len(self.running) else _ASK_S)
        else:
            time.sleep(_ASK_S)
        now_ns = time.monotonic_ns()
        for rank in self.running:
            process = self._started[rank]
            if _has_ended(process.pid):
                _end_session(process.pid)  # before its number is anybody else's
            exit_code = process.poll()
            if exit_code is not None:
                self.ended.append(Ended(rank, exit_code, now_ns, rank in self._told))
                self._forget(rank)

    def _forget(self, rank: int) -> None:
        for key in [key for key in self._selector.get_map().values() if key.data == rank]:
            self._selector.unregister(key.fd)
            os.close(key.fd)

    def _leave(self) -> None:
        self.end()
        for rank in self._started:
            self._forget(rank)
        self._selector.close()


def _has_ended(pid: int) -> bool:
    """Tell whether a child has ended, and leave it for ``poll``; False where the system cannot say without."""
    if not hasattr(os, "waitid"):
        return False
    with suppress(ChildProcessError):
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return False


def _end_session(pid: int) -> None:
    """End what a rank left running: its children are of its process group unless they left it."""
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
