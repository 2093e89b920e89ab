"""Ranks of one job, and what is said when they are not."""

import math
from dataclasses import replace
from typing import Any

import pytest

from dtbench.traces.notes.note import say_notes
from dtbench.traces.ranks.over_ranks import compare_ranks
from dtbench.traces.time.coverage import Window


def test_all_ranks_of_one_job_need_no_words(jobs: Any) -> None:
    assert compare_ranks(jobs.generate(jobs.job()).timelines).notes == ()


def test_of_a_rank_that_is_there_twice_the_first_counts(jobs: Any) -> None:
    timelines = jobs.generate(jobs.job()).timelines
    compared = compare_ranks([*timelines, replace(timelines[1], path="copy.json")])
    assert say_notes(compared.notes) == ("copy.json is left out: rank 1 is there already, from rank1.json",)
    assert compared.waiting == compare_ranks(timelines).waiting


def test_a_rank_of_a_job_of_another_size_is_named(jobs: Any) -> None:
    timelines = jobs.generate(jobs.job()).timelines
    notes = say_notes(compare_ranks([*timelines[:3], replace(timelines[3], world_size=8)]).notes)
    assert notes[0].startswith("rank3.json is of a job of 8 ranks, most others of one of 4: not one job")


def test_ranks_without_a_trace_are_counted(jobs: Any) -> None:
    timelines = jobs.generate(jobs.job()).timelines
    assert say_notes(compare_ranks([timelines[0], timelines[3]]).notes) == (
        "2 of 4 ranks have a trace (not 1, 2): waits for the last rank are at least what is shown",
    )


def test_a_trace_of_another_job_shares_nothing_and_is_far_away(jobs: Any) -> None:
    timelines = jobs.generate(jobs.job()).timelines
    other = [
        replace(one, seq=(one.seq or 0) + 10**6) for one in jobs.shift(timelines[3], 3_600_000_000_000).collectives
    ]
    notes = say_notes(compare_ranks([*timelines[:3], replace(timelines[3], collectives=tuple(other))]).notes)
    assert any(
        note.startswith("rank3.json is not known to share a collective with any other rank and lies 3")
        for note in notes
    )


def test_a_rank_that_is_in_none_of_its_groups_is_named(jobs: Any) -> None:
    timelines = jobs.generate(jobs.job(groups=((0, 1), (2, 3)))).timelines
    notes = say_notes(compare_ranks([*timelines[:3], replace(timelines[3], rank=9)]).notes)
    assert any("rank3.json is taken for rank 9" in note and "has no such rank" in note for note in notes)


@pytest.mark.parametrize(("said", "words"), [(9, "says"), (None, "is taken for"), (3, "is taken for")])
def test_a_rank_that_the_job_has_not_is_only_said_by_a_trace_that_says_it(
    said: int | None, words: str, jobs: Any
) -> None:
    timelines = jobs.generate(jobs.job()).timelines
    notes = say_notes(compare_ranks([*timelines[:3], replace(timelines[3], rank=9, said_rank=said)]).notes)
    assert f"rank3.json {words} rank 9 in a job of 4; are they numbered rightly?" in notes


def test_steps_that_one_rank_lacks_are_named(jobs: Any) -> None:
    timelines = [
        replace(one, step_numbers=(3, 4, 5), steps=(Window(0, 1), Window(1, 2), Window(2, 3)))
        for one in jobs.generate(jobs.job()).timelines
    ]
    timelines[2] = replace(timelines[2], step_numbers=(4,), steps=(Window(1, 2),))
    timelines[3] = replace(timelines[3], step_numbers=(), steps=())
    assert say_notes(compare_ranks(timelines).notes) == (
        "rank2.json: rank 2 has no steps 3, 5; figures per step are over the ranks that have it",
        "rank3.json: rank 3 has no steps, others do; its whole trace is used",
    )


def test_events_that_only_one_rank_has_are_counted(jobs: Any) -> None:
    timelines = jobs.generate(jobs.job(groups=((0, 1), (2, 3)))).timelines
    notes = say_notes(compare_ranks([timelines[0], jobs.drop(timelines[1], 3, 4), *timelines[2:]]).notes)
    assert notes == (
        "rank0.json: 2 of 40 collectives of rank 0 could not be found in any other trace; the others are matched",
    )


def test_ranks_without_communication_compare_to_nothing(jobs: Any) -> None:
    compared = compare_ranks([jobs.timeline(0, []), jobs.timeline(1, [])])
    assert compared.notes == ()
    assert compared.collectives == {0: (), 1: ()}
    assert compare_ranks([]).notes == ()


def test_every_collective_has_an_entry_and_one_that_is_not_everywhere_an_unknown_one(jobs: Any) -> None:
    timelines = jobs.generate(jobs.job(count=7)).timelines
    compared = compare_ranks([jobs.drop(timelines[0], 2), *timelines[1:]])
    waits = [one.skew_wait_ns is None for one in compared.collectives[3]]
    assert waits == [False, False, True, False, False, False, False]
    assert [one.skew_wait_ns is None for one in compared.collectives[0]] == [False] * 6
    assert sum(math.isnan(one.busbw) for one in compared.collectives[3]) == 1


def test_ranks_that_share_collectives_are_one_job_and_a_rank_that_shares_none_is_not(jobs: Any) -> None:
    timelines = jobs.generate(jobs.job()).timelines
    assert compare_ranks(timelines).is_one_job
    assert compare_ranks(timelines[:1]).is_one_job
    others = tuple(replace(one, group="x", group_ranks=(8, 9)) for one in timelines[0].collectives)
    stranger = replace(timelines[0], rank=9, collectives=others)
    assert not compare_ranks([*timelines, stranger]).is_one_job
    assert not compare_ranks([timelines[0], replace(timelines[1], world_size=64)]).is_one_job


def test_what_many_ranks_lack_is_one_sentence(jobs: Any) -> None:
    steps = {"step_numbers": (3, 4), "steps": (Window(0, 1), Window(1, 2))}
    timelines = [
        replace(one, **(steps if one.rank == 5 else {"steps": (), "step_numbers": ()} if one.rank > 9 else {}))
        for one in jobs.generate(jobs.job(groups=(tuple(range(12)),), offsets_ns=(0,) * 12)).timelines
    ]
    assert say_notes(compare_ranks(timelines).notes) == (
        "ranks 0-4, 6-9 have no step 4; figures per step are over the ranks that have it",
        "ranks 10-11 have no steps, others do; their whole traces are used",
    )
    strange = [replace(one, world_size=64 if one.rank in (1, 2, 3, 7) else 12) for one in timelines]
    assert say_notes(compare_ranks(strange).notes)[0].startswith(
        "ranks 1-3, 7 are of a job of 64 ranks, most others of one of 12"
    )


def test_ranks_without_a_trace_are_ranges(jobs: Any) -> None:
    timelines = jobs.generate(jobs.job(groups=(tuple(range(40)),), count=3, offsets_ns=(0,) * 40)).timelines
    assert say_notes(compare_ranks(timelines[:2]).notes)[0].startswith("2 of 40 ranks have a trace (not 2-39)")
