"""What a picture of traces shows: every span on its lane, and exposed time that adds up to what is counted."""

import dataclasses
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dtbench.base.errors import TraceError
from dtbench.base.vocabulary import Kind
from dtbench.traces.job.chosen_steps import StepRange
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.lacking import LostCopies
from dtbench.traces.notes.note import pick_notes, say_notes
from dtbench.traces.ranks.clocks.clocks import Clocks
from dtbench.traces.ranks.clocks.times import Clock
from dtbench.traces.ranks.over_ranks import OverRanks
from dtbench.traces.spans import EXPOSED, SPANS, JobSpans, collect_spans
from dtbench.traces.spans.place import place_ranks
from dtbench.traces.spans.span_rows import arrange_lanes
from dtbench.traces.spans.work import KINDS
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import clip, unite

REAL = Path(__file__).parents[4] / "shared" / "traces"
GLOO = Path(__file__).parents[1] / "recorded"
ALL_TRACES = [
    GLOO / "ddp_2ranks_rank0.json.gz",
    GLOO / "fsdp2_tp_2x2_rank0.json.gz",
    REAL / "v100x8_dlrm_all_ranks.tar.gz",
    REAL / "a100x8_ddp_rank.json.gz",
    REAL / "mi300x_ddp_rank.json.gz",
    REAL / "h800_deepep_train.json.gz",
]

SAID = (
    '{"Collective name": "allreduce", "In msg nelems": 8, "dtype": "Float", "Seq": 1,'
    ' "Process Group Name": "0", "Process Group Description": "mesh_dp_shard"}'
)
JOB = """
step ProfilerStep#{first}           @1  |==========          |
step ProfilerStep#{second}          @1  |          ==========|
call cudaLaunchKernel               @1  |a b c     d  e      |
kernel gemm                         @7  |  aaa       dddd    |
copy Memcpy DtoD                    @7  |        cc          |
kernel ncclDevKernel_AllReduce_Sum  @20 |   bbbb       eeeee | {said}
"""


@pytest.fixture
def job(draw: Callable[..., Path]) -> TraceSet:
    """Two ranks that did the same, one collective in each of two steps."""
    paths = []
    for rank in (0, 1):
        drawing = JOB.format(first=5, second=6, said=SAID)
        paths.append(draw(drawing, f"rank{rank}.json", distributedInfo={"rank": rank, "world_size": 2}))
    return analyze_traces(paths)


@pytest.fixture(params=ALL_TRACES, ids=lambda path: path.name.split(".")[0])
def recorded_job(request: pytest.FixtureRequest) -> TraceSet:
    if not request.param.exists():
        pytest.skip("no recorded device traces here")
    return analyze_traces([request.param])


def test_a_kernel_a_copy_and_a_collective_are_spans_of_their_lanes(job: TraceSet) -> None:
    table = SPANS.tabulate(collect_spans(job))
    first = table[(table["rank"] == 0) & (table["step"] == 5)]
    columns = ["lane_name", "kind", "name", "start_ns", "end_ns", "operation", "exposed_ns"]
    # The picture begins with the first kernel of step 5, at 2 us of the drawing.
    assert first[columns].to_numpy().tolist() == [
        ["stream 7 · compute, copy", "compute", "gemm", 0, 3_000, "", 0],
        ["stream 7 · compute, copy", "copy", "Memcpy DtoD", 6_000, 8_000, "", 0],
        ["stream 20 · dp_shard: all_reduce", "comm", "all_reduce", 1_000, 5_000, "all_reduce", 2_000],
    ]
    assert table["rank"].tolist() == [0] * 5 + [1] * 5


def test_exposed_time_is_cut_where_a_step_ends(draw: Callable[..., Path]) -> None:
    drawing = JOB.replace("   bbbb       eeeee ", "   bbbbbbbbbbeeeeee ").format(first=5, second=6, said=SAID)
    spans = collect_spans(analyze_traces([draw(drawing)]))
    table = EXPOSED.tabulate(spans)
    # Step 6 begins with its gemm, at 12 us of the drawing, in the middle of a collective.
    rows = table[["step", "start_ns", "end_ns"]].to_numpy().tolist()
    assert rows == [[5, 3_000, 10_000], [6, 14_000, 17_000]]


def test_exposed_time_adds_up_to_the_account_of_every_step(recorded_job: TraceSet) -> None:
    spans = collect_spans(recorded_job)
    table = EXPOSED.tabulate(spans)
    lengths = (table["end_ns"] - table["start_ns"]).groupby([table["rank"], table["step"]]).sum()
    counted = {
        (one.rank, step.step): step.overlap.exposed_comm_ns for one in recorded_job.analyses for step in one.steps
    }
    assert counted
    assert {key: lengths.get(key, 0) for key in counted} == counted


