"""The first notes of an answer, and how many more there are."""

from collections.abc import Sequence
from typing import Final

from dtbench.base.units import count_things
from dtbench.report.page.page import Fact, Facts, Tone

MOST_NOTES: Final = 3
"""Sentences on what must be doubted."""


def note_facts(facts: Sequence[Fact]) -> Facts:
    """Return the first of some notes, and how many more there are."""
    rest = len(facts) - MOST_NOTES
    more = (Fact("", f"and {count_things(rest, 'more note')}: --full", Tone.QUIET),) if rest > 0 else ()
    return Facts((*facts[:MOST_NOTES], *more), key="doubts")
