"""Which compute kernels took longer in the traces of one side than in those of the other.

::

    baseline    gemm ██ ██ ██   step 1: 12 runs, median 120 us   step 2: ...
    candidate   gemm ███ ███    step 1: 12 runs, median 151 us   step 2: ...

A step's median over runs is one value, so that steps tell how much it varies by itself. They are of one launch, and
launches differ by more than their steps do (``statistics.py``): that a kernel took longer is said of these traces, and
is no finding on what was changed between them. Kernels are compared only where both sides run them equally often in a
step, not only in the mean of steps, with one launch shape; else they did other work, and how long that took says
nothing of the kernel. Where the shape is not told, nobody knows whether they did the same.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dtbench.comparison.comparison import KernelChange, KernelOutcome, Outcome
from dtbench.comparison.statistics import SampleComparison, compare_samples, share_level
from dtbench.runs.cell.shift import LEVEL
from dtbench.runs.told_apart import LEAST_LAUNCHES
from dtbench.scenario.mistakes import join_words
from dtbench.store.records.baseline import KernelRuns, MeasuredLaunch

MOST_KERNELS: Final = 50
"""Kernels that are told, those with the same work first, then those with most time on either side: each one more that
is compared makes a finding harder."""

_Key = tuple[str, str]

_OUTCOMES: Final = {
    Outcome.HIGHER: KernelOutcome.LONGER,
    Outcome.LOWER: KernelOutcome.SHORTER,
    Outcome.BELOW_THRESHOLD: KernelOutcome.BELOW_THRESHOLD,
    Outcome.NO_DIFFERENCE: KernelOutcome.NO_DIFFERENCE,
    Outcome.NOT_ESTABLISHED: KernelOutcome.NOT_ESTABLISHED,
    Outcome.SAME: KernelOutcome.SAME,
    Outcome.NOT_ENOUGH_LAUNCHES: KernelOutcome.TOO_FEW,
    Outcome.UNKNOWN: KernelOutcome.UNKNOWN,
}
_NOT: Final = "compute kernels are not compared"


@dataclass(frozen=True)
class KernelFindings:
    """What became of compute kernels.

    Attributes:
        changes: one row per kernel: those with the same work first, by the time lost per step; then the others, by how
            much of a step their change makes.
        left_out: how many more there are.
        not_compared: why none is compared, a sentence; empty: some are.
    """

    changes: tuple[KernelChange, ...] = ()
    left_out: int = 0
    not_compared: str = ""


def find_kernel_changes(
    baseline: Sequence[MeasuredLaunch],
    candidate: Sequence[MeasuredLaunch],
    labels: Sequence[str],
    threshold: float,
    *,
    is_doubted: bool,
) -> KernelFindings:
    """Compare the compute kernels of two sides of traces.

    Args:
        baseline: traces, one launch.
        candidate: likewise.
        labels: of both.
        threshold: relative changes below it do not matter.
        is_doubted: steps of a side may not stand for others, so what they differ in is not established.
    """
    sides = [{(row.name, row.shape): row for one in side for row in one.kernels} for side in (baseline, candidate)]
    before, after = sides
    lacking = [label for label, side in zip(labels, sides, strict=True) if not side]
    if lacking:
        who = f"{join_words(lacking, last='and')} {'have' if len(lacking) > 1 else 'has'}"
        return KernelFindings(not_compared=f"{_NOT}: {who} none that ran on a device in a step that counts")
    every = sorted(
        {*before, *after},
        key=lambda key: (
            not _is_same_work(before.get(key), after.get(key)),
            -max(_total_ns(side.get(key)) for side in sides),
        ),
    )
    keys = every[:MOST_KERNELS]
    same = [key for key in keys if _is_same_work(before.get(key), after.get(key))]
    found = {key: _compare(before[key], after[key], threshold) for key in same}
    for key, level in zip(same, share_level([found[key].p_value for key in same]), strict=True):
        if found[key].test is not None and level < LEVEL:
            found[key] = _compare(before[key], after[key], threshold, level)
        if is_doubted and found[key].outcome is not Outcome.NOT_ENOUGH_LAUNCHES:
            found[key] = replace(found[key], low=math.nan, high=math.nan, outcome=Outcome.NOT_ESTABLISHED)
    shapeless = _find_shapeless(before, after)
    changes = [
        _as_change(key, before.get(key), after.get(key), found.get(key), is_shape_told=key[0] not in shapeless)
        for key in keys
    ]
    return KernelFindings(
        changes=tuple(sorted(changes, key=_place)),
        left_out=len(every) - len(keys),
        not_compared=_say_none(before, after, [change for change in changes if change.is_same_work]),
    )


def _place(change: KernelChange) -> tuple[bool, float]:
    return not change.is_same_work, -change.change_ns if change.is_same_work else -abs(change.change_ns)


def _say_none(before: dict[_Key, KernelRuns], after: dict[_Key, KernelRuns], same: Sequence[KernelChange]) -> str:
    """Say why no kernel is compared; empty: one is."""
    if not {name for name, _ in before} & {name for name, _ in after}:
        return f"{_NOT}: none is in the traces of both sides"
    if not same and _find_shapeless(before, after):
        return f"{_NOT}: of none is it known that it runs equally often in a step, with one launch shape, on both sides"
    if not same:
        return f"{_NOT}: none runs equally often in a step, with one launch shape, on both sides"
    if all(change.outcome is KernelOutcome.TOO_FEW for change in same):
        return f"{_NOT}: a side has fewer than {LEAST_LAUNCHES} steps that count"
    return ""


def _total_ns(row: KernelRuns | None) -> float:
    return 0.0 if row is None else row.count * row.median_ns


def _is_same_work(before: KernelRuns | None, after: KernelRuns | None) -> bool:
    """Tell whether both sides are known to run a kernel equally often, in steps as in their mean, with one shape."""
    if before is None or after is None or not before.shape or not after.shape:
        return False
    is_even = None in (before.fewest, after.fewest) or (before.fewest, before.most) == (after.fewest, after.most)
    return is_even and math.isclose(before.count, after.count, rel_tol=1e-9)


def _find_shapeless(before: dict[_Key, KernelRuns], after: dict[_Key, KernelRuns]) -> set[str]:
    """Return the names of kernels on both sides that ran on either without that its launch shape is told."""
    names, others = ({name for name, _ in side} for side in (before, after))
    return {name for name, shape in {*before, *after} if not shape} & names & others


def _compare(before: KernelRuns, after: KernelRuns, threshold: float, level: float = LEVEL) -> SampleComparison:
    return compare_samples(before.medians_ns, after.medians_ns, is_interleaved=False, threshold=threshold, level=level)


def _as_change(
    key: _Key,
    before: KernelRuns | None,
    after: KernelRuns | None,
    found: SampleComparison | None,
    *,
    is_shape_told: bool,
) -> KernelChange:
    not_compared = KernelOutcome.DIFFERENT_WORK if is_shape_told else KernelOutcome.UNKNOWN
    counts = (0.0 if before is None else before.count, 0.0 if after is None else after.count)
    medians = (math.nan if before is None else before.median_ns, math.nan if after is None else after.median_ns)
    return KernelChange(
        name=key[0],
        shape=key[1],
        count=counts,
        median_ns=medians,
        ratio=math.nan if found is None else found.ratio,
        low=math.nan if found is None else found.low,
        high=math.nan if found is None else found.high,
        outcome=not_compared if found is None else _OUTCOMES[found.outcome],
        is_same_work=found is not None,
    )
