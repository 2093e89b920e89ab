"""The line between nodes: torch's store, whose keys are written once; nobody blocks in it, and who waits asks again.

A store that waits for a key says so on standard error each time the key has not come, and cannot be interrupted.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from dtbench.base.errors import NodesError
from dtbench.base.record import Record

NAP_S: Final = 0.02
_PULSE_S: Final = 0.1
_BEAT_S: Final = 1.0

_R = TypeVar("_R", bound=Record)


class Line:
    """One connection to the store; threads take turns.

    Every method raises ``NodesError`` where the other end is gone.
    """

    def __init__(self, store: Any) -> None:
        self._store, self._lock = store, threading.Lock()

    def put(self, key: str, record: Record | str = "") -> None:
        """Write what others read."""
        text = record if isinstance(record, str) else record.model_dump_json(warnings=False)
        self._ask(lambda: self._store.set(key, text))

    def find(self, key: str) -> str | None:
        """Return what was written; None: nothing yet."""
        found: str | None = self._ask(lambda: self._store.get(key).decode() if self._store.check([key]) else None)
        return found

    def find_record(self, key: str, record: type[_R]) -> _R | None:
        """Return the record that was written; None: nothing yet."""
        text = self.find(key)
        return None if text is None else record.model_validate_json(text)

    def count(self, key: str, more: int = 0) -> int:
        """Add to a number; gives the sum."""
        return int(self._ask(lambda: self._store.add(key, more)))

    def wait(self, key: str, timeout_s: float, nap_s: float = NAP_S) -> str | None:
        """Return what is written within a time; None: nothing was."""
        end_s = time.monotonic() + timeout_s
        while (found := self.find(key)) is None and time.monotonic() < end_s:
            time.sleep(nap_s)
        return found

    def _ask(self, question: Callable[[], Any]) -> Any:
        with self._lock:
            try:
                return question()
            except RuntimeError as error:  # torch's DistError is one
                raise NodesError("the connection to node 0 is lost: it has ended, or cannot be reached") from error


class Pulse:
    """A thread of an agent that tells node 0 that this node lives, and asks for what the agent waits for.

    The agent itself never asks: an answer that does not come would hold it, and its ranks would run on.
    """

    def __init__(self, line: Line, node: int, silence_s: float) -> None:
        self._line, self._node, self._silence_s = line, node, silence_s
        self._wanted: dict[str, str | None] = {}
        self._stop = threading.Event()
        self._heard_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="dtbench-pulse", daemon=True)

    def __enter__(self) -> "Pulse":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join(_BEAT_S)

    @property
    def is_lost(self) -> bool:
        """Whether node 0 has not answered for too long."""
        return time.monotonic() - self._heard_s > self._silence_s or not self._thread.is_alive()

    def find(self, key: str) -> str | None:
        """Return what was written as far as the thread has seen it, and have it look for that from now on."""
        return self._wanted.setdefault(key, None)

    def forget(self, key: str) -> None:
        """Look for this no more."""
        self._wanted.pop(key, None)

    def wait(self, key: str) -> str:
        """Return what is written, whenever that is.

        Raises:
            NodesError: node 0 is gone.
        """
        while (found := self.find(key)) is None:
            if self.is_lost:
                raise NodesError("node 0 is gone: it has ended, or does not answer any more")
            time.sleep(NAP_S)
        self.forget(key)
        return found

    def _run(self) -> None:
        beaten_s = 0.0
        while not self._stop.is_set():
            try:
                if time.monotonic() - beaten_s > _BEAT_S:
                    self._line.count(f"beat/{self._node}", 1)
                    beaten_s = time.monotonic()
                for key in [key for key, found in list(self._wanted.items()) if found is None]:
                    found = self._line.find(key)
                    if found is not None and key in self._wanted:
                        self._wanted[key] = found
            except NodesError:
                return
            self._heard_s = time.monotonic()
            self._stop.wait(_PULSE_S)


_SAMPLES: Final = 3
_CLOCK_S: Final = 30.0


def measure_offset(line: Line, key: str, now_ns: Callable[[], int] = time.monotonic_ns) -> int:
    """Return what node 0's monotonic clock shows more than this node's, ns: of three questions, the fastest answer.

    Off by half of what that took at most.

    Raises:
        NodesError: node 0 does not answer.
    """
    answers: list[tuple[int, int]] = []
    for sample in range(_SAMPLES):
        asked_ns = now_ns()
        line.put(f"{key}/asks{sample}")
        answer = line.wait(f"{key}/answer{sample}", _CLOCK_S, nap_s=0.001)
        heard_ns = now_ns()
        if answer is None:
            raise NodesError("node 0 does not say what its clock shows")
        answers.append((heard_ns - asked_ns, int(answer) - (asked_ns + heard_ns) // 2))
    return min(answers)[1]


def tell_clock(line: Line, keys: dict[int, str], now_ns: Callable[[], int] = time.monotonic_ns) -> None:
    """Answer every ``measure_offset``; one that stops asking is left alone after a while.

    Args:
        line: of node 0.
        keys: of each node.
        now_ns: node 0's clock.
    """
    open_ones, end_s = dict.fromkeys(keys, 0), time.monotonic() + _CLOCK_S
    while open_ones and time.monotonic() < end_s:
        for node, sample in list(open_ones.items()):
            if line.find(f"{keys[node]}/asks{sample}") is not None:
                line.put(f"{keys[node]}/answer{sample}", str(now_ns()))
                if sample + 1 < _SAMPLES:
                    open_ones[node] += 1
                else:
                    del open_ones[node]
        time.sleep(0.001)
