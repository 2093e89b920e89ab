"""Tables of a run with one row for each cell, or each launch: what a sweep is drawn and compared by."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pandas as pd

from dtbench.base.columns import Better, Column, Table, Unit
from dtbench.base.vocabulary import Purpose
from dtbench.report.page.sweep import exposed_ns
from dtbench.report.words import sentences
from dtbench.report.words.settings import NOT_ON_AXIS, Settings, find_written_settings
from dtbench.runs.cell.summarize_overlap import complete, find_part, fraction, keep_known
from dtbench.runs.reading.knobs import name_knob, put_behind
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.scenario.sweeps.axes import UNSET
from dtbench.traces.known_part import KnownPart


def _known_of(name: str, numbers: str, find: Callable[[CellSummary], KnownPart | None]) -> Column[CellSummary]:
    """Return the column that says of what numbers of a cell are, where they are not of all."""
    return Column(
        name,
        "string",
        None,
        f"over what ranks, launches and steps {numbers}; NA: over all",
        lambda cell: None if (part := find(cell)) is None else str(part),
        may_be_na=True,
    )


_KNOBS: Final = (
    " After `{after}` comes a column for each knob that tells the cells apart, named as the scenario does; NA: a cell "
    "is not on that axis, or leaves it unset."
)


@dataclass(frozen=True)
class _Launch:
    """One launch of a cell: the median of its steps, what its known PROFILED steps tell, and which of all these are."""

    cell: str
    index: int
    step_time_ns: float
    overlap: pd.DataFrame
    part: KnownPart | None

    @property
    def exposed_comm_ns(self) -> float:
        return float(self.overlap["exposed_comm_ns"].mean()) if len(self.overlap) else math.nan


CELLS: Final = Table[RunSummary, RunSummary, CellSummary](
    name="cells",
    doc='Every cell of a run: what `run.metrics()` returns, with `unit="ms"` times in ms and so called.'
    + _KNOBS.format(after="cell"),
    find=lambda summary: ((summary, cell) for cell in summary.cells),
    keys=(Column("run", "string", None, "its id", lambda summary: summary.run_id),),
    columns=(
        Column("cell", "string", None, "its name", lambda cell: cell.name),
        Column(
            "state", "string", None, "passed, not checked, or what speaks against its numbers", sentences.check_word
        ),
        Column("ranks", "int64", Unit.COUNT, "of each launch", lambda cell: cell.plan.ranks),
        Column("launches", "int64", Unit.COUNT, "that its numbers are of", lambda cell: len(cell.launches)),
        Column(
            "step_time_ns",
            "float64",
            Unit.NS,
            "the slowest rank's, median of launch medians of MEASURED steps; NaN: not known",
            lambda cell: cell.step_time.median,
            better=Better.LOWER,
        ),
        Column("step_time_low_ns", "float64", Unit.NS, "of its 95 % interval", lambda cell: cell.step_time.low),
        Column("step_time_high_ns", "float64", Unit.NS, "of that interval", lambda cell: cell.step_time.high),
        Column(
            "tokens_per_s",
            "float64",
            Unit.PER_SECOND,
            "over all ranks; NaN: not known",
            lambda cell: cell.tokens_per_second,
            better=Better.HIGHER,
        ),
        Column(
            "gradient_wait_ns",
            "float64",
            Unit.NS,
            "for reduced gradients, per PROFILED step, mean over ranks; NaN: not known, or there are none",
            lambda cell: sentences.wait_ns(cell, Purpose.GRAD_REDUCE),
            better=Better.LOWER,
        ),
        Column(
            "unshard_wait_ns",
            "float64",
            Unit.NS,
            "for gathered parameters, likewise",
            lambda cell: sentences.wait_ns(cell, Purpose.UNSHARD),
            better=Better.LOWER,
        ),
        Column(
            "exposed_comm_ns",
            "float64",
            Unit.NS,
            "per PROFILED step, mean over ranks, those of `known_of`; NaN: not known",
            exposed_ns,
            better=Better.LOWER,
        ),
        Column(
            "hidden_fraction",
            "float64",
            Unit.FRACTION,
            "of communication; NaN: there is none, or not all of it was seen",
            lambda cell: cell.hidden_fraction,
            better=Better.HIGHER,
        ),
        Column(
            "is_least",
            "bool",
            None,
            "collectives were issued and not seen to run: exposed time is at least so much",
            lambda cell: cell.is_least,
        ),
        _known_of("known_of", "exposed_comm_ns and hidden_fraction are", lambda cell: cell.part),
        _known_of(
            "gradient_wait_known_of",
            "gradient_wait_ns is a mean",
            lambda cell: sentences.wait_part(cell, Purpose.GRAD_REDUCE),
        ),
        _known_of(
            "unshard_wait_known_of",
            "unshard_wait_ns is a mean",
            lambda cell: sentences.wait_part(cell, Purpose.UNSHARD),
        ),
        _known_of("step_time_known_of", "step_time_ns and tokens_per_s are", lambda cell: cell.timed_part),
        Column(
            "is_doubted",
            "bool",
            None,
            "owners and causes are no findings, as the report says and why; as in `dtbench.load_owners`",
            lambda cell: not sentences.has_findings(cell),
        ),
    ),
)

LAUNCHES: Final = Table[Iterable[tuple[str, _Launch]], str, _Launch](
    name="launches",
    doc="Every launch that counts, the unit of statistics: what `run.launches` returns."
    + _KNOBS.format(after="launch"),
    find=lambda launches: launches,
    keys=(Column("run", "string", None, "its id", lambda run: run),),
    columns=(
        Column("cell", "string", None, "its name", lambda one: one.cell),
        Column("launch", "int64", None, "which one of the cell", lambda one: one.index, least=0),
        Column(
            "step_time_ns",
            "float64",
            Unit.NS,
            "the slowest rank's, median over MEASURED steps; NaN: not known",
            lambda one: one.step_time_ns,
            better=Better.LOWER,
        ),
        Column(
            "exposed_comm_ns",
            "float64",
            Unit.NS,
            "mean over its PROFILED steps and ranks of which it is known; NaN: it is of none",
            lambda one: one.exposed_comm_ns,
            better=Better.LOWER,
        ),
        Column(
            "hidden_fraction",
            "float64",
            Unit.FRACTION,
            "of communication in these steps; NaN: there is none, or it is not known",
            lambda one: fraction(one.overlap, "hidden_comm_ns", "comm_ns") if len(one.overlap) else math.nan,
            better=Better.HIGHER,
        ),
        Column(
            "known_of",
            "string",
            None,
            "over what ranks and steps exposed_comm_ns and hidden_fraction are; NA: over all",
            lambda one: None if one.part is None else str(one.part),
            may_be_na=True,
        ),
    ),
)

_NS_PER: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def tabulate_cells(summary: RunSummary, unit: str = "ns") -> pd.DataFrame:
    """Return the cells of a run, a row each, with a column for each knob that tells them apart.

    Args:
        summary: of the run.
        unit: of times: ns, us, ms or s; the names of columns end in it.

    Raises:
        ValueError: there is no such unit.
    """
    return _convert(_add_knobs(CELLS.tabulate(summary), summary, "cell"), unit)


def tabulate_launches(summary: RunSummary, overlap: pd.DataFrame) -> pd.DataFrame:
    """Return the launches of a run, a row each, with a column for each knob that tells its cells apart.

    Args:
        summary: of the run.
        overlap: its table, with the columns ``cell`` and ``launch``.
    """
    return _add_knobs(LAUNCHES.tabulate(_list_launches(summary, overlap)), summary, "launch")


def _list_launches(summary: RunSummary, overlap: pd.DataFrame) -> Iterator[tuple[str, _Launch]]:
    for cell in summary.cells:
        for index, step_time_ns in zip(cell.launches, cell.launch_medians_ns, strict=True):
            mine = overlap[(overlap["cell"] == cell.name) & (overlap["launch"] == index)]
            every, known = complete(mine, (index,), cell.plan.ranks), keep_known(mine)
            yield summary.run_id, _Launch(cell.name, index, step_time_ns, known, find_part(known, every))


def _add_knobs(frame: pd.DataFrame, summary: RunSummary, after: str) -> pd.DataFrame:
    """Put a column for each knob that tells the cells of a run apart behind a column."""
    settings = find_written_settings(summary.cells)
    names = [name for name in next(iter(settings.values()), {}) if _is_knob(name, settings, summary)]
    knobs = {name_knob(name, CELLS.dtypes): [settings[cell][name] for cell in frame["cell"]] for name in names}
    nothing = (NOT_ON_AXIS, UNSET)
    known = {name: [None if value in nothing else value for value in values] for name, values in knobs.items()}
    return put_behind(frame, after, known)


def _is_knob(name: str, settings: Settings, summary: RunSummary) -> bool:
    """Tell whether a setting is a knob: a field that other strategies lack is none of a run of several."""
    kinds = {getattr(getattr(cell.scenario, "parallel", None), "kind", None) for cell in summary.cells}
    return len(kinds) == 1 or all(of_cell[name] != UNSET for of_cell in settings.values())


def _convert(frame: pd.DataFrame, unit: str) -> pd.DataFrame:
    if unit not in _NS_PER:
        raise ValueError(f"`{unit}` is no unit of time; say one of {', '.join(_NS_PER)}")
    times = [str(name) for name in frame.columns if str(name).endswith("_ns")] if unit != "ns" else []
    converted = frame.assign(**{name: frame[name] / _NS_PER[unit] for name in times})
    return converted.rename(columns={name: f"{name.removesuffix('_ns')}_{unit}" for name in times})
