"""Sends and receives that one rank's trace lacks, by those of its peers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dtbench.base.vocabulary import Operation
from dtbench.traces.job.lacking_ends import find_lacking_ends
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import unite
from dtbench.traces.timeline import RankTimeline

STEPS = (Window(0, 200), Window(200, 400))


def make(jobs: Any, rank: int, steps: Sequence[int | None], numbers: tuple[int, ...] = (3, 4)) -> RankTimeline:
    """Make a rank that sends to rank 1, or rank 1, which receives that, once in each of some steps."""
    operation, peer = (Operation.RECV, 0) if rank == 1 else (Operation.SEND, 1)
    ones = [jobs.collective(10 * k, 10 * k + 5, operation=operation, peer=peer) for k in range(len(steps))]
    made: RankTimeline = jobs.timeline(rank, ones, step_of=tuple(steps), step_numbers=numbers, steps=STEPS)
    return made


@pytest.mark.parametrize(
    ("sent", "received", "lacking"),
    [
        ((0, 0, 1), (0, 0, 1), {}),
        ((0, 0, 1), (0, 1), {1: {3: 1}}),
        ((0, 1), (0, 0, 1), {0: {3: 1}}),
        ((0, 0, 1), (1, 1), {0: {4: 1}, 1: {3: 2}}),
        ((0, 0, 1), (None, 0, 1), {}),  # what no step issued may be it
    ],
)
def test_a_rank_lacks_in_a_step_what_its_peer_has_more(
    jobs: Any, sent: Sequence[int], received: Sequence[int | None], lacking: dict[int, dict[int, int]]
) -> None:
    assert find_lacking_ends([make(jobs, 0, sent), make(jobs, 1, received)]) == lacking


def test_nothing_is_lacking_where_steps_or_peers_are_not_told_or_a_trace_is_not_there(jobs: Any) -> None:
    sender, receiver = make(jobs, 0, (0, 0, 1)), make(jobs, 1, (0, 1))
    assert find_lacking_ends([sender]) == {}
    assert find_lacking_ends([sender, make(jobs, 1, (0, 1), (4, 5))]) == {}
    unknown = jobs.collective(50, 55, operation=Operation.RECV)
    assert (
        find_lacking_ends(
            [sender, jobs.timeline(1, (*receiver.collectives, unknown), step_of=(0, 1, 0), step_numbers=(3, 4))]
        )
        == {}
    )


def test_a_span_of_which_it_is_not_told_which_issue_is_its_own_is_no_end_more(jobs: Any) -> None:
    sender, receiver = make(jobs, 0, (0, 0)), make(jobs, 1, (0, 0))
    issue, *others = receiver.collectives
    seen = (replace(issue, is_issue_untold=True, span=unite([], [])), replace(issue, is_issue_untold=True), *others)
    assert find_lacking_ends([sender, replace(receiver, collectives=seen, step_of=(0, 0, 0))]) == {}
