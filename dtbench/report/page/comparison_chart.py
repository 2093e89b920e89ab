"""Where a profiled step of two sides went, as a bar each."""

import math
from collections.abc import Sequence
from typing import Final

from dtbench.base.units import format_fraction, format_ns
from dtbench.comparison.comparison import Comparison, Outcome, Sample
from dtbench.comparison.metrics import EXPOSED
from dtbench.report.page.looks import step_parts
from dtbench.report.page.page import Bar, Chart
from dtbench.traces.time.overlap import divide


def sides_chart(comparison: Comparison) -> Chart | None:
    """Return a bar of each side: medians over launches of each part; None where these cannot be compared."""
    parts = step_parts("idle")
    found = {change.metric: change for change in comparison.metrics if not change.subject}
    changes = [found.get(_METRICS.get(part.key, "")) for part in parts]
    known = [(part, change) for part, change in zip(parts, changes, strict=True) if change is not None]
    samples = {
        comparison.baseline.label: [change.baseline for _, change in known],
        comparison.candidate.label: [change.candidate for _, change in known],
    }
    if any(change.outcome is Outcome.UNKNOWN for _, change in known):
        return None
    sides = {name: [sample.median for sample in of_side] for name, of_side in samples.items()}
    if any(math.isnan(time_ns) for times_ns in sides.values() for time_ns in times_ns) or not known:
        return None
    exposed_at = next((at for at, (part, _) in enumerate(known) if part.key == "exposed_comm_ns"), None)
    launches = {name: {_find_known(sample) for sample in of_side} for name, of_side in samples.items()}
    if exposed_at is None or any(len(one) > 1 for one in launches.values()):
        return None
    of_some = [_say_known(name, one.pop()) for name, one in launches.items()]
    doubt = ["no finding, see above"] if comparison.doubts else []
    return Chart(
        title="Where a profiled step went, medians over launches",
        parts=tuple(part for part, _ in known),
        bars=tuple(_bar(name, times_ns, exposed_at) for name, times_ns in sides.items()),
        note="; ".join(["without copies", "the share is of what is drawn", *filter(None, of_some), *doubt]),
        figures=("exposed", "share"),
        key="sides",
    )


def _find_known(sample: Sample) -> tuple[bool, ...]:
    """Return for each launch whether it tells a number."""
    return tuple(not math.isnan(value) for value in sample.values)


def _say_known(name: str, known: Sequence[bool]) -> str:
    """Say of how many launches a side's bar is, where that is not all; empty: it is."""
    return "" if all(known) else f"{name}: of {sum(known)} of {len(known)} launches"


_METRICS: Final = {"compute_ns": "compute", "exposed_comm_ns": EXPOSED, "idle_ns": "idle"}


def _bar(name: str, times_ns: list[float], exposed_at: int) -> Bar:
    exposed, share = format_ns(times_ns[exposed_at]), format_fraction(divide(times_ns[exposed_at], sum(times_ns)))
    return Bar(
        label=name,
        lengths_ns=tuple(map(round, times_ns)),
        words=tuple(map(format_ns, times_ns)),
        end=f"exposed {exposed} ({share})",
        figures=(exposed, share),
    )
