"""What a CI job asks of a comparison: ``step_time > 3%``, ``exposed[unshard] > 5 ms``, ``mechanism changed``.

A bound is *exceeded* where the change is established (statistics find it) and larger than the bound. It is *kept* where
the change's interval, after the correction for how many numbers were tested, lies within it. Where the interval reaches
beyond it the launches tell neither: *not established*, which passes only where a person says that it may; so is what
would be kept where it is not known on which machine and software some launches ran. A bound on a
number that nobody has or that too few launches tell is *undecided*.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from dtbench.base.columns import Unit
from dtbench.base.errors import GateError, UndecidedError
from dtbench.base.units import MIB, NS_PER_MS, NS_PER_S, NS_PER_US, format_bytes, format_fraction, format_ns
from dtbench.base.vocabulary import Purpose
from dtbench.comparison.comparison import Comparison, MetricChange, Outcome
from dtbench.comparison.mechanism import say_same
from dtbench.comparison.metrics import BY_NAME, EXPOSED_BY_OWNER, EXPOSED_BY_PURPOSE, METRICS, STEP_TIME, spell_metric
from dtbench.comparison.sentence import spell_interval
from dtbench.comparison.telling import count_telling
from dtbench.runs.cell.shift import mean_half_width
from dtbench.scenario.mistakes import find_nearest, join_words, shorten

_MECHANISM: Final = "mechanism changed"
_BOUND: Final = re.compile(
    r"\s*(?P<metric>\w+)\s*(?:\[(?P<subject>.*)\]\s*)?(?P<sign>[<>])\s*(?P<number>[+-]?\d+(?:\.\d*)?)\s*(?P<unit>%|[A-Za-z]+)\s*"
)
_METRIC: Final = re.compile(r"\s*(?P<metric>\w+)\s*(?:\[(?P<subject>.*)\]\s*)?")
_UNITS: Final = {
    "ns": (Unit.NS, 1.0),
    "us": (Unit.NS, float(NS_PER_US)),
    "ms": (Unit.NS, float(NS_PER_MS)),
    "s": (Unit.NS, float(NS_PER_S)),
    "b": (Unit.BYTES, 1.0),
    "kib": (Unit.BYTES, 1024.0),
    "mib": (Unit.BYTES, float(MIB)),
    "gib": (Unit.BYTES, 1024.0 * MIB),
}
_ESTABLISHED: Final = (Outcome.HIGHER, Outcome.LOWER, Outcome.BELOW_THRESHOLD)
_UNDECIDED: Final = (Outcome.NOT_ENOUGH_LAUNCHES, Outcome.UNKNOWN)
_MOST_SUBJECTS: Final = 12
_NAMES: Final = [metric.name if metric.of is None else f"{metric.name}[{metric.of}]" for metric in METRICS]


class BoundError(ValueError):
    """A bound that cannot be read, or that is on a number that there is not."""


class Kept(StrEnum):
    """What became of a bound."""

    KEPT = "kept"
    EXCEEDED = "exceeded"
    NOT_ESTABLISHED = "not established"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Bound:
    """How far a number may change.

    Attributes:
        typed: as a person wrote it.
        metric: None: whatever was done differently.
        subject: empty: the whole step.
        most: the change, signed as it was written: above it, if positive, below it, if negative, the bound is exceeded.
        is_relative: ``most`` is a fraction of the baseline; else in the metric's unit.
    """

    typed: str
    metric: str | None
    subject: str = ""
    most: float = 0.0
    is_relative: bool = True


@dataclass(frozen=True)
class Judgement:
    """One bound on one comparison; ``words`` are a sentence."""

    typed: str
    kept: Kept
    words: str


@dataclass(frozen=True)
class Gate:
    """Every bound of a command, and whether they let it pass.

    Attributes:
        judgements: of every bound on the first comparison, then on the second, ...
        left_out: what was compared with nothing, a sentence each: bounds hold for it, too, and nobody can say whether
            it keeps them.
        passes_unestablished: a person says that what is not established passes.
    """

    judgements: tuple[Judgement, ...]
    left_out: tuple[str, ...] = ()
    passes_unestablished: bool = False

    @property
    def exceeded(self) -> tuple[str, ...]:
        """Say which bounds are exceeded."""
        return tuple(one.words for one in self.judgements if one.kept is Kept.EXCEEDED)

    @property
    def undecided(self) -> tuple[str, ...]:
        """Say which bounds neither pass nor are exceeded."""
        passes = (Kept.KEPT, Kept.EXCEEDED, *((Kept.NOT_ESTABLISHED,) if self.passes_unestablished else ()))
        judged = (one.words for one in self.judgements if one.kept not in passes)
        return (*judged, *self.unjudged)

    @property
    def unjudged(self) -> tuple[str, ...]:
        """Say of what no bound can be judged."""
        return tuple(f"a bound cannot be judged: {words}" for words in self.left_out)

    @property
    def exit_code(self) -> int:
        """With which the command ends."""
        if self.exceeded:
            return GateError.exit_code
        return UndecidedError.exit_code if self.undecided else 0

    @property
    def sentence(self) -> str:
        """Say whether the command passes, its exit code, and how many bounds there are of each kind."""
        let_pass = [one for one in self.judgements if self.passes_unestablished and one.kept is Kept.NOT_ESTABLISHED]
        counts = {
            "exceeded": len(self.exceeded),
            "not established or not judged": len(self.undecided),
            "not established, which --pass-unestablished lets pass": len(let_pass),
            "kept": sum(one.kept is Kept.KEPT for one in self.judgements),
        }
        state = "FAILED" if self.exceeded else "not decided" if self.undecided else "passed"
        told = ", ".join(f"{count} {words}" for words, count in counts.items() if count)
        return f"{state}, exit code {self.exit_code}: {told}"


def read_bound(typed: str) -> Bound:
    """Read a bound.

    >>> read_bound("step_time > 3%").most
    0.03

    Raises:
        BoundError: it cannot be read, is on no metric, in another unit, or asks for the wrong direction.
    """
    if " ".join(typed.split()).lower() == _MECHANISM:
        return Bound(typed, None)
    match = _BOUND.fullmatch(typed)
    if match is None:
        raise BoundError(
            f"`{shorten(typed)}` is no bound; write `step_time > 3%`, `exposed[unshard] > 5 ms`, "
            f"`tokens_per_second < -3%` or `{_MECHANISM}`"
        )
    name, sign, number = match["metric"], match["sign"], float(match["number"])
    subject = (match["subject"] or "").strip()
    if not math.isfinite(number):
        raise BoundError(f"`{shorten(typed)}`: nothing can change by so much; the bound would always be kept")
    _check_metric(typed, name, match["subject"])
    if (sign == ">") != (number >= 0) or (sign == "<" and not number):
        other = f"{name} {sign} {'-' if sign == '<' else ''}{abs(number) or 0.1:g}{match['unit']}"
        raise BoundError(
            f"`{shorten(typed)}` would hold for what did not change: `>` takes a rise and `<` a fall, `{other}`"
        )
    most, is_relative = _read_amount(typed, name, number, match["unit"])
    return Bound(typed, name, subject, most, is_relative)


def read_metric(typed: str) -> tuple[str, str]:
    """Read which number is meant, as bounds name it: its metric, and what it is of; empty: the whole step.

    >>> read_metric("exposed[unshard]"), read_metric("step_time")
    (('exposed', 'unshard'), ('step_time', ''))

    Raises:
        BoundError: no metric is called so, or it is of something and does not say of what, or the other way round.
    """
    match = _METRIC.fullmatch(typed)
    if match is None:
        raise BoundError(f"`{shorten(typed)}` is no metric; there are {join_words(_NAMES, last='and')}")
    _check_metric(typed, match["metric"], match["subject"])
    return match["metric"], (match["subject"] or "").strip()


def _check_metric(typed: str, name: str, subject: str | None) -> None:
    """Check that there is a metric of a name, and that it is said what it is of where it is of something.

    Args:
        typed: as a person wrote it.
        name: of the metric.
        subject: what stands in brackets; None: there are none.

    Raises:
        BoundError: there is none, or it is not so.
    """
    if name not in BY_NAME:
        near = find_nearest(name, BY_NAME)
        meant = f"did you mean `{near}`?" if near else f"there are {join_words(_NAMES, last='and')}"
        raise BoundError(f"`{shorten(typed)}`: no metric is called `{name}`; {meant}")
    if BY_NAME[name].of is not None and not (subject or "").strip():
        whole = f"; `{name}_comm` is of the whole step" if name == EXPOSED_BY_PURPOSE else ""
        raise BoundError(
            f"`{shorten(typed)}`: say of what, `{name}[...]` with {BY_NAME[name].of} in the brackets{whole}"
        )
    if BY_NAME[name].of is None and subject:
        raise BoundError(f"`{shorten(typed)}`: `{name}` is of the whole step; leave `[{subject}]` out")


def bound_step_time(most_percent: float) -> Bound:
    """Return the bound on how much longer a step may get.

    Raises:
        BoundError: it is less than 0, or no number.
    """
    typed = f"{STEP_TIME} > {most_percent:g}%"
    if not 0 <= most_percent < math.inf:
        raise BoundError(f"`{typed}` is no bound; give a number of percent from 0")
    return Bound(typed, STEP_TIME, most=most_percent / 100)


def _read_amount(typed: str, name: str, number: float, unit: str) -> tuple[float, bool]:
    if unit == "%":
        return number / 100, True
    measured, factor = _UNITS.get(unit.lower(), (None, 0.0))
    if measured is not BY_NAME[name].unit:
        units = ["%", *(spelled for spelled, (of, _) in _UNITS.items() if of is BY_NAME[name].unit)]
        raise BoundError(f"`{shorten(typed)}`: `{name}` is bounded in {join_words(units)}, not `{unit}`")
    return number * factor, False


def check_subjects(bounds: Iterable[Bound], comparisons: Sequence[Comparison]) -> None:
    """Check that what bounds are on occurs in one of the comparisons at least.

    Raises:
        BoundError: it occurs in none.
    """
    for bound in bounds:
        if not bound.subject or any(_find(bound, one) or not _is_absent(bound, one) for one in comparisons):
            continue  # of the whole step, of something that there is, or that may be: undecided at worst
        names = _names_of(bound)
        known = [change for comparison in comparisons for change in comparison.metrics if change.metric in names]
        subjects = list(dict.fromkeys(change.subject for change in known))
        near = find_nearest(bound.subject, subjects)
        named = join_words([f"`{subject}`" for subject in subjects[:_MOST_SUBJECTS]], last="and")
        meant = (
            f"did you mean `{near}`?" if near else f"there is {named}" if subjects else "there is nothing of the kind"
        )
        raise BoundError(f"`{shorten(bound.typed)}`: nothing is called `{shorten(bound.subject)}` here; {meant}")


def judge(bound: Bound, comparison: Comparison) -> Judgement:
    """Say whether a bound is kept."""
    if bound.metric is None:
        return _judge_mechanism(bound, comparison)
    change = _find(bound, comparison)
    who = f"`{bound.typed}`, {comparison.candidate.label} against {comparison.baseline.label}"
    if change is None and bound.subject and _is_absent(bound, comparison):
        return Judgement(bound.typed, Kept.KEPT, f"{who}: kept, there is none of it on either side")
    if change is None:
        return Judgement(bound.typed, Kept.UNDECIDED, f"{who}: undecided, {_say_unseen(bound, comparison)}")
    if change.outcome in _UNDECIDED:
        return Judgement(bound.typed, Kept.UNDECIDED, f"{who}: undecided, {_say_undecided(change)}")
    kept = hold(bound, change)
    where = comparison.environment_not_known[:1] if kept is not Kept.EXCEEDED else ()
    kept = Kept.NOT_ESTABLISHED if where else kept
    told = kept.upper() if kept is Kept.EXCEEDED else kept
    doubts = [*(comparison.doubts[:1] if BY_NAME[change.metric].is_profiled else ()), *where]
    shows = "" if where else _say_what_shows(kept, change)
    return Judgement(bound.typed, kept, "; ".join([f"{who}: {told}, {spell_change(change)}{shows}", *doubts]))


def spell_change(change: MetricChange) -> str:
    """Spell a change of a number with its interval, as what is said of bounds has it."""
    return f"{spell_metric(change.metric, change.subject)} {_spell_both(change)}{_spell_interval(change)}"


def hold(bound: Bound, change: MetricChange) -> Kept:
    """Hold a change that was judged against a bound."""
    amount = _amount(bound, change)
    if _is_beyond(bound, amount) and change.outcome in _ESTABLISHED:
        return Kept.EXCEEDED
    if change.outcome is Outcome.NOT_ESTABLISHED and change.test is None:  # withheld
        return Kept.NOT_ESTABLISHED
    is_within = not any(math.isnan(end) or _is_beyond(bound, end) for end in (*_find_ends(bound, change), amount))
    return Kept.KEPT if is_within else Kept.NOT_ESTABLISHED


def _find_ends(bound: Bound, change: MetricChange) -> tuple[float, float]:
    """Return the ends of a change in the bound's unit; of what is new, which has no ratio, those of its mean."""
    if change.test is not None:
        return _in_unit_of(bound, change.low, change), _in_unit_of(bound, change.high, change)
    amount = _amount(bound, change)
    if bound.is_relative or change.baseline.median:  # it does not vary, or nothing is left of it: sure
        return amount, amount
    values = np.array([value for value in change.candidate.values if not math.isnan(value)])
    reach = mean_half_width(values)
    return float(values.mean()) - reach, float(values.mean()) + reach


