"""Sentences on estimates that do not agree: both figures, how far apart, and the assumption that broke.

===================  =====================================================================================
larger, smaller      what broke, each with its evidence; without any, perhaps the last
===================  =====================================================================================
ablation, any        host-bound; contention, of which nothing here is evidence
any, ablation        skew; host-bound; the profiler (of ``trace``)
trace, wait          host-bound; the profiler; nobody waited for it, of which nothing here is evidence
wait, trace          a wait that is no exposed communication
wait and logger      one of two clocks of the same wait
===================  =====================================================================================
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from dtbench.base.units import format_fraction, format_ns
from dtbench.base.vocabulary import ASSUMPTION_PHRASES, ESTIMATE_PHRASES, Assumption, Estimate
from dtbench.runs.exposure.agreement import VOTES, Agreement, allowed_ns, compare
from dtbench.runs.summary import Estimated

LARGE_IDLE: Final = 0.1
"""Part of a profiled step from which on idle time may be what limits it; it must also be as long as the difference."""

_SKEW_SHARE: Final = 1 / 3
"""Part of the difference that waiting for a later rank must explain to be named as seen."""

_STRETCH_SHARE: Final = 1 / 2
"""Part of the difference by which a profiled step must be longer than one without profiler."""


@dataclass(frozen=True)
class Surroundings:
    """What is known of the steps that estimates are of, means, ns; NaN: not known.

    Attributes:
        idle_ns: of a profiled step.
        profiled_step_ns: its length.
        full_step_ns: of a step without profiler, communication as it is.
        skew_ns: exposed communication of a profiled step that waited for a later rank.
        idle_word: what idle time is called on this device.
        profiler_low: low end of the interval of PROFILED over MEASURED step times.
    """

    idle_ns: float
    profiled_step_ns: float
    full_step_ns: float
    skew_ns: float
    idle_word: str
    profiler_low: float = math.nan


def find_disputes(
    estimates: Mapping[Estimate, Estimated], gradient_wait: Estimated, around: Surroundings
) -> tuple[str, ...]:
    """Return a sentence for each pair that does not agree.

    Args:
        estimates: all that there are.
        gradient_wait: the part of ``wait`` that DDP's logger can see; held against that logger.
        around: where to look for the assumption that broke.
    """
    pairs = list(combinations([estimates[one] for one in VOTES if one in estimates], 2))
    if Estimate.LOGGER in estimates:
        pairs.append((gradient_wait, estimates[Estimate.LOGGER]))
    return tuple(
        _describe_dispute(one, other, around) for one, other in pairs if compare(one, other) is Agreement.DISPUTED
    )


def _describe_dispute(one: Estimated, other: Estimated, around: Surroundings) -> str:
    larger, smaller = (one, other) if one.mean_ns > other.mean_ns else (other, one)
    apart_ns = larger.mean_ns - smaller.mean_ns
    figures = " against ".join(f"{ESTIMATE_PHRASES[each.estimate]} {format_ns(each.mean_ns)}" for each in (one, other))
    limit = f"{format_ns(apart_ns)} apart where {format_ns(allowed_ns(one, other))} would pass"
    broken = find_assumptions(larger.estimate, smaller.estimate, apart_ns, around)
    return f"{figures}, {limit}: {'; '.join(broken)}"


def find_assumptions(larger: Estimate, smaller: Estimate, apart_ns: float, around: Surroundings) -> Sequence[str]:
    """Name what broke, the likeliest first: by the direction of the difference, and by what the trace shows."""
    skew, host, profiler = (
        list(found(apart_ns, around)) for found in (_find_skew, _find_host_bound, _find_stretched_steps)
    )
    match larger, smaller:
        case (Estimate.LOGGER, _) | (_, Estimate.LOGGER):
            return [ASSUMPTION_PHRASES[Assumption.CLOCKS]]
        case Estimate.ABLATION, _:
            return [*host, _suspect(Assumption.CONTENTION)]
        case Estimate.TRACE, Estimate.ABLATION:
            return [*skew, *host, *profiler] or [_suspect(Assumption.SKEW)]
        case _, Estimate.ABLATION:
            return [*skew, *host] or [_suspect(Assumption.SKEW)]
        case Estimate.TRACE, _:
            return [*host, *profiler, _suspect(Assumption.NOT_WAITED_FOR)]
        case _:
            return [ASSUMPTION_PHRASES[Assumption.WAIT_ALONE]]


def _suspect(assumption: Assumption) -> str:
    """Name what may have broken and nothing here shows."""
    return f"perhaps {ASSUMPTION_PHRASES[assumption]}"


def _find_skew(apart_ns: float, around: Surroundings) -> Iterator[str]:
    if around.skew_ns >= _SKEW_SHARE * apart_ns:
        phrase = ASSUMPTION_PHRASES[Assumption.SKEW]
        yield f"{phrase} (the trace shows {format_ns(around.skew_ns)} of waiting for a later rank)"


def _find_host_bound(apart_ns: float, around: Surroundings) -> Iterator[str]:
    share = around.idle_ns / around.profiled_step_ns if around.profiled_step_ns > 0 else math.nan
    if around.idle_ns >= apart_ns and share >= LARGE_IDLE:
        phrase = ASSUMPTION_PHRASES[Assumption.HOST_BOUND]
        yield f"{phrase} ({around.idle_word} {format_ns(around.idle_ns)}, {format_fraction(share)} of a profiled step)"


def _find_stretched_steps(apart_ns: float, around: Surroundings) -> Iterator[str]:
    if around.profiled_step_ns - around.full_step_ns >= _STRETCH_SHARE * apart_ns and around.profiler_low > 1:
        phrase = ASSUMPTION_PHRASES[Assumption.PROFILER]
        yield f"{phrase} ({format_ns(around.profiled_step_ns)} with it, {format_ns(around.full_step_ns)} without)"
