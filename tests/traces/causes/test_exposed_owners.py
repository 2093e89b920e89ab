"""Owners ranked by exposed time."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from dtbench.base.vocabulary import Cause, MissingInput, Operation, Purpose
from dtbench.report.words.causes import describe_exposed_owner
from dtbench.traces.causes.exposed_owners import ExplainedRank, rank_exposed_owners
from dtbench.traces.causes.split import CausePart, CauseSplit, leave_unknown
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import unite
from dtbench.traces.timeline import RankTimeline
from dtbench.traces.who.collectives import Collective, Regions

rank_owners = partial(rank_exposed_owners, any_steps=True)


def collective(owner: str, operation: Operation = Operation.ALL_GATHER) -> Collective:
    return Collective(
        group="dp", axis=None, seq=1, operation=operation, purpose=Purpose.UNSHARD, owner=owner,
        size_bytes=None, issue_ns=0, issue_end_ns=0, span=unite([0], [1]), above=(),
    )  # fmt: skip


def explained(
    collectives: list[Collective],
    parts: Sequence[tuple[CausePart, ...]],
    *,
    step_of: tuple[int | None, ...] = (),
    last_ranks: tuple[int | None, ...] = (),
) -> ExplainedRank:
    nothing = unite([], [])
    timeline = RankTimeline(
        rank=0,
        is_device=True,
        collectives=tuple(collectives),
        step_of=step_of or (0,) * len(collectives),
        exposed_ns=tuple(sum(part.exposed_ns for part in one) for one in parts),
        stepped_exposed_ns=tuple(sum(part.exposed_ns for part in one) for one in parts),
        hidden_ns=(0,) * len(collectives),
        compute=nothing,
        compute_starts_ns=nothing.starts_ns,
        compute_launches_ns=np.stack((nothing.starts_ns, nothing.starts_ns)),
        regions=Regions((), nothing.starts_ns, nothing.ends_ns),
        step_numbers=(1,),
        steps=(Window(0, 100),),
    )
    return ExplainedRank(timeline, [CauseSplit(one) for one in parts], last_ranks)


def test_owners_come_by_their_exposed_time_over_ranks_and_their_causes_likewise() -> None:
    late, wide = CausePart(Cause.LATE_ISSUE, 5), CausePart(Cause.BANDWIDTH, 6)
    rank = explained([collective("a"), collective("b")], [(late, wide), (CausePart(Cause.TAIL, 8),)])
    rows = rank_owners([rank, rank])
    assert [(row.owner, row.cause, row.exposed_ns, row.owner_exposed_ns, row.count) for row in rows] == [
        ("a", Cause.BANDWIDTH, 12, 22, 2),
        ("a", Cause.LATE_ISSUE, 10, 22, 2),
        ("b", Cause.TAIL, 16, 16, 2),
    ]


def test_what_has_no_owner_is_a_row_of_its_own() -> None:
    tail = (CausePart(Cause.TAIL, 8),)
    rows = rank_owners([explained([collective(""), collective("a")], [tail, (CausePart(Cause.TAIL, 1),)])])
    assert [(row.owner, row.exposed_ns) for row in rows] == [(None, 8), ("a", 1)]


def test_time_outside_all_steps_does_not_count_and_causes_take_what_is_inside_in_their_order() -> None:
    parts = (CausePart(Cause.SKEW, 3), CausePart(Cause.TAIL, 8))
    rank = explained([collective("a"), collective("b")], [parts, parts])
    rank = replace(rank, timeline=replace(rank.timeline, stepped_exposed_ns=(0, 5)))
    rows = rank_owners([rank])
    assert [(row.owner, row.cause, row.exposed_ns) for row in rows] == [("b", Cause.SKEW, 3), ("b", Cause.TAIL, 2)]


@pytest.mark.parametrize(("waited_ns", "named"), [(20, 5), (4, None)])
def test_a_row_names_what_most_of_it_queued_behind_and_the_rank_nearly_all_of_it_waited_for(
    waited_ns: int, named: int | None
) -> None:
    """A rank that a fifth of the waiting was not for is one of several, and no straggler."""
    queued = [(CausePart(Cause.QUEUED, 3, behind=1), CausePart(Cause.SKEW, 1)), ()]
    more = [(CausePart(Cause.QUEUED, 9, behind=1), CausePart(Cause.SKEW, waited_ns)), ()]
    rows = rank_owners(
        [
            explained([collective("a"), collective("x")], queued, last_ranks=(2, None)),
            explained([collective("a"), collective("y", Operation.REDUCE_SCATTER)], more, last_ranks=(5, None)),
        ]
    )
    told = {row.cause: (row.behind.owner if row.behind else None, row.waited_for) for row in rows}
    assert told == {Cause.QUEUED: ("y", None), Cause.SKEW: (None, named)}


def test_what_an_owner_can_gain_at_most_is_a_steps_where_it_took_longest() -> None:
    """Its mean over ranks is no bound: a step is as long as its slowest rank's."""

    def rank(number: int, took_ns: int, waited_ns: int) -> ExplainedRank:
        member = replace(collective("a"), span=unite([0], [took_ns]))
        one = explained([member], [(CausePart(Cause.BANDWIDTH, 5),)])
        timeline = replace(one.timeline, rank=number, steps=(Window(0, 100), Window(100, 200)), step_numbers=(1, 2))
        return replace(one, timeline=timeline, skew_waits_ns=[waited_ns])

    (row,) = rank_owners([rank(0, 90, 10), rank(1, 30, 20), rank(2, 10, 2)])
    assert (row.carried.at_most_ns, row.carried.waited_at_most_ns) == (40, 10)
    assert row.carried.skew_wait_ns == 32


