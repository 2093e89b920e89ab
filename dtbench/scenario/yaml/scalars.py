"""What one bare word of YAML means in a scenario file, and which spellings are refused.

PyYAML reads YAML 1.1, where ``no`` is false, ``012`` is ten, ``12:30`` is 750 and ``1e-3`` is a text. A benchmark that
silently ran with another number than the one written would be worse than none, so those spellings are mistakes, each
with the spelling that works.
"""

import math
import re
from dataclasses import dataclass

from dtbench.scenario.mistakes import shorten

Scalar = str | int | float | bool | None

_MAX_DIGITS = 18  # every such number fits an int64; more digits are a slip of the keyboard
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_EXPONENT_WITHOUT_POINT_OR_SIGN = re.compile(
    r"(?P<sign>[-+]?)(?P<whole>[0-9]+)(\.(?P<fraction>[0-9]*))?[eE](?P<exponent>[-+]?[0-9]+)"
)


@dataclass(frozen=True)
class Reading:
    """A value, or why the spelling is refused."""

    value: Scalar
    complaint: str | None = None


def read_scalar(written: str, tag: str) -> Reading:
    """Read a bare word by the tag that YAML 1.1 resolves it to, such as ``int``."""
    match tag:
        case "bool":
            return _read_bool(written)
        case "int":
            return _read_int(written)
        case "float":
            return _read_float(written)
        case "null":
            return Reading(None)
        case _:
            return _read_text(written)


def show_scalar(value: Scalar) -> str:
    """Return a value as a person would write it in a sentence."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return f"the text '{shorten(value)}'" if _looks_like_number(value) else f"'{shorten(value)}'"
        case _:
            return str(value)


def text_of_scalar(value: Scalar) -> str:
    """Return a value as a file would write it, bare."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def _looks_like_number(text: str) -> bool:
    return re.fullmatch(r"\s*[-+]?[0-9][0-9_.,eE+-]*\s*", text) is not None


def _read_bool(written: str) -> Reading:
    value = written.lower() in ("true", "yes", "on")
    if written in ("true", "false"):
        return Reading(value)
    meant = "true" if value else "false"
    if written.lower() == meant:
        return Reading(value, f"write `{meant}` in lower case, not `{written}`")
    return Reading(
        value,
        f'YAML reads a bare `{written}` as {meant}; write `{meant}`, or "{written}" in quotes if you mean the word',
    )


def _read_int(written: str) -> Reading:
    if len(written) > _MAX_DIGITS:
        return Reading(written, "this number has too many digits")
    if _DECIMAL.fullmatch(written):
        return Reading(int(written))
    if ":" in written:
        return Reading(written, _base_60(written))
    if written.lower().lstrip("+-").startswith(("0x", "0b")):
        return Reading(written, f"`{written}` is not decimal; write the number in decimal digits")
    sign = "-" if written.startswith("-") else ""
    digits = written.lstrip("+-").replace("_", "")
    octal = f"{sign}{int(digits, 8)}"
    decimal = f"{sign}{digits.lstrip('0') or '0'}"
    return Reading(
        written, f"YAML reads `{written}` as octal, that is {octal}; write {decimal} without the leading zero"
    )


def _read_float(written: str) -> Reading:
    if ":" in written:
        return Reading(written, _base_60(written))
    if written.lstrip("+-").lower() in (".inf", ".nan"):
        return Reading(written, f"`{written}` is not a number that can be used here; write an ordinary number")
    try:
        value = float(written.replace("_", ""))
    except ValueError:
        return Reading(written, f"`{shorten(written)}` is not a number")
    if math.isinf(value):
        return Reading(written, f"`{shorten(written)}` is too large for a number")
    return Reading(value)


def _base_60(written: str) -> str:
    return (
        f"YAML reads a bare `{shorten(written)}` as a number in base 60 (hours and minutes); "
        "write the number itself, or put quotes around a text"
    )


def _read_text(written: str) -> Reading:
    number = _EXPONENT_WITHOUT_POINT_OR_SIGN.fullmatch(written)
    if number is None:
        return Reading(written)
    fraction = number["fraction"] or "0"
    exponent = number["exponent"] if number["exponent"][0] in "+-" else f"+{number['exponent']}"
    works = f"{number['sign']}{number['whole']}.{fraction}e{exponent}"
    return Reading(
        written,
        f"YAML reads `{shorten(written)}` as text, because a number with an exponent needs a point and a sign; "
        f"write {shorten(works)}",
    )
