"""Sends and receives over gloo: pipelines and ring attention, recorded with torch's profiler alone."""

import gzip
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtbench.base.vocabulary import Cause, MissingInput, Purpose
from dtbench.report.words.advice import advise, of_traces
from dtbench.report.words.knobs import describe_traces
from dtbench.report.words.trace_words import advise_traces, answer_lines
from dtbench.runs.cell.summarize_owners import summarize_owners
from dtbench.traces.job.explain import Explained, explain
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.means import average_purposes
from dtbench.traces.notes.note import say_notes
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.rows.tables import OVERLAP
from dtbench.traces.time.intervals import unite
from dtbench.traces.time.overlap import Overlap

SHARED = ("plain", "1f1b", "interleaved", "zero_bubble", "ring")
ACTIVATION_BYTES = 4 * 192 * 4  # of a micro-batch: 4 rows of 192 floats


@pytest.fixture
def pipelines(recorded: Path) -> Path:
    return recorded / "pipelines"


def analyze(path: Path) -> TraceAnalysis:
    return analyze_trace(read_trace(path))


def operators_ns(path: Path) -> tuple[int, ...]:
    """Time in each step with an operator of ATen open, read from the file itself."""
    events: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    spans = [event for event in events if event.get("ph") == "X"]
    ran = [one for one in spans if one["cat"] == "cpu_op" and re.match(r"aten::|[a-z_]+$", one["name"])]
    borders = [_times_ns(one) for one in spans if one["name"].startswith("ProfilerStep")]
    starts, ends = np.array([_times_ns(one) for one in ran], dtype=np.int64).T
    return tuple(unite(starts, ends).covered_inside(np.array(sorted(borders), dtype=np.int64)))


def _times_ns(event: dict[str, Any]) -> tuple[int, int]:
    start_ns = round(event["ts"] * 1000)
    return start_ns, start_ns + round(event["dur"] * 1000)


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_thread_that_sends_and_receives_still_computes(pipelines: Path, name: str, rank: int) -> None:
    path = pipelines / name / f"rank{rank}.json.gz"
    compute_ns = [step.overlap.compute_ns for step in analyze(path).steps]
    assert compute_ns == pytest.approx(operators_ns(path), abs=200)  # times of the file are to the nanosecond, rounded
    assert min(operators_ns(path)) > 300_000


@pytest.mark.parametrize("rank", [0, 1])
def test_every_activation_and_gradient_of_a_pipeline_is_counted(pipelines: Path, rank: int) -> None:
    counts = {"plain": (4, 2), "1f1b": (8, 1), "interleaved": (24, 1), "zero_bubble": (24, 1), "ring": (4, 4)}
    for name, (count, size) in counts.items():
        for step in analyze(pipelines / name / f"rank{rank}.json.gz").steps:
            (found,) = step.purposes
            assert (str(found.purpose), found.count) == ("other" if name == "ring" else "pipeline", count), name
            assert found.size_bytes == count * size * ACTIVATION_BYTES, name


def test_what_is_sent_beside_compute_is_hidden_and_what_is_waited_for_is_exposed(draw: Callable[..., Path]) -> None:
    sent = '{"Input Dims": [[[4]], [], [], []], "Input type": ["TensorList", "", "Scalar", "Scalar"]}'
    moved = '{"Input Dims": [[4]], "Input type": ["float"]}'
    one = analyze(
        draw(f"""
        step ProfilerStep#1      @1 |====================|
        op aten::mm              @1 |===                 |
        op c10d::send            @1 |    ==              | {sent}
        range gloo:send          @1 |     =========      | {moved}
        op aten::mm              @1 |        ===         |
        op c10d::recv_           @1 |              ==    | {sent}
        range gloo:recv          @1 |               ==== | {moved}
        """)
    )
    assert one.steps[0].overlap == Overlap(20000, 3000 + 3000, 6000 + 3000, 3000, 3000 + 3000, 0, 8000)
    first, second = one.collectives
    assert (first.first_wait_ns, first.first_wait_end_ns, first.is_async) == (11000, 14000, True)
    assert (second.first_wait_ns, second.first_wait_end_ns, second.is_async) == (16000, 19000, None)
    assert [(str(one.purpose), one.wait_ns) for one in one.steps[0].purposes] == [("other", 3000 + 3000)]


