"""One archive with the traces of all ranks, which Perfetto opens with the ranks beside each other, clocks lined up.

::

    out.tar
      perfetto_manifest.json     version 1: a machine per rank, and what to add to each trace's times
      0_rank3.json               the rank whose clock is furthest ahead: every other is moved later, none before zero
      1_rank0.json               the others in order of rank, each byte for byte as the profiler wrote it, unzipped
      ...

[Note: what Perfetto asks of an archive] From its reference (https://perfetto.dev/docs/reference/perfetto-manifest), its
reader (``src/trace_processor/plugins/perfetto_manifest/perfetto_manifest_reader.cc``) and the tests of that reader
(``test/trace_processor/diff_tests/parser/trace_manifest/tests.py``):

* ``clocks`` of a trace without a clock of its own, as Chrome's JSON, is ``{"sync_to": {"file": F}, "offset_ns": N}``:
  when this file reads T, file F reads T + N. N is one number: a drift cannot be said.
* The first trace gives the common timeline, and traces are taken in order of *name*, wherever they stand in the
  archive. An event that comes before zero there is dropped.
* A file of its own ``machine`` keeps its process ids to itself. Kineto calls the devices of every rank 0, 1, ..., so
  each rank is a machine.
* Neither ``machine`` nor ``clocks`` may be said of a gzipped member, and a trace that is cut short keeps the whole
  archive from opening.
* Its tar reader knows POSIX's and GNU's headers, not pax's, and skips members whose name begins with a dot.

Perfetto reads manifests since version 58.
"""

import json
import os
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from dtbench.base.errors import StoreError, TraceError
from dtbench.base.units import NS_PER_S, count_things, format_ns, name_ranks
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.note import say_notes
from dtbench.traces.ranks.clocks.times import Clock
from dtbench.traces.reader.find import PERFETTO_MANIFEST
from dtbench.traces.reader.inflate import Chunks
from dtbench.traces.reader.source import TraceSource
from dtbench.traces.trace import Unread

ENDING: Final = ".tar"
_COPIED_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class ArchivedTrace:
    """One rank's trace in the archive.

    Attributes:
        rank: global rank.
        source: where its bytes are.
        member: its name in the archive.
        clock: as the analysis of all ranks found it.
        offset_ns: what is added to its times to get those of the common timeline; at least 0.
        is_aligned: it is known how far its clock is from that of the common timeline; where not, and nothing tells it
            of its clock, its own times stand.
    """

    rank: int
    source: TraceSource
    member: str
    clock: Clock
    offset_ns: int
    is_aligned: bool

    @property
    def machine(self) -> str:
        """What Perfetto calls it."""
        return f"rank {self.rank}"


@dataclass(frozen=True)
class ArchivePlan:
    """What goes into the archive.

    Attributes:
        traces: at least one, in order of rank.
        notes: what is left out, and what a reader of the picture must know.
    """

    traces: tuple[ArchivedTrace, ...]
    notes: tuple[str, ...]

    @property
    def reference(self) -> ArchivedTrace:
        """The trace whose own times are the common timeline."""
        return min(self.traces, key=lambda trace: trace.member)


def plan_archive(traces: TraceSet, sources: Iterable[TraceSource]) -> ArchivePlan:
    """Decide which traces go into an archive, under which names, and how far each is moved.

    Args:
        traces: of one job, analysed.
        sources: of at least these traces.

    Raises:
        TraceError: every trace is cut short.
    """
    by_label = {source.label: source for source in sources}
    unread = {one.rank: unread for one, unread in zip(traces.analyses, traces.unread, strict=True)}
    whole = {one.rank: by_label[one.timeline.path] for one in traces.analyses if not unread[one.rank].is_truncated}
    if not whole:
        raise TraceError("every trace is cut short, and Perfetto opens none that is; did the ranks die while writing?")
    clocks = {rank: traces.over_ranks.clocks.by_rank.get(rank, Clock()) for rank in whole}
    told = [rank for rank, clock in clocks.items() if clock.uncertainty_ns is not None] or [*clocks]
    ahead = max(clocks[rank].offset_ns for rank in told)
    reference = next(rank for rank in told if clocks[rank].offset_ns == ahead)
    aligned = {
        rank
        for rank in whole
        if whole[rank].label == whole[reference].label  # one file has one clock
        or traces.over_ranks.clocks.can_compare(reference, rank)
    }
    order = sorted(whole, key=lambda rank: (rank != reference, rank))
    width = len(str(len(order) - 1))
    names = {rank: f"{place:0{width}d}_rank{rank}.json" for place, rank in enumerate(order)}
    archived = tuple(
        ArchivedTrace(
            rank=rank,
            source=whole[rank],
            member=names[rank],
            clock=clock,
            offset_ns=ahead - clock.offset_ns if rank in aligned or rank in told else 0,
            is_aligned=rank in aligned,
        )
        for rank, clock in sorted(clocks.items())
    )
    cut = [one.rank for one in traces.analyses if one.rank not in whole]
    notes = (
        *_describe_lone(traces),
        *_describe_cut(cut),
        *_describe_shared(archived),
        *say_notes(traces.notes),
        *_describe_unread(unread, whole),
        *_describe_clocks(archived),
    )
    return ArchivePlan(archived, notes)


