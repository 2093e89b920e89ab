"""A comparison is of owners over ranks: what one rank alone calls otherwise is no change."""

from pathlib import Path

import pytest

from dtbench.comparison.metrics import EXPOSED_BY_OWNER
from dtbench.comparison.reading.sides import read_sides
from dtbench.comparison.run import compare_paths
from tests.traces.renamed_owners import RECORDED, call_otherwise, make_with, take_ranges, wrap


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
        "rank 1: 9 collectives of `_orig_mod.layers.0` there count as `layers.0`'s, as on other ranks that issued "
        "them; so for 2 more names"
    )
    assert said in side.notes


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
