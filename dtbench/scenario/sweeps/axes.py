"""The axes of a ``matrix:``: which fields or named variations it crosses, with every value as text and as a change.

::

    matrix:
      parallel.bucket_cap_mb: [null, 1, 4]          a field and its values; null leaves the field unset
      strategy: {ddp: {...}, fsdp2: {...}}          named variations, each a mapping of what it changes
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dtbench.base.record import Record
from dtbench.scenario.mistakes import Mistake, find_nearest, join_words, shorten
from dtbench.scenario.schema.scenario import Scenario
from dtbench.scenario.sweeps.variations import read_variations
from dtbench.scenario.yaml.document import Entry, Items, Leaf, Node, Section, to_plain
from dtbench.scenario.yaml.expectation import is_mapping_of_texts, is_section, kinds_of
from dtbench.scenario.yaml.scalars import show_scalar, text_of_scalar

UNSET = "unset"
"""How a value that leaves its field unset reads in names and tables."""

CELL_AXIS = "cell"
"""The axis that the names under ``cells:`` are, where a file has both."""

_MOST_LABEL_LENGTH = 24


@dataclass(frozen=True)
class Value:
    """One value of an axis.

    Attributes:
        key: what two equal values share.
        text: as tables say it.
        label: as names of cells say it.
        change: what it lays over a cell; None leaves the axis's field unset.
    """

    key: object
    text: str
    label: str
    change: Section | None


@dataclass(frozen=True)
class Axis:
    """One axis; ``path`` is that of its field, None for named variations."""

    name: str
    path: tuple[str, ...] | None
    values: tuple[Value, ...]
    entry: Entry

    def find(self, node: Node) -> Value | None:
        """Return the value that a person wrote; None when the axis has no such value."""
        return next((value for value in self.values if value.key == key_of(node)), None)

    def list_values(self) -> str:
        """Name the values as a sentence does."""
        shown = [f"`{shorten(value.text, 30)}`" for value in self.values[:8]]
        return join_words([*shown, *(["more"] if len(self.values) > 8 else [])], last="and")


def read_axes(section: Section, mistakes: list[Mistake]) -> tuple[Axis, ...]:
    """Return the axes of a matrix in the order of the file; one without a usable value is told and left out."""
    fields = dict(list_fields(Scenario, ()))
    axes = []
    for name, entry in section.entries.items():
        if isinstance(entry.node, Section):
            axes.append(_read_named(name, entry, fields, mistakes))
        else:
            axes.append(_read_listed(name, entry, fields, mistakes))
    return _with_short_labels([axis for axis in axes if axis is not None and axis.values])


def make_value(axis: Axis, node: Node, mistakes: list[Mistake]) -> Value | None:
    """Return a value for an axis that it may not list: a new one for a field, one of the names for variations."""
    found = axis.find(node)
    if found is not None:
        return found
    if axis.path is None:
        mistakes.append(refuse_value(axis, node))
        return None
    value = _listed_value(axis.name, axis.path, Entry(axis.entry.key_place, node), mistakes)
    return None if value is None else _labelled(_short_name(axis.path, 1), value)


def refuse_value(axis: Axis, node: Node) -> Mistake:
    """Say that an axis has no such value, and which it has."""
    sentence = f"`{shorten(axis.name)}` has no value {show_node(node)}; it has {axis.list_values()}"
    word = node.value if isinstance(node, Leaf) and isinstance(node.value, str) else None
    near = None if word is None else find_nearest(word, [value.text for value in axis.values])
    return Mistake(node.place, sentence, near)


def name_axis(name: str, entry: Entry, variations: Mapping[str, Section]) -> Axis:
    """Return an axis of named variations."""
    values = tuple(Value(("text", word), word, word, change) for word, change in variations.items())
    return Axis(name, None, values, entry)


def list_fields(record: type[Record], path: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    """Return every field that holds a value, all kinds of each section, by its dotted path, with what it accepts."""
    for name, field in record.model_fields.items():
        if is_section(field.annotation):
            for section in kinds_of(field.annotation).values():
                yield from list_fields(section, (*path, name))
        elif name != "schema_version":
            yield ".".join((*path, name)), field.annotation


def key_of(node: Node) -> object:
    """Return something that is equal for equal values: 1 is 1.0, but neither ``true`` nor the text '1'."""
    match node:
        case Leaf(value=bool(value)):
            return ("bool", value)
        case Leaf(value=int(value) | float(value)):
            return ("number", value)
        case Leaf(value=value):
            return ("text", value)
        case Items(values=values):
            return ("list", tuple(key_of(value) for value in values))
        case Section():
            return ("mapping", str(to_plain(node)))


def text_of(node: Node) -> str:
    """Return a value as a table says it."""
    match node:
        case Leaf(value=None):
            return UNSET
        case Leaf(value=value):
            return text_of_scalar(value)
        case Items(values=values):
            return f"[{', '.join(text_of(value) for value in values)}]"
        case Section():
            return str(to_plain(node))


def show_node(node: Node) -> str:
    """Return what is written as a sentence says it."""
    return show_scalar(node.value) if isinstance(node, Leaf) else f"`{shorten(text_of(node))}`"


def _read_named(name: str, entry: Entry, fields: Mapping[str, object], mistakes: list[Mistake]) -> Axis | None:
    assert isinstance(entry.node, Section)
    if name == CELL_AXIS:
        sentence = f"`{CELL_AXIS}` is the axis of the names under `cells:`; give this one another name"
        mistakes.append(Mistake(entry.key_place, sentence))
        return None
    if _find_field(name, fields) is not None:
        example = f"`{name}: [{', '.join(list(entry.node.entries)[:2])}]`"
        mistakes.append(Mistake(entry.key_place, f"`{name}` is a field, so its values are a list, such as {example}"))
        return None
    if "." in name:
        mistakes.append(_refuse_unknown(name, entry, fields))
        return None
    if not entry.node.entries:
        mistakes.append(Mistake(entry.key_place, f"axis `{shorten(name)}` has no variation; name at least one"))
    return name_axis(name, entry, read_variations(entry, "variation", mistakes))


def _read_listed(name: str, entry: Entry, fields: Mapping[str, object], mistakes: list[Mistake]) -> Axis | None:
    path = _find_field(name, fields)
    if path is None:
        mistakes.append(_refuse_unknown(name, entry, fields))
        return None
    node = entry.node
    if not isinstance(node, Items):
        example = f"`{name}: [{shorten(text_of(node)) if text_of(node) != UNSET else 'null'}]`"
        mistakes.append(Mistake(node.place, f"the values of an axis are a list, such as {example}"))
        return None
    if not node.values:
        mistakes.append(Mistake(node.place, f"axis `{name}` has no value; write at least one"))
    values: list[Value] = []
    for item in node.values:
        value = _listed_value(name, path, Entry(entry.key_place, item), mistakes)
        if value is not None and value.key in [known.key for known in values]:
            mistakes.append(Mistake(item.place, f"{show_node(item)} stands twice on the axis `{name}`"))
        elif value is not None:
            values.append(value)
    return Axis(name, path, tuple(values), entry)


def _listed_value(name: str, path: tuple[str, ...], entry: Entry, mistakes: list[Mistake]) -> Value | None:
    node = entry.node
    if isinstance(node, Section):
        sentence = f"a value of `{name}` cannot be a mapping; name it: `<axis>: {{<name>: {{<section>: ...}}}}`"
        mistakes.append(Mistake(node.place, sentence))
        return None
    is_unset = isinstance(node, Leaf) and node.value is None
    return Value(key_of(node), text_of(node), text_of(node), None if is_unset else nest(path, entry))


def nest(path: tuple[str, ...], entry: Entry) -> Section:
    """Turn the path ``a.b`` and a value into ``{a: {b: value}}``."""
    *outer, last = path
    section = Section({last: entry}, entry.key_place)
    for key in reversed(outer):
        section = Section({key: Entry(entry.key_place, section)}, entry.key_place)
    return section


def _find_field(name: str, fields: Mapping[str, object]) -> tuple[str, ...] | None:
    """Return the path of a field that can be an axis: any that holds a value, or one name of a mapping of texts."""
    if name in fields:
        return None if is_mapping_of_texts(fields[name]) else tuple(name.split("."))
    section, dot, key = name.partition(".")
    return (section, key) if dot and key and is_mapping_of_texts(fields.get(section)) else None


def _refuse_unknown(name: str, entry: Entry, fields: Mapping[str, object]) -> Mistake:
    """Say that no field has this name, and which was probably meant."""
    if is_mapping_of_texts(fields.get(name)):
        return Mistake(entry.key_place, f"an axis sets one variable: `{name}.<NAME>: [...]`")
    if any(field.startswith(f"{name}.") for field in fields):
        sentence = f"`{name}` is a section; an axis is one field of it, or a mapping of named variations"
        return Mistake(entry.key_place, sentence)
    ends = [field for field in fields if field.endswith(f".{name}")]
    near = ends[0] if ends else find_nearest(name, fields)
    sentence = f"`{shorten(name)}` is not a field of a scenario"
    if near is not None:
        return Mistake(entry.key_place, sentence, near)
    hint = f"named variations are a mapping: `{shorten(name)}: {{<name>: {{<section>: ...}}}}`"
    return Mistake(entry.key_place, f"{sentence}; {hint}")


def _with_short_labels(axes: list[Axis]) -> tuple[Axis, ...]:
    """Return labels that are short, that say which field they are of, and that differ along each axis."""
    paths = [axis.path for axis in axes if axis.path is not None]
    shortened = []
    for axis in axes:
        if axis.path is None:
            shortened.append(axis)
            continue
        parts = next(
            count
            for count in range(1, len(axis.path) + 1)
            if count == len(axis.path) or sum(path[-count:] == axis.path[-count:] for path in paths) == 1
        )
        short_name = _short_name(axis.path, parts)
        labels = cut_common_folders([value.label for value in axis.values])
        pairs = zip(axis.values, labels, strict=True)
        values = _distinct([_labelled(short_name, replace(value, label=label)) for value, label in pairs])
        shortened.append(replace(axis, values=values))
    return tuple(shortened)


def _short_name(path: tuple[str, ...], parts: int) -> str:
    return "_".join(path[-parts:])


def cut_common_folders(texts: Sequence[str]) -> list[str]:
    """Cut from paths the folders that all of them share at either end, from a lone one all but one; other texts stay.

    >>> cut_common_folders(["unset", "/opt/torch-2.11/bin/python", "/opt/torch-2.13/bin/python"])
    ['unset', 'torch-2.11', 'torch-2.13']
    """
    paths = [text.split("/") for text in dict.fromkeys(texts) if "/" in text]
    if len(paths) < 2:
        return [_name_of_environment(text) if "/" in text else text for text in texts]
    first = next((place for place, parts in enumerate(zip(*paths, strict=False)) if len(set(parts)) > 1), 0)
    backwards = zip(*(path[first:][::-1] for path in paths), strict=False)
    last = next((place for place, parts in enumerate(backwards) if len(set(parts)) > 1), 0)
    return ["/".join(path[first : len(path) - last]) if (path := text.split("/")) in paths else text for text in texts]


def _name_of_environment(path: str) -> str:
    """Return the part of a path that a person has named: of an interpreter, the folder of its environment."""
    parts = [part for part in path.split("/") if part]
    named = [part for part in parts if part != "bin" and not part.startswith("python")]
    return (named or parts or [path])[-1]


def _labelled(short_name: str, value: Value) -> Value:
    return replace(value, label=_to_name(f"{short_name}-{_to_name(value.label)[-_MOST_LABEL_LENGTH:]}"))


def _to_name(text: str) -> str:
    """Return a text in the letters that names of cells have."""
    return re.sub(
        r"[^a-z0-9_-]*\.[^a-z0-9_-]*", ".", re.sub(r"[^a-z0-9_.-]+", "_", text.lower().replace("/", "-"))
    ).strip("._")


def _distinct(values: list[Value]) -> tuple[Value, ...]:
    """Number labels that would be equal."""
    labels = [value.label for value in values]
    return tuple(
        value if labels.count(value.label) == 1 else replace(value, label=f"{value.label}_{place}")
        for place, value in enumerate(values)
    )
