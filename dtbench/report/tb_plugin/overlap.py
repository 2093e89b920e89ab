"""The tab Overlap: where PROFILED steps went, by rank, step, purpose or owner; the numbers of the run's tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import pandas as pd

from dtbench.base.units import format_bytes, format_fraction, format_ns
from dtbench.base.vocabulary import Cause
from dtbench.report.page.cell_page import HIDDEN, step_bar, step_parts
from dtbench.report.page.looks import CAUSE_LOOKS
from dtbench.report.page.page import Bar, BarPart, Chart, Column, Table
from dtbench.report.words import causes, sentences
from dtbench.runs.cell.summarize_overlap import fill_waits, keep_known, keep_of_steps, mean_step
from dtbench.runs.cell.summarize_owners import summarize_owners
from dtbench.traces.time.overlap import divide

if TYPE_CHECKING:
    from dtbench.runs.summary import CellSummary, OwnerSummary


class By(StrEnum):
    """What one bar stands for."""

    RANK = "rank"
    STEP = "step"
    PURPOSE = "purpose"
    OWNER = "owner"


@dataclass(frozen=True)
class Choice:
    """Which rows are counted; None: all of them."""

    by: By
    rank: int | None
    step: int | None


@dataclass(frozen=True)
class OverlapDocument:
    """Bars, with the same numbers as a table; ``ranks`` and ``steps`` can be chosen."""

    sentence: str
    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    chart: Chart | None


@dataclass(frozen=True)
class CellTables:
    """The tables of a cell's launches, each with a column ``launch``."""

    overlap: pd.DataFrame
    purposes: pd.DataFrame
    collectives: pd.DataFrame


def make_overlap(cell: "CellSummary", tables: CellTables, choice: Choice) -> OverlapDocument:
    """Return the bars that a person chose. Means are over all counted steps, ranks and launches."""
    ranks = tuple(int(rank) for rank in sorted(tables.overlap["rank"].unique()))
    steps = tuple(int(step) for step in sorted(tables.overlap["step"].unique()))
    chosen = CellTables(*(_choose(table, choice) for table in (tables.overlap, tables.purposes, tables.collectives)))
    known = keep_known(chosen.overlap)
    windows, left_out = len(known), len(chosen.overlap) - len(known)
    if not windows:
        return OverlapDocument(sentence=_say_nothing(left_out), ranks=ranks, steps=steps, chart=None)
    match choice.by:
        case By.RANK:
            chart = _by_window(cell, known, "rank")
        case By.STEP:
            chart = _by_window(cell, known, "step")
        case By.PURPOSE:
            chart = _by_purpose(keep_of_steps(chosen.purposes, known), windows)
        case By.OWNER:
            chart = _by_owner(chosen.collectives, known)
    exposed = known["exposed_comm_ns"].sum() / known["step_ns"].sum()
    sentence = f"{_count(windows)}; exposed {format_fraction(float(exposed))} of their time{_say_left_out(left_out)}"
    return OverlapDocument(sentence=sentence, ranks=ranks, steps=steps, chart=chart)


def _columns(names: Sequence[str], *, text: int = 1) -> tuple[Column, ...]:
    """Return columns of numbers, the first ``text`` of them of words."""
    return tuple(Column(name, is_number=place >= text) for place, name in enumerate(names))


def _count(windows: int) -> str:
    return "1 profiled step of one rank" if windows == 1 else f"{windows} profiled steps, all ranks' together"


def _say_nothing(left_out: int) -> str:
    if not left_out:
        return "Nothing to show: no step was profiled here, or its traces could not be read."
    return f"Nothing to show: where the time went is not known of {_count(left_out)}."


def _say_left_out(left_out: int) -> str:
    return f"; {left_out} more are left out: where their time went is not known" if left_out else ""


def _choose(table: pd.DataFrame, choice: Choice) -> pd.DataFrame:
    kept = table if choice.rank is None else table[table["rank"] == choice.rank]
    return kept if choice.step is None else kept[(kept["step"] == choice.step).fillna(value=False)]


def _by_window(cell: "CellSummary", overlap: pd.DataFrame, column: str) -> Chart:
    """Return a bar per rank or step, rounded as ``summarize_ranks`` does."""
    idle = sentences.idle_word(cell)
    parts = step_parts(idle)
    rows = [(f"{column} {key}", mean_step(group)) for key, group in overlap.groupby(column)]
    decimals = sentences.decimals_for(row["step_ns"] for _, row in rows)
    shown = ("step_ns", *(part.key for part in parts), "comm_ns", "hidden_comm_ns")
    names = (column, "step", "compute", "exposed comm", "exposed copy", idle, "comm", "hidden comm")
    table = Table(
        title="Mean of a profiled step, ms",
        columns=_columns((*names, "hidden share of comm", "exposed share of step")),
        rows=tuple(
            (
                label.removeprefix(f"{column} "),
                *(sentences.format_ms(row[name], decimals) for name in shown),
                format_fraction(sentences.fraction_of(row["hidden_comm_ns"], row["comm_ns"])),
                format_fraction(sentences.fraction_of(row["exposed_comm_ns"], row["step_ns"])),
            )
            for label, row in rows
        ),
    )
    return Chart(
        title=f"Where a profiled step went, by {column}",
        parts=parts,
        bars=tuple(step_bar(label, row, parts) for label, row in rows),
        below=HIDDEN,
        table=table,
    )


_COMM_PARTS = (
    BarPart("exposed_comm_ns", "exposed", pattern="slash"),
    BarPart("hidden_comm_ns", "hidden behind compute", pattern="slash-light"),
)


