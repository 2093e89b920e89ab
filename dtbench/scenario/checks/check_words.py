"""Checks in words, and their numbers as a person reads them."""

import math
from collections.abc import Callable, Mapping
from typing import Final

from dtbench.base.units import format_bytes, format_count, format_fraction, format_ns, three_digits
from dtbench.base.vocabulary import CAUSE_PHRASES
from dtbench.scenario.checks.checklist import (
    AgreeingEstimates,
    Bound,
    Check,
    EqualLosses,
    InsidePrediction,
    KnobReceipt,
    LeadingCause,
    Order,
)
from dtbench.scenario.checks.values import Quantity
from dtbench.scenario.mistakes import join_words


def describe_check(check: Check) -> str:
    """Say what a check asks for, for example ``step_time.median of cap_4 over torch_default: at most 0.9 x``."""
    match check:
        case Bound():
            return f"{_describe_subject(check)}: {describe_bounds(check)}"
        case Order(value=value, cells=cells, apart=apart):
            margin = f", each by at least {format_fraction(apart)}" if apart else ""
            return f"{value}: {' < '.join(cells)}{margin}"
        case EqualLosses(cells=cells, tolerance=tolerance):
            who = "all cells" if cells is None else join_words(cells, last="and")
            return f"losses of {who} equal to {tolerance:g}"
        case _:
            return _describe_finding(check, _name(check.cell))


def _describe_finding(check: InsidePrediction | KnobReceipt | LeadingCause | AgreeingEstimates, cell: str) -> str:
    """Say what a check asks of one cell, or of each, by what the run itself finds out."""
    match check:
        case InsidePrediction():
            return f"step time of {cell} inside the bounds of its closed form"
        case KnobReceipt(knob=knob, outcome=outcome):
            words = "does what was asked" if outcome == "agrees" else "has no effect here"
            return f"{knob} of {cell} {words}, says torch"
        case LeadingCause(leads=leads, purpose=purpose):
            of = "communication" if purpose is None else purpose.value
            return f"exposed {of} of {cell}: largest cause {leads.value} ({CAUSE_PHRASES[leads]})"
        case AgreeingEstimates():
            return f"estimates of what {cell} leaves exposed agree"


def describe_bounds(bound: Bound) -> str:
    """Say between what a number has to lie."""
    quantity, low, high = bound.quantity, bound.low, bound.high
    if low is not None and high is not None:
        shown = format_quantity(low, quantity)
        return f"exactly {shown}" if low == high else f"between {shown} and {format_quantity(high, quantity)}"
    if low is not None:
        return f"at least {format_quantity(low, quantity)}"
    return f"at most {format_quantity(math.nan if high is None else high, quantity)}"


def _describe_subject(bound: Bound) -> str:
    other = bound.over or bound.minus
    if bound.share_of_cause is not None:
        purpose, cause = bound.share_of_cause
        return f"exposed {purpose.value} of {_name(bound.cell)}, share {CAUSE_PHRASES[cause]}"
    if other is None:
        per = "" if bound.per is None else f" per {bound.per}"
        return f"{bound.value}{per} of {_name(bound.cell)}"
    cell = "every other cell" if bound.cell is None else bound.cell
    return f"{bound.value} of {cell} {'over' if bound.over else 'minus'} {other}"


def _name(cell: str | None) -> str:
    return "every cell" if cell is None else cell


def format_quantity(number: float, quantity: Quantity) -> str:
    """Return a number (ns, bytes, plain) with its unit; ``n/a`` for NaN.

    >>> format_quantity(12_300_000, Quantity.TIME)
    '12.3 ms'
    >>> format_quantity(0.874, Quantity.RATIO)
    '0.874 x'
    """
    return "n/a" if math.isnan(number) else _FORMATS[quantity](number)


_FORMATS: Final[Mapping[Quantity, Callable[[float], str]]] = {
    Quantity.TIME: format_ns,
    Quantity.SIZE: format_bytes,
    Quantity.FRACTION: format_fraction,
    Quantity.RATIO: lambda ratio: f"{three_digits(ratio)} x",
    Quantity.COUNT: format_count,
    Quantity.ERROR: lambda error: f"{error:.1e}",
}
