"""Numbers of cells that are kept beside them, so that months of runs are compared without a look into their tables.

[Note: when kept numbers hold] They are a copy of what tables and records say, so they carry a word made of all of it:
of the bytes of every file from which they were made (not of its time: what is kept holds in a copy, a checkout and a
restored backup), and of the bytes of the code that made them. A step that was marked afterwards, a table that was made
again, another record of a rank, another dtbench: the word is another one, and they are made again. Of traces only that
counts which readers of tables look at, too: whether one is newer than the tables that were made of it.

Nothing is kept of a cell whose launches have not all ended, or of which something is said with a path.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from dtbench.base.errors import StoreError
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import read_measurements
from dtbench.store.records.baseline import MeasuredCell
from dtbench.store.records.outline import find_unlisted
from dtbench.store.records.run import CellRecord, OwnLoopCell, RunRecord
from dtbench.store.write import write_record
from dtbench.traces.rows.launch_tables import have_newer_traces

_ROOMS: Final = ("base", "scenario", "plan", "prediction", "machine", "store", "traces", "runs", "comparison")
"""Code by which files become numbers."""

_BY_TIME: Final = "events"
"""Folder of a launch whose files stand in only for broken tables, and may be large: their times are looked at."""

_UNREAD: Final = ("traces", "logs", "link", "checkpoints")
"""Folders of a launch of which no number is made, as long as its tables are as new as its traces."""


def describe_cells(path: Path, record: RunRecord, wanted: str | None = None) -> dict[str, str]:
    """Return by cell a word that is another one as soon as its numbers may be; see [Note: when kept numbers hold].

    Without cells that have no such word, as their launches have not all ended, or traces are newer than tables.

    Args:
        path: folder of the run.
        record: of the run.
        wanted: of this cell only; None: of all.
    """
    if find_unlisted(path, {cell.name: cell.launches for cell in record.cells}):
        return {}
    folder, found = RunFolder(path), dict[str, str]()
    for at, cell in enumerate(record.cells):
        launches = _list_launches(folder, [cell])
        if wanted in (None, cell.name) and all(map(_has_ended, launches)):
            earlier = _list_launches(folder, record.cells[:at])  # of which a launch may be a copy
            files = (folder.run, folder.environment, *(launch.steps for launch in earlier))
            word = hashlib.blake2b(_describe_code() + cell.name.encode(), digest_size=16)
            for part in chain(map(_describe_file, files), *(_describe(launch.path) for launch in launches)):
                word.update(part)
            found[cell.name] = word.hexdigest()
    return found


def _list_launches(folder: RunFolder, cells: Sequence[CellRecord | OwnLoopCell]) -> list[LaunchFolder]:
    return [folder.launch(cell.name, index) for cell in cells for index in cell.launches]


def read_kept(path: Path, cell: str, made_of: str | None) -> MeasuredCell | None:
    """Return the numbers that are kept of a cell; None: there are none, or they were made of other files.

    Args:
        path: folder of the run.
        cell: name of the cell.
        made_of: as ``describe_cells`` gives it; None: nothing that is kept holds.
    """
    if made_of is None:
        return None
    with suppress(StoreError):  # broken, or of another version: it is made again
        kept = read_measurements(path, cell)
        return kept if kept.made_of == made_of else None
    return None


def keep(path: Path, record: RunRecord, cells: Mapping[str, MeasuredCell]) -> None:
    """Keep the numbers of cells whose files are those of which they were made, where the folder can be written."""
    made_of = describe_cells(path, record)
    for name, cell in cells.items():
        holds = cell.made_of and made_of.get(name) == cell.made_of
        if holds and str(path) not in cell.model_dump_json():
            with suppress(StoreError):  # somebody else's folder, a full disk: the numbers are told all the same
                write_record(RunFolder(path).measurements(name), cell)


def _has_ended(launch: LaunchFolder) -> bool:
    return launch.launch.exists() and launch.steps.exists() and not have_newer_traces(launch)


def _describe(folder: str | Path) -> Iterator[bytes]:
    """Yield what is in a launch, or in a folder of it, by name."""
    with os.scandir(folder) as entries:
        found = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda one: one.name)
    for entry in found:
        if entry.is_dir() and entry.name in _UNREAD:
            continue
        yield entry.name.encode(errors="surrogateescape")
        if not entry.is_dir():
            yield _describe_file(entry.path)
        elif entry.name == _BY_TIME:
            yield _describe_times(entry.path)
        else:
            yield from _describe(entry.path)


def _describe_file(path: str | Path) -> bytes:
    """Return the length of a file and what is in it; of one that cannot be read, its reader says so."""
    content = _read(path)
    return b"%d " % len(content) + content


def _describe_times(folder: str) -> bytes:
    with os.scandir(folder) as entries:
        found = sorted((entry.name, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in entries)
    return repr(found).encode(errors="surrogateescape")


def _read(path: str | Path) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - of thousands of names few are paths
            return file.read()
    except OSError:
        return b""


@cache
def _describe_code() -> bytes:
    """Return a word of the code that makes numbers of files: of dtbench, and of what it sums with."""
    word = hashlib.blake2b(f"{np.__version__} {pd.__version__}".encode())
    package = Path(__file__).parents[2]
    for room in _ROOMS:
        for file in sorted((package / room).rglob("*.py")):
            word.update(file.relative_to(package).as_posix().encode())
            word.update(_read(file))
    return word.digest()
