"""Which functions of torch under study ran, as a page: how many of each class, then a table for each file."""

from collections.abc import Sequence
from typing import Final

from dtbench.base.units import format_fraction, format_ns
from dtbench.report.page.page import Cell, Column, Line, Page, Part, Row, Table, Tone, lines
from dtbench.runs.function_coverage import CoveredFunction, FunctionCoverage, State
from dtbench.seeds.functions import Reach

_COLUMNS: Final = (
    Column("function"),
    Column("class"),
    Column("seen"),
    Column("scenario"),
    Column("calls", is_number=True),
    Column("total", is_number=True),
    Column("per call", is_number=True),
    Column("exposed", is_number=True),
)


def coverage_page(found: FunctionCoverage) -> Page:
    """Make the page of functions under study."""
    cost = found.cost_per_call_ns
    probes = f"A probe adds at most {cost} ns to a call; that is in the times of the functions around it."
    return Page(
        title="Coverage of functions under study",
        answer=(Line(sum_up(found.functions), Tone.STRONG), *([] if cost is None else [Line(probes)])),
        parts=tuple(
            Part(file, "", (_file_table(file, [row for row in found.functions if row.file == file]),))
            for file in dict.fromkeys(row.file for row in found.functions)
        ),
        notes=lines(found.notes),
    )


def sum_up(rows: Sequence[CoveredFunction]) -> str:
    """Say how many functions under study were reached, by class."""
    counts = {
        reach: (
            sum(row.reach is reach and row.state is State.REACHED for row in rows),
            sum(row.reach is reach and row.state is not State.ABSENT for row in rows),
        )
        for reach in Reach
    }
    driven, called = counts[Reach.DRIVEN], counts[Reach.CALLED]
    absent = sum(row.state is State.ABSENT for row in rows)
    unwatched = sum(row.state is State.NOT_WATCHED and row.reach in (Reach.DRIVEN, Reach.CALLED) for row in rows)
    others = "" if not absent else f" {absent} of the list {'is' if absent == 1 else 'are'} not in this torch."
    if unwatched:
        others += f" Of {unwatched} it is not known: no launch that finished traced or probed them."
    return (
        f"Reached: {driven[0]} of {driven[1]} functions that torch's public ones drive, {called[0]} of {called[1]} "
        f"that must be called; {counts[Reach.ELSEWHERE][1]} run elsewhere and {counts[Reach.UNCALLED][1]} are called "
        f"by nobody: these do not count.{others}"
    )


def _file_table(file: str, rows: Sequence[CoveredFunction]) -> Table:
    """Return the functions of a file; below them where evidence disagrees, and why some were not reached."""
    remarks = [f"{row.name}: {remark}" for row in rows for remark in row.remarks]
    missing: dict[str, list[str]] = {}
    for row in rows:
        if row.state is not State.REACHED and row.reason and not row.remarks:
            seen = State.NOT_REACHED if row.state is State.RAISED else row.state
            missing.setdefault(f"{seen} ({row.reason})", []).append(row.name)
    reasons = [f"{why}: {', '.join(names)}" for why, names in missing.items()]
    return Table(file, _COLUMNS, [_function_row(row) for row in rows], (*remarks, *reasons), key=file)


def _function_row(row: CoveredFunction) -> Row:
    branches = "".join(f"\n  {name}: {calls}" for name, calls in row.branches.items())
    more = f" (+{len(row.scenarios) - 1})" if len(row.scenarios) > 1 else ""
    per_call = None if row.total_ns is None or not row.calls else row.total_ns / row.calls
    exposed = None if row.time is None or not row.time.total_ns else row.time.exposed_ns / row.time.total_ns
    return (
        row.name + branches,
        "not listed" if row.reach is None else str(row.reach),
        str(row.state),
        f"{row.scenarios[0]}{more}" if row.scenarios else "",
        Cell(str(row.calls), value=row.calls) if row.calls else "",
        _time(row.total_ns),
        _time(per_call),
        "" if exposed is None else Cell(format_fraction(exposed), value=exposed),
    )


def _time(time_ns: float | None) -> str | Cell:
    return "" if time_ns is None else Cell(format_ns(time_ns), value=time_ns)
