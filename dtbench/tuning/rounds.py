"""A round of a search as a scenario, and what came of it: an ordinary run, which anyone can report."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dtbench.base.errors import PredictionError
from dtbench.base.units import count_things
from dtbench.base.vocabulary import Phase
from dtbench.runs.cell.cell_notes import say_taken
from dtbench.runs.settings.candidates import AND
from dtbench.runs.settings.forecast import forecast_cell
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.runs.wrong_results import find_wrong_result
from dtbench.scenario.load import ScenarioFile
from dtbench.scenario.written import Words, sections_of, write_scenario
from dtbench.store.records.rank import Receipt, ReceiptOutcome
from dtbench.store.records.run import RunStatus, tell_reason_in_a_line
from dtbench.tuning.grid import Grid
from dtbench.tuning.search import UNCHANGED, Out, Ran, Round, Stage, Told

_ENDING = "_tune"
_PURPOSES: Mapping[Stage, str] = {
    Stage.UNCHANGED: "how long does a step take as it is",
    Stage.SELECT: "which of {points} may take the shortest step",
    Stage.CONFIRM: "is a step of {points} shorter than as it is",
}


@dataclass(frozen=True)
class Origin:
    """Of what scenario rounds are.

    Attributes:
        name: of it.
        folder: in which a person's own model is looked for; None: the scenario came from nowhere.
    """

    name: str
    folder: Path | None


def name_runs(origin: Origin) -> str:
    """Return the name of the scenario of all rounds: their folder in that of all results."""
    return f"{origin.name}{_ENDING}"


def write_round(origin: Origin, grid: Grid, one: Round, number: int) -> ScenarioFile:
    """Return the scenario of a round: the cells that take turns in it.

    Args:
        origin: of what scenario.
        grid: whose points.
        one: the round.
        number: of it, from 1.
    """
    scenarios = {grid.cell: grid.scenario} if one.has_unchanged else {}
    for point in one.points:
        found = grid.find(point).scenario
        assert found is not None
        scenarios[point] = found
    cells: dict[str, Words] = {
        name: {**sections_of(scenario), "repeat": one.launches} for name, scenario in scenarios.items()
    }
    what = _PURPOSES[one.stage].format(points=count_things(len(one.points), "point"))
    question = f"Tuning `{grid.cell}` of `{origin.name}`, round {number}: {what}?"
    return replace(write_scenario(name_runs(origin), question, {}, cells), folder=origin.folder)


def read_round(grid: Grid, one: Round, summary: RunSummary, duration_ns: int) -> Ran:
    """Return what came of a round."""
    cells = {cell.name: cell for cell in summary.cells}
    names = {UNCHANGED: grid.cell} if one.has_unchanged else {}
    names |= {point: point for point in one.points}
    times: dict[str, tuple[float, ...]] = {}
    out: dict[str, Out] = {}
    doubts: Counter[str] = Counter()
    peaks: dict[str, int] = {}
    for point, name in names.items():
        if name not in cells:
            times[point], out[point] = (), Out("failed", "the run ended before it")
            continue
        cell = cells[name]
        times[point] = _read_times(cell)
        doubts += _count_doubts(cell)
        change = grid.find(point).change if point else ""
        if cell.memory is not None:
            peaks[point] = cell.memory.allocated_peak_bytes or cell.memory.rss_peak_bytes
        if (why := _find_out(cell, change)) is not None:
            out[point] = why
    return Ran(one, times, out, run=summary.path, duration_ns=duration_ns, doubts=doubts, peak_bytes=peaks)


def _read_times(cell: CellSummary) -> tuple[float, ...]:
    """Return the MEASURED step of each launch that was begun, ns; NaN: nothing may be judged by that one."""
    told = dict(zip((one for one in cell.launches if one not in cell.unreadable), cell.launch_medians_ns, strict=False))
    taken = {one.launch for one in cell.disturbed if one.phase is Phase.MEASURED}
    begun = cell.launches if cell.status is RunStatus.COMPLETE else cell.launches[: max(1, len(told))]
    return tuple(math.nan if cell.rank_doubts or launch in taken else told.get(launch, math.nan) for launch in begun)


def _count_doubts(cell: CellSummary) -> Counter[str]:
    """Count the launches of a cell that decide nothing, by why, a clause."""
    if cell.rank_doubts:
        return Counter({cell.rank_doubts[0]: len(cell.launches)})
    taken = [one for one in cell.disturbed if one.phase is Phase.MEASURED]
    found = Counter({say_taken(taken): len({one.launch for one in taken})} if taken else {})
    return found + Counter({"they cannot be read": len(cell.unreadable)})


def _find_out(cell: CellSummary, change: str) -> Out | None:
    """Say why a cell can no longer be recommended; None: it may be."""
    if (wrong := find_wrong_result(cell)) is not None:
        return Out(wrong.word, wrong.clause)
    if cell.status is not RunStatus.COMPLETE:
        return Out("failed", tell_reason_in_a_line(cell.reason) if cell.reason else "it did not end well")
    fields = [setting.partition("=")[0] for setting in change.split(AND)] if change else []
    for receipt in cell.receipts:
        named = [field for field in fields if f"{receipt.knob}.".startswith(f"{field}.")]
        if named:
            is_asked = "." in named[0]  # of a whole section nobody asked for each of its knobs
            if receipt.outcome is ReceiptOutcome.NO_EFFECT and is_asked:
                return Out("not in force", f"{receipt.knob}: {receipt.note}")
            if receipt.outcome is ReceiptOutcome.DISAGREES:
                return Out("not applied", _say_disagreement(receipt))
    return None


def _say_disagreement(receipt: Receipt) -> str:
    note = f"; {receipt.note}" if receipt.note else ""
    return f"{receipt.knob}: asked {receipt.asked}, got {receipt.got}{note}"


def ask_forecasts(grid: Grid, cell: CellSummary, points: Sequence[str]) -> tuple[dict[str, Told], str]:
    """Return what is said of points by the unchanged cell's launches, and why nothing is said; empty: something is."""
    changes = {grid.find(point).change: point for point in points}
    try:
        found = forecast_cell(cell, list(changes))
    except PredictionError as error:
        return {}, "; ".join(dict.fromkeys(str(error).splitlines()))
    return {
        changes[answer.change]: Told(answer.step_ns, answer.saving_ns, answer.low_ns, answer.high_ns)
        for answer in found.answers
    }, ""
