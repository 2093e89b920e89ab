"""The scenarios that a name can find, as one JSON document."""

from collections.abc import Sequence
from typing import Final

from dtbench.base.document import TEXT, Key, Many, OneOf, OrNull, Schema, Shape, make_schema
from dtbench.scenario.catalog import ListedScenario, Origin

_SCENARIO: Final = Shape[ListedScenario](
    "ListedScenario",
    "One scenario file.",
    (
        Key("name", TEXT, "as `dtbench run` takes it", lambda one: one.entry.name),
        Key("question", OrNull(TEXT), "line 1 of the file; null: that is none", lambda one: one.question),
        Key("origin", OneOf(Origin), "whether it is yours or came with dtbench", lambda one: one.entry.origin),
        Key("path", TEXT, "the file", lambda one: str(one.entry.path)),
        Key(
            "hidden_by",
            OrNull(TEXT),
            "the file of the same name that is found in its place; null: none",
            lambda one: None if one.entry.hidden_by is None else str(one.entry.hidden_by),
        ),
        Key("error", OrNull(TEXT), "what is wrong with the file; null: nothing", lambda one: one.error),
    ),
)
_DOCUMENT: Final = Many(_SCENARIO)


def document(scenarios: Sequence[ListedScenario]) -> list[object]:
    """Return the document."""
    return _DOCUMENT.write(scenarios)


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench list --json", _DOCUMENT)
