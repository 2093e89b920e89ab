"""Steps at other numbers of ranks as a page, a table and a picture: what is claimed, and what is marked."""

from collections.abc import Sequence
from io import StringIO
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import FillBetweenPolyCollection
from rich.console import Console

from dtbench.base.errors import PredictionError
from dtbench.base.units import format_ns
from dtbench.report.documents.predict import AskedWorlds
from dtbench.report.notebook.predict import PREDICTED, ask_worlds, page_subject, predicted_pictures
from dtbench.report.page.page import Page, Table, Tone, words_of
from dtbench.report.page.predict_page import predict_page, predict_screen
from dtbench.report.plots.names import plot_predicted
from dtbench.report.render.html_page import page_document
from dtbench.report.render.terminal import make_table
from dtbench.runs.scaling.curve import DEFAULT_WORLDS, Subject
from dtbench.runs.scaling.links import Cluster, read_link
from dtbench.runs.scaling.measured import Measured
from dtbench.runs.scaling.subjects import Subjects, join_subjects
from dtbench.scenario.schema.scenario import Scenario
from dtbench.scenario.written import write_scenario

MS = 1e6
LAYOUTS: dict[str, dict[str, Any]] = {
    "ddp": {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 1.0},
    "fsdp2": {"kind": "fsdp2", "shards": 2},
    "fsdp2 and tensor": {"kind": "fsdp2", "shards": 2, "tensor": 2},
}


def made(parallel: dict[str, Any], **network: Any) -> Scenario:
    words: dict[str, Any] = {
        "model": {"kind": "timed", "layers": 4, "forward_ms": 10.0, "backward_ms": 20.0},
        "data": {"global_batch": 16, "sequence_length": 8},
        "parallel": parallel,
        "network": {"kind": "emulated", "latency_us": 100.0, "bandwidth_gb_per_s": 0.2, "algorithm": "ring", **network},
    }
    (cell,) = write_scenario("made", "Is it?", words).cells
    return cell.scenario


def ran(world: int = 2, *hosts_ms: float, spread_ms: float = 1.0) -> Measured:
    hosts = tuple(host * MS for host in hosts_ms or (8.0, 9.0, 10.0))
    return Measured(world, tuple(200 * MS for _ in hosts), hosts, 9 * MS, spread_ms * MS, 2)


def ask(
    *names: str, worlds: Sequence[int] = DEFAULT_WORLDS, cluster: Cluster | None = None, measured: bool = True
) -> AskedWorlds:
    found = tuple(
        Subject(name, made(LAYOUTS[name]), "2.13.0", (ran(4 if "tensor" in name else 2),) if measured else ())
        for name in names
    )
    return ask_worlds({"run": Subjects(found, {"real": "nobody knows it"})}, worlds, cluster)


def screen(asked: AskedWorlds) -> Page:
    return predict_screen(page_subject(asked))


def table_of(page: Page, key: str) -> Table:
    part = page.find(key)
    assert part is not None
    (table,) = part.blocks
    assert isinstance(table, Table)
    return table


def answer(page: Page) -> str:
    return "\n".join(line.words for line in page.answer)


def notes(page: Page) -> str:
    return "\n".join(line.words for line in page.notes)


def test_one_cell_has_a_row_for_each_number_of_ranks() -> None:
    asked = ask("ddp")
    page = screen(asked)
    assert [part.key for part in page.parts] == ["curve"]
    rows = table_of(page, "curve").words
    assert [row[0] for row in rows] == ["8", "16", "32", "64", "128", "256", "512", "1,024", "2,048", "4,096"]
    for row, point in zip(rows, asked.curves[0].points, strict=True):
        assert row[1] == f"{format_ns(point.step_ns)}*"
        assert point.high_ns is not None
        assert row[2] == f"±{format_ns(point.high_ns - point.step_ns)}"
    assert "at 8 ranks" in answer(page)
    assert "at 4,096" in answer(page)
    assert page.answer[0].tone is Tone.STRONG


def test_several_cells_have_a_table_over_ranks_and_one_side_by_side() -> None:
    page = screen(ask(*LAYOUTS))
    assert [part.key for part in page.parts] == ["curves", "layouts"]
    steps = table_of(page, "curves")
    assert [column.title for column in steps.columns] == ["cell", "8", "32", "128", "256", "1,024", "4,096"]
    assert "4 more numbers of ranks" in steps.said[0]
    layouts = table_of(page, "layouts")
    values = [cell.value for row in layouts.rows for cell in row[1:2] if not isinstance(cell, str)]
    assert values == sorted((value for value in values if value is not None), reverse=True)
    whole = predict_page(page_subject(ask(*LAYOUTS)))
    assert [part.key for part in whole.parts[2:]] == [f"cell:{name}" for name in LAYOUTS]


