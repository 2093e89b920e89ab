"""Forecasts and what became of them, as a page."""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from dtbench.base.columns import Unit
from dtbench.base.units import count_things, format_fraction, format_ns
from dtbench.proof.proven import WIDEST, Proven
from dtbench.report.page.page import Cell, Column, Line, Page, Part, Row, Table, Tone, lines, numbers

_AGREES: Final = {True: "agrees", False: "does NOT agree", None: "not known"}


def proof_page(run: str, proven: Sequence[Proven]) -> Page:
    """Make the page.

    Args:
        run: folder of the run that was made.
        proven: at least one change.
    """
    return Page(
        title="What was said, and what became of it",
        aside=run,
        answer=tuple(_answer(proven)),
        parts=(Part("proof", "", (_table(proven),)),),
        notes=lines(_notes(proven), Tone.QUIET),
    )


def _answer(proven: Sequence[Proven]) -> Iterator[Line]:
    judged = [one for one in proven if one.is_judged]
    saving = [one for one in judged if one.saves]
    unknown = len(proven) - len(judged)
    more = f"; of {unknown} of {count_things(len(proven), 'change')} nothing is known" if unknown else ""
    if saving:
        best = max(saving, key=lambda one: one.saving_ns / one.base_ns)
        yield Line(
            f"{best.claim.cell}: `{best.claim.change}` saves {format_ns(best.saving_ns)} "
            f"({format_fraction(best.saving_ns / best.base_ns)}) of a measured step of {format_ns(best.base_ns)}, 95 % "
            f"interval {format_ns(best.low_ns)} to {format_ns(best.high_ns)}{more}",
            Tone.STRONG,
        )
    elif judged:
        yield Line(f"none of {count_things(len(judged), 'change')} makes a step surely shorter{more}", Tone.STRONG)
    else:
        why = next((one.doubt for one in proven if one.doubt), "too few MEASURED steps are known")
        yield Line(f"nothing can be said: {why}", Tone.BAD)
    errors = [abs(one.error) for one in proven if one.error is not None]
    if errors:
        yield Line(f"forecasts of changed steps were off by {format_fraction(max(errors))} of them at most")


def _table(proven: Sequence[Proven]) -> Table:
    several = len({one.claim.cell for one in proven}) > 1
    return Table(
        "Said before (90 % intervals), and measured (95 %, of all together)",
        (
            Column("setting"),
            *numbers(Unit.NS, "said\nto save", "saves"),
            Column("said interval"),
            Column("measured interval"),
            *numbers(Unit.FRACTION, "step\noff by"),
            Column(""),
        ),
        [_row(one, several=several) for one in proven],
        key="proof",
    )


def _row(one: Proven, *, several: bool) -> Row:
    said = one.claim.forecast
    told = "n/a" if said is None else Cell(format_ns(said.saving_ns), value=said.saving_ns)
    return (
        f"{one.claim.cell}: {one.claim.change}" if several else one.claim.change,
        told,
        Cell(format_ns(one.saving_ns), value=one.saving_ns),
        "n/a" if said is None or said.low_ns is None or said.high_ns is None else _between(said.low_ns, said.high_ns),
        "n/a" if math.isnan(one.low_ns) else _between(one.low_ns, one.high_ns),
        "n/a" if one.error is None else Cell(f"{one.error:+.1%}".replace("%", " %"), value=one.error),
        _AGREES[one.agrees],
    )


def _between(low_ns: float, high_ns: float) -> str:
    return f"{format_ns(low_ns)} to {format_ns(high_ns)}"


def _notes(proven: Sequence[Proven]) -> Iterator[str]:
    yield (
        "unchanged and changed cells ran in turns, in a run of their own; a forecast agrees where both intervals have "
        f"a saving in common, and the measured one is no wider than {format_fraction(WIDEST)} of a step to either side"
    )
    yield from dict.fromkeys(one.doubt for one in proven if one.doubt)
    if any(one.claim.forecast is None for one in proven):
        yield "n/a: of these nothing could be said before they were run"
