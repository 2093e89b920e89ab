"""What a reader of one side must know beside its numbers, a clause each: what was left out, is gone, or is unlike."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from dtbench.base.units import count_things
from dtbench.comparison.comparison import EnvironmentChange
from dtbench.comparison.environment import find_environment_changes, find_unlike
from dtbench.runs.reading.cell_data import CellData
from dtbench.store.records.rank import WarmupEnd
from dtbench.store.records.run import Environment
from dtbench.traces.notes.tables import TablesGone

_NEEDED: Final = ("purposes", "collectives")
"""Tables without which numbers of a launch are not known; where ``overlap`` is gone, all are made again."""


def name_unlike(environments: Mapping[str, Environment], settings: Mapping[str, str]) -> Iterator[str]:
    """Say in what launches, by name, ran in another environment than the first of them."""
    first, named = next(iter(environments), ""), dict[str, list[str]]()
    for launch, environment in environments.items():
        changes = find_environment_changes(environments[first], environment, settings=(settings, settings))
        differing = _spell_unlike(find_unlike(changes))
        if differing:
            named.setdefault(differing, []).append(launch)
    for differing, launches in named.items():
        yield f"{first} and {', '.join(launches)} differ: {differing}"


def _spell_unlike(changes: Sequence[EnvironmentChange]) -> str:
    return "; ".join(f"{change.what} {change.baseline} and {change.candidate}" for change in changes)


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
