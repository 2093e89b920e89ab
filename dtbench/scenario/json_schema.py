"""The JSON Schema of a scenario file, for editors: completion, and what each field means, while one types.

Made from the same records that read the file. A file with ``cells`` or ``matrix`` may hold half sections above them,
which each cell completes; so every section is there twice, whole and with nothing required. What only dtbench can tell
(whether the parts of a cell fit together) stays with ``dtbench check``.

JSON Schema's draft 7 is the latest that the YAML language server understands.
"""

from collections.abc import Iterator
from typing import Any

from dtbench.scenario.checks.checklist import Checklist
from dtbench.scenario.schema.scenario import VARIABLE_PREFIXES, Scenario
from dtbench.scenario.sweeps.variations import CELL_NAME, CELL_NAME_RULE, MOST_NAME_LENGTH

Schema = dict[str, Any]
"""A JSON Schema: whatever JSON holds."""

_PARTLY = "Part of "
_DRAFT = "http://json-schema.org/draft-07/schema#"


def make_file_schema() -> Schema:
    """Return the schema of a whole file."""
    whole = _clean(Scenario.model_json_schema())
    sections: dict[str, Schema] = whole.pop("$defs")
    whole["properties"]["env"]["propertyNames"] = {"pattern": f"^({'|'.join(VARIABLE_PREFIXES)})"}
    claims = _clean(Checklist.model_json_schema())
    partly = _relax(whole)
    variation = {**partly, "properties": {k: v for k, v in partly["properties"].items() if k != "schema_version"}}
    return {
        "$schema": _DRAFT,
        "title": "dtbench scenario",
        "description": "What to train and what to compare. Line 1 is a comment: the question that the scenario asks.",
        "type": "object",
        "additionalProperties": False,
        "required": ["schema_version"],
        "properties": {
            **partly["properties"],
            "cells": _cells(),
            "matrix": _matrix(whole, sections),
            **claims["properties"],
        },
        "if": {"not": {"anyOf": [{"required": ["cells"]}, {"required": ["matrix"]}]}},
        "then": {"$ref": "#/$defs/Scenario"},
        "$defs": {
            "Scenario": {**whole, "properties": {**whole["properties"], **claims["properties"]}},
            "Variation": variation,
            **sections,
            **{f"{_PARTLY}{name}": _relax(section) for name, section in sections.items()},
            **claims["$defs"],
        },
    }


def _clean(node: Any) -> Any:
    """Take off what an editor does not need, and say what draft 7 says otherwise."""
    if isinstance(node, list):
        return [_clean(item) for item in node]
    if not isinstance(node, dict):
        return node
    cleaned = {
        key: {name: _clean(field) for name, field in value.items()} if key in ("properties", "$defs") else _clean(value)
        for key, value in node.items()
        if key != "discriminator" and not (key == "title" and isinstance(value, str))
    }
    if "prefixItems" in cleaned:
        cleaned["items"] = cleaned.pop("prefixItems")
    return cleaned


def _relax(node: Any) -> Any:
    """Return a schema in which nothing is required, with references to sections of which nothing is."""
    if isinstance(node, list):
        return [_relax(item) for item in node]
    if not isinstance(node, dict):
        return node
    relaxed: Schema = {}
    for key, value in node.items():
        if key == "$ref":
            relaxed[key] = value.replace("#/$defs/", f"#/$defs/{_PARTLY}")
        elif key == "oneOf":  # a section without its `kind` may be of several
            relaxed["anyOf"] = _relax(value)
        elif key != "required":
            relaxed[key] = _relax(value)
    return relaxed


def _cells() -> Schema:
    return {
        "description": "Named variations: each lays what it changes over everything above.",
        **_names(),
        "additionalProperties": {"$ref": "#/$defs/Variation"},
    }


def _names() -> Schema:
    pattern = {"pattern": f"^{CELL_NAME.pattern}$", "maxLength": MOST_NAME_LENGTH, "description": CELL_NAME_RULE}
    return {"type": "object", "minProperties": 1, "propertyNames": pattern}


def _matrix(whole: Schema, sections: dict[str, Schema]) -> Schema:
    fields: dict[str, list[Schema]] = {}
    for path, field in _list_fields(whole, sections, ()):
        fields.setdefault(path, []).append(field)
    points = {"type": "array", "minItems": 1, "items": {"type": "object", "minProperties": 1}}
    return {
        "description": "A cell for each point of the product of these axes, for each of `cells` where there are any.",
        "type": "object",
        "minProperties": 1,
        "properties": {
            "exclude": {**points, "description": "Points to drop: all that match every value of one of these."},
            "include": {**points, "description": "Points to add; an axis may be left out."},
            **{path: _axis(kinds) for path, kinds in fields.items()},
        },
        "patternProperties": {"^env\\.": _axis([whole["properties"]["env"]["additionalProperties"]])},
        "additionalProperties": {
            "description": "An axis of named variations.",
            **_names(),
            "additionalProperties": {"$ref": "#/$defs/Variation"},
        },
    }


def _axis(kinds: list[Schema]) -> Schema:
    """Return the list of values of a field, which may have another meaning in each kind of its section."""
    description = next((kind["description"] for kind in kinds if "description" in kind), "")
    values = [{key: value for key, value in kind.items() if key not in ("description", "default")} for kind in kinds]
    return {
        "description": f"Axis: {description}".removesuffix(": "),
        "type": "array",
        "minItems": 1,
        "uniqueItems": True,
        "items": {"anyOf": [*values, {"type": "null"}]},
    }


def _list_fields(section: Schema, sections: dict[str, Schema], path: tuple[str, ...]) -> Iterator[tuple[str, Schema]]:
    """Return every field that holds a value, of every kind of each section, by its dotted path."""
    for name, field in section["properties"].items():
        if not _holds_value(field):
            for ref in _references(field):
                yield from _list_fields(sections[ref.removeprefix("#/$defs/")], sections, (*path, name))
        elif (*path, name) not in (("schema_version",), ("env",)):
            yield ".".join((*path, name)), field


def _holds_value(field: Schema) -> bool:
    """Tell whether a field may be something else than a section (or left out)."""
    kinds = [kind for kind in (*field.get("oneOf", ()), *field.get("anyOf", ())) if kind != {"type": "null"}]
    return any("$ref" not in kind for kind in kinds) if kinds else not _references(field)


def _references(field: Schema) -> list[str]:
    return [kind["$ref"] for kind in (field, *field.get("oneOf", ()), *field.get("anyOf", ())) if "$ref" in kind]
