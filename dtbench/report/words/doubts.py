"""Why traced steps may not stand for those of a training, in words; what then is no finding says so."""

from collections.abc import Sequence

from dtbench.base.units import count_things
from dtbench.runs.doubt_words import describe_doubt, name_doubt
from dtbench.runs.representative import Doubt

UNSEEN_CONSUMER = "not every consumer of it can be seen in the traces"
"""Why nobody knows a wait."""

UNSEEN_BUBBLE = "none was seen, and of some sends and receives it is not known what they waited for"
"""Why nobody knows a bubble of which at least zero is known."""

NO_FINDING = "Whose it is and why is of these steps alone: no finding, and no advice follows from it."

NOT_WHOLE = "Files of ranks are missing or do not belong together: no finding, and no advice follows from it."

UNRELIABLE = "Its numbers are unreliable: no finding, and no advice follows from it."

NOT_ALL_LAUNCHES = "Launches failed, are not finished or are left out: no finding, and no advice follows from it."

NOT_SEEN = "Of what was seen to run alone, and more was launched: no advice follows from it."

NOT_ALL_OWNERS = "Owners are not known of the same steps: which has most is not told, and no advice follows from it."


def say_doubts(doubts: Sequence[Doubt]) -> str | None:
    """Say in a clause of the answer that, and why, the steps may not stand for others; None: nothing speaks against it.

    The first reason is told, and how many more there are.
    """
    if not doubts:
        return None
    more = f", and {count_things(len(doubts) - 1, 'more reason')}, see the notes" if doubts[1:] else ""
    return f"{name_doubt(doubts)}: {describe_doubt(doubts[0])}{more}"


def doubt_lines(doubts: Sequence[Doubt]) -> tuple[str, ...]:
    """Say every reason in a line each, and what follows; nothing where nothing speaks against the steps."""
    reasons = (f"NOT REPRESENTATIVE: {describe_doubt(doubt)}" for doubt in doubts)
    return (*reasons, NO_FINDING) if doubts else ()
