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
from collections.abc import Callable, Iterable, Mapping, Sequence
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


Views = tuple[JournalView | None, ...]
"""What journals say at one look; None of a rank that has not begun to write."""


class Watch:
    """A thread that looks at the journals of this machine's ranks until told to stop; kills those that are held to.

    Each time it also notes who had the machine's cores since: the ranks, or somebody else.

    Attributes:
        held_up: ranks of this machine that the judge held to have stopped the others, with what was seen of them.
    """

    def __init__(
        self,
        folder: LaunchFolder,
        *,
        ranks: Sequence[int],
        device: DeviceKind,
        judge: Callable[[Views], Mapping[int, str]],
        on_look: Callable[[Views], None],
    ) -> None:
        """Begin nothing yet.

        Args:
            folder: of the launch.
            ranks: of this machine, at least one.
            device: that they run on.
            judge: told what the ranks' journals say at each look; gives the ranks that hold up all others, empty
                while there are none.
            on_look: told likewise.
        """
        self._folder, self._ranks, self._judge, self._on_look = folder, ranks, judge, on_look
        gpus = open_gpus() if device is DeviceKind.CUDA else None
        self._use = UseWriter(folder, ranks, CoreWatch(gpus=gpus))
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
        has_ended = False
        while not self._stop.wait(POLL_S):
            views = self._look()
            if views is None or self.held_up or has_ended:
                continue
            held_up = self._judge(views)
            has_ended = bool(held_up)
            if held_up:
                self.held_up = {rank: what for rank, what in held_up.items() if rank in self._ranks}
                self._end(views)
        self._look()

    def _look(self) -> Views | None:
        """Look once and show it; neither a journal that cannot be read nor a screen that is gone may end the watch."""
        try:
            views = look(self._folder, self._ranks)
        except (OSError, StoreError):
            return None
        self._use.look_if_due([view.pid for view in views if view is not None])
        with suppress(OSError, ValueError):
            self._on_look(views)
        return views

    def _end(self, views: Views) -> None:
        """Have every rank print its stacks into its log, then kill those that held up the others."""
        living = [view for view in views if view is not None and view.state is not RankState.DONE]
        if hasattr(signal, "SIGUSR1"):
            for view in living:
                send(view.pid, signal.SIGUSR1)
            time.sleep(_STACK_DUMP_S)
        for view in living:
            if view.rank in self.held_up:
                send(view.pid, getattr(signal, "SIGKILL", signal.SIGTERM))


class HangJudge:
    """Says which ranks hold up all others, of all ranks of a launch, once they have for two looks on end."""

    def __init__(
        self, ranks: int, *, stall_timeout_ns: int, find_stopped: Callable[[Views], tuple[int, ...]] | None = None
    ) -> None:
        """Begin to count silence now.

        Args:
            ranks: how many there are.
            stall_timeout_ns: longest silence.
            find_stopped: whose process was stopped; None: all are on this machine, which is asked.
        """
        self._timeout_ns, self._find_stopped = stall_timeout_ns, find_stopped or _find_stopped_here
        self._beats = Beats(ranks, time.monotonic_ns())
        self._suspects: tuple[int, ...] = ()

    def judge(self, views: Views) -> Mapping[int, str]:
        """Look at the journals of all ranks, in order; gives those that hold up the others."""
        now_ns = time.monotonic_ns()
        found = find_hung(views, self._beats.see(views, now_ns), now_ns=now_ns, timeout_ns=self._timeout_ns)
        before, self._suspects = self._suspects, found
        if not found or found != before:  # seen twice: one look may be unlucky
            return {}
        return dict.fromkeys(self._find_stopped(views), STOPPED) or dict.fromkeys(found, HUNG)


def look(folder: LaunchFolder, ranks: Iterable[int]) -> Views:
    """Read the journals of these ranks."""
    return tuple(read_journal(folder.journal(rank)) for rank in ranks)


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
    """Return the ranks of this machine whose process a signal or a debugger has stopped."""
    return tuple(view.rank for view in views if view is not None and _is_stopped(view.pid))


_find_stopped_here = find_stopped


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
