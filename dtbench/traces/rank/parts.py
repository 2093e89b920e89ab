"""One file, several processes or devices: each is accounted for itself, because nothing of one hides another's.

::

    process 1000     ├ mm ┤ ├ all-reduce ┤                      part 0: process 1000 and what it launched, on device 0
    device 0                ██mm██ ████all-reduce████
    process 2000     ├ mm ┤ ├ all-reduce ┤                      part 1: process 2000 and what it launched, on device 1
    device 1                    ██mm██ ██all-reduce██

Tools put the traces of several ranks into one file (torch's ``profile_analysis --combine``, SGLang's and TraceLens'
mergers), and one process may drive several devices. Where a file says which of several ranks its one process is, that
rank is the device on which it computes most, and a note counts what the others did: they are no ranks. Whose a device
event is its launch says; where the same id was given out by several processes, the label that a merger puts before its
process numbers (``[TP00] 0``), else the block of the file in which it stands, because mergers write one rank after the
other.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.base.errors import TraceError
from dtbench.traces.kinds.categories import CALLS, DEVICE_CATEGORIES, DEVICE_RANGE, KERNEL, NO_WORK
from dtbench.traces.notes.files import OfNoProcess, StrayWork
from dtbench.traces.notes.note import OfRanks
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.trace import Trace

_HOST: Final = ("cpu_op", "user_annotation", *CALLS)
_LABEL: Final = re.compile(r"\[[^\]]*\]")
_NOBODY: Final = -1
_LEAST_DEVICE: Final = 0.01
"""A device counts from this part of the busiest one's kernel time on: less is a stray copy or a context's set-up."""
_MOST_TURNS: Final = 4
"""So often per process a file may go from one process' rows to another's, to be one rank's rows after the other's."""


@dataclass(frozen=True)
class Part:
    """What one process did on one device.

    Attributes:
        trace: its events alone.
        label: ``process 2000, device 1``; empty: it is all of the file.
        notes: what of the file is in no part; of no rank yet.
    """

    trace: Trace
    label: str = ""
    notes: tuple[OfRanks, ...] = ()


def split_trace(trace: Trace) -> tuple[Part, ...]:
    """Return the parts of a file: one for each process that launched or ran anything, and each device that it drives.

    The parts of a process come in order of their devices' kernel time, longest first, so that the first is the one that
    a rank named by the file would be.

    Raises:
        TraceError: several processes gave out the same ids, and nothing says whose a device event is.
    """
    lanes = _Lanes(trace)
    processes = lanes.processes()
    if len(processes) < 2 and len(lanes.devices()) < 2:
        return (Part(trace),)
    owner = lanes.owners(processes)
    parts: list[Part] = []
    for number, process in enumerate(processes or [""]):
        parts += _split_devices(trace, owner == number, f"process {process}" if len(processes) > 1 else "")
    lost = int(np.count_nonzero(owner == _NOBODY))
    if lost:
        parts[0] = replace(parts[0], notes=(*parts[0].notes, OfNoProcess((), trace.path, lost)))
    # A file of several parts names at most one rank, and not whose it is.
    return tuple(replace(part, trace=replace(part.trace, rank=None)) if part.label else part for part in parts)


def list_processes(trace: Trace) -> list[str]:
    """Return the numbers of the host's processes that ran operators, else of those that called a runtime."""
    return _Lanes(trace).processes()