def _is_beyond(bound: Bound, amount: float) -> bool:
    return amount > bound.most if bound.most >= 0 else amount < bound.most


def _in_unit_of(bound: Bound, ratio: float, change: MetricChange) -> float:
    return ratio - 1 if bound.is_relative else (ratio - 1) * change.baseline.median


def _spell_interval(change: MetricChange) -> str:
    if math.isnan(change.low) or change.low == change.high:
        return ""
    return f", 95 % interval {spell_interval(change)}"


def _say_what_shows(kept: Kept, change: MetricChange) -> str:
    """Say how large a change these launches would show, where they did not show whether the bound is kept."""
    if kept is not Kept.NOT_ESTABLISHED or math.isnan(change.detectable):
        return ""
    return f"; launches as many and as spread show changes above {100 * change.detectable:.1f} %"


def _judge_mechanism(bound: Bound, comparison: Comparison) -> Judgement:
    who = f"`{bound.typed}`, {comparison.candidate.label} against {comparison.baseline.label}"
    if comparison.mechanism_doubts:
        return Judgement(bound.typed, Kept.UNDECIDED, f"{who}: undecided, {'; '.join(comparison.mechanism_doubts)}")
    if comparison.mechanism:
        first = comparison.mechanism[0]
        rest = f" and {len(comparison.mechanism) - 1} more" if len(comparison.mechanism) > 1 else ""
        said = f"{first.what} of {first.subject}: {first.candidate} against {first.baseline}{rest}"
        return Judgement(bound.typed, Kept.EXCEEDED, f"{who}: EXCEEDED, {said}")
    if not comparison.is_mechanism_known:
        return Judgement(
            bound.typed, Kept.UNDECIDED, f"{who}: undecided, what was communicated is not known on both sides"
        )
    if comparison.mechanism_not_known:
        return Judgement(bound.typed, Kept.NOT_ESTABLISHED, f"{who}: not established, {say_same(comparison)}")
    return Judgement(bound.typed, Kept.KEPT, f"{who}: kept, the same was done on both sides")


