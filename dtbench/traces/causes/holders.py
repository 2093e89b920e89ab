"""Who held a collective's lane, or its communicator, while it could have run.

What held it may itself have waited for a rank that came late. So the queue is gone through once more as it would have
been with every rank in time::

    rank 0   A       [wwwwwwtttt]            w  waits for the last rank    t  transfer
             B         ihhhhhhhhh[tttt]      h  held, from its issue to its start
    in time  A       [tttt]
             B         ihhh[tttt]            held so long in any case: the rest is a late rank's

A rank that comes late puts a whole queue off once, however many stand in it: in all, by no more than was waited for it
and hidden. What of the waiting was exposed is skew, and told already. What waited itself comes first.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dtbench.base.vocabulary import POINT_TO_POINT, Operation, Purpose
from dtbench.traces.account.gaps import LAUNCH_BOUND_NS
from dtbench.traces.time.intervals import Ints, unite
from dtbench.traces.timeline import SCATTER_NS, RankTimeline
from dtbench.traces.who.collectives import Collective


@dataclass(frozen=True)
class Holders:
    """What others did to one collective.

    Attributes:
        held_ns: time in which others held its lane, from the first moment at which it could run to its start.
        longest: index of the one that held it longest, the later of equals; None: nobody did.
        put_off_ns: the part of ``held_ns`` in which nobody had held it, had no rank come late to what ran before it,
            as far as what ran before it was not exposed for that already.
        waited_ns: exposed time beyond in which it had been done, had it not waited, hidden, for a rank that came late.
        maybe_held_ns: time beyond in which others ran that held it if their queue was its own, which is not told.
    """

    held_ns: int
    longest: int | None
    maybe_held_ns: int = 0
    put_off_ns: int = 0
    waited_ns: int = 0


class _Held(NamedTuple):
    """Spans in which one queue was held, of shape ``(k,)``; ``by`` are indices into the collectives.

    ``put_off_ns`` is how much of that a late rank made.
    """

    by: Ints
    starts_ns: Ints
    ends_ns: Ints
    put_off_ns: int


class _Times(NamedTuple):
    """What one collective's time went to, in ns."""

    sent: int
    """Surely, had it waited for no rank."""
    waited: int
    """Perhaps, for a rank that came late, and hidden."""
    open: int
    """Exposed, and not told as skew."""
    is_last_known: bool
    """Whether it is known when the last rank began, so that ``waited`` is what was."""

    def waited_beyond(self, put_off_ns: int) -> int:
        """Return how much of what is exposed, but for what was put off before it began, its own wait made."""
        return min(self.waited, self.open - put_off_ns) if self.is_last_known else 0


