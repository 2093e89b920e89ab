"""From YAML text to a tree in which every key and value remembers where it was written.

Read from PyYAML's events rather than with ``yaml.load``, because loading forgets the places, keeps the last of two
equal keys in silence, and expands aliases without limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from dtbench.scenario.mistakes import FilePlace, Mistake, Place, shorten, split_lines
from dtbench.scenario.yaml.scalars import Scalar, read_scalar
from dtbench.scenario.yaml.syntax import Locate, explain_character, explain_syntax

_MAX_DEPTH = 12
_MAX_VALUES = 10_000
_YAML_TAG_PREFIX = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Leaf:
    """A single value."""

    value: Scalar
    place: Place


@dataclass(frozen=True)
class Items:
    """A list."""

    values: tuple["Node", ...]
    place: Place


@dataclass(frozen=True)
class Entry:
    """One ``key: value`` of a section; the key is known by the section."""

    key_place: Place
    node: "Node"


@dataclass(frozen=True)
class Section:
    """A mapping, in the order of the file."""

    entries: Mapping[str, Entry]
    place: Place


Node = Leaf | Items | Section


def to_plain(node: Node) -> object:
    """Return the tree as dicts, lists and scalars, without places."""
    match node:
        case Leaf(value=value):
            return value
        case Items(values=values):
            return [to_plain(value) for value in values]
        case Section(entries=entries):
            return {key: to_plain(entry.node) for key, entry in entries.items()}


def count_values(node: Node) -> int:
    """Count a node and all that it holds."""
    match node:
        case Leaf():
            return 1
        case Items(values=values):
            return 1 + sum(map(count_values, values))
        case Section(entries=entries):
            return 1 + sum(count_values(entry.node) for entry in entries.values())


def locate_in(text: str, source_name: str) -> Locate:
    """Return the function that finds places of the file ``source_name`` in its ``text``."""
    lines = split_lines(text)

    def locate(line: int, column: int, length: int | None) -> Place:
        source_line = lines[line] if line < len(lines) else ""
        shown_length = len(source_line) - column if length is None else length
        return FilePlace(source_name, line + 1, column + 1, max(1, shown_length), source_line)

    return locate


@dataclass(frozen=True)
class Document:
    """What a text holds; ``root`` is None for an empty text and for one that is not YAML."""

    root: Node | None
    mistakes: tuple[Mistake, ...]


def read_document(text: str, locate: Locate) -> Document:
    """Read one YAML document; nothing is raised for a wrong one: its mistakes are listed."""
    mistakes: list[Mistake] = []
    try:
        reader = _Reader(yaml.SafeLoader(text), locate, mistakes)
        return Document(reader.read_root(), tuple(mistakes))
    except _StopReadingError as stop:
        mistakes.append(stop.mistake)
    except yaml.reader.ReaderError as error:
        mistakes.append(Mistake(_place_at(text, error.position, locate), explain_character(error.character)))
    except yaml.MarkedYAMLError as error:
        mistakes.append(explain_syntax(error, locate))
    return Document(None, tuple(mistakes))


class _StopReadingError(Exception):
    """The text cannot be followed any further."""

    def __init__(self, mistake: Mistake) -> None:
        self.mistake = mistake


class _Reader:
    """Turns PyYAML's events into nodes; every mistake that allows to go on goes to ``mistakes``."""

    def __init__(self, loader: yaml.SafeLoader, locate: Locate, mistakes: list[Mistake]) -> None:
        self._loader = loader
        self._locate = locate
        self._mistakes = mistakes
        self._num_values = 0

    def read_root(self) -> Node | None:
        self._next_event()  # stream start
        if self._loader.check_event(yaml.StreamEndEvent):
            return None
        self._next_event()  # document start
        root = self._read_node(depth=0)
        self._next_event()  # document end
        if not self._loader.check_event(yaml.StreamEndEvent):
            self._complain(self._peek_event(), "a second document starts here; a scenario file holds one")
        return root

    def _read_node(self, depth: int) -> Node:
        event = self._next_event()
        self._num_values += 1
        if depth > _MAX_DEPTH:
            raise _StopReadingError(Mistake(self._place(event), f"nested more than {_MAX_DEPTH} levels deep"))
        if self._num_values > _MAX_VALUES:
            raise _StopReadingError(Mistake(self._place(event), f"more than {_MAX_VALUES} values; is this a scenario?"))
        self._refuse_references(event)
        self._refuse_half_characters(event)
        match event:
            case yaml.MappingStartEvent():
                return self._read_section(event, depth)
            case yaml.SequenceStartEvent():
                return self._read_items(event, depth)
            case yaml.ScalarEvent():
                return self._read_leaf(event)
            case _:  # an alias, refused above
                return Leaf(None, self._place(event))

    def _refuse_references(self, event: yaml.Event) -> None:
        """Refuse anchors, aliases and tags.

        They would do no more than ``cells:`` does, hide where a value was written, and can blow a small file up.
        """
        if getattr(event, "anchor", None) is not None:
            self._complain(
                event, "YAML anchors and aliases are not used here; what cells share stands once, above `cells:`"
            )
        tag = getattr(event, "tag", None)
        if tag is not None:
            self._complain(
                event, "YAML tags such as `!!int` are not used here; write the bare value, or a text in quotes"
            )

    def _refuse_half_characters(self, event: yaml.Event) -> None:
        """Refuse lone surrogates, which only an escape can write: no file could keep them."""
        if any("\ud800" <= character <= "\udfff" for character in getattr(event, "value", "")):
            raise _StopReadingError(Mistake(self._place(event), "this text holds half of a character"))

    def _read_section(self, start: yaml.MappingStartEvent, depth: int) -> Section:
        entries: dict[str, Entry] = {}
        while not self._loader.check_event(yaml.MappingEndEvent):
            key = self._read_key(depth + 1)
            node = self._read_node(depth + 1)
            if key is None:
                continue
            name, place = key
            if name in entries:
                self._mistakes.append(
                    Mistake(place, f"`{shorten(name)}` is written twice{_said_before(entries[name].key_place)}")
                )
                continue
            entries[name] = Entry(place, node)
        self._next_event()
        return Section(entries, self._place(start))

    def _read_key(self, depth: int) -> tuple[str, Place] | None:
        """Return a key that is a word; for anything else say so and give None."""
        event = self._peek_event()
        if not isinstance(event, yaml.ScalarEvent):
            self._complain(event, "a name is expected before the `:`, not a list or mapping")
            self._read_node(depth)
            return None
        self._next_event()
        self._refuse_references(event)
        self._refuse_half_characters(event)
        tag = self._tag_of(event)
        if tag == "merge":
            self._complain(event, "`<<` (merge) is not used here; what cells share stands above `cells:`")
        elif tag in ("str", "value"):
            return event.value, self._place(event)
        elif not event.value:
            self._complain(event, "a name is missing before the `:`")
        else:
            word = shorten(event.value)
            self._complain(event, f'YAML does not read a bare `{word}` as a name; put it in quotes: "{word}"')
        return None

    def _read_items(self, start: yaml.SequenceStartEvent, depth: int) -> Items:
        values: list[Node] = []
        while not self._loader.check_event(yaml.SequenceEndEvent):
            values.append(self._read_node(depth + 1))
        self._next_event()
        return Items(tuple(values), self._place(start))

    def _read_leaf(self, event: yaml.ScalarEvent) -> Leaf:
        is_bare = not event.style and event.tag is None
        if not is_bare:
            return Leaf(event.value, self._place(event))
        reading = read_scalar(event.value, self._tag_of(event))
        if reading.complaint is not None:
            self._complain(event, reading.complaint)
        return Leaf(reading.value, self._place(event))

    def _tag_of(self, event: yaml.ScalarEvent) -> str:
        """Resolve the tag that YAML 1.1 gives to a scalar by its spelling, without the common prefix."""
        tag = self._loader.resolve(yaml.ScalarNode, event.value, event.implicit)  # type: ignore[no-untyped-call]
        return str(tag).removeprefix(_YAML_TAG_PREFIX)

    def _complain(self, event: yaml.Event, sentence: str) -> None:
        self._mistakes.append(Mistake(self._place(event), sentence))

    def _place(self, event: yaml.Event) -> Place:
        start, end = event.start_mark, event.end_mark
        assert start is not None  # the types allow it, the parser does not
        assert end is not None
        return self._locate(start.line, start.column, end.column - start.column if end.line == start.line else None)

    def _next_event(self) -> yaml.Event:
        event: yaml.Event = self._loader.get_event()  # type: ignore[no-untyped-call]
        return event

    def _peek_event(self) -> yaml.Event:
        event: yaml.Event = self._loader.peek_event()  # type: ignore[no-untyped-call]
        return event


def _said_before(place: Place) -> str:
    return f"; the first is on line {place.line}" if isinstance(place, FilePlace) else ""


def _place_at(text: str, position: int, locate: Locate) -> Place:
    lines = split_lines(text[:position])
    return locate(len(lines) - 1, len(lines[-1]), 1)
