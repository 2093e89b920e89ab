"""A launch that does not tell a number is none of those that a test of it is of, and is named."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dtbench.cli.main import main
from dtbench.comparison.comparison import Comparison, Outcome
from dtbench.comparison.gate import Kept, judge, read_bound
from dtbench.comparison.reading.baselines import describe_baselines
from dtbench.comparison.run import compare_sides
from dtbench.store.layout import baseline_file
from dtbench.store.records.baseline import MeasuredSide
from dtbench.store.write import write_record

Make = Callable[..., Any]
EIGHT = (100.0, 101.0, 99.0, 100.0, 100.5, 99.5, 100.2, 99.8)


@pytest.fixture
def side(launch_of: Make, side_of: Make) -> Callable[[str, Sequence[float]], MeasuredSide]:
    """Make a side of step times in ms; NaN: that launch has none."""
    return lambda label, times_ms: side_of(label, [launch_of(place, time) for place, time in enumerate(times_ms)])


@pytest.fixture
def compare(side: Make) -> Callable[[int], Comparison]:
    """Compare eight launches with eight slower ones, the first so many of which have no step time."""

    def make(silent: int) -> Comparison:
        slower = [math.nan if place < silent else 1.1 * time for place, time in enumerate(EIGHT)]
        return compare_sides(side("old", EIGHT), side("new", slower))

    return make


def test_launches_without_a_step_time_are_not_counted_in_the_answer_nor_in_a_bound(compare: Make) -> None:
    found = compare(5)
    assert found.metrics[0].outcome is Outcome.NOT_ENOUGH_LAUNCHES
    assert found.sentence.startswith("Not enough launches to tell (3 of 8 against 8; 4 each are needed): step ")
    judged = judge(read_bound("step_time > 3%"), found)
    assert judged.kept is Kept.UNDECIDED
    assert "undecided, 3 of 8 against 8 launches are too few" in judged.words


def test_a_test_of_some_launches_says_of_how_many_and_names_the_others(compare: Make) -> None:
    found = compare(4)
    assert found.metrics[0].outcome is Outcome.HIGHER
    assert ", 4 of 8 launches against 8)" in found.sentence
    silent = "not of launch0, launch1, launch2, launch3"
    assert f"new: step time is known of 4 of 8 launches, {silent}" in found.notes


def test_where_all_launches_tell_or_none_does_no_launch_is_named(compare: Make) -> None:
    assert "8 launches each" in compare(0).sentence
    assert not any("is known of" in note for silent in (0, 8) for note in compare(silent).notes)


def test_launches_that_do_not_know_what_was_exposed_are_named_once(side: Make) -> None:
    old, new = side("old", EIGHT), side("new", EIGHT)
    blind = new.launches[0].model_copy(update={"measurements": new.launches[0].measurements[:1]})
    found = compare_sides(old, new.model_copy(update={"launches": (blind, *new.launches[1:])}))
    assert [note for note in found.notes if "known of" in note] == [
        "new: what was exposed and hidden is not known of launch0"
    ]


def test_a_baselines_step_time_says_of_how_many_of_its_launches_it_is(side: Make, results: Path) -> None:
    cut = side("cut", (100.0, 102.0)).model_copy(update={"left_out": ("launch2",)})
    write_record(baseline_file(results, "cut"), cut)
    write_record(baseline_file(results, "some"), side("some", (math.nan, 100.0, 102.0)))
    write_record(baseline_file(results, "whole"), side("whole", (100.0, 102.0)))
    assert [(row.launches, row.step_time) for row in describe_baselines(results)] == [
        ("2 of 3", "101 ms"),
        ("3", "101 ms (2 of 3 launches)"),
        ("2", "101 ms"),
    ]


@pytest.mark.parametrize(
    ("of_traces", "ranks", "said"),
    [
        ({"ranks": (0, 1), "world_size": 2, "steps": (3, 3)}, (), ""),
        ({"ranks": (0, 1), "world_size": 8, "steps": (3, 3)}, (), " (traces of ranks 0-1 of 8)"),
        ({"ranks": (0, 1), "steps": (3, 3)}, (), " (traces of ranks 0-1, of how many is not told)"),
        ({"ranks": (0, 1), "world_size": 2, "steps": (1, 3)}, (0,), " (rank 0 alone; 1 of 3 steps)"),
        ({"ranks": (0, 1), "world_size": 2, "is_one_job": False}, (), " (not surely of one job)"),
    ],
)
def test_a_baselines_step_time_says_of_which_ranks_and_steps_it_is(
    side: Make, results: Path, of_traces: dict[str, object], ranks: tuple[int, ...], said: str
) -> None:
    whole = side("some", (100.0,))
    (launch,) = whole.launches
    measured = tuple(one.model_copy(update={"ranks": ranks}) for one in launch.measurements)
    part = {"launches": (launch.model_copy(update={"measurements": measured}),), "settings": None, **of_traces}
    write_record(baseline_file(results, "some"), whole.model_copy(update=part))
    (row,) = describe_baselines(results)
    assert row.step_time == f"100 ms{said}"


def test_why_a_baselines_steps_may_stand_for_no_others_is_listed(
    side: Make, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    doubt = "PERHAPS NOT REPRESENTATIVE: step 3 is left out on all ranks, as rank 1 lacks it"
    made = side("some", (100.0,)).model_copy(update={"ranks": (0, 1), "world_size": 2, "doubts": (doubt,)})
    write_record(baseline_file(results, "some"), made)
    with pytest.raises(SystemExit):
        main(["baseline", "list", "--results", str(results)])
    assert f"Note: some: {doubt}" in " ".join(capsys.readouterr().out.split())
