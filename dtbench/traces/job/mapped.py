"""The answers of traces as files: made on each node where its traces lie (map), put together anywhere (reduce).

::

    node 0   traces of ranks 0-7    --map-->   OUT/rank00000_1f....parquet ...   |
    node 1   traces of ranks 8-15   --map-->   OUT/rank00008_8a....parquet ...   |--reduce-->  the answer
    ...                                                                          |

A file holds what a process that reads a trace sends to the one that asked (``many.py``), in columns that
``parquet_values.py`` derives from the records' annotations. What they are so is one version: files of another, or of
another dtbench, are refused and not guessed at.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from dtbench.base.commands import spell_word
from dtbench.base.errors import NO_ROOM, TraceError
from dtbench.traces.job.parquet_values import Codec, codec_of, fields_of
from dtbench.traces.kinds.patterns import KernelPattern
from dtbench.traces.notes.note import Note, join_ranks
from dtbench.traces.notes.note import OfRanks as NoteOfRanks
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.rank.file import Analyzed, Answer, TraceFile, Unusable
from dtbench.traces.reader.source import TraceSource
from dtbench.traces.trace import Unread

ENDING: Final = ".parquet"
_VERSION_KEY: Final = b"dtbench_map"
_NAMED_AT_MOST: Final = 3


@dataclass(frozen=True)
class MappedTrace:
    """What is left of one trace, or of one part of a file: the columns of its file, which has one row.

    Attributes:
        place: among the answers of its map.
        source: where the trace lay.
        rank: where somebody told it better than the trace.
        part_of_file: which of the file's parts; None: all of it.
        patterns: a user's own kernels, by which it was read.
        step_range: name of the ranges that are its steps; empty: as the profiler marks them.
        reason: why no number can come from it; None: ``analysis`` has them.
        analysis: what it says; None: nothing.
        said_rank: as the trace says; None where it does not.
        world_size: likewise.
        unread: what of it is in no column.
        part: what of the file it is, in words; empty: all.
        notes: what of it is in no number.
        found_notes: what was left out when its map looked for traces; with the first of them alone.
    """

    place: int
    source: TraceSource
    rank: int | None
    part_of_file: int | None
    patterns: tuple[KernelPattern, ...]
    step_range: str
    reason: str | None = None
    analysis: TraceAnalysis | None = None
    said_rank: int | None = None
    world_size: int | None = None
    unread: Unread = field(default_factory=Unread)
    part: str = ""
    notes: tuple[NoteOfRanks, ...] = ()
    found_notes: tuple[Note, ...] = ()

    @classmethod
    def of(cls, answer: Answer, place: int, found_notes: Sequence[Note] = ()) -> "MappedTrace":
        """Take an answer apart."""
        file = answer.file
        assert file.facts is None  # a run has its own tables
        asked = cls(place, file.source, file.rank, file.part, file.patterns, file.step_range)
        told: dict[str, object] = {"found_notes": tuple(found_notes)}
        if isinstance(answer, Unusable):
            told["reason"] = answer.reason
        else:
            names = ("analysis", "said_rank", "world_size", "unread", "part", "notes")
            told |= {name: getattr(answer, name) for name in names}
        return cls(**{**vars(asked), **told})

    def answer(self) -> Answer:
        """Put the answer together again."""
        file = TraceFile(
            self.source, self.rank, patterns=self.patterns, part=self.part_of_file, step_range=self.step_range
        )
        if self.analysis is None:
            return Unusable(file, self.reason or "")
        return Analyzed(file, self.analysis, self.said_rank, self.world_size, self.unread, self.part, self.notes)


def write_map(folder: Path, answers: Sequence[Answer], notes: Sequence[Note] = ()) -> list[Path]:
    """Write a file per answer, and return them; what others have written there is left alone.

    The same trace of the same machine has the same file, so that a map can be made again.

    Args:
        folder: made where it is not there.
        answers: of traces without a run.
        notes: what finding them left out.

    Raises:
        TraceError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [
            _write(folder, MappedTrace.of(answer, place, notes if place == 0 else ()))
            for place, answer in enumerate(answers)
        ]
    except OSError as error:
        what = "free space, or give another folder" if error.errno in NO_ROOM else "give a folder that can be written"
        raise TraceError(f"{folder}: cannot be written ({error.strerror}); {what}") from error


