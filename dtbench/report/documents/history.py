"""A history as one JSON document, with what became of the bounds on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dtbench.base.document import Schema, Shape, describe_key, make_schema
from dtbench.base.record_schema import Typed, to_json
from dtbench.comparison.gate import Judgement
from dtbench.comparison.history.history import History
from dtbench.report.documents.comparison import BOUNDS


@dataclass(frozen=True)
class _Judged:
    """A history, and what became of the bounds on it; it adds one key to the record's."""

    def write(self, value: tuple[History, Sequence[Judgement]]) -> dict[str, object]:
        history, bounds = value
        return {**to_json(history), **Shape("", "", (BOUNDS,)).write(bounds)}

    def describe(self, definitions: dict[str, Schema]) -> Schema:
        way = Typed(History).describe(definitions)
        definitions[History.__name__]["properties"][BOUNDS.name] = describe_key(BOUNDS, definitions)
        return way


_DOCUMENT: Final = _Judged()


def document(history: History, judgements: Sequence[Judgement] = ()) -> object:
    """Return the document."""
    return _DOCUMENT.write((history, judgements))


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench history --json", _DOCUMENT)
