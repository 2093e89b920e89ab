"""One trace, from its bytes to its columns."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from dtbench.base.errors import TraceError
from dtbench.base.units import format_bytes
from dtbench.traces.garbage import without_collection
from dtbench.traces.reader.arrows import Arrows
from dtbench.traces.reader.columns import Columns, join
from dtbench.traces.reader.decode import INVALID, Sink, TypedDecoder
from dtbench.traces.reader.engine_ranges import settle_engine_ranges
from dtbench.traces.reader.header import read_distributed, read_origin
from dtbench.traces.reader.inflate import Chunks
from dtbench.traces.reader.lenient import NO_EVENTS, NOTHING_MORE, LenientReader, Progress
from dtbench.traces.reader.other_files import PEEK_BYTES, name_binary, name_json, name_other_maker, refuse
from dtbench.traces.reader.source import TraceSource
from dtbench.traces.reader.timeless import leave_out_timeless
from dtbench.traces.reader.windows import Buffer, find_array_start
from dtbench.traces.trace import Trace, Unread

_WINDOW_BYTES: Final = 1 << 20
_LARGEST_HEADER: Final = 1 << 26
_LARGEST_TRAILER: Final = 1 << 26
_LARGEST_EVENT: Final = 1 << 25
_MOST_BEFORE_FIRST: Final = 1 << 26
_MOST_BETWEEN: Final = 1 << 28
_MOST_DEFECTS: Final = 1 << 17
_DEFECTS_PER_EVENT: Final = 16
"""Bytes without an event, and what is none: behind so many none is looked for, as in a packed gigabyte."""
_LARGEST_KEPT_BLOCK: Final = 31 << 20
_BOM: Final = b"\xef\xbb\xbf"
_PHASE: Final = re.compile(rb'"ph"\s*:')
_OTHER_PACKINGS: Final = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "zip",
}
_TAR_MAGIC: Final = b"ustar"
_TAR_MAGIC_AT: Final = 257  # POSIX.1-1988, ustar header


def read_trace(source: TraceSource | Path, *, window_bytes: int = _WINDOW_BYTES) -> Trace:
    """Read one trace, in windows: memory is the columns and a few windows, whatever the size of the file.

    Args:
        source: a file, plain or gzipped, or a member of an archive.
        window_bytes: how much text is decoded at a time; an event larger than that is read all the same.

    Raises:
        TraceError: it cannot be opened, is empty, is no trace, or ends before its first event; names the file and what
            to do. A file that is cut later, or damaged, is read as far as possible: see ``Trace.unread``.
    """
    one = source if isinstance(source, TraceSource) else TraceSource(source)
    _keep_freed_memory()
    with one.open() as stream, without_collection():
        return _Reading(one, Chunks(stream, window_bytes)).read()


def _keep_freed_memory() -> None:
    """Have glibc keep the memory that each window frees for the next, in place of giving it back and asking anew.

    Freeing a mapped block of up to 32 MiB raises glibc's thresholds for mapping and trimming (mallopt(3), "dynamic mmap
    threshold"). No page of this one is touched; elsewhere it does nothing. Of 500 MB it spares 60,000 page faults.
    """
    np.empty(_LARGEST_KEPT_BLOCK, dtype=np.uint8)


class _Reading:
    """The state of reading one trace."""

    def __init__(self, source: TraceSource, chunks: Chunks) -> None:
        self._source = source
        self._chunks = chunks
        self._first = b""
        self._columns = Columns()
        self._arrows = Arrows()
        sink = Sink(self._columns, self._arrows)
        self._typed = TypedDecoder(sink)
        self._lenient = LenientReader(sink, self._typed)

    def read(self) -> Trace:
        texts = iter(self._chunks)
        header, events = self._read_header(texts)
        is_bare = header.rstrip().removeprefix(_BOM) == b"["
        trailer = self._read_events(events, texts)
        is_whole = trailer is not None and (is_bare or trailer.rstrip(b" \t\r\n\0").endswith(b"}"))
        if self._chunks.is_altered:
            self._columns.unread["gzip checksum does not fit"] += 1
        return self._build(header, trailer or b"", is_truncated=not is_whole or self._chunks.is_cut)

    def _read_header(self, texts: Iterator[bytes]) -> tuple[bytes, bytes]:
        """Return the text up to the bracket in front of the first event, and what was read of the events."""
        text = b""
        for chunk in texts:
            is_first = not text
            text = text + chunk if text else chunk.removeprefix(_BOM)
            if is_first or len(text) < 2 * _TAR_MAGIC_AT:
                self._refuse_other_kinds(text)
            self._first = text[:PEEK_BYTES] if len(self._first) < PEEK_BYTES else self._first
            place = find_array_start(text)
            if place is not None:
                return text[:place], text[place:]
            if len(text) > _LARGEST_HEADER:
                break
        raise self._no_events(text)

    def _refuse_other_kinds(self, text: bytes) -> None:
        if text[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == _TAR_MAGIC:
            raise TraceError(f"{self._source.label}: a tar archive; give one of its traces")
        for magic, name in _OTHER_PACKINGS.items():
            if text.startswith(magic):
                raise TraceError(f"{self._source.label}: packed with {name}; unpack it, or pack it with gzip")
        what = name_binary(text, self._source.name)
        if what is not None:
            raise refuse(self._source.label, what)
        start = text.lstrip()[:1]
        if start and start not in b'{["0123456789-tfn':
            raise TraceError(
                f"{self._source.label}: not readable as JSON (it begins with {text.lstrip()[:20]!r}); "
                "was it edited, or is it another kind of file?"
            )

    def _no_events(self, text: bytes) -> TraceError:
        if not text.strip():
            return TraceError(f"{self._source.label}: empty; did the rank die before it wrote its trace?")
        what = name_json(text)
        if what is not None:
            return refuse(self._source.label, what)
        if self._chunks.is_cut or (text.lstrip().startswith(b"{") and not text.rstrip().endswith(b"}")):
            return TraceError(
                f"{self._source.label}: cut short before its first event; did the rank die while writing?"
            )
        return TraceError(
            f"{self._source.label}: not a trace (it has no list of traceEvents); give a Kineto trace, as "
            "torch.profiler writes it"
        )

    def _cut_short(self) -> TraceError:
        return TraceError(f"{self._source.label}: cut short before its first event; did the rank die while writing?")

    def _read_events(self, first: bytes, texts: Iterator[bytes]) -> bytes | None:
        """Read all events and give the text behind them; None: the array of events does not end."""
        buffer = Buffer()
        buffer.append(first)
        enough, barren = 0, len(first)
        for text in texts:
            buffer.append(text)
            barren += len(text)
            if self._is_in_vain(barren):
                self._columns.unread[NOTHING_MORE] += 1
                return None
            if len(buffer) < enough:
                continue
            unread = self._columns.unread.total()
            is_hopeless = len(buffer) > _LARGEST_EVENT
            end, following = buffer.find_last_border() or ((len(buffer),) * 2 if is_hopeless else (0, 0))
            is_fruitful = buffer.has_object(end)
            progress = self._read_window(buffer, end, is_last=is_hopeless)
            if progress.is_end:
                return self._read_trailer(buffer, progress.consumed, texts)
            if is_fruitful and progress.consumed and self._columns.unread.total() == unread:
                barren = 0
            # Where nothing could be read, an event is larger than a window: wait until there is twice as much.
            enough = 0 if progress.consumed else 2 * len(buffer)
            buffer.drop(following if progress.consumed == end else progress.consumed)
        bracket = buffer.find_array_end()
        if bracket is not None and self._read_valid(buffer, bracket):
            return buffer.text(len(buffer))[bracket + 1 :]
        progress = self._read_window(buffer, len(buffer), is_last=True)
        return buffer.text(len(buffer))[progress.consumed :] if progress.is_end else None

    def _is_in_vain(self, barren: int) -> bool:
        """Tell whether to look for no more events, ``barren`` bytes behind the last one."""
        events = len(self._columns)
        is_barren = barren > (_MOST_BETWEEN if events else _MOST_BEFORE_FIRST)
        return is_barren or self._columns.unread.total() > max(_MOST_DEFECTS, _DEFECTS_PER_EVENT * events)

    def _read_window(self, buffer: Buffer, length: int, *, is_last: bool) -> Progress:
        if self._read_valid(buffer, length):
            return Progress(length)
        return self._lenient.read(buffer.text(length), is_last=is_last)

    def _read_valid(self, buffer: Buffer, length: int) -> bool:
        """Read the first bytes if they are valid as they stand; else nothing."""
        try:
            with buffer.as_array(length) as array:
                self._typed.decode(array)
        except INVALID:
            return False
        return True

    def _read_trailer(self, buffer: Buffer, consumed: int, texts: Iterator[bytes]) -> bytes:
        parts = [buffer.text(len(buffer))[consumed:]]
        size = len(parts[0])
        for chunk in texts:
            size += len(chunk)
            if size < _LARGEST_TRAILER:
                parts.append(chunk)
        return b"".join(parts)

    def _build(self, header: bytes, trailer: bytes, *, is_truncated: bool) -> Trace:
        columns = self._columns
        if lost := len(_PHASE.findall(trailer)):
            columns.unread["text behind the end"] += lost
        if self._arrows.unread:
            columns.unread["arrow without a time"] += self._arrows.unread
        if columns.unread.get(NOTHING_MORE) and not len(columns):
            raise TraceError(
                f"{self._source.label}: no event in the first {format_bytes(_MOST_BEFORE_FIRST)} of it, or nothing but "
                "what is none; give a Kineto trace, as it was written"
            )
        if columns.unread and not len(columns) and columns.unread.keys() <= NO_EVENTS:
            raise TraceError(
                f"{self._source.label}: no event in it can be read; give a Kineto trace, as it was written"
            )
        if is_truncated and not len(columns):
            raise self._cut_short()
        distributed, origin = read_distributed(header, trailer), read_origin(header, trailer)
        labels, label = columns.labels, join(columns.label, np.int32)
        trace = Trace(
            path=self._source.label,
            rank=distributed.rank,
            world_size=distributed.world_size,
            names=tuple(labels.names),
            categories=tuple(labels.categories),
            lanes=tuple(labels.lanes),
            name=np.array(labels.name, dtype=np.int32)[label],
            category=np.array(labels.category, dtype=np.int16)[label],
            lane=np.array(labels.lane, dtype=np.int32)[label],
            start_ns=join(columns.start_ns, np.int64),
            end_ns=join(columns.end_ns, np.int64),
            correlation=columns.correlation.join(),
            sequence=columns.sequence.join(),
            forward_thread=columns.forward_thread.join(),
            grid=columns.grid.join(),
            has_other_runtime=labels.has_other_runtime,
            grids=tuple(columns.grids),
            flows=self._arrows.pair(),
            details=columns.details,
            modules=columns.modules,
            group_descriptions=distributed.descriptions,
            group_ranks=distributed.ranks,
            unread=Unread(dict(columns.unread), is_truncated),
            host=origin.host,
            base_ns=origin.base_ns,
            machine=origin.machine,
            devices=origin.devices,
        )
        what = name_other_maker(self._first, trace)
        if what is not None:
            raise refuse(self._source.label, what)
        return settle_engine_ranges(leave_out_timeless(trace))
