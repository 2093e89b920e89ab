"""Cells against each other: the table, the plot and TensorBoard's HParams, from coordinates that say where each is."""

import itertools
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import api_pb2, metadata

from dtbench.report.event_files.dashboards import write_tensorboard
from dtbench.report.event_files.hparams import session
from dtbench.report.page import sweep
from dtbench.report.page.run_page import note_words
from dtbench.report.plots.names import MOST_CELLS, plot_step_breakdown
from dtbench.report.plots.sweep import MOST_BARS, find_numeric_axis, make_scale, plot_sweep
from dtbench.report.words.settings import NOT_ON_AXIS, find_settings
from dtbench.runs.representative import Doubt, DoubtKind
from dtbench.runs.run import summarize_run
from dtbench.runs.summary import CellSummary, RunSummary
from dtbench.store.records.run import RunStatus
from dtbench.traces.known_part import KnownPart
from tests.report.shown import markdown_run, terminal_places, terminal_run, terminal_sweep

MS = 1_000_000

Sweep = Callable[..., RunSummary]


@pytest.fixture
def make_sweep(make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]) -> Sweep:
    """Build a run of one cell for each point; the k-th takes 100 + 10 k ms, with an interval of 2 ms to both sides."""

    def make(points: Iterable[Mapping[str, str]], **changes: object) -> RunSummary:
        cells = []
        for place, point in enumerate(points):
            median = (100.0 + 10 * place) * MS
            interval = {"median": median, "low": median - 2 * MS, "high": median + 2 * MS}
            step_time = make_ddp().step_time.model_copy(update=interval)
            name = ".".join(re.sub(r"[^a-z0-9-]", "_", value.lower()) for value in point.values())
            own: dict[str, object] = {"name": name, "coordinates": dict(point), "step_time": step_time}
            launches = changes.get("launches", (0,))
            assert isinstance(launches, tuple)
            own["launch_medians_ns"] = spread_around(median, len(launches))
            cells.append(make_ddp(update={**own, **changes}))
        return make_run(*cells)

    return make


def spread_around(median_ns: float, launches: int) -> tuple[float, ...]:
    """Return medians of launches, 0.2 % apart from each other."""
    return tuple(median_ns * (1 + 0.002 * (place - (launches - 1) / 2)) for place in range(launches))


def grid(**axes: list[str]) -> list[dict[str, str]]:
    names = [name.replace("__", ".") for name in axes]
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*axes.values())]


