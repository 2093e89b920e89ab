"""What pydantic refuses, in sentences for a person who never heard of pydantic.

Pydantic says where (a path of keys, list positions and, inside a union, the ``kind``) and roughly what; the sentence is
made here from the schema itself, so it always says what *would* be right.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from dtbench.base.record import Record
from dtbench.scenario.mistakes import MOST_MISTAKES, Mistake, OverridePlace, Place, find_nearest, join_words, shorten
from dtbench.scenario.schema.repeat import MAPPING, NUMBER, WORD
from dtbench.scenario.schema.scenario import Scenario
from dtbench.scenario.sweeps.variations import FILE_SECTIONS
from dtbench.scenario.yaml.document import Items, Leaf, Node, Section
from dtbench.scenario.yaml.expectation import (
    describe,
    describe_field,
    doc_of,
    is_mapping_of_texts,
    item_annotation,
    kinds_of,
    literals_of,
    quote_words,
)
from dtbench.scenario.yaml.scalars import show_scalar, text_of_scalar

_OTHER_NAMES = {
    "gpu": "cuda",
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "fsdp": "fsdp2",
}
"""What people call things elsewhere; by spelling alone ``gpu`` would look like ``cpu``."""


_OF_KEY = "[key]"
"""How pydantic ends the place of a mistake in a name of a mapping."""


@dataclass(frozen=True)
class _Spot:
    """Where an error is, in the file and in the schema.

    Attributes:
        path: keys from the root, without the kinds of unions.
        node: what is written there; None for what is missing.
        key_place: of its key, or of the section that lacks it.
        annotation: what the schema accepts there; None for an unknown field.
        record: the alternative that pydantic chose by ``kind``, once inside a section.
        owner: the spot of the section around it.
        item: position from 1 in the list at ``path``; None outside lists.
    """

    path: tuple[str, ...]
    node: Node | None
    key_place: Place
    annotation: object
    field: FieldInfo | None
    record: type[Record] | None
    owner: "_Spot | None"
    item: int | None = None

    @property
    def name(self) -> str:
        path = shorten(".".join(self.path))
        return f"`{path}`" if self.item is None else f"item {self.item} of `{path}`"


def explain_errors(error: ValidationError, root: Section, record: type[Record] = Scenario) -> list[Mistake]:
    """Return one mistake per error of a cell, except fields that are only missing because they are misspelt.

    Of very many errors only the first ``MOST_MISTAKES`` are explained, and as many fields that are missing.

    Args:
        error: what pydantic refuses.
        root: what was validated.
        record: as what; a whole cell unless said otherwise.
    """
    errors = error.errors(include_url=False)
    missing = [details for details in errors if details["type"] == "missing"][:MOST_MISTAKES]
    others = [details for details in errors if details["type"] != "missing"][:MOST_MISTAKES]
    found = [(details, _find_spot(details["loc"], root, record)) for details in (*others, *missing)]
    misspelt = {(*spot.path[:-1], _nearest_field(spot)) for details, spot in found if _is_unknown(details)}
    return [
        _explain(details, spot) for details, spot in found if not (_is_missing(details, spot) and spot.path in misspelt)
    ]


def _is_unknown(details: ErrorDetails) -> bool:
    return details["type"] == "extra_forbidden"


def _is_missing(details: ErrorDetails, spot: _Spot) -> bool:
    return details["type"] == "missing" and spot.node is None


def _find_spot(loc: tuple[int | str, ...], root: Section, record: type[Record]) -> _Spot:
    """Follow pydantic's location through the tree and the schema at once, as far as both go."""
    spot = _Spot((), root, root.place, record, None, record, None)
    for part in loc:
        if part == _OF_KEY or _names_alternative(part, spot):
            return spot
        if part in (NUMBER, WORD, MAPPING):
            continue
        kinds = kinds_of(spot.annotation)
        if len(kinds) > 1 and spot.record is None:
            spot = replace(spot, record=kinds.get(str(part)))
        elif isinstance(part, int):
            if not (isinstance(spot.node, Items) and part < len(spot.node.values)):
                return spot  # a list that is too short is a mistake of the list
            spot = _step_into_item(spot, spot.node.values[part], part)
        else:
            spot = _step_into_field(spot, part)
    return spot