def test_an_unknown_row_keeps_all_that_was_missing() -> None:
    parts = [
        (CausePart(Cause.UNKNOWN, 3, missing=(MissingInput.LAUNCH,)),),
        (CausePart(Cause.UNKNOWN, 3, missing=(MissingInput.RANKS,)),),
    ]
    (row,) = rank_owners([explained([collective("a"), collective("a")], parts)])
    assert row.missing == (MissingInput.RANKS, MissingInput.LAUNCH)


def test_an_unknown_row_names_first_what_most_of_it_lacked() -> None:
    late, more = MissingInput.PUT_OFF, MissingInput.GRAPH_ORDER
    parts = [(leave_unknown(7, {late: 2, more: 5}),), (leave_unknown(3, {late: 3}),), (leave_unknown(4, {more: 4}),)]
    assert [part.missing for (part,) in parts] == [(more, late), (late,), (more,)]
    (row,) = rank_owners([explained([collective("a")] * 3, parts)])
    assert (row.exposed_ns, row.missing) == (14, (more, late))


def test_without_exposed_time_there_is_no_row() -> None:
    assert rank_owners([explained([collective("a")], [()])]) == ()


def test_one_collective_of_another_order_than_its_owners_others_gives_the_owner_its_size() -> None:
    sized = [(4 << 10, 2), (4 << 10, 2), (32 << 20, 90)]
    members = [
        replace(collective("lm_head"), size_bytes=size_bytes, span=unite([0], [took_ns]))
        for size_bytes, took_ns in sized
    ]
    parts = [(CausePart(Cause.NEEDED_AT_ONCE, took_ns),) for _, took_ns in sized]
    (row,) = rank_owners([explained(members, parts)])
    assert describe_exposed_owner(row) == "lm_head's all-gather (mostly of 32.0 MiB), needed at once"
    (row,) = rank_owners([explained(members[:2], parts[:2])])
    assert describe_exposed_owner(row) == "lm_head's all-gather, needed at once"


def test_what_an_owner_can_gain_counts_time_once_in_which_several_of_its_collectives_were_under_way() -> None:
    spans = ((0, 40), (20, 60), (90, 100))
    members = [replace(collective("a"), span=unite([start], [end])) for start, end in spans]
    tail = (CausePart(Cause.TAIL, 1),)
    rank = replace(explained(members, [tail, tail, tail]), skew_waits_ns=(0, 30, 4))
    (row,) = rank_owners([rank])
    assert row.carried.at_most_ns == 40 + 10 + 6
    other = replace(rank, timeline=replace(rank.timeline, rank=1))
    (both,) = rank_owners([rank, other])
    assert both.carried.at_most_ns == 40 + 10 + 6  # a step is as long as one rank


def test_nobody_knows_how_large_an_owners_largest_is_where_the_size_of_one_is_not_told() -> None:
    told = [replace(collective("a"), size_bytes=size_bytes) for size_bytes in (16, 8)]
    tail = (CausePart(Cause.TAIL, 1),)
    (row,) = rank_owners([explained(told, [tail, tail])])
    assert row.carried.size_bytes == 16
    (row,) = rank_owners([explained([*told, collective("a")], [tail, tail, tail])])
    assert row.carried.size_bytes is None


def test_where_the_time_of_no_step_is_known_rows_add_up_to_whole_traces() -> None:
    rank = explained([collective("a")], [(CausePart(Cause.TAIL, 8),)])
    unknown = replace(rank, timeline=replace(rank.timeline, stepped_exposed_ns=(0,), known_steps=(False,)))
    assert rank_exposed_owners([unknown], any_steps=True) == ()
    (row,) = rank_exposed_owners([unknown], any_steps=False)
    assert (row.exposed_ns, row.count) == (8, 1)
    assert rank_exposed_owners([replace(unknown, is_whole_known=False)], any_steps=False) == ()
