"""What a notebook gets of a comparison: the answer in words, and tables.

Columns, times in ns, ratios candidate over baseline:

* ``metrics``: ``metric``, ``subject``, ``unit``, ``baseline`` and ``candidate`` (medians over launches), ``ratio``,
  ``low`` and ``high`` (its 95 % interval), ``p_value`` (both corrected for how many were tested), ``detectable``,
  ``outcome``, ``baseline_launches`` and ``candidate_launches`` (lists)
* ``mechanism``: ``what``, ``subject``, ``baseline``, ``candidate``, as text
* ``collectives``: ``owner``, ``operation``, ``purpose``, ``cause``; ``exposed_ns``, ``duration_ns`` and ``count`` of
  both sides, per step and rank
"""

from dataclasses import dataclass
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pandas as pd

from dtbench.comparison.comparison import CollectiveChange, Comparison, MetricChange
from dtbench.comparison.run import compare_paths
from dtbench.report.notebook.loaded import RunReport
from dtbench.report.page.comparison_page import basis_lines, comparisons_page, remark_lines
from dtbench.report.page.visible import spell_controls
from dtbench.report.render.html import page_html

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Compared = str | PathLike[str] | RunReport
"""What may be compared: what ``dtbench compare`` takes, or a run that was loaded."""


@dataclass(frozen=True, repr=False)
class ComparisonReport:
    """Two sides against each other; ``print`` it for the answer in words.

    Attributes:
        comparison: every number as one frozen value, as ``dtbench compare --json`` prints it.
    """

    comparison: Comparison

    @property
    def sentence(self) -> str:
        """The answer."""
        return self.comparison.sentence

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out or is unlike, and why."""
        left_out = (f"WARNING: left out: {words}" for words in self.comparison.left_out)
        return (*left_out, *remark_lines(self.comparison))

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """What it cost: one row per metric, step time first."""
        return pd.DataFrame([_metric_row(row) for row in self.comparison.metrics], columns=_METRICS)

    @cached_property
    def mechanism(self) -> pd.DataFrame:
        """What was done differently, one row each; none: nothing."""
        rows = [row.model_dump() for row in self.comparison.mechanism]
        return pd.DataFrame(rows, columns=["what", "subject", "baseline", "candidate"], dtype="string")

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """Whose exposed time changed, largest change first: means per step and rank."""
        return pd.DataFrame([_collective_row(row) for row in self.comparison.collectives], columns=_COLLECTIVES)

    def plot(self) -> "Figure":
        """Draw each metric's change with its interval."""
        from dtbench.report.plots.names import plot_comparison

        return plot_comparison(self.comparison)

    def __str__(self) -> str:
        notes = (f"Note: {note}" for note in self.notes)
        return spell_controls("\n".join([self.sentence, *basis_lines(self.comparison), *notes]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return page_html(comparisons_page([self.comparison]), headless=True)


def compare(
    baseline: Compared, candidate: Compared, *, results: Path, force: bool, threshold: float
) -> ComparisonReport:
    """Compare two things; raises as ``compare_paths``."""
    before, after = _name(baseline), _name(candidate)
    return ComparisonReport(compare_paths(before, after, results=results, force=force, threshold=threshold))


def _name(compared: Compared) -> str:
    return compared.summary.path if isinstance(compared, RunReport) else fspath(compared)


_METRICS: Final = [
    "metric",
    "subject",
    "unit",
    "baseline",
    "candidate",
    "ratio",
    "low",
    "high",
    "p_value",
    "detectable",
    "outcome",
    "baseline_launches",
    "candidate_launches",
]


def _metric_row(row: MetricChange) -> dict[str, object]:
    return {
        "metric": row.metric,
        "subject": row.subject,
        "unit": row.unit.value,
        "baseline": row.baseline.median,
        "candidate": row.candidate.median,
        "ratio": row.ratio,
        "low": row.low,
        "high": row.high,
        "p_value": row.p_value,
        "detectable": row.detectable,
        "outcome": row.outcome.value,
        "baseline_launches": list(row.baseline.values),
        "candidate_launches": list(row.candidate.values),
    }


_COLLECTIVES: Final = [
    "owner",
    "operation",
    "purpose",
    "cause",
    "baseline_exposed_ns",
    "candidate_exposed_ns",
    "baseline_duration_ns",
    "candidate_duration_ns",
    "baseline_count",
    "candidate_count",
]


def _collective_row(row: CollectiveChange) -> dict[str, object]:
    return {
        "owner": row.owner,
        "operation": str(row.operation or ""),
        "purpose": str(row.purpose),
        "cause": str(row.cause or ""),
        "baseline_exposed_ns": row.exposed_ns[0],
        "candidate_exposed_ns": row.exposed_ns[1],
        "baseline_duration_ns": row.duration_ns[0],
        "candidate_duration_ns": row.duration_ns[1],
        "baseline_count": row.count[0],
        "candidate_count": row.count[1],
    }