def _by_purpose(purposes: pd.DataFrame, windows: int) -> Chart:
    """Return a bar per purpose; a step in which it did not occur counts as zero."""
    means = [(str(key), _mean_purpose(rows, windows)) for key, rows in purposes.groupby("purpose")]
    means.sort(key=lambda item: -(item[1].exposed_ns or 0))
    decimals = sentences.decimals_for(mean.comm_ns or 0 for _, mean in means)
    table = Table(
        title="Per step and rank; times in ms",
        columns=_columns(("purpose", "count", "size", "comm", "hidden", "exposed", "wait", "hidden share")),
        rows=tuple(
            (
                key,
                f"{mean.count:.3g}",
                format_bytes(mean.size_bytes),
                *(
                    sentences.format_ms(time_ns, decimals)
                    for time_ns in (mean.comm_ns, mean.hidden_ns, mean.exposed_ns)
                ),
                f"{mean.wait_word}{sentences.format_ms(mean.wait_ns, decimals)}",
                format_fraction(divide(mean.hidden_ns, mean.comm_ns)),
            )
            for key, mean in means
        ),
    )
    bars = tuple(
        _comm_bar(key, mean, mean.exposed_ns, mean.hidden_ns)
        for key, mean in means
        if mean.exposed_ns is not None and mean.hidden_ns is not None
    )
    return Chart(title="Communication by purpose, per step and rank", parts=_COMM_PARTS, bars=bars, table=table)


@dataclass(frozen=True)
class _MeanPurpose:
    """One purpose's mean over windows; None: not known in any."""

    count: float
    size_bytes: float | None
    hidden_ns: int | None
    exposed_ns: int | None
    wait_ns: int | None
    is_wait_least: bool

    @property
    def wait_word(self) -> str:
        """What stands before the wait where not every consumer can be seen."""
        return "at least " if self.is_wait_least and self.wait_ns is not None else ""

    @property
    def comm_ns(self) -> int | None:
        """Both parts, where both are known."""
        return None if self.hidden_ns is None or self.exposed_ns is None else self.hidden_ns + self.exposed_ns


def _mean_purpose(rows: pd.DataFrame, windows: int) -> _MeanPurpose:
    """Average over windows; one in which the purpose did not occur counts as zero, what is not known is left out."""

    def mean(column: "pd.Series[int]") -> int | None:
        known = column.dropna()
        return int(known.sum()) // (windows - len(rows) + len(known)) if len(known) else None

    return _MeanPurpose(
        count=int(rows["count"].sum()) / windows,
        size_bytes=mean(rows["size_bytes"]),
        hidden_ns=mean(rows["hidden_ns"]),
        exposed_ns=mean(rows["exposed_ns"]),
        wait_ns=mean(fill_waits(rows)),
        is_wait_least=bool(rows["is_wait_least"].eq(other=True).any()),
    )


def _comm_bar(label: str, mean: _MeanPurpose, exposed_ns: int, hidden_ns: int) -> Bar:
    hidden = f"hidden {format_fraction(divide(mean.hidden_ns, mean.comm_ns))}"
    return Bar(
        label=label,
        lengths_ns=(exposed_ns, hidden_ns),
        words=(format_ns(exposed_ns), format_ns(hidden_ns)),
        end=f"{hidden}, waited {mean.wait_word}{format_ns(mean.wait_ns)}",
    )


def cause_parts() -> tuple[BarPart, ...]:
    """Return the parts of exposed time, in the order in which causes take theirs."""
    looks = ((cause, CAUSE_LOOKS[cause]) for cause in Cause)
    return tuple(
        BarPart(cause.value, causes.describe_cause(cause), look.colour, look.pattern, look.is_dark)
        for cause, look in looks
    )


def _by_owner(collectives: pd.DataFrame, steps: pd.DataFrame) -> Chart:
    """Return a bar per owner, operation and purpose, split by cause, as the overview has them."""
    found: dict[tuple[str, str, str], list[OwnerSummary]] = {}
    for row in summarize_owners(collectives, steps):
        found.setdefault((row.owner, row.operation or "", row.purpose), []).append(row)
    rows = sorted(found.values(), key=lambda rows: -rows[0].owner_exposed_ns)
    total_ns = sum(parts[0].owner_exposed_ns for parts in rows)
    decimals = sentences.decimals_for(parts[0].owner_exposed_ns for parts in rows)
    table = Table(
        title="Exposed communication per step and rank; times in ms",
        columns=_columns(("owner", "collective", "purpose", "mostly", "exposed", "share"), text=4),
        rows=tuple(
            (
                causes.spell_owner(parts[0].owner) if parts[0].owner else causes.UNATTRIBUTED,
                causes.name_operation(parts[0].operation),
                parts[0].purpose.value,
                causes.describe_cause(parts[0].cause, waited_for=parts[0].waited_for),
                sentences.format_ms(parts[0].owner_exposed_ns, decimals),
                format_fraction(sentences.fraction_of(parts[0].owner_exposed_ns, total_ns)),
            )
            for parts in rows
        ),
    )
    note = "" if rows or not steps["exposed_comm_ns"].sum() else "Whose the exposed time is, and why, is not known."
    bars = tuple(_owner_bar(parts) for parts in rows)
    title = "Exposed time by owner and cause, per step and rank"
    return Chart(title=title, parts=cause_parts(), bars=bars, note=note, table=table)


def _owner_bar(parts: Sequence["OwnerSummary"]) -> Bar:
    by_cause = {part.cause: part.exposed_ns for part in parts}
    lengths = tuple(by_cause.get(cause, 0) for cause in Cause)
    return Bar(
        label=causes.name_collective(parts[0].owner or None, parts[0].operation),
        lengths_ns=lengths,
        words=tuple(format_ns(length) for length in lengths),
        end=format_ns(parts[0].owner_exposed_ns),
    )