def _find(bound: Bound, comparison: Comparison) -> MetricChange | None:
    """Return the metric that a bound is on."""
    for name in _names_of(bound):
        for change in comparison.metrics:
            if (change.metric, change.subject) == (name, bound.subject):
                return change
    return None


def _names_of(bound: Bound) -> list[str]:
    """Return the metrics that a bound may be on; ``exposed[layers.3]`` is of an owner: no purpose is called so."""
    owners = [EXPOSED_BY_OWNER] if bound.metric == EXPOSED_BY_PURPOSE and bound.subject not in set(Purpose) else []
    return [bound.metric or "", *owners]


def _is_absent(bound: Bound, comparison: Comparison) -> bool:
    """Tell whether what a bound is on, and no metric is of, is known to be on neither side."""
    return _names_of(bound)[-1] not in comparison.not_known and not _is_untested(bound, comparison)


def _is_untested(bound: Bound, comparison: Comparison) -> bool:
    return EXPOSED_BY_OWNER in _names_of(bound) and any(row.owner == bound.subject for row in comparison.collectives)


def _say_unseen(bound: Bound, comparison: Comparison) -> str:
    """Say why there is no metric that a bound is on."""
    if not bound.subject:
        return "neither side has this number"
    if _is_untested(bound, comparison):
        return "it is not among the owners that were tested"
    return "whether there is any of it is not known on both sides"


