"""Whose communication was exposed, and how much of each step: the figures, by their artists."""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import dtbench
from dtbench.base.vocabulary import Cause
from dtbench.report.page.run_tables import OWNERS
from dtbench.report.plots.exposed import CAUSE_PARTS, MOST_BARS
from dtbench.report.plots.names import Whole, figure_png, plot_exposed, plot_exposed_owners, plot_overlap
from dtbench.report.plots.overlap import MOST_STEPS

RECORDED = Path(__file__).parents[1] / "traces" / "recorded"
MS = 1_000_000


def owner_row(owner: str, cause: Cause, exposed_ms: float, *, purpose: str = "unshard") -> dict[str, object]:
    return {
        "owner": owner,
        "operation": "all_gather",
        "purpose": purpose,
        "cause": cause.value,
        "exposed_ns": exposed_ms * MS,
        "owner_exposed_ns": exposed_ms * MS,
        "waited_for": None,
    }


def owners_of(*rows: dict[str, object]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(OWNERS.dtypes), dtype=object).astype(OWNERS.dtypes)


def rectangles(figure: Figure, panel: int = 0) -> list[Rectangle]:
    return [patch for patch in figure.axes[panel].patches if isinstance(patch, Rectangle)]


def labels(figure: Figure, panel: int = 0) -> list[str]:
    return [label.get_text() for label in figure.axes[panel].get_yticklabels()]


def title(figure: Figure, panel: int = 0) -> str:
    return figure.axes[panel].get_title(loc="left")


def test_the_bars_are_the_tables_numbers_longest_owner_first_and_the_title_names_it() -> None:
    owners = owners_of(
        owner_row("layers.0", Cause.TAIL, 2),
        owner_row("layers.1", Cause.SKEW, 3),
        owner_row("layers.1", Cause.LATE_ISSUE, 4),
    )
    figure = plot_exposed_owners(owners)
    assert [bar.get_gid() for bar in rectangles(figure)] == ["skew", "late_issue", "tail"]
    assert [bar.get_x() for bar in rectangles(figure)] == pytest.approx([0, 3, 0])
    assert [bar.get_width() for bar in rectangles(figure)] == pytest.approx([3, 4, 2])
    assert labels(figure) == ["layers.1, all-gather", "layers.0, all-gather"]
    assert title(figure) == "layers.1's all-gather leaves most exposed: 77.8 % of 9.00 ms"


def test_owners_that_do_not_fit_are_one_more_bar_by_cause() -> None:
    rows = [owner_row(f"layers.{place}", Cause.TAIL, 100 - place) for place in range(MOST_BARS + 2)]
    figure = plot_exposed_owners(owners_of(*rows, owner_row("head", Cause.SKEW, 3), owner_row("head", Cause.TAIL, 4)))
    assert labels(figure)[-1] == "3 more"
    skew, tail = rectangles(figure)[-2:]
    assert [(bar.get_gid(), bar.get_width()) for bar in (skew, tail)] == [("skew", 3), ("tail", 86 + 85 + 4)]
    assert figure.axes[0].texts[-1].get_text() == " 178 ms"
    assert figure.axes[0].get_xlim()[1] > 178


def test_owners_that_do_not_fit_and_are_known_of_different_steps_have_no_sum() -> None:
    rows = [owner_row(f"layers.{place}", Cause.TAIL, 100 - place) for place in range(MOST_BARS + 2)]
    owners = owners_of(*rows)
    owners.loc[MOST_BARS, "known_of"] = "2 of 5 steps"
    figure = plot_exposed_owners(owners)
    assert len(rectangles(figure)) == MOST_BARS
    assert "n/a together: known of different steps" in figure.axes[0].texts[-1].get_text()


def test_purposes_are_bars_split_by_cause_and_add_up_to_what_owners_exposed() -> None:
    owners = owners_of(
        owner_row("layers.0", Cause.TAIL, 2),
        owner_row("layers.1", Cause.SKEW, 3),
        owner_row("layers.1", Cause.TAIL, 4),
        owner_row("layers.1", Cause.TAIL, 8, purpose="tensor"),
    )
    figure = plot_exposed(owners)
    assert labels(figure) == ["unshard", "tensor"]
    assert [(bar.get_gid(), bar.get_x(), bar.get_width()) for bar in rectangles(figure)] == [
        ("skew", 0, 3),
        ("tail", 3, 6),
        ("tail", 0, 8),
    ]
    assert title(figure) == "unshard leaves most exposed: 52.9 % of 17.0 ms"


def test_purposes_that_are_known_of_different_steps_are_not_summed() -> None:
    owners = owners_of(owner_row("layers.0", Cause.TAIL, 2), owner_row("layers.1", Cause.TAIL, 3))
    owners.loc[0, "known_of"] = "2 of 5 steps"
    figure = plot_exposed(owners)
    assert [bar.get_width() for bar in rectangles(figure)] == [3, 2]
    assert "not told" in title(figure)
    assert "2 of 5 steps" in figure.axes[0].get_xlabel()


