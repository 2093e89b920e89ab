"""A JSON document is one list of keys: each says what it holds, what that means, and how an answer gets its value.

As with the columns of a table, a key cannot be declared without the function that produces it. What ``--json`` prints,
its JSON Schema and the page of documents are made of that one list, so none of them can have a key that another lacks.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, Generic, Protocol, TypeVar

from dtbench.base.columns import Column, Table, Unit
from dtbench.base.docstrings import read_attributes

R = TypeVar("R")
T = TypeVar("T")

Schema = dict[str, Any]
"""A JSON Schema, or part of one: whatever JSON holds."""

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
UNIT: Final = "unit"
"""A word of our own in a schema, which readers of JSON Schema pass over: the unit of a number."""
VERSION: Final = "of this document: while it is the same, a later dtbench may add keys, and takes none away"
"""What a format version means."""


class Holds(Protocol):
    """What a key of a document holds."""

    def write(self, value: Any) -> object:
        """Return a value as JSON has it."""

    def describe(self, definitions: dict[str, Schema]) -> Schema:
        """Return its schema; objects are added to ``definitions`` by name, and referred to."""


@dataclass(frozen=True)
class Plain:
    """A word, a number, yes or no: as it is."""

    type: str
    unit: Unit | None = None

    def write(self, value: object) -> object:
        """Return the value."""
        return value

    def describe(self, _definitions: dict[str, Schema]) -> Schema:
        """Return its type and unit."""
        return {"type": self.type, **({} if self.unit is None else {UNIT: self.unit.value})}


TEXT: Final = Plain("string")
FLAG: Final = Plain("boolean")
WHOLE: Final = Plain("integer")
"""A number that says which one, as a rank does."""
RATIO: Final = Plain("number")
COUNT: Final = Plain("integer", Unit.COUNT)
NS: Final = Plain("integer", Unit.NS)
FLOAT_NS: Final = Plain("number", Unit.NS)
BYTES: Final = Plain("integer", Unit.BYTES)
FRACTION: Final = Plain("number", Unit.FRACTION)


@dataclass(frozen=True)
class Always:
    """One value and no other: a version."""

    value: object

    def write(self, _value: object) -> object:
        """Return it."""
        return self.value

    def describe(self, _definitions: dict[str, Schema]) -> Schema:
        """Return it as a constant."""
        return {"const": self.value}


@dataclass(frozen=True)
class OneOf:
    """A word of a list."""

    words: type[StrEnum]

    def write(self, value: StrEnum) -> str:
        """Return the word."""
        return value.value

    def describe(self, _definitions: dict[str, Schema]) -> Schema:
        """Return all words."""
        return {"enum": [word.value for word in self.words]}


@dataclass(frozen=True)
class OrNan:
    """Something, or the word "NaN" where it is not known: JSON has no number for that."""

    known: Holds

    def write(self, value: object) -> object:
        """Return it, or the word for None and for a float that is none."""
        return "NaN" if _is_unknown(value) else self.known.write(value)

    def describe(self, definitions: dict[str, Schema]) -> Schema:
        """Return both; of what holds any word, that."""
        return (
            self.known.describe(definitions) if self.known == TEXT else _or(self.known, {"const": "NaN"}, definitions)
        )


def _is_unknown(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


@dataclass(frozen=True)
class OrNull:
    """Something, or null where there is none."""

    known: Holds

    def write(self, value: object) -> object:
        """Return it, or None."""
        return None if value is None else self.known.write(value)

    def describe(self, definitions: dict[str, Schema]) -> Schema:
        """Return both."""
        return _or(self.known, {"type": "null"}, definitions)


def _or(known: Holds, other: Schema, definitions: dict[str, Schema]) -> Schema:
    schema = known.describe(definitions)
    unit = {UNIT: schema.pop(UNIT)} if UNIT in schema else {}
    return {"anyOf": [schema, other], **unit}


@dataclass(frozen=True)
class Many:
    """A list."""

    each: Holds

    def write(self, value: Iterable[object]) -> list[object]:
        """Return the list."""
        return [self.each.write(one) for one in value]

    def describe(self, definitions: dict[str, Schema]) -> Schema:
        """Return what each holds."""
        return {"type": "array", "items": self.each.describe(definitions)}


@dataclass(frozen=True)
class ByName:
    """A mapping whose keys are names: of knobs, of axes."""

    each: Holds

    def write(self, value: Mapping[str, object]) -> dict[str, object]:
        """Return the mapping."""
        return {name: self.each.write(one) for name, one in value.items()}

    def describe(self, definitions: dict[str, Schema]) -> Schema:
        """Return what each name holds."""
        return {"type": "object", "additionalProperties": self.each.describe(definitions)}


@dataclass(frozen=True)
class Key(Generic[R]):
    """One key of an object.

    Attributes:
        name: the unit ends it where it has one.
        holds: what stands there.
        doc: what it means, and what null or "NaN" says.
        value: what an answer has of it.
        may_be_absent: where it has None, the key is left out.
    """

    name: str
    holds: Holds
    doc: str
    value: Callable[[R], object]
    may_be_absent: bool = False


@dataclass(frozen=True)
class Shape(Generic[R]):
    """An object of a document, made of one kind of value; ``name`` is that of its schema, ``doc`` what it is of."""

    name: str
    doc: str
    keys: tuple[Key[R], ...]

    def write(self, value: R) -> dict[str, object]:
        """Return the object."""
        found = ((key, key.value(value)) for key in self.keys)
        return {key.name: key.holds.write(one) for key, one in found if not (key.may_be_absent and one is None)}

    def describe(self, definitions: dict[str, Schema]) -> Schema:
        """Add the schema of the object, in which no other key is allowed, and return the way to it."""
        properties = {key.name: describe_key(key, definitions) for key in self.keys}
        needed = [key.name for key in self.keys if not key.may_be_absent]
        return refer(self.name, make_object(self.doc, properties, needed), definitions)


@dataclass(frozen=True)
class RowOf:
    """A row of a table, of what it finds: pairs of what has the keys and what has the columns."""

    table: Table[Any, Any, Any]

    def write(self, value: tuple[object, object]) -> dict[str, object]:
        """Return every column; what is not known is "NaN"."""
        key, row = value
        found = {one.name: one.value(key) for one in self.table.keys} | self.table.describe(row)
        return {name: "NaN" if _is_unknown(one) else one for name, one in found.items()}

    def describe(self, definitions: dict[str, Schema]) -> Schema:
        """Add the schema of the row, and return the way to it."""
        return Shape(self.table.name, self.table.doc, keys_of_columns(self.table.all_columns)).describe(definitions)


def describe_key(key: Key[Any], definitions: dict[str, Schema]) -> Schema:
    """Return the schema of what a key holds, with what it means."""
    return say(key.holds.describe(definitions), key.doc)


def make_object(doc: str, properties: Mapping[str, Schema], needed: Iterable[str]) -> Schema:
    """Return the schema of an object that has these keys; a later version may have more, see ``VERSION``."""
    return {"type": "object", "description": doc, "properties": dict(properties), "required": list(needed)}


def refer(name: str, schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """Put a schema among the definitions, and return the way to it."""
    known = definitions.setdefault(name, schema)
    assert known == schema, f"two schemas are called {name}"
    return {"$ref": f"#/$defs/{name}"}


def keys_of_columns(columns: Iterable[Column[R]]) -> tuple[Key[R], ...]:
    """Return the columns of a table as keys of a row; what is not known is "NaN"."""
    return tuple(Key(one.name, _holds_of(one), one.doc, one.value) for one in columns)


def _holds_of(column: Column[Any]) -> Holds:
    dtype = column.dtype.lower()
    kind = next((kind for start, kind in _DTYPES.items() if dtype.startswith(start)), "string")
    is_surely_known = column.dtype == "bool" or column.dtype.startswith(("int", "uint"))
    return Plain(kind, column.unit) if is_surely_known else OrNan(Plain(kind, column.unit))


_DTYPES: Final = {"int": "integer", "uint": "integer", "float": "number", "bool": "boolean"}


def keys_of_fields(cls: type[R], **holds: Holds) -> tuple[Key[R], ...]:
    """Return fields of a class as keys, each with what the class's docstring says of it."""
    said = read_attributes(cls)
    return tuple(Key(name, held, said.get(name, ""), attrgetter(name)) for name, held in holds.items())


def keys_inside(keys: Iterable[Key[T]], find: Callable[[R], T]) -> tuple[Key[R], ...]:
    """Return the keys of one value as keys of another, which has it."""
    return tuple(_look_inside(key, find) for key in keys)


def _look_inside(key: Key[T], find: Callable[[R], T]) -> Key[R]:
    return Key(key.name, key.holds, key.doc, lambda value: key.value(find(value)), key.may_be_absent)


def say(schema: Schema, doc: str) -> Schema:
    """Return a schema with what it means; Python's and pandas' words for nothing become those that stand in JSON."""
    spelled = json.dumps(schema)
    nothing = "null" if '"null"' in spelled else "NaN" if '"NaN"' in spelled else "None"
    words = re.sub(r"\bNA\b", "null" if nothing == "null" else "NaN", re.sub(r"\bNone\b", nothing, doc))
    return {**schema, **({"description": words} if words else {})}


def make_schema(title: str, root: Holds) -> Schema:
    """Return the JSON Schema of a document."""
    definitions: dict[str, Schema] = {}
    top = root.describe(definitions)
    return {"$schema": DRAFT, "title": title, **top, "$defs": definitions}
