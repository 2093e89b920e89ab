"""What optimizers that shard their state issue without any range that says so: ZeRO and its like, told by evidence.

::

    step      │ forward    backward       optimizer                        │
    engine    │            ▒▒▒▒▒▒▒▒▒▒                                      │
    step range│                                  ├ AdamW.step ┤            │
    ZeRO-2    │                        reduce sum               gather     │     gradients, norm, parameters
    ZeRO-3    │ gather     gather      reduce sum                          │     between hooks of its own
    Megatron  │ gather        scatter  scatter                             │     in hooks of gradients

Three things are taken for evidence: parameters gathered after an optimizer's step, in every step that it makes, where
no DDP reduces gradients; gradients that are scattered, of which each rank can update a part only; and the functions
that ZeRO-3 puts around modules (``deepspeed/runtime/zero/parameter_offload.py``). In the first two what is gathered
must be able to be the parameters whose gradients were reduced, by its size: a loss, a metric, predictions, features are
gathered, too. Where a trace has no evidence, what nobody asked for stays ``other``, but for large gathers over a group
that says that it is of data; where FSDP left its ranges, they say everything.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dtbench.base.vocabulary import REDUCTIONS, Axis, Operation, Purpose
from dtbench.traces.host.moments import STEP_RANGE, Moments, Place, find_moments
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import INFERRED_PREFIX, Collective
from dtbench.traces.who.purposes import FSDP_RANGES, is_functional
from dtbench.traces.who.strategy import Strategy, find_strategies

_ZERO3: Final = re.compile(r".*\b(Pre|Post)BackwardFunction(ForModule|Module)?(Backward)?", re.DOTALL)
_OPEN: Final = (Purpose.OTHER, Purpose.GRAD_REDUCE)
"""Purposes of what nothing names: the second where a hook issued it, whose owner is still to be told."""
_SMALL: Final = 100
"""What is smaller than one in so many of the largest gather is no gradient: a norm, a flag of overflow."""
_LEAST_BYTES: Final = 1024
"""What is smaller is no layer's parameters."""
_WIDEST: Final = 4
"""Parameters and their gradients differ in size by at most this: float32 and float8."""


def name_sharded_optimizers(trace: Trace, collectives: Sequence[Collective]) -> tuple[Collective, ...]:
    """Return parameters that a sharded optimizer gathers, and gradients that it reduces, their purposes and its name.

    Args:
        trace: the events.
        collectives: of the trace.
    """
    if any(name.startswith(FSDP_RANGES) for name in trace.names):
        return tuple(collectives)
    collectives = [replace(one, purpose=Purpose.OTHER) if _is_too_small(one) else one for one in collectives]
    moments = find_moments(trace)
    free = [one for one in collectives if _is_free(one)]
    if any(_ZERO3.fullmatch(name) for name in trace.names):
        owners = _find_zero3(moments, free)
    else:
        scattered = [one for one in collectives if _is_scattered(one)]
        owners = _find_shards(moments, [one for one in free if one.operation is Operation.ALL_GATHER], scattered)
        owners.update(_find_second(collectives, owners))
        if Strategy.DDP not in find_strategies(trace):
            owners = {**_find_gathered_after(moments, free), **owners}
    return tuple(_name(one, owners[id(one)]) if id(one) in owners else one for one in collectives)


def _is_too_small(one: Collective) -> bool:
    """Tell whether a gather over an axis of which no more is said than *data* is a loss's or a metric's."""
    is_gather = one.operation is Operation.ALL_GATHER and one.purpose is Purpose.UNSHARD and one.axis is Axis.DATA
    return is_gather and one.size_bytes is not None and one.size_bytes < _LEAST_BYTES


def _name(one: Collective, owner: str) -> Collective:
    purpose = Purpose.UNSHARD if one.operation is Operation.ALL_GATHER else Purpose.GRAD_REDUCE
    return replace(one, purpose=purpose, owner=one.owner or owner)


def _find_zero3(moments: Moments, free: Sequence[Collective]) -> dict[int, str]:
    """Return ZeRO-3's gathers, and its reductions, which come after backward began."""
    gathers = [one for one in free if one.operation is Operation.ALL_GATHER]
    return {id(one): "ZeRO-3" for one in _keep_large([*gathers, *_find_reductions(moments, free)], gathers)}


def _find_gathered_after(moments: Moments, free: Sequence[Collective]) -> dict[int, str]:
    """Return what is gathered after an optimizer's step, in every step of its, and the gradients of as many bytes."""
    gathers: dict[tuple[str, str], list[Collective]] = defaultdict(list)
    reductions: dict[tuple[str, str], list[Collective]] = defaultdict(list)
    for one in free:
        place, owner = moments.place(one.issue_ns or 0), moments.optimizer_at(one.issue_ns or 0)
        if one.operation is Operation.ALL_GATHER and place is Place.AFTER_OPTIMIZER:
            gathers[owner, _group_of(one)].append(one)
        elif one.operation in REDUCTIONS and place is Place.AFTER_BACKWARD:
            reductions[owner, _group_of(one)].append(one)
    owners: dict[int, str] = {}
    for (owner, group), gathered in gathers.items():
        both = _keep_large([*gathered, *reductions[owner, group]], gathered)
        reduced = [one for one in both if one.operation in REDUCTIONS]
        kept = [one for one in both if one.operation not in REDUCTIONS]
        if owner and _is_in_every_step(moments, owner, kept) and _may_be_of(moments, kept, reduced):
            owners.update({id(one): owner for one in both})
    return owners


