"""The tab Overlap: where PROFILED steps went, by rank, step, purpose or owner; the numbers of the run's tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import pandas as pd

from dtbench.analyze.summarize_owners import summarize_owners
from dtbench.analyze.tables import OVERLAP
from dtbench.report import causes, sentences
from dtbench.report.board.shapes import HIDDEN, Bar, Chart, Part, Table, headers, step_bar, step_parts
from dtbench.units import format_bytes, format_fraction, format_ns
from dtbench.vocabulary import Cause

if TYPE_CHECKING:
    from dtbench.analyze.summary import CellSummary, OwnerSummary


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
    """Bars and the same numbers as a table; ``ranks`` and ``steps`` can be chosen."""

    sentence: str
    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    chart: Chart | None
    table: Table | None


@dataclass(frozen=True)
class CellTables:
    """The tables of a cell's launches, each with a column ``launch``."""

    overlap: pd.DataFrame
    purposes: pd.DataFrame
    collectives: pd.DataFrame


def make_overlap(cell: "CellSummary", tables: CellTables, choice: Choice) -> OverlapDocument:
    """Give the bars that a person chose. Means are over all counted steps, ranks and launches."""
    ranks = tuple(int(rank) for rank in sorted(tables.overlap["rank"].unique()))
    steps = tuple(int(step) for step in sorted(tables.overlap["step"].unique()))
    chosen = CellTables(*(_choose(table, choice) for table in (tables.overlap, tables.purposes, tables.collectives)))
    windows = len(chosen.overlap)
    if not windows:
        why = "Nothing to show: no step was profiled here, or its traces could not be read."
        return OverlapDocument(sentence=why, ranks=ranks, steps=steps, chart=None, table=None)
    match choice.by:
        case By.RANK:
            chart, table = _by_window(cell, chosen.overlap, "rank")
        case By.STEP:
            chart, table = _by_window(cell, chosen.overlap, "step")
        case By.PURPOSE:
            chart, table = _by_purpose(chosen.purposes, windows)
        case By.OWNER:
            chart, table = _by_owner(chosen.collectives, windows)
    exposed = chosen.overlap["exposed_comm_ns"].sum() / chosen.overlap["step_ns"].sum()
    sentence = f"{_count(windows)}; exposed {format_fraction(float(exposed))} of their time"
    return OverlapDocument(sentence=sentence, ranks=ranks, steps=steps, chart=chart, table=table)


def _count(windows: int) -> str:
    return "1 profiled step of one rank" if windows == 1 else f"{windows} profiled steps, all ranks' together"


def _choose(table: pd.DataFrame, choice: Choice) -> pd.DataFrame:
    kept = table if choice.rank is None else table[table["rank"] == choice.rank]
    return kept if choice.step is None else kept[(kept["step"] == choice.step).fillna(value=False)]


