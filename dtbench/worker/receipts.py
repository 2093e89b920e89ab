"""Compare what was asked with what torch says it got."""

from dtbench.store.records.rank import Receipt, ReceiptOutcome


def compare(knob: str, asked: object, got: object, *, expected: object = None, note: str = "") -> Receipt:
    """Make a receipt: ``got`` agrees when it equals ``expected``, or ``asked`` where torch keeps what it was given.

    Args:
        knob: dotted path in the scenario.
        asked: as the scenario says it.
        got: as torch says it.
        expected: what ``got`` must be when the scenario's word and torch's differ (``None`` asked, 25 MiB expected).
        note: said whatever the outcome.
    """
    wanted = asked if expected is None else expected
    outcome = ReceiptOutcome.AGREES if wanted == got else ReceiptOutcome.DISAGREES
    if outcome is ReceiptOutcome.DISAGREES and expected is not None:
        note = f"expected {_text(expected)}" + (f"; {note}" if note else "")
    return Receipt(knob=knob, asked=_text(asked), got=_text(got), outcome=outcome, note=note)


def without_effect(receipt: Receipt, reason: str) -> Receipt:
    """Say why a knob that torch accepted changes nothing here; a disagreement stays a disagreement."""
    if receipt.outcome is ReceiptOutcome.DISAGREES:
        return receipt
    return receipt.model_copy(update={"outcome": ReceiptOutcome.NO_EFFECT, "note": reason})


def _text(value: object) -> str:
    match value:
        case None:
            return "unset"
        case bool():
            return "true" if value else "false"
        case tuple() | list():
            return "[" + ", ".join(_text(item) for item in value) + "]"
        case _:
            return str(value)
