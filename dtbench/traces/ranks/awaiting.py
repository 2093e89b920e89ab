"""Which ranks of a collective surely wait for the last one to begin: not all do in each operation.

::

    all-reduce, all-gather, ...   every rank waits for the last
    reduce, gather                the root waits for the last; any other gives its part, and may go
    broadcast, scatter            every other rank waits for the root, which waits for none

On its way from the root, or to it, what is sent may pass through other ranks (a chain, a tree); no trace says through
which. So of what the root gives waits are known where it began last, and then whoever passes it on was there.
"""

from collections.abc import Mapping

import numpy as np

from dtbench.base.vocabulary import GIVEN_BY_ROOT, ROOTED
from dtbench.traces.ranks.align import ABSENT
from dtbench.traces.ranks.clocks.times import GroupTimes, waits_for_all
from dtbench.traces.ranks.match import MatchedGroup
from dtbench.traces.skeleton import OPERATIONS, Skeleton, are_among
from dtbench.traces.time.intervals import Bools, Ints


def find_awaiting(
    group: MatchedGroup, times: GroupTimes, began_last: Bools, timelines: Mapping[int, Skeleton]
) -> Bools:
    """Tell of each rank whether it surely waits for the last one to begin, shape ``(m, r)``, not to be written to.

    Args:
        group: which collectives.
        times: of them.
        began_last: shape ``(m, r)``: no rank began later.
        timelines: by rank; say who the root is.
    """
    awaits: Bools = np.broadcast_to(waits_for_all(times)[:, None], group.index.shape)
    rooted = np.flatnonzero(are_among(times.operation, ROOTED)).tolist()
    if not rooted:
        return awaits
    awaits = np.array(awaits, order="F")
    for row in rooted:
        operation, root = OPERATIONS[times.operation[row]], _find_root(group, group.index[row], timelines)
        if root is None:
            continue
        if operation not in GIVEN_BY_ROOT:
            awaits[row, root] = True
        elif began_last[row, root]:
            awaits[row] = np.arange(len(group.ranks)) != root
    return awaits


def _find_root(group: MatchedGroup, indices: Ints, timelines: Mapping[int, Skeleton]) -> int | None:
    """Return the column of a collective's root; None: its ranks do not tell, or not alike, or the root has no trace.

    Which rank is where in its group the traces tell, or it is clear where all are there: torch sorts them.
    """
    events = [
        (timelines[rank].columns, index)
        for rank, index in zip(group.ranks, indices.tolist(), strict=True)
        if index != ABSENT
    ]
    roots = {root for columns, index in events if (root := columns.root.at(index)) is not None}
    said = (columns.groups[columns.group[index]].ranks for columns, index in events)
    ranks = next((one for one in said if one), ())
    ranks = ranks or (tuple(sorted(group.ranks)) if group.is_complete else ())
    if len(roots) != 1 or (place := next(iter(roots))) >= len(ranks) or ranks[place] not in group.ranks:
        return None
    return group.ranks.index(ranks[place])
