"""DDP's buckets, in a trace that DDP left its ranges in: which all-reduces they are, and where one backward ends.

::

    DDP.forward   ├──┤               ├──┤
    engine              ▒▒▒▒▒▒▒▒           ▒▒▒▒▒▒▒▒
    all-reduce             b0  b1             b0  b1

Hooks of gradients that anybody may register reduce gradients, too; without DDP those are no buckets.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dtbench.base.vocabulary import UNUSED_MAP, Operation, Purpose
from dtbench.traces.kinds.categories import DEVICE_RANGE
from dtbench.traces.notes.lacking import ShiftedBuckets, UnevenBuckets
from dtbench.traces.time.intervals import Ints
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Collective, find_regions
from dtbench.traces.who.payload import is_integer
from dtbench.traces.who.purposes import is_fsdps, is_functional
from dtbench.traces.who.strategy import DDP_FORWARD, Strategy, find_strategies
from dtbench.traces.who.untold import find_untold

_BUCKET: Final = "bucket "
_SEARCH: Final = "torch.distributed.ddp.reducer::search_unused_parameters"


def find_forward_starts(trace: Trace) -> Ints:
    """Return when each forward of DDP began on the host, rising; whatever backward comes next counts buckets anew."""
    is_forward = trace.is_named(lambda name: name == DDP_FORWARD) & ~trace.is_one_of((DEVICE_RANGE,))
    return np.sort(trace.start_ns[is_forward])


def name_buckets(
    trace: Trace, collectives: Sequence[Collective], steps: Sequence[int | None]
) -> tuple[Collective, ...]:
    """Name DDP's buckets ``bucket 0``, ``bucket 1``, ... in order of issue, where no owner is known.

    They are counted anew in each step, in each backward that the trace has a range of, and after each forward of DDP.
    Among them may be its map of unused parameters, which is integers: see ``_find_perhaps_maps`` for where no type is
    told. One whose launch the trace does not hold, on a
    lane of buckets, counts as one, so that those behind it keep their numbers: see ``find_shifted_buckets``.

    Args:
        trace: the events.
        collectives: of the trace.
        steps: index of the step that issued each; None: none did.
    """
    if Strategy.DDP not in find_strategies(trace):
        return tuple(collectives)
    borders_ns = np.sort(np.concatenate((find_regions(trace).starts_ns, find_forward_starts(trace))))
    issues_ns = _order_issues(collectives)
    untold = _find_untold_sums(collectives)
    named = list(collectives)
    next_bucket: Counter[tuple[int, int]] = Counter()
    for index in sorted(range(len(named)), key=lambda i: (issues_ns[i], named[i].start_ns)):
        collective, step = named[index], steps[index]
        if step is None or collective.owner or not (index in untold or is_reducers(collective)):
            continue
        if is_integer(collective.dtype):
            named[index] = replace(collective, owner="" if index in untold else UNUSED_MAP)
            continue
        backward = int(borders_ns.searchsorted(issues_ns[index], side="right"))
        if index not in untold:
            named[index] = replace(collective, owner=f"{_BUCKET}{next_bucket[step, backward]}")
        next_bucket[step, backward] += 1
    for index in _find_perhaps_maps(trace, named, issues_ns):
        named[index] = replace(named[index], owner="")
    return tuple(named)


def _find_perhaps_maps(trace: Trace, named: Sequence[Collective], issues_ns: Sequence[int]) -> set[int]:
    """Find what was named as a bucket, without being told of which type it is, and may be a map of unused parameters.

    Where DDP looked for these at the end of a forward, its reducer may reduce their map when all buckets of backward
    are under way (torch's ``reducer.cpp``; it need not, by ``skip_all_reduce_unused_params``), so what it issued last
    is a bucket or that. Of several models before one backward, any may be.

    Args:
        trace: the events.
        named: collectives of the trace, with all that may be buckets named as such.
        issues_ns: when each was issued.
    """
    is_search = trace.is_named(lambda name: name == _SEARCH) & ~trace.is_one_of((DEVICE_RANGE,))
    if not is_search.any():
        return set()
    forwards_ns = find_forward_starts(trace)
    searches = np.sort(forwards_ns.searchsorted(trace.start_ns[is_search], side="right"))
    buckets = [index for index, one in enumerate(named) if one.owner.startswith(_BUCKET) and is_reducers(one)]
    of_forward = defaultdict[int, list[int]](list)
    for index in sorted(buckets, key=lambda i: (issues_ns[i], named[i].start_ns)):
        of_forward[int(forwards_ns.searchsorted(issues_ns[index], side="right"))].append(index)
    found: set[int] = set()
    seen = 0
    for forward, mine in sorted(of_forward.items()):
        searched = int(searches.searchsorted(forward, side="right"))
        found |= {index for index in (mine if searched - seen > 1 else mine[-1:]) if searched > seen}
        seen = searched
    return {index for index in found if named[index].dtype is None}


def _order_issues(collectives: Sequence[Collective]) -> list[int]:
    """Return when each was issued; where that is not known, the last moment before it began and the next was."""
    next_ns: dict[str, int] = {}
    issues_ns = [0] * len(collectives)
    for index in sorted(range(len(collectives)), key=lambda i: collectives[i].start_ns, reverse=True):
        one = collectives[index]
        last_ns = min(one.start_ns, next_ns.get(one.lane, one.start_ns))
        issues_ns[index] = next_ns[one.lane] = last_ns if one.issue_ns is None else one.issue_ns
    return issues_ns


def _find_untold_sums(collectives: Sequence[Collective]) -> set[int]:
    """Find all-reduces whose launch the trace does not hold, on lanes of buckets: probably of DDP's reducer."""
    lanes = {one.lane for one in collectives if is_reducers(one)}
    return {
        index
        for index, may_be in find_untold(collectives).items()
        if Purpose.GRAD_REDUCE in may_be
        and collectives[index].issue_ns is None
        and collectives[index].operation is Operation.ALL_REDUCE
        and collectives[index].lane in lanes
    }


def find_shifted_buckets(
    rank: int, collectives: Sequence[Collective], steps: Sequence[int | None], numbers: Sequence[int]
) -> ShiftedBuckets | None:
    """Return in which steps buckets lie behind an all-reduce whose launch is lost, so that it may be one of them.

    Args:
        rank: whose trace it is.
        collectives: of the trace, with buckets named.
        steps: index of the step that issued each; None: none did.
        numbers: of the steps.
    """
    last_ns: dict[int | None, int] = {}
    for one, step in zip(collectives, steps, strict=True):
        if one.owner.startswith(_BUCKET) and is_reducers(one):
            last_ns[step] = max(one.start_ns, last_ns.get(step, one.start_ns))
    lost = {
        step
        for one, step in zip(collectives, steps, strict=True)
        if step is not None and one.issue_ns is None and one.purpose is Purpose.OTHER
        if one.operation is Operation.ALL_REDUCE and one.start_ns < last_ns.get(step, one.start_ns)
    }
    return ShiftedBuckets((rank,), tuple(sorted(numbers[step] for step in lost))) if lost else None


def find_uneven_buckets(
    rank: int, collectives: Sequence[Collective], steps: Sequence[int | None], numbers: Sequence[int]
) -> UnevenBuckets | None:
    """Return in which steps more or fewer buckets were reduced than in most, so that they may be numbered otherwise.

    None: in all that reduced any were as many. The trace may lack one, or DDP have laid them out anew.

    Args:
        rank: whose trace it is.
        collectives: of the trace, with buckets named.
        steps: index of the step that issued each; None: none did.
        numbers: of the steps.
    """
    counts = Counter(
        step
        for one, step in zip(collectives, steps, strict=True)
        if step is not None and one.owner.startswith(_BUCKET) and is_reducers(one)
    )
    often = Counter(counts.values())
    if len(often) < 2:
        return None
    usual = max(often, key=lambda count: (often[count], count))
    odd = sorted(numbers[step] for step, count in counts.items() if count != usual)
    return UnevenBuckets((rank,), tuple(odd), usual)


def is_reducers(collective: Collective) -> bool:
    """Tell of a collective, in a trace of DDP, whether its reducer issued it; not of the span of another's issue."""
    if collective.is_issue_untold:
        return False
    is_sum = collective.purpose is Purpose.GRAD_REDUCE and collective.operation is Operation.ALL_REDUCE
    return is_sum and not any(is_fsdps(name) or is_functional(name) for name in collective.above)
