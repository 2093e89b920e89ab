"""Whose a collective is and in which part of the step it was issued, from what lies around its issue.

Nothing is guessed: where no rule holds, the owner is empty text and the region None.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np

from dtbench.base.ranges import AVERAGING_RANGE, CLIPPING_RANGE, MODULE_PREFIX, parse_reduces_range
from dtbench.base.stage_ranges import name_stages, parse_stage_range
from dtbench.base.vocabulary import Operation, Purpose, Region
from dtbench.traces.host.correlate import Attribution
from dtbench.traces.kinds.operators import ENGINE
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Collective
from dtbench.traces.who.purposes import find_unit
from dtbench.traces.who.strategy import DDP_FORWARD

# torch's own ranges, and a person's that say only this; the innermost name that says something decides. Each group is
# named as its region.
_REGION: Final = re.compile(
    r"""(?P<forward>FSDP::(pre_forward|post_forward|forward_prefetch|root_pre_forward).*
        |FullyShardedDataParallel\.(forward|_pre_forward|_post_forward|_root_pre_forward)
        |(Distributed)?DataParallel\.forward
        |nn\.Module:.*
        |\W*forward\W*)
    |(?P<backward>FSDP::(pre_backward|post_backward|backward_prefetch|root_post_backward|finalize_backward).*
        |FullyShardedDataParallel\._(pre|post)_backward.*
        |\W*backward\W*)
    |(?P<optimizer>Optimizer\.(step|zero_grad)\#.*
        |\W*optimizer\W*
        |(.*\W)?_?clip_grad\w*)
    |(?P<state_dict>(.*\W)?\w*state_dict(_hook)?|torch/distributed/checkpoint/.*|\W*(save|load)_checkpoint\W*)""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_FROM_NAMES: Final = tuple(Region)
CLIPPING: Final = "clip_grad_norm_"
"""Owner of what the total norm of the gradients takes."""
AVERAGING: Final = "average_parameters"
"""Owner of what torch's averaging of models over ranks takes (local SGD)."""
_OF_UPDATES: Final = {CLIPPING_RANGE: CLIPPING, AVERAGING_RANGE: AVERAGING}
BUFFERS: Final = "buffers"
"""Owner of what DDP broadcasts before a forward."""
_STEPPED: Final = re.compile(r"Optimizer\.step#(\w+)\.step")
# What torch puts around everything of a kind says when, not who.
_SAYS_NOT_WHO: Final = re.compile(
    r"FSDP::|(FullyShardedDataParallel|DistributedDataParallel|DataParallel|Optimizer|torch)\.|torch::|autograd::"
)


_OF: Final = " of "
"""Between the function that asked for a collective and its module."""


def find_region(above: Sequence[str], *, in_module: bool) -> Region | None:
    """Return the part of the step from the names around an issue, in traces without dtbench's ranges.

    Work of the autograd engine is backward, also where it computes a forward again; what a module issues outside it is
    forward.

    Args:
        above: innermost first.
        in_module: some module's forward is open on the issuing thread.
    """
    if any(name.startswith(ENGINE) for name in above):
        return Region.BACKWARD
    for name in above:
        match = _REGION.fullmatch(name)
        if match is not None:
            return next(region for region in _FROM_NAMES if match[region] is not None)
    return Region.FORWARD if in_module else None


@dataclass(frozen=True)
class Asker:
    """What lies around an issue, past plumbing; empty text: nothing known.

    Attributes:
        closest: operator or annotation, whichever is further in.
        is_operator: which of the two it is.
        module: whose forward, or whose backward, asked.
    """

    closest: str
    is_operator: bool
    module: str


def find_askers(trace: Trace, asked: Attribution) -> list[Asker]:
    """Return what asked for each collective; where operator and annotation are known, the one that began last.

    In our own runs ranges name the modules, and the module alone it is.

    Args:
        trace: the events.
        asked: of the collectives' issues.
    """
    is_ours = any(name.startswith(MODULE_PREFIX) for name in trace.names)
    operators, annotations = asked.operators, asked.annotations
    begins_later = trace.start_ns[operators] >= trace.start_ns[annotations]
    is_operator = (operators != NOTHING) & ((annotations == NOTHING) | begins_later)
    closest = np.where(is_operator, operators, annotations)
    ask = cache(Asker)  # few differ
    return [
        ask("" if event == NOTHING or (is_ours and module) else trace.name_of(event), operator, module)
        for event, operator, module in zip(closest.tolist(), is_operator.tolist(), asked.modules, strict=True)
    ]


