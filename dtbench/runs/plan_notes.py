"""What the plan of a cell says of its numbers, as far as it came to pass."""

from collections.abc import Iterator

from dtbench.plan.plan import LINKED_NOTE
from dtbench.runs.summary import CellSummary
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.store.records.rank import NETWORK_KNOB, REAL_NETWORK


def is_linked(cell: CellSummary) -> bool:
    """Tell whether an emulated link carried the collectives: their times are the link's, not the machine's."""
    is_asked = cell.scenario is not None and isinstance(cell.scenario.network, EmulatedNetwork) and cell.plan.ranks > 1
    return is_asked and not any(one.knob == NETWORK_KNOB and one.got == REAL_NETWORK for one in cell.receipts)


def planned_notes(cell: CellSummary) -> Iterator[str]:
    """Yield the plan's notes; of an emulated link only where it carried the collectives."""
    yield from (note for note in cell.plan.notes if note != LINKED_NOTE or is_linked(cell))