def _describe_lone(traces: TraceSet) -> list[str]:
    """Say that one rank of several is alone; what is said over ranks names those that are missing."""
    is_alone = len(traces.analyses) == 1 and (traces.world_size or 1) > 1
    return [f"1 of the {traces.world_size} ranks is there: give all traces of the job"] if is_alone else []


def _describe_cut(ranks: Sequence[int]) -> list[str]:
    if not ranks:
        return []
    are, traces, them = ("is", "its trace is", "it") if len(ranks) == 1 else ("are", "their traces are", "them")
    why = f"{traces} cut short, and with {them} Perfetto would open none of the others"
    return [f"{name_ranks(ranks)} {are} left out: {why}"]


def _describe_shared(traces: Sequence[ArchivedTrace]) -> list[str]:
    """Say which ranks are in one file: each is there whole, so that it shows the others, too."""
    by_file: dict[str, list[int]] = defaultdict(list)
    for trace in traces:
        by_file[trace.source.label].append(trace.rank)
    return [
        f"{name_ranks(ranks)} are in one file, which is written whole for each: each of these machines shows them all"
        for ranks in by_file.values()
        if len(ranks) > 1
    ]


def _describe_unread(unread: Mapping[int, Unread], ranks: Iterable[int]) -> list[str]:
    """Say what Perfetto may stumble over, once for all ranks of which it is the same."""
    alike: dict[str, list[int]] = defaultdict(list)
    for rank in ranks:
        if unread[rank].count:
            what = f"{count_things(unread[rank].count, 'event')} cannot be read ({', '.join(unread[rank].events)})"
            alike[what].append(rank)
    may = "Perfetto may pass over them or refuse the archive"
    return [f"{name_ranks(same)}: {what}; {may}" for what, same in alike.items()]


def _describe_clocks(traces: Sequence[ArchivedTrace]) -> list[str]:
    """Say where the picture is not on one clock; that ranks are not in step, the analysis says."""
    notes = [
        f"{trace.machine}: its clock gains {format_ns(abs(trace.clock.drift) * NS_PER_S)} a second on the others', "
        "which one offset cannot follow; it is right in the middle of the trace"
        for trace in traces
        if trace.clock.drift
    ]
    files = {trace.source.label for trace in traces}  # ranks of one file have one clock
    alone = [trace.rank for trace in traces if trace.clock.uncertainty_ns is None and not trace.is_aligned]
    if alone and len(files) > 1:
        several = "their own times stand" if len(alone) > 1 else "its own times stand"
        notes.append(f"{name_ranks(alone)}: no collective tells how far the clock is off; {several}")
    return notes


def make_manifest(plan: ArchivePlan) -> dict[str, object]:
    """Return the manifest. See [Note: what Perfetto asks of an archive]."""
    files = []
    for trace in plan.traces:
        entry: dict[str, object] = {"path": trace.member, "machine": {"name": trace.machine}}
        if trace is not plan.reference:
            entry["clocks"] = {"sync_to": {"file": plan.reference.member}, "offset_ns": trace.offset_ns}
        files.append(entry)
    return {"perfetto_manifest": {"version": 1, "files": files}}


def write_archive(plan: ArchivePlan, path: Path) -> int:
    """Write the archive in one pass, a trace never whole in memory; gives its size in bytes.

    What was at ``path`` is replaced once the archive is whole; if it cannot be written, nothing is left behind.

    Raises:
        StoreError: it cannot be written.
        TraceError: a trace cannot be opened any more.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            _write_members(plan, _Archive(path, file))
        size_bytes = temporary.stat().st_size
        temporary.replace(path)
    except OSError as error:
        raise _not_written(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return size_bytes


def _write_members(plan: ArchivePlan, archive: "_Archive") -> None:
    archive.add(PERFETTO_MANIFEST, [json.dumps(make_manifest(plan), indent=1).encode()])
    for trace in plan.traces:
        with trace.source.open() as stream:
            archive.add(trace.member, Chunks(stream, _COPIED_BYTES))
    archive.end()


class _Archive:
    """A tar file that is written member by member, the size of each known only when it has ended.

    ``tarfile`` wants the size before the content: here the header is filled in afterwards.
    """

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = file

    def add(self, name: str, chunks: Iterable[bytes]) -> None:
        """Add a member.

        Args:
            name: at most 100 ASCII characters.
            chunks: its content.
        """
        header = self._file.tell()
        info = tarfile.TarInfo(name)
        self._write(_to_header(info))
        for chunk in chunks:
            info.size += len(chunk)
            self._write(chunk)
        self._write(bytes(-info.size % tarfile.BLOCKSIZE))
        end = self._file.tell()
        self._file.seek(header)
        self._write(_to_header(info))
        self._file.seek(end)

    def end(self) -> None:
        """Write the two empty blocks that end an archive."""
        self._write(bytes(2 * tarfile.BLOCKSIZE))

    def _write(self, data: bytes) -> None:
        """Write, and fail by name: the file that is read meanwhile would be taken for the culprit."""
        try:
            self._file.write(data)
        except OSError as error:
            raise _not_written(self._path, error) from error


def _to_header(info: tarfile.TarInfo) -> bytes:
    header = info.tobuf(tarfile.GNU_FORMAT)
    assert len(header) == tarfile.BLOCKSIZE
    return header


def _not_written(path: Path, error: OSError) -> StoreError:
    return StoreError(f"{path}: cannot be written ({error.strerror or error}); free some space or choose another place")
