"""How many launches of a side tell a number, and which do not: a test is of those that do, however many there are."""

import math
from collections.abc import Iterable, Iterator

from dtbench.base.units import is_or_are
from dtbench.comparison.comparison import MetricChange, Sample
from dtbench.comparison.metrics import BY_NAME, EXPOSED, spell_metric
from dtbench.comparison.reading.seen import knows_subjects
from dtbench.comparison.reading.side_numbers import SideNumbers
from dtbench.scenario.mistakes import join_words
from dtbench.store.records.baseline import MeasuredLaunch, MeasuredSide

_MOST_NAMED = 4


def count_telling(change: MetricChange) -> tuple[str, str]:
    """Say how many launches of (candidate, baseline) tell a number: ``8``, or ``3 of 8`` where others do not."""
    return _count(change.candidate), _count(change.baseline)


def _count(sample: Sample) -> str:
    known = sum(not math.isnan(value) for value in sample.values)
    return str(known) if known == len(sample.values) else f"{known} of {len(sample.values)}"


def say_silent(side: MeasuredSide, sides: Iterable[MeasuredSide]) -> Iterator[str]:
    """Say which numbers only some launches of a side, one of these, tell, and which do not, a clause each.

    Without those that ``say_not_known`` names: launches that do not know what was exposed, or of what.
    """
    launches = [launch for one in sides for launch in one.launches]
    numbers = SideNumbers(side.launches, launches)
    named: dict[tuple[str, ...], list[str]] = {}
    for metric, subject in numbers.keys:
        pairs = list(zip(side.launches, numbers.values((metric, subject)), strict=True))
        silent = [launch for launch, value in pairs if math.isnan(value)]
        if len(silent) < len(pairs) and not all(_is_named(launch, metric, subject) for launch in silent):
            names = tuple(launch.name for launch in silent)
            named.setdefault(names, []).append(spell_metric(metric, subject))
    for names, words in named.items():
        more = [f"{len(words) - _MOST_NAMED} more"] if len(words) > _MOST_NAMED else []
        which = join_words([*words[:_MOST_NAMED], *more], last="and")
        known, count = len(side.launches) - len(names), len(side.launches)
        yield f"{which} {is_or_are(len(words))} known of {known} of {count} launches, not of {', '.join(names)}"


def _is_named(launch: MeasuredLaunch, metric: str, subject: str) -> bool:
    """Tell whether ``say_not_known`` names a launch that does not tell a number."""
    if subject:
        return not knows_subjects(launch, metric)
    return BY_NAME[metric].is_profiled and not any(one.metric == EXPOSED for one in launch.measurements)
