"""Who held a collective's lane, or its communicator, while it could have run."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
        maybe_held_ns: time beyond in which others ran that held it if their queue was its own, which is not told.
    """

    held_ns: int
    longest: int | None
    maybe_held_ns: int = 0


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
    all-gathers and reduce-scatters run on two streams of its own. A collective of which the trace does not name the
    group may be of any that fits it.
    """
    collectives = timeline.collectives
    held: list[list[_Held]] = [[] for _ in collectives]
    maybe_held: list[list[_Held]] = [[] for _ in collectives]
    ran = [index for index, one in enumerate(collectives) if len(one.span.starts_ns)]
    for index, found in _find_in_queues(collectives, ran, lambda one: one.lane):
        is_told = timeline.is_device or collectives[index].seq is not None
        (held if is_told else maybe_held)[index].append(found)
    if timeline.is_device:
        # NCCL makes a communicator for each pair of ranks that send to each other, whatever group they name
        ran = [index for index in ran if collectives[index].operation not in POINT_TO_POINT]
        for index, found in _find_in_queues(collectives, ran, lambda one: one.group):
            held[index].append(found)
        for index, found in _find_in_unnamed(collectives, ran):
            maybe_held[index].append(found)
    return tuple(_sum_up(*found) for found in zip(held, maybe_held, strict=True))


def _find_in_queues(
    collectives: Sequence[Collective], members: Sequence[int], name_queue: Callable[[Collective], str]
) -> Iterator[tuple[int, _Held]]:
    """Give the collectives that others of their queue held up, each with what did; a queue without a name is none."""
    queues: dict[str, list[int]] = {}
    for index in members:
        queues.setdefault(name_queue(collectives[index]), []).append(index)
    for name, queue in queues.items():
        yield from _find_in_queue(collectives, queue) if name else ()


def _find_in_queue(collectives: Sequence[Collective], members: Sequence[int]) -> list[tuple[int, _Held]]:
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


def _find_in_unnamed(collectives: Sequence[Collective], members: Sequence[int]) -> Iterator[tuple[int, _Held]]:
    """Give the collectives that others may have held up, where of one of the two no group is named."""
    if all(collectives[index].group for index in members):
        return
    for index, found in _find_in_queue(collectives, members):
        fits = np.array([_may_share(collectives[index], collectives[other]) for other in found.by.tolist()])
        yield index, _Held(*(column[fits] for column in found))


def _may_share(one: Collective, before: Collective) -> bool:
    """Tell whether two may be of one communicator, whose kernels never run at once, though no group says so."""
    is_named = bool(one.group and before.group)
    has_other_size = None not in (one.group_size, before.group_size) and one.group_size != before.group_size
    has_other_ranks = bool(one.group_ranks and before.group_ranks) and one.group_ranks != before.group_ranks
    return not (is_named or has_other_size or has_other_ranks) and before.end_ns <= one.start_ns


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


def _sum_up(held: Sequence[_Held], maybe_held: Sequence[_Held]) -> Holders:
    """Give how long all of it held, and may have beyond, once each, and who held longest: of equals the last."""
    either_ns = _unite_held([*held, *maybe_held])
    held_ns = _unite_held(held)
    if not held_ns:
        return Holders(0, None, either_ns)
    by, lefts, rights = (np.concatenate(columns) for columns in zip(*held, strict=True))
    last = np.lexsort((lefts, rights - lefts))[-1]
    return Holders(held_ns, int(by[last]), either_ns - held_ns)


def _unite_held(held: Sequence[_Held]) -> int:
    """Give in how much time any of some spans held."""
    if not held:
        return 0
    return unite(
        np.concatenate([one.starts_ns for one in held]), np.concatenate([one.ends_ns for one in held])
    ).length_ns