def _find_shards(moments: Moments, gathers: Sequence[Collective], scattered: Sequence[Collective]) -> dict[int, str]:
    """Return what is gathered over ranks to which gradients of as many bytes were scattered, and the gradients.

    Where some are as large as what was scattered at once, to a factor of the dtypes, the others are none of it.
    """
    owners: dict[int, str] = {}
    for group in {_group_of(one) for one in scattered}:
        reduced = [one for one in scattered if _group_of(one) == group]
        mine = [one for one in gathers if _group_of(one) == group]
        sizes = {one.size_bytes for one in reduced}
        alike = [one for one in mine if any(_is_as_large(one.size_bytes, size) for size in sizes)]
        for gathered in (alike, _keep_large(mine, mine)):
            if _may_be_of(moments, gathered, reduced):
                owners.update({id(one): moments.optimizer_at(one.issue_ns or 0) for one in (*gathered, *reduced)})
                break
    return owners


def _find_second(collectives: Sequence[Collective], owners: Mapping[int, str]) -> dict[int, str]:
    """Return the sums over replicas of what was scattered before: each is as large as the part that one rank has."""
    found: dict[int, str] = {}
    last: Collective | None = None
    for one in sorted(collectives, key=lambda one: one.issue_ns or 0):
        if id(one) in owners and _is_scattered(one):
            last = one
        elif last is not None and one.purpose is Purpose.GRAD_REDUCE and one.operation is Operation.ALL_REDUCE:
            if last.size_bytes and one.size_bytes and one.size_bytes * (last.group_size or 0) == last.size_bytes:
                found[id(one)] = owners[id(last)]
            last = None
    return found


def _is_as_large(gathered_bytes: int | None, reduced_bytes: int | None) -> bool:
    if not gathered_bytes or not reduced_bytes:
        return False
    ratio, rest = divmod(max(gathered_bytes, reduced_bytes), min(gathered_bytes, reduced_bytes))
    return not rest and ratio in (1, 2, _WIDEST)


def _may_be_of(moments: Moments, gathered: Sequence[Collective], reduced: Sequence[Collective]) -> bool:
    """Tell whether what was gathered may, by its size, be the parameters of which gradients were reduced.

    Gradients may be reduced several times before parameters are gathered: as often, at most, as a step reduces
    something of one size.
    """
    gathered_bytes, reduced_bytes = (sum(one.size_bytes or 0 for one in members) for members in (gathered, reduced))
    if not gathered_bytes or not reduced_bytes:
        return False
    in_steps = moments.steps_ns.searchsorted([one.issue_ns or 0 for one in reduced], side="right").tolist()
    passes = max(Counter((one.size_bytes, step) for one, step in zip(reduced, in_steps, strict=True)).values())
    return gathered_bytes <= _WIDEST * reduced_bytes and reduced_bytes <= _WIDEST * passes * gathered_bytes


def _find_reductions(moments: Moments, free: Iterable[Collective]) -> list[Collective]:
    return [
        one for one in free if one.operation in REDUCTIONS and moments.place(one.issue_ns or 0) is Place.AFTER_BACKWARD
    ]


def _keep_large(members: Sequence[Collective], gathers: Sequence[Collective]) -> list[Collective]:
    least_bytes = max((one.size_bytes or 0 for one in gathers), default=0) / _SMALL
    return [one for one in members if (one.size_bytes or 0) >= least_bytes]


def _group_of(one: Collective) -> str:
    """Tell what of two collectives is equal if they are over the same ranks, as far as anything says so."""
    return str(one.axis) if one.axis is not None else "" if one.group.startswith(INFERRED_PREFIX) else one.group


def _is_free(one: Collective) -> bool:
    """Tell whether nothing but its time says what a collective is for."""
    is_asked = any(is_functional(name) or STEP_RANGE.fullmatch(name) for name in one.above)
    return one.purpose in _OPEN and one.axis in (None, Axis.DATA) and one.issue_ns is not None and not is_asked


def _is_scattered(one: Collective) -> bool:
    """Tell whether it gives each rank a part of the gradients."""
    is_parts = one.operation is Operation.REDUCE_SCATTER and one.purpose is Purpose.GRAD_REDUCE
    return is_parts and one.issue_ns is not None and not any(is_functional(name) for name in one.above)


def _is_in_every_step(moments: Moments, owner: str, issued: Sequence[Collective]) -> bool:
    """Tell whether any of these was issued in every step in which an optimizer stepped, and there is one."""
    if not len(moments.steps_ns):
        return False
    ends_ns = [
        end_ns for end_ns, name in zip(moments.optimizers_ns.tolist(), moments.optimizers, strict=True) if name == owner
    ]
    stepped, issues = (
        set(moments.steps_ns.searchsorted(np.array(times_ns, dtype=np.int64), side="right").tolist())
        for times_ns in (ends_ns, [one.issue_ns or 0 for one in issued])
    )
    return bool(stepped - {0}) and stepped - {0} <= issues
