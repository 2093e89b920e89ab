"""Flow arrows from forward operators to the backward nodes that autograd made of them."""

from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from dtbench.traces.reader.schema import FORWARD_BACKWARD, Arrow, ArrowStart, ExactArrow, ExactArrowStart
from dtbench.traces.reader.times import Problem, Times, read_decimals, read_floats
from dtbench.traces.time.intervals import Ints


class Arrows:
    """Both ends of the arrows of a trace in the making; ends are paired by id, repeated ids in file order.

    Attributes:
        unread: ends whose time cannot be read.
    """

    def __init__(self) -> None:
        self.unread = 0
        self._codes: dict[str, int] = {}
        self._starts: list[tuple[int, int]] = []
        self._ends: list[tuple[int, int]] = []

    def add(self, arrows: Sequence[Arrow]) -> None:
        """Take ends of arrows, of whatever kind."""
        wanted = [one for one in arrows if one.cat in FORWARD_BACKWARD]
        if wanted:
            at_us = np.array([one.ts for one in wanted], dtype=np.float64)
            self._add(wanted, read_floats(at_us, np.zeros(len(wanted))))

    def add_exact(self, arrows: Sequence[ExactArrow]) -> None:
        """Take ends of arrows whose times are decimals."""
        wanted = [one for one in arrows if one.cat in FORWARD_BACKWARD]
        self._add(wanted, read_decimals([one.ts for one in wanted], [Decimal(0)] * len(wanted)))

    def _add(self, arrows: Sequence[Arrow | ExactArrow], times: Times) -> None:
        for one, at_ns, problem in zip(arrows, times.start_ns.tolist(), times.problem.tolist(), strict=True):
            if problem != Problem.NONE:
                self.unread += 1
                continue
            end = (self._codes.setdefault(str(one.id), len(self._codes)), at_ns)
            (self._starts if isinstance(one, ArrowStart | ExactArrowStart) else self._ends).append(end)

    def pair(self) -> Ints:
        """Return start and end of each arrow that has both, shape ``(m, 2)``, in order of ids."""
        starts, ends = (np.array(one, dtype=np.int64).reshape(-1, 2) for one in (self._starts, self._ends))
        repeats = max(len(starts), len(ends), 1)
        from_keys, to_keys = (one[:, 0] * repeats + _count_earlier(one[:, 0]) for one in (starts, ends))
        _, first, second = np.intersect1d(from_keys, to_keys, assume_unique=True, return_indices=True)
        return np.stack((starts[first, 1], ends[second, 1]), axis=1)


def _count_earlier(codes: Ints) -> Ints:
    """Count for each value how many equal ones come before it."""
    order = np.argsort(codes, kind="stable")
    in_order = codes[order]
    earlier = np.empty(len(codes), dtype=np.int64)
    earlier[order] = np.arange(len(codes)) - np.searchsorted(in_order, in_order, side="left")
    return earlier
