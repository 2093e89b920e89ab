"""The maps of ranks and steps: their numbers, and that no rank is lost where there are many."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import dtbench
from dtbench.report.plots.names import Whole, figure_png, plot_ranks
from dtbench.report.plots.rank_map import MOST_CELLS, MOST_ROWS, map_exposed, map_waited

MS = 1_000_000
NA = pd.NA


def overlap_of(exposed_ms: np.ndarray) -> pd.DataFrame:
    """Make the table of ``exposed_ms``, shape (ranks, steps)."""
    rows = [
        {"rank": rank, "step": step, "exposed_comm_ns": NA if math.isnan(ms) else round(ms * MS), "is_least": False}
        for (rank, step), ms in np.ndenumerate(exposed_ms)
    ]
    return pd.DataFrame(rows, columns=["rank", "step", "exposed_comm_ns", "is_least"]).astype(
        {"exposed_comm_ns": "Int64", "is_least": "boolean"}
    )


def waits_of(*rows: tuple[int, int, str, Any, Any]) -> pd.DataFrame:
    """Make collectives of (rank, step, group, wait in ms, last rank)."""
    made = [
        {
            "rank": rank,
            "step": step,
            "group": group,
            "last_rank": last,
            "skew_wait_ns": wait if wait is NA else wait * MS,
        }
        for rank, step, group, wait, last in rows
    ]
    names = ["rank", "step", "group", "last_rank", "skew_wait_ns"]
    return pd.DataFrame(made, columns=names).astype({"step": "Int64", "last_rank": "Int64", "skew_wait_ns": "Int64"})


def maps_of(figure: Figure, meaning: str) -> list[np.ndarray]:
    return [
        np.ma.filled(np.ma.asarray(image.get_array()), np.nan)
        for axes in figure.axes
        for image in axes.images
        if image.get_gid() == meaning
    ]


def titles(figure: Figure) -> list[str]:
    return [axes.get_title(loc="left").replace("\n", " ") for axes in figure.axes if axes.images]


def test_a_rank_has_the_waits_of_the_one_that_waited_longest_for_it() -> None:
    like = map_exposed(overlap_of(np.ones((3, 1))))
    waited, untold = map_waited(
        waits_of((0, 0, "a", 2, 2), (1, 0, "a", 5, 2), (0, 0, "b", 4, 2), (1, 0, "b", 0, NA), (2, 0, "a", 0, NA)), like
    )
    assert waited.times_ns.tolist() == [[0], [0], [6 * MS]]
    assert untold == 0


def test_where_it_is_not_known_for_whom_others_waited_a_rank_of_their_group_has_a_bound_or_nothing() -> None:
    like = map_exposed(overlap_of(np.ones((4, 1))))
    waits = waits_of((0, 0, "a", 3, 1), (0, 0, "a", 7, NA), (1, 0, "a", 0, NA), (2, 0, "a", 0, NA), (3, 0, "b", 0, NA))
    waited, untold = map_waited(waits, like)
    assert untold == 1
    assert waited.times_ns[1, 0] == 3 * MS
    assert np.isnan(waited.times_ns[[0, 2], 0]).all()
    assert waited.times_ns[3, 0] == 0
    said = plot_ranks(overlap_of(np.ones((4, 1))), waits).get_supxlabel()
    assert "at least so much: of 1 wait it is not known how long or for whom" in said


def test_a_step_in_which_no_wait_is_known_is_no_zero() -> None:
    waited, _ = map_waited(
        waits_of((0, 0, "a", 2, 1), (1, 0, "a", 0, NA), (0, 1, "a", NA, NA)), map_exposed(overlap_of(np.ones((2, 2))))
    )
    assert waited.times_ns[:, 0].tolist() == [0, 2 * MS]
    assert np.isnan(waited.times_ns[:, 1]).all()
    nothing = plot_ranks(overlap_of(np.ones((2, 1))), waits_of())
    assert titles(nothing)[1] == "others waited for it: not known"


def test_each_field_is_its_ranks_number_and_an_unknown_one_is_named() -> None:
    figure = plot_ranks(overlap_of(np.array([[1.0, 2.0], [8.0, math.nan]])), waits_of())
    (exposed,) = maps_of(figure, "exposed")
    assert exposed[0].tolist() == [1, 2]
    assert exposed[1, 0] == 8
    assert math.isnan(exposed[1, 1])
    assert titles(figure)[0] == "exposed: most 8.00 ms (rank 1, step 0), of what is known"
    assert [text.get_text() for text in figure.axes[0].texts] == ["1.00", "2.00", "8.00"]
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["not known"]


@pytest.mark.parametrize(("ranks", "late"), [(64, 48), (1024, 777)])
def test_one_rank_of_very_many_is_seen(ranks: int, late: int) -> None:
    exposed_ms = np.full((ranks, 5), 1.0)
    exposed_ms[late, 3] = 9.0
    others = [(rank, 3, "a", 8, late) for rank in range(ranks) if rank != late]
    figure = plot_ranks(overlap_of(exposed_ms), waits_of(*others, (late, 3, "a", 0, NA)))
    (exposed,), (waited,) = maps_of(figure, "exposed"), maps_of(figure, "waited")
    share = math.ceil(ranks / MOST_ROWS)
    assert exposed.shape == (ranks / share, 5)
    for drawn, most in ((exposed, 9), (waited, 8)):
        assert (drawn == most).sum() == 1
        assert drawn[late // share, 3] == most
    assert titles(figure) == [
        f"exposed: most 9.00 ms (rank {late}, step 3)",
        f"others waited for it: most 8.00 ms (rank {late}, step 3), of what is known",
    ]
    assert ("the most of theirs" in figure.axes[0].get_xlabel()) == (share > 1)
    assert figure.get_size_inches()[1] < 9
    assert figure_png(figure).startswith(b"\x89PNG")


def test_cells_that_are_not_drawn_and_steps_that_others_disturbed_are_counted_and_a_doubt_leads() -> None:
    tables = [overlap_of(np.ones((2, 2))).assign(cell=f"cell{at}", launch=0) for at in range(MOST_CELLS + 2)]
    table = pd.concat(tables, ignore_index=True)
    table["is_left_out"] = (table["cell"] == "cell0") & (table["step"] == 1)
    figure = plot_ranks(
        table, waits_of().assign(cell="", launch=0), {"cell1": "NOT REPRESENTATIVE"}, ("cell0", "cell1")
    )
    assert len(maps_of(figure, "exposed")) == MOST_CELLS
    assert "2 more cells not drawn" in figure.get_supxlabel().replace("\n", " ")
    assert "1 PROFILED step left out" in figure.get_supxlabel().replace("\n", " ")
    assert figure.get_suptitle() == "cell1: NOT REPRESENTATIVE"
    assert maps_of(figure, "exposed")[0].shape == (2, 1)


def test_collectives_that_were_not_seen_to_run_make_exposed_time_a_bound() -> None:
    figure = plot_ranks(overlap_of(np.ones((2, 2))).assign(is_least=True), waits_of())
    assert "exposed: at least so much" in figure.get_supxlabel().replace("\n", " ")

    assert titles(figure)[0] == "exposed: most at least 1.00 ms (rank 0, step 0)"


@pytest.mark.parametrize("lost", ["how long", "its row"])
def test_a_rank_is_not_free_of_waits_that_others_lost(lost: str) -> None:
    rows = [(0, 0, "a", 2, 1), (1, 0, "a", 0, NA), (0, 1, "a", NA, NA), (1, 1, "a", 0, NA)]
    waits = waits_of(*(rows if lost == "how long" else [*rows[:2], rows[3]])).assign(group_size=2)
    waited, _ = map_waited(waits, map_exposed(overlap_of(np.ones((2, 2)))))
    assert waited.times_ns[:, 0].tolist() == [0, 2 * MS]
    assert np.isnan(waited.times_ns[:, 1]).all()
    assert waited.finding == "most at least 2.00 ms (rank 1, step 0), of what is known"
    figure = plot_ranks(overlap_of(np.ones((2, 2))), waits)
    assert "; at least so much: " in figure.get_supxlabel().replace("\n", " ")
    assert all(len(line) < 60 for axes in figure.axes for line in axes.get_title(loc="left").splitlines())
    assert all(len(line) <= 140 for line in figure.get_supxlabel().splitlines())


def test_a_rank_of_which_others_tell_has_the_waits_for_it_although_its_own_are_lost() -> None:
    waited, _ = map_waited(waits_of((0, 0, "a", 2, 1)), map_exposed(overlap_of(np.ones((2, 1)))))
    assert waited.times_ns.tolist() == [[0], [2 * MS]]
    waited, _ = map_waited(waits_of((0, 0, "a", 2, 1)), map_exposed(overlap_of(np.ones((1, 1)))))
    assert (waited.ranks, waited.times_ns.tolist()) == ([0, 1], [[0], [2 * MS]])
    assert waited.finding == "most 2.00 ms (rank 1, step 0)"


def test_ranks_launches_and_cells_of_which_nothing_is_known_are_named_and_no_step_is_made_up() -> None:
    first = overlap_of(np.ones((2, 2))).assign(cell="ddp", launch=0)
    second = first.assign(launch=1, step=first["step"] + 1)
    wholes = {"ddp": Whole(range(4), (0, 1, 2))}
    table = pd.concat([first, second], ignore_index=True)
    figure = plot_ranks(table, waits_of().assign(cell="", launch=0), {}, ("ddp", "fsdp2"), wholes)
    assert maps_of(figure, "exposed")[0].shape == (2, 4)
    assert not np.isnan(maps_of(figure, "exposed")[0]).any()
    assert titles(figure)[0] == "ddp: exposed: most 1.00 ms (rank 0, step 0, launch 0), of what is known"
    said = figure.get_supxlabel().replace("\n", " ")
    assert said.endswith("; ddp: what was exposed is not known of ranks 2-3 and launch 2; nothing to draw of fsdp2")


def test_a_run_and_traces_draw_their_own_tables() -> None:
    run = dtbench.load_run(Path(__file__).parents[2] / "results" / "example")
    first = maps_of(run.plot_ranks(), "exposed")[0]
    ddp = run.overlap[run.overlap["cell"] == "ddp"].pivot(index="rank", columns="step", values="exposed_comm_ns")
    assert first == pytest.approx((ddp.astype(float) / MS).to_numpy())


def test_without_a_profiled_step_it_is_said() -> None:
    figure = plot_ranks(overlap_of(np.ones((0, 0))), waits_of())
    assert figure.axes[0].texts[0].get_text() == "No step was profiled."
