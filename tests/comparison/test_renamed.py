"""Owners with other names that issued the same collectives are compared with what they were, not with nothing."""

import math
from collections.abc import Sequence

import pytest

from dtbench.base.vocabulary import Operation, Purpose
from dtbench.comparison.comparison import Comparison, Outcome
from dtbench.comparison.gate import Kept, judge, read_bound
from dtbench.comparison.run import compare_sides
from dtbench.store.records.baseline import Issued, MeasuredSide, OwnedTime, RanksOrder
from tests.comparison.conftest import gather, make_launch, make_side

NAMES, WRAPPED = ("root", "layers.0", "layers.1"), ("root", "_orig_mod.layers.0", "_orig_mod.layers.1")


def issue(names: Sequence[str], size_bytes: int | None = 1024) -> list[Issued]:
    return [
        Issued(
            operation=Operation.ALL_GATHER,
            purpose=Purpose.UNSHARD,
            owner=name,
            size_bytes=size_bytes,
            dtype="float32",
            group_size=2,
        )
        for name in names
    ]


def compare(before: Sequence[str], after: Sequence[str], size_bytes: int | None = 1024) -> Comparison:
    sides = [
        make_side(
            label,
            [
                make_launch(
                    index,
                    100.0,
                    owned=[gather(name, 5.0) for name in names],
                    order=issue(names, size_bytes),
                    started=2 * index + turn,
                )
                for index in range(4)
            ],
        )
        for turn, (label, names) in enumerate((("old", before), ("new", after)), start=1)
    ]
    return compare_sides(*sides)


@pytest.mark.parametrize("sides", [(NAMES, WRAPPED), (WRAPPED, NAMES)])
def test_owners_that_are_only_named_otherwise_gained_and_lost_nothing(
    sides: tuple[Sequence[str], Sequence[str]],
) -> None:
    found = compare(*sides)
    assert {row.owner for row in found.collectives} == {*sides[0]}
    assert all(row.exposed_ns[0] == row.exposed_ns[1] for row in found.collectives)
    assert {one.subject for one in found.metrics if one.metric == "owner_exposed"} == {*sides[0]}
    assert found.mechanism == ()
    said = (
        f"`{sides[1][1]}` of new issued what `{sides[0][1]}` of old did, and is compared as `{sides[0][1]}`, "
        "and so for 1 more owner"
    )
    assert said in found.notes


@pytest.mark.parametrize("part", [1.0, 0.5])
def test_an_owner_that_may_have_another_name_neither_gained_nor_lost(part: float) -> None:
    """As many collectives in all, of other names: on all ranks, or on half of them; sizes and order are not told."""

    def side(label: str, owned: Sequence[OwnedTime], turn: int) -> MeasuredSide:
        return make_side(label, [make_launch(at, 100.0, owned=owned, started=2 * at + turn) for at in range(4)])

    def part_of(name: str, part: float) -> OwnedTime:
        return gather(name, 5.0 * part).model_copy(update={"count": part})

    old = [gather("root", 1.0), gather("a", 5.0)]
    new = [gather("root", 1.0), part_of("m.a", part), *([part_of("a", 1 - part)] if part < 1 else [])]
    for sides in ((side("old", old, 1), side("new", new, 2)), (side("old", new, 1), side("new", old, 2))):
        found = compare_sides(*sides)
        unknown = {row.owner for row in found.collectives if any(map(math.isnan, row.exposed_ns))}
        assert unknown == {"a", "m.a"}
        outcomes = {one.subject: one.outcome for one in found.metrics if one.metric == "owner_exposed"}
        assert (outcomes["a"], outcomes["m.a"], outcomes["root"]) == (Outcome.UNKNOWN, Outcome.UNKNOWN, Outcome.SAME)
        assert judge(read_bound("exposed[m.a] > 1 ms"), found).kept is Kept.UNDECIDED
        assert not [clause for clause in found.clauses if "exposed" in clause]
        assert [note for note in found.notes if "under other names, and more of these may be among them" in note]


@pytest.mark.parametrize(
    "new", [[gather("b", 5.0), gather("c", 5.0)], [gather("b", 5.0).model_copy(update={"size_bytes": 9.0})]]
)
def test_an_owner_is_gone_where_others_issued_more_or_larger_ones(new: list[OwnedTime]) -> None:
    old = [gather("a", 5.0).model_copy(update={"size_bytes": 4.0})]
    found = compare_sides(
        *(
            make_side(label, [make_launch(0, 100.0, owned=owned, started=at)])
            for at, (label, owned) in enumerate((("old", old), ("new", new)))
        )
    )
    assert {row.owner: row.exposed_ns for row in found.collectives}["a"] == (5e6, 0.0)


def test_owners_of_ranks_other_than_the_lowest_are_renamed_too() -> None:
    def side(label: str, first: str, second: str, turn: int) -> MeasuredSide:
        launch = make_launch(
            0, 100.0, owned=[gather(first, 5.0), gather(second, 3.0)], order=issue([first]), started=turn
        )
        others = (RanksOrder(ranks=(1,), order=tuple(issue([second]))),)
        return make_side(label, [launch.model_copy(update={"order_ranks": (0,), "other_orders": others})])

    found = compare_sides(side("old", "layers.0", "layers.9", 1), side("new", "m.layers.0", "m.layers.9", 2))
    assert {row.owner: row.exposed_ns for row in found.collectives} == {
        "layers.0": (5e6, 5e6),
        "layers.9": (3e6, 3e6),
    }
    assert found.mechanism == ()


def test_a_name_that_the_baseline_has_elsewhere_is_no_new_one() -> None:
    def side(label: str, owned: Sequence[str], names: Sequence[str], turn: int) -> MeasuredSide:
        owners = [gather(name, 5.0) for name in owned]
        return make_side(label, [make_launch(0, 100.0, owned=owners, order=issue(names), started=turn)])

    found = compare_sides(side("old", ["a", "b"], ["a"], 1), side("new", ["b"], ["b"], 2))
    assert {row.owner: row.exposed_ns for row in found.collectives}["a"] == (5e6, 0.0)


@pytest.mark.parametrize(
    ("before", "after", "size_bytes"),
    [
        (NAMES, ("root", "layers.1", "layers.0"), 1024),  # another order
        (NAMES, ("root", "x", "x"), 1024),  # one in place of two
        (NAMES, ("root", "layers.1", "layers.2"), 1024),  # a name that was another's
        (NAMES, (*WRAPPED, "more"), 1024),
        (NAMES, WRAPPED, None),  # sizes are not told
    ],
)
def test_where_it_may_be_more_than_another_name_owners_keep_theirs(
    before: Sequence[str], after: Sequence[str], size_bytes: int | None
) -> None:
    found = compare(before, after, size_bytes)
    assert {row.owner for row in found.collectives} == {*before, *after}
    assert not any("compared as" in note for note in found.notes)