def _by_window(cell: "CellSummary", overlap: pd.DataFrame, column: str) -> tuple[Chart, Table]:
    """Give a bar per rank or step, rounded as ``summarize_ranks`` does."""
    idle = sentences.idle_word(cell)
    parts = step_parts(idle)
    rows = [(f"{column} {key}", _mean_step(group)) for key, group in overlap.groupby(column)]
    decimals = sentences.decimals_for(row["step_ns"] for _, row in rows)
    shown = ("step_ns", *(part.key for part in parts), "comm_ns", "hidden_comm_ns")
    names = (column, "step", "compute", "exposed comm", "exposed copy", idle, "comm", "hidden comm")
    table = Table(
        title="Mean of a profiled step, ms",
        columns=headers((*names, "hidden share of comm", "exposed share of step")),
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
    chart = Chart(
        title=f"Where a profiled step went, by {column}",
        parts=parts,
        bars=tuple(step_bar(label, row, parts) for label, row in rows),
        below=HIDDEN,
    )
    return chart, table


def _mean_step(group: pd.DataFrame) -> dict[str, int]:
    mean = {name: int(group[name].sum()) // len(group) for name in OVERLAP if name.endswith("_ns")}
    mean["comm_ns"] = mean["hidden_comm_ns"] + mean["exposed_comm_ns"]
    mean["idle_ns"] = mean["step_ns"] - mean["compute_ns"] - mean["exposed_comm_ns"] - mean["exposed_copy_ns"]
    return mean


_COMM_PARTS = (Part("exposed_comm_ns", "exposed"), Part("hidden_comm_ns", "hidden beside compute"))


def _by_purpose(purposes: pd.DataFrame, windows: int) -> tuple[Chart, Table]:
    """Give a bar per purpose; a step in which it did not occur counts as zero."""
    names = ["count", "size_bytes", "hidden_ns", "exposed_ns", "wait_ns"]
    sums = purposes.groupby("purpose")[names].sum().sort_values("exposed_ns", ascending=False)
    rows = [(str(key), {name: int(row[name]) for name in names}) for key, row in sums.iterrows()]
    means = [(key, {name: row[name] // windows for name in names[2:]}) for key, row in rows]
    decimals = sentences.decimals_for(mean["hidden_ns"] + mean["exposed_ns"] for _, mean in means)
    table = Table(
        title="Per step and rank; times in ms",
        columns=headers(("purpose", "count", "size", "comm", "hidden", "exposed", "wait", "hidden share")),
        rows=tuple(
            (
                key,
                f"{row['count'] / windows:.3g}",
                format_bytes(row["size_bytes"] / windows),
                *(
                    sentences.format_ms(time_ns, decimals)
                    for time_ns in (
                        mean["hidden_ns"] + mean["exposed_ns"],
                        mean["hidden_ns"],
                        mean["exposed_ns"],
                        mean["wait_ns"],
                    )
                ),
                format_fraction(sentences.fraction_of(row["hidden_ns"], row["hidden_ns"] + row["exposed_ns"])),
            )
            for (key, row), (_, mean) in zip(rows, means, strict=True)
        ),
    )
    bars = tuple(_comm_bar(key, mean["exposed_ns"], mean["hidden_ns"], mean["wait_ns"]) for key, mean in means)
    return Chart(title="Communication by purpose, per step and rank", parts=_COMM_PARTS, bars=bars), table


def _comm_bar(label: str, exposed_ns: int, hidden_ns: int, wait_ns: int) -> Bar:
    share = format_fraction(sentences.fraction_of(hidden_ns, hidden_ns + exposed_ns))
    return Bar(
        label=label,
        lengths_ns=(exposed_ns, hidden_ns),
        words=(format_ns(exposed_ns), format_ns(hidden_ns)),
        end=f"hidden {share}, waited {format_ns(wait_ns)}",
    )


def cause_parts() -> tuple[Part, ...]:
    """Give the parts of exposed time, in the order in which causes take theirs."""
    return tuple(Part(cause.value, causes.describe_cause(cause)) for cause in Cause)


def _by_owner(collectives: pd.DataFrame, windows: int) -> tuple[Chart, Table]:
    """Give a bar per owner, operation and purpose, split by cause, as the overview has them."""
    found: dict[tuple[str, str, str], list[OwnerSummary]] = {}
    for row in summarize_owners(collectives, windows):
        found.setdefault((row.owner, row.operation or "", row.purpose), []).append(row)
    rows = sorted(found.values(), key=lambda rows: -rows[0].owner_exposed_ns)
    total_ns = sum(parts[0].owner_exposed_ns for parts in rows)
    decimals = sentences.decimals_for(parts[0].owner_exposed_ns for parts in rows)
    table = Table(
        title="Exposed communication per step and rank; times in ms",
        columns=headers(("owner", "collective", "purpose", "mostly", "exposed", "share"), text=4),
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
    bars = tuple(_owner_bar(parts) for parts in rows)
    return Chart(title="Exposed time by owner and cause, per step and rank", parts=cause_parts(), bars=bars), table


def _owner_bar(parts: Sequence["OwnerSummary"]) -> Bar:
    by_cause = {part.cause: part.exposed_ns for part in parts}
    lengths = tuple(by_cause.get(cause, 0) for cause in Cause)
    return Bar(
        label=causes.name_collective(parts[0].owner or None, parts[0].operation),
        lengths_ns=lengths,
        words=tuple(format_ns(length) for length in lengths),
        end=format_ns(parts[0].owner_exposed_ns),
    )
