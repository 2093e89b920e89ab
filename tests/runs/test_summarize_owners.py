"""Owners and causes of a cell, from its tables of collectives."""

import pandas as pd
import pytest

from dtbench.base.vocabulary import Cause, MissingInput, Operation, Purpose
from dtbench.runs.cell.summarize_owners import say_unowned, summarize_others, summarize_owners
from dtbench.runs.summary import OtherSummary
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.rows.tables import OVERLAP


def collectives(*rows: dict[str, object]) -> pd.DataFrame:
    """Return a table whose rows say only what matters."""
    numbers = {name: 0 for name in COLLECTIVES.dtypes if name.startswith("exposed_")}
    blank: dict[str, object] = {
        name: "" if dtype == "string" else pd.NA if dtype[0].isupper() else 0
        for name, dtype in COLLECTIVES.dtypes.items()
    }
    gather = {"step": 1, "owner": "a", "operation": "all_gather", "purpose": "unshard"}
    return pd.DataFrame(
        [{**blank, **numbers, **gather, **row} for row in rows], columns=list(COLLECTIVES.dtypes)
    ).astype(COLLECTIVES.dtypes)


def steps(*numbers: int) -> pd.DataFrame:
    """Return steps of rank 0 whose account is known."""
    return pd.DataFrame([{name: step if name == "step" else 0 for name in OVERLAP.dtypes} for step in numbers]).reindex(
        columns=list(OVERLAP.dtypes)
    )


def test_owners_come_by_all_their_exposed_time_and_causes_within_an_owner() -> None:
    table = collectives(
        {"exposed_skew_ns": 6, "exposed_tail_ns": 10, "last_rank": 3},
        {"exposed_skew_ns": 8, "last_rank": 3, "step": 2},
        {"exposed_skew_ns": 1, "last_rank": 2},
        {"owner": "b", "exposed_bandwidth_ns": 20},
    )
    rows = summarize_owners(table, steps(1, 2))
    assert [(row.owner, row.cause, row.exposed_ns, row.owner_exposed_ns, row.waited_for) for row in rows] == [
        ("a", Cause.SKEW, 7, 12, 3),
        ("a", Cause.TAIL, 5, 12, None),
        ("b", Cause.BANDWIDTH, 10, 10, None),
    ]
    assert (rows[0].operation, rows[0].purpose) == (Operation.ALL_GATHER, Purpose.UNSHARD)


def test_of_an_unknown_cause_it_is_told_what_most_of_it_lacks_first() -> None:
    table = collectives(
        {"exposed_ns": 9, "exposed_unknown_ns": 4, "exposed_tail_ns": 5, "missing": "host"},
        {"exposed_ns": 7, "exposed_unknown_ns": 7, "missing": "events, host"},
        {"owner": "b", "exposed_ns": 3, "exposed_unknown_ns": 3},  # a table that does not say it
    )
    rows = summarize_owners(table, steps(1))
    assert [(row.owner, row.cause, row.missing) for row in rows] == [
        ("a", Cause.UNKNOWN, (MissingInput.EVENTS, MissingInput.HOST)),
        ("a", Cause.TAIL, ()),
        ("b", Cause.UNKNOWN, ()),
    ]


def test_what_no_step_issued_does_not_count() -> None:
    assert summarize_owners(collectives({"step": pd.NA, "exposed_tail_ns": 5}), steps(1)) == ()


def test_what_steps_without_an_account_issued_is_in_no_mean() -> None:
    table = collectives(
        {"exposed_tail_ns": 10, "start_ns": 0, "end_ns": 40},
        {"exposed_tail_ns": 90, "start_ns": 100, "end_ns": 500, "step": 2},
    )
    (row,) = summarize_owners(table, steps(1))
    assert (row.owner_exposed_ns, row.at_most_ns, row.transfer_ns) == (10, 40, None)


def test_transfer_is_told_only_where_it_is_known_of_every_collective_of_the_owner() -> None:
    known: dict[str, object] = {
        "exposed_tail_ns": 10,
        "start_ns": 0,
        "end_ns": 40,
        "skew_wait_ns": 15,
        "transfer_ns": 25,
    }
    (row,) = summarize_owners(collectives(known, {**known, "start_ns": 50, "end_ns": 90}), steps(1))
    assert (row.at_most_ns, row.transfer_ns, row.skew_wait_ns) == (50, 50, 30)
    (row,) = summarize_owners(collectives(known, {"start_ns": 50, "end_ns": 60}), steps(1))
    assert (row.at_most_ns, row.transfer_ns, row.skew_wait_ns) == (35, None, None)
    (row,) = summarize_owners(collectives(known, {"start_ns": pd.NA, "end_ns": pd.NA}), steps(1))
    assert (row.at_most_ns, row.transfer_ns) == (None, None)


