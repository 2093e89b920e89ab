"""What a row is checked for beside what every cell is: one function for each kind of expectation."""

from collections.abc import Iterator, Sequence
from itertools import combinations, groupby
from typing import assert_never

from dtbench.base.units import format_bytes, format_ns
from dtbench.base.vocabulary import CAUSE_PHRASES
from dtbench.runs.summary import CellSummary
from dtbench.selftest.answers import find_answer
from dtbench.selftest.cell_checks import check_bounds, make_check
from dtbench.selftest.evidence import Evidence, Found
from dtbench.selftest.expectations import (
    Aligned,
    Counted,
    Expectation,
    ForwardTook,
    Named,
    Ordered,
    Rebuilt,
    WithoutEffect,
)
from dtbench.selftest.records import Bounds, Check
from dtbench.store.records.rank import ReceiptOutcome


def check_expectation(expected: Expectation, found: Found) -> Iterator[Check]:
    """Look at one expectation; its cells have run."""
    match expected:
        case Named(cell=cell):
            yield from _check_named(expected, found.evidence[cell].summary)
        case Counted(cell=cell):
            yield _check_counted(expected, found.evidence[cell].summary)
        case Rebuilt(cell=cell):
            yield _check_rebuilt(expected, found.evidence[cell])
        case WithoutEffect(cell=cell):
            yield _check_without_effect(expected, found.evidence[cell].summary)
        case Ordered():
            yield _check_ordered(expected, found)
        case Aligned(cell=cell):
            yield _check_aligned(expected, found.evidence[cell])
        case ForwardTook():
            yield _check_forward(expected, found)
        case _:
            assert_never(expected)


def _check_named(expected: Named, summary: CellSummary) -> Iterator[Check]:
    """Look at the cause; where it is the injected one also at whose it is and who was waited for."""
    answer = find_answer(summary, expected.purpose)
    if answer.cause is not expected.cause:
        named = "nothing is exposed" if answer.cause is None else f"named is {CAUSE_PHRASES[answer.cause]}"
        injected = f"injected was {CAUSE_PHRASES[expected.cause]}"
        reason = f"cell {expected.cell}: of {expected.purpose} {named} ({answer.cause}), {injected} ({expected.cause})"
        yield make_check(expected.cell, "cause", expected.cause, str(answer.cause), reason=reason)
        return
    yield make_check(expected.cell, "cause", expected.cause, answer.cause)
    yield _compare(expected.cell, "owner", expected.owners, answer.owner)
    if expected.operation is not None:
        yield _compare(expected.cell, "operation", (expected.operation,), str(answer.operation))
    if expected.waited_for is not None:
        yield _compare(expected.cell, "late rank", (str(expected.waited_for),), str(answer.waited_for))


def _compare(cell: str, what: str, wanted: Sequence[str], got: str) -> Check:
    """Look whether one of several words is there."""
    expected = " or ".join(wanted)
    reason = None if got in wanted else f"cell {cell}: {what} is {got or 'nobody'}, and should be {expected}"
    return make_check(cell, what, expected, got, reason=reason)


def _check_counted(expected: Counted, summary: CellSummary) -> Check:
    row = next((row for row in summary.purposes if row.purpose is expected.purpose), None)
    wanted = f"{expected.count} with {format_bytes(expected.size_bytes)}"
    got = "none" if row is None else f"{row.count} with {format_bytes(row.size_bytes)}"
    same = row is not None and (row.count, row.size_bytes) == (expected.count, expected.size_bytes)
    reason = f"cell {expected.cell}: collectives of {expected.purpose} a step: {got}, and should be {wanted}"
    return make_check(expected.cell, f"{expected.purpose} a step", wanted, got, reason=None if same else reason)


def _check_rebuilt(expected: Rebuilt, evidence: Evidence) -> Check:
    steps = evidence.ranks[0].bucket_bytes_per_step
    first, later = (steps[0], steps[-1]) if steps else ((), ())
    wanted = f"{spell_buckets(expected.first_bytes)}, then {spell_buckets(expected.later_bytes)}"
    got = f"{spell_buckets(first)}, then {spell_buckets(later)}"
    same = (first, later) == (expected.first_bytes, expected.later_bytes)
    reason = None if same else f"cell {expected.cell}: buckets are {got}, and should be {wanted}"
    return make_check(expected.cell, "buckets", wanted, got, reason=reason)


