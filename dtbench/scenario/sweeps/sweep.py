"""One scenario file to many cells: each named variation merged over what they share, and ``--set`` over both.

The merge has three rules. Two mappings merge key by key. Two mappings whose ``kind`` differs do not: the later one
replaces the earlier. Anything else replaces. Places travel with the values, so a mistake in any cell still points to
the line that a person wrote.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dtbench.scenario.mistakes import Mistake, Place, find_nearest, join_words, shorten
from dtbench.scenario.sweeps.axes import nest
from dtbench.scenario.sweeps.matrix import Matrix, expand_matrix
from dtbench.scenario.sweeps.variations import FILE_SECTIONS, MOST_CELLS, is_cell_name, read_variations
from dtbench.scenario.yaml.document import Entry, Leaf, Section, count_values, to_plain
from dtbench.scenario.yaml.override import MATRIX, Override

_MOST_VALUES = 150_000
"""Of all cells together, each with what all share: so many take seconds to read."""
_MOST_NAMES = 8
"""Cells that a sentence names."""


@dataclass(frozen=True)
class Sweep:
    """The cells of a file by name, not validated yet.

    Attributes:
        coordinates: of the cells of a matrix by name: axis to value, as text.
        axis_places: where the axes of a matrix stand.
    """

    cells: Mapping[str, Section]
    mistakes: tuple[Mistake, ...]
    coordinates: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    axis_places: frozenset[Place] = frozenset()


def add_axes(root: Section, axes: Iterable[Override]) -> Section:
    """Return a file with more axes in its ``matrix``, or other values of those that it has; as it is without any.

    Args:
        root: of the file.
        axes: overrides of ``matrix.<section>.<field>``.
    """
    entry = root.entries.get(MATRIX)
    for one in axes:
        before = entry.node.entries if entry is not None and isinstance(entry.node, Section) else {}
        axis = {".".join(one.path[1:]): Entry(one.place, one.node)}
        entry = Entry(one.place, Section({**before, **axis}, one.place))
    return root if entry is None else Section({**root.entries, MATRIX: entry}, root.place)


def expand_cells(root: Section, overrides: Sequence[Override]) -> Sweep:
    """Return every cell of a file with the overrides applied.

    The cells are those named under ``cells``, the points of ``matrix``, or each point for each named cell; a file with
    neither is one cell, called by its kind.
    """
    mistakes: list[Mistake] = []
    shared = Section({key: entry for key, entry in root.entries.items() if key not in FILE_SECTIONS}, root.place)
    for_all = [override for override in overrides if not override.place.is_for_one_cell]
    named = _read_cells(root, mistakes)
    matrix = expand_matrix(root.entries["matrix"], named, mistakes) if "matrix" in root.entries else None
    place = next((root.entries[name].key_place for name in ("matrix", "cells") if name in root.entries), root.place)
    too_large = _describe_size(shared, named, matrix)
    if too_large is not None:
        return Sweep({}, (*mistakes, Mistake(place, too_large)))
    if matrix is not None:
        cells = {point.name: _lay(shared, point.changes, point.unset) for point in matrix.points}
    elif named is not None:
        cells = {name: merge(shared, variation) for name, variation in named.items()}
    else:
        cells = {_name_by_kind(_apply(shared, for_all)): shared}
    changes = {name: list(for_all) for name in cells}
    groups = _group(cells, matrix)
    for override in overrides:
        if override.place.is_for_one_cell:
            _assign(override, changes, groups, mistakes)
    return Sweep(
        {name: _apply(cell, changes[name]) for name, cell in cells.items()},
        tuple(mistakes),
        {} if matrix is None else {point.name: point.coordinates for point in matrix.points},
        frozenset() if matrix is None else matrix.places,
    )


def _read_cells(root: Section, mistakes: list[Mistake]) -> dict[str, Section] | None:
    """Return the variations under ``cells``; None in a file without."""
    entry = root.entries.get("cells")
    if entry is None:
        return None
    if not isinstance(entry.node, Section) or not entry.node.entries:
        sentence = "`cells` must be a mapping from names to what each cell changes, with at least one name"
        mistakes.append(Mistake(entry.key_place, sentence))
    return read_variations(entry, "cell", mistakes)


def _describe_size(shared: Section, named: Mapping[str, Section] | None, matrix: Matrix | None) -> str | None:
    """Say how large the cells are together, where that is more than what a person waits for; else None."""
    if matrix is not None:
        sizes = {id(change): count_values(change) for point in matrix.points for change in point.changes}
        several = [sum(sizes[id(change)] for change in point.changes) for point in matrix.points]
    else:
        several = [count_values(cell) for cell in (named or {}).values()]
    if len(several) > MOST_CELLS:
        return f"these are {len(several)} cells, and a scenario has at most {MOST_CELLS}"
    values = len(several) * count_values(shared) + sum(several)
    if values > _MOST_VALUES:
        held = f"{len(several)} cells hold {values:,} values together, and a scenario at most {_MOST_VALUES:,}"
        return f"{held}; each cell has a copy of what all share"
    return None


def _group(cells: Iterable[str], matrix: Matrix | None) -> dict[str, list[str]]:
    """Return which cells an override can name at once: each by itself, and all points of a cell of the file."""
    groups: dict[str, list[str]] = {}
    for point in matrix.points if matrix is not None else ():
        if point.cell is not None:
            groups.setdefault(point.cell, []).append(point.name)
    return {**groups, **{name: [name] for name in cells}}


def _lay(cell: Section, changes: Iterable[Section], unset: Iterable[tuple[str, ...]]) -> Section:
    for change in changes:
        cell = merge(cell, change)
    for path in unset:
        cell = _without(cell, path)
    return cell


def _without(section: Section, path: tuple[str, ...]) -> Section:
    """Leave a field out; nothing changes where it is not there."""
    name, *rest = path
    entry = section.entries.get(name)
    entries = dict(section.entries)
    if entry is not None and not rest:
        del entries[name]
    elif entry is not None and isinstance(entry.node, Section):
        entries[name] = Entry(entry.key_place, _without(entry.node, tuple(rest)))
    return Section(entries, section.place)


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


def _name_by_kind(cell: Section) -> str:
    """Return ``parallel.kind``; ``only`` where there is none, which validation will refuse."""
    parallel = cell.entries.get("parallel")
    kind = parallel.node.entries.get("kind") if parallel and isinstance(parallel.node, Section) else None
    match kind:
        case Entry(node=Leaf(value=str() as name)) if is_cell_name(name):
            return name
        case _:
            return "only"


def _assign(
    override: Override,
    changes: dict[str, list[Override]],
    groups: Mapping[str, Sequence[str]],
    mistakes: list[Mistake],
) -> None:
    """Return an override for one cell, or for one cell of the file and all its points, to those cells."""
    path = ".".join(override.path[1:])
    group = max((name for name in groups if path.startswith(f"{name}.")), key=len, default=None)
    if group is not None:
        rest = tuple(path.removeprefix(f"{group}.").split("."))
        for name in groups[group]:
            changes[name].append(Override(rest, override.node, override.place))
    elif not changes:
        return  # what is wrong with the cells is told already
    elif path in groups:
        mistakes.append(Mistake(override.place, f"name a field of the cell: `cells.{path}.<section>.<field>=...`"))
    else:
        word = override.path[1] if len(override.path) > 1 else ""
        near = find_nearest(word, groups)
        known = name_some(list(groups))
        meant = None if near is None else ".".join(("cells", near, *override.path[2:]))
        mistakes.append(Mistake(override.place, f"no cell is called `{shorten(word)}`; the cells are {known}", meant))


def name_some(cells: Sequence[str]) -> str:
    """Name cells as a sentence does, the first few where there are many."""
    shown = [f"`{shorten(name)}`" for name in cells[:_MOST_NAMES]]
    rest = len(cells) - len(shown)
    return join_words([*shown, *([f"{rest} more"] if rest else [])], last="and")


def point_to(name: str, known: Sequence[str]) -> str:
    """Say what was meant by a name that nothing has, or what there is."""
    near = find_nearest(name, known)
    return f"did you mean `{near}`?" if near else f"it has {name_some(known)}"


def _apply(cell: Section, overrides: Iterable[Override]) -> Section:
    """Lay all overrides over a cell at once, so that ``parallel.kind`` and its fields can come in any order."""
    changes = Section({}, cell.place)
    for override in overrides:
        changes = merge(changes, nest(override.path, Entry(override.place, override.node)))
    return merge(cell, changes)
