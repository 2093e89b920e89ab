"""Spans of gloo that are lost, one at a time: what is left is of no other collective."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dtbench.base.vocabulary import Operation, Purpose
from dtbench.traces.cpu.gloo_match import Form, Issue, Span, match_spans
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.means import MeanPurpose, average_purposes
from dtbench.traces.job.trace_set import TraceSet, find_lacking
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace

ZERO3 = Path(__file__).parent / "recorded" / "zero" / "zero3"


def read_events(rank: int) -> dict[str, Any]:
    trace: dict[str, Any] = json.loads(gzip.decompress((ZERO3 / f"rank{rank}.json.gz").read_bytes()))
    return trace


def find_gradients(traces: TraceSet) -> MeanPurpose:
    return next(row for row in average_purposes(traces.analyses) if row.purpose is Purpose.GRAD_REDUCE)


def test_a_lost_span_makes_no_wait_longer_and_none_surer(tmp_path: Path) -> None:
    whole = find_gradients(analyze_traces([ZERO3]))
    assert whole.wait_ns is not None
    traces = {rank: read_events(rank) for rank in (0, 1)}
    paths = {rank: tmp_path / f"rank{rank}.json" for rank in traces}
    for rank, trace in traces.items():
        paths[rank].write_text(json.dumps(trace))
    for rank, trace in traces.items():
        events = trace["traceEvents"]
        for lost in [one for one in events if one.get("name", "").startswith("gloo:all_reduce")]:
            paths[rank].write_text(json.dumps({**trace, "traceEvents": [one for one in events if one is not lost]}))
            found = analyze_traces([tmp_path])
            row = find_gradients(found)
            assert found.analyses[rank].unmatched == 1
            assert row.wait_ns is not None
            assert row.wait_ns <= whole.wait_ns
            assert sum(one.unseen for one in found.analyses) == 1
            was = {one.issue_ns: one.end_ns for one in analyze_traces([ZERO3]).analyses[rank].collectives}
            assert all(
                one.end_ns == was[one.issue_ns] for one in found.analyses[rank].collectives if len(one.span.starts_ns)
            )
        paths[rank].write_text(json.dumps(trace))


def match(issues: list[tuple[int, int | None]], starts_ns: list[int]) -> tuple[list[int | None], list[tuple[int, ...]]]:
    """Return when each issue's span began, and of which issues each span is where that is not told."""
    made = [
        Issue(place, issued_ns, Operation.ALL_REDUCE, None, (4,), until_ns=until_ns)
        for place, (issued_ns, until_ns) in enumerate(issues)
    ]
    form = Form(Operation.ALL_REDUCE, 4, 16)
    spans = [Span(100 + place, start_ns, place % 2, form, "float") for place, start_ns in enumerate(starts_ns)]
    found = match_spans(made, spans)
    begun_ns = [found.spans[one.event].start_ns if one.event in found.spans else None for one in made]
    return begun_ns, list(found.untold.values())


def test_which_of_several_alike_is_lost_is_not_told() -> None:
    assert match([(0, None), (10, None), (20, None)], [5, 25]) == ([5, None, None], [(1, 2)])
    assert match([(0, None), (10, None)], [15]) == ([None, None], [(0, 1)])
    assert match([(0, None), (10, None), (20, None)], [5, 15, 25]) == ([5, 15, 25], [])


def test_what_was_over_before_a_span_began_is_what_is_lost() -> None:
    assert match([(0, 10), (10, 20), (20, None)], [5, 25]) == ([5, None, 25], [])
    assert match([(0, 12), (5, 12), (20, None), (25, None)], [7, 22, 27]) == ([None, None, 22, 27], [(0, 1)])


DDP = """
step ProfilerStep#1                   @1 |=============             |
step ProfilerStep#2                   @1 |             =============|
range DistributedDataParallel.forward @1 |==           ==           |
op aten::mm                           @1 |==           ==           |
op autograd::engine::evaluate_function: torch::autograd::AccumulateGrad @1 |  ==== ==      ==== ==    |
op c10d::allreduce_                   @1 |   =   =        =   =     | {}
range gloo:all_reduce                 @2 |                 =   ==   | {}
""".replace("{}", json.dumps({"Input Dims": [[[4]]], "Input type": ["TensorList"]}), 1).replace(
    "{}", json.dumps({"Input Dims": [[4]], "Input type": ["float"]})
)
SPAN = """range gloo:all_reduce                 @2 |{}| {"Input Dims": [[4]], "Input type": ["float"]}"""


def draw_ddp(draw: Callable[..., Path], *spans: str) -> TraceAnalysis:
    return analyze_trace(read_trace(draw("\n".join([DDP.strip(), *(SPAN.replace("{}", span) for span in spans)]))))


def test_a_lost_span_leaves_no_other_backward_in_doubt(draw: Callable[..., Path]) -> None:
    whole = draw_ddp(draw, "    =                     ", "        ===               ")
    assert whole.unmatched == 0
    lost = draw_ddp(draw, "        ===               ")
    first, second = lost.steps
    assert second == whole.steps[1]
    assert (first.overlap.is_least, first.overlap.comm_ns, first.lost) == (True, 3000, 1)
    (row,) = first.purposes
    assert (row.purpose, row.count, row.comm_ns, row.is_wait_least) == (Purpose.GRAD_REDUCE, 2, 3000, True)
    assert (lost.unmatched, lost.untold_spans) == (1, 1)
    assert [one.owner for one in lost.collectives] == ["bucket 0", "bucket 1", "bucket 0", "bucket 1", ""]
    (note,) = find_lacking([lost])
    assert "1 of 4 collectives has no span" in str(note)
    assert "it is one of 2 alike, and it is not told which" in str(note)


def test_a_span_that_began_before_the_next_issue_is_of_the_issue_before(draw: Callable[..., Path]) -> None:
    lost = draw_ddp(draw, "    =                     ")
    assert [one.is_seen for one in lost.collectives] == [True, False, True, True]
    assert not lost.steps[1].overlap.is_least
    assert lost.untold_spans == 0


def test_of_one_group_all_began_before_a_later_blocking_one_was_over(draw: Callable[..., Path]) -> None:
    """In a trace of one process group; of several the later one may be another's."""
    said = json.dumps({"Input Dims": [[[4]]], "Concrete Inputs": ["", "True", "-1"]})
    blocking = json.dumps({"Input Dims": [[1]], "Concrete Inputs": ["", "False", "-1"]})
    size = json.dumps({"Input Dims": [[4]], "Input type": ["float"]})
    drawing = f"""
        step ProfilerStep#1  @1 |==========                |
        step ProfilerStep#2  @1 |          ==========      |
        op aten::mm          @1 | =         =              |
        op c10d::allreduce_  @1 |  =         =             | {said}
        op c10d::barrier     @1 |     =         =          | {blocking}
        range gloo:barrier   @3 |      =         =         |
        range gloo:all_reduce @2 |             =            | {size}
        """
    groups = [{"pg_name": str(name), "pg_size": 2, "ranks": [0, 1]} for name in range(2)]
    for count, are_seen in ((1, [False, True]), (2, [False, False])):
        told = {"distributedInfo": {"rank": 0, "world_size": 2, "pg_config": groups[:count]}}
        one = analyze_trace(read_trace(draw(drawing, **told)))
        found = [one.is_seen for one in one.collectives if one.operation is Operation.ALL_REDUCE and one.issue_ns]
        assert found == are_seen
