"""Sends and receives of a pipeline."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dtbench.base.vocabulary import Operation
from dtbench.traces.notes.job import NoOtherEnd, OtherEndUntold
from dtbench.traces.ranks.clocks.clocks import Clocks
from dtbench.traces.ranks.clocks.times import Clock
from dtbench.traces.ranks.job import check_transfers
from dtbench.traces.ranks.point_to_point import match_transfers
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import unite
from dtbench.traces.timeline import RankTimeline

SENDS = [(0, 30), (100, 130), (250, 270), (300, 330)]
RECEIVES = [(10, 30), (40, 130), (260, 270), (270, 330)]
IN_STEP = Clocks({0: Clock(), 1: Clock()}, islands=(frozenset({0, 1}),))


def make(jobs: Any, rank: int, spans: Sequence[tuple[int, int]], sizes: Sequence[int], **facts: Any) -> RankTimeline:
    operation, peer = (Operation.SEND, 1) if rank == 0 else (Operation.RECV, 0)
    made: RankTimeline = jobs.timeline(
        rank,
        [
            jobs.collective(
                start * 1_000,
                end * 1_000,
                **{"operation": operation, "peer": peer, "group": "0", "size_bytes": size, **facts},
            )
            for (start, end), size in zip(spans, sizes, strict=True)
        ],
    )
    return made


def test_a_receive_that_waits_for_its_send_is_a_bubble(jobs: Any) -> None:
    found = match_transfers([make(jobs, 0, SENDS, [8] * 4), make(jobs, 1, RECEIVES, [8] * 4)], IN_STEP)
    assert [(one.send, one.receive, one.bubble_ns, one.blocked_ns) for one in found.matched] == [
        (0, 0, 0, 10_000),
        (1, 1, 60_000, 0),
        (2, 2, 0, 10_000),
        (3, 3, 30_000, 0),
    ]
    assert found.alone == {}


@pytest.mark.parametrize("lost", range(4))
@pytest.mark.parametrize("sizes", [[8, 8, 8, 8], [8, 16, 8, 32]])
def test_a_lost_send_spoils_no_other_pair(jobs: Any, lost: int, sizes: list[int]) -> None:
    sender = make(jobs, 0, SENDS, sizes)
    found = match_transfers([jobs.drop(sender, lost), make(jobs, 1, RECEIVES, sizes)], IN_STEP)
    assert [one.receive for one in found.matched] == [index for index in range(4) if index != lost]
    assert found.alone == {1: 1}


def test_pairs_of_other_groups_and_peers_do_not_mix(jobs: Any) -> None:
    sender = make(jobs, 0, SENDS[:2], [8, 8])
    other = [replace(one, group="7") for one in make(jobs, 0, SENDS[2:], [8, 8]).collectives]
    sender = jobs.timeline(0, (*sender.collectives, *other))
    receiver = make(jobs, 1, RECEIVES, [8] * 4)
    moved = [replace(one, group=group) for one, group in zip(receiver.collectives, "7070", strict=True)]
    found = match_transfers([sender, replace(receiver, collectives=tuple(moved))], IN_STEP)
    assert {(one.group, one.send, one.receive) for one in found.matched} == {
        ("0", 0, 1),
        ("0", 1, 3),
        ("7", 2, 0),
        ("7", 3, 2),
    }


def test_without_a_known_peer_or_its_trace_nothing_is_matched(jobs: Any) -> None:
    sender, receiver = make(jobs, 0, SENDS, [8] * 4, peer=None), make(jobs, 1, RECEIVES, [8] * 4)
    found = match_transfers([sender, receiver], IN_STEP)
    assert (found.matched, found.alone) == ((), {0: 4, 1: 4})
    assert match_transfers([receiver], IN_STEP).alone == {1: 4}


def test_ranks_out_of_step_have_pairs_and_no_bubbles(jobs: Any) -> None:
    timelines = [make(jobs, 0, SENDS, [8] * 4), make(jobs, 1, RECEIVES, [8] * 4)]
    found = match_transfers(timelines, replace(IN_STEP, out_of_step=frozenset({1})))
    assert [one.bubble_ns for one in found.matched] == [None] * 4


def test_bubbles_are_measured_on_the_common_clock(jobs: Any) -> None:
    timelines = [make(jobs, 0, SENDS, [8] * 4), jobs.shift(make(jobs, 1, RECEIVES, [8] * 4), 70_000)]
    clocks = Clocks({0: Clock(), 1: Clock(offset_ns=70_000)}, islands=IN_STEP.islands)
    found = match_transfers(timelines, clocks)
    assert [one.bubble_ns for one in found.matched] == [0, 60_000, 0, 30_000]


@pytest.mark.parametrize("lost", range(4))
def test_over_gloo_a_lost_span_of_a_send_moves_no_other_pair(jobs: Any, lost: int) -> None:
    """Ends do not agree: a send is over when its data is buffered. Each was issued, so order tells which is whose."""
    sends = [(start, start + 1) for start, _ in SENDS]
    sender = make(jobs, 0, sends, [8] * 4, is_async=True)
    kept = [replace(one, span=unite([], [])) if index == lost else one for index, one in enumerate(sender.collectives)]
    sender = replace(sender, is_device=False, collectives=tuple(kept))
    found = match_transfers([sender, replace(make(jobs, 1, RECEIVES, [8] * 4), is_device=False)], IN_STEP)
    assert [(one.send, one.receive) for one in found.matched] == [(index, index) for index in range(4)]
    assert [one.blocked_ns is None for one in found.matched] == [index == lost for index in range(4)]
    assert [one.bubble_ns is None for one in found.matched] == [False] * 4
    assert found.alone == {}


@pytest.mark.parametrize(
    ("sizes", "lost", "pairs"),
    [
        ([8, 16, 32, 64], 1, [(0, 0), (1, 2), (2, 3)]),
        ([8, 16, 8, 8], 1, [(0, 0), (1, 2), (2, 3)]),
        ([8, 16, 8, 8], 3, [(0, 0), (1, 1)]),
        ([8, 8, 8, 8], 0, []),
    ],
)
def test_over_gloo_what_may_belong_to_several_is_paired_with_none(
    jobs: Any, sizes: list[int], lost: int, pairs: list[tuple[int, int]]
) -> None:
    sender = replace(make(jobs, 0, SENDS, sizes), is_device=False)
    receiver = replace(make(jobs, 1, RECEIVES, sizes), is_device=False)
    found = match_transfers([jobs.drop(sender, lost), receiver], IN_STEP)
    assert [(one.send, one.receive) for one in found.matched] == pairs
    alone = {rank: count for rank, count in ((0, 3 - len(pairs)), (1, 4 - len(pairs))) if count}
    assert found.alone == alone
    assert all(found.untold.get(rank, 0) <= count for rank, count in alone.items())


def name(timeline: RankTimeline, names: Sequence[str], *, is_device: bool = False) -> RankTimeline:
    """Put each send or receive into a range of a schedule."""
    collectives = [
        replace(one, above=(f"PP:{said}",) if said else ())
        for one, said in zip(timeline.collectives, names, strict=True)
    ]
    return replace(timeline, collectives=tuple(collectives), is_device=is_device)


SENT, RECEIVED = ("0SEND_F0", "0SEND_F1", "2SEND_B0", "2SEND_F0"), ("1RECV_F0", "1RECV_F1", "1RECV_B0", "3RECV_F0")


@pytest.mark.parametrize("is_device", [False, True])
def test_each_side_lost_another_and_names_tell_which_are_one(jobs: Any, *, is_device: bool) -> None:
    """As many on both sides, all of one size: by counting each would be taken for the one after it."""
    sender = name(make(jobs, 0, SENDS, [8] * 4), SENT, is_device=is_device)
    receiver = name(make(jobs, 1, RECEIVES, [8] * 4), RECEIVED, is_device=is_device)
    found = match_transfers([jobs.drop(sender, 0), jobs.drop(receiver, 3)], IN_STEP)
    assert [(one.send, one.receive) for one in found.matched] == [(0, 1), (1, 2)]
    assert (found.alone, found.untold) == ({0: 1, 1: 1}, {})  # what is left bears other names
    notes = check_transfers([sender, receiver], found, IN_STEP)
    assert {type(note) for note in notes} == {NoOtherEnd}


@pytest.mark.parametrize(
    ("sent", "received", "is_first"),
    [
        (SENT, RECEIVED, True),
        (SENT, ("", "", "", ""), True),  # a rank that was recorded without these ranges contradicts nothing
        (("(0SEND_F0;0RECV_B1)P2P", *SENT[1:]), ("(1RECV_F0;1SEND_B1)P2P", *RECEIVED[1:]), True),
        (("(0SEND_F0;0SEND_F1)P2P", *SENT[1:]), RECEIVED, True),
        (SENT, ("1RECV_F4", *RECEIVED[1:]), False),  # another micro-batch
        (SENT, ("1RECV_B1", *RECEIVED[1:]), False),  # the other way
        (SENT, ("5RECV_F0", *RECEIVED[1:]), False),  # another stage
    ],
)
def test_what_is_named_otherwise_is_not_one(
    jobs: Any, sent: Sequence[str], received: Sequence[str], *, is_first: bool
) -> None:
    sender, receiver = make(jobs, 0, SENDS, [8] * 4), make(jobs, 1, RECEIVES, [8] * 4)
    found = match_transfers([name(sender, sent), name(receiver, received)], IN_STEP)
    assert [(one.send, one.receive) for one in found.matched] == [(i, i) for i in range(0 if is_first else 1, 4)]


@pytest.mark.parametrize(("numbers", "pairs"), [((3, 4), 0), ((4, 5), 3)])
def test_as_many_in_unlike_steps_are_not_one_by_one(jobs: Any, numbers: tuple[int, int], pairs: int) -> None:
    """Of the first step a send is lost, of the second a receive; where ranks number steps unlike, that says nothing."""
    facts: dict[str, Any] = {"steps": (Window(0, 200_000), Window(200_000, 400_000)), "is_device": False}
    sender = replace(make(jobs, 0, SENDS, [8] * 4), step_of=(0, 0, 1, 1), step_numbers=(3, 4), **facts)
    receiver = replace(make(jobs, 1, RECEIVES, [8] * 4), step_of=(0, 0, 1, 1), step_numbers=numbers, **facts)
    found = match_transfers([jobs.drop(sender, 0), jobs.drop(receiver, 3)], IN_STEP)
    assert len(found.matched) == pairs
    assert found.untold == found.alone


def test_an_end_in_a_group_of_another_name_may_be_the_other_one(jobs: Any) -> None:
    """Two groups of the same ranks, of which the receiver has seen one: names are counted rank by rank."""
    sender = make(jobs, 0, SENDS, [8] * 4, group_ranks=(0, 1))
    named = [replace(one, group=name) for one, name in zip(sender.collectives, "5566", strict=True)]
    sender = replace(sender, collectives=tuple(named))
    for group, sizes, alone, untold in (
        ("7", [8, 8], {0: 4, 1: 2}, {0: 4, 1: 2}),
        ("7", [16, 16], {0: 4, 1: 2}, {}),
        ("5", [8, 8], {0: 2}, {}),
    ):
        receiver = make(jobs, 1, RECEIVES[:2], sizes, group=group, group_ranks=(0, 1))
        found = match_transfers([sender, receiver], IN_STEP)
        assert (found.alone, found.untold) == (alone, untold)
        notes = check_transfers([sender, receiver], found, IN_STEP)
        assert {type(note) for note in notes} == {OtherEndUntold if untold else NoOtherEnd}
