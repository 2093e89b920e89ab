"""The cells of a scenario planned for a machine, and the order in which their launches run."""

from collections.abc import Iterator
from math import prod

from dtbench.plan.cells import plan_each
from dtbench.plan.plan import Machine, make_plan, plan_mesh
from dtbench.scenario.load import ScenarioFile
from dtbench.scenario.schema.repeat import count_launches
from dtbench.store.records.run import CellRecord


def plan_cells(file: ScenarioFile, machine: Machine) -> tuple[CellRecord, ...]:
    """Plan every cell of a scenario on a machine.

    Raises:
        PlanError: names every cell that cannot run here, and why.
    """
    plans = plan_each(file, lambda scenario: make_plan(scenario, machine))
    return tuple(
        CellRecord(
            name=cell.name,
            scenario=cell.scenario,
            plan=plans[cell.name],
            launches=tuple(range(count_launches(cell.scenario.repeat))),
            coordinates=dict(cell.coordinates),
        )
        for cell in file.cells
    )


def plan_elsewhere(file: ScenarioFile, machine: Machine) -> tuple[CellRecord, ...]:
    """Plan every cell for ranks that someone else will start, where GPUs and torch are what the scenario asks for.

    Raises:
        PlanError: names every cell that could not run anywhere, and why.
    """
    wanted = [cell.scenario for cell in file.cells if cell.scenario.device == "cuda"]
    enough = max((prod(axis.size for axis in plan_mesh(scenario)) for scenario in wanted), default=0)
    there = {"cuda_devices": max(enough, machine.cuda_devices), "torch": None}
    return plan_cells(file, machine.model_copy(update=there))


def interleave(cells: tuple[CellRecord, ...], first: int) -> Iterator[tuple[CellRecord, int]]:
    """Return launches round by round, every second one backwards (ABBA): the machine's drift hits all cells alike."""
    rounds = max(len(cell.launches) for cell in cells)
    for index in range(first, rounds):
        for cell in cells if index % 2 == 0 else reversed(cells):
            if index in cell.launches:
                yield cell, index