def describe_job(ranks: int) -> dict[str, Any]:
    group = {"pg_name": "0", "pg_desc": "default_pg", "ranks": list(range(ranks))}
    return {"world_size": ranks, "pg_config": [group]}


JOB = describe_job(2)


def draw_two_stages(
    draw: Callable[..., Path], *, hosts: tuple[str, str] = ("one", "one"), late_us: int = 0, peer: int = 0
) -> list[Path]:
    """Draw a schedule's stage that computes for 8 us and sends, and one that waits for it, or for another.

    Args:
        draw: writes a trace.
        hosts: of the two.
        late_us: how far the clock of the first is ahead.
        peer: whom the second receives from.
    """
    ahead = " " * late_us
    to, by = (
        f'{{"Input Dims": [[[4]], [], [], []], "Input type": ["TensorList", "", "Scalar", "Scalar"],'
        f' "Concrete Inputs": ["", "", "{peer}", "0"]}}'
        for peer in (1, peer)
    )
    moved = '{"Input Dims": [[4]], "Input type": ["float"]}'
    first = draw(
        f"""
        step ProfilerStep#1      @1 |{ahead}====================|
        op aten::mm              @1 |{ahead}========            |
        range PP:0SEND_F0           @1 |{ahead}        =           |
        op c10d::send            @1 |{ahead}        =           | {to}
        range gloo:send          @1 |{ahead}        ====        | {moved}
        """,
        "rank0.json",
        distributedInfo={"rank": 0, **describe_job(max(2, peer + 1))},
        host_name=hosts[0],
    )
    second = draw(
        f"""
        step ProfilerStep#1      @1 |====================|
        range PP:1RECV_F0           @1 | =                  |
        op c10d::recv_           @1 | =                  | {by}
        range gloo:recv          @1 | ===========        | {moved}
        op aten::mm              @1 |            ===     |
        """,
        "rank1.json",
        distributedInfo={"rank": 1, **describe_job(max(2, peer + 1))},
        host_name=hosts[1],
    )
    return [first, second]


def explain_two_stages(draw: Callable[..., Path], **told: Any) -> Explained:
    return explain([analyze(path) for path in draw_two_stages(draw, **told)])


def test_a_stage_that_waits_for_its_neighbour_has_a_bubble(draw: Callable[..., Path]) -> None:
    found = explain_two_stages(draw)
    assert found.over_ranks.is_one_job
    assert found.over_ranks.notes == ()
    rows = {(row.owner, str(row.cause)): (row.exposed_ns, row.waited_for) for row in found.owners}
    assert rows == {
        ("stage 1, micro-batch 0", "bubble"): (
            8000 - 2000,
            0,
        ),  # its call returned at 2 us, the other stage sent at 8 us
        ("stage 1, micro-batch 0", "unknown"): (12000 - 8000, None),
        ("stage 0, micro-batch 0", "unknown"): (12000 - 9000, None),
    }


RECV = "torch/distributed/distributed_c10d.py(2500): recv"
IRECV = "torch/distributed/distributed_c10d.py(2400): irecv"


@pytest.mark.parametrize(
    ("frames", "after", "is_async"),
    [
        ("", "                    ", None),  # `recv`, or `irecv` and its `wait` at once
        ("", "     ==             ", True),
        (f"python {RECV} @1 |============|", "                    ", False),
        (f"python {IRECV} @1 |===|", "                    ", True),
        (f"python {IRECV} @1 |===|", "     ==             ", True),
    ],
)
def test_a_receive_blocks_where_a_frame_says_so_and_not_where_its_thread_only_waits_at_once(
    draw: Callable[..., Path], frames: str, after: str, is_async: bool | None
) -> None:
    said = '{"Input Dims": [[[4]], [], [], []], "Input type": ["TensorList", "", "Scalar", "Scalar"]}'
    path = draw(f"""
        step ProfilerStep#1      @1 |====================|
        {frames or "op aten::mm @1 |============        |"}
        op c10d::recv_           @1 | ==                 | {said}
        range gloo:recv          @1 |  ==========        | {{"Input Dims": [[4]], "Input type": ["float"]}}
        op aten::mm              @1 |{after}|
        op aten::mm              @1 |              ===   |
        """)
    found = explain([analyze(path)])
    (received,) = found.analyses[0].collectives
    assert received.is_async is is_async
    assert ("sync_op" in {str(row.cause) for row in found.owners}) is (is_async is False)