def _names_alternative(part: int | str, spot: _Spot) -> bool:
    """Tell whether pydantic says which of several plain values it tried, as in ``bool | int``: no place of its own."""
    is_plain = isinstance(spot.node, Leaf) or (spot.record is None and not kinds_of(spot.annotation))
    return isinstance(part, str) and is_plain and not is_mapping_of_texts(spot.annotation)


def _step_into_item(spot: _Spot, item: Node, index: int) -> _Spot:
    annotation = item_annotation(spot.annotation, index)
    return _Spot(spot.path, item, item.place, annotation, None, _only_kind(annotation), spot, item=index + 1)


def _step_into_field(spot: _Spot, key: str) -> _Spot:
    entry = spot.node.entries.get(key) if isinstance(spot.node, Section) else None
    field = spot.record.model_fields.get(key) if spot.record else None
    return _Spot(
        path=(*spot.path, key),
        node=entry.node if entry else None,
        key_place=entry.key_place if entry else spot.key_place,
        annotation=field.annotation if field else str if is_mapping_of_texts(spot.annotation) else None,
        field=field,
        record=_only_kind(field.annotation) if field else None,
        owner=spot,
    )


def _only_kind(annotation: object) -> type[Record] | None:
    """Return the record that a section must be where there is but one."""
    kinds = list(kinds_of(annotation).values())
    return kinds[0] if len(kinds) == 1 else None


def _explain(details: ErrorDetails, spot: _Spot) -> Mistake:
    if _is_missing(details, spot):
        return _explain_missing(spot)
    match details["type"]:
        case "extra_forbidden":
            return _explain_unknown(spot)
        case "union_tag_not_found" | "union_tag_invalid":
            return _explain_kind(spot)
        case "value_error":
            return Mistake(
                spot.key_place, f"{spot.name}: {details['ctx']['error']}" if spot.path else str(details["ctx"]["error"])
            )
        case _:
            return _explain_value(spot)


def _explain_missing(spot: _Spot) -> Mistake:
    if spot.field is None:
        return Mistake(spot.key_place, f"{spot.name} is missing")
    doc = doc_of(spot.field)
    purpose = f" ({doc})" if doc else ""
    return Mistake(spot.key_place, f"{spot.name} is missing: {describe_field(spot.field)}{purpose}")


def _explain_kind(spot: _Spot) -> Mistake:
    """Explain a section whose ``kind`` is missing or unknown."""
    kinds = kinds_of(spot.annotation)
    entry = spot.node.entries.get("kind") if isinstance(spot.node, Section) else None
    if entry is None:
        return Mistake(spot.key_place, f"{_kind_name(spot)} is missing: {quote_words(kinds)}")
    sentence = f"{_kind_name(spot)} must be {quote_words(kinds)}{_but_is(entry.node)}"
    return Mistake(entry.node.place, sentence, _nearest_word(entry.node, tuple(kinds)))


def _explain_value(spot: _Spot) -> Mistake:
    assert spot.node is not None  # pydantic judges only values that are there
    expected = describe_field(spot.field) if spot.field else describe(spot.annotation)
    sentence = f"{spot.name} must be {expected}{_but_is(spot.node)}{_in_quotes(spot)}{_for_example(spot.field)}"
    place = spot.key_place if isinstance(spot.node, Section) else spot.node.place
    return Mistake(place, sentence, _nearest_word(spot.node, literals_of(spot.annotation)))


def _in_quotes(spot: _Spot) -> str:
    """Say how a number or a truth value becomes the text that is wanted."""
    if spot.annotation is str and isinstance(spot.node, Leaf) and not isinstance(spot.node.value, str | None):
        return f'; write "{text_of_scalar(spot.node.value)}", in quotes'
    return ""


def _for_example(field: FieldInfo | None) -> str:
    """Return a value that works, of a field that has one written down."""
    return f"; for example {show_scalar(field.examples[0])}" if field is not None and field.examples else ""


def _nearest_word(node: Node, words: tuple[str, ...]) -> str | None:
    match node:
        case Leaf(value=str() as written):
            other_name = _OTHER_NAMES.get(written.lower())
            return other_name if other_name in words else find_nearest(written, words)
        case _:
            return None


