"""One trace and the same with one all-gather stretched from 2 to 35 ms: the first sentence names it and its owner."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from dtbench.base.vocabulary import Operation, Purpose
from dtbench.comparison.comparison import Comparison, KernelOutcome, Outcome
from dtbench.comparison.run import compare_paths
from dtbench.report.page.comparison_page import comparison_tables

LAYERS: Final = 4
STEP_US: Final = 40_000
STRETCH_US: Final = 33_000
RECORDED: Final = Path(__file__).parents[1] / "traces" / "recorded"
SHARED: Final = Path(__file__).parents[3] / "shared" / "traces"


def make_events(*, with_owner: bool = True) -> list[dict[str, Any]]:
    """Two steps of four units: each gathered for 2 ms, half of it beside the compute of the unit before, for 3 ms."""
    events: list[dict[str, Any]] = []
    for step in range(2):
        begin = step * STEP_US
        events += [
            _event("user_annotation", f"ProfilerStep#{step + 3}", begin, STEP_US, 1),
            _event("cuda_runtime", "cudaLaunchKernel", begin + STEP_US - 1_100, 10, 1, correlation=1000 + step),
            _event("kernel", "update", begin + STEP_US - 1_000, 1_000, 7, correlation=1000 + step),
        ]
        for layer in range(LAYERS):
            issue = begin + 100 + 1000 * layer
            gather = begin + 500 + 4000 * layer
            correlation = 10 * (LAYERS * step + layer) + 1
            if with_owner:
                events.append(_event("user_annotation", f"FSDP::all_gather (layers.{layer})", issue, 500, 1))
            events += [
                _event("cpu_op", "c10d::_allgather_base_", issue + 10, 400, 1),
                _event("cpu_op", "record_param_comms", issue + 20, 300, 1),
                _event("cuda_runtime", "cudaLaunchKernel", issue + 50, 10, 1, correlation=correlation),
                _event(
                    "kernel",
                    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                    gather,
                    2000,
                    9,
                    **{"correlation": correlation, "Collective name": "_allgather_base", "Process Group Name": "1"},
                    **{"Group size": 2, "dtype": "Float", "In msg nelems": 500, "Out msg nelems": 1000},
                    Seq=LAYERS * step + layer,
                ),
                _event("cpu_op", "aten::mm", issue + 600, 100, 1),
                _event("cuda_runtime", "cudaLaunchKernel", issue + 620, 10, 1, correlation=correlation + 1),
                _event("kernel", "gemm", gather + 1000 + 1000, 3000, 7, correlation=correlation + 1),
            ]
    return events


def _event(category: str, name: str, start_us: int, duration_us: int, lane: int, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 0,
        "tid": lane,
        "ts": start_us,
        "dur": duration_us,
        "args": args,
    }


def stretch(events: Sequence[dict[str, Any]], index: int, *, with_rest: bool) -> list[dict[str, Any]]:
    """Make one event 33 ms longer; ``with_rest``: what begins after it comes later by as much, as on a real stream."""
    end = events[index]["ts"] + events[index]["dur"]
    step_end = max(event["ts"] + event["dur"] for event in events)

    def change(place: int, event: dict[str, Any]) -> dict[str, Any]:
        if place == index or (with_rest and event["ts"] < end <= step_end and event["name"].startswith("ProfilerStep")):
            holds = place == index or event["ts"] + event["dur"] >= end
            return {**event, "dur": event["dur"] + STRETCH_US} if holds else event
        return {**event, "ts": event["ts"] + STRETCH_US} if with_rest and event["ts"] >= end else event

    return [change(place, event) for place, event in enumerate(events)]


def compare(tmp_path: Path, before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> Comparison:
    paths = []
    for name, events in (("before", before), ("after", after)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"traceEvents": list(events), "distributedInfo": {"rank": 0, "world_size": 2}}))
        paths.append(str(path))
    return compare_paths(*paths, results=tmp_path)


def gathers(events: Sequence[dict[str, Any]], part: str) -> list[int]:
    return [
        place
        for place, event in enumerate(events)
        if event.get("dur") and part in event["name"] and event["cat"] != "cpu_op"
    ]


@pytest.mark.parametrize("with_rest", [False, True], ids=["alone", "and all after it later"])
@pytest.mark.parametrize("which", range(2 * LAYERS))
def test_the_first_sentence_names_the_all_gather_that_got_longer_and_its_owner(
    tmp_path: Path, which: int, with_rest: bool
) -> None:
    events = make_events()
    found = compare(tmp_path, events, stretch(events, gathers(events, "AllGather")[which], with_rest=with_rest))
    assert found.sentence.startswith("Traces of one launch each, which statistics cannot judge: step ")
    assert (
        f"unshard of layers.{which % LAYERS} (all-gather, 2.00 ms to 18.5 ms)" in found.sentence
    )  # in one of two steps
    lead = found.collectives[0]
    assert (lead.owner, lead.operation, lead.purpose) == (
        f"layers.{which % LAYERS}",
        Operation.ALL_GATHER,
        Purpose.UNSHARD,
    )
    assert found.mechanism == ()
    assert found.is_mechanism_known
    (whose,) = (table for table in comparison_tables(found) if table.key == "collectives")
    assert [row[0] for row in whose.rows if row[4] != row[5]] == [f"layers.{which % LAYERS}"]


def test_without_an_owner_it_is_named_by_its_group_and_sequence_number(tmp_path: Path) -> None:
    events = make_events(with_owner=False)
    found = compare(tmp_path, events, stretch(events, gathers(events, "AllGather")[2], with_rest=True))
    assert "without owner (all-gather, number 3 of group 1 (seq 2), 8.00 ms to 24.5 ms)" in found.sentence


def test_nothing_is_said_to_differ_between_a_trace_and_its_copy(tmp_path: Path) -> None:
    events = make_events()
    found = compare(tmp_path, events, [*events])  # steps of 40 ms, and of 17 ms up to its last kernel
    assert found.sentence == "Traces of one launch each, which statistics cannot judge: step 39.8 ms against 39.8 ms"
    (waited,) = [change for change in found.metrics if change.metric == "wait"]
    assert waited.outcome is Outcome.UNKNOWN, "what the compute waited for is not drawn"
    others = [change for change in found.metrics if change is not waited]
    assert {change.outcome for change in others} <= {Outcome.NOT_ENOUGH_LAUNCHES}
    assert {change.ratio for change in others if change.baseline.median} == {1}
    told = [table for table in comparison_tables(found)[1:] if table.key != "kernels"]
    assert [table.title for table in told] == ["What it cost"]
    assert {row.outcome for row in found.kernels} == {KernelOutcome.UNKNOWN}, "no launch shapes are drawn"


@pytest.mark.parametrize("which", [0, 6, 12])
def test_on_a_recorded_trace_of_gloo_it_is_named_too(tmp_path: Path, which: int) -> None:
    content = json.loads(gzip.decompress((RECORDED / "fsdp2_tp_2x2_rank0.json.gz").read_bytes()))
    events = content["traceEvents"]
    index = gathers(events, "gloo:all_gather")[which]
    plain = tmp_path / "plain.json"
    plain.write_text(json.dumps(content))
    events[index]["dur"] += STRETCH_US
    longer = tmp_path / "longer.json"
    longer.write_text(json.dumps(content))
    found = compare_paths(str(plain), str(longer), results=tmp_path)
    (stretched,) = [row for row in found.collectives if row.duration_ns[1] - row.duration_ns[0] > 10e6]
    assert stretched.operation is Operation.ALL_GATHER
    assert f"unshard of {stretched.owner} (all-gather, " in found.sentence


@pytest.mark.skipif(not SHARED.exists(), reason="the recorded GPU traces are not on this machine")
def test_on_a_recorded_trace_of_nccl_the_bucket_that_got_longer_is_named(tmp_path: Path) -> None:
    content = json.loads(gzip.decompress((SHARED / "a100x8_ddp_rank.json.gz").read_bytes()))
    plain, longer = tmp_path / "plain.json", tmp_path / "longer.json"
    plain.write_text(json.dumps(content))
    index = next(
        place for place, event in enumerate(content["traceEvents"]) if event["name"].startswith("ncclKernel_AllReduce")
    )
    content["traceEvents"][index]["dur"] += STRETCH_US
    longer.write_text(json.dumps(content))
    found = compare_paths(str(plain), str(longer), results=tmp_path)
    assert "more exposed by itself: grad_reduce of bucket 0 (all-reduce, 1.85 ms to 7.35 ms)" in found.sentence
