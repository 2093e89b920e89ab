"""The base of everything that crosses a room or a file: frozen, strict, no unknown fields."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema


class Record(BaseModel):
    """A value that cannot change and refuses fields it does not know.

    Strict: ``"2"`` is not an int. NaN and infinity are written as the strings ``"NaN"`` and ``"Infinity"``, which every
    JSON reader accepts, so that a number that could not be computed never turns into a zero or a null on disk.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, ser_json_inf_nan="strings", use_attribute_docstrings=True
    )


def _read_special_number(value: object) -> object:
    return float(value) if value in ("NaN", "Infinity", "-Infinity") and isinstance(value, str) else value


_FLOAT_OR_WORD = WithJsonSchema(
    {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}, mode="serialization"
)
_INT_OR_WORD = WithJsonSchema({"anyOf": [{"type": "integer"}, {"const": "NaN"}]}, mode="serialization")

FloatOrNan = Annotated[float, BeforeValidator(_read_special_number), _FLOAT_OR_WORD]
"""A float that may be NaN ("cannot be computed") and survives the way through JSON."""


Amount = Annotated[int, Field(ge=0)]
"""A number of things, bytes or nanoseconds that may be none."""

Positive = Annotated[int, Field(gt=0)]
"""One that cannot be none: time that something took, memory of a process that lives."""


def _read_missing_number(value: object) -> object:
    return None if value == "NaN" and isinstance(value, str) else value


def _write_missing_number(value: int | None) -> int | str:
    return "NaN" if value is None else value


IntOrNan = Annotated[
    int | None,
    BeforeValidator(_read_missing_number),
    PlainSerializer(_write_missing_number, when_used="json"),
    _INT_OR_WORD,
]
"""An integer, or None for what was not seen; in JSON the string ``"NaN"``, as a float's."""

AmountOrNan = Annotated[
    Amount | None,
    BeforeValidator(_read_missing_number),
    PlainSerializer(_write_missing_number, when_used="json"),
    _INT_OR_WORD,
]
"""Likewise of what is never below zero."""
