"""What `dtbench clean` would remove, or removed, as a page: what stays is said first, then each run with its size."""

from collections.abc import Iterator
from typing import Final

from dtbench.base.columns import Unit
from dtbench.base.units import count_launches, count_things, format_bytes
from dtbench.report.page.page import Cell, Column, Line, Page, Part, Row, Table, Tone
from dtbench.report.page.runs_page import spell_moment
from dtbench.runs.cleaning import Cleaning, Removal, Why

_COLUMNS: Final = (
    Column("run"),
    Column("began (UTC)"),
    Column("what goes"),
    Column("files", is_number=True, unit=Unit.COUNT),
    Column("size", is_number=True, unit=Unit.BYTES),
)


def clean_page(found: Cleaning, *, is_done: bool) -> Page:
    """Make the page of what goes, or went."""
    table = Table("", _COLUMNS, [_show(one) for one in found.removals], key="removals")
    return Page(
        title="Clean",
        answer=(*_say_staying(found), _sum_up(found, is_done=is_done)),
        parts=(Part("removals", "", (table,)),) if found.removals else (),
    )


def _sum_up(found: Cleaning, *, is_done: bool) -> Line:
    if not found.removals:
        return Line("Nothing was removed." if is_done else "There is nothing to remove.", Tone.STRONG)
    launches = sum(len(one.launches) for one in found.removals)
    traces = f"traces of {count_launches(launches)} in " if launches else ""
    what = f"{traces}{count_things(len(found.removals), 'run')}, {format_bytes(found.size_bytes)}"
    return Line(
        f"Removed {what}." if is_done else f"Would remove {what}; nothing is removed without --yes.", Tone.STRONG
    )


def _say_staying(found: Cleaning) -> Iterator[Line]:
    """Say how many runs stay, and why, a sentence for each reason; of those that could not be removed which."""
    for why in Why:
        those = [one for one in found.staying if one[1] is why]
        if why is Why.REFUSED:
            yield from (Line(f"{path}: {why} ({said})", Tone.BAD) for path, _, said in those)
        elif those:
            whole = "keep traces" if why is Why.NO_TABLES else "stay"
            one = "keeps traces" if why is Why.NO_TABLES else "stays"
            yield Line(f"{count_things(len(those), 'run')} {one if len(those) == 1 else whole}: {why}", Tone.QUIET)


def _show(one: Removal) -> Row:
    launches = len(one.launches)
    return (
        f"{one.run.parent.name}/{one.run.name}",
        spell_moment(one.started_unix_ns).replace("T", " "),
        f"traces of {count_launches(launches)}" if launches else "everything",
        Cell(str(one.files), value=one.files),
        Cell(format_bytes(one.size_bytes), value=one.size_bytes),
    )
