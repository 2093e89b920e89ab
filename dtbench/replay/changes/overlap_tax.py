"""Kernels beside communication take what they take alone: what it takes from compute, apart from the time it needs.

Collectives use a device's multiprocessors and its memory's bandwidth, so that kernels beside them are slower. How much
is measured of those that were seen both ways (``traces/account/overlap_tax.py``); what collectives would take without
kernels beside them is not, so they stay as they were.
"""

from dataclasses import dataclass, replace

from dtbench.base.errors import PredictionError
from dtbench.replay.changes.change import Change, ChangeKind
from dtbench.replay.graph import JobGraph


@dataclass(frozen=True)
class NoOverlapTax(Change):
    """Kernels that ran under communication, and were seen alone, take as many times less as they are slower there."""

    kind = ChangeKind.OVERLAP_TAX

    @property
    def name(self) -> str:
        """As ``--change`` takes it."""
        return str(self.kind)

    def apply(self, graph: JobGraph) -> JobGraph:
        """Return the changed graph.

        Raises:
            PredictionError: hosts compute themselves; or no kernel was seen both ways.
        """
        if not all(one.is_device for one in graph.values()):
            raise PredictionError("on CPUs what computes is the host: what communication takes from it is not known")
        if all((one.items.alone_ns == one.items.busy_ns).all() for one in graph.values()):
            raise PredictionError(
                "no kernel of these steps was seen often enough both under communication and alone, in the same region "
                "of the step, to tell what communication takes from it"
            )
        return {rank: replace(one, items=replace(one.items, busy_ns=one.items.alone_ns)) for rank, one in graph.items()}
