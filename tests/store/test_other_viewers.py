"""What other viewers ask of a raw trace: its file's name, its JSON, Chrome's fields, who it says it is."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from dtbench.store.layout import trace_name

RECORDED = Path(__file__).parents[1] / "traces" / "recorded"

# torch_tb_profiler 0.4.3, consts.py: of a match the first group is the worker, the second the time of its span.
TENSORBOARD_WORKER = re.compile(r"^(.*?)(\.\d+)?\.pt\.trace\.json(?:\.gz)?$")


@pytest.fixture(params=["ddp_2ranks_rank0.json.gz", "fsdp2_tp_2x2_rank0.json.gz"])
def trace(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Read by the standard library alone, as chrome://tracing and HolisticTraceAnalysis do."""
    with gzip.open(RECORDED / request.param, "rt", encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def test_the_names_of_traces_are_those_of_tensorboards_profiler() -> None:
    matches = [TENSORBOARD_WORKER.match(trace_name(rank, 1_700_000_000_000_000_000)) for rank in (0, 11)]
    found = [match.groups() for match in matches if match is not None]
    assert found == [("rank0", ".1700000000000000000"), ("rank11", ".1700000000000000000")]


def test_every_event_has_the_fields_that_chromes_format_asks_for(trace: dict[str, Any]) -> None:
    by_phase: dict[str, list[dict[str, Any]]] = {}
    for event in trace["traceEvents"]:
        by_phase.setdefault(event["ph"], []).append(event)
    assert len(by_phase["X"]) > 1000
    assert all({"name", "pid", "tid", "ts", "dur"} <= event.keys() for event in by_phase["X"])
    assert all(float(event["dur"]) >= 0 for event in by_phase["X"])
    named = {(event["pid"], event["name"]) for event in by_phase["M"]}
    assert {pid for pid, name in named if name == "process_name"}


def test_a_trace_says_its_rank_and_its_steps_where_analysers_look_for_them(trace: dict[str, Any]) -> None:
    assert trace["distributedInfo"]["rank"] == 0
    assert trace["distributedInfo"]["world_size"] in (2, 4)
    assert any(str(event.get("name")).startswith("ProfilerStep#") for event in trace["traceEvents"])
    assert "schemaVersion" in trace
