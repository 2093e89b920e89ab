"""Runs that someone else starts: planned for nodes that are not this machine, and gone on with."""

import json
import shlex
import time
from pathlib import Path

import pytest

from dtbench.base.errors import PlanError, StoreError
from dtbench.base.vocabulary import DeviceKind
from dtbench.launch.cells import plan_elsewhere, plan_for_nodes
from dtbench.launch.prepare import resume_orders, spell_torchrun, write_orders
from dtbench.launch.resume import find_unfinished
from dtbench.launch.run import Observer
from dtbench.launch.submit.shape import NodeShape
from dtbench.plan.plan import Machine
from dtbench.scenario.load import ScenarioFile, load_scenario
from dtbench.store.finish import finish_launch
from dtbench.store.journal import JournalWriter
from dtbench.store.layout import LaunchFolder, RunFolder
from dtbench.store.read import read_order
from dtbench.store.records.run import LaunchRecord, RunStatus
from tests.made_steps import write_journals

SWEEP = """\
# Which launches are left?
schema_version: 1
device: cpu
model: {kind: transformer, layers: 1, dim: 8, heads: 2, ffn_dim: 8, vocab_size: 16}
data: {global_batch: 4, sequence_length: 4}
parallel: {kind: ddp, replicas: 4}
repeat: 2
matrix:
  seed: [0, 1]
"""
HERE = Machine(cpu_cores=2, cuda_devices=0, memory_bytes=2**20, torch="2.11.0")


def load(*overrides: str) -> ScenarioFile:
    return load_scenario(SWEEP, "sweep.yaml", overrides)


def prepare(results: Path) -> tuple[RunFolder, tuple[LaunchFolder, ...]]:
    return write_orders(load(), plan_for_nodes(load(), 2, NodeShape()), results, observer=Observer())


def finish(launch: LaunchFolder, status: RunStatus = RunStatus.COMPLETE) -> None:
    order = read_order(launch)
    write_journals(launch, ranks=order.plan.ranks, measured=order.plan.measured_steps)
    record = LaunchRecord(
        cell=order.cell, index=order.index, status=status, started_unix_ns=1, duration_ns=1, reason=None, failures=()
    )
    finish_launch(launch, record, ranks=order.plan.ranks)


def name(launches: tuple[LaunchFolder, ...]) -> list[str]:
    return [f"{launch.path.parent.name}/{launch.path.name}" for launch in launches]


def test_what_is_not_known_of_nodes_is_decided_there() -> None:
    (cell, *_) = plan_for_nodes(load(), 2, NodeShape())
    assert (cell.plan.nodes, cell.plan.threads_per_rank, cell.plan.torch) == (2, None, None)
    (cell, *_) = plan_for_nodes(load(), 2, NodeShape(cores=16))
    assert cell.plan.threads_per_rank == 8


def test_gpus_are_taken_to_be_enough_where_nobody_says_how_many() -> None:
    assert plan_for_nodes(load("device=cuda"), 2, NodeShape())[0].plan.device is DeviceKind.CUDA
    assert plan_for_nodes(load("device=auto"), 2, NodeShape())[0].plan.device is DeviceKind.CPU
    assert plan_for_nodes(load("device=auto"), 2, NodeShape(gpus=2))[0].plan.device is DeviceKind.CUDA
    with pytest.raises(PlanError, match="needs 2 CUDA devices on each node"):
        plan_for_nodes(load("device=cuda"), 2, NodeShape(gpus=1))


def test_more_gpus_than_a_node_has_are_spread_over_nodes_that_share_them_equally() -> None:
    wanted = ("device=cuda", "parallel.replicas=9", "data.global_batch=9")
    (cell, *_) = plan_elsewhere(load(*wanted), HERE)
    assert (cell.plan.nodes, cell.plan.ranks_per_node) == (3, 3)
    (cell, *_) = plan_elsewhere(load("device=cuda"), HERE)
    assert cell.plan.nodes == 1


def test_torchrun_is_told_the_nodes_that_were_planned(tmp_path: Path) -> None:
    run, launches = prepare(tmp_path)
    reference, launch, *others = (spell_torchrun(read_order(one), one.order) for one in launches)
    assert "torchrun --standalone --nproc-per-node 1 " in reference
    assert "torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint $HEAD_NODE:29500 " in launch
    words = [shlex.split(one) for one in (launch, *others) if "--nnodes" in one]
    meetings = [line[line.index("--rdzv-id") + 1] for line in words]
    assert meetings[0] == f"{run.path.name}-seed-0-launch0"
    assert len(set(meetings)) == 4, "no launch meets another"


def test_a_prepared_run_goes_on_with_what_is_left_and_as_it_was_planned(tmp_path: Path) -> None:
    run, launches = prepare(tmp_path)
    assert name(launches)[:2] == ["seed-0/reference", "seed-0/launch0"]
    before = read_order(launches[-1])
    finish(run.launch("seed-0", 0))
    finish(run.launch("seed-1", 0), RunStatus.FAILED)
    run.reference("seed-0").reference_data.write_text("losses", encoding="utf-8")
    kept = run.launch("seed-0", 0).steps.read_bytes()
    assert find_unfinished(tmp_path, "sweep", prepared=True) == run.path
    assert find_unfinished(tmp_path, "sweep") is None
    same, left = resume_orders(load(), run.path)
    assert same == run
    assert name(left) == ["seed-1/reference", "seed-1/launch0", "seed-1/launch1", "seed-0/launch1"]
    assert run.launch("seed-0", 0).steps.read_bytes() == kept
    assert not run.launch("seed-1", 0).launch.exists()
    assert read_order(left[-1]) == before
    for launch in left[1:]:
        finish(launch)
    assert find_unfinished(tmp_path, "sweep", prepared=True) is None
    with pytest.raises(
        StoreError, match=r"without the folder .* --resume runs this launch again|nothing is left to do"
    ):
        resume_orders(load(), run.path)


def test_nothing_of_a_prepared_run_changes_while_its_ranks_run(tmp_path: Path) -> None:
    run, _ = prepare(tmp_path)
    journal = run.launch("seed-0", 0).journal(3)
    with JournalWriter(journal, rank=3, pid=1, capacity=1) as writer:
        writer.begin(time.time_ns())
        with pytest.raises(
            StoreError, match=r"launch0: rank 3 gave a sign of life .* ago; wait until its ranks have ended"
        ):
            resume_orders(load(), run.path)
        assert journal.exists()
        writer.touch(time.time_ns() - 61 * 10**9)
        resume_orders(load(), run.path)
    assert not journal.exists()


def test_orders_are_written_again_for_the_same_experiment_alone(tmp_path: Path) -> None:
    run, _ = prepare(tmp_path)
    with pytest.raises(StoreError, match="it ran with no --set, and now there is --set seed=4"):
        resume_orders(load("seed=4"), run.path)
    record = json.loads(run.run.read_text(encoding="utf-8"))
    run.run.write_text(json.dumps({**record, "prepared": False}), encoding="utf-8")
    with pytest.raises(StoreError, match="this run was not prepared; --resume without --prepare goes on with it"):
        resume_orders(load(), run.path)