def shown(summary: RunSummary, width: int, *, whole: bool = False) -> list[str]:
    console = Console(width=width, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(terminal_run(summary) if whole else terminal_sweep(summary))
    return capture.get().splitlines()


CAPS = grid(parallel__bucket_cap_mb=["unset", "1", "4", "64"])
BOTH = grid(strategy=["ddp", "fsdp2"], parallel__bucket_cap_mb=["unset", "1", "4"])


def test_the_axes_come_first_and_then_what_was_measured(make_sweep: Sweep) -> None:
    lines = shown(make_sweep(BOTH), 120)
    row = next(line for line in lines if line.startswith("ddp") and " 4 " in line)
    assert row.split() == [
        *["ddp", "4", "120.0", "118.0-122.0", "7.21", "k", "12.3", "none", "11.5", "60.0", "%", "passed"]
    ]
    assert len([line for line in lines if line.startswith(("ddp", "fsdp2"))]) == 6


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_value_is_broken_and_no_line_is_too_long(make_sweep: Sweep, width: int) -> None:
    variable = "env__TORCH_SHOW_CPP_STACKTRACES"
    pythons = ["/opt/torch-2.11/bin/python", "/opt/torch-2.13/bin/python"]
    lines = shown(make_sweep(grid(strategy=["ddp", "fsdp2"], **{variable: ["0", "1"]}, python=pythons)), width)
    assert max(len(line) for line in lines) <= width
    rows = [line for line in lines if re.match(r"(ddp|fsdp2)  ", line)]
    assert len(rows) == (16 if width == 80 else 8)
    assert all(re.match(r"(ddp|fsdp2) +[01] +torch-2\.1[13] +", row) for row in rows)
    assert sum("98.0-102.0" in row for row in rows) == 1
    assert sum("60.0 %" in row for row in rows) == 8


def test_an_axis_on_which_nothing_differs_is_said_once(make_sweep: Sweep) -> None:
    lines = shown(make_sweep(grid(seed=["3"], parallel__bucket_cap_mb=["1", "4"])), 120)
    assert "in all cells: seed 3" in lines
    assert not any(line.split()[:1] == ["seed"] for line in lines)


def test_a_cell_that_leaves_an_axis_out_has_a_dash_there(make_sweep: Sweep) -> None:
    lines = shown(make_sweep([*BOTH, {"strategy": "ddp"}]), 120)
    assert any(line.split()[:2] == ["ddp", "-"] for line in lines)


def with_launches(cell: CellSummary, median_ms: float, spread: float = 1.0, count: int = 4) -> CellSummary:
    medians_ns = tuple(median_ms * MS + spread * (one - median_ms * MS) for one in spread_around(median_ms * MS, count))
    step_time = cell.step_time.model_copy(update={"median": median_ms * MS})
    launches = tuple(range(count))
    return cell.model_copy(update={"launch_medians_ns": medians_ns, "launches": launches, "step_time": step_time})


def test_the_fastest_cell_is_named_with_those_that_cannot_be_told_from_it(
    make_sweep: Sweep, make_run: Callable[..., RunSummary]
) -> None:
    summary = make_sweep(CAPS, launches=(0, 1, 2, 3))
    words = "Fastest is bucket_cap_mb unset, slowest bucket_cap_mb 64: 100 ms against 130 ms (1.30 x)"
    assert sweep.finding(summary) == words
    alike = with_launches(summary.cells[1], 100.2)
    assert sweep.finding(make_run(summary.cells[0], alike, *summary.cells[2:])) == (
        f"{words}; 1 more cannot be told from the fastest"
    )
    wide = with_launches(summary.cells[3], 130, spread=200)  # a median of 130 ms, and no more is known of it
    assert sweep.finding(make_run(*summary.cells[:2], wide)) == (
        "Fastest is bucket_cap_mb unset, slower bucket_cap_mb 1: 100 ms against 110 ms (1.10 x); "
        "1 more cannot be told from the fastest"
    )
    twin = with_launches(summary.cells[2], 130.1)
    assert sweep.finding(make_run(summary.cells[0], summary.cells[3], twin)) == (
        "Fastest is bucket_cap_mb unset, slower bucket_cap_mb 4: 100 ms against 130 ms (1.30 x); "
        "1 more cannot be told from bucket_cap_mb 4"
    )
    same = "No cell can be told from the fastest, bucket_cap_mb unset"
    assert sweep.finding(make_run(summary.cells[0], alike)) == f"{same}; nor can any other cell"
    fast = with_launches(summary.cells[2], 99, spread=200)
    assert sweep.finding(make_run(*summary.cells[:2], fast)) == (
        "No cell can be told from the fastest, bucket_cap_mb 4"
    )


@pytest.mark.parametrize("count", [1, 2, 3])
def test_below_four_launches_no_cell_is_called_fastest(make_sweep: Sweep, count: int) -> None:
    assert sweep.finding(make_sweep(CAPS, launches=tuple(range(count)))) == (
        f"Too few launches to tell which is fastest ({count} each, 4 are needed); medians from 100 ms "
        "(bucket_cap_mb unset) to 130 ms (bucket_cap_mb 64), 1.30 x"
    )


def test_no_cell_is_called_fastest_among_those_of_unlike_environments(
    make_sweep: Sweep, make_run: Callable[..., RunSummary]
) -> None:
    first, *others = make_sweep(CAPS, launches=(0, 1, 2, 3)).cells
    differ = "cores 2 and 64"
    unlike = [first.model_copy(update={"unlike": {one.name: differ for one in others}}), *others]
    assert sweep.finding(make_run(*unlike)) == (
        f"No cell is called fastest, they ran in unlike environments ({first.name} and {others[0].name} differ: "
        f"{differ}, and {len(others) - 1} more of 4 cells); medians from 100 ms (bucket_cap_mb unset) to 130 ms "
        "(bucket_cap_mb 64)"
    )
    failed = unlike[0].model_copy(update={"status": RunStatus.FAILED})
    assert sweep.finding(make_run(failed, *others)).startswith("Fastest is bucket_cap_mb 1, ")
    within = first.model_copy(update={"unlike": {first.name: "launch0 and launch1 differ: cores 2 and 64"}})
    assert f"(within {first.name}, launch0 and launch1 differ: cores" in sweep.finding(make_run(within, *others))


def test_of_cells_of_which_nobody_knows_where_they_ran_that_is_said(
    make_sweep: Sweep, make_run: Callable[..., RunSummary]
) -> None:
    first, second, *others = make_sweep(CAPS, launches=(0, 1, 2, 3)).cells
    silent = first.model_copy(update={"silent_launches": first.launches})
    part = second.model_copy(update={"silent_launches": (2,)})
    assert sweep.finding(make_run(silent, part, *others)).endswith(
        f"; it is not known on which machine and software {first.name} and launch2 of {second.name} ran, "
        "so whether environments are alike is not checked"
    )


def test_launches_are_said_where_cells_have_unlike_numbers_of_them(
    make_sweep: Sweep, make_run: Callable[..., RunSummary]
) -> None:
    once, again, *_ = make_sweep(CAPS).cells
    summary = make_run(once, with_launches(again, 110))
    assert sweep.finding(summary).startswith("Too few launches to tell which is fastest (1 to 4 each, 4 are needed)")
    assert sweep.scope_words(summary).startswith(
        "intervals over launches, of cells with one launch within one launch: "
    )


def test_a_cell_that_must_not_be_trusted_is_never_the_fastest(
    make_sweep: Sweep, make_run: Callable[..., RunSummary]
) -> None:
    failed, *others = make_sweep(CAPS, launches=(0, 1, 2, 3)).cells
    summary = make_run(failed.model_copy(update={"status": RunStatus.FAILED}), *others)
    assert "Fastest is bucket_cap_mb 1, " in sweep.finding(summary)
    assert sweep.finding(summary).endswith("; 1 of 4 cells left out, without numbers to be trusted")
    assert (
        sweep.finding(make_run(failed)) == "Nothing is compared: fewer than two cells have numbers that can be trusted"
    )


def test_intervals_within_one_launch_are_not_sold_as_more(make_sweep: Sweep) -> None:
    assert "--set repeat=4" in sweep.scope_words(make_sweep(CAPS))
    assert sweep.scope_words(make_sweep(CAPS, launches=(0, 1))) == "intervals over launches"


def test_of_many_cells_only_those_are_told_in_full_that_must_not_be_trusted(
    make_sweep: Sweep, make_run: Callable[..., RunSummary]
) -> None:
    assert sum("gradient wait  " in line for line in shown(make_sweep(CAPS), 120, whole=True)) == 4
    hundred = make_sweep(grid(strategy=list("abcdefghij"), seed=[str(seed) for seed in range(10)]))
    lines = shown(hundred, 120, whole=True)
    assert len(lines) < 120
    assert (
        "  one cell     dtbench report results/small/20260101T120000Z-ab12 --cell a.0" in terminal_places(hundred).plain
    )
    failed = [cell.model_copy(update={"status": RunStatus.FAILED, "reason": "planted"}) for cell in hundred.cells]
    lines = shown(make_run(*failed[:7], *hundred.cells[7:]), 120, whole=True)
    assert sum("This cell FAILED: planted" in line for line in lines) == 4
    assert "and 3 more cells that must not be trusted: see the column check" in lines
    assert terminal_places(hundred).plain.count("traces") == 2, "one line"


def test_notes_of_cells_that_are_not_told_in_full_are_told_once(
    make_sweep: Sweep, make_run: Callable[..., RunSummary]
) -> None:
    first, second, *others = make_sweep(grid(seed=["1", "2", "3", "4", "5"])).cells
    odd = [cell.model_copy(update={"notes": ("odd",)}) for cell in (first, second)]
    summary = make_run(*odd, *others)
    assert sweep.note_sentences(summary) == (first.plan.notes[0], "1 and 1 more: odd")
    lines = [line.strip() for line in shown(summary, 120, whole=True)]
    assert any(line.endswith("1 and 1 more: odd") for line in lines), lines[-8:]
    assert "- note: 1 and 1 more: odd" in markdown_run(summary)
    noisy = [first.model_copy(update={"notes": tuple(f"note {number}" for number in range(20))}), second, *others]
    assert sweep.note_sentences(make_run(*noisy))[-1] == "and 15 more notes: see --json"


def test_cells_in_doubt_have_a_mark_and_no_note_is_lost(make_sweep: Sweep, make_run: Callable[..., RunSummary]) -> None:
    cells = make_sweep(grid(parallel__bucket_cap_mb=[str(cap) for cap in range(1, 9)])).cells
    doubted = [
        cell.model_copy(update={"doubts": (Doubt(DoubtKind.UNLIKE_MEASURED, (1.3 + place / 100,)),)})
        for place, cell in enumerate(cells[1:])
    ]
    summary = make_run(cells[0], *doubted)
    columns = {one.header: one.words for one in sweep.sweep_quantities(summary)}
    for header in ("exposed comm", "hidden share", "gradient wait"):
        assert [words.endswith("?") for words in columns[header]] == [False, *[True] * 7]
    assert columns["unshard wait"] == ("none",) * 8
    line = "? PROFILED steps of this cell may not stand for the run: no finding, see its notes"
    assert line in shown(summary, 160)
    assert line not in shown(make_run(*cells), 160)
    assert len([note for note in note_words(summary) if "may not stand" in note]) == 7
    crosses = [sum(str(one.get_gid()) == "doubtful" for one in axes.lines) for axes in plot_sweep(summary).axes]
    assert crosses == [0, 7]


def test_an_interval_that_is_not_known_is_not_drawn(make_sweep: Sweep, make_run: Callable[..., RunSummary]) -> None:
    first, *others = make_sweep(CAPS).cells
    unknown = first.step_time.model_copy(update={"low": math.nan, "high": math.nan})
    figure = plot_sweep(make_run(first.model_copy(update={"step_time": unknown}), *others))
    (bars,) = [one for one in figure.axes[0].collections if str(one.get_gid()).startswith("interval")]
    assert isinstance(bars, LineCollection)
    lengths = [float(segment[1][1] - segment[0][1]) for segment in bars.get_segments() if len(segment)]
    assert [round(length, 6) for length in lengths if not math.isnan(length)] == [4.0, 4.0, 4.0]


def test_a_run_that_was_resumed_says_so(make_run: Callable[..., RunSummary]) -> None:
    once = make_run(resumed_unix_ns=(1,))
    words = "stopped and resumed once: launches before and after are not interleaved with each other"
    assert words in shown(once, 120, whole=True)
    assert words in markdown_run(once)
    assert "resumed 2 times" in markdown_run(make_run(resumed_unix_ns=(1, 2)))
    assert "resumed" not in markdown_run(make_run())


def test_markdown_has_the_same_table(make_sweep: Sweep) -> None:
    text = markdown_run(make_sweep(BOTH))
    assert "| strategy | bucket\\_cap\\_mb | step time | 95 % interval | tokens per s |" in text
    assert "| ddp | 4 | 120.0 | 118.0-122.0 | 7.21 k | 12.3 | none | 11.5 | 60.0 % | passed |" in text
    assert "\n## " not in text, "of six cells none is told in full"


def lines_of(figure: Figure, gid: str, panel: int = 0) -> Line2D:
    return next(line for line in figure.axes[panel].lines if line.get_gid() == gid)


def xs_of(line: Line2D) -> list[float]:
    values: list[float] = np.asarray(line.get_xdata()).tolist()
    return values


def ys_of(line: Line2D) -> list[float]:
    values: list[float] = np.asarray(line.get_ydata()).tolist()
    return values


def test_a_numeric_axis_becomes_a_line_with_intervals_from_zero(make_sweep: Sweep) -> None:
    figure = plot_sweep(make_sweep(CAPS))
    times = lines_of(figure, "line ")
    assert ys_of(times) == [110, 120, 130]
    assert xs_of(times) == [0, 2, 6], "by the logarithm of 1, 4 and 64"
    unset = lines_of(figure, "unset ")
    assert (xs_of(unset), ys_of(unset)) == ([-3], [100])
    bars = next(part for part in figure.axes[0].collections if part.get_gid() == "interval ")
    ends = [tuple(segment[:, 1]) for segment in bars.get_segments()]  # type: ignore[attr-defined]
    assert ends == [(98, 102), (108, 112), (118, 122), (128, 132)]
    assert ys_of(lines_of(figure, "line ", panel=1)) == [11.5] * 3
    assert [axes.get_ylim()[0] for axes in figure.axes] == [0, 0]
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["unset", "1", "4", "64"]


def test_other_axes_become_colours_and_styles(make_sweep: Sweep) -> None:
    points = grid(strategy=["ddp", "fsdp2"], precision=["a", "b"], seed=["1", "2", "3"])
    figure = plot_sweep(make_sweep(points))
    drawn = {str(line.get_gid()): line for line in figure.axes[0].lines if str(line.get_gid()).startswith("line ")}
    assert list(drawn) == ["line ddp, a", "line ddp, b", "line fsdp2, a", "line fsdp2, b"]
    assert len({(line.get_color(), line.get_linestyle()) for line in drawn.values()}) == 4
    assert len({line.get_marker() for line in drawn.values()}) == 4, "points that no line joins differ, too"
    assert drawn["line ddp, a"].get_color() == drawn["line ddp, b"].get_color()
    assert drawn["line ddp, a"].get_linestyle() == drawn["line fsdp2, a"].get_linestyle()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ddp, a", "ddp, b", "fsdp2, a", "fsdp2, b"]


def test_more_lines_than_colours_still_differ(make_sweep: Sweep) -> None:
    figure = plot_sweep(make_sweep(grid(strategy=list("abcdefghij"), seed=["1", "2"])))
    drawn = [line for line in figure.axes[0].lines if str(line.get_gid()).startswith("line ")]
    assert len({(line.get_color(), line.get_linestyle()) for line in drawn}) == 10


def test_cells_that_must_not_be_trusted_are_crossed(make_sweep: Sweep, make_run: Callable[..., RunSummary]) -> None:
    first, *others = make_sweep(CAPS).cells
    figure = plot_sweep(make_run(first.model_copy(update={"status": RunStatus.FAILED}), *others))
    crosses = [line for line in figure.axes[0].lines if line.get_gid() == "doubtful"]
    assert [ys_of(cross) for cross in crosses] == [[100]]


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (["1", "2"], "x"),
        (["unset", "1", "2"], "x"),
        (["1", "a"], None),
        (["unset", "1"], None),
        (["[0.9, 0.99]", "[0.9, 0.95]"], None),
    ],
)
def test_an_axis_is_numeric_when_all_that_is_set_is_a_number(values: list[str], name: str | None) -> None:
    axis = find_numeric_axis([sweep.SweepAxis("x", tuple(values))])
    assert (axis and axis.name) == name