def find_owner(purpose: Purpose, above: Sequence[str], asker: Asker, operation: Operation | None = None) -> str:
    """Name who asked for a collective; empty text: nothing says it.

    Unshards and gradients belong to the FSDP unit whose range lies around the issue, or to what DDP says that it
    reduces there (its other buckets get their numbers later), an unshard to the optimizer in whose step it is; the
    total norm that clips and the mean of models over ranks to torch's functions, what goes between the stages of a
    pipeline to the stage and micro-batch that its schedule says; everything else to the operator, and the module it
    is of, or to the annotation: ``aten::mm of Linear_3``. Where there is neither, what DDP broadcasts before its
    forward is its buffers, and the optimizer owns what its step issued.
    """
    if function := find_function(above):
        return function
    if purpose is Purpose.PIPELINE and (stage := _find_stage(operation, above)):
        return stage
    if purpose in (Purpose.UNSHARD, Purpose.GRAD_REDUCE):
        reduced = (owner for name in above if (owner := parse_reduces_range(name)) is not None)
        gathered_by = _find_optimizer(asker.closest) if purpose is Purpose.UNSHARD else ""  # it may call a closure
        return next(reduced, None) or find_unit(above) or gathered_by
    closest = "" if _SAYS_NOT_WHO.match(asker.closest) else asker.closest
    if closest and not asker.is_operator:
        return closest
    return _OF.join(part for part in (closest, asker.module) if part) or _find_torchs(operation, asker.closest)


def split_owner(name: str) -> frozenset[str]:
    """Return the parts of an owner's name: the function that asked and its module, or one of both."""
    return frozenset(name.split(_OF))


def find_function(above: Sequence[str]) -> str:
    """Name torch's function beside an optimizer whose range lies around an issue; empty text: none does."""
    return next((_OF_UPDATES[name] for name in above if name in _OF_UPDATES), "")


def _find_torchs(operation: Operation | None, closest: str) -> str:
    """Name what a range of torch's own tells of: an optimizer by its class, the buffers that DDP broadcasts."""
    if closest == DDP_FORWARD and operation is Operation.BROADCAST:
        return BUFFERS
    return _find_optimizer(closest)


def _find_optimizer(closest: str) -> str:
    stepped = _STEPPED.fullmatch(closest)
    return stepped[1] if stepped else ""


def _find_stage(operation: Operation | None, above: Sequence[str]) -> str:
    return next((name_stages(actions, operation) for name in above if (actions := parse_stage_range(name))), "")


def name_askers(collectives: Sequence[Collective]) -> tuple[Collective, ...]:
    """Return what nothing else owns to the function that asked for it; sends where none did are called by their peer.

    32-bit integers that DDP broadcasts are none of its buffers: they say how it laid out its buckets anew.
    """
    return tuple(
        one
        if one.owner and not _is_layout(one)
        else replace(one, owner=one.caller or name_peer(one.operation, one.peer))
        for one in collectives
    )


def _is_layout(one: Collective) -> bool:
    return one.owner == BUFFERS and (one.dtype or "").lower() in ("int", "int32")


def name_peer(operation: Operation | None, peer: int | None) -> str:
    """Name a send or receive by its other end; empty text: it is none, or its other end is not known."""
    if peer is None or operation not in _WAYS:
        return ""
    return f"{_WAYS[operation]} rank {peer}"


def is_peer(owner: str) -> bool:
    """Tell whether an owner is called by ``name_peer``."""
    way, _, rank = owner.partition(" rank ")
    return way in _WAYS.values() and rank.isdecimal()


_WAYS: Final = {Operation.SEND: "to", Operation.RECV: "from"}
