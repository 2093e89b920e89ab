"""Whether the steps that were traced stand for those that a training takes, and for each other.

A share, an owner or a cause is of PROFILED steps. Where these are not like MEASURED ones, or not like each other, a
mean over them is a number of nothing, and why it is so large is no finding.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, median
from typing import Final

from dtbench.traces.rank.analysis import TraceAnalysis

LEAST_RATIO: Final = 0.8
MOST_RATIO: Final = 1.25
"""PROFILED over MEASURED step times between which the one stands for the other."""

UNLIKE: Final = 2.0
"""So many times the others' median, or one over it, is no step like them."""

_LEAST_TO_DRIFT: Final = 5  # in order by chance once in 60
_SIGNIFICANT: Final = 1.96
_LEAST_DRIFT: Final = 0.25  # of the earlier half
_LEAST_OF_STEP: Final = 0.05  # what drifts by less of a step changes no answer


class DoubtKind(StrEnum):
    """Why PROFILED steps may not stand for those of a training, with what ``Doubt.values`` then are."""

    UNLIKE_MEASURED = "unlike_measured"
    """PROFILED over MEASURED step times, and the ends of its 95 % interval if known: outside 0.8 to 1.25."""
    UNSURE_MEASURED = "unsure_measured"
    """The same: it may be outside; without ends, nobody knows how sure the ratio is."""
    UNCOMPARED = "uncompared"
    """Nothing: of the one or the other no step time is known."""
    EXPOSED_BEYOND_STEP = "exposed_beyond_step"
    """Exposed communication of a PROFILED step, and the whole MEASURED step that it exceeds, ns."""
    ONE_STEP_UNLIKE = "one_step_unlike"
    """Number of a step, and how many times as long as the others it is."""
    ONE_LAUNCH_UNLIKE = "one_launch_unlike"
    """How many times as long as those of the other launches a launch's PROFILED steps are."""
    TWO_STEPS_UNLIKE = "two_steps_unlike"
    """Numbers of the longer and the shorter of the only two steps, and how many times as long the longer is."""
    TWO_LAUNCHES_UNLIKE = "two_launches_unlike"
    """How many times as long as those of the only other launch a launch's PROFILED steps are."""
    DRIFT = "drift"
    """Exposed communication of the steps between which it rises or falls, the earlier first, ns; and of how many."""
    REPEATED_NUMBER = "repeated_number"
    """Steps whose number an earlier one has."""
    OTHER_TRAFFIC = "other_traffic"
    """A rank, how many collectives it recorded in each MEASURED step, and how many its trace has in a PROFILED one."""


UNSURE: Final = (DoubtKind.UNSURE_MEASURED, DoubtKind.UNCOMPARED)
"""Steps may stand for others after all."""


@dataclass(frozen=True)
class Doubt:
    """One reason why PROFILED steps may not stand for others; ``launch``: in which; None: in all together.

    Attributes:
        kind: which.
        values: its numbers: ratios, numbers of steps, or ns, as the kind has them.
        launch: in which launch; None: in all together.
    """

    kind: DoubtKind
    values: tuple[float, ...]
    launch: int | None = None


@dataclass(frozen=True)
class TracedSteps:
    """Steps that were traced in one go, in their order.

    Attributes:
        step_ns: by number, of the rank where it took longest.
        exposed_ns: by number, mean over ranks.
        repeated: ranges whose step's number an earlier one has, which are no steps of their own.
    """

    step_ns: Mapping[int, float]
    exposed_ns: Mapping[int, float]
    repeated: int = 0


def read_steps_of_traces(analyses: Sequence[TraceAnalysis]) -> TracedSteps:
    """Read the steps of the traces of one job; what was not seen of one is left out."""
    step_ns: dict[int, list[int]] = {}
    exposed_ns: dict[int, dict[int, int]] = {}
    for analysis in analyses:
        for step in analysis.steps:
            if step.overlap.step_ns is not None:
                step_ns.setdefault(step.step, []).append(step.overlap.step_ns)
            if step.overlap.exposed_comm_ns is not None:
                exposed_ns.setdefault(step.step, {})[analysis.rank] = step.overlap.exposed_comm_ns
    of_ranks = Counter(frozenset(told) for told in exposed_ns.values())
    most = max(of_ranks, key=lambda ranks: (len(ranks), of_ranks[ranks]), default=None)  # of others it is no series
    return TracedSteps(
        {number: max(step_ns[number]) for number in sorted(step_ns)},
        {number: fmean(told.values()) for number, told in sorted(exposed_ns.items()) if frozenset(told) == most},
        max((one.repeated_steps for one in analyses), default=0),
    )


def doubt_traces(analyses: Sequence[TraceAnalysis]) -> Iterator[Doubt]:
    """Doubt that the steps of the traces of one job are like each other: of each rank where they have none in common.

    Steps of one rank and then of another are no series, and neither is unlike the other.
    """
    numbers = [{step.step for step in one.steps} for one in analyses if one.steps]
    if numbers and not set.intersection(*numbers):
        of_ranks = (doubt for one in analyses for doubt in doubt_steps(read_steps_of_traces([one])))
        yield from dict.fromkeys(of_ranks)
    else:
        yield from doubt_steps(read_steps_of_traces(analyses))


