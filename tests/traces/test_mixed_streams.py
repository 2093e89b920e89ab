"""Traces whose device rows all bear one stream's number: what rests on streams is not known, all else is as it was."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.errors import PredictionError
from dtbench.base.vocabulary import Cause, MissingInput
from dtbench.replay.read import read_graph
from dtbench.report.documents.traces import document_head
from dtbench.report.words.trace_words import answer_lines, remark_lines
from dtbench.traces.device.streams import MixedStreams
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.trace_set import TraceSet

RECORDED = Path(__file__).parent / "recorded" / "two_ranks_one_gpu"
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
OF_STREAMS = {*Cause} - {Cause.SKEW, Cause.BUBBLE, Cause.UNKNOWN}


def read_events(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return document


def merge(name: str, folder: Path, *, by_ns: float = 0.0) -> list[Path]:
    """Write the ranks of a set with all work of a device on one stream; ``by_ns`` moves its collectives."""
    paths = []
    for path in sorted((RECORDED / name).glob("rank*.json.gz")):
        document = read_events(path)
        for event in document["traceEvents"]:
            if event.get("cat") in DEVICE:
                event["tid"], event["args"]["stream"] = 7, 7
        paths.append(folder / path.name.removesuffix(".gz"))
        paths[-1].write_text(json.dumps(document))
    return paths


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "graph", "skew", "host", "compiled"])
def test_what_rests_on_streams_is_not_known(name: str, tmp_path: Path) -> None:
    told, mixed = (analyze_traces(paths, workers=1) for paths in ([RECORDED / name], merge(name, tmp_path)))
    for before, after in zip(told.analyses, mixed.analyses, strict=True):
        assert not before.mixed_streams
        assert after.mixed_streams
        assert [step.overlap for step in after.steps] == [step.overlap for step in before.steps]
        assert {part.cause for split in after.splits for part in split.parts} <= {
            Cause.SKEW,
            Cause.BUBBLE,
            Cause.UNKNOWN,
        }
        assert {row.wait_ns for step in after.steps for row in step.purposes if row.exposed_ns} <= {None}
        assert all(step.gaps is None for step in after.accounts.steps)
    asked = {
        missing for one in mixed.analyses for split in one.splits for part in split.parts for missing in part.missing
    }
    assert MissingInput.STREAMS in asked
    assert any("does not tell streams apart" in line for line in remark_lines(mixed))
    assert not any("issued blocking" in line or "gradient wait 0" in line for line in answer_lines(mixed))
    ranks: Any = document_head(mixed)["ranks"]
    assert all(rank["mixed_streams"]["time_ns"] > 20_000 for rank in ranks)
    with pytest.raises(PredictionError, match="streams of devices are not told apart on ranks 0-1"):
        read_graph(mixed)


@pytest.mark.parametrize("name", sorted(path.name for path in RECORDED.iterdir() if path.is_dir()))
def test_of_no_real_trace_streams_are_called_mixed(name: str) -> None:
    traces: TraceSet = analyze_traces([RECORDED / name], workers=1)
    assert [one.mixed_streams for one in traces.analyses] == [MixedStreams()] * len(traces.analyses)
    ranks: Any = document_head(traces)["ranks"]
    assert all(rank["mixed_streams"] is None for rank in ranks)


def analyze_with_a_kernel_beside(folder: Path, first_us: float, last_us: float) -> TraceSet:
    """Analyze a trace with a kernel on a collective's stream, from and to these times after that begins."""
    document = read_events(RECORDED / "at_once" / "rank0.json.gz")
    kernels = [event for event in document["traceEvents"] if event.get("cat") == "kernel"]
    nccl = next(event for event in kernels if event["name"].startswith("nccl"))
    assert nccl["dur"] > 50.0
    beside = dict(nccl, name="gemm", ts=nccl["ts"] + first_us, dur=last_us - first_us)
    beside["args"] = {name: value for name, value in nccl["args"].items() if name in ("stream", "device", "context")}
    path = folder / "rank0.json"
    path.write_text(json.dumps({**document, "traceEvents": [*document["traceEvents"], beside]}))
    return analyze_traces([path], workers=1)


@pytest.mark.parametrize(
    ("first_us", "last_us", "said"),
    [
        (-100.0, 4.0, None),
        (-100.0, 8.0, "8.00 us in all, which is too short"),
        (-100.0, 30.0, "30.0 us in all, which no stream does"),
        (3.0, 9.0, "6.00 us in all, which no stream does"),
    ],
)
def test_a_lane_is_no_stream_where_work_overlaps_for_longer_than_what_is_launched_early_or_ends_inside(
    tmp_path: Path, first_us: float, last_us: float, said: str | None
) -> None:
    traces = analyze_with_a_kernel_beside(tmp_path, first_us, last_us)
    (one,) = traces.analyses
    assert bool(one.mixed_streams) is (said is not None and said.endswith("no stream does"))
    notes = [str(note) for note in traces.notes if "of its own stream" in str(note)]
    lead = "rank 0: 1 time a collective ran beside other work of its own stream, for "
    assert [note[: len(f"{lead}{said}")] for note in notes] == ([f"{lead}{said}"] if said else [])
