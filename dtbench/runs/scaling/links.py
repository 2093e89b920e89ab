"""Another link: how it is asked for, links that vendors publish figures of, and what that makes of a cell's network.

::

    x2                                every collective takes half as long
    latency=5us,bandwidth=50GB/s      of each message, and of the link; what is left out stays
    nvlink4, 400G                     a published one
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dtbench.base.errors import PredictionError
from dtbench.scenario.schema.network import BetweenNodes, EmulatedNetwork, Network, Tier


@dataclass(frozen=True)
class PublishedLink:
    """What a vendor says of one GPU's link, or of one adapter's.

    Attributes:
        bandwidth_gb_per_s: in one direction, 10^9 bytes per second: nominal, so that no collective is faster.
        latency_us: of one step of a ring.
        source: where the bandwidth is published.
    """

    bandwidth_gb_per_s: float
    latency_us: float
    source: str


_WITHIN_US: Final = 3.4
_BETWEEN_US: Final = 14.0
"""A step of a ring that sends large messages, over NVLink and over a network: what NCCL itself reckons with
(``hwLat``, Ring, Simple, in ``src/graph/tuning.cc`` of 2.19 and later)."""

LINKS: Final[Mapping[str, PublishedLink]] = {
    "nvlink2": PublishedLink(150, _WITHIN_US, "NVIDIA DGX-1 With Tesla V100 System Architecture: 300 GB/s, both ways"),
    "nvlink3": PublishedLink(300, _WITHIN_US, "NVIDIA A100 Tensor Core GPU Architecture: 600 GB/s, both ways"),
    "nvlink4": PublishedLink(450, _WITHIN_US, "NVIDIA H100 Tensor Core GPU Architecture: 900 GB/s, both ways"),
    "nvlink5": PublishedLink(900, _WITHIN_US, "nvidia.com/en-us/data-center/nvlink: 1.8 TB/s, both ways"),
    "200G": PublishedLink(25, _BETWEEN_US, "docs.nvidia.com/networking, ConnectX-6 user manual: HDR 200Gb/s"),
    "400G": PublishedLink(50, _BETWEEN_US, "docs.nvidia.com/networking, ConnectX-7 user manual: NDR 400Gb/s"),
    "800G": PublishedLink(100, _BETWEEN_US, "docs.nvidia.com/networking, ConnectX-8 SuperNIC user manual: 800 Gb/s"),
}
"""By the name that ``--link`` takes: NVLink's generations, all links of a GPU; an adapter of a fabric for each GPU."""

_PART: Final = re.compile(r"(?P<what>latency|bandwidth)=(?P<value>\d+(?:\.\d*)?(?:e[+-]?\d+)?)(?P<unit>[A-Za-z/]+)")
_TIMES: Final = re.compile(r"x(?P<times>\d+(?:\.\d*)?)")
_LATENCY_US: Final = {"ns": 1e-3, "us": 1.0, "ms": 1e3}
_BANDWIDTH_GB: Final = {"GB/s": 1.0, "MB/s": 1e-3, "Gb/s": 0.125}


@dataclass(frozen=True)
class LinkChange:
    """What is asked for a tier of a link.

    Attributes:
        text: as it was asked for.
        times: all its collectives take the one-in-so-many-th of their time; 1: as long.
        latency_us, bandwidth_gb_per_s: None: as it is.
        published: where the bandwidth was published; empty: nowhere.
    """

    text: str
    times: float = 1.0
    latency_us: float | None = None
    bandwidth_gb_per_s: float | None = None
    published: str = ""

    def change(self, tier: Tier | None, where: str) -> tuple[float, float]:
        """Return latency and bandwidth.

        Args:
            tier: as it is; None: there is none.
            where: what is changed, for the sentence.

        Raises:
            PredictionError: it is changed by what does not say all, and there is nothing to change.
        """
        if tier is None and (self.latency_us is None or self.bandwidth_gb_per_s is None):
            raise PredictionError(
                f"`{self.text}` changes {where}, of which no cost is known: say both, `latency=5us,bandwidth=50GB/s`, "
                f"or a link by its name ({', '.join(LINKS)})"
            )
        latency_us = self.latency_us if tier is None or self.latency_us is not None else tier.latency_us
        bandwidth = (
            self.bandwidth_gb_per_s if tier is None or self.bandwidth_gb_per_s is not None else tier.bandwidth_gb_per_s
        )
        assert latency_us is not None
        assert bandwidth is not None
        return latency_us / self.times, bandwidth * self.times


