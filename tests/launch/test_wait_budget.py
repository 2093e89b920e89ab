"""A command waits for a quiet machine before ranks start, and no longer than it may in all."""

import math
from collections.abc import Callable, Sequence

import pytest

from dtbench.launch.wait_budget import WaitBudget
from dtbench.machine.stolen_time import Look

BUSY, CALM = 0.3, 0.0

Make = Callable[..., tuple[WaitBudget, list[str], list[Look]]]


@pytest.fixture
def make() -> Make:
    """Return a budget whose looks find what is written here, each half a second, the last for ever."""

    def make_one(
        seen: Sequence[float], *, left_s: float = 60.0, took_s: float = 0.5
    ) -> tuple[WaitBudget, list[str], list[Look]]:
        said: list[str] = []
        looks: list[Look] = []

        def look() -> Look:
            looks.append(Look(seen[min(len(looks), len(seen) - 1)], took_s))
            return looks[-1]

        return WaitBudget(left_s, said.append, look), said, looks

    return make_one


def test_on_a_quiet_machine_one_look_is_enough(make: Make) -> None:
    budget, said, looks = make([CALM])
    budget.wait()
    budget.wait()
    assert (said, len(looks), budget.left_s) == ([], 2, 60.0)


def test_who_others_have_is_waited_for_until_they_are_gone_for_a_while(make: Make) -> None:
    budget, said, looks = make([BUSY, CALM, BUSY, *[CALM] * 20])
    budget.wait()
    assert said == [
        "waiting for other virtual machines of the host, which have 30.0 % of its cores",
        "going on after 6.50 s",
    ]
    assert (len(looks), budget.left_s) == (13, 53.5)


def test_the_budget_ends_and_is_of_all_launches_together(make: Make) -> None:
    budget, said, looks = make([BUSY], left_s=3.0)
    budget.wait()
    assert said[-1] == "going on after 3.00 s, while they have 30.0 % of them"
    budget.wait()
    assert (len(said), len(looks), budget.left_s) == (2, 6, 0.0)


def test_without_a_budget_nobody_looks_and_what_nobody_knows_is_not_waited_for(make: Make) -> None:
    impatient, _, unseen = make([BUSY], left_s=0.0)
    impatient.wait()
    assert unseen == []
    blind, said, _ = make([math.nan], took_s=0.0)
    blind.wait()
    assert said == []
