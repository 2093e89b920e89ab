"""The map of a sweep over two axes, by its artists."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from dtbench.report.plots.names import figure_png, plot_sweep, plot_sweep_map
from dtbench.runs.summary import CellSummary, RunSummary

CAPS = ("unset", "16", "2", "1", "4", "8")
ALGORITHMS = ("ring", "tree", "auto", "a$x_{$", "e", "f")
MS = 1_000_000


@pytest.fixture
def swept(make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]) -> Callable[..., RunSummary]:
    """Build a sweep over both axes; its step takes 100 ms more with each algorithm and 1 ms with each cap."""

    def make(caps: tuple[str, ...] = CAPS, algorithms: tuple[str, ...] = ALGORITHMS) -> RunSummary:
        cells = []
        for cap_at, cap in enumerate(caps):
            for algorithm_at, algorithm in enumerate(algorithms):
                time = make_ddp().step_time.model_copy(update={"median": (100.0 * algorithm_at + cap_at + 1) * MS})
                place = {"parallel.bucket_cap_mb": cap, "algorithm": algorithm}
                cells.append(
                    make_ddp(update={"name": f"{cap}-{algorithm_at}", "coordinates": place, "step_time": time})
                )
        return make_run(*cells)

    return make


def test_every_field_is_its_cells_step_time_with_numbers_in_order(swept: Callable[..., RunSummary]) -> None:
    axes = plot_sweep_map(swept()).axes[0]
    (image,) = [one for one in axes.images if isinstance(one, AxesImage)]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["unset", "1", "2", "4", "8", "16"]
    times = np.asarray(image.get_array())
    assert times[:, 0] == pytest.approx([1, 4, 3, 5, 6, 2])
    assert times[0] == pytest.approx([1, 101, 201, 301, 401, 501])
    assert axes.texts[0].get_text() == "1.00 ms\n11.5 ms exposed"


def test_a_cell_that_is_left_out_is_an_empty_field(swept: Callable[..., RunSummary]) -> None:
    summary = swept()
    rest = (summary.cells[0], *summary.cells[2:])
    axes = plot_sweep_map(summary.model_copy(update={"cells": rest})).axes[0]
    assert math.isnan(float(np.ma.filled(np.ma.asarray(axes.images[0].get_array()), np.nan)[0, -1]))
    assert len(axes.texts) == len(summary.cells) - 1


def test_a_field_that_must_not_be_trusted_is_framed_and_says_why(swept: Callable[..., RunSummary]) -> None:
    summary = swept()
    first = summary.cells[0]
    assert first.correctness is not None
    wrong = first.model_copy(update={"correctness": first.correctness.model_copy(update={"passed": False})})
    axes = plot_sweep_map(summary.model_copy(update={"cells": (wrong, *summary.cells[1:])})).axes[0]
    (frame,) = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert frame.get_gid() == "doubtful"
    assert axes.texts[0].get_text().endswith("results differ")


def test_a_sweep_with_more_lines_than_eyes_can_tell_apart_is_a_map(swept: Callable[..., RunSummary]) -> None:
    assert plot_sweep(swept()).axes[0].images
    assert not plot_sweep(swept(algorithms=ALGORITHMS[:3])).axes[0].images
    assert plot_sweep(swept(caps=("a", "b", "c"), algorithms=ALGORITHMS[:3])).axes[0].images


def test_what_is_no_table_of_two_axes_is_said(make_run: Callable[..., RunSummary]) -> None:
    assert "two axes" in plot_sweep_map(make_run()).axes[0].texts[0].get_text()


def test_markup_in_a_value_is_text(swept: Callable[..., RunSummary]) -> None:
    assert figure_png(plot_sweep_map(swept())).startswith(b"\x89PNG")
