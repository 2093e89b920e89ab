"""Watch the ranks of a launch through their journals: progress for people, a hang for the launcher, and who else runs.

A rank that waits in a collective for a hung peer is as silent as that peer. The one that hangs is the one that came
least far; the others are its victims.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from dtbench.core_use import CoreWatch
from dtbench.errors import StoreError
from dtbench.gpu_use import open_gpus
from dtbench.plan import Plan
from dtbench.store.journal import JournalView, RankState, read_journal
from dtbench.store.layout import LaunchFolder
from dtbench.store.use_file import UseWriter
from dtbench.units import NS_PER_S
from dtbench.vocabulary import DeviceKind, Region

POLL_S = 0.25
PATIENT_TIMEOUT_NS = 300 * NS_PER_S
_STACK_DUMP_S = 1.0
_REGIONS = (None, *Region)


@dataclass(frozen=True)
class Progress:
    """One look at all ranks; a rank that has not begun to write is None."""

    cell: str
    index: int
    plan: Plan
    ranks: tuple[JournalView | None, ...]


class Watch:
    """A thread that looks at the journals until told to stop; kills ranks that hold up the others past the timeout.

    Each time it also notes who had the machine's cores since: the ranks, or somebody else.
    """

    def __init__(
        self,
        folder: LaunchFolder,
        *,
        ranks: int,
        device: DeviceKind,
        stall_timeout_ns: int,
        on_look: Callable[[tuple[JournalView | None, ...]], None],
    ) -> None:
        self._folder, self._ranks, self._timeout_ns, self._on_look = folder, ranks, stall_timeout_ns, on_look
        gpus = open_gpus() if device is DeviceKind.CUDA else None
        self._use = UseWriter(folder, range(ranks), CoreWatch(gpus=gpus))
        self._started_ns = time.time_ns()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dtbench-watch", daemon=True)
        self.hung: tuple[int, ...] = ()

    def __enter__(self) -> "Watch":
        self._use.look(())  # before anything is started: what is there now works for somebody else
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        suspects: tuple[int, ...] = ()
        while not self._stop.wait(POLL_S):
            views = self._look()
            if views is None or self.hung:
                continue
            clock = {"now_ns": time.time_ns(), "started_ns": self._started_ns, "timeout_ns": self._timeout_ns}
            found = find_hung(views, **clock)
            if found and found == suspects:  # seen twice: one look may be unlucky
                self.hung = found
                self._end(views)
            suspects = found
        self._look()

    def _look(self) -> tuple[JournalView | None, ...] | None:
        """Look once and show it; neither a journal that cannot be read nor a screen that is gone may end the watch."""
        try:
            views = look(self._folder, self._ranks)
        except (OSError, StoreError):
            return None
        self._use.look_if_due([view.pid for view in views if view is not None])
        with suppress(OSError, ValueError):
            self._on_look(views)
        return views

    def _end(self, views: tuple[JournalView | None, ...]) -> None:
        """Have every rank print its stacks into its log, then kill the hung ones; elastic ends the rest."""
        living = [view for view in views if view is not None and view.state is not RankState.DONE]
        if hasattr(signal, "SIGUSR1"):
            for view in living:
                send(view.pid, signal.SIGUSR1)
            time.sleep(_STACK_DUMP_S)
        for view in living:
            if view.rank in self.hung:
                send(view.pid, getattr(signal, "SIGKILL", signal.SIGTERM))


def look(folder: LaunchFolder, ranks: int) -> tuple[JournalView | None, ...]:
    """Read every rank's journal."""
    return tuple(read_journal(folder.journal(rank)) for rank in range(ranks))


def find_hung(
    views: tuple[JournalView | None, ...], *, now_ns: int, started_ns: int, timeout_ns: int
) -> tuple[int, ...]:
    """Give the ranks that came least far when no rank has shown life within the timeout; empty while any has.

    Least far: the lowest step, then the fewest collectives issued, then the earliest region. One that has not begun
    counts as silent since the start. While any rank starts or finishes, the timeout is at least ``PATIENT_TIMEOUT_NS``:
    imports from a cold disk, large models, large traces and leaving the group take their time.
    """
    waiting = dict(enumerate(views))
    beats = [max(view.beat_unix_ns, started_ns) if view else started_ns for view in waiting.values()]
    if any(view is None or view.state is not RankState.STEPPING for view in waiting.values()):
        timeout_ns = max(timeout_ns, PATIENT_TIMEOUT_NS)
    if not waiting or any(now_ns - beat <= timeout_ns for beat in beats):
        return ()
    least = min(_how_far(view) for view in waiting.values())
    return tuple(rank for rank, view in waiting.items() if _how_far(view) == least)


def _how_far(view: JournalView | None) -> tuple[int, int, int]:
    if view is None:
        return (-1, 0, 0)
    return (view.step or 0, view.issued + (view.state is RankState.DONE), _REGIONS.index(view.region))


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may have gone already."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
