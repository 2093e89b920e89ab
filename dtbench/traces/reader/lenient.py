"""A window that is not valid, piece by piece: what is valid goes the fast way, a defect costs at most one event.

Pieces grow while all is well and shrink at a defect. Where an event cannot be read at all, reading goes on at the next
object that looks like one; what was skipped is counted, once for every ``"ph"`` in it.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from dtbench.traces.reader.decode import INVALID, Sink, TypedDecoder
from dtbench.traces.reader.repair import IncompleteError, read_object, to_decimal, to_row
from dtbench.traces.reader.schema import OTHER_PHASES, ExactArrow, ExactArrowEnd, ExactArrowStart, ExactComplete

_BORDER: Final = re.compile(r"(?<=\})\s*,\s*(?=\{)")
_BETWEEN: Final = re.compile(r"[\s,]*")
_OBJECT: Final = re.compile(r'\{\s*"')
_PHASE: Final = re.compile(r'"ph"\s*:')
_ARRAY_END: Final = re.compile(r'\]\s*(?:\}|,\s*"|$)')
_LAST_EVENT: Final = re.compile(r"\}\s*\]")
_ENCODING: Final = ("utf-8", "surrogateescape")
_SMALLEST_PIECE: Final = 1 << 10
_MOST_TRIES: Final = 10_000  # of objects that are no event, in one window: text of another kind must not take hours
_UNREADABLE: Final = "unreadable text"
_NO_EVENT: Final = "not an event"
NOTHING_MORE: Final = "a long text that is no event, and none was looked for behind it"
NO_EVENTS: Final = frozenset({_UNREADABLE, _NO_EVENT})
"""Reasons that say of a piece of text that nothing shows it to be an event."""


@dataclass(frozen=True)
class Progress:
    """How far a window was read.

    Attributes:
        consumed: bytes that are done with.
        is_end: the array of events ends there.
    """

    consumed: int
    is_end: bool = False


class LenientReader:
    """Reads what the typed decoder refuses."""

    def __init__(self, sink: Sink, typed: TypedDecoder) -> None:
        self._sink = sink
        self._typed = typed
        self._events: list[ExactComplete | ExactArrow] = []

    def read(self, window: bytes, *, is_last: bool) -> Progress:
        """Read a window as far as it goes.

        Args:
            window: text that begins at or between events.
            is_last: nothing follows; else an event may be cut at its end and is left for the next window.
        """
        text = window.decode(*_ENCODING)
        place, is_end = self._read(text, is_last=is_last)
        events, self._events = self._events, []
        self._typed.add_exactly(events)
        return Progress(len(text[:place].encode(*_ENCODING)), is_end)

    def _read(self, text: str, *, is_last: bool) -> tuple[int, bool]:
        place = _skip_between(text, 0)
        piece = len(text) // 2
        while place < len(text):
            if text[place] == "]" and _is_array_end(text, place, is_last=is_last):
                return place + 1, True
            end = self._read_piece(text, place, piece) if piece >= _SMALLEST_PIECE else None
            if end is not None:
                piece *= 2
            elif piece >= _SMALLEST_PIECE:
                piece //= 4
                continue
            else:
                try:
                    end = self._read_one(text, place, is_last=is_last)
                except IncompleteError:
                    if not is_last:
                        return place, False
                    end = self._skip(text, place, is_cut=True, is_last=True)
                piece = _SMALLEST_PIECE
            place = _skip_between(text, end)
        return place, False

    def _read_piece(self, text: str, start: int, length: int) -> int | None:
        """Read whole events the fast way; None: they are not all valid."""
        border = _BORDER.search(text, min(start + length, len(text)))
        end = border.start() if border else len(text)
        try:
            self._events += self._typed.parse_exactly(b"[" + text[start:end].encode(*_ENCODING) + b"]")
        except INVALID:
            return None
        return end

    def _read_one(self, text: str, start: int, *, is_last: bool) -> int:
        found = read_object(text, start) if text[start] == "{" else None
        if found is None:
            return self._skip(text, start, is_cut=False, is_last=is_last)
        event, end = found
        self._add(event)
        return end

    def _add(self, event: dict[str, Any]) -> None:
        match event.get("ph"):
            case "X":
                self._events.append(to_row(event))
            case "s" | "f" as phase:
                kind = ExactArrowStart if phase == "s" else ExactArrowEnd
                cat, identity = str(event.get("cat")), str(event.get("id"))
                self._events.append(kind(cat=cat, id=identity, ts=to_decimal(event.get("ts"))))
            case str(phase) if len(phase) == 1 and phase in OTHER_PHASES:
                pass
            case _:
                self._sink.columns.unread[_NO_EVENT] += 1

    def _skip(self, text: str, start: int, *, is_cut: bool, is_last: bool) -> int:
        """Return where reading can go on, and count what lies before.

        Raises:
            IncompleteError: more text is needed to tell.
        """
        end = _find_next(text, start)
        if end is None:
            if not is_last:
                raise IncompleteError
            end = _find_array_end(text, start + 1)
        lost = len(_PHASE.findall(text, start, end))
        if not is_cut or lost > 1:
            self._sink.columns.unread[_UNREADABLE] += max(lost - is_cut, 1)
        return end


def _skip_between(text: str, start: int) -> int:
    match = _BETWEEN.match(text, start)
    return match.end() if match else start


def _is_array_end(text: str, bracket: int, *, is_last: bool) -> bool:
    """Tell whether a bracket between events ends their array: the object goes on with a key, or ends, or the file."""
    match = _ARRAY_END.match(text, bracket)
    return match is not None and (is_last or bool(match[0][1:].strip()))


def _find_next(text: str, start: int) -> int | None:
    """Return where the next event begins; None: nowhere in this text."""
    place = start + 1
    last = text.rfind('"ph"')
    for _ in range(_MOST_TRIES):
        match = _OBJECT.search(text, place)
        if match is None or match.start() > last:
            break
        try:
            found = read_object(text, match.start())
        except IncompleteError:
            return match.start()
        if found is None:
            place = match.start() + 1
        elif "ph" in found[0]:
            return match.start()
        else:
            place = found[1]
    return None


def _find_array_end(text: str, start: int) -> int:
    """Return the bracket behind which the text is what may stand behind the events; the end of the text: there is none.

    The text is the last of its file.
    """
    for match in _LAST_EVENT.finditer(text, start):
        rest = text[match.end() :].strip()
        if not rest or rest == "}" or _is_rest_of_object(rest):
            return match.end() - 1
    return len(text)


def _is_rest_of_object(rest: str) -> bool:
    try:
        json.loads('{"": 0' + rest, strict=False)
    except (ValueError, RecursionError):
        return False
    return True
