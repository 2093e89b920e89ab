"""The unchanged replay of recorded traces gives their steps, and every class of edges is needed for that."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from dtbench.base.errors import PredictionError
from dtbench.replay.fit import WORST, measure_fit
from dtbench.replay.graph import ALL_EDGES, Edge
from dtbench.replay.read import Recorded, read_graph
from dtbench.traces.job.foreign import analyze_traces
from tests.unpack import unpack

RECORDED = Path(__file__).parents[1] / "traces" / "recorded"
SHARED = Path(__file__).parents[3] / "shared" / "traces"
H200 = ("ddp", "fsdp2", "fsdp2_tp", "skew", "host", "sendrecv", "at_once", "compiled")


def read(*paths: Path) -> Recorded:
    return read_graph(analyze_traces(paths, workers=1))


@pytest.mark.parametrize("name", H200)
def test_two_ranks_on_a_device_to_a_thousandth(name: str) -> None:
    fit = measure_fit(read(RECORDED / "two_ranks_one_gpu" / name))
    assert fit.worst < 0.002, fit


@pytest.mark.parametrize(
    ("path", "worst"),
    [("ddp_2ranks_rank0.json.gz", 0.005), ("pipelines/plain", 0.02), ("zero/zero2", 0.01), ("zero/zero3", WORST)],
)
def test_ranks_on_cpus(path: str, worst: float) -> None:
    fit = measure_fit(read(RECORDED / path))
    assert fit.worst < worst, fit


@pytest.mark.parametrize("name", ["queue1", "queue8"])
def test_traces_that_know_microseconds(name: str) -> None:
    assert measure_fit(read(RECORDED / "one_hardware_queue" / name)).worst < 0.005


def test_a_step_that_begins_with_work_that_takes_no_time(tmp_path: Path) -> None:
    for path in (RECORDED / "one_hardware_queue" / "queue8").iterdir():
        document = json.loads(path.read_text())
        ran = [one for one in document["traceEvents"] if one.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        min(ran, key=lambda one: float(one["ts"]))["dur"] = 0
        (tmp_path / path.name).write_text(json.dumps(document))
    fit = measure_fit(read(tmp_path))
    assert fit.replayed_ns[0] == pytest.approx(fit.recorded_ns[0] - 1_000_000, rel=0.01)  # the first kernel took 1 ms
    assert not fit.holds


NEEDED = {
    Edge.LAUNCH: "two_ranks_one_gpu/compiled",
    Edge.STREAM: "two_ranks_one_gpu/skew",
    Edge.WAIT: "two_ranks_one_gpu/fsdp2",
    Edge.QUEUE: "two_ranks_one_gpu/at_once",
}


@pytest.mark.parametrize("edge", list(Edge))
def test_without_a_class_of_edges_some_replay_does_not_fit(edge: Edge) -> None:
    assert not measure_fit(read(RECORDED / NEEDED[edge]), ALL_EDGES - {edge}).holds


@pytest.mark.skipif(not SHARED.is_dir(), reason="the trace sets are not here")
@pytest.mark.parametrize(
    ("name", "worst"),
    [
        ("v100x8_dlrm_all_ranks.tar.gz", 0.005),
        ("a100x8_ddp_rank.json.gz", 0.015),
        ("mi300x_ddp_rank.json.gz", 0.015),
        ("h800_deepep_train.json.gz", 0.015),
    ],
)
def test_trace_sets_of_other_people(name: str, worst: float, tmp_path: Path) -> None:
    if name.endswith(".tar.gz"):
        unpack(SHARED / name, tmp_path)
    else:
        with gzip.open(SHARED / name) as packed, (tmp_path / name.removesuffix(".gz")).open("wb") as plain:
            shutil.copyfileobj(packed, plain)
    recorded = read(tmp_path)
    fit = measure_fit(recorded)
    assert fit.worst < worst, fit
    every = {number for one in recorded.traces.analyses for number in one.timeline.step_numbers}
    assert {*fit.numbers, *recorded.left_out} == every
    assert bool(recorded.left_out) == name.startswith("mi300x")  # its first step was launched before the trace


def test_steps_that_others_disturbed_are_left_out() -> None:
    traces = analyze_traces([RECORDED / "two_ranks_one_gpu" / "host"], workers=1)
    *others, last = read_graph(traces).numbers
    assert others
    kept = read_graph(traces, {last})
    assert last not in kept.numbers
    assert last in kept.left_out
    assert measure_fit(kept).worst < 0.002
    with pytest.raises(PredictionError, match="others disturbed every step of which all is known"):
        read_graph(traces, range(100))


@pytest.mark.parametrize(("name", "off"), [("compiled", 0.06), ("fsdp2", 0.16)])
def test_what_kernels_would_take_alone_is_the_overlap_tax_of_the_analysis(name: str, off: float) -> None:
    """Of each run its own length in place of the median, of all steps, which are all replayed."""
    recorded = read(RECORDED / "two_ranks_one_gpu" / name)
    for one in recorded.traces.analyses:
        tax, items = one.accounts.overlap_tax, recorded.graph[one.rank].items
        assert tax is not None
        assert (items.busy_ns - items.alone_ns).sum() == pytest.approx(tax.tax_ns, rel=off)
        assert (items.busy_ns != items.alone_ns).sum() == tax.compared_count