def test_the_spans_that_are_drawn_are_those_that_are_counted(recorded_job: TraceSet) -> None:
    for rank in collect_spans(recorded_job).ranks:
        lanes = arrange_lanes(rank)
        for index, (_, window) in zip(rank.steps, rank.step_windows, strict=True):
            overlap = rank.analysis.steps[index].overlap
            drawn = {kind: _united_length(lanes, KINDS.index(kind), window) for kind in (Kind.COMPUTE, Kind.COMM)}
            assert drawn == {Kind.COMPUTE: overlap.compute_ns, Kind.COMM: overlap.comm_ns}


def _united_length(lanes: list, kind: int, window: Window) -> int:  # type: ignore[type-arg]
    starts = np.concatenate([lane.start_ns[lane.kind == kind] for lane in lanes])
    ends = np.concatenate([lane.end_ns[lane.kind == kind] for lane in lanes])
    return clip(unite(starts, ends), window.start_ns, window.end_ns).length_ns


def test_an_operator_that_calls_another_comes_once_for_each_part_of_its_own(draw: Callable[..., Path]) -> None:
    path = draw(
        """
        step ProfilerStep#1 @1 |==========|
        op aten::linear     @1 | ======== |
        op aten::mm         @1 |   ===    |
        """
    )
    table = SPANS.tabulate(collect_spans(analyze_traces([path])))
    assert table[["name", "start_ns", "end_ns"]].to_numpy().tolist() == [
        ["aten::linear", 1_000, 3_000],
        ["aten::mm", 3_000, 6_000],
        ["aten::linear", 6_000, 9_000],
    ]


def test_one_step_shows_what_runs_in_its_window_as_long_as_it_is(job: TraceSet) -> None:
    spans = collect_spans(job, StepRange(6, 6))
    assert (spans.steps, spans.shown) == ((5, 6), (6,))
    assert SPANS.tabulate(spans)["name"].tolist() == ["gemm", "all_reduce"] * 2


def test_a_step_that_is_not_there_is_refused_with_those_that_are(job: TraceSet) -> None:
    with pytest.raises(TraceError, match=r"no step 7: they have 5-6"):
        collect_spans(job, StepRange(7, 7))


def test_ranks_that_are_asked_for_are_drawn_alone_and_only_their_traces_are_read(job: TraceSet) -> None:
    Path(job.analyses[0].path).unlink()
    spans = collect_spans(job, ranks=[1])
    assert set(SPANS.tabulate(spans)["rank"]) == {1}
    assert say_notes(spans.notes) == ("rank 1 alone is drawn, of 2 with traces",)
    with pytest.raises(TraceError, match="no trace of ranks 2-3: there are 0-1"):
        collect_spans(job, ranks=range(1, 4))
    with pytest.raises(TraceError, match="no rank is asked for: there are 0-1"):
        collect_spans(job, ranks=())


def test_traces_without_steps_are_drawn_as_a_whole(draw: Callable[..., Path]) -> None:
    path = draw("kernel gemm @7 |  aaa  |\nkernel gemm @7 |      aa|")
    spans = collect_spans(analyze_traces([path]))
    assert (spans.shown, spans.ranks[0].window.length_ns) == ((), 6_000)
    with pytest.raises(TraceError, match="no steps at all"):
        collect_spans(analyze_traces([path]), StepRange(0, 0))


def test_steps_that_do_not_fit_are_left_out_and_named(job: TraceSet) -> None:
    spans = collect_spans(job, most_spans=8)
    assert spans.shown == (5,)
    assert say_notes(spans.notes) == ("steps 5 of 5-6 are drawn: all are too many",)
    assert len(SPANS.tabulate(spans)) == 6


def test_of_a_step_that_is_too_large_the_shortest_spans_are_left_out_and_counted(job: TraceSet) -> None:
    spans = collect_spans(job, StepRange(5, 5), most_spans=2)
    assert SPANS.tabulate(spans)["name"].tolist() == ["gemm", "all_reduce"] * 2
    assert say_notes(spans.notes)[-1].startswith(
        "2 of 4 spans of compute and copies, those of 2.00 us and shorter, are not drawn"
    )
    exposed = EXPOSED.tabulate(spans)
    assert (exposed["end_ns"] - exposed["start_ns"]).tolist() == [2_000, 2_000]  # of nothing that is counted


def test_the_same_collective_has_one_number_on_all_ranks(job: TraceSet) -> None:
    spans = collect_spans(job)
    numbers = [[spans.matches[one.rank, index] for index in one.collectives] for one in spans.ranks]
    assert numbers[0] == numbers[1]
    assert len(set(numbers[0])) == 2


def _with_clocks(job: TraceSet, clocks: Clocks) -> OverRanks:
    together = (frozenset(clocks.by_rank),)
    clocks = clocks if clocks.islands else dataclasses.replace(clocks, islands=together)
    return dataclasses.replace(job.over_ranks, clocks=clocks)