class _Lanes:
    """What each process number of a file stands for: a process of a host, a device, or both in old traces."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._pids = [pid for pid, _ in trace.lanes]
        pairs = np.bincount(trace.lane.astype(np.int64) * len(trace.categories) + trace.category)
        self._found: dict[str, dict[str, None]] = {category: {} for category in trace.categories}
        for pair in np.flatnonzero(pairs).tolist():
            lane, category = divmod(pair, len(trace.categories))
            self._found[trace.categories[category]][self._pids[lane]] = None

    def devices(self) -> list[str]:
        """Return the numbers of all devices on which anything ran."""
        return list(dict.fromkeys(pid for category in DEVICE_CATEGORIES for pid in self._found.get(category, ())))

    def processes(self) -> list[str]:
        """Return the processes that ran operators, else those that called a runtime, in order of the file."""
        by_kind = ("cpu_op",), CALLS
        found = next((pids for kind in by_kind if (pids := {p for c in kind for p in self._found.get(c, ())})), set())
        return [pid for pid in dict.fromkeys(self._pids) if pid in found]

    def owners(self, processes: Sequence[str]) -> Ints:
        """Return the place of each event's process, shape ``(n,)``; ``_NOBODY`` where none is known."""
        if len(processes) < 2:
            return np.zeros(len(self._trace), dtype=np.int64)
        place = {pid: number for number, pid in enumerate(processes)}
        of_lane = np.array([place.get(pid, _NOBODY) for pid in self._pids], dtype=np.int64)
        is_device = self._trace.is_one_of((*DEVICE_CATEGORIES, DEVICE_RANGE, *NO_WORK))
        owner = np.where(is_device, _NOBODY, of_lane[self._trace.lane])
        device_rows = np.flatnonzero(is_device)
        owner[device_rows] = self._launched_by(device_rows, owner, processes)
        return owner

    def _launched_by(self, rows: Ints, host_owner: Ints, processes: Sequence[str]) -> Ints:
        """Return whose each device row is: by its launch, its label, its block of the file, its device's others."""
        trace = self._trace
        tied = trace.correlation.events
        is_call = trace.is_one_of(CALLS)[tied] & (host_owner[tied] != _NOBODY)
        calls, ids = tied[is_call], trace.correlation.values[is_call]
        wanted = trace.correlation.values_at(rows, 0)
        launched = np.stack(
            [(wanted != 0) & np.isin(wanted, ids[host_owner[calls] == number]) for number in range(len(processes))],
            axis=1,
        )
        fits = self._labelled_alike(rows, processes)
        launched = np.where((launched & fits).any(axis=1, keepdims=True), launched & fits, launched)
        several = launched.sum(axis=1) > 1
        owner = np.where(launched.any(axis=1), launched.argmax(axis=1), _NOBODY)
        if several.any():
            block = self._block_of(host_owner, len(processes))[rows]
            is_told = several & launched[np.arange(len(rows)), block]
            if not (is_told == several).all():
                raise self._cannot_tell(int(several.sum()))
            owner[is_told] = block[is_told]
        return self._fill(rows, owner, fits)

    def _labelled_alike(self, rows: Ints, processes: Sequence[str]) -> Bools:
        """Tell which rows carry the label of which process, shape ``(k, processes)``; all where none is labelled."""
        labels = [_label_of(pid) for pid in processes]
        if None in labels or len(set(labels)) < len(labels):
            return np.ones((len(rows), len(processes)), dtype=np.bool_)
        of_lane = np.array([[_label_of(pid) == label for label in labels] for pid in self._pids], dtype=np.bool_)
        return np.asarray(of_lane[self._trace.lane[rows]])

    def _block_of(self, host_owner: Ints, processes: int) -> Ints:
        """Return whose host rows stand last before each event.

        Raises:
            TraceError: the rows of processes take turns, so that their order says nothing.
        """
        known = np.flatnonzero(host_owner != _NOBODY)
        owners = host_owner[known]
        if np.count_nonzero(np.diff(owners)) > _MOST_TURNS * processes:
            raise self._cannot_tell(int(np.count_nonzero(host_owner == _NOBODY)))
        before = np.searchsorted(known, np.arange(len(host_owner)), side="right") - 1
        return np.asarray(owners[np.maximum(before, 0)], dtype=np.int64)

    def _fill(self, rows: Ints, owner: Ints, fits: Bools) -> Ints:
        """Return rows without a launch to the only process with their label, else to whom most of their device is."""
        labelled = (owner == _NOBODY) & (fits.sum(axis=1) == 1)
        owner[labelled] = fits[labelled].argmax(axis=1)
        devices = np.array(self._pids, dtype=object)[self._trace.lane[rows]]
        votes = Counter(zip(devices[owner != _NOBODY].tolist(), owner[owner != _NOBODY].tolist(), strict=True))
        most: dict[str, int] = {}
        for (device, process), _ in votes.most_common():
            most.setdefault(device, process)
        missing = np.flatnonzero(owner == _NOBODY)
        owner[missing] = [most.get(device, _NOBODY) for device in devices[missing].tolist()]
        return owner

    def _cannot_tell(self, count: int) -> TraceError:
        return TraceError(
            f"{self._trace.path}: several processes in one file gave out the same launch ids, and nothing says whose "
            f"{count} device events are; give one file per rank"
        )