def _write(folder: Path, mapped: MappedTrace) -> Path:
    path = folder / f"{_name(mapped)}{ENDING}"
    codecs = _codecs()
    columns = [pa.array([codec.pack(getattr(mapped, name))], codec.arrow) for name, codec in codecs.items()]
    table = pa.table(columns, schema=pa.schema(_schema(), metadata={_VERSION_KEY: _version()}))
    beside = path.with_name(f".{path.name}.{os.getpid()}")  # a reader never sees half of one
    pq.write_table(table, beside, compression="zstd", use_dictionary=False, write_statistics=False)  # of one row
    beside.replace(path)
    return path


def _name(mapped: MappedTrace) -> str:
    file = mapped.source.url or f"{socket.gethostname()} {mapped.source.path.resolve()}"
    where = f"{file} {mapped.source.member} {mapped.part_of_file}"
    known = (mapped.rank, mapped.said_rank, mapped.source.rank)
    rank = next((rank for rank in known if rank is not None), None)
    digest = blake2b(where.encode(), digest_size=6).hexdigest()
    return f"{'trace' if rank is None else f'rank{rank:05d}'}_{digest}"


def read_map(folder: Path) -> tuple[list[Answer], tuple[Note, ...]]:
    """Read all that maps have left in a folder: the answers in order of rank, and what finding the traces left out.

    Raises:
        TraceError: it holds none, one that is damaged, or some of an unlike version.
    """
    if not folder.is_dir():
        raise TraceError(f"{folder}: no such folder; `dtbench analyze --map {spell_word(folder)} TRACES` makes it")
    paths = sorted(path for path in folder.glob(f"*{ENDING}") if not path.name.startswith("."))
    if not paths:
        raise TraceError(
            f"{folder}: holds no mapped trace; `dtbench analyze --map {spell_word(folder)} TRACES` writes them"
        )
    _refuse_unlike(folder, {path: _read_version(path) for path in paths})
    mapped = _order([_read(path) for path in paths])
    return [one.answer() for one in mapped], join_ranks(note for one in mapped for note in one.found_notes)


def _order(mapped: Sequence[MappedTrace]) -> list[MappedTrace]:
    """Sort as one process would find them: by rank where all names say one, else by name."""
    are_named = all(one.source.rank is not None for one in mapped)

    def key(one: MappedTrace) -> tuple[int, str, int]:
        return (one.source.rank or 0 if are_named else 0, one.source.label, one.place)

    return sorted(mapped, key=key)


def _read_version(path: Path) -> str:
    try:
        metadata: Mapping[bytes, bytes] = pq.read_schema(path).metadata or {}
    except (OSError, pa.ArrowException) as error:
        raise TraceError(f"{path}: cannot be read ({error}); map its traces again") from error
    if _VERSION_KEY not in metadata:
        raise TraceError(f"{path}: was not written by `dtbench analyze --map`; give a folder that holds nothing else")
    return metadata[_VERSION_KEY].decode()


def _refuse_unlike(folder: Path, versions: Mapping[Path, str]) -> None:
    """Refuse files of another version than this one's.

    Raises:
        TraceError: there are some.
    """
    own = _version()
    others = {path.name: other for path, other in versions.items() if other != own}
    if others:
        named = ", ".join(f"{name} by {other}" for name, other in list(others.items())[:_NAMED_AT_MOST])
        rest = len(others) - _NAMED_AT_MOST
        more = f" and {rest} more" if rest > 0 else ""
        raise TraceError(
            f"{folder}: {named}{more}; this is {own}: what they say may mean something else. Map and reduce with one "
            "version of dtbench"
        )


def _read(path: Path) -> MappedTrace:
    try:
        (row,) = pq.read_table(path).to_pylist()
        return MappedTrace(**{name: codec.unpack(row[name]) for name, codec in _codecs().items()})
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise TraceError(f"{path}: is damaged ({error}); map its traces again") from error


@cache
def _codecs() -> dict[str, Codec]:
    return {name: codec_of(annotation) for name, annotation in fields_of(MappedTrace).items()}


@cache
def _schema() -> pa.Schema:
    return pa.schema([(name, codec.arrow) for name, codec in _codecs().items()])


@cache
def _version() -> str:
    """Return what files must agree in: dtbench's version, and what columns it writes."""
    columns = blake2b(_schema().to_string(truncate_metadata=False).encode(), digest_size=4).hexdigest()
    try:
        release = version("dtbench")
    except PackageNotFoundError:  # a copy of the source that nobody installed
        release = "of no release"
    return f"dtbench {release}, columns {columns}"
