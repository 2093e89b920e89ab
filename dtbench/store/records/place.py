"""Where a launch belongs, written into each of its tables: one that lies in another launch's folder is found out."""

from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from dtbench.base.errors import StoreError
from dtbench.store.layout import LaunchFolder
from dtbench.store.records.outline import read_outline

PLACE: Final = "place"
"""Under which a table's ``attrs`` hold it."""


@dataclass(frozen=True)
class Place:
    """What tells a launch from all others; ``run``: its id."""

    run: str
    cell: str
    launch: int

    def __str__(self) -> str:
        return f"run {self.run}, cell {self.cell}, launch {self.launch}"


def find_place(folder: LaunchFolder) -> Place | None:
    """Return the place of a launch, its run called as its record says, else as its folder; None: it lies in no run."""
    if folder.cell_and_index is None:
        return None
    run = folder.path.parents[2]
    name = run.name
    with suppress(StoreError):
        name = read_outline(run).run_id
    return Place(name, *folder.cell_and_index)


def tell_place(folder: LaunchFolder) -> dict[Hashable | None, Any]:
    """Return what the ``attrs`` of a table of a launch say of it."""
    place = find_place(folder)
    return {} if place is None else {PLACE: asdict(place)}


def check_place(file: Path, attrs: Mapping[Any, object], place: Place | None) -> None:
    """Return if a table is of this launch, or does not say of which it is: up to version 0.1.0 none did.

    Raises:
        StoreError: it is of another.
    """
    told = attrs.get(PLACE)
    if place is not None and isinstance(told, dict) and set(told) == set(asdict(place)):
        told = Place(**told)
    refuse_strange(file, "a table", told, place)


def refuse_strange(file: Path, what: str, told: object, place: Place | None) -> None:
    """Return if a file says that it is of the launch in whose folder it lies, or says nothing (None).

    Raises:
        StoreError: it is of another.
    """
    if told is not None and place is not None and told != place:
        raise StoreError(f"{file}: is {what} of {told}, and lies in {place}; was it copied here?")
