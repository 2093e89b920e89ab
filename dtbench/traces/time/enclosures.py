"""Which span of a thread lies around a moment: the stack of open spans, asked at any time, without walking it.

::

    A   ├──────────────────┤
    B      ├────┤                      around(t) = the last span in order that began and has not ended
    C          ├─────┤                 overlapping spans (real traces have them) are no special case
    around AAABBBBCCCCCAAAAA

A stack that pops what has ended before it pushes gives the same answer: what it pops can be around nothing that comes
later. So "innermost" is a search to the left for the nearest end that lies beyond a moment.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.traces.time.intervals import Ints, find_cuts

NOTHING: Final = -1
"""In arrays of events and of places: there is none."""

_KEY_BITS: Final = 62


@dataclass(frozen=True)
class Clock:
    """Numbers in which (lane, time) sort as pairs do and fit one integer.

    Attributes:
        bits: width of the time's part.
        origin_ns: earlier than every moment; unused where ``moments_ns`` is given.
        moments_ns: for spans too far apart to fit: all moments, rising; a time counts how many are not later.
    """

    bits: int
    origin_ns: int
    moments_ns: Ints | None = None

    def keys(self, lanes: NDArray[np.int32] | Ints, times_ns: Ints) -> Ints:
        """Return one integer for each (lane, time); times outside the known ones go to the nearest edge."""
        if self.moments_ns is None:
            ticks = np.clip(times_ns - self.origin_ns, 0, (1 << self.bits) - 1)
        else:
            ticks = np.searchsorted(self.moments_ns, times_ns, side="right")
        return np.asarray((lanes.astype(np.int64) << self.bits) + ticks, dtype=np.int64)


def set_clock(lanes: NDArray[np.int32] | Ints, starts_ns: Ints, ends_ns: Ints) -> Clock:
    """Choose numbers for the moments of some spans."""
    if not len(starts_ns):
        return Clock(bits=1, origin_ns=0)
    origin_ns = int(starts_ns.min()) - 1
    bits = (int(ends_ns.max()) - origin_ns + 1).bit_length()
    if bits + int(lanes.max()).bit_length() <= _KEY_BITS:
        return Clock(bits=bits, origin_ns=origin_ns)
    moments_ns = find_cuts(starts_ns, ends_ns)
    return Clock(bits=(len(moments_ns) + 1).bit_length(), origin_ns=0, moments_ns=moments_ns)


@dataclass(frozen=True)
class Enclosures:
    """Spans by (lane, start), the longest first, then as given, each with the one around it.

    Attributes:
        events: shape ``(m,)``, the spans' events.
        above: shape ``(m,)``, place of the innermost span around each; ``NOTHING``: none.
        starts: shape ``(m,)``, keys of ``clock``, rising.
        ends: shape ``(m,)``, likewise.
        clock: of the keys.
    """

    events: Ints
    above: NDArray[np.int32]
    starts: Ints
    ends: Ints
    clock: Clock

    def places_around(self, lanes: NDArray[np.int32] | Ints, times_ns: Ints) -> Ints:
        """Return the place of the innermost span open at each moment of each lane; ``NOTHING``: none."""
        keys = self.clock.keys(lanes, times_ns)
        places = np.searchsorted(self.starts, keys, side="right") - 1
        climbing = np.flatnonzero(places >= 0)
        while len(climbing):
            climbing = climbing[self.ends[places[climbing]] <= keys[climbing]]
            places[climbing] = self.above[places[climbing]]
            climbing = climbing[places[climbing] >= 0]
        return np.asarray(places, dtype=np.int64)

    def around(self, lanes: NDArray[np.int32] | Ints, times_ns: Ints) -> Ints:
        """Return the innermost event open at each moment of each lane; ``NOTHING``: none."""
        return self.events_at(self.places_around(lanes, times_ns))

    def events_at(self, places: Ints) -> Ints:
        """Return the events at some places; ``NOTHING`` stays."""
        found = np.full(len(places), NOTHING, dtype=np.int64)
        found[places >= 0] = self.events[places[places >= 0]]
        return found


def find_enclosures(events: Ints, lanes: NDArray[np.int32] | Ints, starts_ns: Ints, ends_ns: Ints) -> Enclosures:
    """Sort some spans and find what lies around each.

    Args:
        events: shape ``(m,)``, which.
        lanes: shape ``(n,)``, threads of all spans; likewise the others.
        starts_ns: shape ``(n,)``.
        ends_ns: shape ``(n,)``.
    """
    lanes, starts_ns, ends_ns = lanes[events], starts_ns[events], ends_ns[events]
    clock = set_clock(lanes, starts_ns, ends_ns)
    starts, ends = clock.keys(lanes, starts_ns), clock.keys(lanes, ends_ns)
    order = np.argsort(starts, kind="stable")
    # Equal starts happen in traces of whole microseconds: the longer span is outside.
    equal = starts[order[1:]] == starts[order[:-1]]
    tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal)) if len(order) else order
    members = order[tied]
    order[tied] = members[np.lexsort((-ends[members], starts[members]))]
    starts, ends = starts[order], ends[order]
    return Enclosures(events[order], _find_above(starts, ends), starts, ends, clock)


def _find_above(starts: Ints, ends: Ints) -> NDArray[np.int32]:
    """Find for each span the nearest one before it that ends after it starts.

    Every span points to its left neighbour, and, as long as that one has ended, to where that one points: between the
    two everything has ended too. Pointers double their reach, so that a thousand siblings take ten rounds.
    """
    above = np.arange(-1, len(starts) - 1, dtype=np.int32)
    if not len(starts):
        return above
    alone = np.append(True, np.maximum.accumulate(ends)[:-1] <= starts[1:])
    above[alone] = NOTHING
    searching = np.flatnonzero(~alone & np.append(False, ends[:-1] <= starts[1:]))
    while len(searching):
        above[searching] = above[above[searching]]
        searching = searching[ends[above[searching]] <= starts[searching]]
    return above
