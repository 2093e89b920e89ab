"""How each cause is drawn, in plots and on pages, one row for each; and the parts of a step.

Colours are Okabe and Ito's (jfly.uni-koeln.de/color), which people with colour blindness can tell apart; hatches and
lightness tell them apart in grey.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dtbench.base.vocabulary import Cause
from dtbench.report.page.page import BarPart

_PATTERNS: Final = {"/": "slash", "\\": "back", "x": "cross", ".": "dots", "o": "dots", "-": "rows", "|": "columns"}
"""What the hatch of a figure is called on a page: ``render/html_page/chart.py`` and the tab's ``chart.js`` draw it."""


@dataclass(frozen=True)
class Look:
    """How one part of a bar is drawn.

    Attributes:
        colour: ``#RRGGBB``.
        hatch: as matplotlib spells it; empty: plain.
        is_dark: words on it are white, not black.
    """

    colour: str
    hatch: str = ""
    is_dark: bool = False

    @property
    def pattern(self) -> str:
        """Name of its hatch on a page; empty: plain."""
        return _PATTERNS[self.hatch[0]] if self.hatch else ""


CAUSE_LOOKS: Final[Mapping[Cause, Look]] = {
    Cause.SKEW: Look("#A6D5F2"),
    Cause.BUBBLE: Look("#DDCC77", "xx"),
    Cause.QUEUED: Look("#0072B2", "\\\\\\", is_dark=True),
    Cause.SERIALIZED: Look("#882255", "ooo", is_dark=True),
    Cause.LATE_ISSUE: Look("#D55E00", "///"),
    Cause.LATE_READY: Look("#CC79A7", "xxx"),
    Cause.SYNC_OP: Look("#E69F00", "..."),
    Cause.TAIL: Look("#F0E442", "--"),
    Cause.NEEDED_AT_ONCE: Look("#009E73", "|||", is_dark=True),
    Cause.BANDWIDTH: Look("#444444", is_dark=True),
    Cause.UNKNOWN: Look("#FFFFFF"),
}


def step_parts(idle: str) -> tuple[BarPart, ...]:
    """Return the parts of a step, in the order of every plot; ``idle`` is what the last is called here."""
    return (
        BarPart("compute_ns", "compute", is_dark=True),
        BarPart("exposed_comm_ns", "exposed comm", pattern="slash"),
        BarPart("exposed_copy_ns", "exposed copy", pattern="dots"),
        BarPart("idle_ns", idle),
    )
