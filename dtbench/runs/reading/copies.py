"""Launches that lie somewhere twice: a copy is no second measurement, whatever its run, cell and records are called.

Steps start at nanoseconds of a machine's clock: two launches never share the first one, and a copy always does. Where
no step was timed, a launch of one name that was started at the same nanosecond is the same.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace

from dtbench.runs.reading.cell_data import CellData
from dtbench.store.layout import LaunchFolder
from dtbench.store.read import read_first_start

Marks = frozenset[Hashable]
"""What a launch has in common with its copies alone."""


def mark(first_start_ns: int | None, name: Hashable = None, started_unix_ns: int | None = None) -> Marks:
    """Return the marks of a launch; none where nothing tells it from others.

    Args:
        first_start_ns: when the first step of all ranks started; None: no step was timed.
        name: what it is called among the launches of all runs; None: not told.
        started_unix_ns: when it was started; None: not told.
    """
    steps = [] if first_start_ns is None else [first_start_ns]
    return frozenset([*steps, *([] if None in (name, started_unix_ns) else [(name, started_unix_ns)])])


def find_copies(launches: Iterable[Marks]) -> dict[int, int]:
    """Return the position of each launch that is a copy, with that of the launch that it is a copy of."""
    first: dict[Hashable, int] = {}
    copies: dict[int, int] = {}
    for at, marks in enumerate(launches):
        original = min((first[one] for one in marks if one in first), default=at)
        if original != at:
            copies[at] = original
        for one in marks:
            first.setdefault(one, original)
    return copies


def say_copy(copy: LaunchFolder, original: LaunchFolder) -> str:
    """Say that a launch is left out, and of which it is a copy."""
    if copy == original:
        return f"{copy.path}: is named twice and counted once"
    return f"{copy.path}: a copy of {original.path}, no second measurement"


def leave_out_copies(cells: Sequence[CellData], before: Sequence[LaunchFolder] = ()) -> Iterator[CellData]:
    """Yield cells of a run with each launch once; copies are among the unreadable, each with its original.

    Args:
        cells: that are read.
        before: launches of cells before them, which are not: they may be the originals.
    """
    launches = [launch for data in cells for launch in data.launches]
    folders = [*before, *(launch.folder for launch in launches)]
    starts_ns = [*map(read_first_start, before), *(launch.first_start_ns for launch in launches)]
    copies = find_copies(map(mark, starts_ns))
    said = {
        launches[at - len(before)].place: say_copy(folders[at], folders[first])
        for at, first in copies.items()
        if at >= len(before)
    }
    for data in cells:
        kept = tuple(launch for launch in data.launches if launch.place not in said)
        left_out = {launch.place.launch: said[launch.place] for launch in data.launches if launch.place in said}
        indices = tuple(launch.place.launch for launch in kept)
        yield replace(
            data,
            cell=data.cell.model_copy(update={"launches": indices}),
            launches=kept,
            unreadable={**data.unreadable, **left_out},
        )