def test_a_narrow_axis_is_drawn_as_it_is_and_in_order() -> None:
    scale = make_scale(sweep.SweepAxis("x", ("3", "1", "2", "-")))
    assert (scale.values, scale.positions, scale.border) == (("1", "2", "3"), (1, 2, 3), None)


def bars_of(figure: Figure, gid: str) -> list[float]:
    return [bar.get_width() for bar in figure.axes[0].patches if isinstance(bar, Rectangle) and bar.get_gid() == gid]


def test_without_a_numeric_axis_each_cell_is_a_bar_of_exposed_communication_and_the_rest(
    make_run: Callable[..., RunSummary],
) -> None:
    summary = make_run()
    figure = plot_sweep(summary)
    assert bars_of(figure, "grad_reduce") == pytest.approx([12, 31])
    assert bars_of(figure, "unshard") == pytest.approx([24])
    assert bars_of(figure, "tensor") == pytest.approx([37])
    assert bars_of(figure, "rest") == pytest.approx([152 - 12, 258 - 92])
    measured = [line for line in figure.axes[0].lines if line.get_gid() == "measured"]
    assert [xs_of(point) for point in measured] == [[142], [231]]
    assert figure.axes[0].get_xlim()[0] == 0
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == ["ddp", "fsdp2_tp (knob differs)"]


