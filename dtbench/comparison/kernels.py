"""Which compute kernels took longer in the traces of one side than in those of the other.

::

    baseline    gemm ██ ██ ██   step 1: 12 runs, median 120 us   step 2: ...
    candidate   gemm ███ ███    step 1: 12 runs, median 151 us   step 2: ...

A step's median over runs is one value, so that steps tell how much it varies by itself. They are of one launch, and
launches differ by more than their steps do (``statistics.py``): that a kernel took longer is said of these traces, and
is no finding on what was changed between them. Kernels are compared only where both sides run them equally often in a
step, with one launch shape; else they did other work, and how long that took says nothing of the kernel.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dtbench.comparison.comparison import KernelChange, Outcome
from dtbench.comparison.statistics import SampleComparison, compare_samples, share_level
from dtbench.runs.cell.shift import LEVEL
from dtbench.store.records.baseline import KernelRuns, MeasuredLaunch

MOST_KERNELS: Final = 50
"""Kernels that are compared, those with most time on either side: each one more makes a finding harder."""

_Key = tuple[str, str]


def find_kernel_changes(
    baseline: Sequence[MeasuredLaunch], candidate: Sequence[MeasuredLaunch], threshold: float, *, is_doubted: bool
) -> tuple[KernelChange, ...]:
    """Return one row per kernel, those first whose change makes most of a step; none where a side tells no kernels.

    Args:
        baseline: traces, one launch; or launches, which tell no kernels.
        candidate: likewise.
        threshold: relative changes below it do not matter.
        is_doubted: steps of a side may not stand for others, so what they differ in is not established.
    """
    sides = [{(row.name, row.shape): row for one in side for row in one.kernels} for side in (baseline, candidate)]
    before, after = sides
    if not before or not after:
        return ()
    keys = sorted({*before, *after}, key=lambda key: -max(_total_ns(side.get(key)) for side in sides))[:MOST_KERNELS]
    same = [key for key in keys if _is_same_work(before.get(key), after.get(key))]
    found = {key: _compare(before[key], after[key], threshold) for key in same}
    for key, level in zip(same, share_level([found[key].p_value for key in same]), strict=True):
        if found[key].test is not None and level < LEVEL:
            found[key] = _compare(before[key], after[key], threshold, level)
        if is_doubted and found[key].outcome is not Outcome.NOT_ENOUGH_LAUNCHES:
            found[key] = replace(found[key], low=math.nan, high=math.nan, outcome=Outcome.NOT_ESTABLISHED)
    changes = [_as_change(key, before.get(key), after.get(key), found.get(key)) for key in keys]
    return tuple(sorted(changes, key=lambda change: -abs(change.change_ns)))


def _total_ns(row: KernelRuns | None) -> float:
    return 0.0 if row is None else row.count * row.median_ns


def _is_same_work(before: KernelRuns | None, after: KernelRuns | None) -> bool:
    return before is not None and after is not None and math.isclose(before.count, after.count, rel_tol=1e-9)


def _compare(before: KernelRuns, after: KernelRuns, threshold: float, level: float = LEVEL) -> SampleComparison:
    return compare_samples(before.medians_ns, after.medians_ns, is_interleaved=False, threshold=threshold, level=level)


def _as_change(
    key: _Key, before: KernelRuns | None, after: KernelRuns | None, found: SampleComparison | None
) -> KernelChange:
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
        outcome=Outcome.UNKNOWN if found is None else found.outcome,
        is_same_work=found is not None,
    )
