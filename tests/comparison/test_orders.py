"""What every rank issued, in which order: the lowest rank does not stand for the others where these differ."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import pytest

from dtbench.base.units import MIB
from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.comparison.comparison import Comparison
from dtbench.comparison.gate import Kept, judge, read_bound
from dtbench.comparison.reading.orders import Orders, find_orders
from dtbench.comparison.run import compare_sides
from dtbench.report.page.comparison_page import comparison_tables
from dtbench.store.records.baseline import Issued, MeasuredLaunch, RanksOrder, RanksTraffic, StepsOrder
from dtbench.store.records.traffic import Traffic
from dtbench.traces.rows.collective_table import COLLECTIVES

Make = Callable[..., Any]


def gather(owner: str, size_bytes: int = 1024) -> Issued:
    return Issued(operation=Operation.ALL_GATHER, purpose=Purpose.UNSHARD, owner=owner, size_bytes=size_bytes, **TOLD)


TOLD: dict[str, Any] = {"dtype": "float32", "group_size": 4}
AB, BA = (gather("a"), gather("b")), (gather("b"), gather("a"))


def issue(orders: Mapping[tuple[int, int], Sequence[str]]) -> pd.DataFrame:
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


def find(orders: Mapping[tuple[int, int], Sequence[str]]) -> Orders:
    """Return the orders of these steps of ranks, also of those that issued nothing."""
    return find_orders(issue(orders), pd.DataFrame([*orders], columns=["rank", "step"]))


def test_ranks_that_issued_the_same_are_told_together_and_the_lowest_first() -> None:
    found = find({(0, 1): "ab", (1, 1): "ba", (2, 1): "ab", (3, 1): "ba"})
    assert (found.order, found.order_ranks) == (AB, (0, 2))
    assert found.other_orders == (RanksOrder(ranks=(1, 3), order=BA),)


def test_a_rank_whose_steps_do_not_agree_has_no_order() -> None:
    found = find({(0, 1): "ab", (0, 2): "ab", (1, 1): "ab", (1, 2): "ba"})
    assert found.other_orders == (RanksOrder(ranks=(1,), order=None),)
    assert found.unlike_steps == tuple(StepsOrder(ranks=(1,), order=each, steps=1, of=2) for each in (AB, BA))
    nothing = issue({(0, 1): "ab"}).head(0)
    assert find_orders(nothing, pd.DataFrame([(0, 1)], columns=["rank", "step"])).order is None


def test_a_step_that_issued_nothing_is_a_step_that_did_otherwise() -> None:
    found = find({(0, 1): "ab", (0, 2): "", (0, 3): "ab", (0, 4): ""})
    assert (found.order, found.order_ranks) == (None, (0,))
    assert {one.order: (one.steps, one.of) for one in found.unlike_steps} == {AB: (2, 4), (): (2, 4)}


def test_a_step_that_did_otherwise_than_most_is_kept_beside_these() -> None:
    found = find({(rank, step): "aba" if step == 3 else "ab" for rank in (0, 1) for step in (1, 2, 3)})
    assert (found.order, found.order_ranks) == (AB, (0, 1))
    assert found.unlike_steps == (StepsOrder(ranks=(0, 1), order=(*AB, AB[0]), steps=1, of=3),)


def test_a_size_that_is_not_the_same_in_all_steps_is_not_told() -> None:
    steps = {(0, step): "ab" for step in (1, 2, 3)}
    collectives = issue(steps)
    is_last = (collectives["step"] == 3) & (collectives["owner"] == "b")
    found = find_orders(
        collectives.assign(size_bytes=collectives["size_bytes"].mask(is_last, 512)),
        pd.DataFrame([*steps], columns=["rank", "step"]),
    )
    assert found.unlike_steps == ()
    assert found.order is not None
    assert [one.size_bytes for one in found.order] == [1024, None]


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


def unlike(order: Sequence[Issued], steps: int = 1, of: int = 4) -> tuple[StepsOrder, ...]:
    return (StepsOrder(ranks=(0, 1, 2, 3), order=tuple(order), steps=steps, of=of),)


def test_most_steps_do_not_stand_for_all_of_them(launch_of: Make, side_of: Make) -> None:
    """One step of four issued one more: neither "nothing" nor as many collectives."""
    found = compare(launch_of, side_of, {**ALIKE, "unlike_steps": unlike((*AB, gather("c")))}, ALIKE)
    said = (
        "launch0 of old issued other collectives in 1 of 4 PROFILED steps of each of ranks 0-3 than in most, "
        "which are compared"
    )
    assert found.mechanism_doubts == (said,)
    assert said in found.notes
    (section,) = (one for one in comparison_tables(found) if "differently" in one.title)
    assert section.words == [("not established", said)]
    assert judge(read_bound("mechanism changed"), found).kept is Kept.UNDECIDED


def test_what_all_steps_did_differently_is_a_change_and_the_odd_step_is_told(launch_of: Make, side_of: Make) -> None:
    found = compare(launch_of, side_of, {**ALIKE, "unlike_steps": unlike((*AB, gather("c")))}, {**ALIKE, "order": BA})
    assert (found.mechanism_doubts, [one.what for one in found.mechanism]) == ((), ["order"])
    assert [one for one in found.notes if "in 1 of 4 PROFILED steps" in one]


def test_steps_of_which_no_more_than_half_agree_are_told_of(launch_of: Make, side_of: Make) -> None:
    steps = (*unlike(AB, 2), *unlike((), 2))
    found = compare(launch_of, side_of, {**ALIKE, "order": None, "unlike_steps": steps}, ALIKE)
    said = "launch0 of old issued other collectives in some of 4 PROFILED steps of each of ranks 0-3 than in others"
    assert found.mechanism_doubts == (said,)
    assert not found.is_mechanism_known


def test_steps_that_differ_in_what_is_not_told_of_all_do_not_differ(launch_of: Make, side_of: Make) -> None:
    untold = [one.model_copy(update={"dtype": "", "owner": ""}) for one in AB]
    found = compare(launch_of, side_of, {**ALIKE, "unlike_steps": unlike(untold)}, ALIKE)
    assert (found.mechanism, found.mechanism_doubts) == ((), ())


def test_steps_of_which_collectives_were_not_seen_are_not_said_to_have_issued_fewer(
    launch_of: Make, side_of: Make
) -> None:
    launches = [launch_of(0, 100.0, order=AB, started=started) for started in (0, 1)]
    first = launches[0].model_copy(update={**ALIKE, "unlike_steps": unlike(AB[:1])})
    found = compare_sides(
        side_of("old", [first]).model_copy(update={"unseen": 1}),
        side_of("new", [launches[1].model_copy(update=ALIKE)]),
    )
    assert found.mechanism_doubts == ("1 collective of old was launched and not seen to run",)


def record(count: int, count_async: int) -> Traffic:
    return Traffic(
        purpose=Purpose.GRAD_REDUCE,
        axis=Axis.REPLICATE,
        operation=Operation.ALL_REDUCE,
        count=count,
        size_bytes=count * MIB,
        count_async=count_async,
    )


@pytest.mark.parametrize(
    ("of_rank_1", "said"),
    [
        (record(8, 8), None),
        (record(8, 0), ("async", "8 of 8", "0 of 8")),
        (record(8, 3), ("async", "8 of 8", "3 of 8")),
        (record(9, 9), ("count", "8", "9")),
    ],
)
def test_what_ranks_other_than_the_lowest_recorded_is_compared_too(
    launch_of: Make, side_of: Make, of_rank_1: Traffic, said: tuple[str, str, str] | None
) -> None:
    plain = [launch_of(index, 100, traffic=[record(8, 8)]) for index in range(2)]
    whole = [one.model_copy(update={"other_traffic": ()}) for one in plain]
    other = [RanksTraffic(ranks=(1,), traffic=(of_rank_1,))]
    candidate = [one.model_copy(update={"other_traffic": tuple(other) if said else ()}) for one in whole]
    found = compare_sides(side_of("old", whole), side_of("new", candidate)).mechanism
    told = [(one.what, one.baseline, one.candidate, one.subject, one.ranks) for one in found]
    assert told[:1] == ([] if said is None else [(*said, "grad_reduce all-reduce of rank 1", (1,))])
    assert not compare_sides(side_of("old", plain), side_of("new", candidate)).mechanism, "it was not kept then"
