"""What predictions run is what torch issues: one step of one rank of thousands, held against its program in order."""

import json
from pathlib import Path
from typing import Any

import pytest

from dtbench.launch.fake_step import execute_step
from dtbench.prediction.costs import known_costs
from dtbench.prediction.predict import predict_slowest
from dtbench.runs.scaling.world import count_ranks, plan_world, put_at_world
from dtbench.scenario.catalog import open_scenario
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.scenario.schema.scenario import Scenario

LINK: dict[str, Any] = {"kind": "emulated", "latency_us": 1.0, "bandwidth_gb_per_s": 100.0, "algorithm": "ring"}
SMALL: dict[str, dict[str, Any]] = {
    "DDP": {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 0.004},
    "FSDP2": {"kind": "fsdp2", "shards": 2},
    "FSDP2 and TP": {"kind": "fsdp2", "shards": 2, "tensor": 8},
    "HSDP": {"kind": "fsdp2", "shards": 8, "replicas": 2},
}
"""Layouts of a small run."""


def execute(folder: Path, layout: str, world: int) -> Any:
    """Execute a step of rank 0 of a layout that was brought to so many ranks."""
    fields = {
        "schema_version": 1,
        "device": "cpu",
        "model": {"kind": "timed", "layers": 2, "forward_ms": 0, "backward_ms": 0},
        "data": {"global_batch": 32, "sequence_length": 8},
        "parallel": SMALL[layout],
        "network": LINK,
    }
    path = folder / "small.yaml"
    path.write_text(f"# What is issued?\n{json.dumps(fields)}\n")
    file = open_scenario(str(path), ())
    (cell,) = file.cells
    return execute_step(cell._replace(scenario=put_at_world(cell.scenario, world)), file)


@pytest.mark.parametrize("world", [64, 1024])
@pytest.mark.parametrize("layout", SMALL)
@pytest.mark.quick("FSDP2 and TP-1024")
def test_a_program_issues_what_torch_does_in_its_order(layout: str, world: int, tmp_path: Path) -> None:
    executed = execute(tmp_path, layout, world)
    assert executed.is_planned
    scenario: Scenario = executed.scenario
    assert count_ranks(scenario) == world
    linked = scenario.model_copy(update={"network": EmulatedNetwork.model_validate(LINK)})
    plan = plan_world(linked, None)
    program = predict_slowest(linked, plan, known_costs(linked, plan), jitter_share=0.0)
    issued = [(one.purpose, one.axis, one.operation, one.size_bytes) for one in executed.step.issues]
    assert [(one.purpose, one.axis, one.operation, one.size_bytes) for one in program.collectives] == issued
    assert len(issued) > 1