def test_the_tables_say_for_whom_a_stage_waited_and_a_runs_owners_are_made_of_them(draw: Callable[..., Path]) -> None:
    analyses = explain_two_stages(draw).analyses
    collectives = COLLECTIVES.tabulate(analyses)
    said = collectives[["rank", "operation", "last_rank", "skew_wait_ns"]].astype(object)
    assert said.where(said.notna(), None).to_numpy().tolist() == [[0, "send", None, 0], [1, "recv", 0, 8000 - 2000]]
    owners = summarize_owners(collectives, OVERLAP.tabulate(analyses))
    bubbles = [(row.owner, row.exposed_ns, row.waited_for) for row in owners if str(row.cause) == "bubble"]
    assert bubbles == [("stage 1, micro-batch 0", (8000 - 2000) // 2, 0)]  # a mean over two ranks


def test_of_several_issued_at_once_a_send_is_of_the_micro_batch_that_is_sent(draw: Callable[..., Path]) -> None:
    said = '{"Input Dims": [[[4]], [], [], []], "Input type": ["TensorList", "", "Scalar", "Scalar"]}'
    moved = '{"Input Dims": [[4]], "Input type": ["float"]}'
    one = analyze(
        draw(f"""
        step ProfilerStep#1                  @1 |====================|
        op aten::mm                          @1 |====                |
        range PP:(0SEND_F2;0RECV_B1)P2P      @1 |    ===========     |
        op c10d::send                        @1 |     ==             | {said}
        range gloo:send                      @1 |      =             | {moved}
        op c10d::recv_                       @1 |         ==         | {said}
        range gloo:recv                      @1 |          ====      | {moved}
        """)
    )
    assert [c.owner for c in one.collectives] == ["stage 0, micro-batch 2", "stage 0, micro-batch 1"]


def test_stages_whose_clocks_nobody_compared_have_no_bubble(draw: Callable[..., Path]) -> None:
    found = explain_two_stages(draw, hosts=("one", "two"))
    assert found.over_ranks.is_one_job
    causes = {(row.owner, str(row.cause), row.missing) for row in found.owners}
    assert causes == {
        (owner, "unknown", (MissingInput.CLOCKS,)) for owner in ("stage 1, micro-batch 0", "stage 0, micro-batch 0")
    }
    (note,) = say_notes(found.over_ranks.notes)
    assert note.startswith("ranks 0-1: nothing tells how far their clocks are apart")
    said = "\n".join(answer_lines(analyze_traces(draw_two_stages(draw, hosts=("one", "two")))))
    assert "pipeline bubble n/a" in said
    assert "blocking" not in said


def test_clocks_that_nobody_compared_may_be_off_by_any_time(draw: Callable[..., Path]) -> None:
    """A send that seems to begin after its receive ended makes no job of two."""
    found = explain_two_stages(draw, hosts=("one", "two"), late_us=90)
    assert found.over_ranks.is_one_job
    assert {str(row.cause) for row in found.owners} == {"unknown"}


def test_a_neighbour_whose_trace_is_not_there_may_be_what_a_stage_waited_for(draw: Callable[..., Path]) -> None:
    traces = analyze_traces(draw_two_stages(draw, peer=2))
    rows = {row.owner: (str(row.cause), row.missing) for row in traces.owners}
    assert rows == {
        "stage 1, micro-batch 0": ("unknown", (MissingInput.RANKS,)),
        "stage 0, micro-batch 0": ("unknown", (MissingInput.EVENTS,)),  # its trace is there, and receives nothing of it
    }
    assert "1 of 1 sends and receives of each of ranks 0-1 has no other end in any trace" in "\n".join(
        say_notes(traces.notes)
    )


def test_a_stage_that_another_keeps_is_kept_by_the_schedule_and_by_no_late_rank(pipelines: Path) -> None:
    traces = analyze_traces([pipelines / "interleaved"])
    missing = {one for row in traces.owners for one in row.missing}
    assert MissingInput.SCHEDULE in missing
    assert MissingInput.PUT_OFF not in missing
    said = " ".join(one.words for one in advise_traces(traces))
    assert "rank that comes last" not in said
    assert "waited for another stage" in said


@pytest.mark.parametrize(
    ("lost", "way", "lossy"),
    [(range(2), "none", []), (range(1), "send", [0]), (range(1, 2), "recv", [1])],
)
def test_what_one_rank_lost_and_its_peer_shows_makes_bounds_of_its_times(
    pipelines: Path, tmp_path: Path, lost: range, way: str, lossy: list[int]
) -> None:
    for rank in range(2):
        trace = json.loads(gzip.decompress((pipelines / "interleaved" / f"rank{rank}.json.gz").read_bytes()))
        if rank in lost:
            names = (f"c10d::{way}", f"c10d::{way}_", f"gloo:{way}")
            trace["traceEvents"] = [one for one in trace["traceEvents"] if one["name"] not in names]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace))
    traces = analyze_traces([tmp_path])
    least = "at least " if lossy else ""
    answer = answer_lines(traces)
    assert re.search(f"step [^,]*, {least}[0-9.]+ ms exposed", answer[0])
    assert any(line.startswith(f"pipeline bubble {least}") and "n/a" not in line for line in answer)
    advice = next(one for one in advise_traces(traces) if one.why.startswith("pipeline bubble"))
    assert ("At most" in advice.words) is not bool(lossy)  # of what is known at least, no more than that is known
    for one in traces.analyses:
        assert [step.overlap.is_least for step in one.steps] == [one.rank in lossy] * 2
        assert one.unseen == (24 if one.rank in lossy else 0)  # of 12 a step


