"""Which traces make up a job: ranks, duplicates, what is missing, and what is said of it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.errors import TraceError
from dtbench.base.vocabulary import Cause, Kind
from dtbench.report.words.trace_words import answer_lines
from dtbench.traces.job.foreign import analyze_job, analyze_traces
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.kinds.patterns import KernelPattern
from dtbench.traces.notes.lacking import CommunicationUntold
from dtbench.traces.notes.note import say_notes
from dtbench.traces.rank import file as trace_file
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.rank.file import TraceFile
from dtbench.traces.reader.source import TraceSource
from dtbench.traces.trace import Trace

STEPS = """
step ProfilerStep#{first}  @1 |====    |
step ProfilerStep#{second} @1 |    ====|
call cudaLaunchKernel      @1 |a   b   |
kernel gemm                @7 | aa  bbbb|
"""


@pytest.fixture
def draw_rank(draw: Callable[..., Path]) -> Callable[..., Path]:
    def write(name: str, rank: int | None = None, size: int | None = None, steps: tuple[int, int] = (1, 2)) -> Path:
        said = {"rank": rank, "world_size": size}
        info = {key: value for key, value in said.items() if value is not None}
        return draw(STEPS.format(first=steps[0], second=steps[1]), name, distributedInfo=info)

    return write


def ranks_of(traces: TraceSet) -> dict[int, str]:
    return {one.rank: Path(one.path).name for one in traces.analyses}


def test_traces_of_a_folder_are_ordered_by_the_rank_that_they_say(
    draw_rank: Callable[..., Path], tmp_path: Path
) -> None:
    draw_rank("a.json", rank=1, size=2)
    draw_rank("b.json", rank=0, size=2)
    traces = analyze_traces([tmp_path])
    assert ranks_of(traces) == {0: "b.json", 1: "a.json"}
    assert [one.timeline.rank for one in traces.analyses] == [0, 1]
    assert traces.world_size == 2
    assert [type(note) for note in traces.notes] == [CommunicationUntold]


@pytest.mark.parametrize(
    "names",
    [
        ("rank2_trace.json", "rank10_trace.json"),
        ("worker2.17.pt.trace.json", "worker10.9.pt.trace.json"),
        ("host_rank-2.json", "host_rank-10.json"),
    ],
)
def test_a_rank_that_the_trace_does_not_say_is_read_off_its_name(
    draw_rank: Callable[..., Path], names: tuple[str, str]
) -> None:
    traces = analyze_traces([draw_rank(name) for name in names])
    assert ranks_of(traces) == {2: names[0], 10: names[1]}
    assert say_notes(traces.notes) == ("ranks 2, 10: numbered by file name, the traces do not say their rank",)


def test_a_rank_that_nothing_says_is_a_free_number_and_said_so(draw_rank: Callable[..., Path]) -> None:
    traces = analyze_traces([draw_rank("x.json"), draw_rank("y.json", rank=0), draw_rank("z.json")])
    assert ranks_of(traces) == {0: "y.json", 1: "x.json", 2: "z.json"}
    assert say_notes(traces.notes) == ("ranks 1-2: numbered by place, neither trace nor file name says a rank",)
    alone = analyze_traces([draw_rank("x.json")])
    assert (ranks_of(alone), say_notes(alone.notes)) == ({0: "x.json"}, ())


def test_a_rank_that_comes_twice_keeps_its_last_trace_and_names_both(draw_rank: Callable[..., Path]) -> None:
    first, second, other = draw_rank("a.json", rank=0), draw_rank("b.json", rank=0), draw_rank("c.json", rank=1)
    traces = analyze_traces([first, second, other])
    assert ranks_of(traces) == {0: "b.json", 1: "c.json"}
    (note,) = say_notes(traces.notes)
    assert note.startswith(f"rank 0 comes twice: {first} is left out, {second} is used")
    assert answer_lines(traces)[0] == (
        "1 of 3 traces is left out, as several are of rank 0: perhaps of two jobs; "
        "give the traces of one alone (see the notes)"
    )
    assert "left out" not in answer_lines(analyze_traces([second, other]))[0]


def test_a_file_given_twice_is_one_trace(draw_rank: Callable[..., Path]) -> None:
    path = draw_rank("a.json", rank=0)
    assert analyze_traces([path, path]).notes == ()


def test_traces_that_say_another_number_of_ranks_are_named(draw_rank: Callable[..., Path]) -> None:
    one, other = draw_rank("a.json", rank=0, size=2), draw_rank("b.json", rank=1, size=8)
    traces = analyze_traces([one, other])
    assert traces.world_size is None
    note, *_ = say_notes(traces.notes)
    assert note.startswith(f"{other} is of a job of 8 ranks, most others of one of 2: not one job")


def test_a_step_that_a_rank_lacks_is_named_and_its_others_are_used(draw_rank: Callable[..., Path]) -> None:
    traces = analyze_traces([draw_rank("a.json", rank=0), draw_rank("b.json", rank=1, steps=(2, 3))])
    assert [len(one.steps) for one in traces.analyses] == [2, 2]
    first, second = say_notes(traces.notes)
    assert "a.json: rank 0 has no step 3; figures per step are over the ranks that have it" in first
    assert "b.json: rank 1 has no step 1; " in second


def test_a_step_in_which_nothing_ran_is_named(draw: Callable[..., Path]) -> None:
    traces = analyze_traces(
        [
            draw("""
            step ProfilerStep#1   @1 |====        |
            step ProfilerStep#2   @1 |    ====    |
            call cudaLaunchKernel @1 |a           |
            kernel gemm           @7 | aaaa       |
            """)
        ]
    )
    assert say_notes(traces.notes) == ("rank 0: nothing ran in step 2; no time is known there",)


def test_one_broken_trace_of_several_costs_a_note(draw_rank: Callable[..., Path], tmp_path: Path) -> None:
    draw_rank("a.json", rank=0)
    (tmp_path / "b.json").write_text("hello")
    traces = analyze_traces([tmp_path])
    assert ranks_of(traces) == {0: "a.json"}
    (note,) = say_notes(traces.notes)
    assert note.startswith(f"left out: {tmp_path / 'b.json'}: not readable")


def test_where_no_trace_can_be_used_the_refusal_names_some(tmp_path: Path) -> None:
    for rank in range(5):
        (tmp_path / f"rank{rank}.json").write_text("")
    with pytest.raises(TraceError, match=r"none of the 5 traces can be used: .*rank0\.json: empty.*; and 2 more"):
        analyze_traces([tmp_path])
    with pytest.raises(TraceError, match=r"rank0\.json: empty"):
        analyze_traces([tmp_path / "rank0.json"])


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="holds no trace"):
        analyze_traces([tmp_path])


def test_recorded_traces_are_read_from_files_and_folders(recorded: Path, tmp_path: Path) -> None:
    (one,) = analyze_traces([recorded / "ddp_2ranks_rank0.json.gz"]).analyses
    assert len(one.steps) == 3
    shutil.copy(recorded / "fsdp2_tp_2x2_rank0.json.gz", tmp_path)
    (other,) = analyze_traces([tmp_path]).analyses
    assert len(other.steps) == 3


SAID = (
    '{{"Collective name": "allreduce", "In msg nelems": 8, "dtype": "Float", "Seq": {seq}, "Process Group Name": "0",'
    ' "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1, 2]", "Group size": 3}}'
)
LATE = (
    "step ProfilerStep#1               @1  |======================= |",
    "call cudaLaunchKernel             @1  | bcd                    |",
    "kernel gemm                       @7  |    bbb                 |",
    "kernel ncclDevKernel_AllReduce    @20 |{first}| {said1}",
    "kernel ncclDevKernel_AllReduce    @20 |{second}| {said2}",
)


@pytest.fixture
def draw_job(draw: Callable[..., Path]) -> Callable[..., list[Path]]:
    """Write three ranks of one job, of which the last is waited for by both others."""

    def write(folder: str, **tops: object) -> list[Path]:
        spans = [(4, 12), (3, 12), (10, 12)]
        written = []
        for rank, (start, end) in enumerate(spans):
            first = " " * start + "c" * (end - start) + " " * (24 - end)
            second = " " * (start + 11) + "d" * (end - start) + " " * (13 - end)
            drawing = "\n".join(LATE).format(
                first=first, second=second, said1=SAID.format(seq=1), said2=SAID.format(seq=2)
            )
            info = {"rank": rank, "world_size": 3}
            written.append(draw(drawing, f"{folder}rank{rank}.json", distributedInfo=info, **tops))
        return written

    return write


def change_times(path: Path, by_us: float) -> Path:
    document = json.loads(path.read_text())
    for event in document["traceEvents"]:
        event["ts"] += by_us
    path.write_text(json.dumps(document))
    return path


def test_ranks_of_one_job_say_who_waited_for_whom(draw_job: Callable[..., list[Path]]) -> None:
    traces = analyze_traces(draw_job(""))
    assert traces.notes == ()
    assert traces.over_ranks.waiting.straggler is not None
    assert traces.over_ranks.waiting.straggler.rank == 2
    assert {row.cause for row in traces.owners} >= {Cause.SKEW}
    assert "waited for rank 2" in answer_lines(traces)[0]


def test_with_a_rank_missing_nobody_is_blamed_and_no_cause_is_given(draw_job: Callable[..., list[Path]]) -> None:
    traces = analyze_traces(draw_job("")[:2])
    assert say_notes(traces.notes) == (
        "2 of 3 ranks have a trace (not 2): waits for the last rank are at least what is shown",
    )
    assert traces.over_ranks.waiting.straggler is None
    assert [(one.last, one.caused_wait_ns) for one in traces.over_ranks.waiting.ranks] == [(None, None)] * 2
    assert {row.cause for row in traces.owners} == {Cause.UNKNOWN}
    text = " ".join(answer_lines(traces))
    assert "the other ranks' traces" in text
    assert "is last in" not in text
    assert "waiting" in text, "what the two that are there say of each other stands, as at least"


@pytest.mark.parametrize("how", ["copy", "hour", "size"])
def test_of_traces_that_do_not_belong_together_no_cause_and_no_straggler_is_given(
    draw_job: Callable[..., list[Path]], how: str
) -> None:
    paths = draw_job("")
    match how:
        case "copy":
            for rank in (1, 2):
                document = json.loads(paths[2].read_text())
                del document["distributedInfo"]
                paths[rank].write_text(json.dumps(document))
            note = "ranks 1-2: one and the same trace, to the nanosecond"
        case "hour":
            change_times(paths[1], 3.6e9)
            note = "rank 1: its clock would be up to 3600 s off, longer than the trace"
        case _:
            document = json.loads(paths[1].read_text())
            document["distributedInfo"]["world_size"] = 64
            paths[1].write_text(json.dumps(document))
            note = f"{paths[1]} is of a job of 64 ranks, most others of one of 3: not one job"
    traces = analyze_traces(paths)
    assert any(one.startswith(note) for one in say_notes(traces.notes))
    assert traces.over_ranks.waiting.straggler is None
    assert {row.cause for row in traces.owners} == {Cause.UNKNOWN}
    lines = answer_lines(traces)
    assert lines[0].startswith("these traces are not all, or not surely, of one job")
    assert not any(word in line for line in lines for word in ("waited for", "is last in", "gradient wait"))


def test_a_trace_that_says_it_is_another_rank_than_who_keeps_it_knows_is_not_compared(
    draw_job: Callable[..., list[Path]],
) -> None:
    paths = draw_job("")
    files = [TraceFile(TraceSource(paths[source]), rank) for rank, source in ((0, 0), (1, 2), (2, 2))]
    traces = analyze_job(files)
    assert any(
        note.startswith("rank 1: by what the trace itself says it is another rank's")
        for note in say_notes(traces.notes)
    )
    assert traces.over_ranks.waiting.straggler is None
    assert {row.cause for row in traces.owners} == {Cause.UNKNOWN}


@pytest.mark.parametrize("error", [ValueError("'repliCate' is not a valid Axis"), KeyError("shard"), IndexError()])
def test_a_fault_of_ours_in_one_ranks_trace_costs_a_note_and_not_the_job(
    draw_job: Callable[..., list[Path]], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    paths = draw_job("")

    def fail_on_rank_1(trace: Trace, **facts: Any) -> TraceAnalysis:
        if trace.rank == 1:
            raise error
        return analyze_trace(trace, **facts)

    monkeypatch.setattr(trace_file, "analyze_trace", fail_on_rank_1)
    traces = analyze_traces(paths)
    assert [one.rank for one in traces.analyses] == [0, 2]
    assert say_notes(traces.notes)[0].startswith(
        f"left out: {paths[1]}: dtbench failed on it ({type(error).__name__}: "
    )
    assert "this is a bug in dtbench, please report it" in say_notes(traces.notes)[0]
    assert traces.over_ranks.waiting.straggler is None, "rank 1 may be who the others wait for"
    with pytest.raises(type(error)):
        analyze_traces(paths[1:2])


def test_where_all_traces_meet_a_fault_of_ours_that_is_the_refusal(
    draw_job: Callable[..., list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(trace: Trace, **facts: Any) -> TraceAnalysis:
        raise ValueError("no such word")

    monkeypatch.setattr(trace_file, "analyze_trace", fail)
    with pytest.raises(TraceError, match=r"none of the 3 traces can be used: .*no such word.*bug in dtbench"):
        analyze_traces(draw_job(""))


def test_a_pattern_that_decides_of_no_kernel_on_any_rank_is_told(draw: Callable[..., Path], recorded: Path) -> None:
    patterns = [KernelPattern(pattern=pattern, kind=Kind.COMM) for pattern in ("ring", "gemmm", "my_ring")]
    paths = [
        draw(STEPS.format(first=1, second=2).replace("gemm", name), f"rank{rank}.json", distributedInfo={"rank": rank})
        for rank, name in enumerate(("gemm", "my_ring"))
    ]
    told = "pattern `{}` decides of no kernel of these traces, and changes nothing"
    notes = say_notes(analyze_traces(paths, patterns=patterns).notes)
    assert [note for note in notes if "pattern" in note] == [told.format("gemmm"), told.format("my_ring")]
    notes = say_notes(analyze_traces([recorded / "ddp_2ranks_rank0.json.gz"], patterns=patterns[:1]).notes)
    assert told.format("ring") in notes
