"""Who held a collective's lane, or its communicator, while it could have run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from dtbench.analyze.collectives import Collective
from dtbench.analyze.intervals import Ints, unite
from dtbench.analyze.timeline import RankTimeline
from dtbench.vocabulary import POINT_TO_POINT, Operation, Purpose


@dataclass(frozen=True)
class Holders:
    """What others did to one collective.

    Attributes:
        held_ns: time in which others held its lane, from the first moment at which it could run to its start.
        longest: index of the one that held it longest, the later of equals; None: nobody did.
        is_queue: whether it stood behind them; False: on CPU its place in its group is not told.
    """

    held_ns: int
    longest: int | None
    is_queue: bool = True


_NOBODY: Final = Holders(0, None)


class _Held(NamedTuple):
    """Spans in which one queue was held, of shape ``(k,)``; ``by`` are indices into the collectives."""

    by: Ints
    starts_ns: Ints
    ends_ns: Ints


def find_holders(timeline: RankTimeline) -> tuple[Holders, ...]:
    """Find who held each collective up between its issue (or, if later, its readiness) and its start.

    ::

        A        ├──────────────┤
        B               ├──┤  issue, ready
        lane     AAAAAAAAAAAAAAA BBBBB
        held                ░░░░               from max(issue, ready) to B's start

    A lane is a stream of the device, or one of gloo's threads: a work goes to the thread of its group that is free
    first, so that the thread it runs on was held for as long as it queued. On CPU that is so where its place in its
    group is known, as it is in our own runs; elsewhere it may have come after them, or have been issued later than it
    seems. Nobody holds a collective of a CUDA graph up: the graph's launch is no issue, and from when on it could have
    run only the order inside the graph says.

    On a device a process group is a queue, too, whatever streams its collectives are on: NCCL lets each kernel of a
    communicator wait for the one before (its ``src/enqueue.cc``, ``ncclLaunchPrepare``). From torch 2.8 on FSDP's
    all-gathers and reduce-scatters run on two streams of its own.
    """
    queues: dict[tuple[str, str], list[int]] = {}
    for index, collective in enumerate(timeline.collectives):
        if len(collective.span.starts_ns):
            queues.setdefault(("lane", collective.lane), []).append(index)
            # NCCL makes a communicator for each pair of ranks that send to each other, whatever group they name
            if timeline.is_device and collective.group and collective.operation not in POINT_TO_POINT:
                queues.setdefault(("group", collective.group), []).append(index)
    held: list[list[_Held]] = [[] for _ in timeline.collectives]
    for members in queues.values():
        for index, found in _find_in_queue(timeline.collectives, members):
            held[index].append(found)
    return tuple(
        replace(_sum_up(found), is_queue=timeline.is_device or collective.seq is not None)
        for found, collective in zip(held, timeline.collectives, strict=True)
    )


def _find_in_queue(collectives: Sequence[Collective], members: list[int]) -> list[tuple[int, _Held]]:
    """Give the collectives of a queue that others held up, each with what did."""
    order = np.array(sorted(members, key=lambda index: collectives[index].start_ns), dtype=np.int64)
    starts = np.array([collectives[index].start_ns for index in order.tolist()], dtype=np.int64)
    ends = np.array([collectives[index].end_ns for index in order.tolist()], dtype=np.int64)
    latest_ends = np.maximum.accumulate(ends)
    inputs_ns = _find_inputs(collectives, members)
    found = []
    for place, index in enumerate(order.tolist()):
        collective = collectives[index]
        if collective.issue_ns is None or collective.is_captured:
            continue
        input_ns = inputs_ns.get(index, 0)
        could_ns = max(collective.issue_ns, collective.ready_ns or 0, input_ns)
        first = int(latest_ends[:place].searchsorted(could_ns, side="right"))
        if first < place:
            lefts = np.maximum(starts[first:place], could_ns)
            rights = np.minimum(ends[first:place], collective.start_ns)
            found.append((index, _Held(order[first:place], lefts, rights)))
    return found


def _find_inputs(collectives: Sequence[Collective], members: Sequence[int]) -> dict[int, int]:
    """Give when the input of each sum over replicas was there: what was scattered last, of the same owner, before it.

    What it stands behind until then is no queue.
    """
    found: dict[int, int] = {}
    scattered_ns: dict[str, int] = {}
    for index in sorted(members, key=lambda index: collectives[index].issue_ns or 0):
        one = collectives[index]
        if one.purpose is not Purpose.GRAD_REDUCE or not one.owner:
            continue
        if one.operation is Operation.REDUCE_SCATTER:
            scattered_ns[one.owner] = one.end_ns
        elif one.operation is Operation.ALL_REDUCE and one.owner in scattered_ns:
            found[index] = scattered_ns[one.owner]
    return found


def _sum_up(found: Sequence[_Held]) -> Holders:
    """Give how long all of it held, once each, and who held longest: of equals the last."""
    if not found:
        return _NOBODY
    by, lefts, rights = (np.concatenate(columns) for columns in zip(*found, strict=True))
    held_ns = unite(lefts, rights).length_ns
    if not held_ns:
        return _NOBODY
    last = np.lexsort((lefts, rights - lefts))[-1]
    return Holders(held_ns, int(by[last]))
