"""What `dtbench clean` may remove: traces whose tables are made, or whole runs; never more than what it said before.

Nothing outside a run's folder is touched, and no link is followed: a run that is reached by one, or has one in it,
stays. So does a run that is pinned, that is being written, or whose own record cannot be read: nobody knows what it is.
"""

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from dtbench.base.errors import StoreError
from dtbench.store.cleaned import CleanedTraces
from dtbench.store.head import RunHead, read_head
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.links import refuse_links
from dtbench.store.lock import hold_run, is_held
from dtbench.store.records.run import RunStatus
from dtbench.store.walk import walk_runs, walk_runs_in
from dtbench.store.write import write_record
from dtbench.traces.rows.launch_tables import are_current

_STILL_S: Final = 86_400
"""A run that never said how it ended, and of which nothing was written for so long, has ended: another machine that
writes it cannot be seen by its lock everywhere."""


class Why(StrEnum):
    """Why a run that is old enough stays."""

    PINNED = "pinned"
    RUNNING = "running"
    UNREADABLE = "its run.json cannot be read"
    LINKED = "reached by a link, or with one in it"
    NO_TABLES = "no tables of its traces yet (`dtbench analyze RUN` makes them)"
    REFUSED = "could not be removed"


@dataclass(frozen=True)
class Removal:
    """What goes of one run.

    Attributes:
        run: its folder.
        started_unix_ns: when it began.
        launches: whose traces go; empty: the whole run does.
        files: how many.
        size_bytes: of all of them.
    """

    run: Path
    started_unix_ns: int
    launches: tuple[LaunchFolder, ...]
    files: int
    size_bytes: int


@dataclass
class Cleaning:
    """What goes, or went, and what stays though it was asked for.

    Attributes:
        results: folder of all runs.
        removals: oldest first.
        staying: runs with why, and what a file system said.
    """

    results: Path
    removals: list[Removal] = field(default_factory=list)
    staying: list[tuple[Path, Why, str]] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """Of all that goes."""
        return sum(one.size_bytes for one in self.removals)


def plan_cleaning(results: Path, *, keeps_tables: bool, scenario: str | None, before_unix_ns: int | None) -> Cleaning:
    """Find what may go, and change nothing.

    Args:
        results: folder of all runs.
        keeps_tables: only traces go, of launches whose tables are made of them; else whole runs do.
        scenario: only runs of this one, as their folder is called; None: of all.
        before_unix_ns: only runs that began before; None: all.
    """
    found = Cleaning(results)
    runs = walk_runs(results) if scenario is None else walk_runs_in(results / scenario)
    for path in reversed([*runs]):
        try:
            head = read_head(path)
        except StoreError as error:
            found.staying.append((path, Why.UNREADABLE, str(error)))
            continue
        if before_unix_ns is not None and head.started_unix_ns >= before_unix_ns:
            continue
        why = _find_reason(path, head) or _find_untabled(path, keeps_tables=keeps_tables)
        if why is not None:
            found.staying.append((path, why, ""))
        if why in (None, Why.NO_TABLES):
            found.removals += _plan_traces(path, head) if keeps_tables else [_plan_whole(path, head)]
    return found


def clean(planned: Cleaning) -> Cleaning:
    """Remove what was planned; what cannot be removed, or may not go any more, is among those that stay."""
    done = Cleaning(planned.results, staying=[*planned.staying])
    for one in planned.removals:
        try:
            why = _find_reason(one.run, read_head(one.run))
            if why is None:
                _remove(one)
        except (StoreError, OSError) as error:
            done.staying.append((one.run, Why.REFUSED, str(error)))
            continue
        if why is None:
            done.removals.append(one)
        else:
            done.staying.append((one.run, why, ""))
    return done


def pin(run: Path) -> None:
    """Let a run be left alone from now on.

    Raises:
        StoreError: its folder cannot be written.
    """
    try:
        RunFolder(run).pin.touch()
    except OSError as error:
        raise StoreError(f"{run}: cannot be pinned ({error.strerror or error})") from error


def unpin(run: Path) -> None:
    """Let a run be cleaned as others are.

    Raises:
        StoreError: its folder cannot be written.
    """
    try:
        RunFolder(run).pin.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{run}: cannot be unpinned ({error.strerror or error})") from error


def _find_reason(path: Path, head: RunHead) -> Why | None:
    if RunFolder(path).pin.exists():
        return Why.PINNED
    if path.is_symlink() or path.parent.is_symlink():
        return Why.LINKED
    if is_held(RunFolder(path)) or (RunStatus(head.status) is RunStatus.RUNNING and _was_written_lately(path)):
        return Why.RUNNING
    try:
        refuse_links(path)
    except StoreError:
        return Why.LINKED
    return None


def _was_written_lately(path: Path) -> bool:
    lately = time.time() - _STILL_S
    return any(status.st_mtime > lately for status in _walk(path))


def _find_untabled(path: Path, *, keeps_tables: bool) -> Why | None:
    """Return that a run has traces that nobody has read, which are all that is known."""
    launches = _list_launches(path) if keeps_tables else ()
    return Why.NO_TABLES if any(not are_current(one) for one in launches) else None


def _list_launches(path: Path) -> list[LaunchFolder]:
    """Return the launches that have traces, whether the run lists them or not."""
    folders = (LaunchFolder(one) for one in sorted(path.glob("cells/*/*")))
    return [folder for folder in folders if folder.list_trace_files()]


def _plan_whole(path: Path, head: RunHead) -> Removal:
    sizes = [status.st_size for status in _walk(path)]
    return Removal(path, head.started_unix_ns, (), len(sizes), sum(sizes))


def _plan_traces(path: Path, head: RunHead) -> Iterator[Removal]:
    launches = tuple(one for one in _list_launches(path) if are_current(one))
    sizes = [file.stat().st_size for one in launches for file in one.list_trace_files()]
    if launches:
        yield Removal(path, head.started_unix_ns, launches, len(sizes), sum(sizes))


def _remove(one: Removal) -> None:
    folder = RunFolder(one.run)
    with hold_run(folder):
        _remove_traces(one) if one.launches else _remove_all_but_lock(one.run)
    if not one.launches:
        folder.lock.unlink(missing_ok=True)
        one.run.rmdir()


def _remove_traces(one: Removal) -> None:
    """Remove traces; that it was done, and when, is written before, so that none is ever said to be lost."""
    for folder in one.launches:
        files = folder.list_trace_files()
        size_bytes = sum(file.stat().st_size for file in files)
        record = CleanedTraces(cleaned_unix_ns=time.time_ns(), files=len(files), size_bytes=size_bytes)
        write_record(folder.cleaned, record)
        for file in files:
            file.unlink()


def _remove_all_but_lock(run: Path) -> None:
    """Remove everything of a run, what makes it one last: where this is stopped, it is done again."""
    folder = RunFolder(run)
    last = (folder.run, folder.lock)
    for entry in sorted(run.iterdir()):
        if entry in last:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    folder.run.unlink()


def _walk(folder: Path) -> Iterator[os.stat_result]:
    """Yield what is known of every file below a folder; no link is followed."""
    for where, _, names in os.walk(folder):
        for name in names:
            yield os.lstat(os.path.join(where, name))  # noqa: PTH118 - of thousands of names few are paths
