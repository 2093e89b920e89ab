"""Collectives of which one trace cannot tell what they were for, as what lay around their issue is not in it.

::

    launch     ├┤   ├┤    gone            the row of the call is lost, and with it all that lay around it
    device       █b0█ █b1█ ██?██          ?: an all-reduce on the group of b0 and b1, which reduce gradients

Such a one is of purpose ``other``. It may be of any purpose that others of the trace have, of its operation and its
group.
"""

from collections.abc import Mapping, Sequence

from dtbench.base.vocabulary import Purpose
from dtbench.traces.host.nesting import STARTS_WORK
from dtbench.traces.who.collectives import Collective

Untold = Mapping[int, frozenset[Purpose]]
"""By index of a collective whose purpose nobody knows: what it may be for."""


def find_untold(collectives: Sequence[Collective]) -> dict[int, frozenset[Purpose]]:
    """Find collectives of which the trace holds nothing around their issue and that may be of a purpose of others."""
    seen = {(one.operation, one.group, one.purpose) for one in collectives if one.purpose is not Purpose.OTHER}
    found = {
        index: frozenset(
            purpose
            for operation, group, purpose in seen
            if _may_be_one(operation, one.operation) and _may_be_one(group or None, one.group or None)
        )
        for index, one in enumerate(collectives)
        if one.purpose is Purpose.OTHER and _is_alone(one)
    }
    return {index: may_be for index, may_be in found.items() if may_be}


def _is_alone(one: Collective) -> bool:
    """Tell whether nothing around its issue is in the trace, or only the call that launched it."""
    return one.issue_ns is None or (len(one.above) == 1 and STARTS_WORK.search(one.above[0]) is not None)


def _may_be_one(one: str | None, other: str | None) -> bool:
    """Tell whether two that the trace may not tell are the same, as far as is known."""
    return None in (one, other) or one == other
