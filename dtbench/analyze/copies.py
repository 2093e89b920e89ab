"""Launches that lie somewhere twice: a copy is no second measurement, whatever its run, cell and records are called.

Steps start at nanoseconds of a machine's clock: two launches never share the first one, and a copy always does.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from dtbench.analyze.cell_data import CellData
from dtbench.store.layout import LaunchFolder


def find_copies(first_starts_ns: Iterable[int | None]) -> dict[int, int]:
    """Return the position of each launch that is a copy, with that of the launch that it is a copy of.

    Args:
        first_starts_ns: of each launch, when the first step of all ranks started; None: no step was timed.
    """
    first: dict[int, int] = {}
    originals = ((at, first.setdefault(start, at)) for at, start in enumerate(first_starts_ns) if start is not None)
    return {at: original for at, original in originals if at != original}


def say_copy(copy: LaunchFolder, original: LaunchFolder) -> str:
    """Say that a launch is left out, and of which it is a copy."""
    return f"{copy.path}: a copy of {original.path}, no second measurement"


def leave_out_copies(cells: Sequence[CellData]) -> Iterator[CellData]:
    """Yield the cells of a run with each launch once; copies are among the unreadable, each with its original."""
    launches = [launch for data in cells for launch in data.launches]
    copies = find_copies(launch.first_start_ns for launch in launches)
    said = {launches[at].place: say_copy(launches[at].folder, launches[first].folder) for at, first in copies.items()}
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
