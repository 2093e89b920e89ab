"""What a field of the schema accepts, in words: "a whole number above 0", "`ddp` or `fsdp2`"."""

from collections.abc import Iterable
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from dtbench.base.record import Record
from dtbench.scenario.mistakes import join_words

_BOUNDS = (
    ("min_length", "with a length of at least {}"),
    ("max_length", "with a length of at most {}"),
    ("gt", "above {}"),
    ("ge", "of at least {}"),
    ("lt", "below {}"),
    ("le", "of at most {}"),
)
_NOUNS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def kinds_of(annotation: object) -> dict[str, type[Record]]:
    """Return the records that a section may be, by their ``kind`` (by their name where they have none)."""
    options = [_unwrap(option)[0] for option in _options_of(annotation)]
    records = [option for option in options if isinstance(option, type) and issubclass(option, Record)]
    return {_kind_of(record): record for record in records}


def is_section(annotation: object) -> bool:
    """Whether a field holds nothing but a section, of one kind or several."""
    return len(kinds_of(annotation)) == len(_options_of(annotation))


def item_annotation(annotation: object, index: int) -> object:
    """Return what a list accepts at a position; None where it accepts nothing."""
    args = get_args(_options_of(annotation)[0])
    if len(args) == 2 and args[1] is Ellipsis:
        return args[0]
    return args[index] if index < len(args) else None


def is_mapping_of_texts(annotation: object) -> bool:
    """Whether a field holds names with a text each, such as environment variables."""
    return get_origin(_unwrap(annotation)[0]) is dict


def describe_field(field: FieldInfo) -> str:
    """Say what a field accepts."""
    return describe(field.annotation, field.metadata)


def describe(annotation: object, metadata: Iterable[object] = ()) -> str:
    """Say what an annotation accepts."""
    base, constraints = _unwrap(annotation)
    constraints = (*metadata, *constraints)
    kinds = kinds_of(base)
    is_optional = get_origin(base) in (Union, UnionType) and NoneType in get_args(base)
    if is_optional or (kinds and not is_section(base)):
        words = join_words([describe(option, constraints) for option in _options_of(base)])
        return f"{words} (or left out)" if is_optional else words
    if kinds:
        return "a mapping" if len(kinds) == 1 else f"a mapping with a `kind`, {quote_words(kinds)}"
    if is_mapping_of_texts(base):
        return "a mapping from names to texts"
    if choices := _choices_of(base):
        return quote_words(str(value) for value in choices)
    if get_origin(base) is tuple:
        return _describe_list(get_args(base))
    noun = _NOUNS.get(base, "another value") if isinstance(base, type) else "another value"
    return " ".join([noun, " and ".join(_bounds_of(constraints))]).rstrip()


def quote_words(words: Iterable[str]) -> str:
    """Return alternatives as a sentence does.

    >>> quote_words(["ddp", "fsdp2"])
    '`ddp` or `fsdp2`'
    """
    return join_words([f"`{word}`" for word in words])


def literals_of(annotation: object) -> tuple[str, ...]:
    """Return the words that an annotation accepts; empty where it accepts other things."""
    choices = [choice for option in _options_of(annotation) for choice in _choices_of(_unwrap(option)[0])]
    return tuple(choice for choice in choices if isinstance(choice, str))


def _choices_of(option: object) -> tuple[object, ...]:
    """Return the values of a type that lists them."""
    if isinstance(option, type) and issubclass(option, StrEnum):
        return tuple(member.value for member in option)
    return get_args(option) if get_origin(option) is Literal else ()


def doc_of(field: FieldInfo) -> str | None:
    """Return the first sentence of a field's docstring as part of another: no capital, no period."""
    if not field.description:
        return None
    sentence = " ".join(field.description.split()).partition(". ")[0].replace("``", "`").rstrip(".")
    return sentence if sentence[:2].isupper() else sentence[:1].lower() + sentence[1:]


def _kind_of(record: type[Record]) -> str:
    field = record.model_fields.get("kind")
    values = get_args(field.annotation) if field else ()
    return str(values[0]) if values else record.__name__


def _options_of(annotation: object) -> list[object]:
    """Return the alternatives of a union without None, or the annotation itself; outer ``Annotated`` taken off."""
    base, _ = _unwrap(annotation)
    if get_origin(base) not in (Union, UnionType):
        return [base]
    return [option for option in get_args(base) if option is not NoneType]


def _unwrap(annotation: object) -> tuple[object, tuple[object, ...]]:
    """Take ``Annotated`` off: the type below, and its constraints (those inside ``Field`` too)."""
    constraints: list[object] = []
    while get_origin(annotation) is Annotated:
        annotation, *metadata = get_args(annotation)
        for constraint in metadata:
            constraints.extend(constraint.metadata if isinstance(constraint, FieldInfo) else [constraint])
    return annotation, tuple(constraints)


def _describe_list(items: tuple[object, ...]) -> str:
    if len(items) == 2 and items[1] is Ellipsis:
        return f"a list, each item {describe(items[0])}"
    described = [describe(item) for item in items]
    if len(set(described)) == 1:
        return f"a list of {len(items)}, each {described[0]}"
    return f"a list of {len(items)}: {', '.join(described)}"


def _bounds_of(constraints: Iterable[object]) -> list[str]:
    bounds = []
    for constraint in constraints:
        for name, words in _BOUNDS:
            limit = getattr(constraint, name, None)
            if limit is not None:
                bounds.append(words.format(limit))
    return bounds
