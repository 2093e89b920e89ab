"""The columns of a ``Trace``, filled window by window.

Text becomes a code on first sight, so that a window of thousands of events leaves a few small arrays behind.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import compress
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dtbench.traces.reader.details import communicates, read_details, read_grid
from dtbench.traces.reader.schema import NO_ARGS, SPANNING, Args, Row, is_other_runtimes, spell_category
from dtbench.traces.reader.times import REASONS, Problem, Times
from dtbench.traces.time.intervals import Ints
from dtbench.traces.trace import Details, Sparse

_KERNEL: Final = "kernel"
_LEFT_OUT: Final = -1
# How torch 1.8 to 1.10 wrote the lane of a device event, "stream 7", and of a range on it, "stream 7 user".
_STREAM: Final = "stream "
_USER_STREAM: Final = " user"
_INT64: Final = np.iinfo(np.int64)
_Key = TypeVar("_Key", bound=Hashable)


class _Codes(dict[_Key, int], Generic[_Key]):
    """Gives each value the next number when it is first asked for."""

    def __missing__(self, key: _Key) -> int:
        code = self[key] = len(self)
        return code


class _Labels(dict[tuple[str, str | None, object, object], int]):
    """Codes of (name, category, process, thread), after old spellings became today's: one look-up per event.

    Attributes:
        names: distinct names and their codes.
        categories: distinct categories and their codes.
        has_other_runtime: calls were seen that drive neither CUDA nor HIP.
        lanes: distinct lanes and their codes.
        name: by code of the label, code of its name.
        category: by code of the label, code of its category.
        lane: by code of the label, code of its lane.
        communicates: by code of the label, 1 where the name alone says that the event is about communication.
        is_kernel: by code of the label, 1 for kernels.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: _Codes[str] = _Codes()
        self.categories: _Codes[str] = _Codes()
        self.has_other_runtime = False
        self.lanes: _Codes[tuple[str, str]] = _Codes()
        self.name: list[int] = []
        self.category: list[int] = []
        self.lane: list[int] = []
        self.communicates = bytearray()
        self.is_kernel = bytearray()

    def __missing__(self, key: tuple[str, str | None, object, object]) -> int:
        name, raw, process, thread = key
        if raw in SPANNING:
            code = self[key] = _LEFT_OUT
            return code
        category = spell_category(raw or "")
        self.has_other_runtime |= is_other_runtimes(raw or "")
        code = self[key] = len(self.category)
        self.name.append(self.names[name])
        self.category.append(self.categories[category])
        self.lane.append(self.lanes[_text_of(process), _text_of(thread)])
        self.communicates.append(communicates(name, category))
        self.is_kernel.append(category == _KERNEL)
        return code


def _text_of(number: object) -> str:
    text = str(int(number)) if isinstance(number, float) and number.is_integer() else str(number)
    return text.removeprefix(_STREAM).removesuffix(_USER_STREAM) if text.startswith(_STREAM) else text


class _SparseParts:
    """A sparse column in the making."""

    def __init__(self) -> None:
        self._events: list[Ints] = []
        self._values: list[Ints] = []

    def add(self, events: Ints, values: Ints) -> None:
        self._events.append(events)
        self._values.append(values)

    def join(self) -> Sparse:
        return Sparse(join(self._events, np.int64), join(self._values, np.int64))


