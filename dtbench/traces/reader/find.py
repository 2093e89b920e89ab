"""Traces where people have them: a file, a folder, a tree of folders, an archive.

::

    rank3.1719000000000000000.pt.trace.json.gz       dtbench, TensorBoard's handler with a name
    host_4711.1719000000000.pt.trace.json            TensorBoard's handler: says no rank
    iteration_10/rank3_trace.json.gz                 torchtitan: of several iterations the latest
    plugins/profile/2026_07_01/...                   TensorBoard's log folder
    rank3/trace.json                                 one folder for each rank
"""

import re
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, Final

from dtbench.base.errors import TraceError
from dtbench.traces.notes.files import DamagedArchive, FoldersBelow, LatestFolder, NotTraces, OlderTraces
from dtbench.traces.notes.note import Note
from dtbench.traces.reader.inflate import Chunks
from dtbench.traces.reader.other_files import PEEK_BYTES, is_named_like_profile, name_binary, name_json, refuse
from dtbench.traces.reader.source import DAMAGED, TraceSource, open_zipped
from dtbench.traces.reader.windows import find_array_start

ENDINGS: Final = (".json", ".json.gz")
PERFETTO_MANIFEST: Final = "perfetto_manifest.json"
"""Says in an archive of traces how Perfetto shall show them; no trace itself."""
_DEEPEST: Final = 4
_LARGEST_PEEK: Final = 1 << 22
_NAMED_AT_MOST: Final = 5
_LOOKED_AT_MOST: Final = 50
_MOST_PACKED: Final = 512
"""Traces in a packed archive."""
_PACKED: Final = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")
_LONGEST_MAGIC: Final = 6
# Not ``local_rank``, ``tp_rank``: these are no global ranks.
_RANK: Final = re.compile(r"(?:^|[^a-z0-9])(?<!local[_.-])(?<![a-z]p[_.-])(?:rank|worker)[\[_.-]?(\d{1,6})(?!\d)", re.I)
_STAMPED: Final = re.compile(r"(?P<worker>.+)\.(?P<stamp>\d{10,})(?P<rest>\.pt\.trace\.json(?:\.gz)?)")
_NUMBERED: Final = re.compile(r"(?:iteration|iter|step)[_-]?(\d+)", re.I)
_DATED: Final = re.compile(r"[\dTZ_.:-]{8,}")


@dataclass(frozen=True)
class FoundTraces:
    """Traces of one job.

    Attributes:
        sources: at least one, in order of rank where all names say one, else of name.
        notes: what was left out, and why.
    """

    sources: tuple[TraceSource, ...]
    notes: tuple[Note, ...]


@dataclass(frozen=True)
class _Candidate:
    """A file that may be a trace: where it is below what was given, whether it looks like one, else what it is."""

    place: PurePosixPath
    source: TraceSource
    is_trace: bool
    what: str | None = None


def find_rank(place: PurePosixPath) -> int | None:
    """Read the rank in the name of a file, else of its folder; None: neither says.

    >>> find_rank(PurePosixPath("iteration_10/rank3_trace.json")), find_rank(PurePosixPath("tp_rank1.json"))
    (3, None)
    """
    for part in (place.name, place.parent.name):
        found = _RANK.findall(part)
        if found:
            return int(found[-1])
    return None


def find_traces(path: Path) -> FoundTraces:
    """Find the traces that a path stands for: itself, those in it, those in an archive.

    Raises:
        TraceError: there is none, or those of several jobs, as far as names tell.
    """
    if path.is_dir():
        return _select(path, [*_look_in_folder(path)] or [*_look_at_others(path, lambda _name: True)])
    if not path.exists():
        if path.parts[0].endswith(":") and not path.drive:  # what a path leaves of s3://
            told = "URLs are read by `dtbench analyze` alone; copy the traces here, and give their folder"
            raise TraceError(f"{path}: {told}")
        raise TraceError(f"{path}: cannot be opened (no such file); check the name")
    if not path.is_file():
        raise TraceError(f"{path}: neither a file nor a folder; write the trace to a file first")
    members = _look_in_archive(path)
    if members is not None:
        found, notes = members
        chosen = _select(path, found)
        return FoundTraces(chosen.sources, (*notes, *chosen.notes))
    return FoundTraces((TraceSource(path, rank=find_rank(PurePosixPath(path.name))),), ())


def _look_at_others(folder: Path, fits: Callable[[str], bool]) -> Iterator[_Candidate]:
    """Say what files are that are not named like traces: those whose name fits, few of them."""
    others = sorted(_walk(folder, _DEEPEST, lambda name: fits(name) and not _may_be_trace(name)))
    for file in others[:_LOOKED_AT_MOST]:
        source = TraceSource(file)
        with suppress(TraceError), source.open() as stream:
            _, what = _look(stream, file.name)
            yield _Candidate(PurePosixPath(*file.relative_to(folder).parts), source, is_trace=False, what=what)


