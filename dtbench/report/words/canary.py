"""Words on missing waits: whether steps with poisoned buffers ended as others do, and who was read too early."""

import math

from dtbench.report.words.causes import name_operation, spell_owner
from dtbench.store.records.canary import CanaryResult, MissedWait


def canary_words(result: CanaryResult) -> str:
    """Say whether anything was read before its collective was done."""
    if result.passed is None:
        return f"it cannot be told whether a wait is missing: {result.reason}"
    steps = f"{result.steps} steps with poison in place of what had not arrived"
    errors = f"losses {_format_error(result.loss_error)}, gradients {_format_error(result.gradient_error)}"
    if not result.passed:
        missed = "; ".join(_missed_words(missed) for missed in result.missed) or "it cannot be told whose"
        return f"FAILED, a wait is missing: {missed} ({steps} differ from one without it: {errors})"
    equal = "equal losses and gradients" if result.is_equal else f"the same within rounding ({errors})"
    return f"no missing wait: {steps} gave {equal} ({_count(result.collectives)} each)"


def _missed_words(missed: MissedWait) -> str:
    """Name what was read too early."""
    name = name_operation(missed.operation)
    what = f"the {name}" if missed.count == 1 else f"one of {missed.count} {name}s"
    place = "" if missed.place is None else f" number {missed.place + 1}"
    owner = "" if missed.owner is None else f" of {spell_owner(missed.owner)}"
    where = ", ".join(word.value for word in (missed.purpose, missed.region) if word is not None)
    late = "was read before it was done" if missed.was_awaited else "was read, and nobody waited for it"
    return f"{what}{place}{owner}{f' ({where})' if where else ''} {late}"


def _count(collectives: int) -> str:
    return f"{collectives} collective{'' if collectives == 1 else 's'}"


def _format_error(error: float) -> str:
    """Spell a relative difference; one with poison itself is no number."""
    return "not finite" if math.isinf(error) else f"off by {error:.1e}"