def find_holders(
    timeline: RankTimeline,
    last_starts_ns: Sequence[int | None] = (),
    skew_ns: Sequence[int] = (),
    *,
    is_late: bool = True,
) -> tuple[Holders, ...]:
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

    Args:
        timeline: the rank.
        last_starts_ns: for each collective the last start over all ranks of its group, in this rank's clock; None: not
            every rank of the group is known. Empty: of none.
        skew_ns: of each the exposed time before that. Empty: none.
        is_late: what may have scattered, of which it is not told when it was issued, made no input; False: it did.
    """
    collectives = timeline.collectives
    inputs_ns = _find_inputs(collectives, is_late=is_late)
    lasts_ns = last_starts_ns or [None] * len(collectives)
    times = [
        _Times(
            sent=sent,
            waited=waited if (waited := one.end_ns - one.start_ns - sent - shown) > SCATTER_NS else 0,
            open=exposed - skew,
            is_last_known=last_ns is not None,
        )
        for one, sent, shown, skew, exposed, last_ns in zip(
            collectives,
            _find_sent(collectives, lasts_ns),
            _find_shown(timeline, lasts_ns),
            skew_ns or [0] * len(collectives),
            timeline.exposed_ns,
            lasts_ns,
            strict=True,
        )
    ]
    held: list[list[_Held]] = [[] for _ in collectives]
    maybe_held: list[list[_Held]] = [[] for _ in collectives]
    ran = [index for index, one in enumerate(collectives) if len(one.span.starts_ns)]
    for index, found in _find_in_queues(collectives, times, inputs_ns, ran, lambda one: one.lane):
        is_told = timeline.is_device or collectives[index].seq is not None
        (held if is_told else maybe_held)[index].append(found)
    if timeline.is_device:
        # NCCL makes a communicator for each pair of ranks that send to each other, whatever group they name
        ran = [index for index in ran if collectives[index].operation not in POINT_TO_POINT]
        for index, found in _find_in_queues(collectives, times, inputs_ns, ran, lambda one: one.group):
            held[index].append(found)
        for index, found in _find_in_unnamed(collectives, times, inputs_ns, ran):
            maybe_held[index].append(found)
    return tuple(_sum_up(*found) for found in zip(held, maybe_held, times, strict=True))


def _find_sent(collectives: Sequence[Collective], last_starts_ns: Sequence[int | None]) -> list[int]:
    """Return how long each collective surely took when it waited for no rank.

    Where it is not known of some how long they waited, all of it may have been waiting; where it is known of none, as
    of one rank's trace alone, they are taken as they are.
    """
    if not any(last_ns is not None for last_ns in last_starts_ns):
        return [one.end_ns - one.start_ns for one in collectives]
    return [
        one.end_ns - min(max(one.start_ns, one.end_ns if last_ns is None else last_ns), one.end_ns)
        if last_ns is not None or one.group_size != 1
        else one.end_ns - one.start_ns
        for one, last_ns in zip(collectives, last_starts_ns, strict=True)
    ]


def _find_shown(timeline: RankTimeline, last_starts_ns: Sequence[int | None]) -> list[int]:
    """Return of each how long nothing computed beside it before the last rank began, whoever else ran then."""
    spans = [
        (one.start_ns, one.start_ns if last_ns is None else min(max(one.start_ns, last_ns), one.end_ns))
        for one, last_ns in zip(timeline.collectives, last_starts_ns, strict=True)
    ]
    hidden_ns = timeline.compute.covered_inside(np.array(spans, dtype=np.int64).reshape(-1, 2))
    return [until_ns - from_ns - time_ns for (from_ns, until_ns), time_ns in zip(spans, hidden_ns, strict=True)]


def _find_in_queues(
    collectives: Sequence[Collective],
    times: Sequence[_Times],
    inputs_ns: Mapping[int, int],
    members: Sequence[int],
    name_queue: Callable[[Collective], str],
) -> Iterator[tuple[int, _Held]]:
    """Yield the collectives that others of their queue held up, each with what did; a queue without a name is none."""
    queues: dict[str, list[int]] = {}
    for index in members:
        queues.setdefault(name_queue(collectives[index]), []).append(index)
    for name, queue in queues.items():
        yield from _find_in_queue(collectives, times, inputs_ns, queue) if name else ()


def _find_in_queue(
    collectives: Sequence[Collective], times: Sequence[_Times], inputs_ns: Mapping[int, int], members: Sequence[int]
) -> list[tuple[int, _Held]]:
    """Return the collectives of a queue that others held up, each with what did."""
    order = np.array(sorted(members, key=lambda index: collectives[index].start_ns), dtype=np.int64)
    starts = np.array([collectives[index].start_ns for index in order.tolist()], dtype=np.int64)
    ends = np.array([collectives[index].end_ns for index in order.tolist()], dtype=np.int64)
    latest_ends = np.maximum.accumulate(ends)
    could = [_find_first_moment(collectives[index], inputs_ns.get(index, 0)) for index in order.tolist()]
    put_off = _find_put_off(starts, ends, could, [times[index] for index in order.tolist()])
    found = []
    for place, index in enumerate(order.tolist()):
        collective, could_ns = collectives[index], could[place]
        if could_ns is None:
            continue
        first = int(latest_ends[:place].searchsorted(could_ns, side="right"))
        if first < place:
            lefts = np.maximum(starts[first:place], could_ns)
            rights = np.minimum(ends[first:place], collective.start_ns)
            found.append((index, _Held(order[first:place], lefts, rights, put_off[place])))
    return found


def _find_first_moment(one: Collective, input_ns: int) -> int | None:
    """Return the first moment at which a collective could have run; None: nothing in the trace says."""
    if one.issue_ns is None or one.is_captured:
        return None
    return max(one.issue_ns, one.ready_ns or 0, input_ns)


def _find_put_off(starts: Ints, ends: Ints, could: Sequence[int | None], times: Sequence[_Times]) -> list[int]:
    """Return how much of what is exposed of each of a queue a rank made that came late to one before.

    What stood behind the one before had begun by as much sooner as that had ended sooner, though not before it could,
    whatever lies between the two (a cast, a division): that follows the one before. So may that of which nobody knows
    since when it could run. What could run only after it stood behind it where it began with its end. What of that
    ended some exposed time before is spent: nothing that follows ends sooner by it again.

    Args:
        starts: in rising order.
        ends: of the same.
        could: when each could have run at first; None: not known.
        times: what the time of each went to.
    """
    found: list[int] = []
    busy_ns = free_ns = 0  # until when the queue was held, and had been
    unspent_ns = 0  # of what was waited, since the queue last stood still
    for start_ns, end_ns, could_ns, own in zip(starts.tolist(), ends.tolist(), could, times, strict=True):
        stood = could_ns is None or could_ns < busy_ns or start_ns - busy_ns <= LAUNCH_BOUND_NS
        most_ns = start_ns if could_ns is None else max(0, start_ns - could_ns)
        sooner_ns = min(busy_ns - free_ns, most_ns) if stood else 0
        unspent_ns = unspent_ns if stood else 0
        put_off_ns = min(sooner_ns, unspent_ns, own.open)
        found.append(put_off_ns)
        unspent_ns += own.waited - put_off_ns - own.waited_beyond(put_off_ns)
        busy_ns = max(busy_ns, end_ns)
        free_ns = max(free_ns, start_ns - sooner_ns + own.sent)
    return found


def _find_in_unnamed(
    collectives: Sequence[Collective], times: Sequence[_Times], inputs_ns: Mapping[int, int], members: Sequence[int]
) -> Iterator[tuple[int, _Held]]:
    """Yield the collectives that others may have held up, where of one of the two no group is named."""
    if all(collectives[index].group for index in members):
        return
    for index, found in _find_in_queue(collectives, times, inputs_ns, members):
        fits = np.array([_may_share(collectives[index], collectives[other]) for other in found.by.tolist()])
        yield index, _Held(found.by[fits], found.starts_ns[fits], found.ends_ns[fits], found.put_off_ns)


def _may_share(one: Collective, before: Collective) -> bool:
    """Tell whether two may be of one communicator, whose kernels never run at once, though no group says so."""
    is_named = bool(one.group and before.group)
    has_other_size = None not in (one.group_size, before.group_size) and one.group_size != before.group_size
    has_other_ranks = bool(one.group_ranks and before.group_ranks) and one.group_ranks != before.group_ranks
    return not (is_named or has_other_size or has_other_ranks) and before.end_ns <= one.start_ns


def _find_inputs(collectives: Sequence[Collective], *, is_late: bool) -> dict[int, int]:
    """Return when the input of each sum over replicas was there: what was scattered last, of the same owner, before it.

    What it stands behind until then is no queue. ``is_late`` as for ``find_holders``.
    """
    found: dict[int, int] = {}
    scattered_ns: dict[str, int] = {}
    untold_ns = sorted(
        one.end_ns
        for one in collectives
        if not is_late and one.may_be_of(Purpose.GRAD_REDUCE, (Operation.REDUCE_SCATTER,))
    )
    ran = [index for index, one in enumerate(collectives) if len(one.span.starts_ns)]
    for index in sorted(ran, key=lambda index: collectives[index].issue_ns or 0):
        one = collectives[index]
        if one.purpose is not Purpose.GRAD_REDUCE or not one.owner:
            continue
        if one.operation is Operation.REDUCE_SCATTER:
            scattered_ns[one.owner] = one.end_ns
        elif one.operation is Operation.ALL_REDUCE:
            before_ns = untold_ns[: bisect_right(untold_ns, one.start_ns)]
            found[index] = max(scattered_ns.get(one.owner, 0), *before_ns[-1:], 0)
    return found


def _sum_up(held: Sequence[_Held], maybe_held: Sequence[_Held], own: _Times) -> Holders:
    """Return how long all of it held, and may have beyond, once each, and who held longest: of equals the last.

    Of several queues that held it each had let it go sooner by what put that one off, and by what another held beyond.
    """
    either_ns = _unite_held([*held, *maybe_held])
    held_ns = _unite_held(held)
    if not held_ns:
        return Holders(0, None, either_ns, waited_ns=own.waited_beyond(0))
    by, lefts, rights = (np.concatenate([one[column] for one in held]) for column in range(3))
    last = np.lexsort((lefts, rights - lefts))[-1]
    until_ns = int(rights.max())
    put_off_ns = min(held_ns, *(one.put_off_ns + until_ns - int(one.ends_ns.max()) for one in held))
    waited_ns = own.waited_beyond(put_off_ns)
    return Holders(held_ns, int(by[last]), either_ns - held_ns, put_off_ns, waited_ns)


def _unite_held(held: Sequence[_Held]) -> int:
    """Return in how much time any of some spans held."""
    if not held:
        return 0
    return unite(
        np.concatenate([one.starts_ns for one in held]), np.concatenate([one.ends_ns for one in held])
    ).length_ns
