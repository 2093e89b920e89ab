"""One event at a time, leniently: what a strict JSON reader refuses, as far as its meaning is beyond doubt."""

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

from dtbench.traces.reader.schema import NO_ARGS, Args, ExactComplete


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that comes twice: what seemed to need repair are two events with the text between them missing."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"a key twice: {[key for key, _ in pairs]}")
    return found


def _to_number(text: str) -> Decimal | None:
    """Read digits; None: an exponent that no number has, which is no time either."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


_LENIENT: Final = json.JSONDecoder(strict=False, parse_float=_to_number, parse_constant=lambda _: None)
_REPAIRED: Final = json.JSONDecoder(
    strict=False, parse_float=_to_number, parse_constant=lambda _: None, object_pairs_hook=_without_repeats
)
_ARGS: Final = msgspec.json.Decoder(Args, strict=False)
_KNOWN_ARGS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(Args))
_END: Final = re.compile(r"\}(?=\s*(?:,\s*\{|\]|$))")
_MOST_ENDS: Final = 4
_LARGEST_ID: Final = 2**63
_FIRST: Final = 1 << 10
_NEAR: Final = 1 << 14
_FARTHER: Final = 4
_DEEPEST: Final = 100  # an event nests few levels; how many the json module follows depends on the Python
_TEXT_OR_BRACKET: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
_RAN_OUT: Final = "Unterminated string"
_CUT_WORD: Final = re.compile(r"[\w.+\-\\]{0,16}\s*$")  # of a number, a literal or an escape

_LONE_BACKSLASH: Final = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_NO_VALUE: Final = re.compile(r'(":)\s*(?=[,}\]])')
_NO_NUMBER: Final = re.compile(r'(":\s*)[-+]?(?:nan|inf(?:inity)?)(?=\s*[,}\]])', re.IGNORECASE)
_TRAILING_COMMA: Final = re.compile(r",(?=\s*[}\]])")
_KEY: Final = re.compile(r'"\s*:')
_QUOTED_NAME: Final = re.compile(
    r'("name"\s*:\s*")(.*?)(?="\s*(?:\}|,\s*"(?:ph|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:))', re.DOTALL
)


def _escape_quotes(match: re.Match[str]) -> str:
    """Escape the quotes in a name, unless it holds a key: then text is missing, and the name's end unknown."""
    return match[0] if _KEY.search(match[2]) else match[1] + re.sub(r'(?<!\\)"', r"\\" + '"', match[2])


# Tried one after the other, each on what the ones before left.
_REPAIRS: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: _LONE_BACKSLASH.sub(lambda match: match[0] if match[1] else r"\\", text),
    lambda text: _NO_NUMBER.sub(r"\1null", _NO_VALUE.sub(r"\1 null", text)),
    lambda text: _TRAILING_COMMA.sub("", text),
    lambda text: _QUOTED_NAME.sub(_escape_quotes, text),
)


class IncompleteError(Exception):
    """The text ends before the event does."""


def read_object(text: str, start: int) -> tuple[dict[str, Any], int] | None:
    """Read the object that begins at a brace, as it stands or repaired.

    Returns:
        It and where it ends; None: it cannot be read.

    Raises:
        IncompleteError: the text ends before the object does.
    """
    length = _FIRST  # an error of the json module costs time in proportion to the text before it
    while True:
        near = text[start : start + length]
        try:
            value, end = _LENIENT.raw_decode(near)
        except json.JSONDecodeError as error:
            if not _ran_out(error, near):
                return _shift(_read_repaired(text[start : start + max(length, _NEAR)]), start)
            if start + length >= len(text):
                raise IncompleteError from error
            if _is_too_deep(near):
                return None
            length *= _FARTHER
        except (RecursionError, ValueError):  # nested too deeply; an integer of thousands of digits
            return None
        else:
            return _shift(_to_object(value, near[:end]), start)


def _shift(found: tuple[dict[str, Any], int] | None, start: int) -> tuple[dict[str, Any], int] | None:
    return None if found is None else (found[0], start + found[1])


def _ran_out(error: json.JSONDecodeError, text: str) -> bool:
    return error.msg.startswith(_RAN_OUT) or _CUT_WORD.match(text, error.pos) is not None


def _is_too_deep(text: str) -> bool:
    """Tell whether an object nests deeper than any event: each of its levels looks like an event's start, too.

    Without a limit the time to find the next event would grow with the square of the levels.
    """
    depth = 0
    for match in _TEXT_OR_BRACKET.finditer(text):
        if match[0] in "{[":
            depth += 1
            if depth > _DEEPEST:
                return True
        elif match[0] in "}]":
            depth -= 1
            if depth == 0:
                return False
    return False


def _to_object(value: object, text: str) -> tuple[dict[str, Any], int] | None:
    if "\0" in text:  # a hole in the file may hold the end of one event and the start of another
        return None
    return (_without_surrogates(value, text), len(text)) if isinstance(value, dict) else None


def _without_surrogates(value: dict[str, Any], text: str) -> dict[str, Any]:
    """Put a replacement character where bytes were no UTF-8 (surrogates in a text decoded with surrogateescape)."""
    if text.isascii():
        return value
    readable = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    repaired: dict[str, Any] = _LENIENT.decode(readable)
    return repaired


def _read_repaired(text: str) -> tuple[dict[str, Any], int] | None:
    for end in _possible_ends(text):
        piece = text[:end]
        if "\0" in piece:
            return None
        for repair in _REPAIRS:
            piece = repair(piece)
            try:
                value = _REPAIRED.decode(piece)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict) and "ph" in value:
                return _without_surrogates(value, piece), end
    return None


def _possible_ends(text: str) -> Iterator[int]:
    place = 0
    for _ in range(_MOST_ENDS):
        match = _END.search(text, place)
        if match is None:
            return
        yield match.end()
        place = match.end()


def to_row(event: dict[str, Any]) -> ExactComplete:
    """Return a complete event as the fast reader would, from whatever its values are."""
    return ExactComplete(
        name=_to_text(event.get("name")) or "",
        cat=_to_text(event.get("cat")),
        pid=_to_text(event.get("pid")),
        tid=_to_text(event.get("tid")),
        args=_to_args(event.get("args")),
        ts=to_decimal(event.get("ts")),
        dur=to_decimal(event.get("dur")),
    )


def to_decimal(value: object) -> Decimal | None:
    """Read a number or a text that is one."""
    if isinstance(value, str):
        return _to_number(value)
    return Decimal(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else None


def _to_text(value: object) -> str | None:
    if isinstance(value, Decimal) and -_LARGEST_ID < value < _LARGEST_ID and value == int(value):
        value = int(value)  # 7.0 is the lane 7
    return None if value is None else str(value).encode("utf-8", "replace").decode("utf-8")


def _to_args(args: object) -> Args:
    """Keep every argument that can be read; the event is worth more than one of them."""
    if not isinstance(args, dict):
        return NO_ARGS
    known = {key: value for key, value in args.items() if key in _KNOWN_ARGS}
    readable = {key: value for key, value in known.items() if _decode_args({key: value}) is not None}
    return _decode_args(readable) or NO_ARGS


def _decode_args(args: dict[str, Any]) -> Args | None:
    try:
        found: Args = _ARGS.decode(json.dumps(args, default=float))
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError):
        return None
    return found
