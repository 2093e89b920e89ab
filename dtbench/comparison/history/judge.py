"""Bounds on a history, spelled as those on a comparison: the last change that matters must not lie beyond them."""

import math

from dtbench.comparison.gate import Bound, Judgement, Kept, hold, spell_change
from dtbench.comparison.history.history import History, count_points, say_detectable


def judge_history(bound: Bound, history: History) -> Judgement:
    """Say whether a bound is kept: exceeded where the last change that matters is beyond it.

    Without a change it is kept where one of that size half-way through the history would have been found, else not
    established; where there are too few points it is undecided.

    Args:
        bound: on the number that the history is of.
        history: any.
    """
    who, last = f"`{bound.typed}`, {history.scenario}:{history.cell}", history.last_change
    if len(history.points) < history.least_points:
        few = f"{count_points(len(history.points), history.by)} are too few, {history.least_points} are needed"
        return Judgement(bound.typed, Kept.UNDECIDED, f"{who}: undecided, {few}")
    if last is None:
        kept = Kept.KEPT if _would_show(bound, history) else Kept.NOT_ESTABLISHED
        return Judgement(
            bound.typed, kept, f"{who}: {kept}, no change that matters was found; {say_detectable(history)}"
        )
    kept = hold(bound, last.change)
    told = kept.upper() if kept is Kept.EXCEEDED else kept
    where = f"between {last.last} and {last.first}"
    return Judgement(bound.typed, kept, f"{who} {where}: {told}, {spell_change(last.change)}")


def _would_show(bound: Bound, history: History) -> bool:
    """Tell whether a change as large as a bound would have been found."""
    if math.isnan(history.detectable):
        return False
    start = history.borders[-2]
    values = sorted(point.value for point in history.points[start:])
    typical = 1.0 if bound.is_relative else values[len(values) // 2]
    return history.detectable * typical <= abs(bound.most)
