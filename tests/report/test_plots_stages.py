"""Stages of a training state and their memory: the figures, by their artists."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dtbench.base.vocabulary import Stage, StageOutcome, StatePart
from dtbench.report.plots.names import figure_png, plot_stage_memory, plot_stages
from dtbench.runs.stage_summary import RaisedOnRank, StageSummary
from dtbench.runs.summary import CellSummary

Make = Callable[..., CellSummary]
MS, MIB = 1_000_000, 1 << 20


def make_row(
    stage: Stage, part: StatePart, duration_ms: float, *, link_ms: float = math.nan, peak_mib: int = 1
) -> StageSummary:
    return StageSummary(
        part=part,
        stage=stage,
        outcome=StageOutcome.EQUAL,
        duration_ns=duration_ms * MS,
        quartile1_ns=duration_ms * MS,
        quartile3_ns=duration_ms * MS,
        shortest_ns=duration_ms * MS,
        wait_ns=45e6,
        rounds=3,
        state_bytes=MIB,
        all_ranks_bytes=2 * MIB,
        collectives=1,
        sent_bytes=MIB,
        planned=None,
        matches_plan=None,
        object_collectives=0,
        link_ns=link_ms * MS,
        file_bytes=None,
        host_peak_bytes=peak_mib * MIB,
        device_peak_bytes=None,
        mismatched=0,
        mismatches=(),
        memory_curve=((2 * MS, 0), (4 * MS, peak_mib * MIB), (10 * MS, 0)),
    )


GATHER = make_row(Stage.GATHER, StatePart.MODEL, 50, link_ms=40, peak_mib=3)
LOAD = make_row(Stage.LOAD, StatePart.MODEL, 10, link_ms=0)
READ = make_row(Stage.READ, StatePart.OPTIMIZER, 20, link_ms=0, peak_mib=9)
RAISED = LOAD.model_copy(
    update={
        "outcome": StageOutcome.BROKEN,
        "rounds": 0,
        "duration_ns": math.nan,
        "link_ns": math.nan,
        "memory_curve": (),
        "raised": (RaisedOnRank(rank=0, words="ValueError: $no$ rank"),),
    }
)


def bars(figure: Figure, panel: int = 0) -> list[tuple[float, float]]:
    """Start and end of each bar of a panel, ms, from top to bottom."""
    found = [patch for patch in figure.axes[panel].patches if isinstance(patch, Rectangle)]
    return [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in found]


def words(figure: Figure, panel: int = 0) -> list[str]:
    return [text.get_text() for text in figure.axes[panel].texts]


@pytest.fixture
def cell(make_ddp: Make) -> Callable[..., CellSummary]:
    return lambda *rows: make_ddp(update={"stages": rows})


def test_a_bar_is_a_stages_time_split_by_what_the_link_takes(cell: Callable[..., CellSummary]) -> None:
    figure = plot_stages([cell(GATHER, LOAD, READ)])
    assert bars(figure) == [(0, 40), (40, 50), (0, 10), (0, 20)]
    assert words(figure) == ["50.0 ms", "10.0 ms", "20.0 ms"]
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["model: gather", "model: load", "optimizer: read"]
    assert "gather of the model takes longest, 50.0 ms, 80% of it the link" in figure.axes[0].get_title(loc="left")


def test_a_stage_that_raised_has_words_for_a_bar(cell: Callable[..., CellSummary]) -> None:
    figure = plot_stages([cell(GATHER, RAISED), cell(RAISED)])
    assert words(figure) == ["50.0 ms", "broken in torch"]
    assert bars(figure, 1) == []
    assert "no stage came to its end" in figure.axes[1].get_title(loc="left")
    assert figure_png(figure).startswith(b"\x89PNG")


def test_memory_runs_on_from_stage_to_stage_and_the_highest_is_named(cell: Callable[..., CellSummary]) -> None:
    figure = plot_stage_memory([cell(GATHER, LOAD, READ)])
    model, optimizer = figure.axes[0].lines
    assert np.asarray(model.get_xdata()).tolist() == [0, 2, 4, 10, 10, 12, 14, 20]
    assert np.asarray(model.get_ydata()).tolist() == [0, 0, 3, 0, 0, 0, 1, 0]
    assert np.asarray(optimizer.get_xdata()).tolist() == [0, 2, 4, 10]
    assert words(figure) == ["gather", "read"]
    assert "read of the optimizer needs most host memory, 9.00 MiB" in figure.axes[0].get_title(loc="left")


def test_the_most_host_memory_is_said_of_the_stages_whose_peak_is_known(cell: Callable[..., CellSummary]) -> None:
    """The highest of too few samples is no peak, and a stage without samples may have had most."""
    unknown = READ.model_copy(update={"host_peak_bytes": None, "memory_curve": ()})
    title = plot_stage_memory([cell(GATHER, LOAD, unknown)]).axes[0].get_title(loc="left")
    assert title.replace("\n", " ") == (
        "ddp: gather of the model needs most host memory (of the 2 of 3 stages whose peak is known), 3.00 MiB above "
        "what was there"
    )
    curve = GATHER.model_copy(update={"host_peak_bytes": None})
    figure = plot_stage_memory([cell(curve)])
    assert figure.axes[0].get_title(loc="left") == "The peak of host memory is not known of any stage"


def test_no_time_of_a_stage_is_a_finding_where_others_had_the_cores_or_a_rank_does_not_tell(make_ddp: Make) -> None:
    disturbed = make_ddp(update={"stages": (GATHER,), "state_taken_fraction": 0.273})
    assert plot_stages([disturbed]).axes[0].get_title(loc="left") == (
        "ddp: others had 27.3 % of the cores; no time is judged"
    )
    doubt = "launch0: rank 1 says nothing of the gather of the model"
    lost = make_ddp(update={"stages": (GATHER,), "rank_doubts": (doubt,)})
    for figure in (plot_stages([lost]), plot_stage_memory([lost])):
        assert figure.axes[0].get_title(loc="left") == f"ddp: not judged: {doubt}"


def test_runs_without_stages_say_so_in_place_of_a_picture(make_ddp: Make, cell: Callable[..., CellSummary]) -> None:
    for figure in (plot_stages([make_ddp()]), plot_stage_memory([make_ddp(), cell(RAISED)])):
        assert "in this run" in "".join(words(figure))


def test_a_stage_of_which_the_links_part_is_not_known_is_not_drawn_as_free_of_it(
    cell: Callable[..., CellSummary],
) -> None:
    lost = LOAD.model_copy(update={"link_ns": math.nan})
    for rows, names in (
        ((GATHER, LOAD), ["the link", "copies, files and Python"]),
        ((GATHER, lost), ["the link", "copies, files and Python", "not known how much of it the link"]),
        ((lost,), ["all of it"]),
    ):
        figure = plot_stages([cell(*rows)])
        (legend,) = figure.legends
        assert [text.get_text() for text in legend.get_texts()] == names
        last = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)][-1]
        assert (last.get_gid() == "unknown_ns") == ("not known" in names[-1])
