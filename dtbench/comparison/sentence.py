"""The answer in one sentence: by how much the step time differs, what was issued otherwise, whose exposed time changed.

What statistics have not established is not claimed: where there are launches enough to tell, an owner is named only if
its change is found; with fewer, numbers are told as they were measured, after the words that they are too few.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dtbench.base.units import count_things, format_ns, name_ranks
from dtbench.base.vocabulary import CAUSE_PHRASES
from dtbench.comparison.collectives import duration_change, exposed_change
from dtbench.comparison.comparison import CollectiveChange, MechanismChange, MetricChange, Outcome, Side
from dtbench.comparison.issued import name_issued
from dtbench.comparison.metrics import EXPOSED, EXPOSED_BY_OWNER, EXPOSED_BY_PURPOSE, STEP_TIME
from dtbench.comparison.telling import count_telling
from dtbench.runs.told_apart import LEAST_LAUNCHES

_ESTABLISHED = (Outcome.HIGHER, Outcome.LOWER, Outcome.BELOW_THRESHOLD)
_LEAST_CHANGE_NS = 1000
_OUTGROWS = 2.0
"""A collective that got longer by so many times what any got more exposed is named, too: hidden, not yet a cost."""


@dataclass(frozen=True)
class Findings:
    """What the sentence is about.

    Attributes:
        are_traces: neither side has launches, only someone's traces.
        doubted: the sides whose PROFILED steps may not stand for others.
        parts: why what their traces tell cannot be compared.
    """

    baseline: Side
    candidate: Side
    are_traces: bool
    threshold: float
    mechanism: Sequence[MechanismChange]
    metrics: Sequence[MetricChange]
    collectives: Sequence[CollectiveChange]
    doubted: Sequence[str] = ()
    parts: Sequence[str] = ()

    @property
    def step(self) -> MetricChange:
        """The step time."""
        return next(change for change in self.metrics if change.metric == STEP_TIME)


def write_clauses(findings: Findings) -> tuple[str, ...]:
    """Return the answer clause by clause, without a final period: the first says how step times differ."""
    return (_lead(findings), *_say_issued(findings.mechanism), *_say_exposed(findings))


def percent(fraction: float) -> str:
    """Spell a relative change without its sign: two decimals below 1 %, none from 100 % on, else one.

    >>> percent(0.0617), percent(-0.0034), percent(1.5)
    ('6.2 %', '0.34 %', '150 %')
    """
    size = abs(100 * fraction)
    return f"{size:.2f} %" if size < 1 else f"{size:.1f} %" if size < 100 else f"{size:.0f} %"


def _lead(findings: Findings) -> str:
    step = findings.step
    basis = f"({_times(step)}, {_launches(findings)})"
    sure = f"({_times(step)}, {_interval(step)}, {_launches(findings)})"
    match step.outcome:
        case Outcome.HIGHER | Outcome.LOWER:
            said = f"{_say_change(findings)} {sure}"
        case Outcome.BELOW_THRESHOLD:
            less = f"less than the {percent(findings.threshold)} that matter"
            said = f"The step times differ by {percent(step.ratio - 1)}, {less} {sure}"
        case Outcome.NO_DIFFERENCE:
            said = f"No difference in step time beyond the {percent(findings.threshold)} that do not matter {sure}"
        case Outcome.NOT_ESTABLISHED:
            said = f"Whether the step times differ is not established {sure}{_say_detectable(step)}"
        case Outcome.SAME if _is_enough(findings):
            said = f"The step time is the same {basis}"
        case Outcome.NOT_ENOUGH_LAUNCHES | Outcome.SAME:
            said = f"{_say_few(findings)}: step {_times(step)}{_signed(step)}"
        case Outcome.UNKNOWN:
            said = f"The step times cannot be compared: {_times(step)}"
    return said


def _say_change(findings: Findings) -> str:
    ratio = findings.step.ratio
    before, after = findings.baseline.label, findings.candidate.label
    if math.isnan(ratio):
        return f"{after} takes longer than {before}, which took no time"
    if not 0.5 < ratio < 2:
        return f"{after} takes {ratio:.2f} x as long as {before}"
    return f"{after} is {percent(ratio - 1)} {'slower' if ratio > 1 else 'faster'} than {before}"


def _times(step: MetricChange) -> str:
    return f"{format_ns(step.candidate.median)} against {format_ns(step.baseline.median)}"


def _signed(step: MetricChange) -> str:
    if math.isnan(step.ratio) or step.ratio == 1:
        return ""
    return f" ({'+' if step.ratio > 1 else '-'}{percent(step.ratio - 1)})"


def _say_detectable(step: MetricChange) -> str:
    if math.isnan(step.detectable):
        return ""
    return f"; a change of {percent(step.detectable)} would be found 8 times of 10"


def _interval(step: MetricChange) -> str:
    if math.isnan(step.low) or math.isnan(step.high):
        return "no interval: too few launches"
    if step.outcome not in (Outcome.HIGHER, Outcome.LOWER):
        return f"95 % interval {spell_interval(step)}"
    if not 0.5 < step.ratio < 2:
        return f"95 % interval {step.low:.2f} to {step.high:.2f} x"
    ends = (step.low - 1, step.high - 1) if step.ratio > 1 else (1 - step.high, 1 - step.low)
    return f"95 % interval {' to '.join(_number(end) for end in ends)} %"


def spell_interval(change: MetricChange) -> str:
    """Spell the interval of a change with signs, as a table does: ``-0.4 to +1.2 %``."""
    decimals = 0 if max(abs(change.low), abs(change.high)) >= 2 else 1
    return f"{100 * (change.low - 1):+.{decimals}f} to {100 * (change.high - 1):+.{decimals}f} %"


def _number(fraction: float) -> str:
    digits = 2 if abs(fraction) < 0.01 else 1
    return f"{100 * fraction:.{digits}f}"


def _launches(findings: Findings) -> str:
    after, before = count_telling(findings.step)
    return f"{after} launches each" if after == before else f"{after} launches against {before}"


def _say_few(findings: Findings) -> str:
    if findings.are_traces:
        return "Traces of one launch each, which statistics cannot judge"
    after, before = count_telling(findings.step)
    return f"Not enough launches to tell ({after} against {before}; {LEAST_LAUNCHES} each are needed)"


def _say_issued(mechanism: Sequence[MechanismChange]) -> Iterator[str]:
    """Say the first thing that was communicated otherwise, and how many more there are; not what knobs say."""
    issued = [change for change in mechanism if change.what != "receipt"]
    if not issued:
        return
    first = issued[0]
    others = f"{count_things(len(issued) - 1, 'more change')} of what was issued"
    rest = f" and {others}" if len(issued) > 1 else ""
    match first.what:
        case "count":
            yield f"{first.subject}: {first.candidate} per step against {first.baseline}{rest}"
        case "async":
            yield f"{first.subject}: {first.candidate} asynchronous against {first.baseline}{rest}"
        case "order":
            by = f" by {name_ranks(first.ranks)}" if first.ranks else ""
            yield f"issued in another order{by}{rest}"
        case _:
            yield f"{first.subject}: {first.candidate} against {first.baseline}{rest}"


def _say_exposed(findings: Findings) -> Iterator[str]:
    """Say what was exposed; of steps that may stand for no others only that, unless nothing is claimed anyhow."""
    steps = f"PROFILED steps of {' and '.join(findings.doubted)} may stand for no others"
    if findings.parts:
        yield f"what was exposed cannot be compared: {'; '.join(findings.parts)}"
    elif not findings.doubted:
        yield from _say_changes(findings)
    elif _is_enough(findings):
        yield f"what was exposed is no finding: {steps}"
    else:
        changes = [*_say_changes(findings)]
        yield from [f"{steps}, so what follows may not either", *changes] if changes else [steps]


def _say_changes(findings: Findings) -> Iterator[str]:
    known = (row for row in findings.collectives if not math.isnan(exposed_change(row)))
    told = [row for row in known if _may_be_told(row, findings)]
    exposed = [row for row in told if abs(exposed_change(row)) >= _LEAST_CHANGE_NS]
    step = findings.step
    if step.outcome in (Outcome.HIGHER, Outcome.LOWER):  # what went along with it comes first
        exposed.sort(key=lambda row: (exposed_change(row) > 0) is not (step.ratio > 1))
    lead = exposed[0] if exposed else None
    if not _is_enough(findings):
        timed = (row for row in told if not math.isnan(duration_change(row)))
        longest = max(timed, key=lambda row: abs(duration_change(row)), default=None)
        bound_ns = max(_LEAST_CHANGE_NS, _OUTGROWS * abs(exposed_change(lead)) if lead else 0.0)
        if longest is not None and longest is not lead and abs(duration_change(longest)) >= bound_ns:
            longer = "longer" if duration_change(longest) > 0 else "shorter"
            yield f"{format_ns(abs(duration_change(longest)))} {longer}: {_name(longest)}"
    yield from _say_whole(lead, findings)


def _say_whole(lead: CollectiveChange | None, findings: Findings) -> Iterator[str]:
    """Say by how much all exposed time changed, and whose part of that is the largest."""
    whole_ns = _find_whole_change(findings)
    if lead is None:
        if whole_ns is not None:
            yield _spell_change(whole_ns)
        return
    cause = "" if lead.cause is None else f", mostly {CAUSE_PHRASES[lead.cause]}"
    lead_ns, said = exposed_change(lead), f"{_name(lead)}{cause}"
    if whole_ns is None:
        yield f"{_spell_change(lead_ns)}: {said}"
    elif whole_ns * lead_ns > 0 and format_ns(abs(whole_ns)) == format_ns(abs(lead_ns)):
        yield f"{_spell_change(whole_ns)}: {said}"
    elif whole_ns * lead_ns > 0 and abs(whole_ns) > abs(lead_ns):
        yield f"{_spell_change(whole_ns)}: {format_ns(abs(lead_ns))} of it {said}"
    else:  # others went the other way
        but = "" if whole_ns * lead_ns > 0 else "but "
        yield f"{_spell_change(whole_ns)} in all, {but}{_spell_change(lead_ns)} by itself: {said}"


def _find_whole_change(findings: Findings) -> float | None:
    """Return by how much all exposed time changed, as the table has it; None where that is not known or established."""
    change = next((one for one in findings.metrics if one.metric == EXPOSED), None)
    if change is None or (_is_enough(findings) and change.outcome not in _ESTABLISHED):
        return None
    whole_ns = change.candidate.median - change.baseline.median
    return whole_ns if abs(whole_ns) >= _LEAST_CHANGE_NS else None  # never of NaN


def _spell_change(change_ns: float) -> str:
    return f"{format_ns(abs(change_ns))} {'more' if change_ns > 0 else 'less'} exposed"


def _is_enough(findings: Findings) -> bool:
    return min(findings.baseline.launches, findings.candidate.launches) >= LEAST_LAUNCHES


def _may_be_told(row: CollectiveChange, findings: Findings) -> bool:
    """Tell whether a change is established, or there are too few launches for any to be, which the lead has said."""
    if not _is_enough(findings):
        return True
    key = (EXPOSED_BY_OWNER, row.owner) if row.owner else (EXPOSED_BY_PURPOSE, str(row.purpose))
    return any((one.metric, one.subject) == key and one.outcome in _ESTABLISHED for one in findings.metrics)


def _name(row: CollectiveChange) -> str:
    """Name whose it is, of what kind, and how long it takes: ``unshard of layers.3 (all-gather, 2 ms to 35 ms)``.

    How long is left out where a side does not know it.
    """
    operation = name_issued(row.purpose, row.operation).removeprefix(f"{row.purpose} ")
    before, after = (format_ns(duration_ns) for duration_ns in row.duration_ns)
    spans = "" if math.isnan(duration_change(row)) else f", {before if before == after else f'{before} to {after}'}"
    if row.owner:
        return f"{row.purpose} of {row.owner} ({operation}{spans})"
    place = f", {row.place}" if row.place else ""
    return f"{row.purpose} without owner ({operation}{place}{spans})"
