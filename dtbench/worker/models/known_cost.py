"""Blocks that take a given time: identity in value, compute of known length in the trace.

::

    forward     up, activation, down, residual │ exit: what is left of forward_ms
    backward    exit: backward_ms │ gradients of down and up        a bucket is ready backward_ms after the one before

    backward_at: entry
    backward    gradients of down and up │ entry: backward_ms       in which they can be reduced
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, Protocol

import torch
from torch import Tensor
from torch.profiler import record_function

from dtbench.base.ranges import timed_range
from dtbench.base.units import NS_PER_MS, format_ns, three_digits
from dtbench.base.vocabulary import Region
from dtbench.scenario.schema.model import Timed
from dtbench.store.records.rank import Receipt, ReceiptOutcome
from dtbench.worker.machine.sleep import sleep_until
from dtbench.worker.machine.spin import LONGEST_TRY_NS, Spin

MOST_JITTER: Final = 0.05
"""Of a unit: above, chance decides more than the cost that is known."""

_AWAKE_NS: Final = 200_000
"""Before its end a block wakes up and waits for the clock: systems wake a sleeper some 0.1 ms late."""


class Pause(Protocol):
    """Takes time where the model computes."""

    def take(self, duration_ns: int, done_ns: int = 0) -> None:
        """Take so long, of which so much of the host's CPU time has been taken already."""

    def try_out(self, duration_ns: int, times: int) -> Iterator[int]:
        """Take so long some times, outside of any step; gives by how much each missed its length, ns, none below 0.

        One is over whenever it is given.
        """

    def look_back(self, duration_ns: int) -> list[int]:
        """Return how long it really took whenever it was to take so long, ns."""


class Sleep:
    """On the host: sleeps until the time is over, which frees the core."""

    def __init__(self) -> None:
        self._took_ns: defaultdict[int, list[int]] = defaultdict(list)

    def take(self, duration_ns: int, done_ns: int = 0) -> None:
        """Sleep what is left, and remember how long it was together."""
        start_ns = time.monotonic_ns()
        _wait_until(start_ns + duration_ns - done_ns)
        self._took_ns[duration_ns].append(time.monotonic_ns() - start_ns + done_ns)

    def try_out(self, duration_ns: int, times: int) -> Iterator[int]:
        """Sleep 25 ms at most: what a sleep adds does not depend on its length."""
        for _ in range(times):
            yield self._try_once(min(duration_ns, LONGEST_TRY_NS))

    def _try_once(self, duration_ns: int) -> int:
        start_ns = time.monotonic_ns()
        sleep_until(start_ns + duration_ns)
        return abs(time.monotonic_ns() - start_ns - duration_ns)

    def look_back(self, duration_ns: int) -> list[int]:
        """Return how long each of these sleeps was."""
        return self._took_ns[duration_ns]


def _wait_until(end_ns: int) -> None:
    sleep_until(end_ns - _AWAKE_NS)
    while time.monotonic_ns() < end_ns:
        pass


def make_pause(device: torch.device) -> Pause:
    """Return what takes time on a device."""
    return Spin(torch.cuda) if device.type == "cuda" else Sleep()  # a device that can spin; others sleep


@dataclass
class KnownCost:
    """What every block of a model takes on one rank.

    Attributes:
        asked: by the scenario.
        rank: which one.
        pause: takes the time.
        cost_ns: of a block on this rank, by region.
        jitter_ns: by how much the worst rank misses it on average, by region, before warm-up; empty: not tried.
    """

    asked: Timed
    rank: int
    pause: Pause
    cost_ns: dict[Region, int] = field(init=False)
    jitter_ns: dict[Region, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cost_ns = self.asked.cost_ns(self.rank)

    def take(self, region: Region, fqn: str, done_ns: int = 0) -> None:
        """Let a block take its time, in a range of its own; a cost of 0 leaves no range.

        ``done_ns``, the CPU time of its own products in this region, is part of its time.
        """
        if self.cost_ns[region]:
            with record_function(timed_range(fqn, region)):
                self.pause.take(self.cost_ns[region], done_ns)

    def read_receipts(self) -> Iterator[Receipt]:
        """Hold what blocks really took against what they were to take; a cost of 0 took nothing."""
        for region, cost_ns in self.cost_ns.items():
            if cost_ns:
                yield self._read_receipt(region, cost_ns)

    def _read_receipt(self, region: Region, cost_ns: int) -> Receipt:
        asked_ms = getattr(self.asked, field_of(region))
        took = self.pause.look_back(cost_ns)
        knob = f"model.{field_of(region)}"
        if not took:
            note = "no block has taken its time"
            return Receipt(knob=knob, asked=f"{asked_ms:g}", got="0", outcome=ReceiptOutcome.DISAGREES, note=note)
        agrees = abs(median(took) - cost_ns) <= MOST_JITTER * cost_ns
        return Receipt(
            knob=knob,
            asked=f"{asked_ms:g}",
            got=three_digits(median(took) / NS_PER_MS),
            outcome=ReceiptOutcome.AGREES if agrees else ReceiptOutcome.DISAGREES,
            note=self._note(region, len(took)),
        )

    def _note(self, region: Region, times: int) -> str:
        slow = self.asked.slow_rank
        here = f"{slow.factor:g} times that on this rank; " if slow is not None and slow.rank == self.rank else ""
        tried = f"; before warm-up it missed by {format_ns(self.jitter_ns[region])}" if self.jitter_ns else ""
        return f"{here}median of {times}{tried}"


def field_of(region: Region) -> str:
    """Name the field of a timed model that says what a block takes in a region."""
    return f"{region}_ms"


class _TakeTime(torch.autograd.Function):
    """Identity; takes a block's time of some regions, on the way in and on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, at: "_Place", *askers: Tensor) -> Tensor:
        ctx.at, ctx.askers = at, len(askers)
        if Region.FORWARD in at.regions:
            at.cost.take(Region.FORWARD, at.fqn, at.done_ns)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if Region.BACKWARD in ctx.at.regions:
            ctx.at.cost.take(Region.BACKWARD, ctx.at.fqn)
        return gradient, *(None,) * (1 + ctx.askers)


@dataclass(frozen=True)
class _Place:
    """Where time is taken: at an end of a block, for some regions.

    Attributes:
        done_ns: CPU time that the block's forward has taken before.
    """

    cost: KnownCost
    fqn: str
    regions: tuple[Region, ...]
    done_ns: int = 0


def enter_block(x: Tensor, cost: KnownCost, fqn: str) -> Tensor:
    """Return ``x``, of any shape; where the scenario says ``entry``, its gradient comes after the block's time.

    Nobody asks for the gradient of the first block's input: a tensor of nothing asks in its place.
    """
    if cost.asked.backward_at == "exit":
        return x
    return _TakeTime.apply(x, _Place(cost, fqn, (Region.BACKWARD,)), torch.empty(0, requires_grad=True))


def leave_block(x: Tensor, cost: KnownCost, fqn: str, done_ns: int) -> Tensor:
    """Return ``x``, of any shape, after the time that a block takes; at an exit its gradient comes after backward's.

    ``done_ns`` is the CPU time that the block's products have taken on this thread. On CUDA it is the host's alone, and
    the products run beside it: there the whole time comes on top of theirs.
    """
    is_whole = cost.asked.backward_at == "exit"
    regions = (Region.FORWARD, Region.BACKWARD) if is_whole else (Region.FORWARD,)
    return _TakeTime.apply(x, _Place(cost, fqn, regions, done_ns))
