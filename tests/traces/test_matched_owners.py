"""What ranks did together has one owner wherever owners are told, whatever each rank calls it; nothing else has."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dtbench.replay.changes.hidden import Hidden
from dtbench.replay.read import read_graph
from dtbench.replay.what_if import find_changes
from dtbench.traces.job.explain import explain
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.job import OwnersFollowed
from dtbench.traces.notes.note import pick_notes, say_notes
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.rows.collective_table import COLLECTIVES
from tests.traces.renamed_owners import RECORDED, call_otherwise, make_with, take_ranges, wrap


def list_owners(found: TraceSet) -> list[tuple[str, tuple[object, ...]]]:
    return [(row.owner or "", (row.purpose, row.cause, row.exposed_ns, row.carried.at_most_ns)) for row in found.owners]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_name_that_one_rank_alone_has_is_no_owner_of_its_own(tmp_path: Path, rank: int) -> None:
    whole, renamed = (analyze_traces([path]) for path in (RECORDED / "fsdp2", make_with(tmp_path / "x", rank, wrap)))
    named = {one.owner: one.owner for row in whole.analyses for one in row.collectives}
    if rank == 0:  # of two that tell as many apart the lowest
        named |= {name: f"_orig_mod.{name}" for name in named if name.startswith("layers.")}
    assert [(named[owner], rest) for owner, rest in list_owners(whole)] == list_owners(renamed)
    tables = [COLLECTIVES.tabulate(one.analyses)["owner"].tolist() for one in (whole, renamed)]
    assert [named[owner] for owner in tables[0]] == tables[1]
    labels = [one.label for one in find_changes(read_graph(renamed).graph) if isinstance(one, Hidden) and one.owners]
    assert labels
    assert {label.partition(",")[0] for label in labels} <= set(named.values())


def test_it_is_said_how_many_of_a_ranks_collectives_have_another_owner_than_it_says(tmp_path: Path) -> None:
    renamed = analyze_traces([make_with(tmp_path / "wrapped", 1, wrap)])
    assert (
        "rank 1: 9 collectives of `_orig_mod.layers.0` there count as `layers.0`'s, as on other ranks that issued "
        "them; so for 2 more names"
    ) in say_notes(renamed.notes)
    assert not pick_notes(analyze_traces([RECORDED / "fsdp2"]).notes, OwnersFollowed)
    assert str(OwnersFollowed((1, 2), (("", "root", 1),))) == (
        "ranks 1-2: 1 collective of each without an owner there counts as `root`'s, as on other ranks that issued it"
    )


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("change", [take_ranges, call_otherwise])
def test_a_rank_that_knows_no_owner_follows_those_that_do(
    tmp_path: Path, rank: int, change: Callable[[list[dict[str, Any]]], None]
) -> None:
    whole, silent = (analyze_traces([path]) for path in (RECORDED / "fsdp2", make_with(tmp_path / "x", rank, change)))
    owners = [[each.owner for one in traces.analyses for each in one.collectives] for traces in (whole, silent)]
    assert owners[0] == owners[1]
    for one, other in zip(whole.analyses, silent.analyses, strict=True):
        assert one.whole_unattributed_ns == other.whole_unattributed_ns
        assert [step.unattributed_ns for step in one.steps] == [step.unattributed_ns for step in other.steps]


def with_owners(one: TraceAnalysis, owners: list[str]) -> TraceAnalysis:
    collectives = tuple(replace(each, owner=owner) for each, owner in zip(one.collectives, owners, strict=True))
    return replace(one, timeline=replace(one.timeline, collectives=collectives))


def test_where_one_rank_numbers_its_buckets_otherwise_in_a_step_the_other_that_tells_more_apart_names_them() -> None:
    """Rank 0's first bucket of a step is lost to a name: it calls both bucket 0 there; rank 1 has two."""
    first, second = analyze_traces([RECORDED / "ddp"]).analyses
    owners = [one.owner for one in first.collectives]
    in_step = [index for index, step in enumerate(first.step_of) if step == 1]
    assert len({owners[index] for index in in_step}) > 1
    odd = [owners[in_step[0]] if index in in_step else owner for index, owner in enumerate(owners)]
    found = explain([with_owners(first, odd), second])
    assert [one.owner for one in found.analyses[0].collectives] == owners


def test_ranks_of_two_jobs_keep_their_names(tmp_path: Path) -> None:
    shutil.copy(RECORDED / "ddp" / "rank0.json.gz", tmp_path)
    shutil.copy(make_with(tmp_path / "wrapped", 1, wrap) / "rank1.json.gz", tmp_path)
    shutil.rmtree(tmp_path / "wrapped")
    mixed = analyze_traces([tmp_path])
    owners = {each.owner for each in mixed.analyses[1].collectives}
    assert {f"_orig_mod.layers.{unit}" for unit in range(3)} <= owners
    assert not pick_notes(mixed.notes, OwnersFollowed)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_name_that_says_more_counts_though_the_other_rank_tells_more_apart(rank: int) -> None:
    """One rank lost who asked for some: it has both names, the other one."""
    analyses = list(analyze_traces([RECORDED / "ddp"]).analyses)
    owners = [f"Redistribute of {one.owner}" for one in analyses[rank].collectives]
    less = [owner.removeprefix("Redistribute of ") if index % 2 else owner for index, owner in enumerate(owners)]
    analyses[rank] = with_owners(analyses[rank], less)
    other = [f"Redistribute of {one.owner}" for one in analyses[1 - rank].collectives]
    analyses[1 - rank] = with_owners(analyses[1 - rank], other)
    found = explain(analyses)
    assert {one.owner for one in found.analyses[1 - rank].collectives} == {*other}
    matched = {each for group in found.over_ranks.matches.groups for each in group.index[:, rank].tolist()}
    assert [found.analyses[rank].collectives[at].owner for at in sorted(matched)] == [
        owners[at] for at in sorted(matched)
    ]
