"""What ``network:`` may say: the real backend alone, or a link of known cost in front of it."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, NonNegativeFloat, PositiveFloat, PositiveInt

from dtbench.base.record import Record

Algorithm = Literal["direct", "ring", "tree"]


class Tier(Record):
    """What a message costs: ``latency + size / bandwidth``."""

    latency_us: Annotated[NonNegativeFloat, Field(le=60_000_000)] = 0.0
    """Of each message, whatever its size."""
    bandwidth_gb_per_s: Annotated[PositiveFloat, Field(examples=[1.0])]
    """In 10^9 bytes per second."""


class BetweenNodes(Tier):
    """The slower tier: groups whose ranks are on several nodes use it for every message."""

    ranks_per_node: PositiveInt
    """Ranks 0 to this are on the first node, and so on."""


class Jitter(Record):
    """Each collective takes longer by a random part, the same on all its ranks and in every run of equal seed."""

    fraction: Annotated[float, Field(gt=0, le=10)]
    """The most by which it takes longer; all values up to it are equally likely."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


class SlowRank(Record):
    """Every collective that this rank takes part in is slower."""

    rank: Annotated[int, Field(ge=0)]
    factor: Annotated[float, Field(gt=1, le=1_000)]


class RealNetwork(Record):
    """gloo or NCCL, as they are."""

    kind: Literal["real"]


class EmulatedNetwork(Tier):
    """A link of known cost in front of the real backend, which still moves the data, so that results stay right.

    A collective is done when the backend is done and the link is: the link serves one after another, and takes
    ``latency + size / bandwidth`` for each. It begins when the last rank has issued it and its lane is free; on CUDA
    when this rank's device has come to the issue, since no device knows when others have.
    """

    kind: Literal["emulated"]
    algorithm: Algorithm = "direct"
    """How many messages a collective is: ``direct`` one of its whole size; ``ring`` and ``tree`` as their algorithms
    send them, for example 2(n-1) of 1/n each for an all-reduce on a ring of n."""
    lanes: Literal["per_group", "shared"] = "per_group"
    """Collectives of different process groups run beside each other, or wait for each other."""
    between_nodes: BetweenNodes | None = None
    """Left out: all ranks are on one node."""
    jitter: Jitter | None = None
    slow_rank: SlowRank | None = None


Network = Annotated[RealNetwork | EmulatedNetwork, Discriminator("kind")]
