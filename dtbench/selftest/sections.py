"""The sections of a scenario that situations are made of: a timed model, a strategy, a link of wanted cost."""

from dataclasses import dataclass
from math import isqrt
from typing import Final, Literal

from dtbench.base.units import MIB, NS_PER_MS
from dtbench.base.vocabulary import Operation
from dtbench.plan.traffic.link import count_messages
from dtbench.scenario.schema.network import Algorithm
from dtbench.scenario.written import Value, Words
from dtbench.selftest.draw import Draw

_ALGORITHMS: Final[tuple[Algorithm, ...]] = ("direct", "ring", "tree")
_WIDTH: Final = 256
_BYTES_PER_ELEMENT: Final = 4
_ROWS_PER_REPLICA: Final = 2

SHARED: Final[Words] = {
    "device": "cpu",
    "data": {"global_batch": 2 * _ROWS_PER_REPLICA, "sequence_length": 8},
    "optimizer": {"kind": "sgd"},
    # losses are held against one process elsewhere: it would take as long as the ranks, and says nothing of time
    "correctness": {"enabled": False},
    "measure": {
        "warmup": {"min_steps": 8, "max_steps": 10},
        "measured_steps": 8,
        "profiled_steps": 5,
        "exposure": ("trace", "ablation", "wait"),
        "stall_timeout_s": 60.0,
        "quiet_timeout_s": 120.0,
    },
}
"""What all cells have: a batch whose products take no time, and few steps, because each of them is known; as many as
let a median stand though a machine that others use stretches two or three of them."""


SMALL_MIB: Final = (0.25, 0.5)
"""Of a block: what gloo really moves in less time than a link is asked to take, also on a machine that is busy."""


@dataclass(frozen=True)
class Blocks:
    """The blocks of a timed model, and their time in forward and in backward.

    Attributes:
        matrices: of a block: one of equal sides, or two around a hidden dim.
    """

    layers: int
    mib: float
    forward_ms: float
    backward_ms: float
    matrices: Literal[1, 2] = 2

    @property
    def block_bytes(self) -> int:
        """Parameters of one block."""
        return round(self.mib * MIB)

    @property
    def all_bytes(self) -> int:
        """Parameters of all blocks; nothing is outside of them."""
        return self.layers * self.block_bytes

    def words(self, **more: Value) -> Words:
        """Spell the section ``model``."""
        elements = self.block_bytes // _BYTES_PER_ELEMENT
        dim, hidden_dim = (_WIDTH, elements // (2 * _WIDTH)) if self.matrices == 2 else (isqrt(elements), None)
        return {
            "kind": "timed",
            "layers": self.layers,
            "dim": dim,
            "hidden_dim": hidden_dim,
            "forward_ms": float(self.forward_ms),
            "backward_ms": float(self.backward_ms),
            **more,
        }

    def buckets(self, first: int) -> tuple[str, ...]:
        """Name DDP's buckets of one block each, from this one on; negative: from the end."""
        return tuple(f"bucket {index}" for index in range(self.layers))[first:]

    @property
    def units(self) -> tuple[str, ...]:
        """Name FSDP's units of one block each."""
        return tuple(f"layers.{index}" for index in range(self.layers))


@dataclass(frozen=True)
class Message:
    """A collective whose time on the link is wanted: what it does, how many bytes, among how many ranks."""

    operation: Operation
    size_bytes: int
    ranks: int = 2


def ddp(blocks: Blocks, network: Words, *, blocks_per_bucket: int = 1, replicas: int = 2, **more: Value) -> Words:
    """Return a cell of buckets of so many blocks each; each replica has the same part of the batch, however many."""
    cap_mib = float(blocks.mib * blocks_per_bucket)
    parallel: Words = {"kind": "ddp", "replicas": replicas, "bucket_cap_mb": cap_mib, **more}
    data: Words = {"data": {"global_batch": _ROWS_PER_REPLICA * replicas}} if replicas != 2 else {}
    return {"model": blocks.words(), "parallel": parallel, "network": network, **data}


def fsdp2(blocks: Blocks, network: Words, **more: Value) -> Words:
    """Return a cell of two shards, a unit for each block."""
    parallel: Words = {"kind": "fsdp2", "shards": 2, **more}
    return {"model": blocks.words(), "parallel": parallel, "network": network}


def tier(service_ms: float, message: Message, *, latency_share: float, algorithm: Algorithm = "direct") -> Words:
    """Return latency and bandwidth with which the link serves a message in so many ms.

    Args:
        service_ms: what it is to take.
        message: what is carried.
        latency_share: part of the time that is latency.
        algorithm: of the link.
    """
    messages = count_messages(algorithm, message.operation, message.ranks)
    carried_ns = (1 - latency_share) * service_ms * NS_PER_MS
    return {
        "latency_us": float(round(1_000 * latency_share * service_ms / messages.rounds)),
        "bandwidth_gb_per_s": round(messages.share * message.size_bytes / carried_ns, 9),
    }


def emulate(costs: Words, **more: Value) -> Words:
    """Return the section ``network`` of a link that costs this."""
    return {"kind": "emulated", **costs, **more}


def draw_link(draw: Draw, service_ms: float, message: Message) -> Words:
    """Return the section ``network``: a link that takes so many ms a message, of any latency, algorithm and lanes."""
    algorithm = draw.one_of(_ALGORITHMS)
    costs = tier(service_ms, message, latency_share=draw.tenths(0.2, 0.8), algorithm=algorithm)
    return emulate(costs, algorithm=algorithm, lanes=draw.one_of(("per_group", "shared")))