def _amount(bound: Bound, change: MetricChange) -> float:
    """Return the change in the bound's unit; of nothing to something it is infinite, relatively."""
    before, after = change.baseline.median, change.candidate.median
    if not bound.is_relative:
        return after - before
    if not math.isnan(change.ratio):
        return change.ratio - 1
    if after == before:
        return 0.0
    return math.inf if after > before else -math.inf


def _say_undecided(change: MetricChange) -> str:
    if change.outcome is Outcome.UNKNOWN:
        is_part = not math.isnan(change.baseline.median + change.candidate.median)
        return "the sides are parts that cannot be compared" if is_part else "a side does not have this number"
    after, before = count_telling(change)
    return (
        f"{after} against {before} launches are too few "
        f"({spell_metric(change.metric, change.subject)} {_spell_both(change)})"
    )


def _spell_both(change: MetricChange) -> str:
    before, after = (spell_number(sample.median, change.unit) for sample in (change.baseline, change.candidate))
    signed = "" if math.isnan(change.ratio) else f" ({100 * (change.ratio - 1):+.1f} %)"
    return f"{after} against {before}{signed}"


def spell_number(value: float, unit: Unit) -> str:
    """Spell a number of a metric for people."""
    if math.isnan(value):
        return "n/a"
    match unit:
        case Unit.NS:
            return format_ns(value)
        case Unit.BYTES:
            return format_bytes(value)
        case Unit.FRACTION:
            return format_fraction(value)
        case Unit.PER_SECOND | Unit.COUNT:
            return f"{value:,.0f}"
