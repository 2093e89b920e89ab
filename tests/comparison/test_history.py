"""A history as one value: changes with their intervals, what is said where there is none, points, and bounds."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtbench.comparison.comparison import Outcome
from dtbench.comparison.gate import BoundError, Kept, read_bound, read_metric
from dtbench.comparison.history.history import By, History, tell_history
from dtbench.comparison.history.judge import judge_history
from dtbench.comparison.history.readings import Readings, leave_out_unlike
from tests.made_history import MS, PLANTED, draw_values, make_history, make_reading, make_readings


def tell(readings: Readings, by: By = By.RUN) -> History:
    return tell_history(Path("results"), readings, ("step_time", ""), by, 0.01)


@pytest.fixture(scope="module")
def planted() -> History:
    return make_history(draw_values(0, 200, PLANTED))


def test_each_change_is_told_with_its_place_size_interval_and_direction(planted: History) -> None:
    assert [one.meaning for one in planted.changes] == ["worse", "better", "worse"]
    for one, (place, ratio) in zip(planted.changes, PLANTED.items(), strict=True):
        assert abs(one.place - place) <= 2
        assert (one.last, one.first) == (f"run{one.place - 1:03}", f"run{one.place:03}")
        assert one.change.low < ratio < one.change.high
        assert not one.change.low < 1 < one.change.high
    last = planted.changes[-1]
    assert planted.sentence.startswith("3 changes of step time over 200 runs; the last that matters, +")
    assert planted.sentence.endswith(f"worse: between {last.last} and {last.first}")
    assert planted.borders == (0, *(one.place for one in planted.changes), 200)


def test_where_none_is_established_it_says_what_would_have_been_seen() -> None:
    history = make_history(draw_values(1, 60))
    assert history.changes == ()
    assert 0.005 < history.detectable < history.detectable_last < 0.1
    said = f"No change of step time established over 60 runs; one of about {100 * history.detectable:.2g} % half-way"
    assert history.sentence.startswith(said)
    assert "in the last 4 (8 times of 10)" in history.sentence


def test_too_few_points_are_counted() -> None:
    history = make_history(draw_values(1, 9))
    assert history.sentence == "9 runs are too few to tell a change of step time: 12 are needed"
    assert math.isnan(history.detectable)
    assert make_history([]).sentence.startswith("0 runs are too few")


def test_what_does_not_vary_says_so_and_one_byte_more_is_a_change() -> None:
    assert "the number does not vary" in make_history([100.0] * 20).sentence
    changed = make_history([100.0] * 20 + [103.0] * 5, metric=("reserved_memory", ""))
    assert [(one.place, one.change.ratio, one.meaning) for one in changed.changes] == [(20, 1.03, "worse")]


def test_from_nothing_to_something_is_a_change_without_a_ratio() -> None:
    values = np.concatenate([np.zeros(20), 5 * MS + 1000 * np.arange(8.0)])
    (one,) = make_history(values, metric=("exposed_comm", "")).changes
    assert (one.place, one.meaning) == (20, "worse")
    assert math.isnan(one.change.ratio)
    assert "from nothing" in make_history(values, metric=("exposed_comm", "")).sentence


def test_a_change_below_the_threshold_is_told_and_is_none_that_matters() -> None:
    history = make_history(draw_values(2, 200, {100: 1.01}), threshold=0.02)
    assert [one.change.outcome for one in history.changes] == [Outcome.BELOW_THRESHOLD]
    assert history.last_change is None
    assert history.changes[0].meaning == "too small"
    assert history.sentence.startswith(
        "No change of step time that matters established over 200 runs (1 change, not surely"
    )


def test_more_is_better_where_a_metric_says_so() -> None:
    (one,) = make_history(draw_values(3, 60, {30: 1.1}), metric=("tokens_per_second", "")).changes
    assert one.meaning == "better"


def test_points_that_resemble_their_neighbours_are_a_warning() -> None:
    steps = np.random.default_rng(4).normal(0, 0.01, 100)
    drifting = [0.0]
    for step in steps:
        drifting.append(0.7 * drifting[-1] + float(step))
    assert any("resemble their neighbours" in note for note in make_history(100 * MS * np.exp(drifting)).notes)
    assert make_history(draw_values(5, 100)).notes == ()


def test_runs_of_one_commit_build_or_day_are_one_point() -> None:
    runs = [make_reading(at, 100.0 + at, commit="abc"[at // 2], torch=f"2.{13 + at // 4}.0") for at in range(6)]
    history = tell(Readings("small", "plain", [*runs, make_reading(6, 1.0)], {}), By.COMMIT)
    assert [(point.runs, point.value) for point in history.points] == [
        (("run000", "run001"), 100.5),
        (("run002", "run003"), 102.5),
        (("run004", "run005"), 104.5),
    ]
    assert [(one.why, one.runs) for one in history.left_out] == [("their commit is not known", ("run006",))]
    assert [point.name for point in tell(Readings("small", "plain", [*runs], {}), By.TORCH).points] == [
        "2.13.0",
        "2.14.0",
    ]
    days = tell(make_readings([1.0, 2.0]), By.DATE)
    assert [point.name for point in days.points] == ["2026-01-01", "2026-01-02"]


def test_machines_of_one_runner_class_have_one_history_and_those_of_two_have_not() -> None:
    machines: list[dict[str, Any]] = [
        {"runner_class": "small"},
        {"runner_class": "small", "cores": 4},
        {"runner_class": "large"},
    ]
    readings = Readings("small", "plain", [make_reading(at, 1.0, **machines[at]) for at in (2, 0, 1)], {})
    leave_out_unlike(readings)
    assert [one.run_id for one in readings.counted] == ["run000", "run001"]
    assert readings.left_out == {"another machine: runner class large, now small; cores 2, now 4": ["run002"]}


def test_software_that_changed_with_the_level_is_named() -> None:
    values = draw_values(6, 40, {20: 1.1})
    runs = [
        make_reading(at, float(one), commit="a" if at < 20 else "b", torch="2.13.0" if at < 20 else "2.14.0")
        for at, one in enumerate(values)
    ]
    (one,) = tell(Readings("small", "plain", runs, {})).changes
    assert {change.what: (change.baseline, change.candidate) for change in one.environment} == {
        "torch": ("2.13.0", "2.14.0"),
        "commit of the code": ("a" * 12, "b" * 12),
    }


@pytest.mark.parametrize(
    ("values", "typed", "kept"),
    [
        (draw_values(0, 60, {40: 1.1}), "step_time > 3%", Kept.EXCEEDED),
        (draw_values(0, 60, {40: 1.1}), "step_time > 5 ms", Kept.EXCEEDED),
        (draw_values(0, 60, {40: 1.1}), "step_time > 20%", Kept.KEPT),
        (draw_values(0, 60, {40: 1.1}), "step_time > 11%", Kept.NOT_ESTABLISHED),
        (draw_values(0, 60, {40: 1 / 1.1}), "step_time > 3%", Kept.KEPT),
        (draw_values(0, 60, {20: 1.1, 40: 1 / 1.1}), "step_time > 3%", Kept.KEPT),
        (draw_values(1, 60), "step_time > 3%", Kept.KEPT),
        (draw_values(1, 60), "step_time > 0.1%", Kept.NOT_ESTABLISHED),
        (draw_values(1, 60), "step_time > 0.1 ms", Kept.NOT_ESTABLISHED),
        (draw_values(1, 60), "step_time > 10 ms", Kept.KEPT),
        (draw_values(1, 9), "step_time > 3%", Kept.UNDECIDED),
    ],
)
def test_the_last_change_is_held_against_a_bound(values: np.ndarray, typed: str, kept: Kept) -> None:
    history = make_history(values)
    judged = judge_history(read_bound(typed), history)
    assert (judged.typed, judged.kept) == (typed, kept)
    assert judged.words.startswith(f"`{typed}`, small:plain")
    if history.changes:
        assert f"between {history.changes[-1].last} and {history.changes[-1].first}" in judged.words


def test_a_small_change_after_a_bad_one_hides_it_from_no_bound() -> None:
    history = make_history(draw_values(8, 300, {100: 1.1, 200: 0.99}), threshold=0.02)
    assert len(history.changes) == 2
    assert judge_history(read_bound("step_time > 3%"), history).kept is Kept.EXCEEDED


def test_a_number_is_named_as_in_bounds() -> None:
    assert read_metric("step_time") == ("step_time", "")
    assert read_metric(" exposed [ unshard ] ") == ("exposed", "unshard")
    for typed, said in (
        ("step", "did you mean `step_time`?"),
        ("exposed", "say of what"),
        ("step_time[x]", "is of the whole step"),
        ("step time", "is no metric"),
    ):
        with pytest.raises(BoundError, match=said.replace("?", r"\?")):
            read_metric(typed)
