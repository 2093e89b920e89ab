"""Steps of which only each k-th reduces gradients, and whether those that a trace holds are whole rounds of them.

::

    micro-batches   a  a  a  R  a  a  a  R  a       R reduces: 2 of 9 here, 1 of 4 in the training

A mean over steps that are no whole rounds holds another share of the reduction than a training does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dtbench.base.vocabulary import Purpose
from dtbench.traces.rank.analysis import StepAccount, TraceAnalysis


@dataclass(frozen=True)
class PartRounds:
    """Steps that means go over and that are no whole rounds.

    Attributes:
        length: from one step that reduces gradients to the next.
        steps: over which means go.
        reducing: how many of these reduce.
    """

    length: int
    steps: int
    reducing: int


def find_part_rounds(one: TraceAnalysis) -> PartRounds | None:
    """Find whether means go over other than whole rounds of steps; None: they do not, or no rounds are seen.

    Rounds are seen where two or more steps reduce gradients, all equally far from the next.
    """
    reducing = [step.step for step in one.steps if _reduces(step)]
    lengths = {after - before for before, after in pairwise(reducing)}
    if len(lengths) != 1 or (length := next(iter(lengths))) < 2 or not _fill(one.steps, reducing, length):
        return None
    counted = [step for step in one.steps if step.overlap.step_ns and step.overlap.is_decided]
    count = sum(map(_reduces, counted))
    return PartRounds(length, len(counted), count) if counted and count * length != len(counted) else None


def _reduces(step: StepAccount) -> bool:
    return any(row.purpose is Purpose.GRAD_REDUCE and row.count for row in step.purposes)


def _fill(steps: Sequence[StepAccount], reducing: Sequence[int], length: int) -> bool:
    """Tell whether every step is there, and so few before the first and after the last that none is missing there."""
    numbers = [step.step for step in steps]
    is_every = all(after == before + 1 for before, after in pairwise(numbers))
    return is_every and reducing[0] - numbers[0] < length and numbers[-1] - reducing[-1] < length


def describe_part_rounds(found: PartRounds) -> str:
    """Say that a mean over steps holds more, or less, of the reduction than a training does."""
    share = "more" if found.reducing * found.length > found.steps else "less"
    return (
        f"one step in {found.length} reduces gradients, and {found.reducing} of the {found.steps} that means go over:"
        f" they hold {share} of it than a training does; record a multiple of {found.length} steps"
    )