def spell_buckets(sizes_bytes: Sequence[int]) -> str:
    """Spell sizes of buckets, equal neighbours together.

    >>> spell_buckets((1048576, 1048576, 2097152))
    '2 x 1.00 MiB, 1 x 2.00 MiB'
    """
    groups = [(len(list(same)), format_bytes(size)) for size, same in groupby(sizes_bytes)]
    return ", ".join(f"{count} x {size}" for count, size in groups) or "none"


def _check_without_effect(expected: WithoutEffect, summary: CellSummary) -> Check:
    receipt = next((one for one in summary.receipts if one.knob == expected.knob), None)
    wanted, got = ReceiptOutcome.NO_EFFECT.value, "no receipt" if receipt is None else receipt.outcome.value
    reason = f"cell {expected.cell}: {expected.knob} is reported as `{got}`, and should be as `{wanted}`"
    return make_check(expected.cell, expected.knob, wanted, got, reason=None if got == wanted else reason)


def _check_ordered(expected: Ordered, found: Found) -> Check:
    """Look whether steps are in the order of their closed forms wherever these tell two of them apart."""
    known = [cell for cell in expected.cells if cell in found.foretold]
    wrong = [told for one, other in combinations(known, 2) if (told := _tell_wrong_order(expected, found, one, other))]
    cells = " ".join(expected.cells)
    got = "otherwise" if wrong else "as foretold"
    return make_check(cells, "order", "as foretold", got, reason="; ".join(wrong) if wrong else None)


def _tell_wrong_order(expected: Ordered, found: Found, one: str, other: str) -> str | None:
    apart_ns = found.foretold[one].step_ns.expected_ns - found.foretold[other].step_ns.expected_ns
    faster, slower = (one, other) if apart_ns < 0 else (other, one)
    fast_ns, slow_ns = (found.evidence[cell].summary.step_time.median for cell in (faster, slower))
    if abs(apart_ns) <= expected.apart_ns or fast_ns < slow_ns:
        return None
    return (
        f"{faster} takes {format_ns(fast_ns)} and {slower} {format_ns(slow_ns)}, foretold was {faster} "
        f"{format_ns(abs(apart_ns))} before {slower}"
    )


def _check_aligned(expected: Aligned, evidence: Evidence) -> Check:
    wanted = f"within {format_ns(expected.bound_ns)}"
    traced = evidence.traced
    if traced is None or len(traced.clock_ns) < len(evidence.ranks):
        reason = f"cell {expected.cell}: no traces tell how far its clocks are apart"
        return make_check(expected.cell, "clocks", wanted, "unknown", reason=reason)
    offsets_ns = [offset_ns for _, offset_ns in traced.clock_ns]
    apart_ns = max(offsets_ns) - min(offsets_ns)
    got = f"{format_ns(apart_ns)} apart, give or take {format_ns(traced.clock_doubt_ns)}"
    reason = f"cell {expected.cell}: the clocks of its ranks are {got}, and should be {wanted}"
    return make_check(expected.cell, "clocks", wanted, got, reason=None if apart_ns <= expected.bound_ns else reason)


def _check_forward(expected: ForwardTook, found: Found) -> Check:
    cell, unlinked_ns = expected.cell, found.evidence[expected.unlinked].forward_ns
    if unlinked_ns is None:
        reason = f"cell {expected.unlinked}: no rank tells how long forward takes without a link"
        return make_check(cell, "forward", format_ns(expected.expected_ns), "unknown", reason=reason)
    expected_ns = expected.expected_ns + max(0, unlinked_ns - expected.compute_ns)
    slack_ns = round(expected.tolerance * expected_ns)
    bounds = Bounds(expected_ns=expected_ns, low_ns=expected_ns - slack_ns, high_ns=expected_ns + slack_ns)
    return check_bounds(cell, "forward", bounds, found.evidence[cell].forward_ns)
