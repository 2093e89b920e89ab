"""Waits, before ranks start, for other guests of the machine to leave it: minutes, where ranks that run wait seconds.

A burst that lasts longer than a launch leaves nothing of it to go by (``dtbench.machine.disturbance``).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from dtbench.base.units import NS_PER_S, format_fraction, format_ns
from dtbench.machine.disturbance import DISTURBED
from dtbench.machine.stolen_time import Look, look_at_machine

_LOOKS: Final = 10
"""So many looks on end must find the machine quiet once one has not: five seconds."""


@dataclass
class WaitBudget:
    """What is left of the time that a command may wait, over all its launches.

    Attributes:
        left_s: 0: nobody waits or looks.
        say: told when waiting begins, and how it ended.
        look: at this machine.
    """

    left_s: float
    say: Callable[[str], None]
    look: Callable[[], Look] = look_at_machine

    def wait(self) -> None:
        """Come back when others leave this machine alone, or no time is left; at once where they do already."""
        if self.left_s <= 0:
            return
        first = self.look()
        if not first.stolen_fraction >= DISTURBED:  # NaN: unknown
            return
        self.say(
            "waiting for other virtual machines of the host, "
            f"which have {format_fraction(first.stolen_fraction)} of its cores"
        )
        waited_s, seen = first.took_s, deque([first.stolen_fraction], maxlen=_LOOKS)
        while waited_s < self.left_s and (len(seen) < _LOOKS or fmean(seen) >= DISTURBED):
            look = self.look()
            waited_s += look.took_s
            seen.append(look.stolen_fraction)
        self.left_s -= waited_s
        still = f", while they have {format_fraction(fmean(seen))} of them" if fmean(seen) >= DISTURBED else ""
        self.say(f"going on after {format_ns(waited_s * NS_PER_S)}{still}")
