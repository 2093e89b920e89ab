"""What a reader of one side must know beside its numbers, a clause each: what was left out, is gone, or is unlike."""

from collections.abc import Iterator, Sequence
from typing import Final

from dtbench.base.units import count_things
from dtbench.runs.reading.cell_data import CellData
from dtbench.store.records.rank import WarmupEnd
from dtbench.traces.notes.tables import TablesGone

_NEEDED: Final = ("purposes", "collectives")
"""Tables without which numbers of a launch are not known; where ``overlap`` is gone, all are made again."""


def name_lacking(data: CellData) -> Iterator[str]:
    """Say which tables that numbers come from are not there, and in which launches."""
    named: dict[tuple[str, ...], list[str]] = {}
    for launch in data.launches:
        lacking = tuple(name for name in launch.tables.lacking if name in _NEEDED)
        if lacking:
            named.setdefault(lacking, []).append(launch.folder.path.name)
    for lacking, names in named.items():
        yield f"{', '.join(names)}: {TablesGone(lacking)}"


def say_warmup(end: WarmupEnd | None) -> Iterator[str]:
    """Say that no warm-up ended by evidence, if so."""
    if end is not None and not end.settled:
        yield f"warm-up NOT settled after {count_things(end.steps, 'step')}: {end.reason}"


def say_resumed(resumed_unix_ns: Sequence[int]) -> Iterator[str]:
    """Say that a run was stopped and gone on with: launches from before and after it lie apart."""
    if resumed_unix_ns:
        times = "once" if len(resumed_unix_ns) == 1 else f"{len(resumed_unix_ns)} times"
        yield f"its run was stopped and resumed {times}: launches of before and after did not take turns"


def say_together(notes: Sequence[str]) -> Iterator[str]:
    """Yield notes that several launches have once."""
    named: dict[str, list[str]] = {}
    for note in notes:
        launch, colon, words = note.partition(": ")
        is_of_launch = bool(colon) and launch.startswith("launch")
        named.setdefault(words if is_of_launch else note, []).extend([launch] if is_of_launch else [])
    for words, launches in named.items():
        yield f"{', '.join(launches)}: {words}" if launches else words
