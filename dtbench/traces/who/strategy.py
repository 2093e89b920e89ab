"""Which strategy made a trace, by the ranges that it leaves there, and what else an advice must know of it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dtbench.base.ranges import REGION_PREFIX
from dtbench.base.vocabulary import Axis, Purpose, Region, Runtime
from dtbench.traces.host.moments import STEP_RANGE, Moments, Place, find_moments
from dtbench.traces.kinds.categories import CALLS
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Collective
from dtbench.traces.who.purposes import FSDP1


class Strategy(StrEnum):
    """Who owns parameters and reduces gradients."""

    DDP = "ddp"
    FSDP1 = "fsdp1"
    FSDP2 = "fsdp2"


_CALLS_OF: Final = {Runtime.CUDA: re.compile(r"cu(?:da)?[A-Z]"), Runtime.HIP: re.compile(r"hip[A-Z]")}
_CALLS_OF_OTHERS: Final = re.compile(r"(?:ur|ze|mu|mc|musa|acl|aclrt|xpu|mtia|cn)[A-Z]")
"""Level Zero's, Unified Runtime's, MUSA's, MACA's, Ascend's and Cambricon's."""
_NCCL: Final = re.compile(r"(?i)nccl(?:Sym\w*)?(?:Dev)?Kernel|nccl:")

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
        runtime: through which the device is driven; None: another, or not told.
        uses_nccl: collectives ran on NCCL, or on RCCL, which calls its kernels alike.
        is_own: dtbench's worker made it, which runs one step before those that it marks: it pays for the profiler's
            start.
    """

    strategies: frozenset[Strategy] = frozenset()
    prefetches_forward: bool = False
    gathers_in_backward: bool = False
    gathers_after_update: bool = False
    has_replicas: bool = False
    runtime: Runtime | None = None
    uses_nccl: bool = False
    is_own: bool = False


def find_strategies(trace: Trace) -> frozenset[Strategy]:
    """Return the strategies that left ranges in a trace."""
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
        runtime=_find_runtime(trace),
        uses_nccl=any(_NCCL.match(name) for name in trace.names),
        is_own=any(name.startswith(REGION_PREFIX) for name in trace.names),
    )


def _find_runtime(trace: Trace) -> Runtime | None:
    """Return whose calls a trace holds; None: another's are among them (other vendors borrow CUDA's names), or none."""
    called = [trace.names[name] for name in set(trace.name[trace.is_one_of(CALLS)].tolist())]
    if trace.has_other_runtime or any(_CALLS_OF_OTHERS.match(name) for name in called):
        return None
    found = [runtime for runtime, own in _CALLS_OF.items() if any(own.match(name) for name in called)]
    return found[-1] if found else None


def _is_after_update(moments: Moments, gather: Collective) -> bool:
    if any(STEP_RANGE.fullmatch(name) for name in gather.above):
        return True
    return gather.issue_ns is not None and moments.place(gather.issue_ns) is Place.AFTER_OPTIMIZER


def _is_in_backward(gather: Collective) -> bool:
    ranges = ("FSDP::pre_backward", "FSDP::backward_prefetch", f"{FSDP1}_pre_backward")
    return gather.region is Region.BACKWARD or any(name.startswith(ranges) for name in gather.above)
