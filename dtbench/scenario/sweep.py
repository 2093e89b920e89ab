"""One scenario file to many cells: each named variation merged over what they share, and ``--set`` over both.

The merge has three rules. Two mappings merge key by key. Two mappings whose ``kind`` differs do not: the later one
replaces the earlier. Anything else replaces. Places travel with the values, so a mistake in any cell still points to
the line that a person wrote.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dtbench.scenario.document import Entry, Leaf, Node, Section, to_plain
from dtbench.scenario.mistakes import Mistake, find_nearest, join_words, shorten
from dtbench.scenario.override import Override

CELL_NAME_RULE = "small letters, digits, `_`, `-` and `.`, starting with a letter or digit, at most 64"

_CELL_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*")
_MAX_CELL_NAME_LENGTH = 64
_NOT_IN_CELLS = ("schema_version", "cells")


@dataclass(frozen=True)
class Sweep:
    """The cells of a file by name, not validated yet."""

    cells: Mapping[str, Section]
    mistakes: tuple[Mistake, ...]


def expand_cells(root: Section, overrides: Sequence[Override]) -> Sweep:
    """Give every cell of a file with the overrides applied; a file without ``cells`` is one cell named by its kind.

    A second way to write many cells (``matrix:``, the product of lists) would become a mapping of names to variations
    beside ``_read_variations`` and join the rest here.
    """
    mistakes: list[Mistake] = []
    shared = Section({key: entry for key, entry in root.entries.items() if key != "cells"}, root.place)
    for_all = [override for override in overrides if not override.place.is_for_one_cell]
    for_one = [override for override in overrides if override.place.is_for_one_cell]
    if "cells" in root.entries:
        variations = _read_variations(root.entries["cells"], mistakes)
        cells = {name: merge(shared, variation) for name, variation in variations.items()}
    else:
        cells = {_name_by_kind(_apply(shared, for_all)): shared}
    changes = {name: list(for_all) for name in cells}
    for override in for_one:
        _assign(override, changes, mistakes)
    return Sweep({name: _apply(cell, changes[name]) for name, cell in cells.items()}, tuple(mistakes))


def merge(earlier: Section, later: Section) -> Section:
    """Lay ``later`` over ``earlier``; a merged section keeps the place where it was first written."""
    entries = dict(earlier.entries)
    for key, entry in later.entries.items():
        before = entries.get(key)
        if before is None:
            entries[key] = entry
        elif (
            isinstance(before.node, Section)
            and isinstance(entry.node, Section)
            and not _kinds_differ(before.node, entry.node)
        ):
            entries[key] = Entry(before.key_place, merge(before.node, entry.node))
        else:
            entries[key] = entry
    return Section(entries, earlier.place)


def _kinds_differ(earlier: Section, later: Section) -> bool:
    kinds = [to_plain(section.entries["kind"].node) for section in (earlier, later) if "kind" in section.entries]
    return len(kinds) == 2 and kinds[0] != kinds[1]


def _read_variations(entry: Entry, mistakes: list[Mistake]) -> dict[str, Section]:
    """Give what each cell changes; cells that cannot be used are told in ``mistakes`` and left out."""
    if not isinstance(entry.node, Section) or not entry.node.entries:
        mistakes.append(
            Mistake(
                entry.key_place,
                "`cells` must be a mapping from names to what each cell changes, with at least one name",
            )
        )
        return {}
    variations: dict[str, Section] = {}
    for name, cell in entry.node.entries.items():
        if not is_cell_name(name):
            mistakes.append(
                Mistake(cell.key_place, f"a cell becomes a folder, so its name is made of {CELL_NAME_RULE}")
            )
        if isinstance(cell.node, Section):
            variations[name] = _without_forbidden(name, cell.node, mistakes)
        else:
            mistakes.append(
                Mistake(
                    cell.key_place,
                    f"cell `{shorten(name)}` must be a mapping of what it changes; `{{}}` changes nothing",
                )
            )
    return variations


def _without_forbidden(name: str, variation: Section, mistakes: list[Mistake]) -> Section:
    for key in _NOT_IN_CELLS:
        if key in variation.entries:
            place = variation.entries[key].key_place
            mistakes.append(Mistake(place, f"`{key}` belongs to the file, not into a cell (`{shorten(name)}`)"))
    entries = {key: entry for key, entry in variation.entries.items() if key not in _NOT_IN_CELLS}
    return Section(entries, variation.place)


def is_cell_name(name: str) -> bool:
    """Whether a name can be a folder on every system; ``..`` and a dot at the end cannot."""
    return len(name) <= _MAX_CELL_NAME_LENGTH and _CELL_NAME.fullmatch(name) is not None


def _name_by_kind(cell: Section) -> str:
    """Give ``parallel.kind``; ``only`` where there is none, which validation will refuse."""
    parallel = cell.entries.get("parallel")
    kind = parallel.node.entries.get("kind") if parallel and isinstance(parallel.node, Section) else None
    match kind:
        case Entry(node=Leaf(value=str() as name)) if is_cell_name(name):
            return name
        case _:
            return "only"


def _assign(override: Override, changes: dict[str, list[Override]], mistakes: list[Mistake]) -> None:
    """Give an override for one cell to that cell."""
    path = ".".join(override.path[1:])
    name = max((name for name in changes if path.startswith(f"{name}.")), key=len, default=None)
    if name is not None:
        rest = tuple(path.removeprefix(f"{name}.").split("."))
        changes[name].append(Override(rest, override.node, override.place))
    elif not changes:
        return  # what is wrong with the cells is told already
    elif path in changes:
        mistakes.append(Mistake(override.place, f"name a field of the cell: `cells.{path}.<section>.<field>=...`"))
    else:
        word = override.path[1] if len(override.path) > 1 else ""
        near = find_nearest(word, changes)
        known = join_words([f"`{name}`" for name in changes], last="and")
        meant = None if near is None else ".".join(("cells", near, *override.path[2:]))
        mistakes.append(Mistake(override.place, f"no cell is called `{shorten(word)}`; the cells are {known}", meant))


def _apply(cell: Section, overrides: Iterable[Override]) -> Section:
    """Lay all overrides over a cell at once, so that ``parallel.kind`` and its fields can come in any order."""
    changes = Section({}, cell.place)
    for override in overrides:
        changes = merge(changes, _nest(override))
    return merge(cell, changes)


def _nest(override: Override) -> Section:
    """Turn ``a.b=1`` into ``{a: {b: 1}}``."""
    node: Node = override.node
    for key in reversed(override.path):
        node = Section({key: Entry(override.place, node)}, override.place)
    assert isinstance(node, Section)  # a path has at least one part
    return node
