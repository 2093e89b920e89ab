"""A real run is held against what its file claims: functions that ran, checks that hold, and one that does not."""

from pathlib import Path

import pytest

from dtbench.plan.plan import Machine
from dtbench.runs.run import summarize_run
from dtbench.scenario.load import load_scenario
from dtbench.store.records.checks import CheckOutcome

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
pytestmark = pytest.mark.ranks

TEXT = """\
# How often is a model called?
schema_version: 1
device: cpu
model: {kind: transformer, layers: 1, dim: 32, heads: 2, ffn_dim: 32, vocab_size: 64}
data: {global_batch: 4, sequence_length: 8}
measure: {warmup: {min_steps: 8, max_steps: 8}, measured_steps: 4, profiled_steps: 2}
correctness: {enabled: false}
parallel: {kind: ddp, replicas: 2}
functions: [distributed.DistributedDataParallel.forward, distributed.DistributedDataParallel.no_sync]
checks:
  - {kind: bound, value: probes.distributed.DistributedDataParallel.forward.calls, at_least: 14}
  - {kind: bound, value: purposes.grad_reduce.count, at_least: 1, at_most: 1}
  - {kind: receipt, knob: parallel.broadcast_buffers, outcome: no_effect}
  - {kind: bound, value: purposes.unshard.count, at_least: 1}
answer: "{probes.distributed.DistributedDataParallel.forward.calls} times."
"""


def test_a_run_tells_which_of_its_files_claims_hold(tmp_path: Path, forked: tuple[str, ...]) -> None:
    from dtbench.launch.cells import plan_cells
    from dtbench.launch.local import WORKER
    from dtbench.launch.run import Observer, ThisMachine, run_scenario

    file = load_scenario(TEXT, "claims.yaml")
    cells = plan_cells(file, Machine(cpu_cores=2, cuda_devices=0))
    run = run_scenario(file, cells, tmp_path, observer=Observer(), engine=ThisMachine((*forked, *WORKER)))
    summary = summarize_run(run.path)
    checks = summary.checks
    assert checks is not None
    if any(cell.disturbed for cell in summary.cells):  # by other tests on this machine, say: then it tells no claim
        taken, *others = checks.results
        assert "steps alone" in taken.got
        assert {one.outcome for one in checks.results} == {CheckOutcome.NOT_JUDGED}
        assert (checks.answer, checks.is_broken, len(others)) == (None, True, 5)
        return
    functions, calls, buckets, receipt, unshards = checks.results
    assert (functions.outcome, functions.got) == (
        CheckOutcome.FAILED,
        "distributed.DistributedDataParallel.no_sync never called",
    )
    assert [one.outcome for one in (calls, buckets, receipt)] == [CheckOutcome.PASSED] * 3
    assert (unshards.outcome, unshards.got) == (CheckOutcome.FAILED, "0")
    assert checks.answer is None
    assert checks.is_broken
