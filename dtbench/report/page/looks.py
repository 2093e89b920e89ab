"""The palettes: which colour has which meaning, the same in plots, on pages, in the timeline and on a terminal.

There is one for the parts of a step (what ran), one for purposes, one for causes, one for what a pipeline's stage did,
and one for lines that are told apart only; no colour is in two of them, so that a colour alone says what is meant.
Compute, communication and copies have colours of Okabe and Ito (jfly.uni-koeln.de/color). The others were searched
for: of each palette the smallest distance between two colours (CIEDE2000) was made as large as it gets, for four kinds
of sight at once: that of most people and the three kinds of colour blindness (Machado and others, 2009). A hatch is
only on what was exposed, and tells its parts apart in grey.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dtbench.base.vocabulary import Cause, Phase, Purpose
from dtbench.report.page.page import BarPart

_PATTERNS: Final = {"/": "slash", "\\": "back", "x": "cross", ".": "dots", "o": "dots", "-": "rows", "|": "columns"}
"""What the hatch of a figure is called on a page: ``render/html_page/chart.py`` and the tab's ``chart.js`` draw it."""

_DARK_BELOW: Final = 0.179
"""Luminance below which white words have more contrast than black ones (WCAG 2.2)."""


@dataclass(frozen=True)
class Look:
    """How one part of a picture is drawn.

    Attributes:
        colour: ``#RRGGBB``.
        hatch: as matplotlib spells it, on what was exposed; empty: plain.
        in_the_dark: its colour on a dark page, where it is pale on paper; empty: the same.

    Raises:
        ValueError: pages do not draw such a hatch.
    """

    colour: str
    hatch: str = ""
    in_the_dark: str = ""

    def __post_init__(self) -> None:
        """Refuse what only figures could draw."""
        if self.hatch[:1] not in ("", *_PATTERNS):
            raise ValueError(f"`{self.hatch}` is no hatch that pages draw; repeat one of {' '.join(_PATTERNS)}")

    @property
    def pattern(self) -> str:
        """Name of its hatch on a page; empty: plain."""
        return _PATTERNS[self.hatch[0]] if self.hatch else ""

    @property
    def is_dark(self) -> bool:
        """Whether words on it are white."""
        return luminance(self.colour) < _DARK_BELOW

    @property
    def ink(self) -> str:
        """The colour of words on it."""
        return "white" if self.is_dark else "black"


COMPUTE: Final = Look("#0072B2")
EXPOSED_COMM: Final = Look("#E69F00", "///")
EXPOSED_COPY: Final = Look("#CC79A7", "...")
COPY: Final = Look("#CC79A7")
HIDDEN_COMM: Final = Look("#F7DDA4", in_the_dark="#9A8142")
IDLE: Final = Look("#E6E6E6", in_the_dark="#BCC1C7")
REST: Final = Look("#DCE9F3", in_the_dark="#48586A")
"""What is not told apart here: the rest of a step, of a stage."""

UNTOLD: Final = Look("#FFFFFF", in_the_dark="#2A2B2F")
"""What is not known."""

STEP_LOOKS: Final[Mapping[str, Look]] = {
    "compute_ns": COMPUTE,
    "exposed_comm_ns": EXPOSED_COMM,
    "exposed_copy_ns": EXPOSED_COPY,
    "idle_ns": IDLE,
    "hidden_comm_ns": HIDDEN_COMM,
    "rest": REST,
    "untold": UNTOLD,
}
"""The parts of a step, by their field in a report."""

PURPOSE_LOOKS: Final[Mapping[Purpose, Look]] = {
    Purpose.UNSHARD: Look("#3D8A8A", "\\\\\\"),
    Purpose.GRAD_REDUCE: Look("#7A3D1F", "///"),
    Purpose.TENSOR: Look("#D699F5", "..."),
    Purpose.CONTEXT: Look("#3D4C7A", "oo"),
    Purpose.EXPERT: Look("#997A0F", "xx"),
    Purpose.PIPELINE: Look("#8AC7B8", "|||"),
    Purpose.STATE: Look("#B8C76B", "---"),
    Purpose.OTHER: Look("#595959", "xxx"),
}
"""Exposed communication by what it was for; where nothing is said of exposed, without the hatch."""

