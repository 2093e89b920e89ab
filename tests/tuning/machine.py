"""A machine of known step times: what a search is judged by."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dtbench.tuning.search import UNCHANGED, Out, Ran, Round, Search, Stage, Told


@dataclass
class FakeMachine:
    """Runs rounds: each launch of a cell takes its time, times what launches vary by, times how slow the round is.

    Attributes:
        steps_ns: of each point, and of ``UNCHANGED``.
        spread: standard deviation of the logarithm of a launch.
        drift: likewise of all launches of one index in a round.
        out: points that are out as soon as they run.
        told: forecasts that a round of the unchanged cell gives.
        lost: share of launches that tell nothing.
    """

    steps_ns: Mapping[str, float]
    spread: float
    numbers: np.random.Generator
    drift: float = 0.0
    out: Mapping[str, Out] = field(default_factory=dict)
    told: Mapping[str, Told] = field(default_factory=dict)
    lost: float = 0.0
    rounds: list[Round] = field(default_factory=list)

    def run(self, one: Round, _number: int) -> Ran:
        self.rounds.append(one)
        names = [*([UNCHANGED] if one.has_unchanged else []), *one.points]
        slow = self.numbers.normal(0, self.drift, one.launches)
        times = {}
        for name in names:
            logs = self.numbers.normal(0, self.spread, one.launches) + slow
            drawn = self.steps_ns[name] * np.exp(logs)
            drawn[self.numbers.random(one.launches) < self.lost] = np.nan
            times[name] = tuple(map(float, drawn))
        out = {name: self.out[name] for name in names if name in self.out}
        return Ran(one, times, out, told=self.told if one.stage is Stage.UNCHANGED else {}, run=f"run_{_number}")


def search_of(count: int, launches: int = 6, *, begins_unchanged: bool = False) -> Search:
    return Search(tuple(f"point_{number}" for number in range(count)), launches, begins_unchanged)
