"""Two nodes that are two: network namespaces of this machine, with a cable between them, and real ranks over gloo."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from dtbench.launch.cells import plan_for_nodes
from dtbench.launch.merge.merge import merge_runs
from dtbench.launch.prepare import write_orders
from dtbench.launch.run import Observer
from dtbench.launch.submit.shape import NodeShape
from dtbench.scenario.load import load_scenario
from dtbench.store.layout import RunFolder
from dtbench.store.read import read_launch, read_rank_records, read_run, read_steps
from dtbench.store.records.run import RunStatus

pytestmark = pytest.mark.ranks

SCENARIO = """\
# Do two nodes train together?
schema_version: 1
device: cpu
model: {kind: mlp, layers: 1, dim: 8, hidden_dim: 8}
data: {global_batch: 2, sequence_length: 1}
parallel: {kind: ddp, replicas: 2}
correctness: {enabled: false}
measure: {warmup: {min_steps: 8, max_steps: 8}, measured_steps: 4, profiled_steps: 1}
"""
ADDRESSES = ("10.99.71.1", "10.99.71.2")
PORT = 29471
_LONGEST_S = 300
"""A launch takes a few seconds; on a machine that others use, any time."""


@dataclass
class Nodes:
    """Namespaces by number; each has an interface ``eth0`` and loopback."""

    names: tuple[str, str]
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    def start(self, node: int, folder: RunFolder, *arguments: str) -> "subprocess.Popen[str]":
        """Start the command on a node; nothing but it and its ranks sees the node's network."""
        command = (
            *("ip", "netns", "exec", self.names[node], sys.executable, "-m", "dtbench", "execute", str(folder.path)),
            *("--nnodes", "2", "--node-rank", str(node), "--rdzv-endpoint", f"{ADDRESSES[0]}:{PORT}", *arguments),
        )
        variables = {name: value for name, value in os.environ.items() if name != "GLOO_SOCKET_IFNAME"}
        process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.started.append(process)
        return process


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` (iproute2) to make network namespaces with")
    names = (f"dtb{os.getpid()}a", f"dtb{os.getpid()}b")
    found = Nodes(names)
    try:
        connect(names)
        yield found
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")
    finally:
        for process in found.started:
            kill_with_ranks(process)
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def connect(names: tuple[str, str]) -> None:
    """Make two namespaces with a cable between them."""
    for name in names:
        ip("netns", "add", name)
    ip("link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1])
    for name, address in zip(names, ADDRESSES, strict=True):
        ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "link", "set", "lo", "up")


def prepare(results: Path, launches: int) -> RunFolder:
    file = load_scenario(SCENARIO, "two.yaml", (f"repeat={launches}",))
    return write_orders(file, plan_for_nodes(file, 2, NodeShape()), results, observer=Observer())[0]


def end(*processes: "subprocess.Popen[str]") -> list[str]:
    return [process.communicate(timeout=_LONGEST_S)[0] for process in processes]


def kill_with_ranks(process: "subprocess.Popen[str]") -> None:
    """End a node's processes as one that loses its power: nothing is said to anybody."""
    if process.poll() is None:
        living = psutil.Process(process.pid)
        for one in [living, *living.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                one.kill()


def test_two_nodes_that_share_no_folder_train_and_each_keeps_what_its_ranks_left(tmp_path: Path, nodes: Nodes) -> None:
    folder, there = prepare(tmp_path / "here", 1), RunFolder(tmp_path / "there" / "copy")
    shutil.copytree(folder.path, there.path)
    second = nodes.start(1, there)
    first = nodes.start(0, folder)
    said = end(first, second)
    assert [first.returncode, second.returncode] == [0, 0]
    assert f"{there.path}" in said[0]
    assert "dtbench merge" in said[0]
    (cell,) = (one.name for one in read_run(folder.path).cells)
    here, other = folder.launch(cell, 0), there.launch(cell, 0)
    assert [one.rank for one in read_rank_records(here)] == [0]
    assert [one.rank for one in read_rank_records(other)] == [1]
    assert read_launch(here).status is read_launch(other).status is RunStatus.COMPLETE
    assert list(other.find_traces()) == [1]
    merged = merge_runs([folder.path, there.path], tmp_path / "merged")
    assert (merged.ranks, merged.absent, merged.notes) == (2, {(cell, 0): []}, ())
    joined = RunFolder(merged.path).launch(cell, 0)
    assert read_launch(joined).status is RunStatus.COMPLETE
    assert sorted(joined.find_traces()) == sorted(read_steps(joined)["rank"].unique()) == [0, 1]


@pytest.mark.thorough
def test_a_killed_node_is_blamed_and_the_same_commands_run_the_rest(tmp_path: Path, nodes: Nodes) -> None:
    folder = prepare(tmp_path, 2)
    (cell,) = (one.name for one in read_run(folder.path).cells)
    first, second = nodes.start(0, folder, "--silence", "10"), nodes.start(1, folder)
    end_s = time.monotonic() + _LONGEST_S
    while not folder.launch(cell, 0).launch.exists() or not folder.launch(cell, 1).journal(1).exists():
        assert time.monotonic() < end_s
        assert first.poll() is None
        time.sleep(0.05)
    kill_with_ranks(second)
    said, _ = end(first, second)
    assert (first.returncode, second.returncode) == (4, -signal.SIGKILL)
    assert "was lost with its node, which gave no sign of life for 10 s" in said
    assert read_run(folder.path).status is RunStatus.FAILED
    kept = read_launch(folder.launch(cell, 0))
    again = [nodes.start(node, folder) for node in range(2)]
    end(*again)
    assert [one.returncode for one in again] == [0, 0]
    assert read_run(folder.path).status is RunStatus.COMPLETE
    assert read_launch(folder.launch(cell, 0)).started_unix_ns == kept.started_unix_ns
    assert [one.rank for one in read_rank_records(folder.launch(cell, 1))] == [0, 1]
