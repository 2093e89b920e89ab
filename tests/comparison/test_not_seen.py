"""A table that is gone, an account that nobody has, an owner that nobody tested: no zero, no change, no bound kept."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dtbench.base.errors import ComparisonError
from dtbench.base.vocabulary import Purpose
from dtbench.comparison.comparison import Comparison, Outcome
from dtbench.comparison.gate import BoundError, Kept, check_subjects, judge, read_bound
from dtbench.comparison.reading.sides import read_sides
from dtbench.comparison.run import compare_paths, compare_sides
from dtbench.store.layout import RunFolder

Make = Callable[..., Any]
FOUR = (100.0, 101.0, 99.5, 100.5)
RUNS = ("20260101T120000Z-aaaa", "20260102T120000Z-bbbb")


@pytest.fixture
def compare_after(run_of: Make, cell: Any, results: Path) -> Callable[..., Comparison]:
    """Compare two runs of four launches, after something was done to the tables of some of them."""

    def compare(spoil: Callable[[Path], None], table: str, *, runs: tuple[str, ...], launches: int = 4) -> Comparison:
        for run_id in RUNS:
            path = run_of({"only": cell(FOUR)}, run_id=run_id)
            for index in range(launches if run_id in runs else 0):
                spoil(RunFolder(path).launch("only", index).derived_table(table))
        return compare_paths(*RUNS, results=results)

    return compare


def forget_accounts(path: Path) -> None:
    table = pd.read_parquet(path)
    for column in ("comm_ns", "hidden_comm_ns", "exposed_comm_ns", "compute_ns", "idle_ns"):
        table[column] = pd.array([None] * len(table), dtype="Int64")
    table.to_parquet(path, index=False)


def forget_one_end(path: Path) -> None:
    """Forget when one collective of ``layers.0``, and one without an owner, ended; what they exposed is known."""
    table = pd.read_parquet(path)
    table["end_ns"] = table["end_ns"].astype("Int64")
    table.loc[table.index[table["owner"] == "layers.0"][0], "end_ns"] = pd.NA
    table.loc[(table["owner"] == "root") & (table["purpose"] == "grad_reduce"), "owner"] = ""
    table.loc[table.index[table["owner"] == ""][0], "end_ns"] = pd.NA
    table.to_parquet(path, index=False)


def kept(found: Comparison, *bounds: str) -> list[Kept]:
    return [judge(read_bound(bound), found).kept for bound in bounds]


@pytest.mark.parametrize(
    ("table", "bound", "metric", "what"),
    [
        ("purposes", "exposed[unshard] > 1 ms", "exposed", "of which purposes"),
        ("collectives", "exposed[layers.0] > 1 ms", "owner_exposed", "whose"),
    ],
)
def test_what_a_table_that_is_gone_would_say_is_not_known(
    compare_after: Callable[..., Comparison], table: str, bound: str, metric: str, what: str
) -> None:
    found = compare_after(Path.unlink, table, runs=RUNS[1:])
    mine = [change for change in found.metrics if change.metric == metric]
    assert mine
    for change in mine:
        assert change.outcome is Outcome.UNKNOWN
        assert all(math.isnan(value) for value in change.candidate.values)
    assert "exposed" not in found.sentence
    assert kept(found, bound) == [Kept.UNDECIDED]
    names = "launch0, launch1, launch2, launch3"
    assert f"{RUNS[1]}: {what} time was exposed is not known of {names}" in found.notes
    gone = f"{table}.parquet cannot be made: the traces of this launch are gone"
    assert f"{RUNS[1]}: {names}: {gone}" in found.notes
    assert metric in found.not_known


def test_a_launch_without_a_table_is_in_no_number_that_needs_it(compare_after: Callable[..., Comparison]) -> None:
    found = compare_after(Path.unlink, "collectives", runs=RUNS[1:], launches=1)
    (change,) = [change for change in found.metrics if change.subject == "layers.0"]
    assert [math.isnan(value) for value in change.candidate.values] == [True, False, False, False]
    assert change.outcome is Outcome.NOT_ENOUGH_LAUNCHES
    row = next(row for row in found.collectives if row.owner == "layers.0")
    assert row.exposed_ns[0] == row.exposed_ns[1] > 0


def test_collectives_of_which_one_has_no_end_took_not_known_and_what_they_exposed_is_told(
    compare_after: Callable[..., Comparison], results: Path
) -> None:
    found = compare_after(forget_one_end, "collectives", runs=RUNS[1:])
    rows = {(row.owner, row.purpose): row for row in found.collectives}
    row = rows["layers.0", Purpose.UNSHARD]
    assert row.duration_ns[0] > 0
    assert math.isnan(row.duration_ns[1])
    assert row.exposed_ns[0] == row.exposed_ns[1] > 0
    assert not any(math.isnan(time_ns) for time_ns in rows["layers.1", Purpose.UNSHARD].duration_ns)
    (side,) = read_sides(RUNS[1], results).values()
    (placed,) = side.launches[0].placed
    assert math.isnan(placed.duration_ns)
    assert placed.exposed_ns > 0


def test_a_sentence_tells_what_was_exposed_where_it_is_not_known_how_long_it_took(
    launch_of: Make, side_of: Make, gather_of: Make
) -> None:
    sides = [
        side_of(label, [launch_of(0, 100.0, owned=[gather_of("layers.0", exposed_ms, took_ms)])])
        for label, exposed_ms, took_ms in (("old", 2.0, math.nan), ("new", 9.0, 20.0))
    ]
    said = compare_sides(*sides).sentence
    assert said.endswith("7.00 ms more exposed: unshard of layers.0 (all-gather)")


@pytest.mark.parametrize("spoiled", ["purposes", "overlap"])
def test_a_bound_on_what_neither_side_knows_is_undecided(
    compare_after: Callable[..., Comparison], spoiled: str
) -> None:
    found = compare_after(Path.unlink if spoiled == "purposes" else forget_accounts, spoiled, runs=RUNS)
    bounds = ["exposed[unshard] > 1 ms", *(["exposed[layers.0] > 1 ms"] if spoiled == "overlap" else [])]
    check_subjects(map(read_bound, bounds), [found])
    assert kept(found, *bounds) == [Kept.UNDECIDED] * len(bounds)
    if spoiled == "overlap":
        said = "both: what was exposed and hidden is not known of launch0, launch1"
        assert sum(note.startswith(said) for note in found.notes) == 1


def side(side_of: Make, launch_of: Make, label: str, rows: list[Any]) -> Any:
    return side_of(label, [launch_of(index, time, owned=rows) for index, time in enumerate(FOUR)])


def test_an_owner_that_a_bound_is_on_is_tested_beside_the_largest(
    launch_of: Make, side_of: Make, gather_of: Make
) -> None:
    large = [gather_of(f"layers.{at}", 5.0 + at) for at in range(24)]
    before, after = (
        side(side_of, launch_of, label, [*large, gather_of("small", time)])
        for label, time in (("old", 0.001), ("new", 0.9))
    )
    bound = read_bound("exposed[small] > 0.1 ms")
    tested = compare_sides(before, after, asked={"small"})
    assert judge(bound, tested).kept is Kept.EXCEEDED
    assert sum(change.metric == "owner_exposed" for change in tested.metrics) == 21
    assert "of 25 owners, the 20 with most exposed time and `small` were tested" in tested.notes
    untested = compare_sides(before, after)
    judged = judge(bound, untested)
    assert (judged.kept, judged.words.split(": ")[-1]) == (
        *(Kept.UNDECIDED, "undecided, it is not among the owners that were tested"),
    )
    check_subjects([bound], [untested])


def test_an_owner_that_is_nowhere_is_told_with_those_there_are_unless_it_may_be_among_those_without_a_name(
    launch_of: Make, side_of: Make, gather_of: Make
) -> None:
    rows = [gather_of("layers.0", 2.0)]
    bound = read_bound("exposed[layers.9] > 1 ms")
    named = compare_sides(*(side(side_of, launch_of, label, rows) for label in ("old", "new")))
    with pytest.raises(BoundError, match=r"nothing is called `layers.9` here; did you mean `layers.0`"):
        check_subjects([bound], [named])
    assert judge(bound, named).kept is Kept.KEPT
    open_ = compare_sides(*(side(side_of, launch_of, label, [*rows, gather_of("", 1.0)]) for label in ("old", "new")))
    check_subjects([bound], [open_])
    assert judge(bound, open_).kept is Kept.UNDECIDED


def test_an_owner_that_may_have_more_than_is_known_has_not_less(
    launch_of: Make, side_of: Make, gather_of: Make
) -> None:
    before = side(side_of, launch_of, "old", [gather_of("layers.0", 4.0)])
    after = side(side_of, launch_of, "new", [gather_of("layers.0", 2.0), gather_of("", 2.0)])
    for sides in ((before, after), (after, before)):
        found = compare_sides(*sides)
        assert "exposed" not in found.sentence
        assert kept(found, "exposed[layers.0] > 1 ms") == [Kept.UNDECIDED]
        for row in found.collectives:
            assert sum(map(math.isnan, row.exposed_ns)) == 1


def test_a_rank_that_communicated_and_tells_no_purpose_makes_its_launches_not_to_be_trusted(
    compare_after: Callable[..., Comparison],
) -> None:
    def lose_rank(path: Path) -> None:
        table = pd.read_parquet(path)
        table[table["rank"] == 0].to_parquet(path, index=False)

    with pytest.raises(ComparisonError, match="tables of rank 1 do not belong together: purposes has nothing of what"):
        compare_after(lose_rank, "purposes", runs=RUNS[1:])


def test_an_owner_counts_as_zero_only_in_launches_that_know_all_owners_of_its_kind(
    launch_of: Make, side_of: Make, gather_of: Make
) -> None:
    rows = [[gather_of("layers.0", 2.0)]] + [[gather_of("", 2.0)]] * 3
    before = side_of("old", [launch_of(index, 100.0, owned=mine) for index, mine in enumerate(rows)])
    after = side(side_of, launch_of, "new", [gather_of("layers.0", 2.0)])
    row = next(row for row in compare_sides(before, after).collectives if row.owner == "layers.0")
    assert row.exposed_ns == (2e6, 2e6)


@pytest.mark.parametrize(
    "names", [("Redistribute of layers.0", "Redistribute"), ("layers.0", "Redistribute of layers.0")]
)
def test_an_owner_named_by_less_evidence_is_neither_gone_nor_new(
    launch_of: Make, side_of: Make, gather_of: Make, names: tuple[str, str]
) -> None:
    for before, after in (names, names[::-1]):
        sides = [
            side(
                side_of,
                launch_of,
                label,
                [
                    gather_of(owner, 4.0).model_copy(update={"size_bytes": 4.0}),
                    gather_of(f"{other} of head", 1.0).model_copy(update={"size_bytes": size_bytes}),
                ],
            )
            for label, owner, other, size_bytes in (("old", before, "view", 1.0), ("new", after, "add", 2.0))
        ]
        found = compare_sides(*sides)
        outcomes = {change.subject: change.outcome for change in found.metrics if change.subject}
        assert outcomes == {
            **dict.fromkeys(names, Outcome.UNKNOWN),
            "view of head": Outcome.LOWER,
            "add of head": Outcome.HIGHER,
        }
        assert f"of {names[0]}" not in found.sentence
        assert kept(found, f"exposed[{before}] > 1 ms") == [Kept.UNDECIDED]
