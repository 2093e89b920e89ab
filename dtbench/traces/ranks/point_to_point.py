"""Sends and receives that belong together, and how long a receive stood still: a pipeline's bubble.

::

    stage 0 sends        [....====]         .  the sender is there, the receiver is not
    stage 1 receives  [~~~~~~~====]         ~  bubble: the receiver waits, nothing is sent yet

Over gloo a rank is there from when it issued, and waits from when its thread stood still; see ``gloo_sends.py``. A send
there is over when its data is buffered, so that ends do not say which receive it belongs to: order does, and where some
are lost only what is the same whichever these are::

    sends        8 16 8         one of 8 bytes is lost: the first two are those of the first two receives, whichever
    receives     8 16 8 8       that is, and of the third it is not told

Where a schedule names what is sent (``PP:0SEND_F1``), no two of other names are one; nor, of steps that both ranks
number alike, two of other steps.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dtbench.base.stage_ranges import Hop, find_hops
from dtbench.base.vocabulary import Operation
from dtbench.traces.ranks.align import ABSENT, Series, line_up
from dtbench.traces.ranks.clocks.clocks import Clocks
from dtbench.traces.ranks.clocks.times import Clock
from dtbench.traces.ranks.groups import GroupEvents, find_groups
from dtbench.traces.skeleton import Skeleton
from dtbench.traces.who.collectives import Collective


@dataclass(frozen=True)
class Transfer:
    """One send and its receive.

    Attributes:
        group: name of the process group on the sender.
        sender: global rank.
        send: index into the sender's collectives.
        receiver: global rank.
        receive: index into the receiver's collectives.
        size_bytes: payload; None where neither side says.
        bubble_ns: how long the receive waited for its send to begin, inside its span; None: the ranks are not in step,
            nothing tells how far their clocks are apart, or the span is lost.
        blocked_ns: how long the send waited for its receive to begin; None likewise.
        sent_ns: when the sender was there, on the common clock; None likewise.
        received_ns: when the receiver was there; None likewise.
        is_comparable: it is known how far the clocks of the two ranks are apart.
    """

    group: str
    sender: int
    send: int
    receiver: int
    receive: int
    size_bytes: int | None
    bubble_ns: int | None
    blocked_ns: int | None
    sent_ns: int | None = None
    received_ns: int | None = None
    is_comparable: bool = True


@dataclass(frozen=True)
class Partner:
    """The other end of a send or receive.

    Attributes:
        rank: global rank.
        start_ns: from when on it was there, on this rank's clock.
        waited_ns: how long this rank waited for that.
    """

    rank: int
    start_ns: int
    waited_ns: int


@dataclass(frozen=True)
class Transfers:
    """All sends and receives.

    Attributes:
        matched: in order of the sender and its events.
        alone: by rank, number of sends and receives whose other end is not there, or not told.
        untold: by rank, number of these whose other end may be there: some of the other rank's are alone, too, in
            whatever group, or do not say with whom.
    """

    matched: tuple[Transfer, ...]
    alone: Mapping[int, int]
    untold: Mapping[int, int] = field(default_factory=dict)


def match_transfers(timelines: Sequence[Skeleton], clocks: Clocks) -> Transfers:
    """Match sends with receives by (group, peer, order), holes allowed.

    Args:
        timelines: distinct ranks.
        clocks: theirs, as the collectives say; sends and receives themselves say nothing about clocks.
    """
    by_rank = {timeline.rank: timeline for timeline in timelines}
    matched: list[Transfer] = []
    alone: set[tuple[int, int]] = set()
    for group in find_groups(timelines, point_to_point=True):
        pairs = _pair_group(group, by_rank)
        alone |= {(rank, event) for rank, events in group.events.items() for event in events.tolist()}
        alone -= {end for sender, send, receiver, receive in pairs for end in ((sender, send), (receiver, receive))}
        matched += [_measure(group.name, pair, by_rank, clocks) for pair in pairs]
    ordered = sorted(matched, key=lambda one: (one.sender, one.send))
    counts = Counter(rank for rank, _ in sorted(alone))
    return Transfers(tuple(ordered), dict(counts), dict(Counter(_find_untold(sorted(alone), by_rank))))


@dataclass(frozen=True)
class _End:
    """What of a send or receive tells which other one is its other end.

    Attributes:
        size_bytes: payload; None: not said.
        step: number of the step that issued it; None: none did.
        hops: which its schedule may mean by it; empty: nothing names it.
    """

    size_bytes: int | None
    step: int | None
    hops: frozenset[Hop]

    @classmethod
    def of(cls, timeline: Skeleton, event: int) -> "_End":
        """Return what one event tells."""
        one, step = timeline.read(event), timeline.columns.step.at(event)
        return cls(
            one.size_bytes,
            None if step is None else timeline.step_numbers[step],
            find_hops(one.above, one.operation),
        )

    def is_named_as(self, other: "_End") -> bool:
        """Tell whether no name contradicts that two are one."""
        return not self.hops or not other.hops or bool(self.hops & other.hops)

    def may_be(self, other: "_End") -> bool:
        """Tell whether neither size nor name contradicts that two are one."""
        return self.size_bytes == other.size_bytes and self.is_named_as(other)

    def is_of_step_of(self, other: "_End") -> bool:
        """Tell whether no step contradicts that two are one."""
        return None in (self.step, other.step) or self.step == other.step


def _find_untold(alone: Sequence[tuple[int, int]], by_rank: Mapping[int, Skeleton]) -> Iterator[int]:
    """Yield the rank of each end that is alone and that another that is alone, too, may belong to."""
    ends = [(rank, by_rank[rank].read(event), _End.of(by_rank[rank], event)) for rank, event in alone]
    opposite = defaultdict[tuple[Operation | None, int | None], list[tuple[int, Collective, _End]]](list)
    for rank, one, end in ends:
        opposite[one.operation, one.peer].append((rank, one, end))
    for rank, one, end in ends:
        other = Operation.RECV if one.operation is Operation.SEND else Operation.SEND
        may_be = [*opposite[other, rank], *opposite[other, None]]
        if any(one.peer in (None, at) and _may_meet(end, there) for at, _, there in may_be if at != rank):
            yield rank


def _may_meet(one: _End, other: _End) -> bool:
    """Tell whether nothing that two say contradicts that they are one; what a side does not say contradicts nothing."""
    return len({one.size_bytes, other.size_bytes} - {None}) < 2 and one.is_named_as(other)


def _pair_group(group: GroupEvents, by_rank: Mapping[int, Skeleton]) -> list[tuple[int, int, int, int]]:
    """Return (sender, send, receiver, receive) of every pair."""
    sends: dict[tuple[int, int], list[int]] = defaultdict(list)
    receives: dict[tuple[int, int], list[int]] = defaultdict(list)
    for rank, events in group.events.items():
        for event in events.tolist():
            one = by_rank[rank].read(event)
            if one.peer is not None and one.operation is Operation.SEND:
                sends[rank, one.peer].append(event)
            elif one.peer is not None:
                receives[one.peer, rank].append(event)
    pairs = []
    for (sender, receiver), own in sends.items():
        others = receives[sender, receiver]
        if others:
            found = _pair_in_order(by_rank[sender], by_rank[receiver], own, others)
            pairs += [(sender, send, receiver, receive) for send, receive in found]
    return pairs


def _pair_in_order(
    sender: Skeleton, receiver: Skeleton, sends: Sequence[int], receives: Sequence[int]
) -> list[tuple[int, int]]:
    """Pair the sends to one peer with its receives; where one side lacks some, names, or a device's ends, decide."""
    mine, others = [_End.of(sender, send) for send in sends], [_End.of(receiver, one) for one in receives]
    if _are_whole(mine, others, are_steps_alike=sender.step_numbers == receiver.step_numbers):
        return list(zip(sends, receives, strict=True))
    if sender.is_device and receiver.is_device:
        rows = line_up([_series(sender, sends), _series(receiver, receives)])
        pairs = rows[(rows != ABSENT).all(axis=1)].tolist()
    else:
        pairs = _pair_by_order(mine, others)
    return [(sends[send], receives[receive]) for send, receive in pairs if mine[send].is_named_as(others[receive])]