def test_at_one_number_of_ranks_cells_stand_side_by_side_alone() -> None:
    page = screen(ask("ddp", "fsdp2", worlds=[64]))
    assert [part.key for part in page.parts] == ["layouts"]
    assert "at 64 ranks `ddp` is the fastest: a step of" in answer(page)
    assert "; `fsdp2` takes" in answer(page)


def test_cells_with_unlike_batches_are_told_apart_by_tokens() -> None:
    """Two ranks of a tensor axis share the rows of one: at as many ranks half the tokens."""
    page = screen(ask("fsdp2", "fsdp2 and tensor", worlds=[64]))
    first, second = table_of(page, "layouts").rows
    assert (first[0], second[0]) == ("fsdp2", "fsdp2 and tensor")
    assert "`fsdp2 and tensor` takes" in answer(page)
    assert "for 0.5 times the tokens" in answer(page)
    assert "unlike global batches" in notes(page)
    assert "unlike global batches" not in notes(screen(ask("ddp", "fsdp2")))


def test_the_fastest_is_sure_only_where_intervals_are_apart() -> None:
    near = ask_worlds(
        {
            "run": Subjects(
                (
                    Subject("a", made(LAYOUTS["ddp"]), measured=(ran(),)),
                    Subject("b", made({**LAYOUTS["ddp"], "static_graph": True}), measured=(ran(),)),
                )
            )
        },
        [8],
    )
    assert "none is surely the fastest" in answer(screen(near))
    untold = answer(screen(ask("ddp", "fsdp2", worlds=[64], measured=False)))
    assert "`ddp` comes first" in untold
    assert "fastest" not in untold


def test_a_host_that_is_not_known_is_said_first() -> None:
    page = screen(ask("ddp", measured=False))
    assert page.answer[0].words.startswith("the host's time is not known: taken as none")
    assert page.answer[0].tone is Tone.WARNING
    assert {row[2] for row in table_of(page, "curve").words} == {"n/a"}
    assert "with the host's time" not in notes(page)
    one = Subject("known", made(LAYOUTS["ddp"]), measured=(ran(),))
    two = Subject("blind", made(LAYOUTS["fsdp2"]))
    mixed = screen(ask_worlds({"x": Subjects((one, two))}, [8]))
    assert mixed.answer[0].words.startswith("the host's time of blind is not known")


def test_notes_say_what_grows_what_is_extrapolated_and_whose_figures_links_are() -> None:
    said = notes(screen(ask("ddp", "fsdp2", "fsdp2 and tensor")))
    assert "data.global_batch grows with the ranks" in said
    assert "parallel.replicas or parallel.shards is what grows of the mesh" in said
    assert "the host takes 9.00 ms of a step of ddp at 2 ranks (3 launches), 9.00 ms of a step of fsdp2 at 2" in said
    assert (
        "the host takes 9.00 ms of a step of fsdp2 and tensor at 4 ranks (3 launches); it is taken not to grow" in said
    )
    assert "* extrapolated, beyond all that predictions were ever held against: more than" in said
    assert "a step waits for its slowest rank" in said
    assert "real: nobody knows it" in said
    cluster = Cluster(read_link("nvlink4"), read_link("400G"), 8)
    said = notes(screen(ask("ddp", cluster=cluster, worlds=[8, 12])))
    assert "nvlink4: NVIDIA H100" in said
    assert "400G: docs.nvidia.com/networking" in said
    assert "nominal, so no collective is faster" in said
    assert "where up to 8 ranks share such a machine its CPU time grows with ranks to a core" in said
    assert "ddp: network.between_nodes.ranks_per_node=8" in said  # 12 ranks do not divide into nodes of 8


def test_machines_without_a_link_between_them_are_named() -> None:
    alone = Cluster(None, None, 8)
    assert "more than 8 ranks are on several machines, and no --between" in notes(screen(ask("ddp", cluster=alone)))
    assert "no --between" not in notes(screen(ask("ddp", cluster=alone, worlds=[2, 8])))
    assert "no --between" not in notes(screen(ask("ddp", cluster=Cluster(None, read_link("400G"), 8))))
    assert "no --between" not in notes(screen(ask("ddp")))


