"""A delay that a rank hands on is not its own, and a moment that is waited in two collectives is one moment."""

from typing import Any

import pytest

from dtbench.base.vocabulary import Operation
from dtbench.traces.ranks.over_ranks import OverRanks, compare_ranks
from dtbench.traces.ranks.stragglers import Waiting, describe_waiting
from dtbench.traces.time.intervals import unite

RANKS = {"a": (1, 2), "b": (0, 1), "w": (0, 1, 2), "c": (0, 1), "d": (0, 1)}


def compare(jobs: Any, spans: dict[int, list[tuple[str, int, int]]]) -> OverRanks:
    """Let ranks take part in one collective of each group: by rank, group, start and end in us, in order of start."""
    timelines = [
        jobs.timeline(
            rank,
            [
                jobs.collective(
                    start * 1000, end * 1000, group=group, seq=1, group_ranks=RANKS[group], group_size=len(RANKS[group])
                )
                for group, start, end in own
            ],
            host="one",
        )
        for rank, own in spans.items()
    ]
    return compare_ranks(timelines)


def wait(jobs: Any, spans: dict[int, list[tuple[str, int, int]]]) -> Waiting:
    return compare(jobs, spans).waiting


def test_a_rank_that_hands_on_what_it_waited_is_waited_for_only_for_the_rest(jobs: Any) -> None:
    waiting = wait(jobs, {0: [("b", 0, 26)], 1: [("a", 0, 22), ("b", 24, 26)], 2: [("a", 20, 22)]})
    assert {one.rank: (one.last, one.skew_wait_ns, one.caused_wait_ns) for one in waiting.ranks} == {
        0: (0, 24_000, 0),
        1: (1, 20_000, 4_000),
        2: (1, 0, 20_000),
    }
    assert waiting.straggler is not None
    assert (waiting.straggler.rank, waiting.handed_on_ns) == (2, 20_000)
    _, late, others, handed_on = describe_waiting(waiting)
    assert others == "for others, each alone or several together, they wait 4.00 us more, summed over ranks"
    assert late == "rank 2 is last in 1 of its 1; the others wait 20.0 us for it alone, summed over ranks"
    assert handed_on.startswith(
        "waits that are counted for none, summed over ranks: 20.0 us for ranks that may only hand on how long"
    )


def test_nobody_is_named_for_a_wait_that_was_mostly_handed_on(jobs: Any) -> None:
    compared = compare(jobs, {0: [("b", 0, 26)], 1: [("a", 0, 22), ("b", 24, 26)], 2: [("a", 20, 22)]})
    found = {
        rank: [(one.skew_wait_ns, one.own_ns, one.last_rank) for one in own]
        for rank, own in compared.collectives.items()
    }
    assert found == {0: [(24_000, 4_000, None)], 1: [(20_000, 20_000, 2), (0, 0, 1)], 2: [(0, 0, 2)]}


@pytest.mark.parametrize("other_waits", [False, True])
def test_what_both_waited_or_waited_before_they_met_delays_neither_more(jobs: Any, *, other_waits: bool) -> None:
    met = {0: [("w", 1, 32)], 1: [("a", 0, 22), ("w", 23, 32)], 2: [("a", 20, 22), ("w", 30, 32)]}
    if other_waits:  # rank 1 waits as long for rank 2 as rank 0 did
        waiting = wait(jobs, {0: [("w", 0, 22), ("b", 24, 42)], 1: [("w", 0, 22), ("b", 40, 42)], 2: [("w", 20, 22)]})
        expected = {0: 0, 1: 16_000, 2: 40_000}
    else:
        waiting = wait(jobs, {0: [*met[0], ("b", 33, 42)], 1: [*met[1], ("b", 40, 42)], 2: met[2]})
        expected = {0: 0, 1: 7_000, 2: 20_000 + 2 * 7_000}  # rank 0 waits 22 us of `w` for rank 1 as well
    assert {one.rank: one.caused_wait_ns for one in waiting.ranks} == expected
    assert waiting.handed_on_ns == 0


def test_of_collectives_at_once_each_moment_is_waited_once(jobs: Any) -> None:
    waiting = wait(jobs, {0: [("c", 0, 22), ("d", 1, 23)], 1: [("c", 20, 22), ("d", 21, 23)]})
    late = waiting.straggler
    assert late is not None
    assert (late.rank, late.last, late.caused_wait_ns) == (1, 2, 21_000)
    assert [one.skew_wait_ns for one in waiting.ranks] == [40_000, 0]