def holds_trace_files(folder: Path) -> bool:
    """Tell whether a folder, or one inside, holds a file that is named like a trace, or like another tool's."""
    return any(True for _ in _walk(folder, _DEEPEST, lambda name: _may_be_trace(name) or is_named_like_profile(name)))


def _look_in_folder(folder: Path) -> Iterator[_Candidate]:
    for file in sorted(_walk(folder, _DEEPEST, _may_be_trace)):
        place = PurePosixPath(*file.relative_to(folder).parts)
        source = TraceSource(file, rank=find_rank(place))
        try:
            with source.open() as stream:
                is_trace, what = _look(stream, file.name)
        except TraceError:  # its reader will tell, and the others are read
            is_trace, what = True, None
        yield _Candidate(place, source, is_trace, what)
    yield from (one for one in _look_at_others(folder, is_named_like_profile) if one.what)


def _walk(folder: Path, depth: int, fits: Callable[[str], bool]) -> Iterator[Path]:
    """Yield files whose name fits.

    Raises:
        TraceError: the folder cannot be listed; one inside it that cannot is passed over, as ``lost+found`` is.
    """
    try:
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError as error:
        raise TraceError(f"{folder}: cannot be listed ({error.strerror}); check its permissions") from error
    for entry in entries:
        with suppress(TraceError, PermissionError):
            if entry.is_dir() and depth:
                yield from _walk(entry, depth - 1, fits)
            elif entry.is_file() and fits(entry.name):
                yield entry


def _look_in_archive(path: Path) -> tuple[list[_Candidate], tuple[DamagedArchive, ...]] | None:
    """Look at every member in one pass; None: the file is no archive."""
    if zipfile.is_zipfile(path):
        members = _zip_members(path)
    elif _is_tar(path):
        members = _tar_members(path)
    else:
        return None
    found: list[_Candidate] = []
    others: list[_Candidate] = []
    try:
        for name, open_member, extent in members:
            if _may_be_trace(name):
                one = _look_at(path, name, open_member())
                found.append(replace(one, source=replace(one.source, extent=extent)))
            elif len(others) < _LOOKED_AT_MOST and (not found or is_named_like_profile(name)):
                with suppress(OSError, *DAMAGED):
                    others.append(_look_at(path, name, open_member()))
    except (OSError, *DAMAGED) as error:
        if not found:
            raise TraceError(f"{path}: the archive is damaged ({error}); copy it again") from error
        return found, (DamagedArchive(str(path), str(error)),)
    _refuse_many(path, sum(one.is_trace for one in found))
    return [*found, *(replace(one, is_trace=False) for one in others if one.what)], ()


def _refuse_many(path: Path, traces: int) -> None:
    """Refuse a packed archive of many traces: each would be found by unpacking all that lie before it.

    Raises:
        TraceError: says what to do.
    """
    if traces > _MOST_PACKED and not zipfile.is_zipfile(path) and _is_packed(path):
        told = f"holds {traces:,} traces, and to each there is no way but to unpack all before it"
        raise TraceError(f"{path}: {told}; unpack it, and give the folder")


def _is_packed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(_LONGEST_MAGIC).startswith(_PACKED)


def _is_tar(path: Path) -> bool:
    try:
        with tarfile.open(path, "r|*"):
            return True
    except (OSError, TypeError, *DAMAGED):  # tarfile fails so on a packed file whose head is cut
        return False


_Members = Iterator[tuple[str, Callable[[], IO[bytes]], tuple[int, int] | None]]
"""Names, what opens each before the next is asked for, and where it lies unpacked."""


def _zip_members(path: Path) -> _Members:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if not name.endswith("/"):
                yield name, partial(open_zipped, archive, name), None


def _tar_members(path: Path) -> _Members:
    is_packed = _is_packed(path)
    with tarfile.open(path, "r|*") as archive:
        for member in archive:
            if member.isfile() and (stream := archive.extractfile(member)) is not None:
                extent = None if is_packed or member.issparse() else (member.offset_data, member.size)
                yield member.name, partial(_same, stream), extent


def _same(stream: IO[bytes]) -> IO[bytes]:
    return stream


def _may_be_trace(name: str) -> bool:
    last = PurePosixPath(name).name
    return last.endswith(ENDINGS) and not last.startswith(".") and last != PERFETTO_MANIFEST


def _look_at(path: Path, name: str, stream: IO[bytes]) -> _Candidate:
    place = PurePosixPath(name)
    with stream:
        is_trace, what = _look(stream, name)
    return _Candidate(place, TraceSource(path, member=name, rank=find_rank(place)), is_trace, what)


