"""The first notes of an answer, and how many more there are."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dtbench.base.units import count_things
from dtbench.report.page.page import Fact, Facts

MOST_NOTES: Final = 3
"""Sentences on what must be doubted."""


def note_facts(facts: Sequence[Fact], where: str = "--full", most: int = MOST_NOTES) -> Facts:
    """Return the first of some notes, how many more there are, and where."""
    first, rest = list(facts[:most]), len(facts) - most
    if rest > 0:
        first[-1] = replace(first[-1], words=f"{first[-1].words}; and {count_things(rest, 'more note')}: {where}")
    return Facts(tuple(first), key="doubts")
