"""One step by lane: the figure, by its artists."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

import dtbench
from dtbench.base.errors import StoreError, TraceError
from dtbench.report.plots.names import Limits, figure_png, plot_timeline
from dtbench.report.plots.timeline import MOST_LANES, MOST_RANKS, merge_spans
from dtbench.store.layout import RunFolder
from dtbench.traces.spans import EXPOSED, SPANS
from tests.put_trace import put_trace

CASES = Path(__file__).parents[1] / "traces" / "cases"
RECORDED = Path(__file__).parents[1] / "traces" / "recorded"
MS = 1_000_000


def span(rank: int, lane: str, kind: str, start_ms: float, end_ms: float, **more: object) -> dict[str, object]:
    return {
        "rank": rank,
        "step": 7,
        "lane": lane,
        "lane_name": lane,
        "kind": kind,
        "name": "kernel",
        "start_ns": round(start_ms * MS),
        "end_ns": round(end_ms * MS),
        "owner": "",
        "purpose": "",
        "operation": "all_gather" if kind == "comm" else "",
        "exposed_ns": 0,
        **more,
    }


def table(rows: list[dict[str, object]], dtypes: dict[str, str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(dtypes), dtype=object).astype(dtypes)


def step_figure(spans: list[dict[str, object]], alone_ms: tuple[tuple[float, float], ...] = ()) -> Figure:
    exposed: list[dict[str, object]] = [
        {"rank": 0, "step": 7, "start_ns": int(a * MS), "end_ns": int(b * MS)} for a, b in alone_ms
    ]
    return plot_timeline(table(spans, SPANS.dtypes), table(exposed, EXPOSED.dtypes), 7)


def pieces(figure: Figure, gid: str) -> list[tuple[float, float]]:
    """Return (start, end) in ms of what was drawn under a name, in order."""
    found = [one for one in figure.axes[0].collections if isinstance(one, PolyCollection) and one.get_gid() == gid]
    boxes = [np.asarray(path.vertices)[:, 0] for one in found for path in one.get_paths()]
    return sorted((float(x.min()), float(x.max())) for x in boxes)


def title(figure: Figure) -> str:
    return figure.axes[0].get_title(loc="left")


def test_spans_lie_where_they_ran_and_exposed_time_below_them() -> None:
    figure = step_figure(
        [
            span(0, "7", "compute", 10, 40),
            span(0, "20", "comm", 30, 60, owner="layers.1", exposed_ns=20 * MS),
            span(0, "7", "compute", 60, 110),
        ],
        ((40, 60),),
    )
    assert pieces(figure, "compute") == [pytest.approx((0, 30)), pytest.approx((50, 100))]
    assert pieces(figure, "comm") == [pytest.approx((20, 50))]
    assert pieces(figure, "exposed") == [pytest.approx((30, 50))]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        "rank 0  7",
        "rank 0  20",
        "rank 0  exposed",
    ]
    assert title(figure) == "Step 7: 20.0 ms of communication exposed, most of it layers.1's all-gather"
    assert [text.get_text() for text in figure.axes[0].texts] == ["layers.1"]


def test_spans_on_each_other_and_with_pauses_too_short_to_see_are_one_piece() -> None:
    starts, ends = np.array([0, 5, 100, 111]), np.array([50, 20, 110, 120])
    assert merge_spans(starts, ends, 2).tolist() == [[0, 50], [100, 120]]
    assert merge_spans(starts, ends, 0).tolist() == [[0, 50], [100, 110], [111, 120]]
    assert merge_spans(starts[:0], ends[:0], 0).shape == (0, 2)


def test_what_is_exposed_is_the_tables_number() -> None:
    traces = dtbench.read_trace(RECORDED / "ddp_2ranks_rank0.json.gz")
    for step, exposed_ns in traces.overlap.set_index("step")["exposed_comm_ns"].items():
        figure = traces.plot_timeline(int(str(step)))
        assert sum(end - start for start, end in pieces(figure, "exposed")) * MS == pytest.approx(exposed_ns, abs=50)


def test_a_rank_without_a_trace_is_named_in_the_picture_and_in_words(tmp_path: Path) -> None:
    whole = RECORDED / "pipelines" / "1f1b"
    shutil.copy(whole / "rank0.json.gz", tmp_path)
    for folder, lacking in ((whole, False), (tmp_path, True)):
        traces = dtbench.read_trace(folder)
        assert ("of rank 1 nothing is known to be of it" in title(traces.plot_timeline())) is lacking
        assert ("Note: rank 1 of 2 is not drawn" in str(traces.timeline())) is lacking


def test_left_out_the_step_is_a_typical_one_and_an_unknown_one_is_refused() -> None:
    traces = dtbench.read_trace(RECORDED / "fsdp2_tp_2x2_rank0.json.gz")
    assert title(traces.plot_timeline()).startswith("Step 10: 110 ms of communication exposed")
    with pytest.raises(TraceError, match="have no step 99"):
        traces.plot_timeline(99)


def test_many_ranks_and_lanes_are_cut_to_the_busiest_and_said() -> None:
    spans = [
        span(rank, f"lane {lane}", "compute", 0, 1 + lane)
        for rank in range(MOST_RANKS + 2)
        for lane in range(MOST_LANES + 3)
    ]
    figure = step_figure(spans)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(labels) == MOST_RANKS * (MOST_LANES + 1)
    assert labels[0] == "rank 0  lane 3"
    assert "ranks 0 to 7 of 10" in title(figure)


def test_other_steps_spans_are_left_out_and_an_empty_step_is_said() -> None:
    figure = step_figure([span(0, "7", "compute", 0, 1, step=6)])
    assert figure.axes[0].texts[0].get_text() == "Nothing is known to have run in step 7."
    assert "no communication" in title(step_figure([span(0, "7", "compute", 0, 1)]))
    assert "overlapped with compute" in title(step_figure([span(0, "7", "comm", 0, 1)]))


def test_markup_in_names_is_text() -> None:
    name = r"<b>$x_{$\frac"
    figure = step_figure([span(0, name, "comm", 0, 10, owner=name, exposed_ns=5)], ((0, 5),))
    assert figure_png(figure).startswith(b"\x89PNG")


def test_a_run_without_traces_or_such_a_cell_says_so() -> None:
    run = dtbench.load_run(Path(__file__).parents[2] / "results" / "example")
    with pytest.raises(StoreError, match="no such cell or launch in this run; there are: ddp launch 0"):
        run.plot_timeline(cell="dpd")
    with pytest.raises(StoreError, match="trace"):
        run.plot_timeline()
    with pytest.raises(StoreError, match="trace"):
        run.timeline()


def test_the_canvas_of_a_trace_is_what_a_notebook_shows() -> None:
    timeline = dtbench.read_trace(RECORDED / "ddp_2ranks_rank0.json.gz").timeline(steps=11)
    assert list(timeline.document.shown_steps) == [11]
    assert [
        one.rank for one in dtbench.read_trace(RECORDED / "ddp_2ranks_rank0.json.gz").timeline(ranks=0).document.ranks
    ] == [0]
    assert "createTimeline" in timeline._repr_html_()


def test_communication_of_which_it_is_not_known_whether_it_was_hidden_is_not_called_hidden() -> None:
    unknown = span(0, "20", "comm", 30, 60, exposed_ns=None)
    assert title(step_figure([unknown])) == "Step 7: how much of the communication was exposed is not known"
    beside = span(0, "21", "comm", 0, 10, owner="layers.1", exposed_ns=10 * MS)
    said = title(step_figure([unknown, beside], ((0, 10),)))
    assert said.startswith("Step 7: at least 10.0 ms of communication exposed")
    traces = dtbench.read_trace(CASES / "gloo_spans_alone.json")
    assert "not known" in title(traces.plot_timeline())
    assert json.loads(traces.timeline().to_json())["notes"] == [
        "ranks 0-33, 35-299 of 300 are not drawn: no trace of them is there",
        "whether 2 collectives ran hidden or exposed is not known: drawn without hatch, and not as a finding",
    ]


def test_a_step_without_a_span_of_communication_says_that_none_was_seen() -> None:
    assert title(step_figure([span(0, "20", "compute", 0, 60)])) == "Step 7: no communication was seen"


def test_the_axis_names_a_clock_only_where_the_ranks_share_one_and_ranks_that_are_not_drawn_are_named() -> None:
    spans = table([span(rank, "7", "compute", 0, 10) for rank in (0, 1, 2)], SPANS.dtypes)
    nothing = table([], EXPOSED.dtypes)
    shared = plot_timeline(spans, nothing, 7, limits=Limits(every=(0, 1, 2)))
    assert shared.axes[0].get_xlabel() == "ms, on the clock that the ranks share"
    assert "nothing is known" not in title(shared)
    apart = plot_timeline(spans, nothing, 7, limits=Limits(apart=(2,), every=(0, 1, 2, 3)))
    said = (
        "ms, on the clock that ranks 0-1 share; rank 2 from its own start: where it lies beside the others says nothing"
    )
    assert apart.axes[0].get_xlabel() == said
    assert [label.get_text() for label in apart.axes[0].get_yticklabels()][4:] == [
        "rank 2 (own clock)  7",
        "rank 2 (own clock)  exposed",
    ]
    assert title(apart).endswith("; of rank 3 nothing is known to be of it")
    two = plot_timeline(spans[spans["rank"] < 2], nothing, 7, limits=Limits(apart=(1,)))
    assert "share" not in two.axes[0].get_xlabel()
    assert plot_timeline(spans[spans["rank"] == 0], nothing, 7).axes[0].get_xlabel() == "ms"


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ((), "500 us of communication exposed per rank, most of it layers.0's reduce-scatter"),
        ((0,), "at least 500 us of communication exposed per rank: 2 collectives were launched and not seen to run"),
        (
            (2,),
            "how much of the communication was exposed is not known: 2 collectives were launched and not seen to run",
        ),
        ((0, 1, 2), "no communication was seen: 6 collectives were launched and not seen to run"),
    ],
)
def test_what_was_launched_and_not_seen_to_run_is_not_called_hidden_nor_less_than_another(
    tmp_path: Path, lost: tuple[int, ...], said: str
) -> None:
    for rank in (0, 1):
        trace = json.loads((RECORDED / "one_hardware_queue" / "queue8" / f"rank{rank}.json").read_text())
        kernels = [one for one in trace["traceEvents"] if one.get("cat") == "kernel" and "nccl" in one["name"]]
        gone = [kernels[place] for place in lost]
        trace["traceEvents"] = [one for one in trace["traceEvents"] if one not in gone]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace))
    traces = dtbench.read_trace(tmp_path)
    assert title(traces.plot_timeline()) == f"Step 1: {said}"
    notes = json.loads(traces.timeline().to_json())["notes"]
    assert any("launched and not seen to run" in note for note in notes) is bool(lost)
    if lost == (0,):
        assert title(traces.plot_owners()) == "not judged: 2 collectives were launched and not seen to run"


def test_what_one_rank_alone_tells_is_said_to_be_of_it_in_every_picture_and_table(tmp_path: Path) -> None:
    for rank in (0, 1):
        trace = json.loads((RECORDED / "one_hardware_queue" / "queue8" / f"rank{rank}.json").read_text())
        kernels = [one for one in trace["traceEvents"] if one.get("cat") == "kernel" and "nccl" not in one["name"]]
        trace["traceEvents"] = [one for one in trace["traceEvents"] if rank or one is not kernels[0]]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace))
    traces = dtbench.read_trace(tmp_path)
    part = "of rank 1 alone, of 2"
    assert str(traces).startswith(f"{part}: ")
    assert {f"of {known}" for known in traces.owners["known_of"]} == {part}
    assert title(traces.plot_owners()).startswith(f"{part}: layers.0's")
    assert title(traces.plot_exposed()).startswith(f"{part}: grad_reduce")
    assert title(traces.plot_overlap()).startswith(f"{part}: ")
    assert title(traces.plot_ranks()).replace("\n", " ").endswith(", of what is known")
    assert title(traces.plot_timeline()) == (
        "Step 1: at least 250 us of communication exposed per rank; of rank 0 not all is known"
    )


def test_the_picture_of_a_run_names_its_launch_and_those_whose_traces_are_gone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(Path(__file__).parents[2] / "results" / "example", run)
    put_trace("fsdp2_tp_2x2_rank0.json.gz", RunFolder(run).launch("fsdp2_tp", 0))
    report = dtbench.load_run(run)
    first, asked = (title(report.plot_timeline(cell=cell)) for cell in (None, "fsdp2_tp"))
    assert first.startswith("fsdp2_tp launch0, step 10: 110 ms of communication exposed")
    assert first.endswith("; no traces are left of ddp launch0")
    assert asked.startswith("fsdp2_tp launch0, step 10: ")
    assert "no traces are left" not in asked


def test_pictures_of_traces_of_two_jobs_say_as_the_text_that_no_owner_is_told(tmp_path: Path) -> None:
    for rank, kind in enumerate(("ddp", "fsdp2")):
        shutil.copy(RECORDED / "two_ranks_one_gpu" / kind / f"rank{rank}.json.gz", tmp_path)
    traces = dtbench.read_trace(tmp_path)
    said = title(traces.plot_owners())
    assert said.endswith("of one job: why time is exposed and who waits is not said")
    assert str(traces).startswith(said)
    assert "most of it" not in title(traces.plot_timeline())
    assert title(traces.plot_timeline()).endswith("; the traces are not all, or not surely, of one job")
