"""Two nodes that are two: network namespaces of this machine, with a cable between them, and real ranks over gloo."""

import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtbench.launch.merge.merge import merge_runs
from dtbench.store.layout import RunFolder
from dtbench.store.read import read_launch, read_rank_records, read_run, read_steps
from dtbench.store.records.run import RunStatus
from tests.benchmarks.link_speed import compare_speeds
from tests.launch.namespaces import (
    Nodes,
    NoNamespacesError,
    connect_nodes,
    end,
    kill_with_ranks,
    prepare,
)
from tests.launch.two_ranks import LONGEST_S, SCENARIO

pytestmark = pytest.mark.ranks


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    try:
        with connect_nodes() as found:
            yield found
    except NoNamespacesError as error:
        pytest.skip(str(error))


def test_two_nodes_that_share_no_folder_train_and_each_keeps_what_its_ranks_left(tmp_path: Path, nodes: Nodes) -> None:
    folder, there = prepare(SCENARIO, tmp_path / "here"), RunFolder(tmp_path / "there" / "copy")
    shutil.copytree(folder.path, there.path)
    first = nodes.execute(0, folder)
    time.sleep(6)
    second = nodes.execute(1, there)
    said = end(first, second)
    assert [first.returncode, second.returncode] == [0, 0]
    assert re.search(r"waiting for node(s 0 and)? 1 of 2|waiting for nodes 0-1 of 2", said[0]), said[0]
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
@pytest.mark.timed
def test_a_link_is_reported_to_be_as_fast_as_plain_gloo_finds_it(tmp_path: Path, nodes: Nodes) -> None:
    try:
        nodes.shape("400mbit")
    except NoNamespacesError as error:
        pytest.skip(str(error))
    speeds = compare_speeds(nodes, tmp_path)
    assert abs(speeds.off) < 0.10, speeds
    assert speeds.at_once > 0.02, "several buckets are on their way together: that is what makes it hard"
    assert speeds.alone < 0.9 * speeds.plain, "what each bucket is told by itself understates the link"


@pytest.mark.thorough
def test_a_killed_node_is_blamed_and_the_same_commands_run_the_rest(tmp_path: Path, nodes: Nodes) -> None:
    folder = prepare(SCENARIO, tmp_path, "repeat=2")
    (cell,) = (one.name for one in read_run(folder.path).cells)
    first, second = nodes.execute(0, folder, "--silence", "10"), nodes.execute(1, folder)
    end_s = time.monotonic() + LONGEST_S
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
    again = [nodes.execute(node, folder) for node in range(2)]
    end(*again)
    assert [one.returncode for one in again] == [0, 0]
    assert read_run(folder.path).status is RunStatus.COMPLETE
    assert read_launch(folder.launch(cell, 0)).started_unix_ns == kept.started_unix_ns
    assert [one.rank for one in read_rank_records(folder.launch(cell, 1))] == [0, 1]