def _label_of(pid: str) -> str | None:
    match = _LABEL.match(pid)
    return None if match is None else match[0]


def _split_devices(trace: Trace, mine: Bools, label: str) -> list[Part]:
    """Part one process' events by device; strays on devices where it computes next to nothing are left out.

    So are all but the busiest device of a process that is known to be one rank of several.
    """
    work = np.flatnonzero(mine & trace.is_one_of(DEVICE_CATEGORIES))
    devices = [trace.lanes[lane][0] for lane in trace.lane[work].tolist()]
    names = list(dict.fromkeys(devices))
    if len(names) < 2:
        return [Part(trace if mine.all() else trace.select(mine), label)]
    place = {name: number for number, name in enumerate(names)}
    of = np.full(len(trace), _NOBODY, dtype=np.int64)
    of[work] = [place[device] for device in devices]
    busy_ns = _kernel_time(trace, of, len(names))
    counted = [number for number in np.argsort(-busy_ns, kind="stable").tolist() if _counts(busy_ns, number)]
    is_one_rank = trace.rank is not None and trace.world_size != 1 and not label
    is_one_of_several = is_one_rank and len(counted) > 1
    counted = counted[:1] if is_one_of_several else counted
    strays = [number for number in range(len(names)) if number not in counted]
    notes = tuple(
        StrayWork(
            ranks=(),
            device=names[number],
            events=int(np.count_nonzero(of == number)),
            time_ns=int((trace.end_ns - trace.start_ns)[of == number].sum()),
            counted_device=names[counted[0]],
            said_rank=trace.rank if is_one_of_several else None,
        )
        for number in strays
    )
    launched_elsewhere = [mine & ~_is_of_other(trace, of, number) for number in counted]
    if len(counted) == 1:
        return [Part(trace.select(launched_elsewhere[0]), label, notes)]
    return [  # what the file calls the job's ranks are processes, not devices
        Part(
            replace(trace.select(kept), world_size=None),
            f"{label}, device {names[number]}".removeprefix(", "),
            notes if not index else (),
        )
        for index, (number, kept) in enumerate(zip(counted, launched_elsewhere, strict=True))
    ]


def _kernel_time(trace: Trace, device_of: Ints, devices: int) -> NDArray[np.int64]:
    """Sum the kernels' time on each device; where nothing is a kernel, that of copies."""
    kernels = np.flatnonzero((device_of != _NOBODY) & trace.is_one_of((KERNEL,)))
    events = kernels if len(kernels) else np.flatnonzero(device_of != _NOBODY)
    busy_ns = np.zeros(devices, dtype=np.int64)
    np.add.at(busy_ns, device_of[events], (trace.end_ns - trace.start_ns)[events])
    return busy_ns


def _counts(busy_ns: NDArray[np.int64], number: int) -> bool:
    """Tell whether a device computes enough to be accounted for; the busiest one always does."""
    return bool(busy_ns[number] >= max(1, _LEAST_DEVICE * busy_ns.max())) or number == int(busy_ns.argmax())


def _is_of_other(trace: Trace, device_of: Ints, number: int) -> Bools:
    """Tell which events ran on, or launched what ran on, another device than this one; shape ``(n,)``."""
    others: Bools = (device_of != _NOBODY) & (device_of != number)
    own_ids = trace.correlation.values_at(np.flatnonzero(device_of == number), 0)
    tied, ids = trace.correlation.events, trace.correlation.values
    other_ids = np.setdiff1d(trace.correlation.values_at(np.flatnonzero(others), 0), own_ids)
    is_call = trace.is_one_of(CALLS)
    others[tied[is_call[tied] & np.isin(ids, other_ids)]] = True
    pids = np.array([pid for pid, _ in trace.lanes], dtype=object)
    own = {trace.lanes[lane][0] for lane in trace.lane[device_of == number].tolist()}
    ranges = np.flatnonzero(trace.is_one_of((DEVICE_RANGE, *NO_WORK)))
    others[ranges[[pid not in own for pid in pids[trace.lane[ranges]].tolist()]]] = True
    return others
