"""The figures, by their artists."""

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dtbench.report.page.slowest_ranks import MOST_RANKS
from dtbench.report.plots.names import (
    figure_png,
    plot_step_breakdown,
    plot_step_distribution,
    plot_step_times,
    save_figure,
)
from dtbench.report.words.sentences import doubts_of_cells
from dtbench.runs.cell.statistics import summarize_ratio
from dtbench.runs.representative import Doubt, DoubtKind
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.scenario.schema.scenario import Ddp
from dtbench.store.records.run import RunStatus
from dtbench.traces.known_part import KnownPart

PARTS = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")


def bars_of(figure: Figure, field: str) -> list[Rectangle]:
    return [bar for bar in figure.axes[0].patches if isinstance(bar, Rectangle) and bar.get_gid() == field]


def words_of(figure: Figure) -> str:
    axes = figure.axes[0]
    return "\n".join([axes.get_title(loc="left"), *(text.get_text() for text in axes.texts)])


@pytest.mark.parametrize(
    ("change", "said"),
    [({"status": RunStatus.FAILED}, "run failed"), ({"status": RunStatus.RUNNING}, "incomplete")],
)
def test_a_finding_of_a_cell_that_did_not_end_well_says_so(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary], change: dict[str, Any], said: str
) -> None:
    cell = make_ddp(update=change)
    assert doubts_of_cells([cell]) == {"ddp": said}
    assert said in words_of(plot_step_breakdown(make_run(cell)))
    both = make_run(cell, make_ddp(update={"name": "other", "exposed_step_fraction": 0.5}))
    assert "in ddp" not in plot_step_breakdown(both).axes[0].get_title(loc="left")


