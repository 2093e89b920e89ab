"""What a notebook gets of a comparison: its answer, and tables with the columns of ``docs/reference/tables.md``."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pandas as pd

from dtbench.base.columns import ANY, Column, Table, Unit
from dtbench.base.errors import UndecidedError
from dtbench.comparison.comparison import CollectiveChange, Comparison, KernelChange, MechanismChange, MetricChange
from dtbench.comparison.gate import Bound, Gate, bound_step_time, check_subjects, judge, read_bound
from dtbench.comparison.run import compare_paths
from dtbench.report.notebook.loaded import RunReport
from dtbench.report.page.comparison_page import basis_lines, comparisons_page, kernel_lines, remark_lines
from dtbench.report.render.html import page_html
from dtbench.report.words.visible import spell_controls

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Compared = str | PathLike[str] | RunReport
"""What may be compared: what ``dtbench compare`` takes, or a run that was loaded."""


METRICS: Final = Table[Comparison, None, MetricChange](
    name="metrics",
    doc="What it cost: one row per metric and subject, step time first.",
    find=lambda comparison: ((None, row) for row in comparison.metrics),
    keys=(),
    columns=(
        Column("metric", "str", None, "a word that `--fail-if` takes", lambda row: row.metric),
        Column(
            "subject",
            "str",
            None,
            "what it is of: a purpose, or an owner; empty: the whole step",
            lambda row: row.subject,
        ),
        Column("unit", "str", None, "of both medians", lambda row: row.unit.value),
        Column("baseline", "float64", None, "median over launches", lambda row: row.baseline.median, least=ANY),
        Column("candidate", "float64", None, "median over launches", lambda row: row.candidate.median, least=ANY),
        Column("ratio", "float64", None, "of the medians, candidate over baseline", lambda row: row.ratio, least=ANY),
        Column(
            "low",
            "float64",
            None,
            "of the 95 % interval of the ratio, corrected for how many were tested",
            lambda row: row.low,
            least=ANY,
        ),
        Column("high", "float64", None, "of that interval", lambda row: row.high, least=ANY),
        Column(
            "p_value",
            "float64",
            Unit.FRACTION,
            "corrected for how many were tested; NaN: nothing was tested",
            lambda row: row.p_value,
        ),
        Column(
            "detectable",
            "float64",
            None,
            "smallest relative change that as many launches of this spread would find 8 times of 10",
            lambda row: row.detectable,
            least=0,
        ),
        Column("outcome", "str", None, "what it comes to", lambda row: row.outcome.value),
        Column(
            "baseline_launches",
            "object",
            None,
            "a list: the value of each launch",
            lambda row: list(row.baseline.values),
        ),
        Column(
            "candidate_launches",
            "object",
            None,
            "a list: the value of each launch",
            lambda row: list(row.candidate.values),
        ),
    ),
)

MECHANISM: Final = Table[Comparison, None, MechanismChange](
    name="mechanism",
    doc="What was done differently, one row each; no row: nothing that was seen, see mechanism_doubts.",
    find=lambda comparison: ((None, row) for row in comparison.mechanism),
    keys=(),
    columns=(
        Column(
            "what", "string", None, "what was done differently: count, size_bytes, order, ...", lambda row: row.what
        ),
        Column("subject", "string", None, "of whom", lambda row: row.subject),
        Column("baseline", "string", None, "as text", lambda row: row.baseline),
        Column("candidate", "string", None, "as text", lambda row: row.candidate),
    ),
)

COLLECTIVES: Final = Table[Comparison, None, CollectiveChange](
    name="compared_collectives",
    doc="Whose exposed time changed, largest change first: means per step and rank. It is `.collectives` of a "
    "comparison.",
    find=lambda comparison: ((None, row) for row in comparison.collectives),
    keys=(),
    columns=(
        Column("owner", "str", None, "whose; empty: unattributed", lambda row: row.owner),
        Column("operation", "str", None, "all_gather, ...; empty: not known", lambda row: str(row.operation or "")),
        Column("purpose", "str", None, "what it is for", lambda row: str(row.purpose)),
        Column(
            "cause",
            "str",
            None,
            "why it was exposed; empty: it was not, or not known",
            lambda row: str(row.cause or ""),
        ),
        Column(
            "baseline_exposed_ns",
            "float64",
            Unit.NS,
            "exposed, per step and rank, of the baseline",
            lambda row: row.exposed_ns[0],
        ),
        Column(
            "candidate_exposed_ns",
            "float64",
            Unit.NS,
            "exposed, per step and rank, of the candidate",
            lambda row: row.exposed_ns[1],
        ),
        Column(
            "baseline_duration_ns",
            "float64",
            Unit.NS,
            "they ran, per step and rank, of the baseline",
            lambda row: row.duration_ns[0],
        ),
        Column(
            "candidate_duration_ns",
            "float64",
            Unit.NS,
            "they ran, per step and rank, of the candidate",
            lambda row: row.duration_ns[1],
        ),
        Column(
            "baseline_count",
            "float64",
            Unit.COUNT,
            "collectives, per step and rank, of the baseline",
            lambda row: row.count[0],
        ),
        Column(
            "candidate_count",
            "float64",
            Unit.COUNT,
            "collectives, per step and rank, of the candidate",
            lambda row: row.count[1],
        ),
    ),
)


KERNELS: Final = Table[Comparison, None, KernelChange](
    name="kernels",
    doc="Compute kernels in the traces of both sides, those with the same work first, by the time lost per step. It is "
    "`.kernels` of a comparison of traces of a device.",
    find=lambda comparison: ((None, row) for row in comparison.kernels),
    keys=(),
    columns=(
        Column("kernel", "str", None, "its name", lambda row: row.name),
        Column("shape", "str", None, "its launch shape, grid and block; empty: not told", lambda row: row.shape),
        Column("baseline_count", "float64", Unit.COUNT, "runs per step and rank", lambda row: row.count[0]),
        Column("candidate_count", "float64", Unit.COUNT, "runs per step and rank", lambda row: row.count[1]),
        Column(
            "baseline_median_ns",
            "float64",
            Unit.NS,
            "of its runs, the median over steps; NaN: it did not run",
            lambda row: row.median_ns[0],
        ),
        Column("candidate_median_ns", "float64", Unit.NS, "likewise", lambda row: row.median_ns[1]),
        Column(
            "ratio",
            "float64",
            None,
            "of the medians, candidate over baseline; NaN: they did not, or are not known to, do the same work",
            lambda row: row.ratio,
            least=0,
        ),
        Column("low", "float64", None, "of the 95 % interval of the ratio over steps", lambda row: row.low, least=ANY),
        Column("high", "float64", None, "of that interval", lambda row: row.high, least=ANY),
        Column("outcome", "str", None, "what it comes to, of these traces alone", lambda row: row.outcome.value),
        Column(
            "is_same_work",
            "bool",
            None,
            "both are known to run it equally often in each step, with one launch shape",
            lambda row: row.is_same_work,
        ),
    ),
)


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
        return METRICS.tabulate(self.comparison)

    @cached_property
    def mechanism(self) -> pd.DataFrame:
        """What was done differently, one row each; none: nothing."""
        return MECHANISM.tabulate(self.comparison)

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """Whose exposed time changed, largest change first: means per step and rank."""
        return COLLECTIVES.tabulate(self.comparison)

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """What compute kernels took in traces of both sides: the table ``kernels``; no row: not told."""
        return KERNELS.tabulate(self.comparison)

    def assert_kept(self, *bounds: str, pass_unestablished: bool = False) -> None:
        """Raise unless every bound is kept, by the words of ``dtbench compare --fail-if``. ::

            found.assert_kept("step_time > 5%", "mechanism changed")

        Args:
            bounds: each as ``--fail-if`` takes it.
            pass_unestablished: let one pass that the launches neither exceed nor keep for sure.

        Raises:
            AssertionError: one is exceeded, and that is established.
            UndecidedError: none is, but one is not established, or cannot be judged, as of fewer than four launches.
            BoundError: one cannot be read, or is on nothing that there is.
        """
        self._hold([read_bound(one) for one in bounds], pass_unestablished=pass_unestablished)

    def assert_no_slowdown(self, max_percent: float = 5.0, *, pass_unestablished: bool = False) -> None:
        """Raise unless the step time is longer by no more than so many percent; raises as ``assert_kept``."""
        self._hold([bound_step_time(max_percent)], pass_unestablished=pass_unestablished)

    def _hold(self, bounds: Sequence[Bound], *, pass_unestablished: bool) -> None:
        check_subjects(bounds, [self.comparison])
        judgements = tuple(judge(bound, self.comparison) for bound in bounds)
        gate = Gate(judgements, self.comparison.left_out, pass_unestablished)
        if gate.exceeded:
            raise AssertionError(spell_controls("\n".join((*gate.exceeded, *gate.undecided))))
        if gate.undecided:
            raise UndecidedError("\n".join(gate.undecided))

    def plot(self) -> "Figure":
        """Draw each metric's change with its interval."""
        from dtbench.report.plots.names import plot_comparison

        return plot_comparison(self.comparison)

    def __str__(self) -> str:
        notes = (f"Note: {note}" for note in self.notes)
        said = [self.sentence, *kernel_lines(self.comparison), *basis_lines(self.comparison)]
        return spell_controls("\n".join([*said, *notes]))

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
