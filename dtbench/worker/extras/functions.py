"""The functions of torch under study, as two extras look on: probes count and time them, lines are traced."""

from dtbench.seeds.functions import choose, stem_of
from dtbench.store.records.probes import LineRecord, Probes
from dtbench.store.records.rank import Receipt, ReceiptOutcome
from dtbench.worker.extras.extra import Finding, Watch
from dtbench.worker.loop.context import RankContext
from dtbench.worker.probes.install import InstalledProbes
from dtbench.worker.probes.lines import LineWitness


def watch_functions(at: RankContext) -> Watch | None:
    """Probe the functions that ``measure.probes`` names; None: it names none."""
    asked = at.scenario.measure.probes
    probes = InstalledProbes(choose(asked), at.recorder)

    def read() -> Finding:
        seen = probes.read()
        return Finding(seen, (make_probe_receipt(asked, seen),))

    return Watch(probes, read) if asked else None


def watch_lines(at: RankContext) -> Watch | None:
    """Trace the lines of the files under study; None: ``measure.line_coverage`` does not ask for it."""
    if not at.scenario.measure.line_coverage:
        return None
    witness = LineWitness(at.folder.lines(at.rank.rank), at.rank.rank)
    return Watch(witness, lambda: Finding(None, (make_line_receipt(witness.read()),)), after_step=witness.save)


def make_probe_receipt(asked: tuple[str, ...], probes: Probes) -> Receipt:
    """Say how many functions were wrapped and which not: one that the installed torch lacks costs its probe only."""
    reasons: dict[str, list[str]] = {}
    for one in probes.unprobed:
        if " makes it anew " not in one.reason:
            reasons.setdefault(one.reason, []).append(f"{stem_of(one.file)}.{one.name}")
    return Receipt(
        knob="measure.probes",
        asked="[" + ", ".join(asked) + "]",
        got=f"{len(probes.functions)} of {len(probes.functions) + len(probes.unprobed)} functions have a probe",
        outcome=ReceiptOutcome.NO_EFFECT if reasons else ReceiptOutcome.AGREES,
        note="; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items()),
    )


def make_line_receipt(lines: LineRecord) -> Receipt:
    """Say how many functions were seen to run."""
    ran = sum(bool(function.lines) for function in lines.functions)
    return Receipt(
        knob="measure.line_coverage",
        asked="true",
        got=f"{lines.tracer} saw {ran} of {len(lines.functions)} functions run",
        outcome=ReceiptOutcome.AGREES,
    )
