"""Kernels that took no time: not recorded by a fine clock, short by a coarse one."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.notes.lacking import LostKernels
from dtbench.traces.notes.note import pick_notes
from dtbench.traces.reader import read_trace


def stop_clock(source: Path, into: Path, *, coarse: bool) -> Path:
    """Write a trace whose products of matrices took no time; by a coarse clock, each time in whole microseconds."""
    content: dict[str, Any] = json.loads(gzip.decompress(source.read_bytes()))
    for one in content["traceEvents"]:
        if one.get("cat") == "kernel" and "gemm" in one["name"]:
            one["dur"] = 0
        if coarse and "dur" in one:
            one["ts"], one["dur"] = int(one["ts"]), int(one["dur"])
    path = into / "rank0.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("coarse", [False, True])
def test_kernels_of_no_time_are_not_read_unless_the_clock_is_coarse(
    recorded: Path, tmp_path: Path, *, coarse: bool
) -> None:
    source = recorded / "two_ranks_one_gpu" / "ddp" / "rank0.json.gz"
    path = stop_clock(source, tmp_path, coarse=coarse)
    traces = analyze_traces([path])
    (one,) = traces.analyses
    assert dict(read_trace(path).unread.events) == ({} if coarse else {"kernel that took no time": 60})
    assert [step.overlap.exposed_comm_ns is None for step in one.steps] == [not coarse] * 3
    assert [note.kernels for note in pick_notes(traces.notes, LostKernels)] == ([] if coarse else [60])
