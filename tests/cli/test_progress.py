"""Where a rank is, while a run goes on."""

from types import SimpleNamespace
from typing import Any

from dtbench.base.vocabulary import Phase, Region
from dtbench.cli.progress import bar_line, rank_line, say_whole
from dtbench.launch.time_left import TimeLeft
from dtbench.store.journal import JournalView, RankState, StepTiming


def test_the_last_step_that_is_told_is_one_of_the_phase() -> None:
    plan: Any = SimpleNamespace(measured_steps=8, profiled_steps=3, max_warmup_steps=60)
    warmup = tuple(StepTiming(step, Phase.WARMUP, 0, 409_000_000, 0) for step in range(8))
    measured = StepTiming(8, Phase.MEASURED, 0, 350_000_000, 0)
    said = [
        rank_line(0, JournalView(0, 1, RankState.STEPPING, Phase.MEASURED, 8, Region.FORWARD, 0, 0, timings), plan)
        for timings in (warmup, (*warmup, measured))
    ]
    assert said == ["rank 0  MEASURED  0 of 8 steps", "rank 0  MEASURED  1 of 8 steps  last 350 ms"]


def test_a_launch_is_said_to_be_one_of_so_many_and_how_long_they_may_take() -> None:
    left = TimeLeft([("a", 0), ("b", 0), ("a", 1), ("b", 1)], {"a": [60 * 10**9], "b": [60 * 10**9]}, lambda: 0)
    left.begin(("a", 0))
    assert say_whole(left) == "; 1 of 4, about 4 min left"
    left.begin(("b", 0))
    assert bar_line(left).startswith(f"[{'#' * 8}{'-' * 22}] launch 2 of 4, ")
    guessed = TimeLeft([("a", 0), ("b", 0), ("c", 0)], {}, lambda: 0, own_ns={"a": [60 * 10**9]}, begun=[("a", 0)])
    assert say_whole(guessed).endswith("left if 2 cells that have not run yet take as long as the others")
    guessed.planned = guessed.planned[:2]
    assert say_whole(guessed).endswith("left if `b` takes as long as the others")
    unknown = TimeLeft([("a", 0)], {}, lambda: 0)
    unknown.begin(("a", 0))
    assert say_whole(unknown) == "; 1 of 1"
