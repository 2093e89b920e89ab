"""A Kineto trace file as columns of exact integer nanoseconds: the one reader that every analysis starts from.

Plain or gzipped is told by content, not by name. Only complete events (``ph: X``) are kept. Kineto writes microseconds
with three decimals; a float64 below 2**43 us still knows them, but ``round(ts * 1000)`` does not, see [Note: exact
times].
"""

import gzip
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from dtbench.analyze.intervals import Ints
from dtbench.analyze.trace import Details, Sparse, Trace, Unread
from dtbench.errors import TraceError

_GZIP_MAGIC: Final = b"\x1f\x8b"
_EXACT_BELOW_US: Final = float(2**43)  # above it neighbouring float64 are more than 0.001 us apart
_SPANNING: Final = frozenset({"Trace", "Spans"})  # rows of Kineto's own that span everything


class _Args(msgspec.Struct, gc=False):
    correlation: int | None = None
    collective: str | None = msgspec.field(default=None, name="Collective name")
    group: str | int | None = msgspec.field(default=None, name="Process Group Name")
    group_description: str | None = msgspec.field(default=None, name="Process Group Description")
    group_size: int | None = msgspec.field(default=None, name="Group size")
    dtype: str | None = None
    in_elements: int | None = msgspec.field(default=None, name="In msg nelems")
    out_elements: int | None = msgspec.field(default=None, name="Out msg nelems")
    seq: int | None = msgspec.field(default=None, name="Seq")
    shapes: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"[]"), name="Input Dims")
    dtypes: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"[]"), name="Input type")
    values: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"[]"), name="Concrete Inputs")
    sequence: int | None = msgspec.field(default=None, name="Sequence number")
    forward_thread: int | None = msgspec.field(default=None, name="Fwd thread id")


class _Row(msgspec.Struct, gc=False, kw_only=True):
    ph: str = ""
    name: str = ""
    cat: str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    args: _Args | None = None


class _Event(_Row, gc=False, kw_only=True):
    ts: float = math.nan
    dur: float = math.nan


class _ExactEvent(_Row, gc=False, kw_only=True):
    ts: Decimal | None = None
    dur: Decimal | None = None


class _Group(msgspec.Struct):
    pg_name: str = ""
    pg_desc: str = ""


class _Distributed(msgspec.Struct):
    rank: int | None = None
    world_size: int | None = None
    pg_config: list[_Group] = []


class _File(msgspec.Struct):
    traceEvents: list[_Event]  # noqa: N815 - Kineto's key
    distributedInfo: msgspec.Raw = msgspec.Raw(b"{}")  # noqa: N815 - Kineto's key


class _LooseFile(msgspec.Struct):
    traceEvents: list[msgspec.Raw]  # noqa: N815 - Kineto's key
    distributedInfo: msgspec.Raw = msgspec.Raw(b"{}")  # noqa: N815 - Kineto's key


@dataclass(frozen=True)
class _Rows:
    """Complete events with their times, before they become columns."""

    rows: Sequence[_Row]
    start_ns: Ints
    duration_ns: Ints
    unread: int
    distributed: msgspec.Raw


def read_trace(path: Path) -> Trace:
    """Read one trace.

    Raises:
        TraceError: the file is missing, empty, cut short or no trace; names the file and what to do.
    """
    content = _read_content(path)
    rows = _decode(content, path)
    return _build_trace(path, rows)


_LARGEST_US = 2**52  # 142 years; in ns, a start and a duration below it add up within int64
_TAR_MAGIC_AT = 257  # POSIX.1-1988, ustar header


def _read_content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TraceError(f"{path}: cannot be opened ({error.strerror}); check the name") from error
    if content.startswith(_GZIP_MAGIC):
        try:
            content = gzip.decompress(content)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise TraceError(f"{path}: cut short ({error}); did the rank die while writing?") from error
    if content[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar":
        raise TraceError(f"{path}: a tar archive; unpack it and give its folder")
    content = content.removeprefix(b"\xef\xbb\xbf").strip()
    if not content:
        raise TraceError(f"{path}: empty; did the rank die before it wrote its trace?")
    return content


def _decode(content: bytes, path: Path) -> _Rows:
    if content.startswith(b"["):
        content = b'{"traceEvents":' + content + b"}"
    try:
        file = msgspec.json.decode(content, type=_File)
    except msgspec.ValidationError:
        return _decode_loosely(content, path)  # some event is not as it should be: lose that one, not the file
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _refusal(path, error) from error
    events = [event for event in file.traceEvents if event.ph == "X" and event.cat not in _SPANNING]
    start_us = np.array([event.ts for event in events], dtype=np.float64)
    duration_us = np.array([event.dur for event in events], dtype=np.float64)
    in_range = (np.abs(start_us) < _LARGEST_US) & (duration_us < _LARGEST_US)
    readable = in_range & (duration_us >= 0)  # NaN compares false
    is_large = np.any(np.abs(start_us[readable]) >= _EXACT_BELOW_US)
    if is_large and (np.any(start_us[readable] % 1 != 0) or np.any(duration_us[readable] % 1 != 0)):
        return _decode_loosely(content, path)
    return _Rows(
        rows=[event for event, kept in zip(events, readable, strict=True) if kept],
        start_ns=_to_ns(start_us[readable]),
        duration_ns=_to_ns(duration_us[readable]),
        unread=int((~readable).sum()),
        distributed=file.distributedInfo,
    )


def _to_ns(microseconds: NDArray[np.float64]) -> Ints:
    """[Note: exact times] Whole and fraction apart: the subtraction is exact, and a small product rounds right."""
    whole = np.floor(microseconds)
    return whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)