def read_link(text: str) -> LinkChange:
    """Read what is asked for a link.

    Raises:
        PredictionError: it is none; names what there is.
    """
    words = text.strip()
    if words in LINKS:
        known = LINKS[words]
        return LinkChange(words, 1.0, known.latency_us, known.bandwidth_gb_per_s, known.source)
    if (times := _TIMES.fullmatch(words)) is not None and float(times["times"]) > 0:
        return LinkChange(words, float(times["times"]))
    found: dict[str, float] = {}
    for part in words.split(","):
        match = _PART.fullmatch(part.strip())
        scale = (
            None if match is None else (_LATENCY_US if match["what"] == "latency" else _BANDWIDTH_GB).get(match["unit"])
        )
        if match is None or scale is None or match["what"] in found:
            raise PredictionError(_say_none(text))
        found[match["what"]] = float(match["value"]) * scale
    if found.get("bandwidth") == 0:
        raise PredictionError(f"`{text}`: over a link without bandwidth nothing ends")
    return LinkChange(words, 1.0, found.get("latency"), found.get("bandwidth"))


def _say_none(text: str) -> str:
    return (
        f"`{text}` is no link; say `x2`, `latency=5us,bandwidth=50GB/s` (us, ms or ns; GB/s, MB/s or Gb/s), or a "
        f"published one: {', '.join(LINKS)}"
    )


@dataclass(frozen=True)
class Cluster:
    """Where a cell is asked to run.

    Attributes:
        link: of all ranks, or of those of a node; None: as it is.
        between: between nodes; None: as it is.
        ranks_per_node: how many share a machine; None: as it is.
    """

    link: LinkChange | None = None
    between: LinkChange | None = None
    ranks_per_node: int | None = None

    @property
    def published(self) -> tuple[str, ...]:
        """What vendors say of its links, with where they say it."""
        asked = (self.link, self.between)
        return tuple(f"{one.text}: {one.published}" for one in asked if one is not None and one.published)


def put_on_cluster(network: Network, cluster: Cluster) -> Network:
    """Return a cell's network there.

    Raises:
        PredictionError: what is asked for does not say all.
    """
    known = network if isinstance(network, EmulatedNetwork) else None
    if known is None and cluster.link is None:
        return network
    if known is None:
        assert cluster.link is not None
        latency_us, bandwidth = cluster.link.change(None, "network.kind=real")
        known = EmulatedNetwork(kind="emulated", latency_us=latency_us, bandwidth_gb_per_s=bandwidth, algorithm="ring")
    elif cluster.link is not None:
        latency_us, bandwidth = cluster.link.change(known, "the link")
        known = known.model_copy(update={"latency_us": latency_us, "bandwidth_gb_per_s": bandwidth})
    return known.model_copy(update={"between_nodes": _find_between(known.between_nodes, cluster)})


def fit_to_world(network: Network, world: int) -> Network:
    """Return the network of so many ranks: where one node has room for all, nothing crosses to another."""
    nodes = network.between_nodes if isinstance(network, EmulatedNetwork) else None
    is_one = nodes is not None and world <= nodes.ranks_per_node
    return network.model_copy(update={"between_nodes": None}) if is_one else network


def _find_between(nodes: BetweenNodes | None, cluster: Cluster) -> BetweenNodes | None:
    ranks = cluster.ranks_per_node or (None if nodes is None else nodes.ranks_per_node)
    change = cluster.between
    if change is None and cluster.link is not None and cluster.link.times != 1.0 and nodes is not None:
        change = cluster.link  # every collective, so those between nodes, too
    if change is not None:
        if ranks is None:
            raise PredictionError(f"--between {change.text} needs --nodes-of K: how many ranks a node has")
        latency_us, bandwidth = change.change(nodes, "the link between nodes")
        return BetweenNodes(ranks_per_node=ranks, latency_us=latency_us, bandwidth_gb_per_s=bandwidth)
    return None if nodes is None or ranks is None else nodes.model_copy(update={"ranks_per_node": ranks})