@pytest.mark.parametrize("lost", ["the account", "a purpose"])
def test_a_cell_whose_profiled_step_is_not_known_has_a_word_and_no_bar(
    make_run: Callable[..., RunSummary], lost: str
) -> None:
    first, second = make_run().cells
    purposes = (first.purposes[0].model_copy(update={"exposed_ns": None}), *first.purposes[1:])
    change = {"ranks": ()} if lost == "the account" else {"purposes": purposes}
    axes = plot_sweep(make_run(first.model_copy(update=change), second)).axes[0]
    assert {round(bar.get_y() + bar.get_height() / 2) for bar in axes.patches if isinstance(bar, Rectangle)} == {1}
    assert [text.get_text().strip() for text in axes.texts if text.get_gid() == "not known"] == ["n/a"]
    assert axes.get_xlabel().endswith("n/a: where the PROFILED step went is not known")


def test_what_was_exposed_is_one_part_where_nobody_says_for_what(make_run: Callable[..., RunSummary]) -> None:
    first, second = make_run().cells
    axes = plot_sweep(make_run(first.model_copy(update={"purposes": ()}), second)).axes[0]
    exposed_ms = sweep.exposed_ns(first) / MS
    assert [bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle) and bar.get_gid() == "untold"] == [
        pytest.approx(exposed_ms)
    ]
    part = KnownPart(launches=(1,), of_launches=2, steps=1, of_steps=1)
    purposes = tuple(row.model_copy(update={"part": part}) for row in first.purposes)
    axes = plot_sweep(make_run(first.model_copy(update={"purposes": purposes}), second)).axes[0]
    assert [text.get_text().strip() for text in axes.texts if text.get_gid() == "not known"] == ["n/a"]


