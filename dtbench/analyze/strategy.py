"""Which strategy made a trace, by the ranges that it leaves there, and what else an advice must know of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dtbench.analyze.collectives import Collective
from dtbench.analyze.moments import STEP_RANGE, Moments, Place, find_moments
from dtbench.analyze.purposes import FSDP1
from dtbench.analyze.trace import Trace
from dtbench.ranges import REGION_PREFIX
from dtbench.vocabulary import Axis, Purpose, Region


class Strategy(StrEnum):
    """Who owns parameters and reduces gradients."""

    DDP = "ddp"
    FSDP1 = "fsdp1"
    FSDP2 = "fsdp2"


DDP_FORWARD: Final = "DistributedDataParallel.forward"
_RANGES: Final = {
    Strategy.DDP: ("DistributedDataParallel.", "torch::distributed::reducer::", "torch.distributed.ddp.reducer::"),
    Strategy.FSDP1: (FSDP1,),
    Strategy.FSDP2: ("FSDP::",),
}


@dataclass(frozen=True)
class TraceMarks:
    """What a trace shows of how it was made.

    Attributes:
        strategies: those that left ranges.
        prefetches_forward: FSDP2 gathered units ahead in forward, which it does on request only.
        gathers_in_backward: parameters were gathered in backward: they had been freed after forward.
        gathers_after_update: parameters were gathered in an optimizer's step or right after it, and at no other time.
        has_replicas: something was reduced over replicas, too.
        is_hip: the device is driven through HIP.
        is_own: dtbench's worker made it, which runs one step before those that it marks: it pays for the profiler's
            start.
    """

    strategies: frozenset[Strategy] = frozenset()
    prefetches_forward: bool = False
    gathers_in_backward: bool = False
    gathers_after_update: bool = False
    has_replicas: bool = False
    is_hip: bool = False
    is_own: bool = False


def find_strategies(trace: Trace) -> frozenset[Strategy]:
    """Give the strategies that left ranges in a trace."""
    return frozenset(
        strategy for strategy, ranges in _RANGES.items() if any(name.startswith(ranges) for name in trace.names)
    )


def find_marks(trace: Trace, collectives: Sequence[Collective]) -> TraceMarks:
    """Find the marks of a trace."""
    gathers = [one for one in collectives if one.purpose is Purpose.UNSHARD]
    moments = find_moments(trace) if gathers else None
    return TraceMarks(
        strategies=find_strategies(trace),
        prefetches_forward=any(name.startswith("FSDP::forward_prefetch for") for name in trace.names),
        gathers_in_backward=any(_is_in_backward(one) for one in gathers),
        gathers_after_update=moments is not None and all(_is_after_update(moments, one) for one in gathers),
        has_replicas=any(one.axis is Axis.REPLICATE for one in collectives),
        is_hip=any(name.startswith("hip") for name in trace.names),
        is_own=any(name.startswith(REGION_PREFIX) for name in trace.names),
    )


def _is_after_update(moments: Moments, gather: Collective) -> bool:
    if any(STEP_RANGE.fullmatch(name) for name in gather.above):
        return True
    return gather.issue_ns is not None and moments.place(gather.issue_ns) is Place.AFTER_OPTIMIZER


def _is_in_backward(gather: Collective) -> bool:
    ranges = ("FSDP::pre_backward", "FSDP::backward_prefetch", f"{FSDP1}_pre_backward")
    return gather.region is Region.BACKWARD or any(name.startswith(ranges) for name in gather.above)