def test_the_most_that_a_transfer_can_gain_is_transfer_also_where_the_wait_for_the_last_rank_is_lost() -> None:
    told = {"exposed_ns": 10, "exposed_bandwidth_ns": 10, "start_ns": 0, "end_ns": 60, "transfer_ns": 40}
    for waited in ({"skew_wait_ns": 20}, {}):
        (row,) = summarize_owners(collectives({**told, **waited}), steps(1))
        assert (row.at_most_ns, row.transfer_ns) == (40, 40)


def test_a_bound_of_what_was_waited_does_not_shrink_where_one_wait_is_not_known() -> None:
    waits: list[dict[str, object]] = [{"exposed_skew_ns": 10, "skew_wait_ns": 10}, {"exposed_skew_ns": 6, "rank": 1}]
    ranks = pd.concat([steps(1), steps(1).assign(rank=1)])
    (row,) = summarize_owners(collectives(*waits), ranks)
    assert (row.exposed_ns, row.skew_wait_ns, row.waited_at_most_ns) == (8, None, None)
    (row,) = summarize_owners(collectives(waits[0], {**waits[1], "skew_wait_ns": 8}), ranks)
    assert (row.exposed_ns, row.skew_wait_ns, row.waited_at_most_ns) == (8, 9, 10)


def test_a_bound_is_of_the_rank_where_it_is_longest_per_step_over_all_launches() -> None:
    took: dict[str, object] = {"exposed_tail_ns": 5, "start_ns": 0, "end_ns": 40}
    longer = {**took, "rank": 1, "end_ns": 100}
    table = collectives(took, longer, {**longer, "end_ns": 60}).assign(launch=[0, 0, 1])
    ranks = pd.concat([steps(1), steps(1).assign(rank=1)])
    both = pd.concat([ranks.assign(launch=0), ranks.assign(launch=1)])
    (row,) = summarize_owners(table, both)
    assert row.at_most_ns == 80


def test_ranks_that_take_turns_to_be_late_bound_a_step_by_the_sum_of_what_each_collective_waited() -> None:
    rows: list[dict[str, object]] = [
        {"exposed_skew_ns": 5, "rank": rank, "start_ns": start, "end_ns": start + 4 + wait, "skew_wait_ns": wait}
        for rank, waits in ((0, (0, 18)), (1, (16, 0)))
        for start, wait in zip((0, 100), waits, strict=True)
    ]
    (row,) = summarize_owners(collectives(*rows), pd.concat([steps(1), steps(1).assign(rank=1)]))
    assert (row.waited_at_most_ns, row.taken_at_most_ns, row.at_most_ns) == (34, 42, 8)


def test_a_bound_of_sends_is_their_sum_over_ranks_of_which_one_hands_on_to_the_next() -> None:
    took: dict[str, object] = {"exposed_tail_ns": 5, "start_ns": 0, "end_ns": 40, "operation": "send"}
    table = collectives(took, {**took, "rank": 1, "start_ns": 40, "end_ns": 100})
    (row,) = summarize_owners(table, pd.concat([steps(1), steps(1).assign(rank=1)]))
    assert row.at_most_ns == 40 + 60


def test_a_rank_is_named_only_where_nearly_all_was_for_it() -> None:
    waits: list[dict[str, object]] = [{"exposed_skew_ns": 8, "last_rank": 3}, {"exposed_skew_ns": 2, "last_rank": 2}]
    for second, named in ((waits[1], None), ({**waits[1], "last_rank": pd.NA}, None), (waits[0], 3)):
        (row,) = summarize_owners(collectives(waits[0], second), steps(1))
        assert row.waited_for == named


def test_what_has_no_owner_or_operation_is_a_row_of_its_own() -> None:
    (row,) = summarize_owners(collectives({"owner": "", "operation": "", "exposed_unknown_ns": 5}), steps(1))
    assert (row.owner, row.operation, row.exposed_ns) == ("", None, 5)


def test_without_steps_or_causes_there_are_no_owners() -> None:
    assert summarize_owners(collectives({"exposed_tail_ns": 5}), steps()) == ()
    assert summarize_owners(collectives(), steps(1)) == ()
    older = collectives({}).astype({name: "Int64" for name in COLLECTIVES.dtypes if name.startswith("exposed_")})
    older.loc[:, [name for name in older if str(name).startswith("exposed_")]] = pd.NA
    assert summarize_owners(older, steps(1)) == ()


