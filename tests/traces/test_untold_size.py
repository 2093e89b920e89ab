"""Traces that do not tell how many ranks their job has: any may be missing, and the last may be among these."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import dtbench
from dtbench.base.vocabulary import Cause, MissingInput
from dtbench.report.documents.traces import document_head as traces_document
from dtbench.report.words.trace_words import answer_lines
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.notes.note import say_notes

TRACES = Path(__file__).parent / "recorded" / "two_ranks_one_gpu" / "skew"
SIZES = ("Group size", "Process Group Ranks")


def write_without(target: Path, world_size: int | None, group_size: int | None) -> None:
    """Write two ranks of which the job's or the groups' size is another, or not told."""
    for rank in (0, 1):
        trace: dict[str, Any] = json.loads(gzip.decompress((TRACES / f"rank{rank}.json.gz").read_bytes()))
        del trace["distributedInfo"]
        if world_size is not None:
            trace["distributedInfo"] = {"rank": rank, "world_size": world_size}
        for one in trace["traceEvents"]:
            args = one.get("args", {})
            is_told = any(name in args for name in SIZES)
            for name in SIZES:
                args.pop(name, None)
            if is_told and group_size is not None:
                args["Group size"] = group_size
        (target / f"rank{rank}.json").write_text(json.dumps(trace))


@pytest.mark.parametrize(
    ("world_size", "group_size", "is_known"), [(2, None, True), (None, 2, True), (None, None, False), (3, None, False)]
)
def test_who_was_last_is_told_only_where_some_trace_says_that_no_rank_is_missing(
    tmp_path: Path, world_size: int | None, group_size: int | None, is_known: bool
) -> None:
    write_without(tmp_path, world_size, group_size)
    traces = analyze_traces([tmp_path])
    lines = answer_lines(traces)
    assert any("rank 1 is last in" in line for line in lines) is is_known
    causes = {row.cause for row in traces.owners}
    missing = {one for row in traces.owners for one in row.missing}
    assert (Cause.SKEW in causes, MissingInput.RANKS in missing) == (is_known, not is_known)
    untold = "no trace says how many ranks the job has: some may be missing, for whom all may have waited"
    assert (untold in say_notes(traces.notes)) is (not is_known and world_size is None)
    said = [line for line in lines if "may be of more ranks than are here, as no trace says of how many" in line]
    assert len(said) == (not is_known and world_size is None)


@pytest.mark.parametrize(
    ("world_size", "group_size", "who"),
    [
        (2, None, "alone of 2: whatever its cause, any of it may be waiting for the other;"),
        (None, 3, "alone of at least 3: whatever its cause, any of it may be waiting for the others;"),
        (None, None, "alone, and no trace says of how many: whatever its cause, any of it may be waiting for others;"),
        (1, None, None),
    ],
)
def test_one_rank_alone_may_wait_for_others_unless_its_trace_says_that_there_are_none(
    tmp_path: Path, world_size: int | None, group_size: int | None, who: str | None
) -> None:
    """Rank 1 came late, so some of what rank 0 queued for is a wait for it; every reader of the notes is told."""
    write_without(tmp_path, world_size, group_size)
    report = dtbench.read_trace(tmp_path / "rank0.json")
    assert any(row.cause is Cause.QUEUED for row in report.traces.owners)
    said = [] if who is None else [f"rank 0 {who} only all ranks' traces tell"]
    for told in (answer_lines(report.traces), report.notes, traces_document(report.traces)["notes"]):
        assert isinstance(told, tuple | list)
        assert [line for line in told if "rank 0 alone" in line] == said
    assert str(report).count("rank 0 alone") == len(said)
