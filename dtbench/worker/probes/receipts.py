"""What became of the wish to probe functions and to trace lines."""

from collections.abc import Iterator

from dtbench.scenario.schema.scenario import Measure
from dtbench.seeds.functions import stem_of
from dtbench.store.records.probes import LineRecord, Probes
from dtbench.store.records.rank import Receipt, ReceiptOutcome


def read_probe_receipts(measure: Measure, probes: Probes | None, lines: LineRecord | None) -> Iterator[Receipt]:
    """Say how many functions were wrapped and which not, and how many were seen to run; nothing that nobody asked for.

    A function that the installed torch does not have costs its probe, not the run.
    """
    if probes is not None:
        asked = len(probes.functions) + len(probes.unprobed)
        reasons: dict[str, list[str]] = {}
        for one in probes.unprobed:
            if " makes it anew " not in one.reason:
                reasons.setdefault(one.reason, []).append(f"{stem_of(one.file)}.{one.name}")
        yield Receipt(
            knob="measure.probes",
            asked="[" + ", ".join(measure.probes) + "]",
            got=f"{len(probes.functions)} of {asked} functions have a probe",
            outcome=ReceiptOutcome.NO_EFFECT if reasons else ReceiptOutcome.AGREES,
            note="; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items()),
        )
    if lines is not None:
        ran = sum(bool(function.lines) for function in lines.functions)
        yield Receipt(
            knob="measure.line_coverage",
            asked="true",
            got=f"{lines.tracer} saw {ran} of {len(lines.functions)} functions run",
            outcome=ReceiptOutcome.AGREES,
        )
