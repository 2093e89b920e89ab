"""Forecasts beside what their changes took."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dtbench.comparison.statistics import compare_samples
from dtbench.proof.claims import Claim
from dtbench.runs.cell.shift import LEVEL
from dtbench.runs.settings.base import why_not_measured
from dtbench.runs.summary import CellSummary, RunSummary

WIDEST: Final = 0.05
"""Of a step: a measured saving whose interval is wider to either side tells nothing of a forecast."""


@dataclass(frozen=True)
class Proven:
    """One change, run; times in ns, of MEASURED steps of the slowest rank.

    Attributes:
        claim: what was said.
        base_ns, changed_ns: median over launches; NaN: not known.
        low_ns, high_ns: 95 % interval of the saving, for all changes together; NaN: too few launches.
        forecast_ns: what the changed step was said to be, of the base as it was in this run; None: nothing was said.
        doubt: why neither may be gone by; empty: nothing speaks against them.
    """

    claim: Claim
    base_ns: float
    changed_ns: float
    low_ns: float
    high_ns: float
    forecast_ns: float | None
    doubt: str

    @property
    def saving_ns(self) -> float:
        """By how much the changed step is shorter."""
        return self.base_ns - self.changed_ns

    @property
    def is_judged(self) -> bool:
        """Whether anything may be said of it."""
        return not self.doubt and not math.isnan(self.low_ns)

    @property
    def saves(self) -> bool:
        """Whether the changed step is surely shorter."""
        return self.is_judged and self.low_ns > 0

    @property
    def error(self) -> float | None:
        """By which share of the measured step the forecast is off; None: there is none, or nothing to hold it to."""
        if self.forecast_ns is None or self.doubt or math.isnan(self.changed_ns):
            return None
        return self.forecast_ns / self.changed_ns - 1

    @property
    def agrees(self) -> bool | None:
        """Whether the interval that was said and the one that was measured have a saving in common; None: not known.

        Not known, too, where what was measured varies by more than ``WIDEST``: that would agree with anything.
        """
        said = self.claim.forecast
        if said is None or said.low_ns is None or said.high_ns is None or not self.is_judged:
            return None
        if self.high_ns - self.low_ns > 2 * WIDEST * self.base_ns:
            return None
        return said.low_ns <= self.high_ns and self.low_ns <= said.high_ns


def read_proof(summary: RunSummary, claims: Sequence[Claim]) -> tuple[Proven, ...]:
    """Hold each claim against the run that was made for them; those whose cells are not there are left out."""
    cells = {cell.name: cell for cell in summary.cells}
    there = [claim for claim in claims if claim.cell in cells and claim.changed in cells]
    return tuple(_hold(claim, cells[claim.cell], cells[claim.changed], LEVEL / len(there)) for claim in there)


def _hold(claim: Claim, base: CellSummary, changed: CellSummary, level: float) -> Proven:
    samples = base.launch_medians_ns, changed.launch_medians_ns
    found = compare_samples(*samples, is_interleaved=True, threshold=0.0, level=level)
    base_ns, said = found.baseline_median, claim.forecast
    doubts = [f"{cell.name}: {why}" for cell in (base, changed) if (why := why_not_measured(cell)) is not None]
    return Proven(
        claim=claim,
        base_ns=base_ns,
        changed_ns=found.candidate_median,
        low_ns=base_ns * (1 - found.high),
        high_ns=base_ns * (1 - found.low),
        forecast_ns=None if said is None else base_ns * said.step_ns / (said.step_ns + said.saving_ns),
        doubt="; ".join(doubts),
    )
