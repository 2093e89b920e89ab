"""What became of ``network:``: whether every collective went over the link, and whether the backend kept up with it."""

from collections.abc import Iterator
from typing import Final

from dtbench.base.units import NS_PER_US, format_ns
from dtbench.scenario.schema.network import EmulatedNetwork, RealNetwork
from dtbench.store.records.rank import NETWORK_KNOB, REAL_NETWORK, Receipt, ReceiptOutcome
from dtbench.worker.network.cuda_link import CudaLink
from dtbench.worker.network.link import Link, Tally

_MOST_OFF: Final = 0.05
"""Of what services should take, by how much they may miss it: more than clocks of a device differ by in a run."""
_MARKS_NS: Final = 10 * NS_PER_US
"""What is measured of a service beside its spin: its launch behind what the lane waits for, and the marks around it."""


def read_network_receipts(
    network: RealNetwork | EmulatedNetwork, link: Link | CudaLink | None, issued: int
) -> tuple[Receipt, ...]:
    """Hold what the link carried against what this rank issued, and what it took against what it should.

    Args:
        network: as asked.
        link: that this rank has; None: the backend alone.
        issued: collectives of this process, in groups of several ranks.
    """
    if not isinstance(network, EmulatedNetwork):
        return ()
    tally = Tally() if link is None else link.carried
    if link is None or tally.count != issued:
        note = f"the link carried {tally.count} of {issued} collectives: others went past it, or are not done"
        return (
            Receipt(knob=NETWORK_KNOB, asked="emulated", got=REAL_NETWORK, outcome=ReceiptOutcome.DISAGREES, note=note),
        )
    return (_judge(tally, link.backend),)


def _judge(tally: Tally, backend: str) -> Receipt:
    note = "; ".join(_describe(tally, backend))
    if abs(tally.took_ns - tally.asked_ns) > _MOST_OFF * tally.asked_ns + _MARKS_NS * tally.count:
        got, outcome = "emulated at another cost", ReceiptOutcome.DISAGREES
    elif 2 * tally.late > tally.count:
        got, outcome, note = REAL_NETWORK, ReceiptOutcome.NO_EFFECT, f"{backend} is slower than this link: {note}"
    else:
        got, outcome = "emulated", ReceiptOutcome.AGREES
    return Receipt(knob=NETWORK_KNOB, asked="emulated", got=got, outcome=outcome, note=note)


def _describe(tally: Tally, backend: str) -> Iterator[str]:
    yield f"every one of {tally.count} collectives went over the link, and {backend} moved the data"
    if tally.late:
        yield f"{tally.late} were held up by {backend}, which took longer, by up to {format_ns(tally.latest_ns)}"
    if tally.asked_ns:
        yield f"services took {format_ns(tally.took_ns)} together, and should have taken {format_ns(tally.asked_ns)}"