def test_a_bubble_of_which_none_was_seen_is_no_zero_where_sends_are_lost(pipelines: Path, tmp_path: Path) -> None:
    for rank in range(2):
        trace = json.loads(gzip.decompress((pipelines / "plain" / f"rank{rank}.json.gz").read_bytes()))
        if not rank:
            trace["traceEvents"] = [one for one in trace["traceEvents"] if one["name"] != "c10d::send"]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace))
    (said,) = [line for line in answer_lines(analyze_traces([tmp_path])) if line.startswith("pipeline bubble")]
    assert said.startswith("pipeline bubble n/a: none was seen")


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zero_bubble"])
def test_without_any_node_of_backward_a_training_may_have_stages(pipelines: Path, tmp_path: Path, name: str) -> None:
    for rank in range(2):
        trace = json.loads(gzip.decompress((pipelines / name / f"rank{rank}.json.gz").read_bytes()))
        trace["traceEvents"] = [one for one in trace["traceEvents"] if "evaluate_function" not in one["name"]]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace))
    traces = analyze_traces([tmp_path])
    for one in traces.analyses:
        for step in one.steps:
            assert Purpose.PIPELINE in step.untold or {row.purpose for row in step.purposes} == {Purpose.PIPELINE}
    rows = {row.purpose: row for row in average_purposes(traces.analyses)}
    assert rows[Purpose.PIPELINE].exposed_ns != 0


@pytest.mark.parametrize("name", SHARED)
def test_ranks_that_share_nothing_but_sends_are_one_job(pipelines: Path, name: str) -> None:
    found = explain([analyze(pipelines / name / f"rank{rank}.json.gz") for rank in (0, 1)])
    assert found.over_ranks.is_one_job
    assert found.over_ranks.notes == ()
    assert found.over_ranks.transfers.alone == {}
    causes = {str(row.cause) for row in found.owners}
    assert ("bubble" in causes, "skew" in causes) == (name != "ring", name == "ring")
    assert all(row.owner for row in found.owners)
    for one in found.analyses:
        for step in one.steps:  # what is exposed is what the thread stood still
            (pipeline,) = step.purposes
            assert pipeline.wait_ns == pytest.approx(pipeline.exposed_ns, rel=0.02), (name, one.rank)


