"""Collectives of which one trace cannot tell what they were for, as what lay around their issue is not in it.

::

    launch     ├┤   ├┤    gone            the row of the call is lost, and with it all that lay around it
    device       █b0█ █b1█ ██?██          ?: an all-reduce on the group of b0 and b1, which reduce gradients

Such a one is of purpose ``other``. It may be of any purpose that others of the trace have, of its operation and its
group.
"""

from collections.abc import Collection, Mapping, Sequence

from dtbench.base.ranges import STEP_PREFIX
from dtbench.base.vocabulary import POINT_TO_POINT, Purpose, Region
from dtbench.traces.host.nesting import STARTS_WORK
from dtbench.traces.kinds.operators import ENGINE, is_issue
from dtbench.traces.who.collectives import Collective, Regions
from dtbench.traces.who.exchanges import UPDATES

Untold = Mapping[int, frozenset[Purpose]]
"""By index of a collective whose purpose it is not known: what it may be for."""


def find_untold(collectives: Sequence[Collective], regions: Regions | None = None) -> dict[int, frozenset[Purpose]]:
    """Find collectives of which the trace does not hold who asked for them and that may be of a purpose of others.

    Args:
        collectives: of a rank.
        regions: what the training loop was doing when: in backward nodes of the engine ask, and one without is lost.
    """
    seen = {(one.operation, one.group, one.purpose) for one in collectives if one.purpose is not Purpose.OTHER}
    found = {
        index: frozenset(
            purpose
            for operation, group, purpose in seen
            if _may_be_one(operation, one.operation) and _may_be_one(group or None, one.group or None)
        )
        for index, one in enumerate(collectives)
        if one.purpose is Purpose.OTHER and (_is_alone(one) or _lacks_node(one, regions))
    }
    return {index: may_be for index, may_be in found.items() if may_be}


def find_unstaged(collectives: Sequence[Collective], names: Collection[str]) -> dict[int, frozenset[Purpose]]:
    """Find sends and receives of no known axis that may be a pipeline's: it trains, and no node of backward is there.

    What forward sends and backward gets back shows stages (``exchanges.py``), and without nodes nothing is of backward.

    Args:
        collectives: of a rank.
        names: of all events of its trace.
    """
    has_nodes, trains = (any(name.startswith(of) for name in names) for of in (ENGINE, UPDATES))
    if has_nodes or not trains:
        return {}
    return {
        index: frozenset((Purpose.PIPELINE,))
        for index, one in enumerate(collectives)
        if one.operation in POINT_TO_POINT and one.axis is None and one.purpose is Purpose.OTHER
    }


def _is_alone(one: Collective) -> bool:
    """Tell whether nothing around its issue is in the trace, or only the call that launched it."""
    return one.issue_ns is None or (len(one.above) == 1 and STARTS_WORK.search(one.above[0]) is not None)


def _lacks_node(one: Collective, regions: Regions | None) -> bool:
    """Tell whether one was issued in backward, and nothing but what issues it is around that."""
    if regions is None or one.issue_ns is None or regions.at(one.issue_ns) is not Region.BACKWARD:
        return False
    return all(is_issue(name) or STARTS_WORK.search(name) or name.startswith(STEP_PREFIX) for name in one.above)


def _may_be_one(one: str | None, other: str | None) -> bool:
    """Tell whether two that the trace may not tell are the same, as far as is known."""
    return None in (one, other) or one == other
