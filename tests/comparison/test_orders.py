"""What every rank issued, in which order: the lowest rank does not stand for the others where these differ."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from dtbench.base.vocabulary import Operation, Purpose
from dtbench.comparison.comparison import Comparison
from dtbench.comparison.gate import Kept, judge, read_bound
from dtbench.comparison.reading.orders import find_orders
from dtbench.comparison.run import compare_sides
from dtbench.report.page.comparison_page import comparison_tables
from dtbench.store.records.baseline import Issued, MeasuredLaunch, RanksOrder
from dtbench.traces.rows.collective_table import COLLECTIVES

Make = Callable[..., Any]


def gather(owner: str, size_bytes: int = 1024) -> Issued:
    return Issued(operation=Operation.ALL_GATHER, purpose=Purpose.UNSHARD, owner=owner, size_bytes=size_bytes, **TOLD)


TOLD: dict[str, Any] = {"dtype": "float32", "group_size": 4}
AB, BA = (gather("a"), gather("b")), (gather("b"), gather("a"))


def issue(orders: dict[tuple[int, int], Sequence[str]]) -> pd.DataFrame:
    """Return collectives by (rank, step), 10 ns apart, in this order."""
    rows = [
        {
            **dict.fromkeys(COLLECTIVES.dtypes),
            "rank": rank,
            "step": step,
            "owner": owner,
            "size_bytes": 1024,
            **TOLD,
            "operation": "all_gather",
            "purpose": "unshard",
            "issue_ns": 10 * place,
            "start_ns": 10 * place + 5,
            "end_ns": 10 * place + 9,
        }
        for (rank, step), owners in orders.items()
        for place, owner in enumerate(owners)
    ]
    return pd.DataFrame(rows)


def test_ranks_that_issued_the_same_are_told_together_and_the_lowest_first() -> None:
    found = find_orders(issue({(0, 1): "ab", (1, 1): "ba", (2, 1): "ab", (3, 1): "ba"}))
    assert (found.order, found.order_ranks) == (AB, (0, 2))
    assert found.other_orders == (RanksOrder(ranks=(1, 3), order=BA),)


def test_a_rank_whose_steps_do_not_agree_has_no_order() -> None:
    found = find_orders(issue({(0, 1): "ab", (0, 2): "ab", (1, 1): "ab", (1, 2): "ba"}))
    assert found.other_orders == (RanksOrder(ranks=(1,), order=None),)
    assert find_orders(issue({(0, 1): "ab"}).head(0)).order is None


def compare(launch_of: Make, side_of: Make, before: dict[str, Any], after: dict[str, Any]) -> Comparison:
    def launch(told: dict[str, Any], started: int) -> MeasuredLaunch:
        made: MeasuredLaunch = launch_of(0, 100.0, order=AB, started=started)
        return made.model_copy(update=told)

    return compare_sides(side_of("old", [launch(before, 0)]), side_of("new", [launch(after, 1)]))


ALIKE = {"order_ranks": (0, 1, 2, 3), "other_orders": ()}


def others(order: Sequence[Issued] | None, ranks: tuple[int, ...] = (1, 3)) -> dict[str, Any]:
    others = RanksOrder(ranks=ranks, order=None if order is None else tuple(order))
    return {"order_ranks": tuple({0, 1, 2, 3} - {*ranks}), "other_orders": (others,)}


def test_another_order_of_other_ranks_is_a_change_and_says_whose(launch_of: Make, side_of: Make) -> None:
    found = compare(launch_of, side_of, ALIKE, others(BA))
    (change,) = found.mechanism
    assert (change.what, change.subject) == ("order", "collective 1 of a step of ranks 1, 3")
    assert (change.baseline, change.candidate) == (
        "unshard all-gather of a, 1.00 KiB",
        "unshard all-gather of b, 1.00 KiB",
    )
    assert "; issued in another order by ranks 1, 3" in found.sentence
    assert judge(read_bound("mechanism changed"), found).kept is Kept.EXCEEDED


def test_other_ranks_that_issued_more_or_larger_collectives_are_told_of(launch_of: Make, side_of: Make) -> None:
    more = compare(launch_of, side_of, ALIKE, others((*AB, gather("c")), (2,)))
    assert [(change.what, change.subject) for change in more.mechanism] == [
        ("count", "unshard all-gather of rank 2"),
        ("size_bytes", "unshard all-gather of rank 2"),
    ]
    larger = compare(launch_of, side_of, ALIKE, others((gather("a"), gather("b", 2048)), (2,)))
    assert [change.what for change in larger.mechanism] == ["size_bytes"]


def test_what_other_ranks_did_and_nobody_knows_is_not_said_to_be_the_same(launch_of: Make, side_of: Make) -> None:
    def said(before: dict[str, Any], after: dict[str, Any]) -> str:
        found = compare(launch_of, side_of, before, after)
        assert found.mechanism == ()
        (section,) = (one for one in comparison_tables(found) if "differently" in one.title)
        return section.words[0][1]

    same = "as many collectives, of the same sizes, of the same types, over as many ranks, in the same order"
    assert said(others(BA), others(BA)) == f"{same}; not known: which are asynchronous"
    not_known = said(ALIKE, others(None)).partition("not known: the size of each, their bytes in all, ")[2]
    assert not_known.startswith("their data types, how many ranks take part in each, their order")
    of_an_older_version = {"order_ranks": (), "other_orders": ()}
    assert "not known: what ranks other than the lowest issued" in said(of_an_older_version, others(BA))


def test_a_baseline_of_a_version_that_looked_at_the_lowest_rank_alone_is_read(launch_of: Make) -> None:
    document = json.loads(launch_of(0, 100.0, order=AB).model_dump_json())
    for name in ("order_ranks", "other_orders"):
        document.pop(name)
    read = MeasuredLaunch.model_validate_json(json.dumps(document))
    assert (read.order, read.order_ranks, read.other_orders) == (AB, (), ())


def test_orders_of_unlike_ranks_are_not_held_against_each_other(launch_of: Make, side_of: Make) -> None:
    only_other = {"order": BA, "order_ranks": (1,), "other_orders": (), "traffic": ()}
    both = {"order_ranks": (0,), "other_orders": (RanksOrder(ranks=(1,), order=BA),), "traffic": ()}
    found = compare(launch_of, side_of, both, only_other)
    assert found.mechanism == ()
    assert "what ranks that only one of them has issued" in found.mechanism_not_known
    unshared = compare(launch_of, side_of, {"order_ranks": (0,), "traffic": ()}, only_other)
    assert (unshared.mechanism, unshared.is_mechanism_known) == ((), False)
    assert judge(read_bound("mechanism changed"), unshared).kept is Kept.UNDECIDED
    other = compare(launch_of, side_of, both, {**only_other, "order": AB})
    assert [(one.what, one.subject) for one in other.mechanism] == [("order", "collective 1 of a step of rank 1")]