def _look(stream: IO[bytes], name: str) -> tuple[bool, str | None]:
    """Tell other files from a trace by their first part, and what they are where that tells.

    An empty or damaged file counts for a trace: its reader will tell.
    """
    text = b""
    for chunk in Chunks(stream, PEEK_BYTES):
        text += chunk
        what = name_binary(text, name)
        if what is not None:
            return False, what
        if text.lstrip().startswith(b"["):
            return b'"ph"' in text or not text.lstrip(b"[ \t\r\n").strip(b"] \t\r\n"), None
        if find_array_start(text) is not None:
            return True, None
        if len(text) > _LARGEST_PEEK:
            return False, name_json(text)
    what = name_json(text)
    return what is None and not text.rstrip().endswith((b"}", b"]")), what


def _select(path: Path, candidates: Sequence[_Candidate]) -> FoundTraces:
    others = [one for one in candidates if not one.is_trace]
    notes = [NotTraces(str(path), tuple((str(one.place), one.what) for one in others))] if others else []
    folders: dict[PurePosixPath, list[_Candidate]] = {}
    for one in candidates:
        if one.is_trace:
            folders.setdefault(one.place.parent, []).append(one)
    if not folders:
        known = [f"{one.place} is {one.what}" for one in others if one.what]
        if known:
            raise refuse(str(path), f"holds no trace: {', '.join(known[:_NAMED_AT_MOST])}")
        raise TraceError(f"{path}: holds no trace; one ends in {' or '.join(ENDINGS)}")
    chosen, more_notes = _select_folders(path, folders)
    traces, last_notes = _select_newest(path, chosen)
    sources = [one.source for one in traces]
    if all(source.rank is not None for source in sources):
        sources.sort(key=lambda source: source.rank or 0)
    return FoundTraces(tuple(sources), (*notes, *more_notes, *last_notes))


def _select_folders(
    path: Path, folders: Mapping[PurePosixPath, list[_Candidate]]
) -> tuple[list[_Candidate], tuple[Note, ...]]:
    """Take the folder nearest to what was given; of several side by side one, unless each is a rank's."""
    nearest = min(len(folder.parts) for folder in folders)
    level = {folder: traces for folder, traces in folders.items() if len(folder.parts) == nearest}
    if len(level) == 1 or _are_ranks(level):
        below = tuple(sorted(str(folder) for folder in folders.keys() - level.keys()))
        return list(chain.from_iterable(level.values())), (FoldersBelow(str(path), below),) if below else ()
    newest = _find_newest(level)
    if newest is None:
        names = ", ".join(str(folder) for folder in sorted(level)[:_NAMED_AT_MOST])
        more = f" and {len(level) - _NAMED_AT_MOST} more" if len(level) > _NAMED_AT_MOST else ""
        raise TraceError(
            f"{path}: holds traces in several folders, {names}{more}, perhaps of several jobs; give one of these"
            " folders, or all of them if they hold the ranks of one job"
        )
    return level[newest], (LatestFolder(str(path), str(newest), len(level)),)


def _are_ranks(level: Mapping[PurePosixPath, list[_Candidate]]) -> bool:
    ranks = {_RANK.search(folder.name) and find_rank(folder / "_") for folder in level}
    return None not in ranks and len(ranks) == len(level)


def _find_newest(level: Iterable[PurePosixPath]) -> PurePosixPath | None:
    """Return the folder with the largest number (``iteration_10``) or date; None: the names say neither."""
    folders = list(level)
    numbers = {folder: int(match[1]) for folder in folders if (match := _NUMBERED.fullmatch(folder.name))}
    if len(numbers) == len(folders) and len({folder.parent for folder in folders}) == 1:
        return max(folders, key=lambda folder: numbers[folder])
    if all(_DATED.fullmatch(folder.name) for folder in folders):
        return max(folders, key=lambda folder: folder.name)
    return None


def _select_newest(path: Path, candidates: Sequence[_Candidate]) -> tuple[list[_Candidate], tuple[OlderTraces, ...]]:
    """Take a worker's newest trace, and of a trace that lies there packed and unpacked one."""
    newest: dict[tuple[PurePosixPath, str], tuple[int, _Candidate]] = {}
    for one in sorted(candidates, key=lambda one: one.place):
        match = _STAMPED.fullmatch(one.place.name)
        worker = match["worker"] if match else one.place.name.removesuffix(".gz")
        stamp = int(match["stamp"]) if match else 0
        key = (one.place.parent, worker)
        if key not in newest or stamp > newest[key][0]:
            newest[key] = (stamp, one)
    kept = [one for _, one in newest.values()]
    left_out = len(candidates) - len(kept)
    return kept, (OlderTraces(str(path), left_out),) if left_out else ()
