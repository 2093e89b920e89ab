"""What ``--set model.layers=2`` means: a dotted path and a value in YAML, checked as strictly as a file."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from dtbench.scenario.mistakes import SET, Mistake, OverridePlace
from dtbench.scenario.yaml.document import Node, Section, read_document

MATRIX = "matrix"
_AXES = "says which cells there are: change it in the file, or give an axis, `matrix.<section>.<field>=[...]`"
_CLAIM = "says what the file claims; change it in the file"
_OF_THE_FILE = {
    "schema_version": "says how the file is written and cannot be overridden",
    "functions": _CLAIM,
    "checks": _CLAIM,
    "answer": _CLAIM,
}
"""What sections say that no override can change."""


@dataclass(frozen=True)
class Override:
    """One value to lay over the cells; ``path`` has at least one part, none of them empty."""

    path: tuple[str, ...]
    node: Node
    place: OverridePlace


@dataclass(frozen=True)
class OverrideReading:
    """The overrides that could be read, in the order typed; a later one wins over an earlier one of the same path."""

    overrides: tuple[Override, ...]
    mistakes: tuple[Mistake, ...]


def read_overrides(typed: Sequence[str], option: str = SET) -> OverrideReading:
    """Read every ``path=value``; mistakes name the option that it was given with."""
    overrides: list[Override] = []
    mistakes: list[Mistake] = []
    for order, text in enumerate(typed):
        override = _read_override(OverridePlace(text, order, option), mistakes)
        if override is not None:
            overrides.append(override)
    return OverrideReading(tuple(overrides), tuple(mistakes))


def find_misplaced(
    root: Section, overrides: Iterable[Override], sections: Container[str]
) -> dict[OverridePlace, Mistake]:
    """Return what is wrong with overrides that begin with the name of a cell that no section has, by their place."""
    cells = root.entries.get("cells")
    names = cells.node.entries if cells is not None and isinstance(cells.node, Section) else {}
    return {
        one.place: Mistake(one.place, f"`{one.path[0]}` is a cell: write `cells.{'.'.join(one.path)}=...`")
        for one in overrides
        if one.path[0] in names and one.path[0] not in sections
    }


def _read_override(place: OverridePlace, mistakes: list[Mistake]) -> Override | None:
    path, equals, value = place.typed.partition("=")
    parts = tuple(part.strip() for part in path.split("."))
    if not equals:
        mistakes.append(Mistake(place, "write `path=value`, for example `--set model.layers=2`"))
    elif not all(parts):
        mistakes.append(
            Mistake(place, "the path has an empty name; write names joined by dots, for example `model.layers`")
        )
    elif parts[0] in _OF_THE_FILE:
        mistakes.append(Mistake(place, f"`{parts[0]}` {_OF_THE_FILE[parts[0]]}"))
    elif parts[0] == MATRIX and (len(parts) == 1 or parts[1] in ("exclude", "include")):
        mistakes.append(Mistake(place, f"`{path.strip()}` {_AXES}"))
    elif parts == ("cells",):
        mistakes.append(Mistake(place, "name a field of a cell: `cells.<name>.<section>.<field>=...`"))
    else:
        document = read_document(value, lambda _line, _column, _length: place)
        mistakes.extend(document.mistakes)
        if document.root is not None:
            return Override(parts, document.root, place)
        if not document.mistakes:
            mistakes.append(Mistake(place, "the value is missing; write `null` to leave an optional field out"))
    return None
