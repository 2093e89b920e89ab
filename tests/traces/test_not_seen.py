"""A zero means seen, and zero: what was not seen is not available, in every account, table, document and sentence."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dtbench
from dtbench.cli.main import main
from dtbench.report.documents.traces import document_head as traces_document
from dtbench.report.page.trace_page import gap_table, purpose_table, time_table
from dtbench.report.words.trace_words import answer_lines
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.means import average, average_purposes
from dtbench.traces.notes.lacking import CommunicationUntold, ComputeNotRecorded, OutsideSteps
from dtbench.traces.notes.note import pick_notes, say_notes
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace

CASES = Path(__file__).parent / "cases"


def purposes(one: TraceAnalysis) -> dict[str, tuple[object, ...]]:
    return {
        str(row.purpose): (row.count, row.size_bytes, row.comm_ns, row.hidden_ns, row.exposed_ns, row.wait_ns)
        for row in one.steps[0].purposes
    }


def test_spans_of_gloo_without_a_recorded_thread_have_time_and_no_exposure() -> None:
    traces = analyze_traces([CASES / "gloo_spans_alone.json"])
    (one,) = traces.analyses
    comm_ns = 178_000_000
    assert purposes(one) == {"other": (2, 9_200_000, comm_ns, None, None, None)}
    for overlap in (one.steps[0].overlap, one.whole):
        assert (overlap.comm_ns, overlap.exposed_comm_ns, overlap.hidden_comm_ns) == (comm_ns, None, None)
        assert (overlap.compute_ns, overlap.idle_ns) == (None, None)
    first, *_ = answer_lines(traces)
    assert first.startswith("step 210 ms, 178 ms of communication; how much of it was exposed is not known")
    table = dtbench.read_trace(CASES / "gloo_spans_alone.json").collectives
    assert table["step"].tolist() == [551, 551]
    assert table["size_bytes"].tolist() == [1_200_000, 8_000_000]
    assert table["exposed_ns"].isna().all()
    assert table["cause"].tolist() == ["", ""]
    assert traces.owners == ()


def test_a_step_without_operators_beside_one_that_has_them_is_left_out_of_the_mean(draw: Callable[..., Path]) -> None:
    drawing = """
        step ProfilerStep#1    @1 |==========          |
        step ProfilerStep#2    @1 |          ==========|
        op aten::mm            @1 | ===                |
        range gloo:all_reduce  @2 |  ====        ====  |
        """
    traces = analyze_traces([draw(drawing)])
    (one,) = traces.analyses
    first, second = (step.overlap for step in one.steps)
    assert (first.comm_ns, first.hidden_comm_ns, first.exposed_comm_ns) == (4000, 2000, 2000)
    assert (second.comm_ns, second.hidden_comm_ns, second.exposed_comm_ns) == (4000, None, None)
    assert one.whole.exposed_comm_ns is None
    assert [owner.carried.at_most_ns for owner in traces.owners] == [4000]  # a step's, as what it is held against
    assert "2.00 us exposed (20.0 %)" in answer_lines(traces)[0]
    assert [note.steps for note in pick_notes(traces.notes, ComputeNotRecorded)] == [(2,)]


def test_sizes_of_lists_that_were_not_recorded_are_unknown_and_match_by_order() -> None:
    one = analyze_trace(read_trace(CASES / "gloo_without_sizes_of_lists.json"))
    for step in one.steps:
        (row,) = step.purposes
        assert (str(row.purpose), row.count, row.comm_ns) == ("grad_reduce", 2, 71_000_000)
        assert row.wait_ns == 69_900_000
        assert row.size_bytes == 9_200_000  # as their spans say
    assert {one.owner for one in one.collectives} == {"bucket 0", "bucket 1"}
    assert one.unmatched == 0


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("c10d::allreduce_", '{"Input Dims": [[], [], []], "Input type": ["TensorList", "", "Scalar"]}'),
        ("c10d::allreduce_coalesced_", '{"Input Dims": [[], []], "Input type": ["TensorList", ""]}'),
        ("c10d::broadcast_", '{"Input Dims": [[], []], "Input type": ["TensorList", ""]}'),
    ],
)
def test_a_list_without_sizes_is_no_scalar(op: str, args: str, draw: Callable[..., Path]) -> None:
    name = "broadcast" if "broadcast" in op else "all_reduce"
    one = analyze_trace(
        read_trace(
            draw(f"""
            step ProfilerStep#1  @1 |==============|
            op aten::mm          @1 |=             |
            op {op}              @1 | =            | {args}
            range gloo:{name}    @2 |  ======      | {{"Input Dims": [[300]], "Input type": ["float"]}}
            """)
        )
    )
    (collective,) = one.collectives
    assert (collective.size_bytes, collective.start_ns) == (1200, 2000)


def test_collectives_that_were_issued_and_not_seen_to_run_leave_no_zeros(draw: Callable[..., Path]) -> None:
    path = draw("""
        step ProfilerStep#1     @1 |==============|
        op aten::mm             @1 |===           |
        op c10d::allreduce_     @1 |    ==        |
        """)
    traces = analyze_traces([path])
    (one,) = traces.analyses
    assert purposes(one) == {"other": (1, None, None, None, None, None)}
    overlap = one.steps[0].overlap
    assert (overlap.compute_ns, overlap.comm_ns, overlap.exposed_comm_ns, overlap.idle_ns) == (3000, None, None, None)
    assert "no communication" not in answer_lines(traces)[0]
    assert dtbench.read_trace(path).collectives["exposed_ns"].isna().all()


def test_a_zero_of_communication_says_what_it_holds_for(draw: Callable[..., Path]) -> None:
    drawing = """
        step ProfilerStep#1     @1 |==========|
        call cudaLaunchKernel   @1 |ab        |
        kernel gemm             @7 | aaaaaaaa |
        kernel {name}           @8 |  bbbb    |
        range {range}           @3 |    ===   |
        """
    said = {}
    for name, around in (("relu", "loss"), ("kuserbuffers_pullsend", "loss"), ("relu", "gloo:all_reduce")):
        traces = analyze_traces([draw(drawing.format(name=name, range=around))])
        assert traces.analyses[0].whole.comm_ns == 0
        said[name, around] = (answer_lines(traces)[0].partition("no communication")[2], say_notes(traces.notes))
    on_host = "rank 0: 1 collective of gloo, 3.00 us on the host beside the device, is in no number"
    assert said == {
        ("relu", "loss"): (" on the device", ()),
        ("kuserbuffers_pullsend", "loss"): (
            " on the device, unless `kuserbuffers_pullsend` is, which counts as compute",
            (),
        ),
        ("relu", "gloo:all_reduce"): (" on the device", (on_host,)),
    }


OF_SEVERAL = """
    step ProfilerStep#1     @1 |==========|
    call cudaLaunchKernel   @1 |abcd      |
    kernel gemm             @7 | aaaaaaaa |
    kernel acme_exchange    @8 |  bbbb    |
    kernel gemm             @8 |      cc  |
    kernel {other}          @8 |        d |
