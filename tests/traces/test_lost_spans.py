"""Spans of gloo that are lost, one at a time: what is left is of no other collective."""

import gzip
import json
from pathlib import Path
from typing import Any

from dtbench.base.vocabulary import Purpose
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.means import MeanPurpose, average_purposes
from dtbench.traces.job.trace_set import TraceSet

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
