"""The tab Overlap: where PROFILED steps went, by rank, step, purpose or owner; the numbers of the run's tables."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import pandas as pd

from dtbench.base.units import decimals_for, format_bytes, format_fraction, format_ms, format_ns
from dtbench.base.vocabulary import PURPOSE_TIMES, Cause, Purpose
from dtbench.report.page.cell_page import HIDDEN, bound_lines, step_bar
from dtbench.report.page.cell_rows import mark_owners, mark_purposes, owner_lines, purpose_times, total_owners
from dtbench.report.page.looks import CAUSE_LOOKS, EXPOSED_COMM, HIDDEN_COMM, bar_part, step_parts
from dtbench.report.page.page import Bar, BarPart, Chart, Column, Table, words_of
from dtbench.report.words import causes, sentences
from dtbench.report.words.marks import Marks
from dtbench.runs.cell.summarize_overlap import complete, find_part, keep_known, mean_step, summarize_purposes
from dtbench.runs.cell.summarize_owners import count_unknown_owners, summarize_owners

if TYPE_CHECKING:
    from dtbench.runs.summary import CellSummary, OwnerSummary, PurposeSummary
    from dtbench.traces.known_part import KnownPart


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
    """The tables of some launches of a cell, each with a column ``launch``."""

    launches: tuple[int, ...]
    overlap: pd.DataFrame
    purposes: pd.DataFrame
    collectives: pd.DataFrame


def make_overlap(cell: "CellSummary", tables: CellTables, choice: Choice) -> OverlapDocument:
    """Return the bars that a person chose. Means are over all counted steps, ranks and launches, as far as known."""
    every = complete(tables.overlap, tables.launches, cell.plan.ranks)
    return show_overlap(cell, replace(tables, overlap=every), choice)


def show_overlap(cell: "CellSummary", tables: CellTables, choice: Choice) -> OverlapDocument:
    """Do the same with an account of all steps that are asked for."""
    every = tables.overlap
    ranks = tuple(int(rank) for rank in sorted(every["rank"].unique()))
    steps = tuple(int(step) for step in sorted(every["step"].unique()))
    overlap, purposes, collectives = (_choose(one, choice) for one in (every, tables.purposes, tables.collectives))
    known = keep_known(overlap)
    windows, left_out = len(known), len(overlap) - len(known)
    if not windows:
        return OverlapDocument(sentence=_say_nothing(left_out), ranks=ranks, steps=steps, chart=None)
    match choice.by:
        case By.RANK:
            chart = _by_window(cell, overlap, "rank", every)
        case By.STEP:
            chart = _by_window(cell, overlap, "step", every)
        case By.PURPOSE:
            chart = _by_purpose(cell, purposes, known)
        case By.OWNER:
            chart = _by_owner(cell, collectives, known)
    exposed = format_fraction(known["exposed_comm_ns"].sum() / known["step_ns"].sum())
    exposed = _bound_below(exposed, is_least=_is_least(cell, overlap, every))
    counted = _count(windows, find_part(known, overlap))
    doubt = "".join(f"; {words}" for words in sentences.doubts_of_cells([cell]).values())
    sentence = f"{counted}; exposed {exposed} of their time{_say_left_out(left_out)}{doubt}"
    return OverlapDocument(sentence=sentence, ranks=ranks, steps=steps, chart=chart)


def _is_least(cell: "CellSummary", group: pd.DataFrame, every: pd.DataFrame) -> bool:
    """Tell whether collectives of some steps were not seen to run; where no step says that it lost them, any may have.

    Args:
        cell: whose steps.
        group: those steps.
        every: all of the cell.
    """
    return bool(group["is_least"].any()) if every["is_least"].any() else cell.is_least


def _bound_below(words: str, *, is_least: bool) -> str:
    return f"at least {words}" if is_least and words != "n/a" else words


def _columns(names: Sequence[str], *, text: int = 1) -> tuple[Column, ...]:
    """Return columns of numbers, the first ``text`` of them of words."""
    return tuple(Column(name, is_number=place >= text) for place, name in enumerate(names))


def _count(windows: int, part: "KnownPart | None" = None) -> str:
    if windows == 1:
        return "1 profiled step of one rank"
    of = "all ranks' together" if part is None or not (part.ranks or part.launches) else f"of {part}"
    return f"{windows} profiled steps, {of}"


def _say_nothing(left_out: int) -> str:
    if not left_out:
        return "Nothing to show: no step was profiled here, or its traces could not be read."
    return f"Nothing to show: where the time went is not known of {_count(left_out)}."


def _say_left_out(left_out: int) -> str:
    return f"; {left_out} more are left out: where their time went is not known" if left_out else ""


def _choose(table: pd.DataFrame, choice: Choice) -> pd.DataFrame:
    kept = table if choice.rank is None else table[table["rank"] == choice.rank]
    return kept if choice.step is None else kept[(kept["step"] == choice.step).fillna(value=False)]


def _note(cell: "CellSummary", marks: Marks, *others: str | None) -> str:
    """Say which numbers of a chart are bounds, of what those with a mark are, and what else there is to say."""
    return "; ".join([*(line.words for line in bound_lines(cell, marks)), *(one for one in others if one)])


def _by_window(cell: "CellSummary", overlap: pd.DataFrame, column: str, every: pd.DataFrame) -> Chart:
    """Return a bar per rank or step, rounded as ``summarize_ranks`` does; ``every``: all steps of the cell."""
    idle = sentences.idle_word(cell)
    parts = step_parts(idle)
    groups = [(str(key), group, keep_known(group)) for key, group in overlap.groupby(column)]
    told = [
        (key, mean_step(known), find_part(known, group), _is_least(cell, group, every))
        for key, group, known in groups
        if len(known)
    ]
    marks = Marks.of(part for _, _, part, _ in told)
    rows = [(marks.mark(key, part), row, is_least) for key, row, part, is_least in told]
    decimals = decimals_for(row.step_ns for _, row, _ in rows)
    shown = ("step_ns", *(part.key for part in parts), "comm_ns", "hidden_comm_ns")
    names = (column, "step", "compute", "exposed comm", "exposed copy", idle, "comm", "hidden comm")
    table = Table(
        title="Mean of a profiled step, ms",
        columns=_columns((*names, "hidden share of comm", "exposed share of step")),
        rows=tuple(
            (
                label,
                *(format_ms(getattr(row, name), decimals) for name in shown),
                "n/a" if is_least else format_fraction(sentences.fraction_of(row.hidden_comm_ns, row.comm_ns)),
                _bound_below(
                    format_fraction(sentences.fraction_of(row.exposed_comm_ns, row.step_ns)), is_least=is_least
                ),
            )
            for label, row, is_least in rows
        ),
    )
    return Chart(
        title=f"Where a profiled step went, by {column}",
        parts=parts,
        bars=tuple(step_bar(f"{column} {label}", row, parts, is_known=not is_least) for label, row, is_least in rows),
        below=HIDDEN,
        note=_note(cell, marks),
        table=table,
    )


_COMM_PARTS = (
    bar_part("exposed_comm_ns", "exposed", EXPOSED_COMM),
    bar_part("hidden_comm_ns", "hidden behind compute", HIDDEN_COMM),
)


def _by_purpose(cell: "CellSummary", purposes: pd.DataFrame, steps: pd.DataFrame) -> Chart:
    """Return a bar per purpose, as the overview has them; a step in which one did not occur counts as zero.

    Args:
        cell: whose.
        purposes: of its steps; rows of others are left out.
        steps: those whose account is known.
    """
    is_whole = not cell.is_least
    found, notes = summarize_purposes(purposes, steps, cell.plan, (), frozenset(Purpose), is_whole=is_whole)
    rows = sorted(found, key=lambda row: -(row.exposed_ns or 0))
    chosen = cell.model_copy(update={"purposes": tuple(rows)})
    marks = mark_purposes(chosen)
    table = Table(
        title="Per step and rank; times in ms",
        columns=_columns(("purpose", "count", "size", *PURPOSE_TIMES.values(), "wait", "hidden share")),
        rows=tuple(
            (
                row.purpose.value,
                str(row.count),
                format_bytes(row.size_bytes),
                *map(words_of, purpose_times(chosen, row)),
            )
            for row in rows
        ),
    )
    return Chart(
        title="Communication by purpose, per step and rank",
        parts=_COMM_PARTS,
        bars=tuple(
            _comm_bar(chosen, row, marks, row.exposed_ns, row.hidden_ns)
            for row in rows
            if row.exposed_ns is not None and row.hidden_ns is not None
        ),
        note=_note(chosen, marks, *notes),
        table=table,
    )


def _comm_bar(cell: "CellSummary", row: "PurposeSummary", marks: Marks, exposed_ns: int, hidden_ns: int) -> Bar:
    hidden = marks.mark(format_fraction(row.hidden_fraction), row.part)
    waited = marks.mark(sentences.bound_wait(cell, row.purpose, format_ns(row.wait_ns)), row.wait_part)
    return Bar(
        label=marks.mark(row.purpose.value, row.part),
        lengths_ns=(exposed_ns, hidden_ns),
        words=(format_ns(exposed_ns), format_ns(hidden_ns)),
        end=f"hidden {hidden}, waited {waited}",
    )


def cause_parts() -> tuple[BarPart, ...]:
    """Return the parts of exposed time, in the order in which causes take theirs."""
    looks = ((cause, CAUSE_LOOKS[cause]) for cause in Cause)
    return tuple(bar_part(cause.value, causes.describe_cause(cause), look) for cause, look in looks)


def _by_owner(cell: "CellSummary", collectives: pd.DataFrame, steps: pd.DataFrame) -> Chart:
    """Return a bar per owner, operation and purpose, split by cause, as the overview has them."""
    found: dict[tuple[str, str, str], list[OwnerSummary]] = {}
    told = summarize_owners(collectives, steps)
    chosen = cell.model_copy(update={"owners": told, "unknown_owners": count_unknown_owners(collectives, steps)})
    for row in told:
        found.setdefault((row.owner, row.operation or "", row.purpose), []).append(row)
    rows = sorted(found.values(), key=lambda rows: -rows[0].owner_exposed_ns)
    total_ns, marks = total_owners(chosen), mark_owners(chosen)
    decimals = decimals_for(parts[0].owner_exposed_ns for parts in rows)
    table = Table(
        title="Exposed communication per step and rank; times in ms",
        columns=_columns(("owner", "collective", "purpose", "largest cause", "exposed", "share"), text=4),
        rows=tuple(
            (
                causes.spell_owner(parts[0].owner) if parts[0].owner else causes.UNATTRIBUTED,
                causes.name_operation(parts[0].operation),
                parts[0].purpose.value,
                causes.describe_cause(parts[0].cause, waited_for=parts[0].waited_for),
                marks.mark(format_ms(parts[0].owner_exposed_ns, decimals), parts[0].part),
                marks.mark(format_fraction(sentences.fraction_of(parts[0].owner_exposed_ns, total_ns)), parts[0].part),
            )
            for parts in rows
        ),
    )
    is_untold = not rows and bool(steps["exposed_comm_ns"].sum())
    unknown = "Whose the exposed time is, and why, is not known." if is_untold else None
    of_rows = (*owner_lines(chosen), sentences.limit_sentence(chosen)) if rows else ()
    note = _note(cell, marks, unknown, *of_rows)
    bars = tuple(_owner_bar(parts, marks) for parts in rows)
    title = "Exposed time by owner and cause, per step and rank"
    return Chart(title=title, parts=cause_parts(), bars=bars, note=note, table=table)


def _owner_bar(parts: Sequence["OwnerSummary"], marks: Marks) -> Bar:
    by_cause = {part.cause: part.exposed_ns for part in parts}
    lengths = tuple(by_cause.get(cause, 0) for cause in Cause)
    return Bar(
        label=causes.name_collective(parts[0].owner or None, parts[0].operation),
        lengths_ns=lengths,
        words=tuple(format_ns(length) for length in lengths),
        end=marks.mark(format_ns(parts[0].owner_exposed_ns), parts[0].part),
    )
