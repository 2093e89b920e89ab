"""How far predictions were ever held against runs: what lies beyond is extrapolated, and said to be.

What was scored is recorded in ``tests/benchmarks/recorded``; a test holds these numbers to it.
"""

from collections.abc import Iterator
from typing import Final

from dtbench.base.units import three_digits
from dtbench.scenario.schema.network import EmulatedNetwork, Network

MOST_RANKS: Final = 4
"""Of any cell whose prediction was held against a run."""

BANDWIDTH_TIMES: Final = (0.5, 4.0)
"""By how many times the bandwidth of the link that was run another one was that was held against a run."""


def find_beyond(world: int, network: Network, ran: Network | None) -> Iterator[str]:
    """Yield in what a prediction lies beyond all that was held against runs, each as a clause.

    Args:
        world: ranks.
        network: that is asked for.
        ran: that was measured; None: nothing was.
    """
    if ran is None:
        yield "no host"
    if world > MOST_RANKS:
        yield f"more than {MOST_RANKS} ranks"
    if not isinstance(network, EmulatedNetwork):
        return
    if network.between_nodes is not None:
        yield "two tiers of links"
    if isinstance(ran, EmulatedNetwork):
        times = network.bandwidth_gb_per_s / ran.bandwidth_gb_per_s
        least, most = BANDWIDTH_TIMES
        if not least <= times <= most:
            yield f"{three_digits(times)} times the bandwidth"
