"""A comparison's figure, by its artists."""

import math

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import CARETRIGHTBASE

from dtbench.base.columns import Better, Unit
from dtbench.comparison.comparison import Comparison, MetricChange, Outcome, Sample, Side
from dtbench.report.plots.comparison import MOST_METRICS
from dtbench.report.plots.names import figure_png, plot_comparison

NAN = math.nan


def change(
    metric: str,
    ratio: float,
    interval: tuple[float, float],
    outcome: Outcome,
    better: Better = Better.LOWER,
    unit: Unit = Unit.NS,
) -> MetricChange:
    return MetricChange(
        metric=metric,
        subject="",
        unit=unit,
        better=better,
        baseline=Sample(values=(1e8,), median=1e8),
        candidate=Sample(values=(1e8 * ratio,), median=1e8 * ratio),
        ratio=ratio,
        low=interval[0],
        high=interval[1],
        p_value=NAN,
        test=None,
        detectable=NAN,
        outcome=outcome,
    )


def comparison(*metrics: MetricChange, sentence: str = "Step time is 5 % longer", label: str = "new") -> Comparison:
    return Comparison(
        baseline=Side(label="old", paths=("old",), launches=8),
        candidate=Side(label=label, paths=("new",), launches=8),
        sentence=sentence,
        clauses=(sentence,),
        threshold=0.02,
        noise_floor=NAN,
        environment=(),
        mechanism=(),
        metrics=metrics,
        collectives=(),
        notes=(),
    )


SLOWER = change("step_time", 1.05, (1.03, 1.07), Outcome.HIGHER)


def line(figure: Figure, gid: str) -> Line2D:
    (found,) = [one for one in figure.axes[0].lines if str(one.get_gid()).startswith(gid)]
    return found


def test_point_interval_and_band_are_the_records_numbers() -> None:
    figure = plot_comparison(comparison(SLOWER))
    assert np.asarray(line(figure, "ratio step_time").get_xdata()) == pytest.approx([1.05])
    assert np.asarray(line(figure, "interval step_time").get_xdata()) == pytest.approx([1.03, 1.07])
    (band,) = [patch for patch in figure.axes[0].patches if patch.get_gid() == "threshold"]
    assert band.get_extents().width > 0
    assert [text.get_text() for text in figure.axes[0].texts] == ["105 ms against 100 ms (+5.0 %): higher"]


def test_the_title_is_the_comparisons_sentence_and_the_axis_names_both_sides() -> None:
    figure = plot_comparison(comparison(SLOWER))
    assert figure.get_suptitle() == "Step time is 5 % longer"
    assert "new against old" in figure.axes[0].get_xlabel()


def test_worse_better_and_neither_differ_in_shape_and_not_only_in_colour() -> None:
    rows = (
        SLOWER,
        change("tokens_per_second", 1.05, (1.03, 1.07), Outcome.HIGHER, Better.HIGHER, Unit.PER_SECOND),
        change("unshard", 1.0, (0.99, 1.01), Outcome.NO_DIFFERENCE),
        change("collectives", 2.0, (2.0, 2.0), Outcome.HIGHER, Better.NEITHER, Unit.COUNT),
    )
    figure = plot_comparison(comparison(*rows))
    points = [line(figure, f"ratio {row.metric}") for row in rows[:3]]
    assert [str(point.get_marker()) for point in points] == ["s", "o", "o"]
    assert to_hex(str(points[2].get_markerfacecolor())) == "#ffffff"
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["worse", "better", "differs", "no difference that matters", "below the threshold of 2.0 %"]


def test_one_huge_change_hides_no_other_and_points_outwards() -> None:
    huge = change("exposed_comm", 40.0, (30.0, 50.0), Outcome.HIGHER)
    figure = plot_comparison(comparison(SLOWER, SLOWER, SLOWER, huge))
    assert figure.axes[0].get_xlim()[1] < 1.15
    assert line(figure, "ratio exposed").get_marker() == ">"
    assert "(+3900.0 %)" in figure.axes[0].texts[-1].get_text()


def test_an_interval_that_goes_on_beyond_the_axis_ends_in_an_arrow_and_not_as_if_it_were_known() -> None:
    wide = change("exposed_comm", 1.04, (1.01, 14.0), Outcome.NO_DIFFERENCE)
    figure = plot_comparison(comparison(SLOWER, SLOWER, SLOWER, wide))
    assert line(figure, "interval exposed").get_markevery() == [0]
    arrow = line(figure, "beyond exposed")
    assert arrow.get_marker() == CARETRIGHTBASE
    assert list(np.asarray(arrow.get_xdata())) == [np.asarray(line(figure, "interval exposed").get_xdata())[1]]
    assert not [one for one in figure.axes[0].lines if "beyond step_time" in str(one.get_gid())]


def test_a_large_change_that_leads_is_drawn_to_scale_with_ratios_for_labels() -> None:
    figure = plot_comparison(comparison(change("step_time", 2.5, (1.5, 5.5), Outcome.HIGHER)))
    assert np.asarray(line(figure, "ratio step_time").get_xdata()) == pytest.approx([2.5])
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == ["1/4 x", "1/2 x", "1 x", "2 x", "4 x"]


def test_what_fell_to_nothing_points_outwards() -> None:
    figure = plot_comparison(comparison(SLOWER, change("unshard", 0.0, (NAN, NAN), Outcome.LOWER)))
    assert line(figure, "ratio unshard").get_marker() == "<"


def test_what_is_not_known_is_only_words() -> None:
    figure = plot_comparison(comparison(SLOWER, change("wait", NAN, (NAN, NAN), Outcome.UNKNOWN)))
    assert not [one for one in figure.axes[0].lines if "wait" in str(one.get_gid())]
    assert figure.axes[0].texts[-1].get_text() == "n/a against 100 ms: not known"


def test_rows_that_have_no_room_are_counted_whatever_they_are_of() -> None:
    waits = [
        change("wait", 1.0, (NAN, NAN), Outcome.UNKNOWN).model_copy(update={"subject": f"purpose {number}"})
        for number in range(MOST_METRICS + 1)
    ]
    axes = plot_comparison(comparison(SLOWER, *waits)).axes[0]
    assert axes.get_yticklabels()[-1].get_text() == "2 more"
    assert axes.texts[-1].get_text() == "2 not established: see --json"
    assert "more" not in plot_comparison(comparison(SLOWER)).axes[0].get_yticklabels()[-1].get_text()


def test_no_metric_at_all_is_said() -> None:
    assert "No metric" in plot_comparison(comparison()).axes[0].texts[0].get_text()


def test_markup_in_labels_and_sentence_is_text() -> None:
    figure = plot_comparison(comparison(SLOWER, sentence="$x_{$ <b>", label=r"a$\frac{$"))
    assert figure_png(figure).startswith(b"\x89PNG")