def test_one_collective_of_another_order_than_the_others_is_outsized() -> None:
    small: dict[str, object] = {"exposed_needed_at_once_ns": 5, "start_ns": 0, "end_ns": 5, "size_bytes": 4096}
    large: dict[str, object] = {"exposed_needed_at_once_ns": 90, "start_ns": 0, "end_ns": 90, "size_bytes": 32 << 20}
    (row,) = summarize_owners(collectives(small, small, large), steps(1))
    assert row.outsized_bytes == 32 << 20
    half = {**large, "end_ns": 10}
    for others in ([small, small], [small, small, half], [small, small, half, {**large, "size_bytes": 16 << 20}]):
        (row,) = summarize_owners(collectives(*others), steps(1))
        assert row.outsized_bytes is None


def test_what_is_not_known_of_one_step_is_in_no_mean_of_that_owner_and_bounds_nothing() -> None:
    table = collectives(
        {"exposed_tail_ns": 10, "start_ns": 0, "end_ns": 40},
        {"exposed_ns": pd.NA, "exposed_tail_ns": pd.NA, "step": 2},
        {"owner": "b", "exposed_skew_ns": 6, "start_ns": 0, "end_ns": 9},
        {"owner": "c", "exposed_ns": pd.NA},
        {"owner": "c", "exposed_ns": pd.NA, "step": 2},
        {"owner": "d", "exposed_ns": 8, "exposed_skew_ns": pd.NA, "exposed_tail_ns": 2},
    )
    rows = summarize_owners(table, steps(1, 2))
    assert [(row.owner, row.exposed_ns, row.at_most_ns) for row in rows] == [
        ("a", 10, None),
        ("d", 3, None),
        ("d", 1, None),
        ("b", 3, 4),
    ]


def test_where_a_rank_that_communicated_has_no_collectives_listed_owners_are_not_known() -> None:
    table = collectives({"exposed_tail_ns": 10})
    both = pd.concat([steps(1), steps(1).assign(rank=1, comm_ns=20)])
    assert summarize_owners(table, both) == ()
    assert [row.exposed_ns for row in summarize_owners(table, both.assign(comm_ns=0))] == [5]


def test_what_an_owner_can_gain_counts_time_once_in_which_several_of_its_collectives_were_under_way() -> None:
    table = collectives(
        {"exposed_tail_ns": 10, "start_ns": 0, "end_ns": 40},
        {"start_ns": 20, "end_ns": 60, "skew_wait_ns": 30},
        {"start_ns": 20, "end_ns": 60, "rank": 1},
    )
    ranks = pd.concat([steps(1), steps(1).assign(rank=1)])
    (row,) = summarize_owners(table, ranks)
    assert row.at_most_ns == 50


def test_nobody_knows_how_large_an_owners_largest_is_where_the_size_of_one_is_not_told() -> None:
    told: list[dict[str, object]] = [{"exposed_tail_ns": 10, "size_bytes": 16}, {"size_bytes": 8}]
    assert [row.size_bytes for row in summarize_owners(collectives(*told), steps(1))] == [16]
    assert [row.size_bytes for row in summarize_owners(collectives(*told, {}), steps(1))] == [None]


def test_an_owner_says_of_which_ranks_its_times_are_means_where_these_are_not_all() -> None:
    ranks = pd.concat([steps(1), steps(1).assign(rank=1)])
    known: dict[str, object] = {"exposed_tail_ns": 10}
    (row,) = summarize_owners(collectives(known, {**known, "rank": 1}), ranks)
    assert (row.part, row.exposed_ns) == (None, 10)
    lost = collectives(known, {**known, "rank": 1})
    lost.loc[lost["rank"] == 1, "exposed_ns"] = pd.NA
    (row,) = summarize_owners(lost, ranks)
    assert (str(row.part), row.exposed_ns) == ("rank 0 alone, of 2", 10)


