"""What a cell communicated for each purpose, held against its plan: by what was seen, and by what was not."""

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from dtbench.base.vocabulary import Purpose
from dtbench.runs.cell.summarize_overlap import summarize_purposes
from dtbench.runs.summary import PurposeSummary
from dtbench.store.records.traffic import ExpectedTraffic
from dtbench.traces.rows.tables import OVERLAP, PURPOSES


def summarize(
    counts: list[int], *, planned: int | None, is_whole: bool = True, unplanned: Collection[Purpose] = ()
) -> dict[Purpose, PurposeSummary]:
    """Summarize two steps of a rank in which so many gradients were reduced, and one parameter gathered."""
    blank: dict[str, Any] = dict.fromkeys(PURPOSES.dtypes, 0)
    rows = [
        {**blank, "launch": 0, "step": step, "purpose": purpose, "count": count, "size_bytes": 8 * count}
        for step, found in enumerate(counts)
        for purpose, count in (("grad_reduce", found), ("other", 1))
        if count
    ]
    overlap = pd.DataFrame(
        [{**dict.fromkeys(OVERLAP.dtypes, 0), "launch": 0, "step": step} for step in range(len(counts))]
    )
    plan: Any = SimpleNamespace(ranks=1, traffic=())
    expected = [ExpectedTraffic(purpose=Purpose.GRAD_REDUCE, count=planned, size_bytes=8 * planned)] if planned else []
    rank: Any = SimpleNamespace(traffic=(), planned=tuple(expected), overlap_possible=())
    found, _ = summarize_purposes(
        pd.DataFrame(rows, columns=["launch", *PURPOSES.dtypes]), overlap, plan, [rank], unplanned, is_whole=is_whole
    )
    return {one.purpose: one for one in found}


@pytest.mark.parametrize(
    ("count", "is_whole", "matches"),
    [(3, True, True), (2, True, False), (4, True, False), (3, False, None), (2, False, None), (4, False, False)],
)
def test_too_few_differ_from_the_plan_only_where_all_that_was_launched_was_seen(
    count: int, is_whole: bool, matches: bool | None
) -> None:
    assert summarize([count, count], planned=3, is_whole=is_whole)[Purpose.GRAD_REDUCE].matches_plan is matches


def test_what_was_planned_and_not_seen_took_no_time_that_anybody_knows() -> None:
    row = summarize([0, 0], planned=3)[Purpose.GRAD_REDUCE]
    assert (row.count, row.comm_ns, row.hidden_ns, row.exposed_ns, row.wait_ns) == (0, None, None, None, None)
    assert summarize([0, 3], planned=3)[Purpose.GRAD_REDUCE].comm_ns == 0
    assert summarize([0, 0], planned=3)[Purpose.OTHER].comm_ns == 0


def summarize_waits(
    waits: list[tuple[int | None, bool | None]], lost: tuple[int, ...] = ()
) -> tuple[PurposeSummary, list[str]]:
    """Summarize the waits for gradients of as many steps of a rank, each with whether it is at least this.

    Of lost steps no account is known.
    """
    blank: dict[str, Any] = {"launch": 0, **dict.fromkeys(PURPOSES.dtypes, 0), "purpose": "grad_reduce", "count": 1}
    rows = [
        {**blank, "step": step, "wait_ns": wait_ns, "is_wait_least": is_least}
        for step, (wait_ns, is_least) in enumerate(waits)
    ]
    purposes = pd.DataFrame(rows).astype(PURPOSES.dtypes)
    accounts = [dict.fromkeys(OVERLAP.dtypes, None if step in lost else 0) for step in range(len(waits))]
    overlap = pd.DataFrame([{**one, "launch": 0, "rank": 0, "step": step} for step, one in enumerate(accounts)])
    rank: Any = SimpleNamespace(traffic=(), planned=(), overlap_possible=())
    plan: Any = SimpleNamespace(ranks=1, traffic=None)
    (row,), notes = summarize_purposes(purposes, overlap, plan, [rank])
    return row, notes


@pytest.mark.parametrize(
    ("waits", "is_least", "why"),
    [
        ([(8, None), (4, None)], None, "the tables are of an older version"),
        ([(8, None), (4, False)], None, "the tables are of an older version"),
        ([(8, True), (4, None)], True, "not every consumer can be seen"),
        ([(8, True), (4, False)], True, "not every consumer can be seen"),
        ([(8, False), (4, False)], False, None),
        ([(None, None), (None, None)], False, None),
    ],
)
def test_a_wait_that_is_only_a_bound_or_may_be_one_has_a_note_that_says_why(
    waits: list[tuple[int | None, bool | None]], is_least: bool | None, why: str | None
) -> None:
    row, notes = summarize_waits(waits)
    assert row.is_wait_least is is_least
    assert row.model_dump(mode="json")["is_wait_least"] is is_least
    assert row.why_wait_least == why
    assert notes == ([f"the wait for grad_reduce is a lower bound: {why}"] if why else [])


def test_a_wait_that_was_seen_only_in_steps_without_an_account_is_not_known_of_the_others() -> None:
    row, _ = summarize_waits([(None, True), (8, False)], lost=(1,))
    assert (row.wait_ns, row.is_wait_least) == (None, False)
    row, notes = summarize_waits([(6, False), (None, True)], lost=(1,))
    assert (row.wait_ns, row.is_wait_least) == (6, False), "what a step without an account waited is in no mean"
    assert not any("only the least" in note for note in notes)


def test_what_a_function_of_ones_own_sends_is_held_against_nothing_though_the_plan_names_none() -> None:
    row = summarize([3, 3], planned=None)[Purpose.GRAD_REDUCE]
    assert (row.matches_plan, row.planned_count, row.planned_size_bytes) == (False, 0, 0)
    own = summarize([3, 3], planned=None, unplanned={Purpose.GRAD_REDUCE})[Purpose.GRAD_REDUCE]
    assert (own.matches_plan, own.planned_count, own.planned_size_bytes) == (None, None, None)
