"""Which changes of a run are to be proven, and the scenario that runs them beside what they change."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dtbench.base.errors import PredictionError
from dtbench.runs.settings.forecast import Forecast, SettingAnswer, apply_change
from dtbench.scenario.load import ScenarioFile
from dtbench.scenario.schema.scenario import Scenario
from dtbench.scenario.written import Words, sections_of, write_scenario
from dtbench.store.layout import RunFolder
from dtbench.store.records.run import WorkerOrder

LAUNCHES: Final = 4
"""Of each cell at least: what a comparison needs."""

Scenarios = Mapping[str, Scenario]
"""Cells of a run by name, as they were run; those of loops of one's own are not among them."""


@dataclass(frozen=True)
class Claim:
    """A change of one cell.

    Attributes:
        cell: that is changed.
        changed: name of the changed cell, which no cell of the run has.
        change: fields and values, as ``--set`` has them.
        forecast: what was said of it; None: nothing could be.
    """

    cell: str
    changed: str
    change: str
    forecast: SettingAnswer | None


def choose_claims(
    cells: Mapping[str, Forecast], most: int, *, scenarios: Scenarios, asked: Sequence[str] = ()
) -> tuple[list[Claim], list[str]]:
    """Return the changes that are to be run, and of others why they are not.

    Args:
        cells: what was said of each cell that was asked.
        most: how many at most.
        scenarios: of the cells that were asked.
        asked: changes that a person named, for each cell to which they apply; empty: those that are said to save most.
    """
    told = {(name, answer.change): answer for name, one in cells.items() for answer in one.answers}
    shares = {key: answer.saving_ns / cells[key[0]].step_ns for key, answer in told.items()}
    wanted = [(name, change) for change in asked for name in scenarios] or sorted(told, key=lambda key: -shares[key])
    kept, left_out = list[tuple[str, str]](), list[str]()
    for name, change in wanted:
        if not asked and shares[name, change] <= 0:
            continue
        try:
            apply_change(scenarios[name], change)
        except PredictionError as error:
            left_out.append(f"{name}: {error}")
        else:
            kept.append((name, change))
    left_out += [f"{name}: `{change}` is not run: {most} are" for name, change in kept[most:] if asked]
    names = list[str]()
    claims = []
    for name, change in kept[:most]:
        names.append(_name_changed(len(names) + 1, scenarios))
        claims.append(Claim(name, names[-1], change, told.get((name, change))))
    return claims, left_out


def _name_changed(number: int, taken: Container[str]) -> str:
    """Return a name that no cell has: runs of proofs are proven, too."""
    name = f"changed_{number}"
    while name in taken:
        name += "x"
    return name


def write_proof(run: Path, name: str, scenarios: Scenarios, claims: Sequence[Claim], launches: int) -> ScenarioFile:
    """Return the scenario of the cells as they were and as they are changed.

    Args:
        run: folder of the run that was asked.
        name: of its scenario.
        scenarios: of its cells.
        claims: at least one.
        launches: of each cell at least.

    Raises:
        ScenarioError: what comes out is no scenario.
    """
    written: dict[str, Words] = {}
    for claim in claims:
        base, repeat = scenarios[claim.cell], {"repeat": max(LAUNCHES, launches)}
        written[claim.cell] = {**sections_of(base), **repeat}
        written[claim.changed] = {**sections_of(apply_change(base, claim.change)), **repeat}
    file = write_scenario(f"{name}_proof", f"Does it hold what was said of `{run.name}`?", {}, written)
    return replace(file, folder=_find_folder(run, claims[0].cell))


def _find_folder(run: Path, cell: str) -> Path | None:
    """Return where a person's own model was looked for."""
    order = RunFolder(run).launch(cell, 0).order
    if not order.exists():
        return None
    folders = WorkerOrder.model_validate_json(order.read_bytes()).import_folders
    return Path(folders[0]) if folders else None
