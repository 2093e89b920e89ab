"""How far colours of the palettes keep apart, and which are still free: ``python -m tests.report.free_colours causes``.

All colours of a coarse cube are tried; of those that keep every distance the farthest comes first, then those that can
be told from what was named before.
"""

import sys
from collections.abc import Iterator
from itertools import chain, product
from typing import Final

from dtbench.report.page.looks import Look
from tests.report.colour_distance import SIGHTS, contrast, distance
from tests.report.palette_rule import PALETTES

APART: Final = 10.5
"""CIEDE2000 between two colours of a palette, for every kind of sight."""

OTHER_PALETTE: Final = 4.0
"""The same between colours of two palettes, for the usual sight."""

READABLE: Final = 4.5
"""Contrast of text that WCAG 2.2 asks for."""

GROUND: Final = "#2A2B2F"
VISIBLE: Final = 3.0
"""Contrast of a mark with the ground of a dark page, which WCAG 2.2 asks for; darker ones need an edge there."""


def find_free(palette: str, step: int = 24) -> Iterator[str]:
    """Yield colours that a palette has room for, the one that is farthest from its own first.

    Args:
        palette: one of ``PALETTES``.
        step: of the cube that is tried, in each of red, green and blue.
    """
    others = set(chain.from_iterable(PALETTES.values())) - PALETTES[palette]
    cube = (f"#{red:02X}{green:02X}{blue:02X}" for red, green, blue in product(range(16, 256, step), repeat=3))
    found = {
        colour: apart
        for colour in cube
        if (apart := _find_nearest(colour, PALETTES[palette])) >= APART
        and all(distance(colour, other) >= OTHER_PALETTE for other in others)
        and contrast(colour, "#FFFFFF" if Look(colour).is_dark else "#000000") >= READABLE
        and contrast(colour, GROUND) >= VISIBLE
    }
    named: set[str] = set()
    for colour in sorted(found, key=lambda one: -found[one]):
        if _find_nearest(colour, named) >= APART:
            named.add(colour)
            yield colour


def _find_nearest(colour: str, others: set[str]) -> float:
    """Return the distance to the nearest of others for whom it is least; 0 where it is too small for a palette."""
    least = float("inf")
    for other, sight in product(others, SIGHTS):
        least = min(least, distance(colour, other, sight))
        if least < APART:
            return 0.0
    return least


if __name__ == "__main__":
    sys.stdout.write("\n".join(find_free(sys.argv[1])) + "\n")
