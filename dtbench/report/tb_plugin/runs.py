"""Which runs, or plain traces, lie below TensorBoard's log directory, and whether a request stays inside it.

The log directory may be a folder of all results, of one scenario's runs, one run, or any folder a few levels above. A
run that lies *around* it (``--logdir RUN/tb``) is outside, so it is not shown; the page says what to serve instead.
"""

import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from dtbench.report.tb_plugin.refusal import FORBIDDEN, NOT_FOUND, Refusal
from dtbench.store.find_run import is_run
from dtbench.store.layout import RunFolder

WHOLE: Final = "."
"""How requests name the log directory itself: a run, or traces of one job."""

_TRACE: Final = re.compile(r"(?:trace|rank[_-]?\d).*\.json(?:\.gz)?", re.IGNORECASE)
"""How files are called that are worth a tab without a look into them; other programs leave JSON here, too."""

_MOST_LEVELS: Final = 4
"""Folders between the log directory and a run, the run included."""

_MOST_FOLDERS: Final = 50_000
"""Folders that are looked into; a log directory of ``/`` must not keep the server busy."""

_UNWATCHED: Final = ("tb", "logs")
"""Folders of a run and of its launches of which the board reads nothing."""


@dataclass(frozen=True)
class FoundRun:
    """One run: its name in requests (the path below the log directory) and its folder."""

    name: str
    folder: RunFolder


@dataclass(frozen=True)
class LogDirectory:
    """The only folder that requests may read from; links that lead out of it are refused.

    Attributes:
        root: as TensorBoard was told, links resolved; a file where it was told a trace or an archive of traces.
    """

    root: Path

    def find_runs(self) -> list[FoundRun]:
        """Return all runs, in no order."""
        return [FoundRun(self._name(path), RunFolder(path)) for path in self._walk()]

    def has_runs(self) -> bool:
        """Tell whether there is any run."""
        return next(self._walk(), None) is not None

    def has_traces(self) -> bool:
        """Tell whether there are traces by their names, or one was named; cheap, as TensorBoard asks at once."""
        return self.root.is_file() or next(self._walk_traces(self.root, 0), None) is not None

    def holds_traces(self) -> bool:
        """Tell whether the log directory is the traces of one job, as ``dtbench analyze`` takes it."""
        from dtbench.traces.job.foreign import are_traces

        return not self.has_runs() and are_traces(self.root)

    def describe_traces(self) -> str:
        """Return a word that changes whenever a file of the plain traces changes; raises as ``describe_state``."""
        if self.root.is_file():
            status = self.root.stat()
            return f"{status.st_mtime_ns} {status.st_size}"
        return _hash_states(self._read_states(self.root, 0, unwatched=()))

    def _walk_traces(self, folder: Path, level: int) -> Iterator[Path]:
        for entry in _scan(folder):
            if _TRACE.search(entry.name):
                yield Path(entry.path)
            elif level < _MOST_LEVELS and self._is_folder(entry):
                yield from self._walk_traces(Path(entry.path), level + 1)

    def find_run_around(self) -> Path | None:
        """Return the run that the log directory lies in, if it does: outside, so only worth a hint."""
        return next((path for path in self.root.parents if _is_run(path)), None)

    def open_run(self, name: str) -> FoundRun:
        """Return the run that a request names.

        Raises:
            Refusal: it leads out of the log directory, or there is no run.
        """
        if "\0" in name or "\\" in name:
            raise Refusal(NOT_FOUND, "There is no run of this name.")
        asked = PurePosixPath(name)
        if asked.is_absolute() or ".." in asked.parts:
            raise Refusal(FORBIDDEN, f"`{name}` leads out of the log directory; nothing outside it is shown.")
        path = self.root / asked
        if not self._is_inside(path):
            raise Refusal(FORBIDDEN, f"`{name}` is a link that leads out of the log directory; it is not followed.")
        try:
            is_there = is_run(path)
        except OSError as error:  # a name too long for the file system, a folder of somebody else
            raise Refusal(NOT_FOUND, f"The run cannot be looked for: {error.strerror}.") from error
        if not is_there:
            raise Refusal(NOT_FOUND, f"There is no run `{name}` in {self.root}; was it deleted?")
        return FoundRun(self._name(path), RunFolder(path))

    def describe_state(self, run: FoundRun, part: Path | None = None) -> str:
        """Return a word that changes whenever a file changes that the board reads.

        Args:
            run: the run.
            part: the folder inside it that counts; None: all of it.

        Raises:
            Refusal: a link in the run's folder leads out of the log directory.
        """
        counted = f"{part or run.folder.path}{os.sep}"  # launch1 is no part of launch10
        every = self._read_states(run.folder.path, 0, unwatched=_UNWATCHED)
        return _hash_states(file for file in every if file[0].startswith(counted))

    def _read_states(self, folder: Path, level: int, *, unwatched: Collection[str]) -> Iterator[tuple[str, int, int]]:
        for entry in _scan(folder):
            if entry.is_symlink() and not self._is_inside(Path(entry.path)):
                raise Refusal(FORBIDDEN, f"{entry.path} is a link that leads out of the log directory; not followed.")
            try:
                status = entry.stat()
            except OSError:  # replaced meanwhile
                continue
            if stat.S_ISDIR(status.st_mode):
                if entry.name not in unwatched and level < _MOST_LEVELS:
                    yield from self._read_states(Path(entry.path), level + 1, unwatched=unwatched)
            elif not entry.name.endswith(".journal"):  # written all the time; progress is asked for by itself
                yield entry.path, status.st_mtime_ns, status.st_size

    def _walk(self) -> Iterator[Path]:
        """Yield the folders of runs, without looking into them for more."""
        waiting, seen = [(self.root, 0)], 0
        while waiting and seen < _MOST_FOLDERS:
            folder, level = waiting.pop()
            seen += 1
            if _is_run(folder):
                yield folder
            elif level < _MOST_LEVELS:
                waiting += [(Path(entry.path), level + 1) for entry in _scan(folder) if self._is_folder(entry)]

    def _is_folder(self, entry: "os.DirEntry[str]") -> bool:
        """Tell whether to look into it; a name that no request can carry is left out."""
        try:
            is_folder = entry.is_dir() and not entry.name.startswith(".") and bool(entry.name.encode())
        except (OSError, UnicodeEncodeError):
            return False
        return is_folder and (not entry.is_symlink() or self._is_inside(Path(entry.path)))

    def _is_inside(self, path: Path) -> bool:
        try:
            return path.resolve().is_relative_to(self.root)
        except (OSError, RuntimeError):  # a link to itself
            return False

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def _hash_states(files: Iterable[tuple[str, int, int]]) -> str:
    return hashlib.blake2b(repr(sorted(files)).encode(errors="surrogateescape"), digest_size=8).hexdigest()


def open_log_directory(logdir: str) -> LogDirectory | None:
    """Return the folder that TensorBoard was told to read; None: it was told none, or one that is not on this disk."""
    if not logdir or "://" in logdir:
        return None
    try:
        path = Path(logdir).expanduser().resolve()
        return LogDirectory(path) if path.exists() else None
    except (OSError, RuntimeError, ValueError):  # a name that no folder has, a home that nobody has
        return None


def _is_run(folder: Path) -> bool:
    """Tell whether a folder is a run that can be read: one of somebody else must not hide all others."""
    try:
        return is_run(folder)
    except OSError:
        return False


def _scan(folder: Path) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []
