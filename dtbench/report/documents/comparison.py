"""A comparison as one JSON document, with what became of the bounds on it; of several candidates a list of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dtbench.base.document import TEXT, Key, Many, OneOf, Schema, Shape, describe_key, make_schema
from dtbench.base.record_schema import Typed, to_json
from dtbench.comparison.comparison import Comparison
from dtbench.comparison.gate import Judgement, Kept

_BOUND: Final = Shape[Judgement](
    "Bound",
    "A bound of `--fail-if`, and what became of it.",
    (
        Key("bound", TEXT, "as a person wrote it", lambda one: one.typed),
        Key("kept", OneOf(Kept), "whether the comparison keeps it", lambda one: one.kept),
        Key("words", TEXT, "the same as a sentence, with its numbers", lambda one: one.words),
    ),
)
BOUNDS: Final = Key[Sequence[Judgement]](
    "bounds",
    Many(_BOUND),
    "every bound of the command; absent where it has none",
    lambda bounds: bounds or None,
    may_be_absent=True,
)


@dataclass(frozen=True)
class _Compared:
    """A comparison, and what became of the bounds on it; it adds one key to the record's."""

    def write(self, value: tuple[Comparison, Sequence[Judgement]]) -> dict[str, object]:
        comparison, bounds = value
        return {**to_json(comparison), **Shape("", "", (BOUNDS,)).write(bounds)}

    def describe(self, definitions: dict[str, Schema]) -> Schema:
        way = Typed(Comparison).describe(definitions)
        definitions[Comparison.__name__]["properties"][BOUNDS.name] = describe_key(BOUNDS, definitions)
        return way


@dataclass(frozen=True)
class _OneOrList:
    """One comparison by itself, several in a list."""

    each: _Compared

    def write(self, value: Sequence[tuple[Comparison, Sequence[Judgement]]]) -> object:
        written = [self.each.write(one) for one in value]
        return written[0] if len(written) == 1 else written

    def describe(self, definitions: dict[str, Schema]) -> Schema:
        one = self.each.describe(definitions)
        return {"oneOf": [one, {"type": "array", "items": one}]}


_DOCUMENT: Final = _OneOrList(_Compared())


def document(comparisons: Sequence[Comparison], judgements: Sequence[Judgement] = ()) -> object:
    """Return the document.

    Args:
        comparisons: at least one, of one command.
        judgements: of every bound on the first, then of every bound on the second, ...
    """
    each = len(judgements) // len(comparisons)
    bounds = [judgements[place * each : (place + 1) * each] for place in range(len(comparisons))]
    return _DOCUMENT.write(list(zip(comparisons, bounds, strict=True)))


def schema() -> Schema:
    """Return its JSON Schema."""
    return make_schema("dtbench compare --json", _DOCUMENT)
