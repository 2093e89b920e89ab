"""Where text may be cut: the borders between events, the start of the array of events, its end.

A border looks like ``}, {``. Inside an event such text may stand too (a list of objects, a string); a piece cut there
is never valid JSON, because a brace or a quote stays open, so a wrong cut is always noticed.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SPACE: Final = b" \t\r\n"
_ARRAY_START: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_EVENT_START: Final = re.compile(rb'\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:')
_FRACTIONAL_START: Final = re.compile(rb'"ts"\s*:\s*"?-?\d+\.')
_ARRAY_END: Final = re.compile(rb'\]\s*(?:\}|,\s*"|\Z)')
_MOST_TRIES: Final = 64


def find_array_start(text: bytes) -> int | None:
    """Return where the first event may begin: behind the bracket of ``traceEvents`` or a bare array; None: nowhere."""
    stripped = text.lstrip(_SPACE)
    if stripped.startswith(b"["):
        return len(text) - len(stripped) + 1
    match = _ARRAY_START.search(text)
    return match.end() if match else None


class Buffer:
    """Text that was read and not decoded yet, in one piece of memory that is used again and again.

    A bracket stands in front of it, and ``as_array`` puts one behind, so that events are a JSON array where they are.
    """

    def __init__(self) -> None:
        self._bytes = bytearray(b"[ ")
        self._end = 1

    def __len__(self) -> int:
        return self._end - 1

    def append(self, text: bytes) -> None:
        """Add text behind."""
        end = self._end + len(text)
        if end >= len(self._bytes):
            larger = bytearray(2 * end)
            larger[: self._end] = self._bytes[: self._end]
            self._bytes = larger
        self._bytes[self._end : end] = text
        self._end = end

    def drop(self, length: int) -> None:
        """Take text away in front."""
        rest = self._bytes[1 + length : self._end]
        self._bytes[1 : 1 + len(rest)] = rest
        self._end = 1 + len(rest)

    def text(self, length: int) -> bytes:
        """Copy the first bytes."""
        return bytes(self._bytes[1 : 1 + length])

    def has_object(self, length: int) -> bool:
        """Tell whether an object begins in the first bytes."""
        return self._bytes.find(b"{", 1, 1 + length) >= 0

    @contextmanager
    def as_array(self, length: int) -> Iterator[memoryview]:
        """Yield the first bytes between brackets, in place."""
        end = 1 + length
        behind = self._bytes[end]
        self._bytes[end] = ord("]")
        try:
            yield memoryview(self._bytes)[: end + 1]
        finally:
            self._bytes[end] = behind

    def find_last_border(self) -> tuple[int, int] | None:
        """Return where the last but one event ends and where the last one begins; None: no such place."""
        border = _find_last_border(self._bytes, self._end)
        return None if border is None else (border[0] - 1, border[1] - 1)

    def find_array_end(self) -> int | None:
        """Guess where the bracket behind the last event is; None: no place looks like it."""
        place = self._end
        for _ in range(_MOST_TRIES):
            place = self._bytes.rfind(b"]", 1, place)
            if place < 0:
                break
            end = _skip_space_back(self._bytes, place)
            if self._bytes[end - 1] == ord("}") and _ARRAY_END.match(self._bytes, place, self._end):
                return place - 1
        return None


def _find_last_border(text: bytearray, length: int) -> tuple[int, int] | None:
    """Prefer a place where a key of an event follows."""
    fallback: tuple[int, int] | None = None
    place = length
    for _ in range(_MOST_TRIES):
        place = text.rfind(b"{", 1, place)
        if place <= 1:
            break
        end = _find_end_before(text, place)
        if end is not None:
            if _EVENT_START.match(text, place, length):
                return end, place
            fallback = fallback or (end, place)
    return fallback


def _find_end_before(text: bytearray, brace: int) -> int | None:
    """Return the end of the object that a comma parts from this brace."""
    comma = _skip_space_back(text, brace)
    if not comma or text[comma - 1] != ord(","):
        return None
    end = _skip_space_back(text, comma - 1)
    return end if end and text[end - 1] == ord("}") else None


def _skip_space_back(text: bytearray, end: int) -> int:
    while end > 0 and text[end - 1] in _SPACE:
        end -= 1
    return end


def has_fractional_start(text: bytes | memoryview) -> bool:
    """Tell whether some ``ts`` is written with decimals."""
    return _FRACTIONAL_START.search(text) is not None
