"""``dtbench execute``: which nodes there are, and what is refused before anything starts."""

from pathlib import Path

import pytest

from dtbench.cli.main import main
from dtbench.launch.cells import plan_for_nodes
from dtbench.launch.nodes import Nodes
from dtbench.launch.prepare import write_orders
from dtbench.launch.run import Observer
from dtbench.launch.submit.shape import NodeShape
from dtbench.scenario.load import load_scenario
from dtbench.store.layout import RunFolder

SCENARIO = """\
# Does it run?
schema_version: 1
device: cpu
model: {kind: mlp, layers: 1, dim: 8, hidden_dim: 8}
data: {global_batch: 2, sequence_length: 1}
parallel: {kind: ddp, replicas: 2}
correctness: {enabled: false}
"""


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    for name in ("SLURM_JOB_ID", "PET_NNODES"):
        monkeypatch.delenv(name, raising=False)
    file = load_scenario(SCENARIO, "two.yaml")
    return write_orders(file, plan_for_nodes(file, 2, NodeShape()), tmp_path, observer=Observer())[0]


def execute(folder: RunFolder, *options: str) -> int | str | None:
    with pytest.raises(SystemExit) as caught:
        main(["execute", str(folder.path), *options])
    return caught.value.code


def test_options_that_contradict_each_other_are_refused(
    prepared: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(prepared, "--nnodes", "2", "--node-rank", "2", "--rdzv-endpoint", "head") == 3
    assert "nodes are counted from 0 to 1" in capsys.readouterr().err


def test_a_node_without_node_0_ends_with_a_sentence(prepared: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint", "127.0.0.1:9", "--wait", "0")
    assert execute(prepared, *options) == 4
    said = capsys.readouterr().err
    assert "node 1 of 2: follows node 0 at 127.0.0.1:9" in said
    assert "node 0 was not there at 127.0.0.1:9 within 0 s" in said


def test_what_a_train_job_says_is_heard(
    prepared: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[Nodes] = []
    monkeypatch.setattr("dtbench.cli.execute._follow", lambda nodes, _path, _wait: heard.append(nodes))
    told = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "job-node-0-0.job", "PET_MASTER_PORT": "29500"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert execute(prepared) == 0
    assert heard == [Nodes(2, 1, "job-node-0-0.job", 29500, "TrainJob")]


def test_a_run_that_was_not_prepared_is_refused(prepared: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    text = prepared.run.read_text(encoding="utf-8")
    prepared.run.write_text(text.replace('"prepared": true', '"prepared": false'), encoding="utf-8")
    assert execute(prepared) == 6
    assert "was not prepared" in capsys.readouterr().err


def test_nodes_that_a_run_was_not_planned_for_are_refused(
    prepared: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(prepared) == 3
    assert "was planned for 2 nodes, and 1 is there" in capsys.readouterr().err
