"""A history's figure, by its artists."""

from itertools import pairwise
from statistics import median

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dtbench.comparison.history.history import By
from dtbench.report.plots.names import figure_png, plot_history
from tests.made_history import MS, PLANTED, draw_values, make_history


def artists(figure: Figure) -> dict[str, Line2D]:
    return {str(line.get_gid()): line for line in figure.axes[0].lines if line.get_gid()}


def test_points_levels_and_changes_are_the_records_numbers() -> None:
    history = make_history(draw_values(0, 200, PLANTED))
    found = artists(plot_history(history))
    values = [point.value / MS for point in history.points]
    assert list(np.asarray(found["points"].get_ydata())) == values
    for start, stop in pairwise(history.borders):
        assert list(np.asarray(found[f"level {start}"].get_ydata())) == [median(values[start:stop])] * 2
    places = [one.place for one in history.changes]
    assert [name for name in found if name.startswith("change")] == [f"change {place}" for place in places]
    assert all(list(np.asarray(found[f"change {at}"].get_xdata())) == [at - 0.5] * 2 for at in places)


def test_a_change_says_its_size_and_what_it_is_in_words() -> None:
    history = make_history(draw_values(0, 60, {30: 1.1}))
    figure = plot_history(history)
    (said,) = (text.get_text() for text in figure.axes[0].texts)
    assert "%" in said
    assert "worse" in said
    assert figure.get_suptitle() == history.sentence


def test_runs_are_named_by_their_day_and_no_more_than_there_is_room_for() -> None:
    axes = plot_history(make_history(draw_values(0, 200))).axes[0]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels[0] == "2026-01-01"
    assert 2 <= len(labels) <= 8


def test_no_point_at_all_is_said() -> None:
    figure = plot_history(make_history([], by=By.DATE))
    assert [text.get_text() for text in figure.axes[0].texts] == ["No run has this number."]
    assert figure_png(figure)
