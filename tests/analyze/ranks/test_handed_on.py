"""A delay that a rank hands on is not its own, and a moment that is waited in two collectives is one moment."""

from typing import Any

import pytest

from dtbench.analyze.ranks.over_ranks import OverRanks, compare_ranks
from dtbench.analyze.ranks.stragglers import Waiting, describe_waiting

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
    _, late, handed_on = describe_waiting(waiting)
    assert late == "rank 2 is last in 1 of 1; the others wait 20.0 us for it, summed over ranks"
    assert handed_on.startswith(
        "for 20.0 us more, summed over ranks, they wait for ranks that may only hand on how long"
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