def test_ranks_are_drawn_on_the_common_clock_with_lengths_of_their_own(job: TraceSet) -> None:
    clocks = Clocks({0: Clock(), 1: Clock(offset_ns=2_000, drift=0.5, at_ns=5_000)})
    spans = collect_spans(dataclasses.replace(job, over_ranks=_with_clocks(job, clocks)))
    table = SPANS.tabulate(spans)
    ours = table[(table["rank"] == 1) & (table["name"] == "gemm")].iloc[0]
    # Rank 1 began at 2 us of its own clock: 2 - 2 - 0.5 * (2 - 5) = 1.5 us, half a microsecond before rank 0.
    assert (ours["start_ns"], ours["end_ns"]) == (0, 3_000)
    assert table[table["rank"] == 0]["start_ns"].min() == 500


def test_a_rank_that_is_out_of_step_is_drawn_from_its_own_start(job: TraceSet) -> None:
    clocks = Clocks({0: Clock(), 1: Clock()}, out_of_step=frozenset({1}))
    windows = {0: Window(100, 200), 1: Window(1_000_000, 1_000_300)}
    places, origin_ns, notes = place_ranks(windows, _with_clocks(job, clocks))
    assert origin_ns == 100
    assert (places[0].is_aligned, places[1].is_aligned) == (True, False)
    assert places[1].to_picture(np.array([1_000_000, 1_000_300]), origin_ns).tolist() == [0, 300]
    assert say_notes(notes) == ("rank 1 is drawn from its own start: its trace is not in step with the others",)


def test_a_rank_of_another_moment_is_drawn_from_its_own_start(job: TraceSet) -> None:
    clocks = Clocks({rank: Clock() for rank in range(3)})
    windows = {0: Window(0, 100), 1: Window(50, 150), 2: Window(9_000, 9_100)}
    places, origin_ns, _ = place_ranks(windows, _with_clocks(job, clocks))
    assert [places[rank].is_aligned for rank in range(3)] == [True, True, False]
    assert places[2].to_picture(np.array([9_000]), origin_ns).tolist() == [0]


def test_ranks_whose_clocks_nothing_compares_are_each_drawn_from_their_own_start(job: TraceSet) -> None:
    islands = (frozenset({0}), frozenset({1, 2}))
    clocks = Clocks({rank: Clock() for rank in range(3)}, islands=islands)
    windows = {0: Window(0, 100), 1: Window(50, 150), 2: Window(60, 160)}
    places, origin_ns, notes = place_ranks(windows, _with_clocks(job, clocks))
    assert [places[rank].is_aligned for rank in range(3)] == [False, True, True]
    assert [places[rank].to_picture(np.array([60]), origin_ns).tolist() for rank in range(3)] == [[60], [10], [10]]
    assert say_notes(notes) == (
        "rank 0 is drawn from its own start: nothing tells how far its clock is from the others'",
    )


def test_a_rank_without_the_step_is_left_out_with_a_note(draw: Callable[..., Path]) -> None:
    paths = [
        draw(
            JOB.format(first=5 + rank, second=6 + rank, said=SAID.replace('"Seq": 1', f'"Seq": {1 + rank}')),
            f"r{rank}.json",
            distributedInfo={"rank": rank},
        )
        for rank in (0, 1)
    ]
    spans: JobSpans = collect_spans(analyze_traces(paths), StepRange(5, 5))
    assert [one.rank for one in spans.ranks] == [0]
    assert "rank 1 is not drawn: its trace has no step 5" in say_notes(spans.notes)


def test_a_trace_that_is_gone_is_one_sentence(job: TraceSet) -> None:
    Path(job.analyses[1].path).unlink()
    with pytest.raises(TraceError, match="cannot be opened"):
        collect_spans(job)


def test_a_rank_of_which_no_trace_is_there_is_named_beside_the_picture() -> None:
    path = Path(__file__).parents[1] / "recorded" / "ddp_2ranks_rank0.json.gz"
    assert "rank 1 of 2 is not drawn: no trace of it is there" in map(str, collect_spans(analyze_traces([path])).notes)


def test_a_rank_that_lost_copies_is_named_where_they_would_be_drawn(tmp_path: Path) -> None:
    recorded = Path(__file__).parents[1] / "recorded" / "two_ranks_one_gpu" / "ddp"
    for rank in (0, 1):
        trace = json.loads(gzip.decompress((recorded / f"rank{rank}.json.gz").read_bytes()))
        trace["traceEvents"] = [one for one in trace["traceEvents"] if not rank or one.get("cat") != "gpu_memcpy"]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace))
    traces = analyze_traces([tmp_path])
    for steps in (None, StepRange(3, 3)):
        (note,) = pick_notes(collect_spans(traces, steps).notes, LostCopies)
        assert note.ranks == (1,)
        assert "45 calls to copy or fill memory" in str(note)
    assert not pick_notes(collect_spans(traces, ranks=[0]).notes, LostCopies)
    assert not pick_notes(collect_spans(analyze_traces([recorded])).notes, LostCopies)