def test_a_cell_whose_exposed_time_is_not_known_is_named_beside_lines(make_sweep: Sweep) -> None:
    first, *others = make_sweep(CAPS).cells
    lost = first.model_copy(update={"name": "lost", "ranks": ()})
    summary = make_sweep(CAPS).model_copy(update={"cells": (lost, *others)})
    assert "what was exposed is not known of lost" in plot_sweep(summary).get_supxlabel()


def test_a_cell_without_a_measured_step_is_named_beside_the_picture_that_lacks_it(
    make_run: Callable[..., RunSummary], make_sweep: Sweep
) -> None:
    for coordinates in ([{"a": "1"}, {"a": "2"}, {"a": "3"}], [{"a": "x"}, {"a": "y"}, {"a": "z"}]):
        first, *others = make_sweep(coordinates).cells
        time = first.step_time.model_copy(update={"median": math.nan, "low": math.nan, "high": math.nan})
        lost = first.model_copy(update={"name": "lost", "step_time": time})
        heading = plot_sweep(make_run(lost, *others)).get_suptitle()
        assert heading.endswith("; no MEASURED step, so nothing drawn, of lost")


def test_a_run_without_a_measured_step_says_so(make_run: Callable[..., RunSummary], make_sweep: Sweep) -> None:
    cells = make_sweep(CAPS).cells
    nan = dict.fromkeys(("median", "low", "high"), float("nan"))
    unknown = [cell.model_copy(update={"step_time": cell.step_time.model_copy(update=nan)}) for cell in cells]
    figure = plot_sweep(make_run(*unknown))
    assert "No step was measured" in figure.axes[0].texts[0].get_text()
    assert len(plot_sweep(make_run(unknown[0], *cells[1:])).axes) == 2, "one cell that failed hides no other"


