"""Rows that a trace of threads has twice: left out, counted, and everything else is as without them."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.notes.files import CopiedRows
from dtbench.traces.notes.note import pick_notes
from dtbench.traces.rows.collective_table import COLLECTIVES

RECORDED = Path(__file__).parent / "recorded" / "ddp_2ranks_rank0.json.gz"


def is_gloos(event: dict[str, Any]) -> bool:
    return str(event.get("name")).startswith("gloo:")


@pytest.mark.parametrize(("times", "are_all"), [(2, True), (3, True), (2, False)])
def test_a_trace_with_rows_more_than_once_says_what_it_says_without(
    tmp_path: Path, times: int, *, are_all: bool
) -> None:
    document = json.loads(gzip.decompress(RECORDED.read_bytes()))
    rows = document["traceEvents"]
    copied = [one for one in rows if one.get("ph") == "X" and (are_all or is_gloos(one))]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({**document, "traceEvents": [*rows, *copied * (times - 1)]}), encoding="utf-8")
    plain, doubled = analyze_traces([RECORDED]), analyze_traces([path])
    assert doubled.analyses[0].steps == plain.analyses[0].steps
    assert doubled.owners == plain.owners
    assert COLLECTIVES.tabulate(doubled.analyses).equals(COLLECTIVES.tabulate(plain.analyses))
    (note,) = pick_notes(doubled.notes, CopiedRows)
    gloos = sum(map(is_gloos, copied))
    assert note.collectives == gloos * (times - 1)
    assert (note.others > 0) == are_all
    said = f"rank 0: {note.collectives} collectives are copies of others, of the same thread, begin and end"
    assert str(note).startswith(said)
    assert not pick_notes(plain.notes, CopiedRows)


def test_what_two_threads_run_at_once_and_what_takes_no_time_is_no_copy(draw: Callable[..., Path]) -> None:
    drawing = """
    step ProfilerStep#1   @1 |=======|
    op aten::mm           @1 |==     |
    range gloo:all_reduce @2 | ===   |
    range gloo:all_reduce @3 | ===   |
    range gloo:broadcast  @2 |    == |
    """
    path = draw(drawing)
    document = json.loads(path.read_text(encoding="utf-8"))
    (last,) = (one for one in document["traceEvents"] if one["name"] == "gloo:broadcast")
    last["dur"] = 0
    path.write_text(json.dumps({**document, "traceEvents": [*document["traceEvents"], last]}), encoding="utf-8")
    assert not pick_notes(analyze_traces([path]).notes, CopiedRows)
