"""``matrix:``, the product of axes: which points there are, and what each is called.

Named variations are laid over a cell first, then kinds, then other fields, whatever their order in the file: a field of
``parallel`` must not be lost because the strategy that has it comes later.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from dtbench.scenario.mistakes import MOST_MISTAKES, Mistake, Place, find_nearest, join_words, shorten
from dtbench.scenario.sweeps.axes import (
    CELL_AXIS,
    Axis,
    Value,
    make_value,
    name_axis,
    read_axes,
    refuse_value,
    show_node,
)
from dtbench.scenario.sweeps.variations import MOST_CELLS, MOST_NAME_LENGTH
from dtbench.scenario.yaml.document import Entry, Items, Section

_LISTS_OF_POINTS = ("exclude", "include")

_Coordinates = dict[str, Value]
"""A point: the value on each axis that it has one on, in the order of the axes."""


@dataclass(frozen=True)
class Point:
    """One cell of a matrix.

    Attributes:
        cell: the name under ``cells:`` that it belongs to; None in a file without them.
        coordinates: axis to value, as text.
        changes: what is laid over the cell, in this order.
        unset: paths of fields that are left out, after that.
    """

    name: str
    cell: str | None
    coordinates: Mapping[str, str]
    changes: tuple[Section, ...]
    unset: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Matrix:
    """The points of a file, not validated yet; ``places`` are those of its axes."""

    points: tuple[Point, ...]
    places: frozenset[Place]


def expand_matrix(entry: Entry, cells: Mapping[str, Section] | None, mistakes: list[Mistake]) -> Matrix:
    """Return the points of a matrix: those of its product that are not excluded, each for each cell, then the included.

    Args:
        entry: ``matrix:`` of the file.
        cells: the variations under ``cells:``; None in a file without them.
        mistakes: gets what is wrong.
    """
    if not isinstance(entry.node, Section):
        mistakes.append(
            Mistake(entry.key_place, "`matrix` must be a mapping from axes to lists of values or named variations")
        )
        return Matrix((), frozenset())
    parts = entry.node.entries
    section = Section({name: part for name, part in parts.items() if name not in _LISTS_OF_POINTS}, entry.node.place)
    axes = read_axes(section, mistakes)
    if not section.entries:
        mistakes.append(Mistake(entry.key_place, "`matrix` has no axis: write `<section>.<field>: [...]` under it"))
        return Matrix((), frozenset())
    lost = [part for name, part in section.entries.items() if name not in [axis.name for axis in axes]]
    if cells is not None:
        axes = (name_axis(CELL_AXIS, entry, cells), *axes)
    if lost:
        return Matrix(tuple(_make_points(axes, _sample(axes, lost))), frozenset())
    count = prod(len(axis.values) for axis in axes)
    if count > MOST_CELLS:
        sizes = " x ".join(str(len(axis.values)) for axis in axes)
        mistakes.append(Mistake(entry.key_place, f"{sizes} are {count} cells, and a scenario has at most {MOST_CELLS}"))
        return Matrix((), frozenset())
    points = _exclude(axes, parts.get("exclude"), mistakes)
    if not points and count and "include" not in parts:
        mistakes.append(Mistake(parts["exclude"].key_place, "every point is excluded, so there is no cell left to run"))
    points += _include(axes, parts.get("include"), points, mistakes)
    return Matrix(tuple(_make_points(axes, points)), frozenset(axis.entry.key_place for axis in axes))


def _sample(axes: Sequence[Axis], lost: Sequence[Entry]) -> list[_Coordinates]:
    """Return one point, in which the file's rest can be checked; none where variations are lost, which it needs."""
    if any(isinstance(entry.node, Section) for entry in lost):
        return []
    return [{axis.name: axis.values[0] for axis in axes if axis.values}]


def _exclude(axes: Sequence[Axis], entry: Entry | None, mistakes: list[Mistake]) -> list[_Coordinates]:
    names = [axis.name for axis in axes]
    points = [dict(zip(names, values, strict=True)) for values in product(*(axis.values for axis in axes))]
    for pattern, place in _read_patterns(axes, entry, mistakes):
        values = {axis.name: axis.find(pattern[axis.name].node) for axis in axes if axis.name in pattern}
        unknown = [axis for axis in axes if axis.name in pattern and values[axis.name] is None]
        mistakes += [refuse_value(axis, pattern[axis.name].node) for axis in unknown]
        if unknown:
            continue
        keys = {name: value.key for name, value in values.items() if value is not None}
        left = [point for point in points if any(point[name].key != key for name, key in keys.items())]
        if len(left) == len(points):
            mistakes.append(
                Mistake(place, "this drops nothing: what stands before it has dropped these points already")
            )
        points = left
    return points