def test_a_line_whose_name_begins_with_an_underscore_is_in_the_legend(make_sweep: Sweep) -> None:
    figure = plot_sweep(make_sweep(grid(**{"parallel.bucket_cap_mb": ["1", "4"], "way": ["_odd", "plain"]})))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["_odd", "plain"]


def test_pictures_of_a_hundred_cells_stay_pictures(make_sweep: Sweep) -> None:
    hundred = make_sweep(grid(strategy=list("abcdefghij"), way=[f"w{way}" for way in range(5)], more=["x", "y"]))
    figure = plot_sweep(hundred)
    assert len(bars_of(figure, "rest")) == MOST_BARS
    assert "the first 40 of 100 cells" in figure.get_suptitle()
    breakdown = plot_step_breakdown(hundred)
    assert breakdown.get_size_inches()[1] < 25
    assert f"the first {MOST_CELLS} of 100 cells" in breakdown.axes[0].get_title(loc="left")


def read_back(folder: Path) -> EventAccumulator:
    reader = EventAccumulator(str(folder))
    reader.Reload()
    return reader


def content(folder: Path, tag: str) -> bytes:
    found: bytes = read_back(folder).SummaryMetadata(tag).plugin_data.content
    return found


def test_the_hparams_page_gets_axes_as_settings_and_numbers_as_results(
    make_sweep: Sweep, steps: pd.DataFrame, purposes: pd.DataFrame, tmp_path: Path
) -> None:
    summary = make_sweep(grid(strategy=["ddp", "fsdp2"], parallel__bucket_cap_mb=["1", "4"], python=["x"]))
    write_tensorboard(summary, tmp_path / "tb", steps=steps, purposes=purposes, environment=None)
    found = metadata.parse_experiment_plugin_data(content(tmp_path / "tb", metadata.EXPERIMENT_TAG))
    assert [info.name for info in found.hparam_infos] == ["strategy", "parallel.bucket_cap_mb"]
    assert [value.number_value for value in found.hparam_infos[1].domain_discrete.values] == [1, 4]
    names = ["step_ms", "exposed_ms", "hidden_fraction", "gradient_wait_ms", "tokens_per_second", "peak_host_mib"]
    assert [info.display_name for info in found.metric_infos] == names, "what no cell knows is no column"
    folder = tmp_path / "tb" / "fsdp2.4.x"
    start = metadata.parse_session_start_info_plugin_data(content(folder, metadata.SESSION_START_INFO_TAG))
    assert start.hparams["strategy"].string_value == "fsdp2"
    assert start.hparams["parallel.bucket_cap_mb"].number_value == 4
    tags = read_back(folder).Tags()["scalars"]
    assert {info.name.tag for info in found.metric_infos} <= set(tags)
    assert metadata.SESSION_END_INFO_TAG in read_back(folder).summary_metadata


