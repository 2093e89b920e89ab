"""What became of ``network:``: whether every collective went over the link, and whether gloo kept up with it."""

from dtbench.scenario.network import EmulatedNetwork, RealNetwork
from dtbench.store.records import Receipt, ReceiptOutcome
from dtbench.units import format_ns
from dtbench.worker.network.link import Link

_KNOB = "network.kind"


def read_network_receipts(
    network: RealNetwork | EmulatedNetwork, link: Link | None, issued: int
) -> tuple[Receipt, ...]:
    """Hold what the link carried against what this rank issued.

    Args:
        network: as asked.
        link: that this rank has; None: the backend alone.
        issued: collectives of this process, in groups of several ranks.
    """
    if not isinstance(network, EmulatedNetwork):
        return ()
    carried = 0 if link is None else link.carried.count
    if link is None or carried != issued:
        note = f"the link carried {carried} of {issued} collectives: others went past it, or are not done"
        return (Receipt(knob=_KNOB, asked="emulated", got="real", outcome=ReceiptOutcome.DISAGREES, note=note),)
    note = f"every one of {carried} collectives went over the link"
    if link.carried.late:
        late = (
            f"{link.carried.late} were held up by gloo, which took longer, by up to {format_ns(link.carried.latest_ns)}"
        )
        note += f"; {late}"
    slow = 2 * link.carried.late > carried
    return (
        Receipt(
            knob=_KNOB,
            asked="emulated",
            got="real" if slow else "emulated",
            outcome=ReceiptOutcome.NO_EFFECT if slow else ReceiptOutcome.AGREES,
            note=f"gloo is slower than this link: {note}" if slow else note,
        ),
    )
