"""Which changes of a run are to be proven, and the scenario that runs them beside what they change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dtbench.base.errors import PredictionError
from dtbench.runs.settings.forecast import Forecast, SettingAnswer, apply_change
from dtbench.runs.summary import CellSummary
from dtbench.scenario.load import ScenarioFile
from dtbench.scenario.schema.scenario import Scenario
from dtbench.scenario.written import Words, sections_of, write_scenario
from dtbench.store.layout import RunFolder
from dtbench.store.records.run import WorkerOrder

LAUNCHES: Final = 4
"""Of each cell at least: what a comparison needs."""


@dataclass(frozen=True)
class Claim:
    """A change of one cell.

    Attributes:
        cell: that is changed.
        changed: name of the changed cell.
        change: fields and values, as ``--set`` has them.
        forecast: what was said of it; None: nothing could be.
    """

    cell: str
    changed: str
    change: str
    forecast: SettingAnswer | None


def choose_claims(
    cells: Mapping[str, Forecast], most: int, asked: Sequence[str] = (), names: Sequence[str] = ()
) -> list[Claim]:
    """Return the changes that are to be run: those that were asked for, or those that are said to save most.

    Args:
        cells: what was said of each cell.
        most: how many at most.
        asked: changes that a person named; of a cell that has no closed form nothing is said of them.
        names: the cells that were asked.
    """
    told = {
        (name, answer.change): (answer.saving_ns / one.step_ns, answer)
        for name, one in cells.items()
        for answer in one.answers
    }
    if asked:
        wanted = [(name, change) for change in asked for name in names]
    else:
        wanted = sorted(told, key=lambda key: -told[key][0])
    numbers: dict[str, int] = {}
    claims = []
    for name, change in wanted[:most]:
        numbers[name] = numbers.get(name, 0) + 1
        answer = told.get((name, change), (0.0, None))[1]
        claims.append(Claim(name, f"{name}.changed_{numbers[name]}", change, answer))
    return claims


def write_proof(run: Path, name: str, cells: Sequence[CellSummary], claims: Sequence[Claim]) -> ScenarioFile:
    """Return the scenario of the cells as they were and as they are changed.

    Args:
        run: folder of the run that was asked.
        name: of its scenario.
        cells: its cells.
        claims: at least one.

    Raises:
        PredictionError: a cell is a loop of one's own, or a change does not apply.
        ScenarioError: what comes out is no scenario.
    """
    scenarios = {cell.name: cell.scenario for cell in cells if cell.scenario is not None}
    launches = max(LAUNCHES, *(len(cell.launches) for cell in cells))
    written: dict[str, Words] = {}
    for claim in claims:
        if claim.cell not in scenarios:
            raise PredictionError(f"{claim.cell} is a loop of one's own: nothing here can run it")
        base = scenarios[claim.cell]
        written[claim.cell] = _spell(base, launches)
        written[claim.changed] = _spell(apply_change(base, claim.change), launches)
    file = write_scenario(f"{name}_proof", f"Does it hold what was said of `{run.name}`?", {}, written)
    return replace(file, folder=_find_folder(run, claims[0].cell))


def _spell(scenario: Scenario, launches: int) -> Words:
    return {**sections_of(scenario), "repeat": launches}


def _find_folder(run: Path, cell: str) -> Path | None:
    """Return where a person's own model was looked for."""
    order = RunFolder(run).launch(cell, 0).order
    if not order.exists():
        return None
    folders = WorkerOrder.model_validate_json(order.read_bytes()).import_folders
    return Path(folders[0]) if folders else None