CAUSE_LOOKS: Final[Mapping[Cause, Look]] = {
    Cause.SKEW: Look("#B899F5"),
    Cause.BUBBLE: Look("#D6E57A", "xx"),
    Cause.QUEUED: Look("#0F4CA8", "\\\\\\"),
    Cause.SERIALIZED: Look("#6B3D4C", "ooo"),
    Cause.LATE_ISSUE: Look("#B8992E", "///"),
    Cause.LATE_READY: Look("#8A6B8A", "xxx"),
    Cause.SYNC_OP: Look("#3DF5D6", "..."),
    Cause.TAIL: Look("#8AA88A", "--"),
    Cause.NEEDED_AT_ONCE: Look("#6B7A4C", "|||"),
    Cause.BANDWIDTH: Look("#3D4C0F"),
    Cause.UNKNOWN: UNTOLD,
}
"""Exposed communication by why it was."""

ACTION_LOOKS: Final[Mapping[str, Look]] = {
    "forward": Look("#D6E5B8"),
    "backward": Look("#7A99E5"),
    "input gradients": Look("#6BF5F5"),
    "weight gradients": Look("#C78A2E"),
}
"""What a stage of a pipeline did with a micro-batch."""

EXPOSED_SCALE: Final = ("#FFFFFF", EXPOSED_COMM.colour, "#3A2800")
WAITED_SCALE: Final = ("#FFFFFF", CAUSE_LOOKS[Cause.SKEW].colour, "#23104A")
"""From none to most, through the colour of what it is; lightness falls all the way."""

LINE_COLOURS: Final = ("#0F6B5C", "#A87AD6", "#7A0F0F", "#1FA88A", "#4C2E7A", "#B86B1F", "#000000")
"""Lines that are told apart only: ranks, cells, values of an axis."""


PHASE_COLOURS: Final[Mapping[Phase, str]] = {
    Phase.WARMUP: "#EEEEEE",
    Phase.MEASURED: "#D6EAF5",
    Phase.PROFILED: "#FBE9C6",
}
"""Grounds of what was drawn in a phase."""

GOOD: Final = "#00704F"
BAD: Final = "#B3261E"
"""What became better and worse, and what must not be trusted: the tones of words on a light page."""


def luminance(colour: str) -> float:
    """Return the relative luminance of ``#RRGGBB``, 0 to 1 (WCAG 2.2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def step_parts(idle: str) -> tuple[BarPart, ...]:
    """Return the parts of a step, in the order of every plot; ``idle`` is what the last is called here."""
    names = {"compute_ns": "compute", "exposed_comm_ns": "exposed comm", "exposed_copy_ns": "exposed copy"}
    return tuple(bar_part(field, name, STEP_LOOKS[field]) for field, name in {**names, "idle_ns": idle}.items())


def bar_part(key: str, name: str, look: Look) -> BarPart:
    """Return a part of a page's bars; its colour is the style's where a dark page has another."""
    return BarPart(key, name, "" if key in STEP_LOOKS else look.colour, look.pattern, look.is_dark)


def palette_style() -> str:
    """Return a style sheet of the parts of a step, for light pages and for those of class ``dark``.

    Each has a property, ``--exposed_comm_ns``, a class of what is drawn, and one of the patch behind its words.
    """
    light = "".join(f" --{key}: {look.colour};" for key, look in STEP_LOOKS.items())
    deep = "".join(f" --{key}: {look.in_the_dark};" for key, look in STEP_LOOKS.items() if look.in_the_dark)
    classes = "".join(
        f".part-{key} {{ fill: var(--{key}); }} .behind-{key} {{ fill: var(--{key}); stroke: var(--{key}); }}\n"
        for key in STEP_LOOKS
    )
    return f":root {{{light} }}\n:root.dark {{{deep} }}\n{classes}"


def timeline_palette() -> dict[str, dict[str, str]]:
    """Return what ``timeline.js`` draws with: kinds on light and on dark pages, purposes, and actions of a stage."""
    kinds = {"compute": COMPUTE, "hidden": HIDDEN_COMM, "exposed": EXPOSED_COMM, "copy": COPY}
    return {
        "light": {name: look.colour for name, look in kinds.items()},
        "dark": {name: look.in_the_dark or look.colour for name, look in kinds.items()},
        "purposes": {purpose.value: look.colour for purpose, look in PURPOSE_LOOKS.items()},
        "actions": {action: look.colour for action, look in ACTION_LOOKS.items()},
    }
