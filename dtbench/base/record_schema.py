"""The JSON Schema of a record, or of any other typed value, as it is written: each key with its words and its unit."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from dtbench.base.columns import Unit
from dtbench.base.docstrings import clean, read_attributes, read_summary
from dtbench.base.document import UNIT, VERSION, Schema, make_object, refer, say

_UNITS: Final = {
    "_ns": Unit.NS,
    "_bytes": Unit.BYTES,
    "_fraction": Unit.FRACTION,
    "_per_second": Unit.PER_SECOND,
    "_count": Unit.COUNT,
}
"""By how a name ends, or what stands before `per`."""


@dataclass(frozen=True)
class Typed:
    """What is written as its type says: a record, or a dataclass that has plain values."""

    of: Any

    def write(self, value: object) -> object:
        """Return it as JSON has it; in a record a number that is not known is the word "NaN"."""
        return to_json(value) if isinstance(value, BaseModel) else value

    def describe(self, definitions: dict[str, Schema]) -> Schema:
        """Add the schemas of all that it holds, and return the way to its own."""
        schema = TypeAdapter(self.of).json_schema(mode="serialization", schema_generator=_Documented)
        for name, inner in schema.pop("$defs", {}).items():
            refer(name, inner, definitions)
        return refer(self.of.__name__, schema, definitions) if "properties" in schema else schema


def to_json(record: BaseModel) -> dict[str, object]:
    """Return a record as JSON has it."""
    document: dict[str, object] = json.loads(record.model_dump_json())
    return document


def unit_of(name: str) -> Unit | None:
    """Return the unit that a name ends with; None: it says none.

    >>> unit_of("exposed_ns"), unit_of("cpu_ns_per_step"), unit_of("count"), unit_of("rank")
    (<Unit.NS: 'ns'>, <Unit.NS: 'ns'>, <Unit.COUNT: 'count'>, None)
    """
    first = f"_{name.partition('_per_')[0]}" if name.partition("_per_")[0].endswith("_ns") else f"_{name}"
    return next((unit for end, unit in _UNITS.items() if first.endswith(end)), None)


class _Documented(GenerateJsonSchema):
    """Puts what a class says of its attributes beside them."""

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        """Return the words of an enumeration, and what they are of."""
        words = super().enum_schema(schema)
        return {"enum": words.get("enum", [words.get("const")]), "description": read_summary(schema["cls"])}

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        """Return the alternatives, without what only OpenAPI reads."""
        return {"oneOf": super().tagged_union_schema(schema)["oneOf"]}

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return the schema of a record."""
        return _document(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """Return the schema of a dataclass."""
        return _document(super().dataclass_schema(schema), schema["cls"])


def _document(schema: JsonSchemaValue, cls: type) -> JsonSchemaValue:
    said = read_attributes(cls)
    properties = {name: _describe_key(name, held, said) for name, held in schema.get("properties", {}).items()}
    return make_object(read_summary(cls), properties, properties)  # those with a default are written, too


def _describe_key(name: str, schema: Schema, said: Mapping[str, str]) -> Schema:
    """Return the schema of a key with its words and its unit, without what only readers of a file need."""
    held = {word: value for word, value in schema.items() if word not in ("title", "default", "description")}
    unit = None if "const" in held else unit_of(name)
    words = VERSION if name == "format_version" else clean(schema.get("description", said.get(name, "")))
    return say({**held, **({} if unit is None else {UNIT: unit.value})}, words)
