"""The same scenarios on CUDA with NCCL; needs at least one device."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.units import NS_PER_MS
from dtbench.launch.cells import plan_cells
from dtbench.launch.machine import read_machine
from dtbench.launch.run import Observer, run_scenario
from dtbench.runs.run import summarize_run
from dtbench.scenario.catalog import open_scenario
from dtbench.store.records.rank import ReceiptOutcome
from dtbench.store.records.run import RunStatus
from tests.known import total

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.ranks,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]


def run(name: str, results: Path, *overrides: str) -> Any:
    file = open_scenario(name, overrides)
    return summarize_run(run_scenario(file, plan_cells(file, read_machine()), results, observer=Observer()).path)


def test_the_one_gpu_preset_runs_and_adds_up(tmp_path: Path) -> None:
    summary = run("one_gpu", tmp_path, "model.layers=2")
    assert summary.status is RunStatus.COMPLETE
    for cell in summary.cells:
        assert cell.correctness is not None
        assert cell.correctness.passed
        assert [r for r in cell.receipts if r.outcome is ReceiptOutcome.DISAGREES] == []
        (rank,) = cell.ranks
        assert rank.compute_ns > 0
        assert total((rank.compute_ns, rank.exposed_comm_ns, rank.exposed_copy_ns, rank.idle_ns)) == rank.step_ns
        assert cell.memory is not None
        assert cell.memory.allocated_peak_bytes
        assert [row for row in cell.purposes if row.matches_plan is False] == []


ONLY_ON_DEVICES = """\
# Does what torch does on devices alone train as a single process does?
schema_version: 1
device: cuda
model:
  kind: transformer
  layers: 2
  dim: 64
  heads: 4
  kv_heads: 2
  ffn_dim: 96
  vocab_size: 256
data:
  global_batch: 4
  sequence_length: 16
measure:
  measured_steps: 4
gradient_clip_norm: 0.1
parallel:
"""
OFFLOADS = "  {kind: fsdp2, shards: 1, cpu_offload: true}\n"
MIXES = "  {kind: ddp, replicas: 1, mixed_precision: {param_dtype: bfloat16}}\n"


@pytest.mark.parametrize("parallel", [OFFLOADS, MIXES], ids=["fsdp2 offloads", "ddp mixes precision"])
def test_what_only_devices_can_do_trains_like_a_single_process(tmp_path: Path, parallel: str) -> None:
    """DDP's mixed precision has one wrong first backward: ``tests/worker/test_ddp_mixed_precision.py``."""
    path = tmp_path / "only.yaml"
    path.write_text(ONLY_ON_DEVICES + parallel, encoding="utf-8")
    (cell,) = run(str(path), tmp_path / "results").cells
    assert cell.correctness is not None
    is_torchs = any("as torch's DDP is known to make them" in note for note in cell.notes)
    assert (cell.correctness.passed, is_torchs) == (parallel == OFFLOADS, parallel == MIXES)
    assert [r for r in cell.receipts if r.outcome is ReceiptOutcome.DISAGREES] == []
    assert [row for row in cell.purposes if row.matches_plan is False] == []


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_collectives_over_nccl_equal_the_plan(tmp_path: Path, name: str) -> None:
    for cell in run(name, tmp_path, "device=cuda", "network.kind=real").cells:
        assert cell.correctness is not None
        assert cell.correctness.passed
        assert {row.purpose: row.matches_plan for row in cell.purposes if row.matches_plan is False} == {}


def test_a_scenario_of_more_ranks_than_devices_is_refused(scenario: Callable[..., Any]) -> None:
    from dtbench.base.errors import PlanError
    from dtbench.plan.plan import make_plan

    machine = read_machine()
    wanted = {"kind": "ddp", "replicas": 2 * machine.cuda_devices}
    data = {"global_batch": 2 * machine.cuda_devices, "sequence_length": 8}
    with pytest.raises(PlanError, match="CUDA devices, one for each rank"):
        make_plan(scenario(device="cuda", parallel=wanted, data=data), machine)


TIMED = """\
# How long does a block of known cost take on a GPU?
schema_version: 1
device: cuda
model:
  kind: timed
  layers: 4
  forward_ms: 20
  backward_ms: 30
data:
  global_batch: 4
  sequence_length: 16
measure:
  measured_steps: 5
parallel:
  kind: fsdp2
  shards: 1
"""


def test_a_timed_model_spins_for_its_time_and_the_trace_counts_it_as_compute(tmp_path: Path) -> None:
    path = tmp_path / "timed.yaml"
    path.write_text(TIMED, encoding="utf-8")
    (cell,) = run(str(path), tmp_path / "results").cells
    assert cell.correctness is not None
    assert cell.correctness.passed
    assert {one.outcome for one in cell.receipts if one.knob.startswith("model.")} == {ReceiptOutcome.AGREES}
    (rank,) = cell.ranks
    assert rank.compute_ns == pytest.approx(4 * (20 + 30) * NS_PER_MS, rel=0.05)
