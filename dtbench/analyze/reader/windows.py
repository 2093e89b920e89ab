"""Where text may be cut: the borders between events, the start of the array of events, its end.

A border looks like ``}, {``. Inside an event such text may stand too (a list of objects, a string); a piece cut there
is never valid JSON, because a brace or a quote stays open, so a wrong cut is always noticed.
"""

import re
from typing import Final

_SPACE: Final = b" \t\r\n"
_ARRAY_START: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_EVENT_START: Final = re.compile(rb'\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:')
_FRACTIONAL_START: Final = re.compile(rb'"ts"\s*:\s*"?-?\d+\.')
_MOST_TRIES: Final = 64


def find_array_start(text: bytes) -> int | None:
    """Give where the first event may begin: behind the bracket of ``traceEvents`` or of a bare array; None: nowhere."""
    stripped = text.lstrip(_SPACE)
    if stripped.startswith(b"["):
        return len(text) - len(stripped) + 1
    match = _ARRAY_START.search(text)
    return match.end() if match else None


def find_last_border(text: bytes) -> tuple[int, int] | None:
    """Give where the last but one event ends and where the last one begins; None: no such place.

    Prefers a place where a key of an event follows.
    """
    fallback: tuple[int, int] | None = None
    place = len(text)
    for _ in range(_MOST_TRIES):
        place = text.rfind(b"{", 0, place)
        if place <= 0:
            break
        end = _find_end_before(text, place)
        if end is not None:
            if _EVENT_START.match(text, place):
                return end, place
            fallback = fallback or (end, place)
    return fallback


def _find_end_before(text: bytes, brace: int) -> int | None:
    """Give the end of the object that a comma parts from this brace."""
    comma = _skip_space_back(text, brace)
    if not comma or text[comma - 1] != ord(","):
        return None
    end = _skip_space_back(text, comma - 1)
    return end if end and text[end - 1] == ord("}") else None


def _skip_space_back(text: bytes, end: int) -> int:
    while end > 0 and text[end - 1] in _SPACE:
        end -= 1
    return end


def has_fractional_start(text: bytes) -> bool:
    """Tell whether some ``ts`` is written with decimals."""
    return _FRACTIONAL_START.search(text) is not None
