"""What ranks did together has one owner in a comparison, whatever each of them calls it; nothing else is renamed."""

import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench.comparison.metrics import EXPOSED_BY_OWNER
from dtbench.comparison.reading.matched_owners import give_matched_owners
from dtbench.comparison.reading.sides import read_sides
from dtbench.comparison.run import compare_paths
from dtbench.traces.job.foreign import analyze_traces

RECORDED = Path(__file__).parents[1] / "traces" / "recorded" / "two_ranks_one_gpu"


def wrap(events: list[dict[str, Any]]) -> None:
    """Call FSDP's units as they are called in a model that was compiled."""
    for event in events:
        event["name"] = re.sub(r"^(FSDP::\w+ \()", r"\1_orig_mod.", event["name"])


def take_ranges(events: list[dict[str, Any]]) -> None:
    """Take FSDP's ranges away."""
    events[:] = [event for event in events if not event["name"].startswith("FSDP::")]


def call_otherwise(events: list[dict[str, Any]]) -> None:
    """Call FSDP's ranges so that nobody knows them."""
    for event in events:
        event["name"] = event["name"].replace("FSDP::", "mine::")


def make_with(folder: Path, rank: int, change: Callable[[list[dict[str, Any]]], None]) -> Path:
    """Copy the traces of two ranks, of which one calls its units otherwise."""
    found = Path(shutil.copytree(RECORDED / "fsdp2", folder))
    path = found / f"rank{rank}.json.gz"
    trace = json.loads(gzip.decompress(path.read_bytes()))
    change(trace["traceEvents"])
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return found


@pytest.mark.parametrize("rank", [0, 1])
def test_a_name_that_one_rank_has_for_what_all_did_changes_no_owner(tmp_path: Path, rank: int) -> None:
    whole, renamed = RECORDED / "fsdp2", make_with(tmp_path / "renamed", rank, wrap)
    for sides in ((whole, renamed), (renamed, whole)):
        found = compare_paths(*map(str, sides), results=tmp_path)
        assert all(row.exposed_ns[0] == row.exposed_ns[1] for row in found.collectives)
        assert {one.ratio for one in found.metrics if one.metric == EXPOSED_BY_OWNER} == {1.0}
        assert found.mechanism == ()
        assert not [clause for clause in found.clauses if "exposed" in clause]


def test_it_is_said_which_rank_calls_an_owner_otherwise(tmp_path: Path) -> None:
    (side,) = read_sides(str(make_with(tmp_path / "renamed", 1, wrap)), tmp_path).values()
    said = (
        "rank 1: what is called `_orig_mod.layers.0` there is `layers.0` of the other ranks, as they issued it "
        "together, and counts as that, and so for 2 more owners"
    )
    assert side.notes[0] == said
    (whole,) = read_sides(str(RECORDED / "fsdp2"), tmp_path).values()
    assert not [note for note in whole.notes if "of the other ranks" in note]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_knows_no_owner_follows_those_that_do(tmp_path: Path, rank: int) -> None:
    silent = make_with(tmp_path / "silent", rank, take_ranges)
    owners = [
        {(row.owner, row.purpose): row.exposed_ns for row in side.launches[0].owned}
        for path in (RECORDED / "fsdp2", silent)
        for side in read_sides(str(path), tmp_path).values()
    ]
    assert owners[0] == owners[1]


@pytest.mark.parametrize("rank", [0, 1])
def test_the_rank_that_knows_what_it_was_for_names_the_owner(tmp_path: Path, rank: int) -> None:
    (side,) = read_sides(str(make_with(tmp_path / "own", rank, call_otherwise)), tmp_path).values()
    assert not [row.owner for row in side.launches[0].owned if row.owner.startswith("mine::")]


def test_ranks_of_two_jobs_keep_their_names(tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    shutil.copy(RECORDED / "ddp" / "rank0.json.gz", mixed)
    shutil.copy(RECORDED / "skew" / "rank1.json.gz", mixed)
    traces = analyze_traces([mixed])
    found = give_matched_owners(traces)
    assert found.analyses == traces.analyses
    assert found.names == {}
