"""The first notes of an answer, and how many more there are."""

from collections.abc import Sequence
from typing import Final

from dtbench.base.units import count_things
from dtbench.report.page.page import Fact, Facts, Tone

MOST_NOTES: Final = 3
"""Sentences on what must be doubted."""


def note_facts(facts: Sequence[Fact], where: str = "--full") -> Facts:
    """Return the first of some notes, how many more there are, and where."""
    rest = len(facts) - MOST_NOTES
    more = (Fact("", f"and {count_things(rest, 'more note')}: {where}", Tone.QUIET),) if rest > 0 else ()
    return Facts((*facts[:MOST_NOTES], *more), key="doubts")