def test_ring_attention_gets_no_advice_for_pipelines(pipelines: Path) -> None:
    """As the causes alone have it: its two steps are unlike, so that an answer names none."""
    traces = analyze_traces([pipelines / "ring"])
    advices = advise(
        [of_traces(row) for row in traces.owners], describe_traces(traces), step_ns=math.nan, comm_ns=math.nan
    )
    said = "\n".join([*answer_lines(traces), *(f"{one.why}: {one.words}" for one in advices)])
    assert "waited for other ranks" in said
    assert not re.search("pipeline|micro-batch|bubble|stage", said)
    assert "pipeline bubble" in "\n".join(answer_lines(analyze_traces([pipelines / "plain"])))


SAID = '{"Input Dims": [[[4]], [], [], []], "Input type": ["TensorList", "", "Scalar", "Scalar"]}'
NODE = "autograd::engine::evaluate_function: MmBackward0"


@pytest.mark.parametrize(
    ("around", "first", "between", "after", "purpose"),
    [
        ("forward", "send", "aten::empty", "aten::mm", "other"),  # a ring
        ("forward", "recv_", "aten::empty", "aten::mm", "other"),
        ("forward", "send", "aten::mm", "aten::mm", "other"),  # no backward
        ("forward", "recv_", "aten::mm", "aten::mm", "other"),
        ("forward", "recv_", "aten::mm", NODE, "other"),  # what forward made is sent, and no gradient
        ("forward", "send", "aten::empty", NODE, "pipeline"),  # the first stage: backward begins with what it got
        (NODE, "send", "aten::empty", NODE, "other"),  # a ring's backward
        ("PP:(0SEND_F2;0RECV_B1)P2P", "send", "aten::empty", "aten::mm", "pipeline"),
        ("torch/distributed/pipelining/schedules.py(9): step", "send", "aten::empty", "aten::mm", "pipeline"),
    ],
)
def test_what_both_sends_and_receives_at_once_is_a_pipelines_only_where_something_says_so(
    draw: Callable[..., Path], around: str, first: str, between: str, after: str, purpose: str
) -> None:
    second = "send" if first == "recv_" else "recv_"
    kind = "range" if around == "forward" else "op"
    one = analyze(
        draw(f"""
        step ProfilerStep#1      @1 |====================|
        op aten::mm              @1 |===                 |
        {kind} {around}          @1 |   ===============  |
        op c10d::{first}         @1 |     ==             | {SAID}
        op {between}             @1 |        =           |
        op c10d::{second}        @1 |           ==       | {SAID}
        op {after}               @1 |                  = |
        """)
    )
    assert [str(one.purpose) for one in one.collectives] == [purpose] * 2


def test_what_a_schedule_says_of_stage_and_micro_batch_is_the_owner(pipelines: Path) -> None:
    for name in ("interleaved", "zero_bubble"):
        for rank in (0, 1):
            one = analyze(pipelines / name / f"rank{rank}.json.gz")
            of_first = [c for c, step in zip(one.collectives, one.step_of, strict=True) if step == 0]
            # Stage 0 of four sends what it computes and receives gradients, stage 3 the other way round.
            ways = {0: ("send", "recv"), 3: ("recv", "send")}
            expected = [
                (f"stage {stage}, micro-batch {batch}", way)
                for stage in (rank, rank + 2)
                for batch in range(4)
                for way in ways.get(stage, ("send", "recv") * 2)
            ]
            assert sorted((c.owner, str(c.operation)) for c in of_first) == sorted(expected), (name, rank)


def test_without_steps_and_backward_the_thread_with_most_operators_computes_though_it_sends(
    draw: Callable[..., Path],
) -> None:
    one = analyze(
        draw("""
        op aten::mm              @1 |=== ==     |
        op c10d::send            @1 |      ==   |
        range gloo:send          @1 |       === |
        range gloo:all_reduce    @2 |   ====    |
        op aten::copy_           @2 |   =       |
        """)
    )
    assert one.whole.compute_ns == 5000