def test_collectives_of_one_owner_are_told_apart_by_their_purpose() -> None:
    figure = plot_exposed_owners(
        owners_of(owner_row("", Cause.TAIL, 2), owner_row("", Cause.TAIL, 1, purpose="tensor"))
    )
    assert labels(figure) == ["unattributed, all-gather (unshard)", "unattributed, all-gather (tensor)"]


def test_every_cause_looks_different_in_grey() -> None:
    looks = {
        (part.look.hatch, round(sum(int(part.look.colour[at : at + 2], 16) for at in (1, 3, 5)) / 96))
        for part in CAUSE_PARTS.values()
    }
    assert set(CAUSE_PARTS) == set(Cause)
    assert len(looks) == len(Cause)


def test_each_cell_has_its_own_axes() -> None:
    first = owners_of(owner_row("layers.0", Cause.TAIL, 2)).assign(cell="ddp")
    second = owners_of(owner_row("layers.0", Cause.TAIL, 200)).assign(cell="fsdp2")
    figure = plot_exposed_owners(pd.concat([first, second]))
    assert [title(figure, panel).split(":")[0] for panel in range(2)] == ["ddp", "fsdp2"]
    assert figure.axes[0].get_xlim()[1] < 3
    assert figure.axes[1].get_xlim()[1] > 200


def test_of_very_many_cells_the_first_are_drawn_and_it_is_said() -> None:
    many = [owners_of(owner_row("layers.0", Cause.TAIL, 2)).assign(cell=f"c{place}") for place in range(20)]
    figure = plot_exposed_owners(pd.concat(many))
    assert len(figure.axes) == 12
    assert "the first 12 of 20 cells" in figure.axes[-1].get_xlabel()


def test_the_only_cell_of_several_whose_steps_are_known_is_named() -> None:
    known = overlap_of({(0, 7): 5, (1, 7): 15}).assign(cell="ddp", launch=0)
    lost = known.assign(cell="other", exposed_comm_ns=pd.array([pd.NA] * len(known), dtype="Int64"))
    title = plot_overlap(pd.concat([known, lost])).axes[0].get_title(loc="left")
    assert title.startswith("ddp: ")
    assert not plot_overlap(known).axes[0].get_title(loc="left").startswith("ddp")


def test_nothing_exposed_is_said() -> None:
    (text,) = plot_exposed_owners(owners_of()).axes[0].texts
    assert text.get_text().startswith("No exposed communication")


def test_markup_in_an_owners_name_is_text() -> None:
    name = r"<b>$x_{$[bold]\frac{1}{2}"
    figure = plot_exposed_owners(owners_of(owner_row(name, Cause.TAIL, 2)).assign(cell="a$b^$"))
    assert figure_png(figure).startswith(b"\x89PNG")
    assert labels(figure)[0].replace(r"\$", "$").startswith(name)


def test_a_notebook_shows_a_figure_without_pyplot() -> None:
    figure = plot_exposed_owners(owners_of(owner_row("layers.0", Cause.TAIL, 2)))
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_overlap_stacks_what_is_hidden_on_what_is_exposed() -> None:
    traces = dtbench.read_trace(RECORDED / "ddp_2ranks_rank0.json.gz")
    figure = plot_overlap(traces.overlap)
    exposed = [bar for bar in rectangles(figure) if bar.get_gid() == "exposed_comm_ns"]
    hidden = [bar for bar in rectangles(figure) if bar.get_gid() == "hidden_comm_ns"]
    assert [bar.get_height() * MS for bar in exposed] == pytest.approx(traces.overlap["exposed_comm_ns"].tolist())
    assert [bar.get_height() * MS for bar in hidden] == pytest.approx(traces.overlap["hidden_comm_ns"].tolist())
    for below, above in zip(exposed, hidden, strict=True):
        assert above.get_y() == pytest.approx(below.get_height())


def overlap_of(exposed_ms: dict[tuple[int, int], int]) -> pd.DataFrame:
    """Return steps of ranks of 100 ms each, with 20 ms of communication."""
    return pd.DataFrame(
        {
            "rank": rank,
            "step": step,
            "step_ns": 100 * MS,
            "comm_ns": 20 * MS,
            "hidden_comm_ns": (20 - exposed) * MS,
            "exposed_comm_ns": exposed * MS,
        }
        for (rank, step), exposed in exposed_ms.items()
    )


