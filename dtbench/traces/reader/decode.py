r"""From a window's text to columns, in tiers: typed and fast, else exact in its times, else event by event.

::

    window --typed--> columns                    nearly always
       |      \-- times that no float holds --> decoded again, times as decimals
       \-- not valid --> pieces: those that are valid go the fast way, one event after the other is read leniently
                         where they are not, so that one defect costs at most one event
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from dtbench.traces.reader.arrows import Arrows
from dtbench.traces.reader.columns import Columns
from dtbench.traces.reader.schema import (
    ArrowEnd,
    ArrowStart,
    Complete,
    ExactArrow,
    ExactArrowEnd,
    ExactArrowStart,
    ExactComplete,
    union_of,
)
from dtbench.traces.reader.times import are_beyond_floats, have_fractions, read_decimals, read_floats
from dtbench.traces.reader.windows import has_fractional_start

INVALID: Final = (msgspec.DecodeError, UnicodeError, RecursionError)  # ValidationError is a DecodeError
_ENOUGH_TO_SEE_FRACTIONS: Final = 256
_FIRST_BYTES: Final = 1 << 14


@dataclass(frozen=True)
class Sink:
    """Where decoded events go."""

    columns: Columns
    arrows: Arrows


class TypedDecoder:
    """Decodes events of a valid piece of text; nothing is added where the piece is not valid."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._needs_decimals = False
        self._typed = msgspec.json.Decoder(union_of(Complete, ArrowStart, ArrowEnd), strict=False)
        self._exact = msgspec.json.Decoder(union_of(ExactComplete, ExactArrowStart, ExactArrowEnd), strict=False)

    def decode(self, events: bytes | memoryview) -> None:
        """Add all events of a JSON array.

        Raises:
            msgspec.DecodeError, UnicodeError, RecursionError: it is not valid, or an event is not as it should be.
        """
        if self._needs_decimals:
            self.add_exactly(self.parse_exactly(events))
            return
        decoded = self._typed.decode(events)
        rows = [event for event in decoded if type(event) is Complete]
        start_us = np.array([row.ts for row in rows], dtype=np.float64)
        duration_us = np.array([row.dur for row in rows], dtype=np.float64)
        if _needs_decimals(events, start_us, duration_us):
            self._needs_decimals = True  # a file writes all its times alike
            self.add_exactly(self.parse_exactly(events))
            return
        self._sink.columns.add(rows, read_floats(start_us, duration_us))
        if len(rows) < len(decoded):
            self._sink.arrows.add([one for one in decoded if type(one) is ArrowStart or type(one) is ArrowEnd])

    def parse_exactly(self, events: bytes | memoryview) -> list[Any]:
        """Decode a JSON array of events, times as decimals, and add nothing yet.

        Raises:
            msgspec.DecodeError, UnicodeError, RecursionError: as ``decode``.
        """
        decoded: list[Any] = self._exact.decode(events)
        return decoded

    def add_exactly(self, decoded: list[Any]) -> None:
        """Add events whose times are decimals."""
        rows = [event for event in decoded if type(event) is ExactComplete]
        self._sink.columns.add(rows, read_decimals([row.ts for row in rows], [row.dur for row in rows]))
        self._sink.arrows.add_exact([event for event in decoded if isinstance(event, ExactArrow)])


def _needs_decimals(
    events: bytes | memoryview, start_us: NDArray[np.float64], duration_us: NDArray[np.float64]
) -> bool:
    if not are_beyond_floats(start_us) and not are_beyond_floats(duration_us):
        return False
    if have_fractions(start_us) or have_fractions(duration_us):
        return True
    # All may be rounded to whole numbers: few by chance, many where all have the same small fraction.
    return has_fractional_start(events if len(start_us) < _ENOUGH_TO_SEE_FRACTIONS else events[:_FIRST_BYTES])
