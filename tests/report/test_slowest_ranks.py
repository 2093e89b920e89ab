"""A run of many ranks shows the slowest and the one that others wait for, and sums up the rest."""

from collections.abc import Callable

from dtbench.base.vocabulary import Axis, Cause, Purpose
from dtbench.plan.plan import MeshAxis, Plan
from dtbench.report.page.cell_page import MOST_BARS, cell_part
from dtbench.report.page.page import Chart
from dtbench.report.page.slowest_ranks import MOST_RANKS, choose_slowest, find_awaited, say_rest
from dtbench.runs.summary import CellSummary, OwnerSummary
from tests.report.shown import table_of

MS = 1_000_000
Make = Callable[..., CellSummary]


def many(make: Make, count: int = 1000, **update: object) -> CellSummary:
    """Return a cell of many ranks, whose steps are the longer the larger the rank."""
    row = make().ranks[0]
    ranks = (row.model_copy(update={"rank": rank, "step_ns": 100 * MS + rank * 1_000}) for rank in range(count))
    return make(update={"ranks": tuple(ranks), **update})


def skew(rank: int | None, exposed_ns: int) -> OwnerSummary:
    return OwnerSummary(
        owner="bucket 0",
        operation=None,
        purpose=Purpose.GRAD_REDUCE,
        cause=Cause.SKEW,
        exposed_ns=exposed_ns,
        owner_exposed_ns=exposed_ns,
        waited_for=rank,
    )


def test_the_slowest_of_a_thousand_ranks_are_shown_first_and_the_others_summed_up(make_ddp: Make) -> None:
    table = table_of(cell_part(many(make_ddp)), "breakdown")
    assert [row[0] for row in table.words[:MOST_RANKS]] == [str(rank) for rank in range(984, 1000)]
    assert sorted(int(row[0]) for row in table.words) == list(range(1000)), "larger media have all"
    assert len(table.first_rows) == MOST_RANKS
    assert table.more.startswith("the 16 ranks with the longest steps of 1000; the other 984 ranks: ")
    assert "step 100 ms (100 ms to 101 ms), compute 110 ms (110 ms to 110 ms), exposed communication" in table.more


def test_the_rank_that_others_wait_for_is_shown_however_short_its_steps_are(make_ddp: Make) -> None:
    cell = many(make_ddp, owners=(skew(None, 9 * MS), skew(7, 5 * MS), skew(8, 4 * MS)))
    assert find_awaited(cell) == 7
    shown, rest = choose_slowest(cell)
    assert [row.rank for row in shown] == [7, *range(985, 1000)]
    assert len(rest) == 984
    table = table_of(cell_part(cell), "breakdown")
    assert table.more.startswith("the 15 ranks with the longest steps and rank 7, waited for longest, of 1000; ")
    slow = many(make_ddp, owners=(skew(999, MS),))
    assert table_of(cell_part(slow), "breakdown").more.startswith("the 16 ranks with the longest steps of 1000; ")


def test_few_ranks_are_all_shown_and_many_have_no_bar_each(make_ddp: Make) -> None:
    few = cell_part(many(make_ddp, MOST_RANKS))
    assert table_of(few, "breakdown").more == ""
    for count, bars in ((MOST_BARS, MOST_BARS), (MOST_BARS + 1, MOST_RANKS)):
        chart = cell_part(many(make_ddp, count)).find("breakdown")
        assert isinstance(chart, Chart)
        assert len(chart.bars) == bars
        assert ("the other 49 ranks" in chart.note) == (count > MOST_BARS)


def test_times_that_are_not_known_of_all_are_said_of_those_that_have_them() -> None:
    assert say_rest(3, {"step": [3 * MS, MS], "idle": []}) == (
        "the other 3 ranks: step 2.00 ms (1.00 ms to 3.00 ms, of 2)"
    )
    assert say_rest(1, {}) == "the other 1 rank: nothing is known"


def test_a_stage_of_the_mesh_that_computes_longer_is_named(make_ddp: Make) -> None:
    cell = many(make_ddp, 64)
    plan = cell.plan
    assert isinstance(plan, Plan)
    mesh = (MeshAxis(name=Axis.SHARD, size=16), MeshAxis(name=Axis.TENSOR, size=4))
    plan = plan.model_copy(update={"mesh": mesh, "ranks": 64})
    slow = [
        row.model_copy(update={"compute_ns": (90 if row.rank % 4 == 2 else 80) * MS + row.rank}) for row in cell.ranks
    ]
    said = table_of(cell_part(cell.model_copy(update={"plan": plan, "ranks": tuple(slow)})), "breakdown").said
    told = [words for words in said if "explains" in words]
    (words,) = told
    assert words.startswith("tensor-parallel rank 2 (16 ranks) computes 90.0 ms per step, the other 3 ")
    assert words.endswith(": the tensor-parallel rank explains >99.9 % of the variance over ranks")
    alike = table_of(cell_part(cell.model_copy(update={"plan": plan})), "breakdown").said
    assert not [words for words in alike if "explains" in words]
