"""The reference of what ``--json`` prints, made of the lists of keys that write it, and each document's JSON Schema."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter

from dtbench.base.document import UNIT, Schema
from dtbench.cli.schema import DOCUMENTS, find_schema
from dtbench.scenario.schema.scenario import Scenario

_HEAD: Final = """\
# JSON documents

<!-- Made of the lists of keys that write them by `python -m tests.docs`; a test fails where they differ. -->

What each command prints with `--json`: every key is always there unless it says otherwise, and there is no other.
Lengths of time are nanoseconds, sizes bytes, shares fractions. A number that is not known is the word `"NaN"` or
`null`, as its line says, never 0; what is without end is `"Infinity"`. `dtbench schema KIND` prints the same as a
[JSON Schema](https://json-schema.org) (draft 2020-12), in which `unit` is a word of our own.
"""
_SCENARIO: Final = "a section of a [scenario](scenario.md), with every default"
_TYPES: Final = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "true or false",
    "null": "`null`",
}


def make_json_page() -> str:
    """Return the page."""
    parts = [_HEAD]
    for kind in DOCUMENTS:
        parts += _write_document(kind, find_schema(kind))
    return "\n".join(parts).rstrip() + "\n"


def make_schema_file(kind: str) -> str:
    """Return the file of a document's schema, with a line for each key of each object."""
    schema = find_schema(kind)
    lines = [f" {_spell(name)}: {_spell(held)}," for name, held in schema.items() if name != "$defs"]
    parts = [_write_definition(name, one) for name, one in schema["$defs"].items()]
    return "\n".join(["{", *lines, ' "$defs": {', ",\n".join(parts), " }", "}", ""])


def _write_definition(name: str, one: Schema) -> str:
    if "properties" not in one:
        return f"  {_spell(name)}: {_spell(one)}"
    keys = ",\n".join(f"    {_spell(key)}: {_spell(held)}" for key, held in one["properties"].items())
    head = [f"   {_spell(word)}: {_spell(held)}," for word, held in one.items() if word != "properties"]
    return "\n".join([f"  {_spell(name)}: {{", *head, '   "properties": {', keys, "   }", "  }"])


def _spell(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


@cache
def scenario_sections() -> frozenset[str]:
    """Return the names of the sections of a scenario, which have a page of their own."""
    schema = TypeAdapter(Scenario).json_schema(mode="serialization")
    return frozenset({Scenario.__name__, *schema["$defs"]})


def _write_document(kind: str, schema: Schema) -> Iterator[str]:
    yield f"## {schema['title']}\n"
    definitions: Mapping[str, Schema] = schema["$defs"]
    root = {key: value for key, value in schema.items() if key not in ("$schema", "title", "$defs")}
    yield f"{_capitalize(_describe(root, definitions))}. [Schema](schemas/{kind}.json), `dtbench schema {kind}`.\n"
    for name in _order(root, definitions):
        yield f"### {kind}: {name}\n"
        yield f"{_mark(definitions[name].get('description', ''))}\n"
        yield "| key | holds | unit | what it says |\n|---|---|---|---|"
        yield from (
            _write_key(key, held, definitions, key in definitions[name]["required"])
            for key, held in definitions[name]["properties"].items()
        )
        yield ""


def _write_key(name: str, held: Schema, definitions: Mapping[str, Schema], is_needed: bool) -> str:
    where = "" if is_needed else " (may be absent)"
    words = _mark(held.get("description", ""))
    return f"| `{name}`{where} | {_describe(held, definitions)} | {held.get(UNIT, '')} | {words} |"


def _order(node: Schema, definitions: Mapping[str, Schema]) -> list[str]:
    """Return the names of the objects in a schema, each before those in it; of a scenario's sections none."""
    found: dict[str, None] = {}
    waiting = [node]
    while waiting:
        for name in _names_in(waiting.pop(0)):
            if name not in found and "properties" in definitions[name] and name not in scenario_sections():
                found[name] = None
                waiting.append(definitions[name])
    return list(found)


def _names_in(node: Any) -> Iterator[str]:
    yield from re.findall(r'"\$ref": "#/\$defs/([^"]+)"', json.dumps(node))


def _describe(held: Schema, definitions: Mapping[str, Schema]) -> str:
    """Say in words what a key holds."""
    if "$ref" in held:
        return _describe_named(held["$ref"].removeprefix("#/$defs/"), definitions)
    if "const" in held:
        return f"`{json.dumps(held['const'])}`"
    if held.get("enum") == ["NaN", "Infinity", "-Infinity"]:
        return '`"NaN"`'
    if "enum" in held:
        return "one of " + ", ".join(f"`{json.dumps(word)}`" for word in held["enum"])
    several = held.get("anyOf", held.get("oneOf"))
    if several is not None:
        return " or ".join(dict.fromkeys(_describe(one, definitions) for one in several))
    return _describe_type(held, definitions)


def _describe_named(name: str, definitions: Mapping[str, Schema]) -> str:
    if name in scenario_sections() and "properties" in definitions[name]:
        return _SCENARIO
    return f"`{name}`" if "properties" in definitions[name] else _describe(definitions[name], definitions)


def _describe_type(held: Schema, definitions: Mapping[str, Schema]) -> str:
    match held.get("type"):
        case "array" if "prefixItems" in held:
            return f"list of {len(held['prefixItems'])}: {_describe(held['prefixItems'][0], definitions)}, ..."
        case "array":
            return f"list of {_describe(held['items'], definitions)}"
        case "object":
            return f"by name, {_describe(held['additionalProperties'], definitions)}"
        case kind:
            return _TYPES[str(kind)]


def _mark(words: str) -> str:
    return words.replace("|", "\\|")


def _capitalize(words: str) -> str:
    return words[:1].upper() + words[1:]
