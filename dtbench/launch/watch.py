"""Watch the ranks of a launch through their journals: progress for people, a hang for the launcher, and who else runs.

A rank that waits in a collective for a hung peer is as silent as that peer. The one that hangs is the one that is
stopped, else the one that came least far; the others are its victims.

A rank is alive while its journal's beat changes: by this process's own monotonic clock, whatever happens to the time of
day here or there.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil

from dtbench.base.errors import StoreError
from dtbench.base.units import NS_PER_S
from dtbench.base.vocabulary import DeviceKind, Region
from dtbench.launch.killed import HUNG, STOPPED
from dtbench.machine.core_use import CoreWatch
from dtbench.machine.gpu_use import open_gpus
from dtbench.plan.plan import Plan
from dtbench.store.journal import JournalView, RankState, read_journal
from dtbench.store.layout import LaunchFolder
from dtbench.store.use_file import UseWriter

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
        self._beats = Beats(ranks, time.monotonic_ns())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dtbench-watch", daemon=True)
        self.held_up: dict[int, str] = {}

    def __enter__(self) -> "Watch":
        self._use.look(())  # before anything is started: what is there now works for somebody else
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def note_stopped(self) -> None:
        """Note which ranks are stopped, now that another has failed: it may have waited for them."""
        with suppress(OSError, StoreError):
            self.held_up |= dict.fromkeys(find_stopped(look(self._folder, self._ranks)), STOPPED)

    def _run(self) -> None:
        suspects: tuple[int, ...] = ()
        while not self._stop.wait(POLL_S):
            views = self._look()
            if views is None or self.held_up:
                continue
            now_ns = time.monotonic_ns()
            found = find_hung(views, self._beats.see(views, now_ns), now_ns=now_ns, timeout_ns=self._timeout_ns)
            if found and found == suspects:  # seen twice: one look may be unlucky
                stopped = find_stopped(views)
                self.held_up = dict.fromkeys(stopped, STOPPED) or dict.fromkeys(found, HUNG)
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
        """Have every rank print its stacks into its log, then kill those that held up the others."""
        living = [view for view in views if view is not None and view.state is not RankState.DONE]
        if hasattr(signal, "SIGUSR1"):
            for view in living:
                send(view.pid, signal.SIGUSR1)
            time.sleep(_STACK_DUMP_S)
        for view in living:
            if view.rank in self.held_up:
                send(view.pid, getattr(signal, "SIGKILL", signal.SIGTERM))


def look(folder: LaunchFolder, ranks: int) -> tuple[JournalView | None, ...]:
    """Read every rank's journal."""
    return tuple(read_journal(folder.journal(rank)) for rank in range(ranks))


class Beats:
    """When each rank last gave a sign of life, as seen from here; one that has not begun, when the launch began."""

    def __init__(self, ranks: int, now_ns: int) -> None:
        self._last: list[tuple[object, int]] = [(None, now_ns)] * ranks

    def see(self, views: tuple[JournalView | None, ...], now_ns: int) -> tuple[int, ...]:
        """Look at the journals; gives the last change of each, on the clock of ``now_ns``."""
        for rank, view in enumerate(views):
            beat = None if view is None else (view.beat_unix_ns, view.issued, view.state)
            if beat != self._last[rank][0]:
                self._last[rank] = (beat, now_ns)
        return tuple(seen_ns for _, seen_ns in self._last)


def find_hung(
    views: tuple[JournalView | None, ...], beats_ns: Sequence[int], *, now_ns: int, timeout_ns: int
) -> tuple[int, ...]:
    """Return the ranks that came least far when no rank has shown life within the timeout; empty while any has.

    Least far: the lowest step, then the fewest collectives issued, then the earliest region. While any rank starts or
    finishes, the timeout is at least ``PATIENT_TIMEOUT_NS``: imports from a cold disk, large models, large traces and
    leaving the group take their time.

    Args:
        views: of the ranks.
        beats_ns: when each last showed life, as ``Beats`` says.
        now_ns: on the same clock.
        timeout_ns: longest silence.
    """
    if any(view is None or view.state is not RankState.STEPPING for view in views):
        timeout_ns = max(timeout_ns, PATIENT_TIMEOUT_NS)
    if not views or any(now_ns - beat_ns <= timeout_ns for beat_ns in beats_ns):
        return ()
    least = min(_how_far(view) for view in views)
    return tuple(rank for rank, view in enumerate(views) if _how_far(view) == least)


def find_stopped(views: tuple[JournalView | None, ...]) -> tuple[int, ...]:
    """Return the ranks whose process a signal or a debugger has stopped."""
    return tuple(rank for rank, view in enumerate(views) if view is not None and _is_stopped(view.pid))


def _is_stopped(pid: int) -> bool:
    with suppress(psutil.Error):
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    return False


def _how_far(view: JournalView | None) -> tuple[int, int, int]:
    if view is None:
        return (-1, 0, 0)
    return (view.step or 0, view.issued + (view.state is RankState.DONE), _REGIONS.index(view.region))


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may have gone already."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