def send(jobs: Any, start: int, end: int, peer: int, operation: Operation = Operation.SEND) -> Any:
    facts = {"group": "p", "group_size": 2, "group_ranks": (1, 3), "operation": operation, "peer": peer}
    return jobs.collective(start * 1000, end * 1000, lane="0/23", **facts)


def meet(jobs: Any, start: int, end: int, group: str = "b", ranks: tuple[int, ...] = (0, 1)) -> Any:
    facts = {"group": group, "group_size": len(ranks), "group_ranks": ranks, "seq": 1}
    return jobs.collective(start * 1000, end * 1000, **facts)


@pytest.mark.parametrize("other_end", ["seen", "missing", "on another clock"])
def test_a_rank_that_waited_in_a_send_may_only_hand_on_what_it_waited(jobs: Any, other_end: str) -> None:
    timelines = [
        jobs.timeline(0, [meet(jobs, 0, 26)], host="one", world_size=4),
        jobs.timeline(1, [send(jobs, 0, 22, 3), meet(jobs, 24, 26)], host="one", world_size=4),
    ]
    if other_end != "missing":
        host = "one" if other_end == "seen" else "two"
        timelines.append(
            jobs.timeline(3, [send(jobs, 20, 22, 1, Operation.RECV)], host=host, world_size=4),
        )
    compared = compare_ranks(timelines)
    handed_on_ns = 20_000 if other_end == "seen" else 22_000
    assert compared.waiting.handed_on_ns == handed_on_ns
    assert [(one.last, one.caused_wait_ns) for one in compared.waiting.ranks] == [(0, 0), (1, 24_000 - handed_on_ns)]
    waits = compared.collectives[0][0]
    assert (waits.skew_wait_ns, waits.last_rank) == (24_000, None)
    assert waits.untold_ns == (0 if other_end == "seen" else 22_000)


@pytest.mark.parametrize("is_beside_compute", [False, True])
def test_a_rank_that_was_in_a_group_of_which_ranks_are_missing_is_named_only_where_it_computed_meanwhile(
    jobs: Any, *, is_beside_compute: bool
) -> None:
    computes = {"compute": unite([0], [24_000])} if is_beside_compute else {}
    gathered = meet(jobs, 0, 24, group="g", ranks=(1, 3))
    waiting = compare_ranks(
        [
            jobs.timeline(0, [meet(jobs, 0, 26)], host="one", world_size=4),
            jobs.timeline(1, [gathered, meet(jobs, 24, 26)], host="one", world_size=4, **computes),
        ]
    ).waiting
    assert (waiting.ranks[1].last, waiting.ranks[1].caused_wait_ns) == (1, 24_000 if is_beside_compute else None)
    said = describe_waiting(waiting)[1]
    if is_beside_compute:
        assert said == "rank 1 is last in 1 of its 1; the others wait 24.0 us for it alone, summed over ranks"
    else:
        assert said.startswith("waits that are counted for none, summed over ranks: 24.0 us for ranks that may only")


def test_what_both_were_in_with_ranks_that_no_trace_is_of_delays_neither_more(jobs: Any) -> None:
    gathers = {rank: meet(jobs, 0, 20, group=f"g{rank}", ranks=(rank, rank + 2)) for rank in (0, 1)}
    waiting = compare_ranks(
        [
            jobs.timeline(0, [gathers[0], meet(jobs, 21, 42)], host="one", world_size=4),
            jobs.timeline(1, [gathers[1], meet(jobs, 40, 42)], host="one", world_size=4),
        ]
    ).waiting
    assert waiting.straggler is not None
    assert (waiting.straggler.rank, waiting.straggler.caused_wait_ns, waiting.handed_on_ns) == (1, 19_000, 0)


def test_ranks_that_come_last_together_are_not_named_where_they_also_send(jobs: Any) -> None:
    def wait_together(*, sends: bool) -> Waiting:
        first = [send(jobs, 0, 22, 3)] if sends else []
        spans = {0: (0, 26), 1: (24, 26), 2: (24, 26)}
        return compare_ranks(
            [
                jobs.timeline(rank, [*(first if rank == 1 else []), meet(jobs, *span, "w", (0, 1, 2))], host="one")
                for rank, span in spans.items()
            ]
        ).waiting

    assert [one.ranks for one in wait_together(sends=False).together] == [(1, 2)]
    assert not wait_together(sends=True).together