def _include(
    axes: Sequence[Axis], entry: Entry | None, known: Sequence[_Coordinates], mistakes: list[Mistake]
) -> list[_Coordinates]:
    """Return the points that are written out; one that names no cell is one for each cell."""
    added: list[_Coordinates] = []
    taken = {_keys(point) for point in known}
    for pattern, place in _read_patterns(axes, entry, mistakes):
        point: _Coordinates = {}
        for axis in axes:
            value = make_value(axis, pattern[axis.name].node, mistakes) if axis.name in pattern else None
            if value is not None:
                point[axis.name] = value
        new = list(_for_each_cell(axes, point))
        if not taken.isdisjoint(map(_keys, new)):
            mistakes.append(Mistake(place, "this point is there already; leave it out"))
        taken.update(map(_keys, new))
        added += new
        if len(known) + len(added) > MOST_CELLS:
            mistakes.append(
                Mistake(place, f"with this point there are more than {MOST_CELLS} cells, the most of a file")
            )
            return []
    return added


def _for_each_cell(axes: Sequence[Axis], point: _Coordinates) -> Iterator[_Coordinates]:
    if axes[0].name != CELL_AXIS or CELL_AXIS in point:
        yield point
        return
    for value in axes[0].values:
        yield {CELL_AXIS: value, **point}


def _keys(point: _Coordinates) -> frozenset[tuple[str, object]]:
    return frozenset((name, value.key) for name, value in point.items())


def _read_patterns(
    axes: Sequence[Axis], entry: Entry | None, mistakes: list[Mistake]
) -> Iterator[tuple[Mapping[str, Entry], Place]]:
    """Return each mapping of a list of points that names only axes, with its place."""
    if entry is None:
        return
    if not isinstance(entry.node, Items) or not entry.node.values:
        example = f"[{{{axes[0].name}: ...}}]"
        mistakes.append(Mistake(entry.key_place, f"this must be a list of points, such as `{example}`"))
        return
    names = [axis.name for axis in axes]
    for item in entry.node.values:
        if len(mistakes) >= MOST_MISTAKES:
            return
        if not isinstance(item, Section) or not item.entries:
            mistakes.append(Mistake(item.place, f"a point is a mapping from axes to values, not {show_node(item)}"))
            continue
        unknown = [name for name in item.entries if name not in names]
        mistakes += [_refuse_axis(name, item.entries[name], names) for name in unknown]
        if not unknown:
            yield item.entries, item.place


def _refuse_axis(name: str, entry: Entry, names: Sequence[str]) -> Mistake:
    known = join_words([f"`{axis}`" for axis in names], last="and")
    near = find_nearest(name, names)
    hint = "" if near is not None else f"; the axes are {known}"
    return Mistake(entry.key_place, f"`{shorten(name)}` is not an axis of this matrix{hint}", near)


def _make_points(axes: Sequence[Axis], points: Sequence[_Coordinates]) -> Iterator[Point]:
    names = _name_points(axes, points)
    for name, point in zip(names, points, strict=True):
        chosen = [(axis, point[axis.name]) for axis in axes if axis.name in point]
        ordered = sorted(chosen, key=lambda pair: _order(pair[0]))
        yield Point(
            name=name,
            cell=point[CELL_AXIS].text if CELL_AXIS in point else None,
            coordinates={axis.name: value.text for axis, value in chosen},
            changes=tuple(value.change for _, value in ordered if value.change is not None),
            unset=tuple(axis.path for axis, value in chosen if value.change is None and axis.path is not None),
        )


def _order(axis: Axis) -> int:
    if axis.path is None:
        return 0
    return 1 if axis.path[-1] == "kind" else 2


def _name_points(axes: Sequence[Axis], points: Sequence[_Coordinates]) -> list[str]:
    """Join the labels of each point, those left out that all points share; of long names, fields by their initials.

    A name that is still too long, or taken, is cut and ends with the number of its point.
    """
    keys = {axis.name: {point[axis.name].key if axis.name in point else None for point in points} for axis in axes}
    telling = [axis for axis in axes if len(keys[axis.name]) > 1] or axes
    names = [_join(telling, point, [value.label for value in point.values()]) for point in points]
    if any(len(name) > MOST_NAME_LENGTH for name in names):
        short = [
            {axis.name: _abbreviate(axis, point[axis.name]) for axis in axes if axis.name in point} for point in points
        ]
        names = [_join(telling, point, [value.label for value in point.values()]) for point in short]
    taken: set[str] = set()
    for number, name in enumerate(names):
        ending = f"_{number}"
        cut = name[: MOST_NAME_LENGTH - len(ending)].rstrip("._-") + ending
        names[number] = name if len(name) <= MOST_NAME_LENGTH and name not in taken else cut
        taken.add(names[number])
    return names


def _join(axes: Sequence[Axis], point: _Coordinates, otherwise: Sequence[str]) -> str:
    return ".".join([point[axis.name].label for axis in axes if axis.name in point] or otherwise)


def _abbreviate(axis: Axis, value: Value) -> Value:
    """Return a value of a field with the initials of the field's words in its label."""
    if axis.path is None:
        return value
    field, _, text = value.label.partition("-")
    return replace(value, label=f"{''.join(word[:1] for word in field.split('_'))}-{text}")
