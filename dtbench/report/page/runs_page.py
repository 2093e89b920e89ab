"""Runs as a page: a row for each cell of each, newest first, and what speaks against its numbers."""

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from textwrap import shorten
from typing import Final

from dtbench.base.columns import Unit
from dtbench.base.units import NS_PER_S, count_things, format_fraction, format_ns
from dtbench.comparison.run_list import ListedCell, ListedStatus, RunList, Wanted
from dtbench.report.page.page import Cell, Column, Line, Page, Part, Row, Table, Tone

_COLUMNS: Final = (
    Column("run"),
    Column("began (UTC)"),
    Column("cell"),
    Column("status"),
    Column("launches", is_number=True, unit=Unit.COUNT),
    Column("step", is_number=True, unit=Unit.NS),
    Column("exposed", is_number=True, unit=Unit.FRACTION),
    Column("commit"),
    Column("what speaks against it"),
)
_REVISION: Final = 8
_LETTERS: Final = 60
"""Of what speaks against a number: the report has all of it."""
_DOUBT: Final = re.compile(r"^([A-Z ]{5,}): .*")
"""Why steps may not stand for others: what is asked first is only that; the report says the rest."""
_TONES: Final = {ListedStatus.COMPLETE: Tone.PLAIN, ListedStatus.RUNNING: Tone.QUIET}


def runs_page(found: RunList) -> Page:
    """Make the page of runs; what is not shown is said first."""
    table = Table("", _COLUMNS, [_show(one) for one in found.rows], key="runs")
    return Page(
        title="Runs",
        answer=tuple(_say_not_shown(found)),
        parts=(Part("runs", "", (table,)),) if found.rows else (),
    )


def spell_moment(unix_ns: int) -> str:
    """Spell a moment, UTC, in whole seconds.

    >>> spell_moment(1_767_225_600_000_000_000)
    '2026-01-01T00:00:00'
    """
    return datetime.fromtimestamp(unix_ns // NS_PER_S, UTC).replace(tzinfo=None).isoformat()


def _say_not_shown(found: RunList) -> Iterator[Line]:
    if not found.rows:
        is_empty = found.wanted == Wanted() and not found.unreadable
        start = "no runs here; start one with `dtbench run <scenario>`, or name another folder with --results"
        yield Line(f"{found.results}: {start if is_empty else 'no run is what was asked for'}")
    if found.unreadable:
        them = "it is" if found.unreadable == 1 else "they are"
        runs = count_things(found.unreadable, "run")
        yield Line(f"{runs} cannot be read, so whether {them} asked for is not known", Tone.WARNING)
    if found.next_run is not None:
        _, began = found.next_run
        later = spell_moment(began + NS_PER_S - 1)
        goes_on = f", `--until {later}` goes on with them" if began else ""
        yield Line(f"Older runs are not shown{goes_on}; `--limit 0` shows all.", Tone.QUIET)


def _show(one: ListedCell) -> Row:
    commit = None if one.environment is None else one.environment.commit
    more = f" (+{len(one.against) - 1})" if len(one.against) > 1 else ""
    against = f"{_shorten(_DOUBT.sub(_name_doubt, one.against[0]))}{more}" if one.against else ""
    changed = "" if commit is None or commit.is_dirty is False else "+"
    return (
        f"{one.scenario}/{one.run_id}",
        spell_moment(one.started_unix_ns).replace("T", " ") if one.started_unix_ns else "n/a",
        one.cell or "n/a",
        Cell(str(one.status), _TONES.get(one.status, Tone.BAD)),
        Cell(str(one.launches), value=one.launches),
        Cell(format_ns(one.step_ns), value=_known(one.step_ns)),
        Cell(format_fraction(one.exposed_fraction), value=_known(one.exposed_fraction)),
        "n/a" if commit is None else f"{commit.revision[:_REVISION]}{changed}",
        Cell(against, Tone.WARNING),
    )


def _shorten(words: str) -> str:
    """Leave out what a report says at length: as many parts between colons as a row has room for.

    >>> _shorten("1 of 3 launches left out: others took the cores: python busy.py (pid 4711) took 0.98 of 2 cores")
    '1 of 3 launches left out: others took the cores'
    """
    kept, *parts = words.split(": ")
    for part in parts:
        if len(kept) + len(part) > _LETTERS:
            break
        kept += f": {part}"
    return shorten(kept, _LETTERS, placeholder=" ...")


def _name_doubt(found: re.Match[str]) -> str:
    return found[1].lower()


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
