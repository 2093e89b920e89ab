"""What optimizers that shard their state issue without any range: DeepSpeed's ZeRO, told by when it is issued.

::

    step      │ forward    backward       optimizer                        │
    engine    │            ▒▒▒▒▒▒▒▒▒▒                                      │
    step range│                                  ├ AdamW.step ┤            │
    ZeRO-2    │                        reduce sum               gather     │     gradients, norm, parameters
    ZeRO-3    │ gather     gather      reduce sum                          │     between hooks of its own

Two things are taken for evidence: parameters gathered after the optimizer's step, in every step that the trace holds;
and the functions that ZeRO-3 puts around modules (``deepspeed/runtime/zero/parameter_offload.py``). Where a trace has
neither, what nobody asked for stays ``other``; where FSDP left its ranges, they say everything.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

import numpy as np

from dtbench.analyze.collectives import Collective
from dtbench.analyze.intervals import Ints
from dtbench.analyze.kinds.operators import ENGINE
from dtbench.analyze.purposes import FSDP_RANGES, is_functional
from dtbench.analyze.trace import Trace
from dtbench.ranges import STEP_PREFIX
from dtbench.vocabulary import REDUCTIONS, Axis, Operation, Purpose

_ZERO3: Final = re.compile(r".*\b(Pre|Post)BackwardFunction(ForModule|Module)?(Backward)?", re.DOTALL)
_STEP_RANGE: Final = re.compile(r"Optimizer\.step#(\w+\.step)")
_OPEN: Final = (Purpose.OTHER, Purpose.GRAD_REDUCE)
"""Purposes of what nothing names: the second where the engine issued it, whose owner is still to be told."""
_SMALL: Final = 100
"""What is smaller than one in so many of the largest gather is no gradient: a norm, a flag of overflow."""


class _Place(IntEnum):
    """Where in its step something was issued: since the step began, since backward did, since the optimizer ended."""

    BEFORE = 0
    AFTER_BACKWARD = 1
    AFTER_OPTIMIZER = 2


@dataclass(frozen=True)
class _Moments:
    """Of the host; each of shape ``(k,)`` and rising."""

    steps_ns: Ints
    nodes_ns: Ints
    optimizers_ns: Ints  # ends

    def place(self, issue_ns: int) -> _Place | None:
        """Give where something was issued; None: before the first step."""
        begun_ns = _last_before(self.steps_ns, issue_ns)
        if begun_ns is None:
            return None
        optimizer_ns = _last_before(self.optimizers_ns, issue_ns) or 0
        node_ns = _last_before(self.nodes_ns, issue_ns) or 0
        if max(optimizer_ns, node_ns) < begun_ns:
            return _Place.BEFORE
        return _Place.AFTER_OPTIMIZER if optimizer_ns > node_ns else _Place.AFTER_BACKWARD


def name_sharded_optimizers(trace: Trace, collectives: Sequence[Collective]) -> tuple[Collective, ...]:
    """Give parameters that a sharded optimizer gathers, and gradients that it reduces, their purposes and its name.

    Args:
        trace: the events.
        collectives: of the trace.
    """
    if any(name.startswith(FSDP_RANGES) for name in trace.names):
        return tuple(collectives)
    moments = _find_moments(trace)
    free = [index for index, one in enumerate(collectives) if _is_free(one)]
    places = {index: moments.place(collectives[index].issue_ns or 0) for index in free}
    gathers = [index for index in free if collectives[index].operation is Operation.ALL_GATHER]
    if any(_ZERO3.fullmatch(name) for name in trace.names):
        owner = "ZeRO-3"
    else:
        owner = next((match[1] for name in trace.names if (match := _STEP_RANGE.fullmatch(name)) is not None), "")
        gathers = [index for index in gathers if places[index] is _Place.AFTER_OPTIMIZER]
        if not _is_in_every_step(moments, [collectives[index].issue_ns or 0 for index in gathers]):
            return tuple(collectives)
    least_bytes = max((collectives[index].size_bytes or 0 for index in gathers), default=0) / _SMALL
    named = list(collectives)
    for index in free:
        one = collectives[index]
        if (one.size_bytes or 0) < least_bytes:
            continue
        if index in gathers:
            named[index] = replace(one, purpose=Purpose.UNSHARD, owner=one.owner or owner)
        elif one.operation in REDUCTIONS and places[index] is _Place.AFTER_BACKWARD:
            named[index] = replace(one, purpose=Purpose.GRAD_REDUCE, owner=one.owner or owner)
    return tuple(named)


def _is_free(one: Collective) -> bool:
    """Tell whether nothing but its time says what a collective is for."""
    is_asked = any(is_functional(name) or _STEP_RANGE.fullmatch(name) for name in one.above)
    return one.purpose in _OPEN and one.axis in (None, Axis.DATA) and one.issue_ns is not None and not is_asked


def _find_moments(trace: Trace) -> _Moments:
    def times(times_ns: Ints, prefix: str) -> Ints:
        return np.sort(times_ns[trace.is_named(lambda name: name.startswith(prefix))])

    return _Moments(
        steps_ns=times(trace.start_ns, STEP_PREFIX),
        nodes_ns=times(trace.start_ns, ENGINE),
        optimizers_ns=times(trace.end_ns, "Optimizer.step#"),
    )


def _last_before(moments_ns: Ints, time_ns: int) -> int | None:
    place = int(moments_ns.searchsorted(time_ns, side="right")) - 1
    return int(moments_ns[place]) if place >= 0 else None


def _is_in_every_step(moments: _Moments, issues_ns: Sequence[int]) -> bool:
    """Tell whether something was issued in every step in which an optimizer stepped, and there is one."""
    if not len(moments.optimizers_ns) or not len(moments.steps_ns):
        return False
    stepped = set(moments.steps_ns.searchsorted(moments.optimizers_ns, side="right").tolist()) - {0}
    issued = set(moments.steps_ns.searchsorted(np.array(issues_ns, dtype=np.int64), side="right").tolist())
    return bool(stepped) and stepped <= issued