def test_settings_of_cells_without_axes_are_the_fields_that_some_cell_has_otherwise_than_by_default() -> None:
    settings = find_settings(summarize_run(Path(__file__).parents[2] / "results" / "example").cells)
    assert set(settings["ddp"]) == {
        *(
            f"parallel.{name}"
            for name in ("kind", "replicas", "shards", "tensor", "bucket_cap_mb", "sequence_parallel")
        ),
        *(f"parallel.{name}" for name in ("unshard_async_op", "forward_prefetch")),
        *(f"network.between_nodes.{name}" for name in ("latency_us", "bandwidth_gb_per_s", "ranks_per_node")),
    }
    assert (settings["ddp"]["parallel.tensor"], settings["fsdp2_tp"]["parallel.tensor"]) == ("1", "2")  # 1 is default


def test_a_cell_that_must_not_be_trusted_is_no_success_on_the_hparams_page(
    make_ddp: Callable[..., CellSummary],
) -> None:
    good = make_ddp()
    assert good.correctness is not None
    wrong = good.correctness.model_copy(update={"passed": False})
    for update, status in (
        ({}, api_pb2.STATUS_SUCCESS),
        ({"rank_doubts": ("rank 1 has no record",)}, api_pb2.STATUS_UNKNOWN),
        ({"correctness": wrong}, api_pb2.STATUS_FAILURE),
        ({"status": RunStatus.RUNNING}, api_pb2.STATUS_RUNNING),
    ):
        _, end = session(good.model_copy(update=update), {good.name: {}})
        found = metadata.parse_session_end_info_plugin_data(end.metadata.plugin_data.content)
        assert found.status == status


