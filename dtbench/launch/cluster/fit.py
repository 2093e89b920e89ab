"""How cells lie on several nodes: which cannot, and what holds of them there."""

from collections.abc import Iterator

from dtbench.base.errors import PlanError
from dtbench.base.vocabulary import DeviceKind
from dtbench.launch.nodes import spread_ranks
from dtbench.plan.plan import LOOPBACK_NOTE, Machine
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.store.records.run import CellRecord


def fit_cells(cells: tuple[CellRecord, ...], count: int) -> tuple[CellRecord, ...]:
    """Return cells as they run on so many nodes: what is said of loopback goes where ranks lie on several.

    Raises:
        PlanError: names every cell that cannot run on them, and why.
    """
    reasons = [f"cell {cell.name}: {reason}" for cell in cells for reason in _find_reasons(cell, count)]
    if reasons:
        raise PlanError("\n".join(reasons))
    return tuple(cell if count == 1 or cell.plan.ranks == 1 else _without_loopback(cell) for cell in cells)


def _find_reasons(cell: CellRecord, count: int) -> Iterator[str]:
    try:
        spread_ranks(cell.plan.ranks, count)
    except PlanError as error:
        yield str(error)
    is_linked = isinstance(cell.scenario.network, EmulatedNetwork) and cell.plan.device is DeviceKind.CPU
    if is_linked and count > 1 and cell.plan.ranks > 1:
        yield "network.kind=emulated lies between ranks of one machine, which tell each other when they issued"


def _without_loopback(cell: CellRecord) -> CellRecord:
    notes = tuple(note for note in cell.plan.notes if note != LOOPBACK_NOTE)
    return cell.model_copy(update={"plan": cell.plan.model_copy(update={"notes": notes})})


def join_machines(machine: Machine, count: int) -> Machine:
    """Return what so many machines like this one offer together."""
    memory_bytes = None if machine.memory_bytes is None else count * machine.memory_bytes
    together = {"cpu_cores": count * machine.cpu_cores, "cuda_devices": count * machine.cuda_devices}
    return machine.model_copy(update={**together, "memory_bytes": memory_bytes})
