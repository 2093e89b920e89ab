"""The cells of a scenario planned for a machine, and the order in which their launches run."""

from collections.abc import Callable, Iterator
from math import prod
from typing import Final

from dtbench.launch.submit.shape import NodeShape
from dtbench.plan.cells import plan_each
from dtbench.plan.plan import Machine, make_plan, plan_mesh
from dtbench.scenario.load import ScenarioFile
from dtbench.scenario.schema.repeat import count_launches
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.records.run import CellRecord


def plan_cells(file: ScenarioFile, machine: Machine) -> tuple[CellRecord, ...]:
    """Plan every cell of a scenario on a machine, or on nodes that are alike.

    Raises:
        PlanError: names every cell that cannot run there, and why.
    """
    return _plan(file, lambda _scenario: machine)


def _plan(file: ScenarioFile, choose_machine: Callable[[Scenario], Machine]) -> tuple[CellRecord, ...]:
    plans = plan_each(file, lambda scenario: make_plan(scenario, choose_machine(scenario)))
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

    GPUs are taken to be 8 a node; ranks on CPU are on one node such as this machine.

    Raises:
        PlanError: names every cell that could not run anywhere, and why.
    """
    there = machine.model_copy(update={"torch": None})

    def choose(scenario: Scenario) -> Machine:
        if scenario.device != "cuda":
            return there
        ranks = prod(axis.size for axis in plan_mesh(scenario))
        nodes = next(count for count in range(-(-ranks // GPUS_PER_NODE), ranks + 1) if not ranks % count)
        if nodes == 1:
            return there.model_copy(update={"cuda_devices": max(ranks, machine.cuda_devices)})
        return Machine(cpu_cores=None, cuda_devices=ranks // nodes, nodes=nodes)

    return _plan(file, choose)


GPUS_PER_NODE: Final = 8
"""What a node is taken to have where nobody says it."""


def plan_for_nodes(file: ScenarioFile, nodes: int, shape: NodeShape) -> tuple[CellRecord, ...]:
    """Plan every cell for nodes that are not this machine: what is not known of them is not asked, but decided there.

    A scenario for GPUs finds one for each rank where their number is not known; ``device: auto`` takes none then.

    Raises:
        PlanError: names every cell that cannot run there, and why.
    """

    def choose(scenario: Scenario) -> Machine:
        ranks = prod(axis.size for axis in plan_mesh(scenario))
        enough = ranks if scenario.device == "cuda" else 0
        return Machine(
            cpu_cores=shape.cores,
            cuda_devices=enough if shape.gpus is None else shape.gpus,
            memory_bytes=shape.memory_bytes,
            nodes=nodes,
        )

    return _plan(file, choose)


def interleave(cells: tuple[CellRecord, ...], first: int) -> Iterator[tuple[CellRecord, int]]:
    """Return launches round by round, every second one backwards (ABBA): the machine's drift hits all cells alike."""
    rounds = max(len(cell.launches) for cell in cells)
    for index in range(first, rounds):
        for cell in cells if index % 2 == 0 else reversed(cells):
            if index in cell.launches:
                yield cell, index