def _are_whole(mine: Sequence[_End], others: Sequence[_End], *, are_steps_alike: bool) -> bool:
    """Tell whether the first of one side may be the first of the other, and so on: of steps numbered alike, in each."""
    return len(mine) == len(others) and all(
        one.may_be(other) and (not are_steps_alike or one.is_of_step_of(other))
        for one, other in zip(mine, others, strict=True)
    )


def _pair_by_order(mine: Sequence[_End], others: Sequence[_End]) -> list[tuple[int, int]]:
    """Pair, step by step and name by name where all bear one, what belongs together whichever of a side's are lost."""
    pairs: list[tuple[int, int]] = []
    are_named = all(len(one.hops) == 1 for one in (*mine, *others))
    own, theirs = _split_by_step(mine, are_named=are_named), _split_by_step(others, are_named=are_named)
    for key in own.keys() & theirs.keys():
        sends, receives = [mine[place] for place in own[key]], [others[place] for place in theirs[key]]
        is_sender_whole = len(sends) >= len(receives)
        placed = _place_surely(receives, sends) if is_sender_whole else _place_surely(sends, receives)
        for part, whole in placed:
            send, receive = (whole, part) if is_sender_whole else (part, whole)
            pairs.append((own[key][send], theirs[key][receive]))
    return sorted(pairs)


def _split_by_step(ends: Sequence[_End], *, are_named: bool) -> dict[Hashable, list[int]]:
    """Return places by the number of the step that issued them, where asked for by hop, too."""
    found = defaultdict[Hashable, list[int]](list)
    for place, one in enumerate(ends):
        found[one.step, one.hops if are_named else None].append(place)
    return found