def test_a_part_that_is_not_known_is_named_at_the_end_of_its_bar(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    first, second = make_ddp().ranks
    lost = first.model_copy(update={"exposed_copy_ns": None, "idle_ns": None})
    ends = words_of(plot_step_breakdown(make_run(make_ddp(update={"ranks": (lost, second)}))))
    assert ends.count("exposed copy and idle n/a") == 1


def test_each_bar_is_as_wide_as_the_tables_number(make_run: Callable[..., RunSummary]) -> None:
    summary = make_run()
    figure = plot_step_breakdown(summary)
    rows = [row for cell in summary.cells for row in cell.ranks]
    for field in (*PARTS, "hidden_comm_ns"):
        widths_ns = [bar.get_width() * 1e6 for bar in bars_of(figure, field)]
        assert widths_ns == pytest.approx([getattr(row, field) for row in rows])


def test_the_parts_of_a_rank_follow_each_other_and_end_with_the_step(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    summary = make_run(make_ddp())
    figure = plot_step_breakdown(summary)
    for index, row in enumerate(summary.cells[0].ranks):
        parts = [bars_of(figure, field)[index] for field in PARTS]
        for before, after in pairwise(parts):
            assert before.get_x() + before.get_width() == pytest.approx(after.get_x())
        assert parts[-1].get_x() + parts[-1].get_width() == pytest.approx(row.step_ns / 1e6)


def test_a_cell_whose_profiled_steps_are_not_accounted_for_is_named(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    untold = make_ddp(update={"name": "other", "ranks": ()})
    figure = plot_step_breakdown(make_run(make_ddp(), untold))
    assert figure.axes[0].get_xlabel().endswith("; where it went is not known of other")
    assert words_of(plot_step_breakdown(make_run(untold))).strip() == "Where the profiled steps went is not known."
    never = untold.model_copy(update={"profiler_cost": summarize_ratio([], [])})
    assert words_of(plot_step_breakdown(make_run(never))).strip() == "No step was profiled in this run."


def test_what_is_said_below_a_breakdown_is_no_longer_than_its_figure_is_wide(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    untold = [make_ddp(update={"name": f"cell_with_a_long_name_{at}", "ranks": ()}) for at in range(5)]
    figure = plot_step_breakdown(make_run(make_ddp(), *untold))
    figure.draw_without_rendering()
    said = figure.axes[0].xaxis.label.get_window_extent()
    assert said.x0 >= 0
    assert said.x1 <= figure.bbox.x1


def test_hidden_communication_lies_apart_from_the_stack(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    figure = plot_step_breakdown(make_run(make_ddp()))
    stacked, hidden = bars_of(figure, "compute_ns")[0], bars_of(figure, "hidden_comm_ns")[0]
    assert hidden.get_y() >= stacked.get_y() + stacked.get_height() - 1e-9


def test_the_title_states_the_finding(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    assert "35.7 % of the step in fsdp2_tp, 7.9 % in ddp" in words_of(plot_step_breakdown(make_run()))
    assert "Exposed communication takes 7.9 % of the step in ddp" in words_of(plot_step_breakdown(make_run(make_ddp())))


def test_a_cell_whose_steps_may_stand_for_no_others_says_so_in_the_picture(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    doubted = make_ddp(update={"doubts": (Doubt(DoubtKind.UNLIKE_MEASURED, (3.0,)),)})
    words = words_of(plot_step_breakdown(make_run(doubted)))
    assert "NOT REPRESENTATIVE: PROFILED steps took 3.00 x as long as MEASURED ones" in words
    assert "Exposed communication takes 7.9 % of the profiled step in ddp" in words
    other = doubted.model_copy(update={"name": "other"})
    words = words_of(plot_step_breakdown(make_run(doubted, other)))
    assert "Nothing is compared: the profiled steps of no cell may stand for others" in words
    sound = make_ddp(update={"name": "sound"})
    words = words_of(plot_step_breakdown(make_run(doubted, other, sound)))
    assert "Exposed communication takes 7.9 % of the step in sound, of 1 of 3 cells" in words
    unread = make_ddp(update={"name": "unread", "launches": (), "ranks": ()})
    figure = plot_step_breakdown(make_run(sound, unread))
    assert figure.axes[0].get_xlabel().endswith("; where it went is not known of unread")


def test_both_shares_stand_beside_each_rank(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    assert "exposed 7.9 % of step\nhidden 60.0 % of comm" in words_of(plot_step_breakdown(make_run(make_ddp())))


def test_shares_of_which_something_launched_was_not_seen_are_a_bound_and_not_known(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    words = words_of(plot_step_breakdown(make_run(make_ddp(update={"unseen_collectives": 3}))))
    assert "exposed at least 7.9 % of step\nhidden n/a of comm" in words
    assert "not judged: 3 collectives were launched and not seen to run" in words


def test_knobs_stand_below_the_name_of_their_cell_and_never_run_off_the_picture(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    scenario = make_ddp().scenario
    assert scenario is not None
    delayed = Ddp(kind="ddp", replicas=2, delay_all_reduce=tuple(f"layers.{place}.ffn" for place in range(60)))
    cell = make_ddp(update={"scenario": scenario.model_copy(update={"parallel": delayed})})
    figure = plot_step_breakdown(make_run(cell))
    figure.draw_without_rendering()
    name, knobs = figure.axes[0].texts[:2]
    assert (name.get_text(), knobs.get_text()[:17]) == ("ddp  (2 ranks: ddp, replicate 2)", "delay_all_reduce=")
    assert knobs.get_window_extent().x1 <= figure.bbox.x1
    first_bar = bars_of(figure, "compute_ns")[0]
    assert name.get_position()[1] < knobs.get_position()[1] < first_bar.get_y()


def test_communication_over_an_emulated_link_is_said_to_be(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    link = EmulatedNetwork(kind="emulated", bandwidth_gb_per_s=0.125)
    scenario = make_ddp().scenario
    assert scenario is not None
    linked = make_ddp(update={"scenario": scenario.model_copy(update={"network": link})})
    start = "ms of a profiled step (mean of each rank)"
    for cells, words in (
        ([make_ddp()], ""),
        ([linked], ", communication over an emulated link"),
        ([linked, make_ddp()], ", communication of some cells over an emulated link"),
    ):
        assert plot_step_breakdown(make_run(*cells)).axes[0].get_xlabel() == start + words


def test_a_run_without_profiled_steps_says_so_instead_of_drawing_nothing(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    figure = plot_step_breakdown(make_run(make_ddp(update={"ranks": (), "profiler_cost": summarize_ratio([], [])})))
    assert "No step was profiled" in words_of(figure)


def test_a_cell_without_communication_has_no_share_instead_of_zero(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    row = make_ddp().ranks[0].model_copy(update={"comm_ns": 0, "hidden_comm_ns": 0})
    nan = float("nan")
    cell = make_ddp(update={"ranks": (row,), "hidden_fraction": nan, "exposed_step_fraction": nan})
    assert "hidden n/a of comm" in words_of(plot_step_breakdown(make_run(cell)))


def test_more_ranks_than_fit_are_one_more_bar_their_mean(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    row = make_ddp().ranks[0]
    ranks = [row.model_copy(update={"rank": rank, "compute_ns": rank * 1_000_000}) for rank in range(64)]
    ranks[40] = ranks[40].model_copy(update={"idle_ns": None})
    figure = plot_step_breakdown(make_run(make_ddp(update={"ranks": tuple(ranks)})))
    bars = bars_of(figure, "compute_ns")
    assert len(bars) == MOST_RANKS + 1
    assert bars[-1].get_width() == pytest.approx(sum(range(16, 64)) / 48)
    assert len(bars_of(figure, "idle_ns")) == MOST_RANKS
    assert figure.axes[0].get_yticklabels()[-1].get_text() == "48 more, mean"
    assert "idle n/a" in words_of(figure)


def test_of_more_ranks_than_fit_the_slowest_have_a_bar_each(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    row = make_ddp().ranks[0]
    ranks = [row.model_copy(update={"rank": rank, "step_ns": row.step_ns + rank}) for rank in range(64)]
    labels = plot_step_breakdown(make_run(make_ddp(update={"ranks": tuple(ranks)}))).axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == [*(f"rank {rank}" for rank in range(48, 64)), "48 more, mean"]


def test_ranks_that_do_not_fit_and_are_known_of_different_steps_are_counted(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    row = make_ddp().ranks[0]
    ranks = [row.model_copy(update={"rank": rank}) for rank in range(20)]
    ranks[17] = row.model_copy(update={"rank": 17, "part": KnownPart((17,), 20, (), 1, 2, 5)})
    figure = plot_step_breakdown(make_run(make_ddp(update={"ranks": tuple(ranks)})))
    assert len(bars_of(figure, "compute_ns")) == MOST_RANKS
    assert "4 more ranks not drawn: known of different steps" in words_of(figure)


def test_a_name_with_dollar_signs_is_no_mathematics(
    make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    assert figure_png(plot_step_breakdown(make_run(make_ddp(update={"name": "a$x_{$b"})))).startswith(b"\x89PNG")


def test_step_times_are_one_line_per_rank_in_ms(steps: pd.DataFrame) -> None:
    axes = plot_step_times(steps).axes[0]
    assert [line.get_label() for line in axes.lines] == ["rank 0", "rank 1"]
    assert np.asarray(axes.lines[1].get_ydata()) == pytest.approx(np.array([900, 111, 112, 113]))


def test_phases_are_shaded_from_their_first_to_their_last_step(steps: pd.DataFrame) -> None:
    axes = plot_step_times(steps).axes[0]
    spans = [(patch.get_x(), patch.get_width()) for patch in axes.patches if isinstance(patch, Rectangle)]
    assert spans == [(-0.5, 1.0), (0.5, 2.0), (2.5, 1.0)]
    assert [text.get_text().split()[0] for text in axes.texts] == ["WARMUP", "MEASURED", "PROFILED"]


def test_hundreds_of_ranks_are_drawn_and_the_legend_names_the_first(steps: pd.DataFrame) -> None:
    ranks = pd.concat([steps[steps["rank"] == 0].assign(rank=rank) for rank in range(300)])
    figure = plot_step_times(ranks)
    figure_png(figure)  # would warn of a figure without room
    assert sum(np.size(line.get_xdata()) > 0 for line in figure.axes[0].get_lines()) == 300
    (legend,) = figure.legends
    assert [words.get_text() for words in legend.get_texts()] == [f"rank {rank}" for rank in range(32)]
    assert legend.get_title().get_text() == "and 268 more ranks"


def test_steps_that_took_no_time_have_a_scale(steps: pd.DataFrame) -> None:
    assert plot_step_times(steps.assign(duration_ns=0)).axes[0].get_ylim() == (0.0, 1.0)


def test_slow_first_steps_do_not_flatten_the_measured_ones(steps: pd.DataFrame) -> None:
    figure = plot_step_times(steps)
    assert figure.axes[0].get_ylim()[1] < 200
    assert "A measured step takes 112 ms (median, slowest rank), the first 900 ms" in words_of(figure)


def test_a_launch_that_died_in_warm_up_still_has_a_picture(steps: pd.DataFrame) -> None:
    assert "No step was measured" in words_of(plot_step_times(steps[steps["phase"] == "WARMUP"]))
    assert "No step was recorded" in words_of(plot_step_times(steps.head(0)))


def test_steps_that_others_disturbed_are_crossed_out_and_in_no_median(steps: pd.DataFrame) -> None:
    """Step 4 of seven was stolen from on rank 0, and took 5 s."""
    more = pd.concat([steps, *(steps[steps["step"] == 1].assign(step=step) for step in (4, 5, 6))])
    is_slow = (more["step"] == 4) & (more["rank"] == 0)
    disturbed = more.assign(
        duration_ns=more["duration_ns"].where(~is_slow, 5_000_000_000), is_left_out=more["step"] == 4
    )
    axes = plot_step_times(disturbed).axes[0]
    (crosses,) = [line for line in axes.lines if line.get_gid() == "disturbed steps"]
    assert np.asarray(crosses.get_xdata()).tolist() == [4]
    assert axes.get_ylim()[1] < 200
    assert axes.get_title(loc="left").startswith("A measured step takes 111 ms (median, slowest rank)")
    assert axes.get_title(loc="left").endswith("; x: 1 that other virtual machines disturbed")
    taken = disturbed.assign(taken_fraction=disturbed["is_left_out"] * 0.5, stolen_fraction=np.nan)
    assert plot_step_times(taken).axes[0].get_title(loc="left").endswith("; x: 1 that others disturbed")
    distribution = plot_step_distribution(pd.concat([disturbed, disturbed.assign(launch=1, is_left_out=False)]))
    dots = {line.get_gid(): np.size(line.get_xdata()) for line in distribution.axes[0].lines}
    assert dots == {"steps launch 0": 4, "steps launch 1": 5}


def test_the_distribution_has_measured_steps_only_of_the_slowest_rank(steps: pd.DataFrame) -> None:
    figure = plot_step_distribution(steps)
    (dots,) = [line for line in figure.axes[0].lines if str(line.get_gid()).startswith("steps")]
    assert np.asarray(dots.get_xdata()) == pytest.approx(np.array([111, 112]))
    assert figure.axes[0].get_title(loc="left") == "A measured step takes 112 ms"


def test_what_is_left_out_is_counted_and_cells_not_to_be_trusted_or_without_steps_are_named(
    steps: pd.DataFrame,
) -> None:
    died = steps[(steps["rank"] == 0) | (steps["step"] < 2)]  # rank 1 never finished the second MEASURED step
    assert plot_step_times(died).axes[0].get_title(loc="left") == (
        "A measured step takes 111 ms (median, slowest rank), the first 900 ms; "
        "2 steps that not every rank finished left out"
    )
    disturbed = steps.assign(launch=1, is_left_out=steps["step"] == 1)
    table = pd.concat([died.assign(is_left_out=False), disturbed])
    axes = plot_step_distribution(table, {"ddp": "cores taken"}, ["ddp", "fsdp2"]).axes[0]
    assert {line.get_gid(): np.size(line.get_xdata()) for line in axes.lines} == {
        "steps ddp, launch 0": 1, "steps ddp, launch 1": 1,
    }  # fmt: skip
    assert axes.get_title(loc="left").endswith("; 2 steps left out; not to be trusted: ddp (cores taken)")
    assert axes.get_xlabel().endswith("; nothing to draw of fsdp2")


def test_a_cell_whose_steps_are_all_left_out_is_not_drawn_and_named(steps: pd.DataFrame) -> None:
    other = steps[steps["phase"] != "MEASURED"].assign(cell="fsdp2")
    axes = plot_step_distribution(pd.concat([steps, other]), {}, ["ddp", "fsdp2"]).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ddp"]
    assert "in ddp" in axes.get_title(loc="left")
    assert axes.get_xlabel().endswith("; nothing to draw of fsdp2")


def test_each_launch_has_its_box_and_the_title_says_how_far_launches_lie_apart(steps: pd.DataFrame) -> None:
    slower = steps.assign(launch=1, duration_ns=steps["duration_ns"] * 2)
    other = steps.assign(cell="fsdp2")
    figure = plot_step_distribution(pd.concat([steps, slower, other]))
    boxes = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    assert [box.get_gid() for box in boxes] == ["box ddp, launch 0", "box ddp, launch 1", "box fsdp2, launch 0"]
    assert boxes[1].get_width() == pytest.approx(2 * boxes[0].get_width())
    words = figure.axes[0].get_title(loc="left")
    assert words == "A measured step takes 167 ms in ddp, 112 ms in fsdp2; launches lie up to 66.7 % apart"


def test_very_many_launches_are_a_row_for_each_cell(steps: pd.DataFrame) -> None:
    many = pd.concat([steps.assign(launch=launch, cell=cell) for launch in range(50) for cell in ("a", "b")])
    labels = [label.get_text() for label in plot_step_distribution(many).axes[0].get_yticklabels()]
    assert labels == ["a", "b"]


def test_without_measured_steps_the_distribution_says_so(steps: pd.DataFrame) -> None:
    assert "No step was measured" in words_of(plot_step_distribution(steps[steps["phase"] == "WARMUP"]))


def test_a_saved_figure_replaces_the_old_one_and_leaves_nothing_else(
    make_run: Callable[..., RunSummary], tmp_path: Path
) -> None:
    path = tmp_path / "new" / "plot.png"
    for _ in range(2):
        save_figure(plot_step_breakdown(make_run()), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert list(path.parent.iterdir()) == [path]


def test_plots_never_load_pyplot() -> None:
    code = "import sys, dtbench.report.plots.names; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