def _is_in_range(start_us: Decimal, duration_us: Decimal) -> bool:
    return (
        start_us.is_finite()
        and duration_us.is_finite()
        and abs(start_us) < _LARGEST_US
        and 0 <= duration_us < _LARGEST_US
    )


def _decode_loosely(content: bytes, path: Path) -> _Rows:
    """Decode event by event, times from their decimal text; slower, loses and counts only what cannot be read."""
    try:
        file = msgspec.json.decode(content, type=_LooseFile)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _refusal(path, error) from error
    decoder = msgspec.json.Decoder(_ExactEvent)
    rows: list[_Row] = []
    times: list[tuple[int, int]] = []
    unread = 0
    for raw in file.traceEvents:
        try:
            event = decoder.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            unread += 1
            continue
        if event.ph != "X" or event.cat in _SPANNING:
            continue
        if event.ts is None or event.dur is None or not _is_in_range(event.ts, event.dur):
            unread += 1
            continue
        rows.append(event)
        times.append((round(event.ts * 1000), round(event.dur * 1000)))
    columns = np.array(times, dtype=np.int64).reshape(-1, 2)
    return _Rows(rows, columns[:, 0], columns[:, 1], unread, file.distributedInfo)


def _refusal(path: Path, error: Exception) -> TraceError:
    if "truncated" in str(error):
        return TraceError(f"{path}: cut short ({error}); did the rank die while writing?")
    if isinstance(error, msgspec.ValidationError):
        return TraceError(f"{path}: not a trace ({error}); give a Kineto trace, as torch.profiler writes it")
    return TraceError(f"{path}: not readable as JSON ({error}); was it edited, or is it another kind of file?")


def _build_trace(path: Path, rows: _Rows) -> Trace:
    names: dict[str, int] = {}
    categories: dict[str, int] = {}
    lanes: dict[tuple[str, str], int] = {}
    name = [names.setdefault(row.name, len(names)) for row in rows.rows]
    category = [categories.setdefault(row.cat or "", len(categories)) for row in rows.rows]
    lane = [lanes.setdefault((str(row.pid), str(row.tid)), len(lanes)) for row in rows.rows]
    distributed = _read_distributed(rows.distributed)
    return Trace(
        path=str(path),
        rank=distributed.rank,
        world_size=distributed.world_size,
        names=tuple(names),
        categories=tuple(categories),
        lanes=tuple(lanes),
        name=np.array(name, dtype=np.int32),
        category=np.array(category, dtype=np.int16),
        lane=np.array(lane, dtype=np.int32),
        start_ns=rows.start_ns,
        end_ns=rows.start_ns + rows.duration_ns,
        correlation=_gather(rows.rows, lambda args: args.correlation or None),
        sequence=_gather(rows.rows, lambda args: args.sequence),
        forward_thread=_gather(rows.rows, lambda args: args.forward_thread or None),
        details={
            event: _details(row.args, row.name)
            for event, row in enumerate(rows.rows)
            if row.args and _communicates(row)
        },
        group_descriptions={group.pg_name: group.pg_desc for group in distributed.pg_config},
        unread=Unread({"not an event": rows.unread} if rows.unread else {}),
    )


def _gather(rows: Sequence[_Row], value: Callable[[_Args], int | None]) -> Sparse:
    found = [(event, one) for event, row in enumerate(rows) if row.args and (one := value(row.args)) is not None]
    columns = np.array(found, dtype=np.int64).reshape(-1, 2)
    return Sparse(columns[:, 0], columns[:, 1])


def _communicates(row: _Row) -> bool:
    if row.args is not None and (row.args.collective is not None or row.args.group is not None):
        return True
    return row.name.startswith(("gloo:", "nccl:", "c10d::", "_c10d_functional::"))


def _details(args: _Args, name: str) -> Details:
    try:
        shapes = tuple(msgspec.json.decode(args.shapes, type=list[object]))
        dtypes = tuple(msgspec.json.decode(args.dtypes, type=list[str]))
    except msgspec.DecodeError:
        shapes, dtypes = (), ()
    return Details(
        collective=args.collective,
        group=None if args.group is None else str(args.group),
        group_description=args.group_description,
        group_size=args.group_size,
        dtype=args.dtype,
        in_elements=args.in_elements,
        out_elements=args.out_elements,
        seq=args.seq,
        shapes=shapes,
        dtypes=dtypes,
        is_async=_is_async(args.values) if name.startswith("c10d::") else None,
    )


def _is_async(values: msgspec.Raw) -> bool | None:
    """Read ``asyncOp``, the only truth value among the arguments of c10d's operators."""
    try:
        said = [value for value in msgspec.json.decode(values, type=list[str]) if value in ("True", "False")]
    except msgspec.DecodeError:
        return None
    return said[-1] == "True" if said else None


def _read_distributed(raw: msgspec.Raw) -> _Distributed:
    try:
        return msgspec.json.decode(raw, type=_Distributed)
    except msgspec.DecodeError:
        return _Distributed()
