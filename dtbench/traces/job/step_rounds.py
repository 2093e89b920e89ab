"""Steps of which only each k-th reduces gradients, and whether those that a trace holds are whole rounds of them.

::

    micro-batches   a  a  a  R  a  a  a  R  a       R reduces: 2 of 9 here, 1 of 4 in the training

A mean over steps that are no whole rounds holds another share of the reduction than a training does.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise

from dtbench.base.vocabulary import Purpose
from dtbench.traces.notes.lacking import PartRounds
from dtbench.traces.rank.analysis import StepAccount, TraceAnalysis


def find_reducing_steps(analyses: Sequence[TraceAnalysis]) -> frozenset[int]:
    """Return the numbers of the steps in which any rank reduces gradients."""
    return frozenset(step.step for one in analyses for step in one.steps if _reduces(step))


def find_part_rounds(one: TraceAnalysis, reducing_steps: Collection[int] = ()) -> PartRounds | None:
    """Find whether means go over other than whole rounds of steps; None: they do not, or no rounds are seen.

    Rounds are seen where two or more steps reduce gradients, all equally far from the next, and it is told of every
    step whether it does: one that lost kernels may, and one in which another rank does has lost more.

    Args:
        one: a rank.
        reducing_steps: numbers of those in which any rank reduces gradients.
    """
    if any(step.step in one.lost.steps or not _is_told(step, reducing_steps) for step in one.steps):
        return None
    reducing = [step.step for step in one.steps if _reduces(step)]
    lengths = {after - before for before, after in pairwise(reducing)}
    if len(lengths) != 1 or (length := next(iter(lengths))) < 2 or not _fill(one.steps, reducing, length):
        return None
    counted = [step for step in one.steps if step.overlap.step_ns and step.overlap.is_decided]
    count = sum(map(_reduces, counted))
    is_part = counted and count * length != len(counted)
    return PartRounds((one.rank,), length, len(counted), count) if is_part else None


def _reduces(step: StepAccount) -> bool:
    return any(row.purpose is Purpose.GRAD_REDUCE and row.count for row in step.purposes)


def _is_told(step: StepAccount, reducing_steps: Collection[int]) -> bool:
    """Tell whether all that a step may have reduced is known to be gradients or something else."""
    if _reduces(step):
        return True
    is_recorded = not step.overlap.step_ns or step.overlap.compute_ns is not None
    is_lost = step.lost > 0 or step.step in reducing_steps
    return is_recorded and not is_lost and Purpose.GRAD_REDUCE not in step.untold


def _fill(steps: Sequence[StepAccount], reducing: Sequence[int], length: int) -> bool:
    """Tell whether every step is there, and so few before the first and after the last that none is missing there."""
    numbers = [step.step for step in steps]
    is_every = all(after == before + 1 for before, after in pairwise(numbers))
    return is_every and reducing[0] - numbers[0] < length and numbers[-1] - reducing[-1] < length