def test_without_axes_the_fields_that_differ_are_the_settings(
    make_run: Callable[..., RunSummary], steps: pd.DataFrame, purposes: pd.DataFrame, tmp_path: Path
) -> None:
    write_tensorboard(make_run(), tmp_path / "tb", steps=steps, purposes=purposes, environment=None)
    found = metadata.parse_experiment_plugin_data(content(tmp_path / "tb", metadata.EXPERIMENT_TAG))
    names = {info.name for info in found.hparam_infos}
    assert {"parallel.kind", "parallel.tensor", "parallel.forward_prefetch"} <= names
    assert "model.layers" not in names


def test_the_files_of_a_hundred_cells_are_written_in_seconds(
    make_sweep: Sweep, steps: pd.DataFrame, purposes: pd.DataFrame, tmp_path: Path
) -> None:
    hundred = make_sweep(grid(strategy=list("abcdefghij"), seed=[str(seed) for seed in range(10)]))
    many = pd.concat([steps.assign(cell=cell.name) for cell in hundred.cells])
    started = time.process_time()
    write_tensorboard(hundred, tmp_path / "tb", steps=many, purposes=purposes, environment=None)
    assert time.process_time() - started < 30  # of CPU, where drawing a picture of each takes minutes
    assert len(list((tmp_path / "tb").rglob("*tfevents*"))) == 101


@pytest.mark.parametrize(
    ("update", "words"),
    [
        ({"doubts": (Doubt(DoubtKind.UNLIKE_MEASURED, (2.1,)),)}, "PROFILED steps of `ddp` may not stand for the run"),
        ({"unseen_collectives": 3}, "at least so much is exposed of `ddp`"),
        ({"part": KnownPart(steps=4, of_steps=6)}, "ddp: bar of 4 of 6 rank steps"),
    ],
    ids=["doubted", "unseen", "in part"],
)
def test_bars_of_cells_say_what_is_no_finding_a_bound_or_known_in_part(
    update: dict[str, object], words: str, make_run: Callable[..., RunSummary], make_ddp: Callable[..., CellSummary]
) -> None:
    other = make_ddp(update={"name": "other"})
    drawn, whole = (plot_sweep(make_run(one, other)).axes[0] for one in (make_ddp(update=update), make_ddp()))
    assert drawn.get_xlabel().partition("\n")[2] == words
    assert "\n" not in whole.get_xlabel()


def test_a_cell_without_a_place_on_the_axis_is_named_and_not_called_unset(make_sweep: Sweep) -> None:
    summary = make_sweep([*CAPS, {"seed": "7"}])
    figure = plot_sweep(summary)
    assert figure.get_suptitle().endswith(f"; without bucket_cap_mb, not drawn: `{summary.cells[-1].name}`")
    assert "not drawn" not in plot_sweep(make_sweep(CAPS)).get_suptitle()
    assert find_settings(summary.cells)[summary.cells[-1].name]["parallel.bucket_cap_mb"] == NOT_ON_AXIS
