"""Collectives around which no range lies that says who asked for them, though FSDP or DDP may well have.

::

    step 3      FSDP::all_gather[c10d::_allgather_base_]    FSDP::post_backward_reduce[c10d::_reduce_scatter_base_]
    step 4                       c10d::_allgather_base_                                c10d::_reduce_scatter_base_

Ranges can be lost where the operators are not. Then such a collective is of purpose ``other``, which says of others
that FSDP and DDP did not ask for them, and here only that nothing tells. Two things show that ranges are lost:

* A step has fewer collectives of some purpose than others, and for it so many more of the same operation and group of
  which nothing says what they were for.
* A trace has no range of FSDP at all, and what FSDP leaves beside: its own operators, or gathers and reduce-scatters on
  one group. Or it has DDP's forward, and no sum that a hook of gradients issued.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dtbench.base.vocabulary import Operation, Purpose, Region
from dtbench.traces.kinds.operators import ENGINE
from dtbench.traces.who.collectives import Collective
from dtbench.traces.who.purposes import (
    ACCUMULATES,
    FSDP1_FORWARD,
    find_by_names,
    is_fsdps,
    is_functional,
    is_of_training,
)
from dtbench.traces.who.strategy import DDP_FORWARD
from dtbench.traces.who.untold import Untold

_FSDP2_OPERATORS: Final = "fsdp::"
_OF_SHARDS: Final = {Operation.ALL_GATHER: Purpose.UNSHARD, Operation.REDUCE_SCATTER: Purpose.GRAD_REDUCE}


def find_unranged(
    collectives: Sequence[Collective], step_of: Sequence[int | None], names: Sequence[str]
) -> dict[int, frozenset[Purpose]]:
    """Find collectives whose ranges are lost, with what they may be for.

    Args:
        collectives: of a rank.
        step_of: index of the step that issued each; None: none did.
        names: of all events of its trace.
    """
    silent = frozenset(index for index, one in enumerate(collectives) if _is_silent(one))
    if not silent:
        return {}
    left = _Left.of([collectives[index] for index in silent], names)
    of_trace = ((index, left.purpose_of(collectives[index])) for index in sorted(silent))
    found = defaultdict[int, set[Purpose]](set)
    for index, purpose in (*_find_in_steps(collectives, step_of, silent), *of_trace):
        if purpose is not None:
            found[index].add(purpose)
    return {index: frozenset(may_be) for index, may_be in found.items()}


def _is_silent(one: Collective) -> bool:
    """Tell whether nothing around the issue of a collective, which is there, says what it was for."""
    if one.purpose is not Purpose.OTHER or one.issue_ns is None or one.is_captured:
        return False
    is_said = any(map(is_functional, one.above)) or find_by_names(one.operation, one.above) is not None
    return not is_said and is_of_training(one.above, one.region)


def _find_in_steps(
    collectives: Sequence[Collective], step_of: Sequence[int | None], silent: frozenset[int]
) -> Iterator[tuple[int, Purpose]]:
    """Yield those of steps that have fewer of a purpose than the steps with most, and at least as many more silent."""
    alike = defaultdict[tuple[Operation | None, str], dict[int, list[int]]](lambda: defaultdict(list))
    for index, (one, step) in enumerate(zip(collectives, step_of, strict=True)):
        if step is not None and (index in silent or one.purpose is not Purpose.OTHER):
            alike[one.operation, one.group][step].append(index)
    for by_step in alike.values():
        counts = {step: Counter(collectives[index].purpose for index in mine) for step, mine in by_step.items()}
        for purpose in Purpose:
            most = max(count[purpose] for count in counts.values())
            beside = max(count[Purpose.OTHER] for count in counts.values() if count[purpose] == most)
            for step, count in counts.items():
                if purpose is not Purpose.OTHER and 0 < most - count[purpose] <= count[Purpose.OTHER] - beside:
                    yield from ((index, purpose) for index in by_step[step] if index in silent)


def find_unasked(collectives: Sequence[Collective], step_of: Sequence[int | None], untold: Untold) -> frozenset[int]:
    """Find collectives whose causes rest on who asked for them, or for others of their step, where that is not known.

    What could hide one that is for something, what waited for it, and when it could have been issued, the others of its
    step tell, and the ranges around these.

    Args:
        collectives: of a rank.
        step_of: index of the step that issued each; None: none did.
        untold: of which it is not known what they are for.
    """
    unasked = {index for index in untold if collectives[index].issue_ns is not None}
    steps = {step_of[index] for index in unasked}
    told = {index for index, one in enumerate(collectives) if one.purpose is not Purpose.OTHER}
    return frozenset(unasked | {index for index in told if step_of[index] in steps})


@dataclass(frozen=True)
class _Left:
    """What FSDP and DDP leave beside the ranges around what they issue, in a trace that has none of these.

    Attributes:
        is_fsdps: FSDP's own operators, or the forward of one of its units.
        is_ddps: DDP's forward, and no node of the engine in which its hooks could run.
        sharded: groups on which there are both gathers and reduce-scatters.
    """

    is_fsdps: bool = False
    is_ddps: bool = False
    sharded: frozenset[str] = frozenset()

    @classmethod
    def of(cls, silent: Sequence[Collective], names: Sequence[str]) -> "_Left":
        """Find it in the names of a trace's events, and in the collectives of which nothing says what they were for."""
        if any(map(is_fsdps, names)):
            return cls()
        gathered, scattered = ({one.group for one in silent if one.operation is operation} for operation in _OF_SHARDS)
        return cls(
            is_fsdps=any(name.startswith((_FSDP2_OPERATORS, FSDP1_FORWARD)) for name in names),
            is_ddps=DDP_FORWARD in names and not any(map(ACCUMULATES.match, names)),
            sharded=frozenset(gathered & scattered),
        )

    def purpose_of(self, one: Collective) -> Purpose | None:
        """Return what a silent collective may be for; None: nothing says that FSDP or DDP may have asked for it."""
        if one.operation is Operation.ALL_REDUCE:
            is_in_backward = one.region is Region.BACKWARD or any(name.startswith(ENGINE) for name in one.above)
            may_be = self.is_ddps or (is_in_backward and (self.is_fsdps or bool(self.sharded)))
            return Purpose.GRAD_REDUCE if may_be else None
        if one.operation is None or not (self.is_fsdps or one.group in self.sharded):
            return None
        return _OF_SHARDS.get(one.operation)