def _place_surely(part: Sequence[_End], whole: Sequence[_End]) -> list[tuple[int, int]]:
    """Return the places of a part of a sequence that are the same wherever the rest of it lay.

    >>> _place_surely(*([_End(size, None, frozenset()) for size in sizes] for sizes in ([8, 16, 8], [8, 16, 8, 8])))
    [(0, 0), (1, 1)]
    """
    first, last = _place_early(part, whole), _place_early(part[::-1], whole[::-1])
    if first is None or last is None:
        return []
    back = [len(whole) - 1 - place for place in reversed(last)]
    return [(place, early) for place, (early, late) in enumerate(zip(first, back, strict=True)) if early == late]


def _place_early(part: Sequence[_End], whole: Sequence[_End]) -> list[int] | None:
    """Return the earliest place of each of a part in a sequence, in order; None: it is no part of that."""
    places: list[int] = []
    for one in part:
        start = places[-1] + 1 if places else 0
        found = next((place for place in range(start, len(whole)) if one.may_be(whole[place])), None)
        if found is None:
            return None
        places.append(found)
    return places


def _series(timeline: Skeleton, events: Sequence[int]) -> Series:
    columns, own = timeline.columns, np.array(events, dtype=np.int64)
    return Series(
        token=np.where(columns.size_bytes.is_told[own], columns.size_bytes.values[own], -1),
        start_ns=columns.start_ns[own],
        end_ns=columns.end_ns[own],
        waits_for_all=np.ones(len(own), dtype=np.bool_),
    )


def _measure(group: str, pair: tuple[int, int, int, int], by_rank: Mapping[int, Skeleton], clocks: Clocks) -> Transfer:
    sender, send, receiver, receive = pair
    sending, receiving = by_rank[sender].read(send), by_rank[receiver].read(receive)
    is_device = by_rank[sender].is_device
    sent_ns, *send_ns = _on_common_clock(_moments_of(sending, is_device=is_device), sender, clocks)
    received_ns, *receive_ns = _on_common_clock(_moments_of(receiving, is_device=is_device), receiver, clocks)
    is_astray = any(
        clocks.astray.has(rank, one.start_ns, one.end_ns) for rank, one in ((sender, sending), (receiver, receiving))
    )
    is_on_one_clock = any({sender, receiver} <= machine for machine in clocks.machines)
    is_told = clocks.can_compare(sender, receiver) and (is_on_one_clock or not is_astray)
    is_in_step = is_told and sent_ns < receive_ns[1]
    return Transfer(
        group=group,
        sender=sender,
        send=send,
        receiver=receiver,
        receive=receive,
        size_bytes=receiving.size_bytes if sending.size_bytes is None else sending.size_bytes,
        bubble_ns=_before(receive_ns, sent_ns) if is_in_step and len(receiving.span.starts_ns) else None,
        blocked_ns=_before(send_ns, received_ns) if is_in_step and len(sending.span.starts_ns) else None,
        sent_ns=sent_ns if is_in_step else None,
        received_ns=received_ns if is_in_step else None,
        is_comparable=clocks.can_compare(sender, receiver),
    )


def _moments_of(one: Collective, *, is_device: bool) -> tuple[int, int, int]:
    """Return when a rank was there, and from when until when it stood still if the other was not."""
    there_ns = one.start_ns if is_device or one.issue_ns is None else one.issue_ns
    return there_ns, *find_standing(one, is_device=is_device)


def find_standing(one: Collective, *, is_device: bool) -> tuple[int, int]:
    """Return from when until when the rank of a send or receive stood still, if the other end was not there."""
    if is_device or one.first_wait_ns is None or one.first_wait_end_ns is None:
        return one.start_ns, one.end_ns
    return one.first_wait_ns, one.first_wait_end_ns


def _on_common_clock(moments_ns: Sequence[int], rank: int, clocks: Clocks) -> list[int]:
    common: list[int] = clocks.by_rank.get(rank, Clock()).to_common(np.array(moments_ns, dtype=np.int64)).tolist()
    return common


def find_partners(transfers: Transfers, clocks: Clocks) -> dict[int, dict[int, "Partner"]]:
    """Give, by rank and index of its send or receive, who was at the other end and from when on.

    Only of ranks whose clocks can be compared: of one machine, or by collectives that they have in common.
    """
    found: dict[int, dict[int, Partner]] = defaultdict(dict)
    for one in transfers.matched:
        if one.sent_ns is None or one.received_ns is None:
            continue
        found[one.receiver][one.receive] = Partner(
            one.sender, _own_ns(one.sent_ns, one.receiver, clocks), one.bubble_ns or 0
        )
        found[one.sender][one.send] = Partner(
            one.receiver, _own_ns(one.received_ns, one.sender, clocks), one.blocked_ns or 0
        )
    return dict(found)


def _own_ns(common_ns: int, rank: int, clocks: Clocks) -> int:
    """Return a moment of the common clock on a rank's own; the drift of one transfer is nothing."""
    shift_ns = int(clocks.by_rank.get(rank, Clock()).to_common(np.array([common_ns]))[0]) - common_ns
    return common_ns - shift_ns


def _before(span_ns: Sequence[int], other_start_ns: int) -> int:
    return min(max(other_start_ns - span_ns[0], 0), span_ns[1] - span_ns[0])
