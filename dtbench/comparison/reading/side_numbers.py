"""All numbers of one side by metric and subject: a value for each launch, zero only where the launch saw that."""

import math
from collections.abc import Collection, Mapping, Sequence

from dtbench.comparison.comparison import Sample
from dtbench.comparison.metrics import BY_NAME, EXPOSED_BY_OWNER, METRICS
from dtbench.comparison.reading.renamed import find_misnamed
from dtbench.comparison.reading.seen import (
    Kind,
    find_kinds,
    find_open_kinds,
    has_named_otherwise,
    has_unowned,
    knows_subjects,
)
from dtbench.comparison.reading.untold import find_untold
from dtbench.store.records.baseline import MeasuredLaunch, Measurement

Key = tuple[str, str]
"""Metric and subject."""


class SideNumbers:
    """The numbers of one side's launches by metric and subject.

    ``all_launches`` are those of both sides; with ``is_part`` what the launches do not mention may have been all the
    same.
    """

    def __init__(
        self,
        launches: Sequence[MeasuredLaunch | None],
        all_launches: Sequence[MeasuredLaunch],
        *,
        is_part: bool = False,
    ) -> None:
        self._launches, self._is_part = launches, is_part
        self._kinds, self._open_kinds = find_kinds(all_launches), find_open_kinds(all_launches)
        there = [launch for launch in launches if launch is not None]
        untold, misnamed = iter(find_untold(there, all_launches)), iter(find_misnamed(there, all_launches))
        self._untold = [frozenset[Kind]() if launch is None else next(untold) for launch in launches]
        self._misnamed = [
            frozenset(() if launch is None else (owner for owner, *_ in next(misnamed))) for launch in launches
        ]
        self._numbers: list[Mapping[Key, float]] = [
            {} if launch is None else {(one.metric, one.subject): _read(one) for one in launch.measurements}
            for launch in launches
        ]
        self._known = {
            (launch.name, metric.name)
            for launch in launches
            for metric in METRICS
            if launch is not None and metric.of is not None and knows_subjects(launch, metric.name)
        }
        self.keys = tuple(dict.fromkeys(key for numbers in self._numbers for key in numbers))

    def values(self, key: Key) -> list[float]:
        """Return a number of every launch; NaN where it has none, 0 where what did not occur took no time."""
        rows = zip(self._launches, self._numbers, self._untold, self._misnamed, strict=True)
        return [
            math.nan
            if self._is_untold(key, untold) or (key[0] == EXPOSED_BY_OWNER and key[1] in misnamed)
            else self._value(key, launch, numbers)
            for launch, numbers, untold, misnamed in rows
        ]

    def _is_untold(self, key: Key, untold: Collection[Kind]) -> bool:
        """Tell whether a purpose, or an owner of collectives of it, is among those that a launch does not tell."""
        metric, subject = key
        if metric == EXPOSED_BY_OWNER:
            return not self._kinds.get(subject, frozenset()).isdisjoint(untold)
        return any(subject == purpose for _, purpose in untold)

    def _value(self, key: Key, launch: MeasuredLaunch | None, numbers: Mapping[Key, float]) -> float:
        if self._is_open(key, launch):
            return math.nan
        return numbers.get(key, 0.0 if self._is_absent(key, launch) else math.nan)

    def _is_open(self, key: Key, launch: MeasuredLaunch | None) -> bool:
        """Tell whether more of an owner may be among those that a launch does not know than on the other side."""
        metric, subject = key
        if metric != EXPOSED_BY_OWNER or launch is None:
            return False
        return has_unowned(launch, self._kinds.get(subject, frozenset()) & self._open_kinds)

    def _is_absent(self, key: Key, launch: MeasuredLaunch | None) -> bool:
        """Tell whether what a launch does not mention did not occur: an owner may be among those it does not know."""
        metric, subject = key
        if launch is None or self._is_part or (launch.name, metric) not in self._known:
            return False
        if metric != EXPOSED_BY_OWNER:
            return True
        kinds = self._kinds.get(subject, frozenset())
        owners = [(row.owner, row.operation, row.purpose) for row in launch.owned]
        return not has_unowned(launch, kinds) and not any(has_named_otherwise(owners, subject, kind) for kind in kinds)

    def largest(self, key: Key) -> float:
        """Return the largest number of any launch; 0 where none has it."""
        return max((value for value in self.values(key) if not math.isnan(value)), default=0.0)

    def sample(self, key: Key, median: float) -> Sample:
        """Return the values of the launches that there are, with their median."""
        pairs = zip(self._launches, self.values(key), strict=True)
        return Sample(values=tuple(value for launch, value in pairs if launch is not None), median=median)

    def names(self, places: Sequence[int]) -> list[str]:
        """Name launches by their places."""
        launches = (self._launches[place] for place in places)
        return [launch.name for launch in launches if launch is not None]


def _read(one: Measurement) -> float:
    """Return a number; NaN where it is none that there can be."""
    is_reading = one.metric not in BY_NAME or not BY_NAME[one.metric].is_positive or one.value > 0
    return one.value if is_reading else math.nan