def test_links_that_do_not_grow_with_ranks_are_named() -> None:
    one = Subject("flat", made(LAYOUTS["ddp"], algorithm="direct"), measured=(ran(),))
    said = notes(screen(ask_worlds({"x": Subjects((one,))}, [8, 64])))
    assert "`flat`: over network.algorithm=direct a collective costs the same among any number of ranks" in said
    assert "algorithm=direct" not in notes(screen(ask("ddp")))


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("names", [["ddp"], [*LAYOUTS]])
def test_tables_fit_the_width_and_break_no_number(width: int, names: list[str]) -> None:
    page = screen(ask(*names))
    for part in page.parts:
        for block in part.blocks:
            assert isinstance(block, Table)
            console = Console(width=width, record=True, file=StringIO())
            console.print(make_table(Table("", block.columns, block.rows), is_roomy=True))
            printed = console.export_text()
            assert all(len(line) <= width for line in printed.splitlines())
            for row in block.rows:
                for cell in map(words_of, row[1:]):
                    assert cell in printed


def test_runs_of_one_work_become_one_cell_and_others_keep_their_names() -> None:
    two, four = (
        Subject("ddp", made({**LAYOUTS["ddp"], "replicas": count}), measured=(ran(count),)) for count in (2, 4)
    )
    joined = join_subjects({"results/x/1": Subjects((two,)), "results/x/2": Subjects((four,), {"b": "no"})})
    (one,) = joined.found
    assert [each.world for each in one.measured] == [2, 4]
    assert joined.refused == {"2: b": "no"}
    said = notes(screen(ask_worlds({"a": Subjects((two,)), "b": Subjects((four,))}, [8], Cluster(None, None, 8))))
    assert "9.00 ms of a step at 2 ranks (3 launches), 9.00 ms of a step at 4 ranks (3 launches)" in said
    assert "where up to 8 ranks share such a machine it is on the line through these" in said
    other = Subject("ddp", made(LAYOUTS["fsdp2"]), measured=(ran(),))
    assert [each.name for each in join_subjects({"r/1": Subjects((two,)), "r/2": Subjects((other,))}).found] == [
        "ddp",
        "2:ddp",
    ]
    blind = Subject("ddp", made(LAYOUTS["ddp"]))
    assert len(join_subjects({"a": Subjects((blind,)), "b": Subjects((blind,))}).found) == 1


def test_where_nothing_can_be_said_of_any_cell_all_say_why() -> None:
    one = Subject("a", made({"kind": "fsdp2", "shards": 8, "replicas": 2}))
    with pytest.raises(PredictionError, match="b: nobody knows; a: 9 ranks do not divide"):
        ask_worlds({"x": Subjects((one,), {"b": "nobody knows"})}, [9])


def drawn_lines(axes: Axes) -> list[tuple[str, list[float], list[float]]]:
    """Return the style and the points of each line that has any."""
    lines = [(str(line.get_linestyle()), np.asarray(line.get_xydata(), dtype=np.float64)) for line in axes.lines]
    return [(style, xy[:, 0].tolist(), xy[:, 1].tolist()) for style, xy in lines if len(xy)]


def test_the_picture_has_a_band_and_hatches_what_is_extrapolated() -> None:
    table = PREDICTED.tabulate(ask("ddp", worlds=[2, 4, 8, 64, 1024]))
    figure = plot_predicted(table)
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    sure, far = drawn_lines(axes)
    assert (sure[0], far[0]) == ("-", "--")
    assert (sure[1], far[1]) == ([2, 4], [4, 8, 64, 1024])
    assert far[2] == pytest.approx((table["step_ns"][1:] / MS).tolist())
    bands = [one for one in axes.collections if isinstance(one, FillBetweenPolyCollection)]
    assert [bool(band.get_hatch()) for band in bands] == [False, True]
    heights = np.asarray(bands[1].get_paths()[0].vertices)[:, 1]
    assert heights.max() == pytest.approx(float(table["high_ns"].max()) / MS)
    assert "at 1,024 ranks" in axes.get_title(loc="left")


def test_pictures_of_several_cells_and_of_cells_without_a_band() -> None:
    axes = plot_predicted(PREDICTED.tabulate(ask(*LAYOUTS))).axes[0]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [*LAYOUTS]
    blind = plot_predicted(PREDICTED.tabulate(ask("ddp", measured=False)))
    assert [style for style, _, _ in drawn_lines(blind.axes[0])] == ["--"]
    empty = plot_predicted(PREDICTED.tabulate(ask("ddp")).iloc[:0])
    assert "Nothing can be said" in empty.axes[0].texts[0].get_text()


def test_the_file_has_the_picture_in_its_part() -> None:
    asked = ask("ddp", "fsdp2")
    html = page_document(predict_page(page_subject(asked)), predicted_pictures(asked))
    assert html.count("<svg") > page_document(predict_page(page_subject(asked))).count("<svg")
    assert not predicted_pictures(ask("ddp", worlds=[8]))