@pytest.mark.parametrize(
    ("exposed_ns", "said"),
    [
        (1_000_000, None),
        (1_005_000, None),  # rounded away where it is shown
        (1_500_000, "1.50 ms of a step is exposed: 500 us is of collectives that were issued before these steps"),
        (2_500_000, "2.50 ms of a step is exposed: whose 1.50 ms is, is not known"),  # those others took less
        (600_000, "600 us of a step is exposed: 400 us lies beyond the steps that issued it"),
    ],
)
def test_what_is_exposed_and_no_owners_is_said_to_be_so(exposed_ns: int, said: str | None) -> None:
    issued: dict[str, object] = {"exposed_tail_ns": 1_000_000, "exposed_ns": 1_000_000}
    before: dict[str, object] = {"step": pd.NA, "exposed_tail_ns": 900_000, "exposed_ns": 900_000}
    left_out: dict[str, object] = {**before, "step": 3}
    table = collectives(before, issued, {**issued, "step": 2}, left_out)
    window = steps(1, 2).assign(exposed_comm_ns=exposed_ns, comm_ns=exposed_ns)
    found = list(say_unowned(summarize_owners(table, window), table, window))
    assert found == ([] if said is None else [f"owners' times add up to 1.00 ms, and {said}"])


@pytest.mark.parametrize(
    ("exposed_ns", "said"),
    [
        ((500, 1_500), []),  # what the first issued ran on in the second
        ((1_500, 500), ["250 ns lies beyond the steps that issued it", "whose 250 ns is, is not known"]),
    ],
)
def test_what_owners_lack_is_said_though_they_have_as_much_too_much(
    exposed_ns: tuple[int, int], said: list[str]
) -> None:
    issued: dict[str, object] = {"exposed_tail_ns": 1_000, "exposed_ns": 1_000}
    table = collectives(issued, {**issued, "step": 2})
    window = steps(1, 2).assign(exposed_comm_ns=list(exposed_ns), comm_ns=1_000)
    found = list(say_unowned(summarize_owners(table, window), table, window))
    assert found == [f"owners' times add up to 1.00 us, and 1.00 us of a step is exposed: {what}" for what in said]


def test_what_one_rank_lacks_another_ranks_surplus_does_not_hide() -> None:
    issued: dict[str, object] = {"exposed_tail_ns": 1_000, "exposed_ns": 1_000}
    table = collectives(issued, {**issued, "rank": 1})
    window = pd.concat([steps(1), steps(1).assign(rank=1)], ignore_index=True)
    window = window.assign(exposed_comm_ns=[600, 1_400], comm_ns=1_000)
    beyond, lacking = say_unowned(summarize_owners(table, window), table, window)
    assert beyond.endswith(": 200 ns lies beyond the steps that issued it")
    assert lacking.endswith(": whose 200 ns is, is not known")


def test_nothing_is_said_of_sums_where_owners_are_not_known_of_all_or_nothing_is_exposed() -> None:
    window = steps(1).assign(exposed_comm_ns=500, comm_ns=500)
    unknown = collectives({"exposed_tail_ns": 9, "exposed_ns": 9}, {"exposed_ns": pd.NA})
    unlisted = collectives()
    for table, windows in ((unknown, window), (unlisted, window), (collectives({"exposed_ns": 0}), steps(1))):
        assert list(say_unowned(summarize_owners(table, windows), table, windows)) == []


def test_what_is_of_purpose_other_is_told_by_operation_as_the_step_that_issued_most_did() -> None:
    other: dict[str, object] = {"purpose": "other", "operation": "all_reduce", "size_bytes": 4}
    bias = {**other, "size_bytes": 20}
    gathered = {**other, "operation": "all_gather", "size_bytes": 32}
    table = collectives(
        other, bias, bias, {**other, "step": 2}, {"size_bytes": 9}, {**other, "operation": ""},
        {**gathered, "group_size": 4}, {**gathered, "step": 2},
        {**other, "operation": "broadcast", "size_bytes": pd.NA}, {**bias, "operation": "broadcast"},
    )  # fmt: skip
    assert summarize_others(table, steps(1, 2)) == (
        OtherSummary(operation=None, are_numbers=True, count=1, size_bytes=4),
        OtherSummary(operation=Operation.ALL_GATHER, are_numbers=False, count=1, size_bytes=32),  # of how many?
        OtherSummary(operation=Operation.ALL_GATHER, are_numbers=True, count=1, size_bytes=32),
        OtherSummary(operation=Operation.ALL_REDUCE, are_numbers=False, count=2, size_bytes=40),
        OtherSummary(operation=Operation.ALL_REDUCE, are_numbers=True, count=1, size_bytes=4),
        OtherSummary(operation=Operation.BROADCAST, are_numbers=False, count=2, size_bytes=None),
    )
    assert summarize_others(table, steps()) == ()
    unlisted = steps(1).assign(rank=1, comm_ns=pd.array([None], dtype="Int64"))
    assert summarize_others(table, pd.concat([steps(1), unlisted])) == ()
