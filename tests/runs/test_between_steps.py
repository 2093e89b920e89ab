"""How much of the time lies between MEASURED steps."""

import pandas as pd

from dtbench.runs.cell.between_steps import find_between_steps
from dtbench.runs.reading.undisturbed import IS_LEFT_OUT
from dtbench.runs.summary import BetweenSteps

Row = tuple[int, int, str, int, int]
COLUMNS = ["rank", "step", "phase", "start_ns", "duration_ns"]


def find(*launches: list[Row], left_out: tuple[int, ...] = (), ranks: int = 2) -> BetweenSteps | None:
    tables = [pd.DataFrame(rows, columns=COLUMNS) for rows in launches]
    return find_between_steps([one.assign(**{IS_LEFT_OUT: one["step"].isin(left_out)}) for one in tables], ranks)


def draw(phase: str, first: int, *times: tuple[int, int], clock: int = 0) -> list[Row]:
    """Write steps of two ranks whose clocks are far apart, each with its start and the length on rank 1."""
    return [
        (rank, first + place, phase, clock + start + 1000 * rank, length - 2 * (rank == 0))
        for place, (start, length) in enumerate(times)
        for rank in (0, 1)
    ]


def test_what_lies_between_a_step_and_the_next_is_of_the_slowest_rank() -> None:
    between = find(draw("MEASURED", 8, (0, 40), (100, 60), (200, 40)))
    assert between == BetweenSteps(between_ns=50, cycle_ns=100)
    assert between.fraction == 0.5


def test_nothing_lies_between_steps_that_are_of_no_phase_or_of_two_or_do_not_follow_each_other() -> None:
    profiled = draw("PROFILED", 10, (1000, 40), (5000, 40))
    assert find([*draw("WARMUP", 8, (0, 40)), *draw("MEASURED", 9, (100, 40)), *profiled]) is None
    assert find([*draw("MEASURED", 8, (0, 40)), *draw("MEASURED", 10, (500, 40)), *profiled]) is None
    assert find() is None
    assert find([]) is None


def test_a_step_that_others_disturbed_or_not_every_rank_finished_tells_nothing() -> None:
    steps = draw("MEASURED", 8, (0, 40), (100, 60), (300, 50), (400, 40))
    assert find(steps, left_out=(9,)) == BetweenSteps(between_ns=55, cycle_ns=100)
    assert find(steps[:-1]) == find(steps[:-2]) == BetweenSteps(between_ns=100, cycle_ns=150)


def test_means_are_over_the_steps_of_all_launches() -> None:
    launches = [draw("MEASURED", 8, (0, 40), (100, 40)), draw("MEASURED", 8, (0, 40), (300, 40))]
    assert find(*launches) == BetweenSteps(between_ns=160, cycle_ns=200)


def test_what_lies_between_is_what_the_slowest_rank_of_each_step_did_then_though_another_began_the_next_sooner() -> (
    None
):
    rows = [(0, 8, 0, 95), (1, 8, 1000, 60), (0, 9, 100, 40), (1, 9, 1070, 90), (0, 10, 180, 40), (1, 10, 1167, 40)]
    steps = [(rank, step, "MEASURED", start, length) for rank, step, start, length in rows]
    assert find(steps) == BetweenSteps(between_ns=6, cycle_ns=98.5)
    assert find(steps[::-1]) == find(steps)


def test_starts_that_were_not_written_and_a_device_that_computes_on_tell_nothing() -> None:
    assert find(draw("MEASURED", 8, (0, 40), (0, 40))) is None
    assert find(draw("MEASURED", 8, (0, 90), (80, 90))) is None, "what lay between was not seen, and is not zero"
    assert find(draw("MEASURED", 8, (0, 80), (80, 80))) == BetweenSteps(between_ns=0, cycle_ns=80)
