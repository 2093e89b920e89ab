"""Every metric on both sides, by statistics over launches.

[Note: what is corrected for what] The step time is the question, asked before any number is seen, and is tested by
itself; tokens per second are its reciprocal, so they are the same question. All other numbers of a step are corrected
for each other, and the exposed times of owners, which may be many, among themselves.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from dtbench.comparison.collectives import Kind, find_kinds, has_unowned
from dtbench.comparison.comparison import MetricChange, Outcome, Sample
from dtbench.comparison.metrics import EXPOSED, EXPOSED_BY_OWNER, METRICS, STEP_TIME, TOKENS, Metric
from dtbench.comparison.shift import LEVEL
from dtbench.comparison.statistics import SampleComparison, compare_samples, correct, share_level
from dtbench.store.baseline import MeasuredLaunch

MOST_OWNERS: Final = 20
"""Owners that are tested, those with most exposed time on either side: each one more makes a finding harder."""

_PROFILED: Final = EXPOSED
"""A launch that has this number knows of every purpose, and of every owner where none of its kind is unattributed."""

Key = tuple[str, str]
"""Metric and subject."""


@dataclass(frozen=True)
class Rounds:
    """The launches of two sides in rounds: at equal places those that took turns, None where a side has none there.

    Where they did not take turns, the launches of each side in the order in which they ran.
    """

    baseline: tuple[MeasuredLaunch | None, ...]
    candidate: tuple[MeasuredLaunch | None, ...]
    are_interleaved: bool


def arrange(baseline: Sequence[MeasuredLaunch], candidate: Sequence[MeasuredLaunch]) -> Rounds:
    """Put launches into rounds: of the same run, and they really took turns, as their starts say."""
    before, after = (_in_order(side) for side in (baseline, candidate))
    rounds = [{launch.round: launch for launch in side if launch.round is not None} for side in (before, after)]
    if not _took_turns(before, after) or not set(rounds[0]) & set(rounds[1]):
        return Rounds(tuple(before), tuple(after), are_interleaved=False)
    names = dict.fromkeys(launch.round or "" for launch in _in_order([*before, *after]))
    first, second = (tuple(side.get(name) for name in names) for side in rounds)
    return Rounds(first, second, are_interleaved=True)


def _in_order(launches: Sequence[MeasuredLaunch]) -> list[MeasuredLaunch]:
    return sorted(launches, key=lambda launch: launch.started_unix_ns or 0)


def _took_turns(before: Sequence[MeasuredLaunch], after: Sequence[MeasuredLaunch]) -> bool:
    """Tell whether the sides' launches alternate at least once per round: ABBA and ABAB do, AABB does not."""
    if any(launch.started_unix_ns is None or launch.round is None for launch in (*before, *after)):
        return False
    started = sorted(
        [(launch.started_unix_ns or 0, 0) for launch in before] + [(launch.started_unix_ns or 0, 1) for launch in after]
    )
    streaks = 1 + sum(one[1] != other[1] for one, other in pairwise(started))
    fewest = min(len(before), len(after))
    return fewest > 1 and streaks > fewest


def compare_metrics(rounds: Rounds, threshold: float) -> tuple[MetricChange, ...]:
    """Compare every number that either side has, the step time first; see [Note: what is corrected for what]."""
    kinds = find_kinds([launch for launch in (*rounds.baseline, *rounds.candidate) if launch is not None])
    before, after = _Side(rounds.baseline, kinds), _Side(rounds.candidate, kinds)
    keys = _list_keys(before, after)
    found = {key: _compare(key, (before, after), rounds, threshold) for key in keys}
    p_values = {key: one.p_value for key, one in found.items()}
    for is_of_family in _FAMILIES:
        family = [key for key in keys if is_of_family(key[0])]
        alone = [found[key].p_value for key in family]
        p_values |= dict(zip(family, correct(alone), strict=True))
        for key, level in zip(family, share_level(alone), strict=True):
            if found[key].test is not None and level < LEVEL:
                found[key] = _compare(key, (before, after), rounds, threshold, level)
    return tuple(_as_change(key, found[key], p_values[key], (before, after)) for key in keys)


def _compare(
    key: Key, sides: tuple["_Side", "_Side"], rounds: Rounds, threshold: float, level: float = LEVEL
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


def _is_of_one_side(key: Key, one: "_Side", other: "_Side") -> bool:
    """Tell whether every launch of one side that is known took time for it, and none of the other ever did it."""
    return key not in other.keys and all(value > 0 for value in one.values(key) if not math.isnan(value))


_QUESTION: Final = (STEP_TIME, TOKENS)
_FAMILIES: Final[tuple[Callable[[str], bool], ...]] = (
    lambda metric: metric == EXPOSED_BY_OWNER,
    lambda metric: metric != EXPOSED_BY_OWNER and metric not in _QUESTION,
)


class _Side:
    """The numbers of one side's launches by metric and subject; ``kinds`` as from ``find_kinds``, of both sides."""

    def __init__(self, launches: Sequence[MeasuredLaunch | None], kinds: Mapping[str, frozenset[Kind]]) -> None:
        self._launches, self._kinds = launches, kinds
        self._numbers: list[Mapping[Key, float]] = [
            {} if launch is None else {(one.metric, one.subject): one.value for one in launch.measurements}
            for launch in launches
        ]
        self.keys = tuple(dict.fromkeys(key for numbers in self._numbers for key in numbers))

    def values(self, key: Key) -> list[float]:
        """Give a number of every launch; NaN where it has none, 0 where what did not occur took no time."""
        pairs = zip(self._launches, self._numbers, strict=True)
        return [
            numbers.get(key, 0.0 if self._is_absent(key, launch, numbers) else math.nan) for launch, numbers in pairs
        ]

    def _is_absent(self, key: Key, launch: MeasuredLaunch | None, numbers: Mapping[Key, float]) -> bool:
        """Tell whether what a launch does not mention did not occur: an owner may be among those it does not know."""
        metric, subject = key
        if launch is None or not subject or (_PROFILED, "") not in numbers:
            return False
        return metric != EXPOSED_BY_OWNER or not has_unowned(launch, self._kinds.get(subject, frozenset()))

    def largest(self, key: Key) -> float:
        """Give the largest number of any launch; 0 where none has it."""
        return max((value for value in self.values(key) if not math.isnan(value)), default=0.0)

    def sample(self, key: Key, median: float) -> Sample:
        pairs = zip(self._launches, self.values(key), strict=True)
        return Sample(values=tuple(value for launch, value in pairs if launch is not None), median=median)

    def names(self, places: Sequence[int]) -> list[str]:
        launches = (self._launches[place] for place in places)
        return [launch.name for launch in launches if launch is not None]


def _list_keys(before: _Side, after: _Side) -> list[Key]:
    """Give metrics in their order, their subjects as they come; of many owners the largest."""
    known = dict.fromkeys((*before.keys, *after.keys, (STEP_TIME, "")))
    keys: list[Key] = []
    for metric in METRICS:
        mine = [key for key in known if key[0] == metric.name]
        if metric.name == EXPOSED_BY_OWNER:
            mine = sorted(mine, key=lambda key: -max(before.largest(key), after.largest(key)))[:MOST_OWNERS]
        keys += mine
    return keys


def _as_change(key: Key, found: SampleComparison, p_value: float, sides: tuple[_Side, _Side]) -> MetricChange:
    metric: Metric = next(metric for metric in METRICS if metric.name == key[0])
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
