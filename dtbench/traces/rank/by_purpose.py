"""What one rank's communication was for: accounted when its trace was read, and anew once other ranks tell more."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dtbench.base.vocabulary import Purpose
from dtbench.traces.account.purpose_times import PurposeTime, account_purposes
from dtbench.traces.account.untold_times import bound_purposes, place_untold
from dtbench.traces.account.waits import Wait, Waits, find_device_waits, sum_waits
from dtbench.traces.rank.doubt import doubt_device_purposes, doubt_purposes, leave_purposes, leave_waits
from dtbench.traces.rank.unsure import Before, doubt_purposes_before
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Intervals
from dtbench.traces.time.shares import Shares
from dtbench.traces.who.collectives import Collective
from dtbench.traces.who.untold import Untold

_NONE: Final[Untold] = {}


@dataclass(frozen=True)
class PurposeSources:
    """What the account by purpose is made from; but for the collectives, all as it was read.

    Attributes:
        step_of: index of the step that issued each collective; None: none did.
        shares: of the collectives, in the same windows.
        windows: of the steps and, last, the whole trace.
        is_lossy: by window, whether collectives were issued and not seen to run, or kernels are lost.
        are_kernels_lost: by window.
        are_copies_lost: by window.
        compute: time in which compute ran.
        waits: None: those of a device, which its collectives say.
        before: what ran in time that may be of a step, or of the one before.
    """

    step_of: tuple[int | None, ...]
    shares: Shares
    windows: tuple[Window, ...]
    is_lossy: tuple[bool, ...]
    are_kernels_lost: tuple[bool, ...]
    are_copies_lost: tuple[bool, ...]
    compute: Intervals
    waits: tuple[Wait, ...] | None
    before: Before

    def account(self, collectives: Sequence[Collective], untold: Untold = _NONE) -> list[tuple[PurposeTime, ...]]:
        """Account for collectives by the purpose that each has, for each step and, last, for the whole trace.

        Args:
            collectives: of the rank.
            untold: of which it is not known what they are for, as from ``find_untold``.
        """
        waits = self._find_waits(collectives)
        rows = account_purposes(collectives, self.step_of, self.shares, waits, self.windows)
        rows = bound_purposes(rows, collectives, self.step_of, self.shares, untold)
        rows = doubt_purposes_before(rows, self.before.find_purposes(collectives, waits))
        rows = [
            leave_purposes(of_window) if is_unknown else self._doubt(of_window) if is_lossy else of_window
            for of_window, is_lossy, is_unknown in zip(rows, self.is_lossy, self.are_kernels_lost, strict=True)
        ]
        pairs = zip(rows, self.are_copies_lost, strict=True)
        return [leave_waits(of_window) if is_lossy else of_window for of_window, is_lossy in pairs]

    def _doubt(self, rows: tuple[PurposeTime, ...]) -> tuple[PurposeTime, ...]:
        """Return a window of which collectives are lost; only the host shows who waited for these."""
        return doubt_device_purposes(rows) if self.waits is None else doubt_purposes(rows)

    def place(self, collectives: Sequence[Collective], untold: Untold) -> list[frozenset[Purpose]]:
        """Return the purposes of which something may be missing, for each step; arguments as for ``account``."""
        before = self.before.find_purposes(collectives, self._find_waits(collectives))
        placed = enumerate(place_untold(untold, self.step_of, self.shares))
        return [purposes | before.get(place, {}).keys() for place, purposes in placed]

    def _find_waits(self, collectives: Sequence[Collective]) -> Waits:
        if self.waits is None:
            return find_device_waits(collectives)
        return sum_waits(self.waits, collectives, self.compute)
