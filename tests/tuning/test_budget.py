"""What may be spent, in launches or time, and what is too little."""

import numpy as np
import pytest

from dtbench.base.errors import DtbenchError, PlanError, ScenarioError
from dtbench.tuning.budget import Budget, read_budget, refuse_short, run_search
from dtbench.tuning.search import UNCHANGED, Ran, Round, Search, Stage, count_least
from tests.tuning.machine import FakeMachine, search_of

S = 1_000_000_000


@pytest.mark.parametrize(
    ("typed", "launches", "seconds"),
    [("40", 40, None), ("40 launches", 40, None), ("15m", 150, 900), ("1.5h", 150, 5400), ("90 s", 150, 90)],
)
def test_a_budget_is_launches_or_a_time(typed: str, launches: int, seconds: int | None) -> None:
    budget = read_budget(typed, 24, 6, begins_unchanged=False)
    assert budget == Budget(launches, None if seconds is None else seconds * S, is_chosen=True)


@pytest.mark.parametrize(
    ("typed", "kind", "said"),
    [
        ("soon", ScenarioError, "--budget soon: write a time, `15m`, `90s` or `2h`, or launches, `40`"),
        ("0", ScenarioError, "write a time"),
        ("15 days", ScenarioError, "write a time"),
        ("12.5", ScenarioError, "there are no parts of a launch"),
        ("10", PlanError, "10 launches judge nothing; the least that can is 11, of 150 that a full sweep takes"),
    ],
)
def test_what_is_no_budget_or_too_small_is_a_sentence(typed: str, kind: type[DtbenchError], said: str) -> None:
    with pytest.raises(kind) as raised:
        read_budget(typed, 24, 6, begins_unchanged=False)
    assert said in str(raised.value)


def test_where_nobody_says_it_is_a_third_of_the_sweep_or_what_a_small_grid_needs() -> None:
    assert read_budget(None, 24, 6, begins_unchanged=True) == Budget(50)
    assert read_budget(None, 2, 6, begins_unchanged=False) == Budget(15)
    assert read_budget(None, 1, 6, begins_unchanged=False) == Budget(12)
    assert read_budget(None, 7, 4, begins_unchanged=True) == Budget(
        19
    )  # four as it is, seven points, and two times four
    assert all(
        read_budget(None, points, 6, begins_unchanged=True) == Budget((points + 1) * 2) for points in range(14, 99)
    )


def test_a_time_in_which_too_few_launches_end_is_refused() -> None:
    least = count_least(24, begins_unchanged=True)
    assert least == 14
    budget = read_budget("2m", 24, 6, begins_unchanged=True)
    refuse_short(budget, "2m", 8 * S, least)
    with pytest.raises(PlanError, match="took 10 s before, and the fewest that judge anything are 14: about 140"):
        refuse_short(budget, "2m", 10 * S, least)
    refuse_short(Budget(50), "", 1000 * S, least)


def test_a_time_becomes_launches_by_what_they_took() -> None:
    search = Search(("point_0", "point_1", "point_2"), 6, begins_unchanged=True)
    budget = Budget(100, 100 * S, is_chosen=True)
    assert budget.count_left(search) == 100
    ran = Ran(Round(Stage.UNCHANGED, (), True, 4), {UNCHANGED: (1.0,) * 4}, duration_ns=20 * S)
    assert budget.count_left(search.add(ran)) == 16
    slow = Ran(Round(Stage.UNCHANGED, (), True, 4), {UNCHANGED: (1.0,) * 4}, duration_ns=120 * S)
    assert budget.count_left(search.add(slow)) == 0
    assert Budget(10).count_left(search.add(ran)) == 6


def test_a_search_ends_within_its_time() -> None:
    class Timed(FakeMachine):
        def run(self, one: Round, number: int) -> Ran:
            ran = super().run(one, number)
            return Ran(ran.round, ran.times_ns, duration_ns=5 * S * one.count)

    search = search_of(20, begins_unchanged=True)
    machine = Timed(dict.fromkeys((UNCHANGED, *search.points), 300000000.0), 0.01, np.random.default_rng(0))
    ended = run_search(search, Budget(126, 150 * S), machine.run)
    assert ended.used <= 30
    assert ended.of(Stage.CONFIRM)