def join(parts: list[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    """Concatenate and forget the parts, so that a column is in memory twice only while it is made."""
    whole = np.concatenate(parts) if parts else np.array([], dtype=dtype)
    parts.clear()
    return whole.astype(dtype, copy=False)


class Columns:
    """All columns of a trace in the making."""

    def __init__(self) -> None:
        self.labels = _Labels()
        self.grids: _Codes[str] = _Codes()
        self.label: list[NDArray[np.int32]] = []
        self.start_ns: list[Ints] = []
        self.end_ns: list[Ints] = []
        self.correlation = _SparseParts()
        self.sequence = _SparseParts()
        self.forward_thread = _SparseParts()
        self.grid = _SparseParts()
        self.details: dict[int, Details] = {}
        self.modules: dict[int, str] = {}
        self.unread: Counter[str] = Counter()
        self._length = 0
        self._grid_texts: dict[bytes, int] = {}

    def __len__(self) -> int:
        return self._length

    def add(self, rows: Sequence[Row], times: Times) -> None:
        """Append events; those whose times cannot be read are counted, those that span everything left out."""
        start_ns, duration_ns = times.start_ns, times.duration_ns
        if times.problem.any():
            rows, start_ns, duration_ns = self._leave_out_unread(rows, times)
        labels = self.labels
        label = np.array([labels[row.name, row.cat, row.pid, row.tid] for row in rows], dtype=np.int32)
        kept = label != _LEFT_OUT
        if not kept.all():
            rows = list(compress(rows, kept.tolist()))
            label, start_ns, duration_ns = label[kept], start_ns[kept], duration_ns[kept]
        self.label.append(label)
        self.start_ns.append(start_ns)
        self.end_ns.append(start_ns + duration_ns)
        self._add_args(rows, label)
        self._length += len(rows)

    def _leave_out_unread(self, rows: Sequence[Row], times: Times) -> tuple[Sequence[Row], Ints, Ints]:
        """Count events whose times cannot be read, and give the others with start and duration."""
        spans_everything = np.array([row.cat in SPANNING for row in rows], dtype=np.bool_)
        self._count(times.problem[~spans_everything])
        kept = times.problem == Problem.NONE
        return list(compress(rows, kept.tolist())), times.start_ns[kept], times.duration_ns[kept]

    def _count(self, problems: NDArray[np.int8]) -> None:
        for problem, reason in REASONS.items():
            if found := int(np.count_nonzero(problems == problem)):
                self.unread[reason] += found

    def _add_args(self, rows: Sequence[Row], label: NDArray[np.int32]) -> None:
        first, args = self._length, [row.args for row in rows]
        correlation = _to_int64([one.correlation or 0 for one in args])
        tied = np.flatnonzero(correlation)
        self.correlation.add(tied + first, correlation[tied])
        said = [
            (event, one)
            for event, one in enumerate(args)
            if one is not NO_ARGS
            and (one.sequence is not None or one.modules or one.group is not None or one.collective is not None)
        ]
        self._add_autograd([(event + first, one) for event, one in said if one.sequence is not None])
        self.modules.update((event + first, one.modules) for event, one in said if one.modules)
        speaking = {event for event, one in said if one.group is not None or one.collective is not None}
        speaking.update(np.flatnonzero(np.frombuffer(self.labels.communicates, dtype=np.bool_)[label]).tolist())
        for event in sorted(speaking):
            if args[event] is not NO_ARGS:
                self.details[event + first] = read_details(args[event], rows[event].name)
        self._add_grids(args, np.flatnonzero(np.frombuffer(self.labels.is_kernel, dtype=np.bool_)[label]))

    def _add_autograd(self, said: list[tuple[int, Args]]) -> None:
        events = np.array([event for event, _ in said], dtype=np.int64)
        self.sequence.add(events, _to_int64([one.sequence or 0 for _, one in said]))
        thread = _to_int64([one.forward_thread or 0 for _, one in said])
        backward = np.flatnonzero(thread)
        self.forward_thread.add(events[backward], thread[backward])

    def _add_grids(self, args: Sequence[Args], kernels: Ints) -> None:
        events: list[int] = []
        codes: list[int] = []
        for event in kernels.tolist():
            text = bytes(args[event].grid) + b" " + bytes(args[event].block)
            if text == b" ":
                continue
            code = self._grid_texts.get(text)
            if code is None:
                code = self._grid_texts[text] = self.grids[read_grid(args[event])]
            events.append(event)
            codes.append(code)
        self.grid.add(np.array(events, dtype=np.int64) + self._length, np.array(codes, dtype=np.int64))


def _to_int64(numbers: Iterable[int]) -> Ints:
    """Return integers; those beyond int64 are ids of nothing (a -1 written as unsigned) and become 0."""
    values = list(numbers)
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        return np.array([value if _INT64.min <= value <= _INT64.max else 0 for value in values], dtype=np.int64)