def test_to_whom_a_labelled_send_goes_is_said_by_the_operator_inside_its_range(draw: Callable[..., Path]) -> None:
    said = '{"Concrete Inputs": ["", "", "1", "0"], "Input Dims": [[[4]], [], [], []]}'
    one = analyze(
        draw(
            f"""
            step ProfilerStep#1      @1 |====================|
            op aten::mm              @1 |====                |
            op c10d::send            @1 |     ==             | {said}
            range dtbench::collective group=0 seq=1 op=send bytes=16 axis= async=1 owner= @1 |    =====           |
            range gloo:send          @1 |      =====         | {{"Input Dims": [[4]], "Input type": ["float"]}}
            """,
            distributedInfo={"rank": 0, **JOB},
        )
    )
    (sent,) = one.collectives
    assert (sent.group, sent.seq, sent.peer, sent.group_ranks, sent.owner) == ("0", 1, 1, (0, 1), "to rank 1")
    assert (sent.first_wait_ns, sent.first_wait_end_ns) == (9000, 11000)


def test_a_loss_that_is_sent_after_the_step_makes_no_pipeline(draw: Callable[..., Path]) -> None:
    """Nor does one of another size, or to another rank, than what came in."""
    said = '{{"Input Dims": [[[{0}]], [], [], []], "Input type": ["TensorList", "", "Scalar", "Scalar"], {1}}}'
    peer = '"Concrete Inputs": ["", "", "{0}", "0"]'
    for received, size, to, update, purpose in (
        (4, 4, 0, "aten::mm", "pipeline"),
        (4, 1, 0, "aten::mm", "other"),
        (4, 4, 1, "aten::mm", "other"),
        (4, 4, 0, "Optimizer.step#SGD.step", "other"),
    ):
        one = analyze(
            draw(f"""
            step ProfilerStep#1      @1 |====================|
            op c10d::recv_           @1 |=                   | {said.format(received, peer.format(0))}
            op aten::mm              @1 |   ==               |
            op {NODE}                @1 |      ===           |
            op {update}              @1 |          ===       |
            op c10d::send            @1 |              =     | {said.format(size, peer.format(to))}
            """)
        )
        assert {str(one.purpose) for one in one.collectives} == {purpose}


@pytest.mark.parametrize("is_stage", [True, False])
def test_what_looks_like_a_stage_at_one_end_alone_is_none(draw: Callable[..., Path], *, is_stage: bool) -> None:
    """A worker gets parameters, and sends gradients as large; its server computes no backward."""
    said = (
        '{{"Input Dims": [[[4]], [], [], []], "Input type": ["TensorList", "", "Scalar", "Scalar"],'
        ' "Concrete Inputs": ["", "", "{0}", "0"]}}'
    )
    moved = '{"Input Dims": [[4]], "Input type": ["float"]}'
    worker = draw(
        f"""
        step ProfilerStep#1      @1 |====================|
        op c10d::recv_           @1 | =                  | {said.format(0)}
        range gloo:recv          @1 | ===                | {moved}
        op aten::mm              @1 |     ==             |
        op {NODE}                @1 |        ==          |
        op c10d::send            @1 |           =        | {said.format(0)}
        range gloo:send          @1 |           ==       | {moved}
        """,
        "rank1.json",
        distributedInfo={"rank": 1, **JOB},
        host_name="one",
    )
    server = draw(
        f"""
        step ProfilerStep#1      @1 |====================|
        op aten::mm              @1 |=                   |
        op c10d::send            @1 | =                  | {said.format(1)}
        range gloo:send          @1 | ==                 | {moved}
        op c10d::recv_           @1 |    =               | {said.format(1)}
        range gloo:recv          @1 |    =========       | {moved}
        op {NODE if is_stage else "aten::sub_"} @1 |              ==    |
        """,
        "rank0.json",
        distributedInfo={"rank": 0, **JOB},
        host_name="one",
    )
    assert {str(one.purpose) for one in analyze(worker).collectives} == {"pipeline"}
    found = explain([analyze(server), analyze(worker)])
    purpose = "pipeline" if is_stage else "other"
    assert {str(one.purpose) for rank in found.analyses for one in rank.collectives} == {purpose}
    assert {str(row.purpose) for rank in found.analyses for row in rank.whole_purposes} == {purpose}
    if not is_stage:
        assert all(row.cause is not Cause.BUBBLE for row in found.owners)