def doubt_phases(profiler_cost: tuple[float, float, float], exposed_ns: float, measured_ns: float) -> Iterator[Doubt]:
    """Doubt that PROFILED steps are like MEASURED ones.

    Args:
        profiler_cost: PROFILED over MEASURED step times, and the ends of its interval; NaN: not known.
        exposed_ns: of a PROFILED step; NaN: not known.
        measured_ns: a MEASURED step; NaN: not known.
    """
    ratio, low, high = profiler_cost
    ends = (low, high) if low <= high else ()  # never of NaN
    if math.isnan(ratio):
        yield Doubt(DoubtKind.UNCOMPARED, ())
    elif ratio < LEAST_RATIO or ratio > MOST_RATIO:
        yield Doubt(DoubtKind.UNLIKE_MEASURED, (ratio, *ends))
    elif not ends or low < LEAST_RATIO or high > MOST_RATIO:
        yield Doubt(DoubtKind.UNSURE_MEASURED, (ratio, *ends))
    if exposed_ns > measured_ns:
        yield Doubt(DoubtKind.EXPOSED_BEYOND_STEP, (exposed_ns, measured_ns))


def doubt_steps(steps: TracedSteps) -> Iterator[Doubt]:
    """Doubt that traced steps are like each other."""
    if steps.repeated:
        yield Doubt(DoubtKind.REPEATED_NUMBER, (float(steps.repeated),))
    yield from _doubt_one(steps.step_ns)
    drift = _find_drift(list(steps.exposed_ns.values()))
    typical_ns = median(steps.step_ns.values()) if steps.step_ns else math.nan
    if drift is not None and abs(drift[1] - drift[0]) > _LEAST_OF_STEP * typical_ns:
        yield Doubt(DoubtKind.DRIFT, (*drift, float(len(steps.exposed_ns))))


def doubt_launches(step_ns: Mapping[int, float]) -> Iterator[Doubt]:
    """Doubt that the PROFILED steps of launches are like each other.

    Args:
        step_ns: a PROFILED step by launch, mean over its steps.
    """
    if (two := _find_two_unlike(step_ns)) is not None:
        yield Doubt(DoubtKind.TWO_LAUNCHES_UNLIKE, (two[2],), launch=two[0])
    if (unlike := _find_unlike(step_ns)) is not None:
        yield Doubt(DoubtKind.ONE_LAUNCH_UNLIKE, (unlike[1],), launch=unlike[0])


def doubt_traffic(recorded: Mapping[int, int], traced: Mapping[int, Collection[int]]) -> Iterator[Doubt]:
    """Doubt that PROFILED steps communicated what MEASURED ones did; of several ranks the lowest is told.

    Args:
        recorded: by rank, how many collectives it issued in each MEASURED step.
        traced: by rank, how many its trace has in each PROFILED step.
    """
    for rank, count in sorted(recorded.items()):
        if others := [seen for seen in traced.get(rank, ()) if seen != count]:
            yield Doubt(DoubtKind.OTHER_TRAFFIC, (float(rank), float(count), float(min(others))))
            return


def _doubt_one(step_ns: Mapping[int, float]) -> Iterator[Doubt]:
    """Name the step that is least like the others, where one is unlike them; of two both."""
    if (two := _find_two_unlike(step_ns)) is not None:
        yield Doubt(DoubtKind.TWO_STEPS_UNLIKE, tuple(map(float, two)))
    if (unlike := _find_unlike(step_ns)) is not None:
        yield Doubt(DoubtKind.ONE_STEP_UNLIKE, (float(unlike[0]), unlike[1]))


def _find_unlike(step_ns: Mapping[int, float]) -> tuple[int, float] | None:
    """Return the number that is least like at least two others, and how many times as long; None: all are alike."""
    known = _keep_known(step_ns)
    if len(known) <= 2:
        return None
    ratios = {
        number: time_ns / median(other for at, other in known.items() if at != number)
        for number, time_ns in known.items()
    }
    number = max(ratios, key=lambda one: max(ratios[one], 1 / ratios[one]))
    return (number, ratios[number]) if max(ratios[number], 1 / ratios[number]) > UNLIKE else None


def _find_two_unlike(step_ns: Mapping[int, float]) -> tuple[int, int, float] | None:
    """Return the longer and the shorter of two, and how many times as long it is; None: they are alike, or not two.

    Nobody can say which of them is the odd one, so a mean of both is of neither.
    """
    known = _keep_known(step_ns)
    if len(known) != 2:
        return None
    shorter, longer = sorted(known, key=lambda number: known[number])
    ratio = known[longer] / known[shorter]
    return (longer, shorter, ratio) if ratio > UNLIKE else None


def _keep_known(step_ns: Mapping[int, float]) -> dict[int, float]:
    return {number: time_ns for number, time_ns in step_ns.items() if time_ns > 0}


def _find_drift(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the ends of a series that goes one way, the earlier one first; None: it does not, or hardly.

    By how many pairs rise (Mann, Econometrica 13, 1945).
    """
    count = len(values)
    if count < _LEAST_TO_DRIFT:
        return None
    signs = [(after > before) - (after < before) for at, before in enumerate(values) for after in values[at + 1 :]]
    spread = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    early, late = median(values[: count // 2]), median(values[-(count // 2) :])
    if abs(sum(signs)) - 1 < _SIGNIFICANT * spread or abs(late - early) <= _LEAST_DRIFT * early:
        return None
    return (min(values), max(values)) if late > early else (max(values), min(values))
