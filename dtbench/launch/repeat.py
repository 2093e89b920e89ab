"""How many launches ``repeat: auto`` takes: rounds of all cells are added until it is enough, or time is up.

What is *enough* is a question of statistics, and those read files: so the judge is a function that the command line
brings, and this room never imports the one in which it is written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dtbench.base.errors import PlanError
from dtbench.base.units import NS_PER_S
from dtbench.scenario.schema.repeat import AutoRepeat
from dtbench.store.layout import RunFolder
from dtbench.store.read import read_launch
from dtbench.store.records.run import CellRecord, OwnLoopCell, RunRecord


@dataclass(frozen=True)
class Judgement:
    """Whether launches are enough, and how well they tell what is asked, as the end of a sentence."""

    is_enough: bool
    words: str


Judge = Callable[[RunFolder, tuple[CellRecord, ...], float], Judgement]
"""Judges the launches of cells, all complete, by a precision (relative)."""


def never_enough(_folder: RunFolder, _cells: tuple[CellRecord, ...], _precision: float) -> Judgement:
    """Judge nothing: rounds are added until something else ends them."""
    return Judgement(is_enough=False, words="nobody judged how well their step times are known")


def refuse_automatic(cells: Sequence[CellRecord]) -> None:
    """Refuse to write orders for launches whose number only running them tells.

    Raises:
        PlanError: says what to do.
    """
    if any(isinstance(cell.scenario.repeat, AutoRepeat) for cell in cells):
        raise PlanError("`repeat: auto` looks at launches to decide on more; give a number with --set repeat=10")


def keep_launches(before: RunRecord, cells: tuple[CellRecord, ...]) -> tuple[CellRecord, ...]:
    """Return cells that repeat automatically the launches that an earlier start of their run had added."""
    added = {cell.name: cell.launches for cell in before.cells if not isinstance(cell, OwnLoopCell)}
    return tuple(
        cell.model_copy(update={"launches": max(cell.launches, added.get(cell.name, ()), key=len)})
        if isinstance(cell.scenario.repeat, AutoRepeat)
        else cell
        for cell in cells
    )


def add_launch(cell: CellRecord) -> CellRecord:
    """Return a cell with one launch more."""
    return cell.model_copy(update={"launches": (*cell.launches, len(cell.launches))})


def find_end(folder: RunFolder, cells: tuple[CellRecord, ...], rule: AutoRepeat, judge: Judge) -> str | None:
    """Say why no round is added; None: one is.

    Args:
        folder: of the run.
        cells: that did not fail, at least one, each with equally many launches, all of them complete.
        rule: of all of them.
        judge: by whom launches are enough.
    """
    count = len(cells[0].launches)
    judgement = judge(folder, cells, rule.precision)
    told = f"repeat: auto took {count} launches of each cell: {judgement.words}"
    if judgement.is_enough:
        return told
    if count >= rule.at_most:
        return f"{told}; `repeat.at_most` allows no more"
    used_ns = sum(read_launch(folder.launch(cell.name, index)).duration_ns for cell in cells for index in cell.launches)
    if used_ns * (count + 1) / count > rule.time_budget_s * NS_PER_S:
        used = f"{used_ns / NS_PER_S:.0f} s of {rule.time_budget_s:g} s"
        return f"{told}; no other round fits into `repeat.time_budget_s` ({used} are used)"
    return None