"""


@pytest.mark.parametrize(
    ("other", "world_size", "said", "names"),
    [
        ("relu", 64, "unless `acme_exchange` or 1 other is, which counts as compute", ("acme_exchange", "relu")),
        ("my_all_gather", 64, "unless `my_all_gather` or 1 other is, which counts", ("my_all_gather", "acme_exchange")),
        ("gemm", 2, "unless `acme_exchange` is, which counts as compute", ("acme_exchange",)),
    ],
)
def test_a_rank_of_several_without_communication_is_doubted_and_has_no_zero_of_it(
    draw: Callable[..., Path], other: str, world_size: int, said: str, names: tuple[str, ...]
) -> None:
    job = {"rank": 0, "world_size": world_size, "backend": "nccl"}
    traces = analyze_traces([draw(OF_SEVERAL.format(other=other), distributedInfo=job)])
    (one,) = traces.analyses
    for overlap in (one.whole, one.steps[0].overlap):
        assert (overlap.comm_ns, overlap.exposed_comm_ns, overlap.idle_ns) == (None, None, None)
        assert (overlap.compute_ns, overlap.is_least) == (8000, False)
    answer = answer_lines(traces)[0]
    assert answer.startswith("step 8.00 us, whether it communicated is not known: ")
    assert f"the job has {world_size} ranks, and none is seen on the device, {said}" in answer
    (note,) = pick_notes(traces.notes, CommunicationUntold)
    assert (note.of_ranks, note.names) == (world_size, names)
    assert str(note).startswith(
        f"rank 0: no communication is seen on its device, though the job has {world_size} ranks"
    )


def test_of_one_rank_and_of_dtbenchs_own_ranges_no_communication_is_none(draw: Callable[..., Path]) -> None:
    own = OF_SEVERAL + "range dtbench::region forward @1 |==========|"
    for drawing, world_size in ((OF_SEVERAL, 1), (own, 2)):
        job = {"rank": 0, "world_size": world_size, "backend": "nccl"}
        traces = analyze_traces([draw(drawing.format(other="relu"), distributedInfo=job)])
        assert traces.analyses[0].steps[0].overlap.comm_ns == 0
        assert not pick_notes(traces.notes, CommunicationUntold)


def test_a_rank_of_several_on_threads_without_communication_is_doubted(draw: Callable[..., Path]) -> None:
    job = {"rank": 0, "world_size": 2, "backend": "gloo"}
    traces = analyze_traces([draw("step ProfilerStep#1 @1 |====|\nop aten::mm @1 | ==|", distributedInfo=job)])
    assert answer_lines(traces)[0].endswith("the job has 2 ranks, and none is seen in the trace; it was not recorded")
    (note,) = pick_notes(traces.notes, CommunicationUntold)
    assert str(note) == (
        "rank 0: no communication is seen in its trace, though the job has 2 ranks: it was not recorded, so"
        " communication and what is exposed are n/a"
    )


def test_what_was_copied_between_devices_may_be_communication_and_that_is_said(draw: Callable[..., Path]) -> None:
    drawing = """
        step ProfilerStep#1                    @1 |==================|
        call cudaLaunchKernel                  @1 |a         b       |
        call cudaMemcpyAsync                   @1 | cd               |
        kernel gemm                            @7 | aaaaaa    bb     |
        copy Memcpy {first} (Device -> Device) @8 | ccc              |
        copy Memcpy {first} (Device -> Device) @8 |      ddd         |
        """
    local, between = (analyze_traces([draw(drawing.format(first=way))]) for way in ("DtoD", "PtoP"))
    assert [traces.analyses[0].whole.comm_ns for traces in (local, between)] == [0, 0]
    assert "for the host (25.0 %), longer than for communication" in answer_lines(local)[0]
    assert answer_lines(local)[1] == "no communication on the device"
    words = " ".join(answer_lines(between)[:2])
    assert words.endswith("no communication on the device, unless what was copied between devices is")
    assert "host" not in words
    note = "rank 0: copied between devices 2 times, for 6.00 us: the trace does not tell whether that is communication"
    assert (note in say_notes(between.notes), note in say_notes(local.notes)) == (True, False)


def test_a_wait_without_a_consumer_that_can_be_seen_is_not_zero(draw: Callable[..., Path]) -> None:
    drawing = """
        step ProfilerStep#1       @1 |==============  |
        op c10d::allreduce_       @1 | =              |
        call cudaLaunchKernel     @1 |a b             |
        call cudaLaunchKernel     @1 |    {last}      |
        kernel gemm               @7 | aa       {run} |
        kernel ncclDevKernel_All  @8 |    bbbbb       |
        """
    seen = analyze_trace(read_trace(draw(drawing.format(last="c", run="cc"))))
    assert [row.wait_ns for row in seen.steps[0].purposes] == [5000]  # from the launch of the next work on
    lost = analyze_trace(read_trace(draw(drawing.format(last=" ", run="=="))))
    assert [row.wait_ns for row in lost.steps[0].purposes] == [None]
    ended = analyze_trace(read_trace(draw(drawing.format(last=" ", run="  "))))
    assert [row.wait_ns for row in ended.steps[0].purposes] == [None]


def test_a_step_in_which_nothing_ran_is_not_available_everywhere(
    draw: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = draw("""
        step ProfilerStep#1    @1 |=====   |
        step ProfilerStep#2    @1 |     ===|
        call cudaLaunchKernel  @1 |a       |
        kernel gemm            @7 | aaa    |
        """)
    with pytest.raises(SystemExit):
        main(("analyze", "--json", str(path)))
    document: Any = json.loads(capsys.readouterr().out)
    _, empty = document["ranks"][0]["steps"]
    for name in ("step_ns", "compute_ns", "comm_ns", "exposed_comm_ns", "idle_ns", "hidden_fraction", "gaps"):
        assert empty[name] == "NaN"
    assert empty["lanes"] == []
    table = dtbench.read_trace(path).overlap
    assert table.loc[table["step"] == 2, "step_ns":"idle_ns"].isna().all(axis=None)


@pytest.mark.parametrize("step", ["ProfilerStep#7 @1 |              ==  |", "ProfilerStep#1 @1 |      =         |"])
def test_where_nothing_ran_in_any_step_owners_are_of_the_whole_trace_as_all_numbers_are(
    draw: Callable[..., Path], step: str
) -> None:
    path = draw(f"""
