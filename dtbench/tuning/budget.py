"""How much may be spent, and a search that runs until it is spent or nothing more would tell."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from dtbench.base.errors import PlanError, ScenarioError
from dtbench.base.units import NS_PER_S
from dtbench.tuning.search import Ran, Round, Search, choose_budget, count_least, count_sweep, next_round

_SECONDS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600}
_TYPED: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


@dataclass(frozen=True)
class Budget:
    """What may be spent.

    Attributes:
        launches: at most.
        duration_ns: that launches may take together; None: however long.
        is_chosen: a person said how much.
    """

    launches: int
    duration_ns: float | None = None
    is_chosen: bool = False

    def count_left(self, search: Search) -> int:
        """Return the launches that may still be spent, by what launches took so far."""
        left = self.launches - search.used
        spent_ns = sum(ran.duration_ns for ran in search.ran)
        if self.duration_ns is None or not spent_ns:
            return left
        return max(0, min(left, int((self.duration_ns - spent_ns) * search.used / spent_ns)))


def read_budget(typed: str | None, points: int, launches: int, *, begins_unchanged: bool) -> Budget:
    """Return what may be spent.

    Args:
        typed: ``15m``, ``90s``, ``2h``, ``40`` launches; None: nobody says.
        points: that may run.
        launches: of each finalist.
        begins_unchanged: the unchanged cell runs first.

    Raises:
        ScenarioError: that is no budget.
        PlanError: by so few launches nothing can be judged.
    """
    if typed is None:
        return Budget(choose_budget(points, launches, begins_unchanged=begins_unchanged))
    found = _TYPED.fullmatch(typed.strip().lower())
    unit = "" if found is None else found[2]
    if found is None or unit not in (*_SECONDS, "", "launches", "launch") or float(found[1]) <= 0:
        raise ScenarioError(f"--budget {typed}: write a time, `15m`, `90s` or `2h`, or launches, `40`")
    amount = float(found[1])
    if unit in _SECONDS:
        return Budget(count_sweep(points, launches), amount * _SECONDS[unit] * NS_PER_S, is_chosen=True)
    if not amount.is_integer():
        raise ScenarioError(f"--budget {typed}: there are no parts of a launch")
    least = count_least(points, begins_unchanged=begins_unchanged)
    if amount < least:
        raise PlanError(
            f"--budget {typed}: {int(amount)} launches judge nothing; the least that can is {least}, of "
            f"{count_sweep(points, launches)} that a full sweep takes"
        )
    return Budget(int(amount), is_chosen=True)


def refuse_short(budget: Budget, typed: str, launch_ns: float, least: int) -> None:
    """Refuse a time in which too few launches end, as far as launches like these ran before.

    Args:
        budget: what may be spent.
        typed: as a person said it.
        launch_ns: of one launch.
        least: launches that judge anything.

    Raises:
        PlanError: says how long it takes at least.
    """
    if (budget.duration_ns or inf) < least * launch_ns:
        raise PlanError(
            f"--budget {typed}: a launch took {launch_ns / NS_PER_S:.0f} s before, and the fewest that judge anything "
            f"are {least}: about {least * launch_ns / NS_PER_S:.0f} s"
        )


def run_search(search: Search, budget: Budget, launch: Callable[[Round, int], Ran]) -> Search:
    """Run rounds until nothing more would tell, or may be spent.

    Args:
        search: where it begins.
        budget: what may be spent.
        launch: runs a round, whose number from 1 it is given.
    """
    while (one := next_round(search, budget.count_left(search))) is not None:
        search = search.add(launch(one, len(search.ran) + 1))
    return search