def _but_is(node: Node) -> str:
    match node:
        case Leaf(value=None):
            return ", but it is empty or null"
        case Leaf(value=value):
            return f", not {show_scalar(value)}"
        case Items(values=values):
            return f", not a list of {len(values)}"
        case Section():
            return ", not a mapping"


def _kind_name(spot: _Spot) -> str:
    return f"`{shorten('.'.join((*spot.path, 'kind')))}`"


def _explain_unknown(spot: _Spot) -> Mistake:
    """Explain a field that its section does not have, and where it could have been meant."""
    key = shorten(spot.path[-1])
    owner = spot.owner
    if owner is None or not owner.path:
        sentence = f"`{key}` is not a section of a scenario"
    else:
        kind = f" of kind `{_kind_at(owner)}`" if len(kinds_of(owner.annotation)) > 1 else ""
        sentence = f"`{key}` is not a field of {owner.name}{kind}"
    elsewhere = _find_elsewhere(spot)
    nearest = None if elsewhere else _nearest_field(spot)
    if nearest is not None:
        return Mistake(spot.key_place, sentence, _as_typed(spot, nearest), is_unknown_field=True)
    hint = elsewhere or _place_contents(spot) or f"it has {', '.join(_field_names(owner))}"
    return Mistake(spot.key_place, f"{sentence}; {hint}", is_unknown_field=True)


def _kind_at(spot: _Spot) -> str:
    kinds = kinds_of(spot.annotation)
    return next((kind for kind, record in kinds.items() if record is spot.record), "")


def _field_names(section: _Spot | None) -> list[str]:
    names = list(section.record.model_fields) if section and section.record else []
    return [*names, *FILE_SECTIONS] if section and not section.path else names


def _nearest_field(spot: _Spot) -> str | None:
    return find_nearest(spot.path[-1], _field_names(spot.owner))


def _find_elsewhere(spot: _Spot) -> str | None:
    """Say where a field of exactly this name exists: in another kind of the section, or in another section."""
    key = spot.path[-1]
    if spot.owner is None:
        return None
    kinds = [f"`{kind}`" for kind, record in kinds_of(spot.owner.annotation).items() if key in record.model_fields]
    if kinds:
        return f"it is a field of {'kind' if len(kinds) == 1 else 'kinds'} {join_words(kinds, last='and')}"
    sections = _sections_with(key)
    return f"it belongs to {quote_words(sections)}" if sections else None


def _place_contents(spot: _Spot) -> str | None:
    """Say where the fields of a section that there is not belong, as far as there are such fields."""
    if not isinstance(spot.node, Section) or (spot.owner is not None and spot.owner.path):
        return None
    fields = [(shorten(key), key in Scenario.model_fields, _sections_with(key)) for key in spot.node.entries]
    hints = [
        f"`{key}` {'stands at the top' if is_at_top else f'belongs to {quote_words(sections)}'}"
        for key, is_at_top, sections in fields
        if is_at_top or sections
    ]
    return join_words(hints, last="and") if hints else None


def _sections_with(key: str) -> list[str]:
    """Return the sections, in any kind of which there is a field of this name."""
    found = (path for path, record in _list_sections() if key in record.model_fields and key != "kind")
    return list(dict.fromkeys(found))


@cache
def _list_sections() -> tuple[tuple[str, type[Record]], ...]:
    return tuple(_sections(Scenario, ()))


def _sections(record: type[Record], path: tuple[str, ...]) -> Iterator[tuple[str, type[Record]]]:
    """Walk all sections of the schema, all kinds of each, by their path."""
    for name, field in record.model_fields.items():
        for section in kinds_of(field.annotation).values():
            yield ".".join((*path, name)), section
            yield from _sections(section, (*path, name))


def _as_typed(spot: _Spot, nearest: str) -> str:
    """Return the right word as it has to be typed: in an override, the whole path."""
    if not isinstance(spot.key_place, OverridePlace):
        return nearest
    parts = spot.key_place.path.split(".")
    if spot.path[-1] not in parts:
        return nearest
    position = len(parts) - 1 - parts[::-1].index(spot.path[-1])
    return ".".join([*parts[:position], nearest, *parts[position + 1 :]])