step {step}
op aten::mm         @1 |a               |
call cudaLaunchKernel @1 |a             |
op c10d::allreduce_ @1 | bb             |
call cudaLaunchKernel @1 | b            |
kernel gemm         @7 |  aaa           |
kernel ncclDevKernel_AllReduce_Sum @20 |     bbbb |
""")
    traces = analyze_traces([path])
    assert [one.overlap.step_ns for one in traces.analyses[0].steps] == [None]
    assert sum(row.exposed_ns for row in traces.owners) == traces.analyses[0].whole.exposed_comm_ns == 4_000


@pytest.mark.parametrize("name", ["mtia.json", "one_process_two_devices.json"])
def test_the_lane_waited_for_no_known_time_where_no_consumer_is_seen(name: str) -> None:
    traces = analyze_traces([CASES / name])
    (step,) = traces.analyses[0].steps
    assert [row.wait_ns for row in step.purposes] == [None]
    for account in (traces.analyses[0].accounts.steps[0], traces.analyses[0].accounts.whole):
        assert account.gaps is not None
        assert account.gaps.comm_wait_ns is None
    tables = dtbench.read_trace(CASES / name)
    assert tables.gaps["comm_wait_ns"].isna().tolist()[0]
    document = json.loads(json.dumps(traces_document(traces)))
    assert document["ranks"][0]["steps"][0]["gaps"]["comm_wait_ns"] == "NaN"
    assert gap_table(traces).words[0][3] == "n/a"


@pytest.mark.parametrize(
    ("sync_ns", "unknown_ns", "words"),
    [
        ((0, 3_000), (0, 0), ("5.00 us", "1.50 us")),
        ((None, 3_000), (0, 0), ("5.00 us", "at least 1.50 us")),
        ((None, 0), (0, 0), ("5.00 us", "n/a")),
        ((0, 3_000), (0, 500), ("at least 5.00 us", "at least 1.50 us")),
        ((0, 3_000), (0, 2), ("5.00 us", "1.50 us")),
    ],
)
def test_a_gaps_part_that_is_not_known_takes_no_step_out_of_the_means(
    sync_ns: tuple[int | None, int], unknown_ns: tuple[int, int], words: tuple[str, str]
) -> None:
    """The longest wait for the host is in the step of which it is not known whether it sat in a call."""
    traces = analyze_traces([CASES.parent / "recorded" / "one_hardware_queue" / "queue1" / "rank0.json"])
    (one,) = traces.analyses
    account = one.accounts.steps[0]
    assert account.gaps is not None
    steps = tuple(
        replace(account, gaps=replace(account.gaps, host_wait_ns=host, host_sync_ns=sync, launch_unknown_ns=unknown))
        for host, sync, unknown in zip((8_000, 2_000), sync_ns, unknown_ns, strict=True)
    )
    changed = replace(traces, analyses=(replace(one, accounts=replace(one.accounts, steps=steps)),))
    section = gap_table(changed)
    assert section.words[0][4:6] == words
    assert any(note.startswith("at least: ") for note in section.said) is ("at least" in " ".join(words))


def test_hidden_and_exposed_are_means_over_the_same_steps_and_owners_add_up_to_them(draw: Callable[..., Path]) -> None:
    drawing = """
        step ProfilerStep#1               @1  |==============              |
        step ProfilerStep#2               @1  |              ========      |
        range nccl:all_reduce             @1  |  =            =    =       |
        call cudaLaunchKernel             @1  |a.b           .c.. d e      |
        kernel gemm                       @7  |  aaaa           d          |
        kernel ncclDevKernel_AllReduce    @20 |     bbbbbb        eeeee    |
        """
    traces = analyze_traces([draw(drawing)])
    (one,) = traces.analyses
    first, second = (step.overlap for step in one.steps)
    assert (first.hidden_comm_ns, first.exposed_comm_ns) == (1000, 5000)
    assert (second.hidden_comm_ns, second.exposed_comm_ns) == (None, 5000)  # of c nothing was seen
    mean = average(traces.analyses)
    overlap = mean.overlap
    assert (overlap.comm_ns, overlap.hidden_comm_ns, overlap.exposed_comm_ns) == (6000, 1000, 5000)
    assert (mean.windows, mean.left_out) == (1, 1)
    (purpose,) = average_purposes(traces.analyses)
    assert (purpose.comm_ns, purpose.hidden_ns, purpose.exposed_ns) == (6000, 1000, 5000)
    assert sum(row.exposed_ns for row in traces.owners) == 5000
    assert "one step, without 1 step not wholly known" in answer_lines(traces)[-1]


def test_an_owners_transfer_is_no_number_where_waiting_for_other_ranks_is_not_known(draw: Callable[..., Path]) -> None:
    drawing = """
        step ProfilerStep#1             @1 |==========    |
        call cudaLaunchKernel           @1 |ab            |
        kernel ncclDevKernel_AllReduce  @8 | aaaa         |
        kernel gemm                     @7 |      bb      |
        """
    document: Any = traces_document(analyze_traces([draw(drawing)]))
    (owner,) = document["owners"]
    assert (owner["at_most_ns"], owner["transfer_ns"]) == (4000, "NaN")


def test_communication_outside_all_steps_is_counted_first(draw: Callable[..., Path]) -> None:
    drawing = """
        step ProfilerStep#1             @1 |           =====    |
        call cudaLaunchKernel           @1 |abc        de       |
        kernel ncclDevKernel_AllGather  @8 | aaaa bb            |
        kernel ncclDevKernel_AllReduce  @9 |  cc                |
        kernel gemm                     @7 |            dd      |
        kernel ncclDevKernel_AllReduce  @8 |              eee   |
        """
    paths = [draw(drawing, f"rank{rank}.json", distributedInfo={"rank": rank}) for rank in (0, 1)]
    notes = say_notes(analyze_traces(paths).notes)
    said = "ranks 0-1: 3 collectives outside all steps, 6.00 us of communication, are in no number per step"
    assert said in notes
    own = f"{drawing}range dtbench::region forward @1 |           ==   |"
    for other in (drawing.replace("=====", "     "), own):  # without steps; dtbench's own untimed step before the first
        assert not pick_notes(analyze_traces([draw(other)]).notes, OutsideSteps)


def lose_kernels(folder: Path, to: Path, lost: range) -> Path:
    """Write traces again without some of the kernels of collectives of each rank, by their place."""
    to.mkdir()
    for path in folder.glob("rank*.json.gz"):
        content = json.loads(gzip.decompress(path.read_bytes()))
        kernels = [one for one in content["traceEvents"] if one.get("name", "").startswith("ncclDevKernel")]
        dropped = [kernels[place] for place in lost]
        content["traceEvents"] = [one for one in content["traceEvents"] if one not in dropped]
        (to / path.name[:-3]).write_text(json.dumps(content))
    return to


def test_kernels_that_are_lost_leave_no_bound_and_mark_every_time_of_their_steps(
    recorded: Path, tmp_path: Path
) -> None:
    whole = recorded / "two_ranks_one_gpu" / "ddp"
    traces = analyze_traces([lose_kernels(whole, tmp_path / "part", range(1, 17, 2))])
    assert [len(one.timeline.unseen) for one in traces.analyses] == [8, 8]
    for row in traces.owners:
        times_ns = (row.carried.at_most_ns, row.carried.taken_at_most_ns, row.carried.waited_at_most_ns)
        assert times_ns == (None, None, None)
    assert "At most" not in " ".join(answer_lines(traces))
    (words,) = purpose_table(traces).words
    assert all(word.startswith("at least ") for word in words[1:])
    for step, words in zip(
        (step for one in traces.analyses for step in one.steps), time_table(traces).words, strict=True
    ):
        bounds = [words[place].split(" ")[:2] for place in (4, 5, 6, 8)]
        marks = [["at", "least"], ["at", "most"], ["at", "most"], ["at", "least"]]
        assert (bounds == marks) == (step.lost > 0) == (words[7] == "n/a")
