"""What nodes have of one run is joined: nothing is lost, nothing is changed, and what contradicts is said."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dtbench.base.errors import StoreError
from dtbench.launch.cells import plan_for_nodes
from dtbench.launch.merge.files import FoundFile, Whose
from dtbench.launch.merge.merge import describe_absent, merge_runs
from dtbench.launch.prepare import write_orders
from dtbench.launch.run import Observer
from dtbench.launch.submit.shape import NodeShape
from dtbench.scenario.load import load_scenario
from dtbench.store.finish import finish_launch
from dtbench.store.layout import RunFolder
from dtbench.store.lock import hold_run
from dtbench.store.read import read_launch, read_order, read_rank_records, read_run, read_steps
from dtbench.store.records.run import LaunchRecord, RankFailure, RunStatus
from dtbench.store.write import write_record
from tests.made_steps import write_journals

EXAMPLE = RunFolder(Path(__file__).parents[3] / "results" / "example")
SCENARIO = """\
# What has each node?
schema_version: 1
device: cpu
model: {kind: transformer, layers: 1, dim: 8, heads: 2, ffn_dim: 8, vocab_size: 16}
data: {global_batch: 4, sequence_length: 4}
parallel: {kind: ddp, replicas: 4}
repeat: 2
"""
CELL = "ddp"
END = LaunchRecord(
    cell=CELL, index=0, status=RunStatus.COMPLETE, started_unix_ns=5, duration_ns=7, reason=None, failures=()
)


@pytest.fixture
def nodes(tmp_path: Path) -> list[RunFolder]:
    """A run of four ranks, launched once of twice, as each of two nodes has it."""
    file = load_scenario(SCENARIO, "whose.yaml")
    run, _ = write_orders(file, plan_for_nodes(file, 2, NodeShape()), tmp_path / "prepared", observer=Observer())
    whole = tmp_path / "whole"
    shutil.copytree(run.path, whole)
    leave(RunFolder(whole))
    folders = [RunFolder(tmp_path / f"node{node}" / run.path.name) for node in range(2)]
    for node, folder in enumerate(folders):
        shutil.copytree(whole, folder.path)
        launch = folder.launch(CELL, 0)
        for rank in ((2, 3), (0, 1))[node]:
            for path in (launch.rank_record(rank), launch.journal(rank), launch.log(rank), launch.trace(rank, 1)):
                path.unlink()
        folder.reference(CELL).log(0).write_text(f"on node {node}", encoding="utf-8")
    finish_launch(folders[0].launch(CELL, 0), END, ranks=4)
    return folders


def leave(run: RunFolder) -> None:
    """Leave what four ranks leave, and the single process."""
    launch = run.launch(CELL, 0)
    write_journals(launch, ranks=4, measured=2)
    records = [EXAMPLE.launch("fsdp2_tp", 0).rank_record(rank).read_text(encoding="utf-8") for rank in range(4)]
    for folder in (launch.logs, launch.traces, launch.rank_record(0).parent, run.reference(CELL).logs):
        folder.mkdir(parents=True)
    for rank in range(4):
        told = {**json.loads(records[rank]), "pid": 1, "place": None}
        launch.rank_record(rank).write_text(json.dumps(told), encoding="utf-8")
        launch.log(rank).write_text(f"I am {rank}", encoding="utf-8")
        launch.trace(rank, 1).write_bytes(b"trace")
    run.reference(CELL).reference_data.write_bytes(b"losses")


def snapshot(folder: RunFolder) -> dict[Path, tuple[bytes, int]]:
    files = (path for path in folder.path.rglob("*") if path.is_file() and path != folder.lock)
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_what_each_node_has_is_joined_and_originals_stay(nodes: list[RunFolder], tmp_path: Path) -> None:
    before = [snapshot(node) for node in nodes]
    assert set(read_steps(nodes[0].launch(CELL, 0))["rank"]) == {0, 1}
    merged = merge_runs([node.path for node in nodes], tmp_path / "joined")
    launch = RunFolder(merged.path).launch(CELL, 0)
    assert sorted(set(pd.read_parquet(launch.steps)["rank"])) == [0, 1, 2, 3]
    assert [record.rank for record in read_rank_records(launch)] == [0, 1, 2, 3]
    assert [launch.log(rank).read_text(encoding="utf-8") for rank in range(4)] == [f"I am {rank}" for rank in range(4)]
    assert list(launch.find_traces()) == [0, 1, 2, 3]
    assert read_launch(launch) == END
    assert read_run(merged.path) == read_run(nodes[0].path)
    assert (merged.ranks, merged.absent, merged.unbegun) == (4, {(CELL, 0): []}, [(CELL, 1)])
    assert [snapshot(node) for node in nodes] == before


def test_what_is_left_can_run_from_the_joined_folder(nodes: list[RunFolder], tmp_path: Path) -> None:
    run = RunFolder(merge_runs([node.path for node in nodes], tmp_path / "joined").path)
    order = read_order(run.launch(CELL, 1))
    assert order.folder == str(run.launch(CELL, 1).path)
    assert order.reference == str(run.reference(CELL).reference_data)
    assert run.reference(CELL).reference_data.read_bytes() == b"losses"
    assert run.reference(CELL).log(0).read_text(encoding="utf-8") == "on node 0"


def test_merged_once_more_nothing_changes(nodes: list[RunFolder], tmp_path: Path) -> None:
    paths = [node.path for node in nodes]
    joined = RunFolder(merge_runs(paths, tmp_path / "joined").path)
    before = snapshot(joined)
    again = merge_runs(paths, joined.path)
    assert again.added == 0
    assert snapshot(joined) == before
    assert merge_runs([*reversed(paths), *paths], joined.path).added == 0
    assert snapshot(joined) == before


def test_a_node_that_comes_later_is_added(nodes: list[RunFolder], tmp_path: Path) -> None:
    first = merge_runs([nodes[0].path], tmp_path / "joined")
    assert list(describe_absent(first)) == [
        "no folder has a record of ranks 2-3 of launch 0 of cell ddp",
        "no folder has anything of launch 1 of cell ddp",
    ]
    later = merge_runs([nodes[1].path], tmp_path / "joined")
    launch = RunFolder(later.path).launch(CELL, 0)
    assert later.absent == {(CELL, 0): []}
    assert sorted(set(pd.read_parquet(launch.steps)["rank"])) == [0, 1, 2, 3]


def test_ranks_that_all_left_results_make_a_launch_complete_whose_record_is_nowhere(
    nodes: list[RunFolder], tmp_path: Path
) -> None:
    nodes[0].launch(CELL, 0).launch.unlink()
    merged = merge_runs([node.path for node in nodes], tmp_path / "joined")
    assert read_launch(RunFolder(merged.path).launch(CELL, 0)).status is RunStatus.COMPLETE


@pytest.mark.parametrize(
    ("absent", "status"), [((), RunStatus.COMPLETE), ((3,), RunStatus.FAILED)], ids=["results there", "results lost"]
)
def test_a_failure_on_one_node_is_told_and_fails_the_launch_unless_all_results_are_there(
    nodes: list[RunFolder], tmp_path: Path, absent: tuple[int, ...], status: RunStatus
) -> None:
    lost = RankFailure(rank=3, what="raised", last_step=1, last_phase=None, last_region=None, last_lines=())
    failed = END.model_copy(update={"status": RunStatus.FAILED, "reason": "rank 3 raised", "failures": (lost,)})
    write_record(nodes[1].launch(CELL, 0).launch, failed)
    for rank in absent:
        nodes[1].launch(CELL, 0).rank_record(rank).unlink()
    merged = merge_runs([node.path for node in nodes], tmp_path / "joined")
    told = read_launch(RunFolder(merged.path).launch(CELL, 0))
    assert (told.status, told.reason, told.failures) == (status, "rank 3 raised", (lost,))


def test_of_a_shipped_run_whose_journals_are_gone_every_step_of_every_rank_is_joined(tmp_path: Path) -> None:
    nodes = [RunFolder(tmp_path / f"node{node}") for node in range(2)]
    record = read_run(EXAMPLE.path)
    for node, folder in enumerate(nodes):
        shutil.copytree(EXAMPLE.path, folder.path)
        for cell in record.cells:
            launch, half = folder.launch(cell.name, 0), cell.plan.ranks // 2
            own = range(node * half, (node + 1) * half)
            for rank in set(range(cell.plan.ranks)) - set(own):
                launch.rank_record(rank).unlink()
            steps = pd.read_parquet(launch.steps)
            steps[steps["rank"].isin(own)].to_parquet(launch.steps)
            if node:
                launch.launch.unlink()
                launch.environment.unlink()
    merged = merge_runs([folder.path for folder in nodes], tmp_path / "joined")
    assert read_run(merged.path) == record
    for cell in record.cells:
        whole, launch = EXAMPLE.launch(cell.name, 0), RunFolder(merged.path).launch(cell.name, 0)
        assert read_rank_records(launch) == read_rank_records(whole)
        assert read_launch(launch) == read_launch(whole)
        columns = ["rank", "step", "duration_ns", "phase"]
        wanted = read_steps(whole).sort_values(["rank", "step"])[columns].reset_index(drop=True)
        pd.testing.assert_frame_equal(read_steps(launch)[columns].reset_index(drop=True), wanted)
    assert merged.notes == (
        "the traces of launch 0 of cell ddp and 1 more are gone: where its time went is told in no joined table",
    )


def test_what_belongs_to_no_rank_is_kept_of_every_node(nodes: list[RunFolder], tmp_path: Path) -> None:
    for node, folder in enumerate(nodes):
        (folder.path / "slurm-7.log").write_text(f"node {node}", encoding="utf-8")
        (folder.launch(CELL, 0).path / "link").mkdir()
        (folder.launch(CELL, 0).path / "link" / "a.times").write_bytes(b"\0")
    merged = merge_runs([node.path for node in nodes], tmp_path / "joined")
    logs = sorted(path.read_text(encoding="utf-8") for path in merged.path.glob("slurm-7*.log"))
    assert logs == ["node 0", "node 1"]
    assert not (RunFolder(merged.path).launch(CELL, 0).path / "link").exists()


def edit(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **fields}), encoding="utf-8")


def copy_rank(nodes: list[RunFolder]) -> None:
    rank_0 = nodes[0].launch(CELL, 0).log(0)
    nodes[1].launch(CELL, 0).log(0).write_text(f"{rank_0.read_text(encoding='utf-8')}, again", encoding="utf-8")


def trace_twice(nodes: list[RunFolder]) -> None:
    for node, at_ns in zip(nodes, (2, 3), strict=True):
        node.launch(CELL, 0).trace(0, at_ns).write_bytes(b"trace")


def order_otherwise(nodes: list[RunFolder]) -> None:
    order = read_order(nodes[1].launch(CELL, 1))
    other = order.model_copy(update={"plan": order.plan.model_copy(update={"measured_steps": 99})})
    write_record(nodes[1].launch(CELL, 1).order, other)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (copy_rank, r"rank 0 of launch0 of cell ddp is there twice, with other contents: .*node0.* and .*node1"),
        (trace_twice, r"rank 0 of launch0 of cell ddp has other traces in .*node0.* than in .*node1.*: it ran twice"),
        (order_otherwise, "launch 1 of cell ddp had other orders: "),
        (lambda nodes: edit(nodes[1].run, run_id="another"), "are two runs, .* and another; merge joins what several"),
        (lambda nodes: edit(nodes[1].run, overrides=["seed=4"]), "are both called .*, and differ in overrides"),
        (lambda nodes: nodes[1].scenario.write_text("# Other?"), "the scenario is there twice, with other contents"),
    ],
    ids=["another rank 0", "a second attempt", "another order", "another run", "another plan", "other words"],
)
def test_folders_that_contradict_each_other_are_named_and_nothing_is_written(
    nodes: list[RunFolder], tmp_path: Path, change: Callable[[list[RunFolder]], object], sentence: str
) -> None:
    change(nodes)
    before = [snapshot(node) for node in nodes]
    with pytest.raises(StoreError, match=sentence):
        merge_runs([node.path for node in nodes], tmp_path / "joined")
    assert not (tmp_path / "joined").exists()
    assert [snapshot(node) for node in nodes] == before


def test_a_folder_to_merge_is_never_the_one_to_merge_into(nodes: list[RunFolder], tmp_path: Path) -> None:
    paths = [node.path for node in nodes]
    with pytest.raises(StoreError, match="is one of the folders to merge, which stay as they are; name another --into"):
        merge_runs(paths, nodes[0].path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(StoreError, match="is there and is no run; name another --into"):
        merge_runs(paths, tmp_path / "mine")


def test_a_run_that_is_still_written_is_not_merged(nodes: list[RunFolder], tmp_path: Path) -> None:
    with hold_run(nodes[1]), pytest.raises(StoreError, match=r"node1.* is still written to; merge when its ranks have"):
        merge_runs([node.path for node in nodes], tmp_path / "joined")


@pytest.mark.parametrize(
    ("name", "whose"),
    [
        ("run.json", Whose.MADE_ANEW),
        ("tb/ddp/events.out", Whose.MADE_ANEW),
        ("cells/ddp/launch0/overlap.parquet", Whose.MADE_ANEW),
        ("cells/ddp/launch0/ranks/rank12.json", Whose.RANK),
        ("cells/ddp/launch0/events/cores8.jsonl", Whose.RANK),
        ("cells/ddp/launch0/ranks/env.json", Whose.RANK),
        ("cells/ddp/reference/logs/rank0.log", Whose.REFERENCE),
        ("env.json", Whose.RUN),
        ("cells/ddp/launch0/elastic/0/stdout.log", Whose.NODE),
        ("cells/ddp/launch0/.steps.parquet.7.tmp", Whose.NOBODY),
        ("cells/ddp/launch0/checkpoints/a/b.distcp", Whose.NOBODY),
        (".lock", Whose.NOBODY),
        ("nodes.json", Whose.NOBODY),
    ],
)
def test_a_path_tells_whose_a_file_is(name: str, whose: Whose) -> None:
    assert FoundFile(name, {}).whose is whose