def test_a_bar_is_the_mean_over_ranks_and_each_rank_is_a_dot() -> None:
    figure = plot_overlap(overlap_of({(0, 7): 5, (1, 7): 15}))
    (exposed,) = [bar for bar in rectangles(figure) if bar.get_gid() == "exposed_comm_ns"]
    assert exposed.get_height() == pytest.approx(10)
    (dots,) = figure.axes[0].lines
    assert sorted(np.asarray(dots.get_ydata())) == pytest.approx([5, 15])
    assert title(figure) == "50.0 % of the communication is hidden, 10.0 ms of a step exposed (10.0 %)"


def test_a_mean_over_some_ranks_or_launches_is_said_to_be_of_them() -> None:
    table = overlap_of({(0, 7): 5, (1, 7): 15})
    lost = table.assign(exposed_comm_ns=table["exposed_comm_ns"].where(table["rank"] == 0).astype("Int64"))
    said = "of rank 0 alone, of 2: 75.0 % of the communication is hidden, 5.00 ms of a step exposed (5.0 %)"
    assert title(plot_overlap(lost)).replace("\n", " ") == said
    for absent, whole in (
        (table[table["rank"] == 0], Whole(range(2))),
        (table[table["rank"] == 0].assign(launch=0), Whole(range(2), (0,))),
    ):
        assert title(plot_overlap(absent, wholes={"": whole})).replace("\n", " ") == said
    of_launch = title(plot_overlap(table.assign(launch=1), wholes={"": Whole(range(2), range(4))}))
    assert of_launch.startswith("of launch1 alone, of 4: 50.0 %")


def test_where_none_was_seen_of_what_was_launched_it_is_not_said_that_there_is_none() -> None:
    none = overlap_of({(0, 7): 0}).assign(comm_ns=0, hidden_comm_ns=0)
    assert title(plot_overlap(none)) == "no communication"
    said = title(plot_overlap(none.assign(is_least=True)))
    assert said.startswith("no communication was seen: more communication was launched")


def test_more_steps_than_fit_are_one_more_bar_their_mean() -> None:
    figure = plot_overlap(overlap_of({(0, step): step for step in range(MOST_STEPS + 40)}))
    bars = [bar for bar in rectangles(figure) if bar.get_gid() == "exposed_comm_ns"]
    assert len(bars) == MOST_STEPS + 1
    assert bars[-1].get_height() == pytest.approx(sum(range(MOST_STEPS, MOST_STEPS + 40)) / 40)
    assert figure.axes[0].get_xticklabels()[-1].get_text() == "40 more,\nmean"


def test_no_profiled_step_is_said() -> None:
    assert plot_overlap(overlap_of({})).axes[0].texts[0].get_text() == "No step was profiled."


def test_a_run_draws_its_own_tables() -> None:
    run = dtbench.load_run(Path(__file__).parents[2] / "results" / "example")
    bars = [bar for bar in rectangles(run.plot_overlap()) if bar.get_gid() == "exposed_comm_ns"]
    ddp = run.overlap[run.overlap["cell"] == "ddp"]
    assert [bar.get_height() * MS for bar in bars] == pytest.approx(
        ddp.groupby("step")["exposed_comm_ns"].mean().tolist()
    )
    assert len(run.plot_step_distribution().axes[0].lines) == 2


def test_overlap_of_steps_that_may_stand_for_no_others_says_so_below_the_panel() -> None:
    doubted = plot_overlap(overlap_of({(0, 7): 5}), {"": "NOT REPRESENTATIVE: why"}).axes[0]
    assert doubted.get_xlabel() == "NOT REPRESENTATIVE: why\nPROFILED step, of the trace"
    assert plot_overlap(overlap_of({(0, 7): 5}), {}).axes[0].get_xlabel() == "PROFILED step, of the trace"


def test_a_step_of_which_communication_is_lost_is_a_bound_in_the_table_and_in_the_picture(tmp_path: Path) -> None:
    file = RECORDED / "ddp_2ranks_rank0.json.gz"
    whole = dtbench.read_trace(file)
    assert not whole.overlap["is_least"].any()
    assert "is hidden" in plot_overlap(whole.overlap).axes[0].get_title(loc="left")
    document = json.loads(gzip.decompress(file.read_bytes()))
    spans = [event for event in document["traceEvents"] if str(event.get("name")).startswith("gloo:")]
    document["traceEvents"].remove(spans[len(spans) // 2])
    (tmp_path / "lossy.json").write_text(json.dumps(document), encoding="utf-8")
    lossy = dtbench.read_trace(tmp_path / "lossy.json")
    assert lossy.overlap["is_least"].sum() == 1
    assert lossy.whole["is_least"].tolist() == [True]
    title = plot_overlap(lossy.overlap).axes[0].get_title(loc="left").replace("\n", " ")
    assert title.startswith("at least ")
    assert title.endswith("more communication was launched than was seen to run")
    assert "hidden" not in title
