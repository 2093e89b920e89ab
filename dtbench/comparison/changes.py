"""Every metric on both sides, by statistics over launches.

[Note: what is corrected for what] The step time is the question, asked before any number is seen, and is tested by
itself; tokens per second are its reciprocal, so they are the same question. All other numbers of a step are corrected
for each other, and the exposed times of owners, which may be many, among themselves.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from dtbench.comparison.comparison import MetricChange, Outcome
from dtbench.comparison.metrics import BY_NAME, EXPOSED_BY_OWNER, METRICS, STEP_TIME, TOKENS
from dtbench.comparison.reading.parts import find_unlike_ranks
from dtbench.comparison.reading.rounds import Rounds
from dtbench.comparison.reading.side_numbers import Key, SideNumbers
from dtbench.comparison.statistics import SampleComparison, compare_samples, share_level
from dtbench.runs.cell.shift import LEVEL
from dtbench.runs.told_apart import correct

MOST_OWNERS: Final = 20
"""Owners that are tested, those with most exposed time on either side: each one more makes a finding harder."""


def compare_metrics(
    rounds: Rounds,
    threshold: float,
    asked: Collection[str] = (),
    *,
    is_doubted: bool = False,
    is_part: bool = False,
    may_lack_slowest: bool = False,
) -> tuple[MetricChange, ...]:
    """Compare every number that either side has, the step time first; see [Note: what is corrected for what].

    What is of unlike ranks, a mean or the slowest one's, is not known to differ.

    Args:
        rounds: the launches of both sides.
        threshold: relative changes below it do not matter.
        asked: owners that are tested however little of theirs is exposed.
        is_doubted: PROFILED steps of a side may not stand for others, so what they differ in is not established.
        is_part: what traces tell is of parts that cannot be compared.
        may_lack_slowest: a side's slowest rank may be one of which there is no trace, or of another job.
    """
    launches = [launch for launch in (*rounds.baseline, *rounds.candidate) if launch is not None]
    before, after = (SideNumbers(side, launches, is_part=is_part) for side in (rounds.baseline, rounds.candidate))
    keys, unlike = _list_keys(before, after, asked), find_unlike_ranks(launches)
    found = {key: _compare(key, (before, after), rounds, threshold) for key in keys}
    for key in keys:
        is_profiled = BY_NAME[key[0]].is_profiled
        is_unlike = is_part if is_profiled else may_lack_slowest and key[0] in _QUESTION
        if is_unlike or key in unlike:
            found[key] = replace(_withhold(found[key]), ratio=math.nan, outcome=Outcome.UNKNOWN)
        elif is_profiled and is_doubted and found[key].outcome not in (Outcome.UNKNOWN, Outcome.NOT_ENOUGH_LAUNCHES):
            found[key] = _withhold(found[key])
    p_values = {key: one.p_value for key, one in found.items()}
    for is_of_family in _FAMILIES:
        family = [key for key in keys if is_of_family(key[0])]
        alone = [found[key].p_value for key in family]
        p_values |= dict(zip(family, correct(alone), strict=True))
        for key, level in zip(family, share_level(alone), strict=True):
            if found[key].test is not None and level < LEVEL:
                found[key] = _compare(key, (before, after), rounds, threshold, level)
    return tuple(_as_change(key, found[key], p_values[key], (before, after)) for key in keys)


def _withhold(found: SampleComparison) -> SampleComparison:
    """Claim nothing of numbers that both sides have."""
    return replace(
        found,
        low=math.nan,
        high=math.nan,
        p_value=math.nan,
        test=None,
        detectable=math.nan,
        outcome=Outcome.NOT_ESTABLISHED,
    )


def _compare(
    key: Key, sides: tuple[SideNumbers, SideNumbers], rounds: Rounds, threshold: float, level: float = LEVEL
) -> SampleComparison:
    """Compare one number; what one side never did and the other always is no question for statistics."""
    before, after = sides
    found = compare_samples(
        before.values(key), after.values(key), is_interleaved=rounds.are_interleaved, threshold=threshold, level=level
    )
    if found.test is None or not (_is_of_one_side(key, before, after) or _is_of_one_side(key, after, before)):
        return found
    outcome = Outcome.HIGHER if found.candidate_median > found.baseline_median else Outcome.LOWER
    return replace(found, low=math.nan, high=math.nan, p_value=math.nan, test=None, outcome=outcome)


def _is_of_one_side(key: Key, one: SideNumbers, other: SideNumbers) -> bool:
    """Tell whether every launch of one side that is known took time for it, and none of the other ever did it."""
    return key not in other.keys and all(value > 0 for value in one.values(key) if not math.isnan(value))


_QUESTION: Final = (STEP_TIME, TOKENS)
_FAMILIES: Final[tuple[Callable[[str], bool], ...]] = (
    lambda metric: metric == EXPOSED_BY_OWNER,
    lambda metric: metric != EXPOSED_BY_OWNER and metric not in _QUESTION,
)


def _list_keys(before: SideNumbers, after: SideNumbers, asked: Collection[str]) -> list[Key]:
    """Return metrics in their order, their subjects as they come; of many owners the largest, and those asked for."""
    known = dict.fromkeys((*before.keys, *after.keys, (STEP_TIME, "")))
    keys: list[Key] = []
    for metric in METRICS:
        mine = [key for key in known if key[0] == metric.name]
        if metric.name == EXPOSED_BY_OWNER:
            mine = sorted(mine, key=lambda key: -max(before.largest(key), after.largest(key)))
            mine = [*mine[:MOST_OWNERS], *(key for key in mine[MOST_OWNERS:] if key[1] in asked)]
        keys += mine
    return keys


def _as_change(
    key: Key, found: SampleComparison, p_value: float, sides: tuple[SideNumbers, SideNumbers]
) -> MetricChange:
    metric = BY_NAME[key[0]]
    before, after = sides
    return MetricChange(
        metric=metric.name,
        subject=key[1],
        unit=metric.unit,
        better=metric.better,
        baseline=before.sample(key, found.baseline_median),
        candidate=after.sample(key, found.candidate_median),
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        p_value=p_value,
        test=found.test,
        detectable=found.detectable,
        outcome=found.outcome,
        outliers=(
            *(f"baseline {name}" for name in before.names(found.baseline_outliers)),
            *(f"candidate {name}" for name in after.names(found.candidate_outliers)),
        ),
    )
