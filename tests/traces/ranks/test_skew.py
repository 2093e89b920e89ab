"""Clocks, waiting for the last rank, and who that is, on jobs whose truth is known."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtbench.base.vocabulary import Operation
from dtbench.traces.notes.clocks import ClockCorrected, ManyClocksCorrected
from dtbench.traces.notes.note import pick_notes, say_notes
from dtbench.traces.ranks.clocks.clocks import Clocks
from dtbench.traces.ranks.over_ranks import compare_ranks
from dtbench.traces.ranks.stragglers import RankWaiting, Waiting, describe_waiting
from dtbench.traces.time.intervals import Intervals
from tests.known import known

FEW = settings(max_examples=25, deadline=None)
OFFSETS = st.one_of(st.just(0), st.integers(-(10**10), 10**10))
ONE_GROUP = ((0, 1, 2, 3),)
MESH = ((0, 1), (2, 3), (0, 2), (1, 3))


def analyze(timelines: Any) -> tuple[Clocks, dict[int, Any], Waiting]:
    compared = compare_ranks(timelines)
    return compared.clocks, dict(compared.collectives), compared.waiting


@FEW
@given(seed=st.integers(0, 999), offsets=st.tuples(OFFSETS, OFFSETS, OFFSETS, OFFSETS), is_named=st.booleans())
@pytest.mark.parametrize("groups", [ONE_GROUP, MESH])
def test_clocks_that_are_off_change_nothing(
    jobs: Any, groups: Any, seed: int, offsets: tuple[int, ...], is_named: bool
) -> None:
    job = jobs.job(groups=groups, seed=seed, offsets_ns=offsets, is_named=is_named or groups is MESH)
    truth = jobs.generate(job)
    _, described, _ = analyze(truth.timelines)
    for timeline in truth.timelines:
        for index, (one, skew) in enumerate(zip(timeline.collectives, described[timeline.rank], strict=True)):
            key = (timeline.rank, index)
            wait_ns = truth.last_start_ns[key] - truth.start_ns[key]
            assert (
                abs(skew.skew_wait_ns - wait_ns) <= 2_000
            )  # each clock may stay a microsecond off: no less is corrected
            assert skew.skew_wait_ns + skew.transfer_ns == one.end_ns - one.start_ns
            assert skew.last_start_ns == one.start_ns + skew.skew_wait_ns


@FEW
@given(seed=st.integers(0, 999), rank=st.integers(0, 3), offset_ns=st.sampled_from([-3_000_000, 200_000, 5_000_000]))
def test_offsets_are_recovered_within_the_stated_uncertainty(jobs: Any, seed: int, rank: int, offset_ns: int) -> None:
    job = jobs.job(seed=seed, jitter_ns=8_000, offsets_ns=tuple(offset_ns if r == rank else 0 for r in range(4)))
    clocks, _, _ = analyze(jobs.generate(job).timelines)
    reference = clocks.by_rank[(rank + 1) % 4].offset_ns
    own = clocks.by_rank[rank]
    assert own.uncertainty_ns is not None
    assert own.uncertainty_ns < 8_000
    assert abs(own.offset_ns - reference - offset_ns) <= 2 * own.uncertainty_ns
    assert [f"rank {rank}" in note for note in say_notes(clocks.notes)] == [True]


def test_clocks_that_agree_are_left_alone(jobs: Any) -> None:
    clocks, _, _ = analyze(jobs.generate(jobs.job(jitter_ns=8_000)).timelines)
    assert {clock.offset_ns for clock in clocks.by_rank.values()} == {0}
    assert clocks.notes == ()
    assert clocks.out_of_step == frozenset()


def test_many_clocks_that_are_off_are_one_sentence(jobs: Any) -> None:
    offsets = tuple(rank * 1_000_000 for rank in range(12))
    clocks, _, _ = analyze(jobs.generate(jobs.job(groups=(tuple(range(12)),), offsets_ns=offsets)).timelines)
    assert say_notes(clocks.notes) == (
        (
            "the 11 clocks of ranks 0-4, 6-11 are up to 6.00 ms off (each known within 1.00 us, from the ends of"
            " collectives); corrected"
        ),
    )


@pytest.mark.parametrize("groups", [ONE_GROUP, MESH])
def test_a_clock_that_drifts_is_followed(jobs: Any, groups: Any) -> None:
    truth = jobs.generate(
        jobs.job(
            groups=groups, count=400, jitter_ns=4_000, offsets_ns=(0, 0, 10**13, 0), drifts=(0.0, 0.0, 4e-5, -2e-5)
        )
    )
    clocks, described, _ = analyze(truth.timelines)
    assert clocks.by_rank[2].drift - clocks.by_rank[0].drift == pytest.approx(4e-5, abs=1e-6)
    assert any("rank 2" in note and " us a second; corrected" in note for note in say_notes(clocks.notes))
    for rank, skews in described.items():
        for index, skew in enumerate(skews):
            wait_ns = truth.last_start_ns[rank, index] - truth.start_ns[rank, index]
            assert abs(skew.skew_wait_ns - wait_ns) <= 20_000


@pytest.mark.parametrize("stray", range(4))
@pytest.mark.parametrize("away_ns", [0, 60_000_000_000])
def test_a_rank_of_another_moment_is_refused_with_a_sentence_and_the_others_stand(
    jobs: Any, stray: int, away_ns: int
) -> None:
    truth, other = (jobs.generate(jobs.job(seed=seed)) for seed in (1, 2))
    timelines = list(truth.timelines)
    _, _, alone = analyze([one for one in timelines if one.rank != stray])
    timelines[stray] = jobs.shift(other.timelines[stray], away_ns)
    clocks, described, waiting = analyze(timelines)
    assert clocks.out_of_step == {stray}
    assert f"rank {stray}: not in step" in say_notes(clocks.notes)[-1]
    assert all(skew.skew_wait_ns is None for skews in described.values() for skew in skews)
    assert [(one.rank, one.last) for one in waiting.ranks] == [(one.rank, one.last) for one in alone.ranks]
    assert [one.skew_wait_ns for one in waiting.ranks] == [one.skew_wait_ns for one in alone.ranks]


def test_of_two_ranks_of_different_moments_neither_is_believed(jobs: Any) -> None:
    first, second = (jobs.generate(jobs.job(seed=seed, groups=((0, 1),), offsets_ns=(0, 0))) for seed in (1, 2))
    clocks, _, waiting = analyze([first.timelines[0], second.timelines[1]])
    assert clocks.out_of_step == {0, 1}
    assert waiting.collectives == 0
    assert waiting.unknown > 0


def test_one_rank_of_many_has_no_skew(jobs: Any) -> None:
    for timeline in jobs.generate(jobs.job()).timelines:
        _, described, waiting = analyze([timeline])
        assert all(skew.skew_wait_ns is None and skew.transfer_ns is None for skew in described[timeline.rank])
        assert all(math.isnan(skew.algbw) and math.isnan(skew.busbw) for skew in described[timeline.rank])
        assert waiting.ranks == ()
        assert math.isnan(waiting.wait_fraction)
        assert waiting.straggler is None
        assert describe_waiting(waiting) == ()


def test_a_missing_rank_leaves_lower_bounds_to_the_sum_and_nothing_to_the_collective(jobs: Any) -> None:
    truth = jobs.generate(jobs.job())
    _, _, whole = analyze(truth.timelines)
    _, described, waiting = analyze(truth.timelines[:3])
    assert all(skew.skew_wait_ns is None for skews in described.values() for skew in skews)
    assert waiting.partial == waiting.collectives == 40
    assert describe_waiting(waiting)[0].startswith("at least ")
    assert all(
        (some.skew_wait_ns or 0) <= known(all_.skew_wait_ns)
        for some, all_ in zip(waiting.ranks, whole.ranks, strict=False)
    )


def test_of_ranks_of_which_none_came_later_nothing_is_said_where_one_that_is_missing_may_have(jobs: Any) -> None:
    truth = jobs.generate(jobs.job())
    twins = [truth.timelines[0], replace(truth.timelines[0], rank=1)]
    _, _, waiting = analyze(twins)
    assert waiting.partial == waiting.collectives > 0
    assert [one.skew_wait_ns for one in waiting.ranks] == [None, None]
    assert all(
        math.isnan(fraction) for fraction in (waiting.wait_fraction, *(one.wait_fraction for one in waiting.ranks))
    )
    said, *_ = describe_waiting(waiting)
    assert "of the communication of 2 ranks is waiting for the last rank to begin is not known (" in said
    assert "0.0 %" not in said


@pytest.mark.parametrize("operation", [Operation.BROADCAST, Operation.REDUCE, Operation.GATHER, Operation.SCATTER])
def test_where_the_root_is_not_known_nobody_is_said_to_wait(jobs: Any, operation: Operation) -> None:
    truth = jobs.generate(jobs.job())
    rooted = [
        replace(one, collectives=tuple(replace(item, operation=operation) for item in one.collectives))
        for one in truth.timelines
    ]
    _, described, waiting = analyze(rooted)
    assert all(skew.skew_wait_ns is None for skews in described.values() for skew in skews)
    assert waiting.unknown == 40


@pytest.mark.parametrize("operation", [Operation.ALL_TO_ALL, Operation.ALL_REDUCE])
@pytest.mark.parametrize("hosts", [("a", "a"), ("a", "b"), (None, None)])
def test_a_rank_that_receives_more_ends_an_all_to_all_later_and_has_no_other_clock(
    jobs: Any, operation: Operation, hosts: tuple[str | None, str | None]
) -> None:
    #      rank 0   [-----]    [-----]       both begin together, rank 1 ends 600 us later
    #      rank 1   [--------] [--------]
    timelines = [
        jobs.timeline(
            rank,
            [
                jobs.collective(
                    at, at + 900_000 + rank * 600_000, group="0", seq=seq, group_size=2, operation=operation
                )
                for seq, at in enumerate(range(0, 40_000_000, 2_000_000))
            ],
            host=host,
        )
        for rank, host in enumerate(hosts)
    ]
    clocks, described, waiting = analyze(timelines)
    if operation is Operation.ALL_REDUCE:  # which all leave at one moment
        assert {clock.offset_ns for clock in clocks.by_rank.values()} == {0, 600_000}
        return
    assert {clock.offset_ns for clock in clocks.by_rank.values()} == {0}
    assert waiting.straggler is None
    waits_ns = {skew.skew_wait_ns for skews in described.values() for skew in skews}
    if hosts == ("a", "a"):
        assert (waits_ns, waiting.collectives, say_notes(clocks.notes)) == ({0}, 20, ())
    else:
        assert (waits_ns, waiting.collectives, waiting.unknown) == ({None}, 0, 20)
        assert [note.partition(" (")[0] for note in say_notes(clocks.notes)] == [
            "ranks 0-1: nothing tells how far their clocks are apart"
        ]


def test_the_rank_that_is_waited_for_is_named(jobs: Any) -> None:
    #      rank 0   [----------]      [--]
    #      rank 1       [------]  [------]
    #      rank 2          [---]        []
    spans = [[(0, 10_000), (16_000, 20_000)], [(4_000, 10_000), (12_000, 20_000)], [(7_000, 10_000), (18_000, 20_000)]]
    timelines = [
        jobs.timeline(
            rank,
            [jobs.collective(*span, group="0", seq=seq, group_size=3) for seq, span in enumerate(own)],
            host="one",  # whose ranks share a clock
        )
        for rank, own in enumerate(spans)
    ]
    _, described, waiting = analyze(timelines)
    assert [[skew.skew_wait_ns for skew in described[rank]] for rank in range(3)] == [
        [7_000, 2_000],
        [3_000, 6_000],
        [0, 0],
    ]
    assert [[skew.is_last for skew in described[rank]] for rank in range(3)] == [[False] * 2, [False] * 2, [True] * 2]
    assert described[0][0].algbw == 4096 / 3e-6
    assert described[0][0].busbw == pytest.approx(4096 / 3e-6 * 4 / 3)
    assert waiting.straggler is not None
    assert waiting.straggler.rank == 2
    assert waiting.straggler.caused_wait_ns == 3_000 + 3_000 + 2_000 + 2_000  # without it they wait for the one before
    assert waiting.wait_fraction == 18_000 / (14_000 + 14_000 + 5_000)
    assert describe_waiting(waiting) == (
        "54.5 % of the communication of 3 ranks is waiting for the last of them to begin (2 collectives)",
        "rank 2 is last in 2 of its 2; the others wait 10.0 us for it alone, summed over ranks",
        say_rest("8.00 us"),
    )


def test_ranks_that_others_wait_for_nearly_as_long_are_named_with_the_one_they_wait_for_longest(jobs: Any) -> None:
    #      rank 0   [---------]  [---------]  [---------]
    #      rank 1         [---]  [---------]  [---------]      6 us late in the first
    #      rank 2   [---------]       [----]  [---------]      5 us late in the second
    #      rank 3   [---------]  [---------]   [--------]      1 us late in the third
    starts = [(0, 20_000, 40_000), (6_000, 20_000, 40_000), (0, 25_000, 40_000), (0, 20_000, 41_000)]
    timelines = [
        jobs.timeline(
            rank,
            [
                jobs.collective(start, 10_000 + 20_000 * seq, group="0", seq=seq, group_size=4)
                for seq, start in enumerate(own)
            ],
            host="one",
        )
        for rank, own in enumerate(starts)
    ]
    _, _, waiting = analyze(timelines)
    assert describe_waiting(waiting)[1:] == (
        "ranks 1-2 are waited for about alike: 15.0 us to 18.0 us for each, summed over ranks",
        "for others, each alone or several together, they wait 3.00 us more, summed over ranks",
    )


@pytest.mark.parametrize("lost", [0, 1])
def test_where_a_rank_s_event_is_lost_nobody_is_said_to_be_last_there(jobs: Any, lost: int) -> None:
    #      rank 0   [--------------]   [-------]
    #      rank 1      [-----------]      (lost)     it may have come after rank 2
    #      rank 2          [-------]     [-----]
    spans = [[(0, 10_000), (20_000, 30_000)], [(4_000, 10_000), (21_000, 30_000)], [(7_000, 10_000), (24_000, 30_000)]]
    timelines = [
        jobs.timeline(
            rank,
            [jobs.collective(*span, group="0", seq=seq, group_size=3) for seq, span in enumerate(own)],
            host="one",
        )
        for rank, own in enumerate(spans)
    ]
    _, _, waiting = analyze([*timelines[:1], jobs.drop(timelines[1], lost), timelines[2]])
    assert (waiting.collectives, waiting.partial) == (2, 1)
    assert [(one.rank, one.last, one.undecided) for one in waiting.ranks] == [(0, 0, 1), (1, 0, 0), (2, 1, 1)]
    assert waiting.ranks[2].caused_wait_ns == 3_000 + 3_000  # of the other collective
    is_surely_longest = lost == 1  # else rank 0 may have waited as long for the one whose event is lost
    said = describe_waiting(waiting)[-1]
    assert said.startswith("rank 2 is last in 1 of its 1 of which that is known; ") is is_surely_longest
    assert (said == "who is waited for longest is not known") is not is_surely_longest


def say_rest(rest: str) -> str:
    why = "while several had not come yet, or in several collectives at once"
    return f"waits that are counted for none, summed over ranks: {rest} {why}"


def compare_starts(jobs: Any, starts_us: tuple[int, ...], **facts: Any) -> tuple[dict[int, Any], Waiting]:
    """Compare the ranks of one collective that all leave together, 100 us after the first came."""
    timelines = [
        jobs.timeline(
            rank,
            [jobs.collective(start * 1000, 100_000, group="0", seq=0, group_size=len(starts_us), **facts)],
            host="one",
        )
        for rank, start in enumerate(starts_us)
    ]
    _, described, waiting = analyze(timelines)
    return described, waiting


def test_of_ranks_that_come_late_together_none_is_named_alone(jobs: Any) -> None:
    described, waiting = compare_starts(jobs, (0, 50, 52, 54))
    assert {skew.last_rank for skews in described.values() for skew in skews} == {None}
    assert {skew.is_last for skews in described.values() for skew in skews} == {None}
    assert waiting.straggler is None
    assert [(one.ranks, one.collectives, one.caused_wait_ns) for one in waiting.together] == [((1, 2, 3), 1, 54_000)]
    assert describe_waiting(waiting)[1:] == (
        "ranks 1-3 come last together in 1 of 1; the others wait 54.0 us for them alone, summed over ranks",
        say_rest("6.00 us"),
    )


def test_a_rank_is_waited_for_alone_from_when_the_last_but_it_has_begun(jobs: Any) -> None:
    described, waiting = compare_starts(jobs, (0, 10, 40, 54))
    assert [described[rank][0].own_ns for rank in range(4)] == [14_000, 14_000, 14_000, 0]
    assert [described[rank][0].last_rank for rank in range(4)] == [None, None, 3, 3]  # 0 and 1 wait mostly for both
    assert waiting.straggler is not None
    assert (waiting.straggler.rank, waiting.straggler.caused_wait_ns) == (3, 3 * 14_000)
    assert waiting.together == ()


@pytest.mark.parametrize("steps", [(None, 0), (None, None)])
def test_what_ran_outside_all_steps_is_in_no_word_about_them(jobs: Any, steps: tuple[int | None, ...]) -> None:
    #      rank 0   [-------------------]   |  [--]
    #      rank 1                   [---]   |   [-]     comes 80 us late before the step, and 1 us in it
    spans = [[(0, 90_000), (100_000, 105_000)], [(80_000, 90_000), (101_000, 105_000)]]
    timelines = [
        jobs.timeline(
            rank,
            [jobs.collective(*span, group="0", seq=seq, group_size=2) for seq, span in enumerate(own)],
            host="one",
            step_of=steps,
        )
        for rank, own in enumerate(spans)
    ]
    if steps == (None, None):  # no step is marked at all: whole traces are what there is
        timelines = [replace(one, steps=(), step_numbers=()) for one in timelines]
    _, _, waiting = analyze(timelines)
    assert (waiting.outside, waiting.collectives, waiting.unknown) == ((None, 2, 0) if None is steps[1] else (1, 1, 0))
    waits_ns = 81_000 if steps[1] is None else 1_000
    assert waiting.straggler is not None
    assert (waiting.straggler.rank, waiting.straggler.caused_wait_ns) == (1, waits_ns)
    said = "(2 collectives)" if steps[1] is None else "(1 collective, without 1 outside all steps)"
    assert describe_waiting(waiting)[0].endswith(said)


def test_what_a_root_gives_is_waited_for_by_all_however_late_they_are(jobs: Any) -> None:
    _, waiting = compare_starts(jobs, (0, 50, 52, 54), operation=Operation.BROADCAST, root=3, group_ranks=(0, 1, 2, 3))
    assert waiting.together == ()
    assert waiting.straggler is not None
    assert (waiting.straggler.rank, waiting.straggler.caused_wait_ns) == (3, 54_000 + 4_000 + 2_000)


@pytest.mark.parametrize(("late_ns", "is_told"), [(0, False), (3_000, False), (9_000, True)])
@pytest.mark.parametrize("host", [None, "one"])
def test_who_was_last_is_told_beyond_what_clocks_may_be_off(
    jobs: Any, late_ns: int, is_told: bool, host: str | None
) -> None:
    #      rank 0   [------]     rank 1 begins `late_ns` later; ends lie 0 to 7 us apart, in turn: within 3.5 us of
    #      rank 1     [----]     their median
    timelines = [
        jobs.timeline(
            rank,
            [
                jobs.collective(
                    at + rank * late_ns, at + 900_000 + rank * (seq % 8) * 1_000, group="0", seq=seq, group_size=2
                )
                for seq, at in enumerate(range(0, 16_000_000, 2_000_000))
            ],
            host=host,
        )
        for rank in range(2)
    ]
    clocks, described, waiting = analyze(timelines)
    assert clocks.doubts_ns(0, [1]).tolist() == [0 if host else 3_500]
    assert {skew.last_rank for skew in described[0]} == ({1} if is_told or (host and late_ns) else {None})
    assert (waiting.straggler is not None) is bool(is_told or (host and late_ns))


def test_two_ranks_that_come_last_together_are_not_singled_out(jobs: Any) -> None:
    timelines = [
        jobs.timeline(rank, [jobs.collective(start, 9_000, group="0", seq=0, group_size=3)])
        for rank, start in enumerate((0, 5_000, 5_000))
    ]
    _, described, waiting = analyze(timelines)
    assert [described[rank][0].is_last for rank in range(3)] == [None] * 3
    assert [described[rank][0].skew_wait_ns for rank in range(3)] == [5_000, 0, 0]
    assert waiting.straggler is None


def test_a_match_that_cannot_be_is_not_believed(jobs: Any) -> None:
    truth = jobs.generate(jobs.job(count=30))
    last = truth.timelines[3]
    late = [*last.collectives]
    late[7] = jobs.shift(replace(last, collectives=(late[7],)), 50_000_000).collectives[0]
    clocks, described, _ = analyze([*truth.timelines[:3], replace(last, collectives=tuple(late))])
    assert clocks.out_of_step == frozenset()
    assert [index for index, skew in enumerate(described[0]) if skew.skew_wait_ns is None] == [7]


WORLDS = (
    (tuple(range(8)),),
    ((0, 1, 2, 3), (4, 5, 6, 7), (0, 4), (1, 5), (2, 6), (3, 7)),
    ((0, 1), (2, 3), (4, 5), (6, 7), tuple(range(8))),
    ((0, 1, 2), (3, 4, 5), (6, 7)),
)


@pytest.mark.parametrize("seed", range(24))
def test_whatever_is_lost_or_off_what_is_said_is_true(jobs: Any, seed: int) -> None:
    random = np.random.default_rng(seed)
    jitter_ns = int(random.choice([0, 1_000, 8_000]))
    truth = jobs.generate(
        jobs.job(
            groups=WORLDS[seed % len(WORLDS)],
            count=int(random.integers(20, 120)),
            offsets_ns=tuple(np.where(random.random(8) < 0.4, random.integers(-(10**8), 10**8, 8), 0).tolist()),
            drifts=tuple(np.where(random.random(8) < 0.2, random.uniform(-5e-5, 5e-5, 8), 0).tolist()),
            jitter_ns=jitter_ns,
            is_named=seed % 3 > 0,
            seed=seed,
        )
    )
    there = [one for one in truth.timelines if random.random() < 0.95]
    left = {
        one.rank: sorted(random.permutation(len(one.collectives))[int(random.integers(0, 4)) :].tolist())
        for one in there
    }
    compared = compare_ranks(
        [jobs.drop(one, *set(range(len(one.collectives))).difference(left[one.rank])) for one in there]
    )
    for match in compared.matches:
        assert len({truth.number[rank, left[rank][index]] for rank, index in match.members.items()}) == 1
    for rank, skews in compared.collectives.items():
        for old, skew in zip(left[rank], skews, strict=True):
            if skew.skew_wait_ns is not None:
                wait_ns = truth.last_start_ns[rank, old] - truth.start_ns[rank, old]
                assert abs(skew.skew_wait_ns - wait_ns) <= 3 * jitter_ns + 2_000


def test_ranks_of_one_host_have_one_clock_though_few_ends_lie_apart(jobs: Any) -> None:
    job = jobs.job(groups=((0, 1),), count=5, offsets_ns=(0, 4_000_000), jitter_ns=3_000_000)
    timelines = jobs.generate(job).timelines
    alone = analyze(timelines)[0]
    assert any(clock.offset_ns for clock in alone.by_rank.values())  # what the ends alone would have
    together = analyze([replace(timeline, host="a") for timeline in timelines])[0]
    assert [clock.offset_ns for clock in together.by_rank.values()] == [0, 0]
    assert not pick_notes(together.notes, ClockCorrected)
    assert not pick_notes(together.notes, ManyClocksCorrected)


def test_a_host_whose_clock_is_off_is_corrected_as_a_whole(jobs: Any) -> None:
    job = jobs.job(count=40, offsets_ns=(0, 0, 5_000_000, 5_000_000), jitter_ns=2_000)
    timelines = jobs.generate(job).timelines
    found = analyze([replace(one, host="ab"[one.rank // 2]) for one in timelines])[0].by_rank
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert found[2].offset_ns - found[0].offset_ns == pytest.approx(5_000_000, abs=2_000)


def host_groups(hosts: int, each: int, *, on_host: int) -> tuple[tuple[int, ...], ...]:
    """Return the groups of hosts whose ranks meet ``on_host`` times among themselves for each time over all."""
    inside = tuple(tuple(range(host * each, (host + 1) * each)) for host in range(hosts))
    return (*inside * on_host, tuple(range(hosts * each)))


def replica_groups(hosts: int, each: int, *, on_host: int) -> tuple[tuple[int, ...], ...]:
    """Return the same where ranks meet those of other hosts in rows, and never all."""
    across = tuple(tuple(range(rank, hosts * each, each)) for rank in range(each))
    return (*host_groups(hosts, each, on_host=on_host)[:-1], *across)


FAR_HOSTS = [
    (host_groups(2, 8, on_host=3), (0, 2_000_000)),
    (host_groups(4, 4, on_host=5), (0, 1_700_000, -900_000, 2_000_000)),
    (replica_groups(4, 4, on_host=3), (-2_000_000, 0, 400_000, 1_100_000)),
    (host_groups(3, 2, on_host=9), (300_000, 0, -60_000_000)),
]


@pytest.mark.parametrize("has_host", [False, True])
@pytest.mark.parametrize(("groups", "host_offsets"), FAR_HOSTS)
def test_hosts_are_corrected_though_most_collectives_stay_on_one(
    jobs: Any, groups: tuple[tuple[int, ...], ...], host_offsets: tuple[int, ...], has_host: bool
) -> None:
    ranks = 1 + max(rank for group in groups for rank in group)
    each = ranks // len(host_offsets)
    offsets = tuple(host_offsets[rank // each] for rank in range(ranks))
    truth = jobs.generate(jobs.job(groups=groups, count=12, jitter_ns=4_000, offsets_ns=offsets))
    timelines = [replace(one, host=f"node{one.rank // each}" if has_host else None) for one in truth.timelines]
    compared = compare_ranks(timelines)
    assert compared.clocks.out_of_step == frozenset()
    for rank, skews in compared.collectives.items():
        for index, skew in enumerate(skews):
            wait_ns = truth.last_start_ns[rank, index] - truth.start_ns[rank, index]
            assert skew.skew_wait_ns == pytest.approx(wait_ns, abs=12_000)
    agreed = compare_ranks(
        jobs.generate(jobs.job(groups=groups, count=12, jitter_ns=4_000, offsets_ns=(0,) * ranks)).timelines
    )
    assert [one.rank for one in compared.waiting.stragglers] == [one.rank for one in agreed.waiting.stragglers] != []
    assert sum(map(len, say_notes(compared.notes))) < 1_000


@pytest.mark.parametrize(
    ("late_ns", "host", "is_in_step"),
    [(3_000, None, True), (15_000, None, True), (3_000, "a", True), (15_000, "a", True), (60_000, "a", False)],
)
def test_ranks_that_leave_one_collective_some_microseconds_apart_are_in_step(
    jobs: Any, late_ns: int, host: str | None, is_in_step: bool
) -> None:
    """Clocks agree to a microsecond, yet the first rank is seen to leave just before the last is seen to enter."""
    timelines = []
    for rank in range(8):
        long = [jobs.collective(k * 10**6, k * 10**6 + 400_000, group="0", seq=k, group_size=8) for k in range(3)]
        short = jobs.collective(
            5 * 10**6 + (late_ns if rank == 5 else -rank * 20_000),
            5 * 10**6 + max(4_000 if rank == 5 else rank * 1_000, late_ns + 1_000 if rank == 5 else 0),
            group="0",
            seq=3,
            group_size=8,
        )
        timelines.append(replace(jobs.timeline(rank, [*long, short]), host=host))
    compared = compare_ranks(timelines)
    assert (compared.clocks.out_of_step == frozenset()) is is_in_step


def test_a_group_whose_collectives_are_all_impossible_is_seen_beside_many_that_are_not(jobs: Any) -> None:
    groups = host_groups(2, 4, on_host=15)
    truth, other = (
        jobs.generate(jobs.job(groups=groups, count=10, offsets_ns=(0,) * 8, seed=seed)).timelines for seed in (1, 2)
    )
    world = {index for index, one in enumerate(truth[0].collectives) if one.group_size == 8}
    strangers = [one for one in other[0].collectives if one.group_size == 8]
    mixed = [strangers.pop(0) if index in world else one for index, one in enumerate(truth[0].collectives)]
    compared = compare_ranks([replace(truth[0], collectives=tuple(mixed)), *truth[1:]])
    assert 0 in compared.clocks.out_of_step
    assert all(skew.skew_wait_ns is None for skew in compared.collectives[0])


def test_many_ranks_out_of_step_are_named_as_ranges(jobs: Any) -> None:
    random = np.random.default_rng(0)
    timelines = list(jobs.generate(jobs.job(groups=(tuple(range(64)),), offsets_ns=(0,) * 64)).timelines)
    strays = [*range(30, 50), 51]
    for rank in strays:
        moved = [
            jobs.shift(replace(timelines[rank], collectives=(one,)), int(random.integers(10**10))).collectives[0]
            for one in timelines[rank].collectives
        ]
        timelines[rank] = replace(timelines[rank], collectives=tuple(moved))
    clocks = compare_ranks(timelines).clocks
    assert clocks.out_of_step == set(strays)
    assert say_notes(clocks.notes)[-1].startswith("ranks 30-49, 51: not in step with the others")


@pytest.mark.parametrize(
    ("groups", "offsets"),
    [
        (((0, 1),), (0, 4_000_000)),
        (((0, 1, 2, 3),), (0, 150_000, 0, -3_000_000_000)),
        (host_groups(2, 2, on_host=4), (0, 0, 900_000, 900_000)),
    ],
)
def test_containers_of_one_name_on_several_machines_keep_their_own_clocks(
    jobs: Any, groups: tuple[tuple[int, ...], ...], offsets: tuple[int, ...]
) -> None:
    truth = jobs.generate(jobs.job(groups=groups, offsets_ns=offsets, jitter_ns=6_000))
    compared = compare_ranks([replace(one, host="localhost") for one in truth.timelines])
    assert compared.clocks.out_of_step == frozenset()
    for rank, skews in compared.collectives.items():
        for index, skew in enumerate(skews):
            wait_ns = truth.last_start_ns[rank, index] - truth.start_ns[rank, index]
            assert skew.skew_wait_ns == pytest.approx(wait_ns, abs=12_000)
    assert say_notes(compared.clocks.notes)[0].startswith(
        f"ranks 0-{len(offsets) - 1}: all of host localhost, as their traces say"
    )


@pytest.mark.parametrize("late_ns", [30_000, 250_000])
def test_ends_that_scatter_widely_do_not_tear_a_host(jobs: Any, late_ns: int) -> None:
    """As on CPU: whoever gets a core late leaves late, one rank more so than the others."""
    timelines = jobs.generate(jobs.job(jitter_ns=400_000, count=60)).timelines
    late = [
        replace(one, span=Intervals(one.span.starts_ns, one.span.ends_ns + late_ns)) for one in timelines[2].collectives
    ]
    placed = [
        replace(one, host="a") for one in (*timelines[:2], replace(timelines[2], collectives=tuple(late)), timelines[3])
    ]
    clocks = compare_ranks(placed).clocks
    assert clocks.notes == ()
    assert {clock.offset_ns for clock in clocks.by_rank.values()} == {0}


@pytest.mark.thorough
@pytest.mark.parametrize("hosts", [32, 128])
def test_hundreds_of_ranks_on_hosts_two_milliseconds_apart_name_the_right_straggler(jobs: Any, hosts: int) -> None:
    random = np.random.default_rng(0)
    host_offsets = random.integers(-2_000_000, 2_000_000, hosts).tolist()
    ranks = 8 * hosts
    groups = host_groups(hosts, 8, on_host=1)
    offsets = tuple(host_offsets[rank // 8] for rank in range(ranks))
    late = 3 * ranks // 4
    shared = {"groups": groups, "count": 5, "jitter_ns": 4_000, "late_ns": {late: 10_000_000}}
    truth = jobs.generate(jobs.job(offsets_ns=offsets, **shared))
    agreed = jobs.generate(jobs.job(offsets_ns=(0,) * ranks, **shared))
    for has_host in (False, True):
        compared, expected = (
            compare_ranks([replace(one, host=f"node{one.rank // 8}" if has_host else None) for one in made.timelines])
            for made in (truth, agreed)
        )
        assert compared.clocks.out_of_step == frozenset()
        for waiting in (compared.waiting, expected.waiting):
            assert waiting.straggler is not None
            assert waiting.straggler.rank == late
        assert sum(map(len, say_notes(compared.notes))) < 2_000


def wait_for(*caused_ns: int, undecided: int = 0, open_ns: int = 0) -> Waiting:
    """Return what is known of ranks that were waited for so long, each last in one of ten collectives."""
    ranks = [
        RankWaiting(
            rank=rank,
            collectives=10,
            last=1,
            comm_ns=100_000,
            skew_wait_ns=50_000,
            caused_wait_ns=waited_ns,
            undecided=undecided,
        )
        for rank, waited_ns in enumerate(caused_ns)
    ]
    return Waiting(
        ranks=tuple(ranks),
        collectives=10,
        partial=0,
        launched=0,
        unknown=0,
        undecided=undecided,
        undecided_ns=60_000,
        open_ns=open_ns,
    )


def test_a_rank_that_another_may_be_waited_for_longer_than_is_not_named() -> None:
    """Eight of ten collectives do not tell for whom ranks waited: the rest of them names nobody."""
    assert describe_waiting(wait_for(9_000, 5_000, undecided=8, open_ns=4_000)) == (
        "50.0 % of the communication of 2 ranks is waiting for the last of them to begin (10 collectives)",
        (
            "for whom ranks wait is not known in 8 of 10 collectives (60.0 us of waiting, summed over ranks): "
            "several came last there, or may have; who is waited for longest is not known"
        ),
        say_rest("26.0 us"),
    )
    named = wait_for(9_001, 5_000, undecided=8, open_ns=4_000)
    assert named.straggler == named.ranks[0]
    assert describe_waiting(named)[1:] == (
        (
            "for whom ranks wait is not known in 8 of 10 collectives (60.0 us of waiting, summed over ranks): several"
            " came last there, or may have"
        ),
        "rank 0 is last in 1 of its 2 of which that is known; the others wait 9.00 us for it alone, summed over ranks",
        "for others, each alone or several together, they wait 5.00 us more, summed over ranks",
        say_rest("26.0 us"),
    )


def test_collectives_that_do_not_tell_who_waits_are_counted() -> None:
    waiting = replace(wait_for(9_000, 5_000), unknown=5, astray=2)
    assert describe_waiting(waiting)[0] == (
        "50.0 % of the compared communication of 2 ranks is waiting for the last of them to begin "
        "(10 collectives, without 2 in which clocks disagree, without 3 that do not tell who waits)"
    )


def test_collectives_of_which_clocks_do_not_tell_who_was_last_are_undecided(jobs: Any) -> None:
    """Two machines, whose clocks are known to 20 us: who came 10 us later is not known, who came 2 ms later is."""
    spans = [(0, 4_000_000), (5_000_000, 9_000_000), (10_000_000, 14_000_000)]
    late_ns = (2_000_000, 10_000, 2_000_000)
    jitter_ns = (0, 40_000, 0)
    timelines = [
        jobs.timeline(
            rank,
            [
                jobs.collective(start + rank * late, end + rank * jitter, group="0", seq=seq, group_size=2)
                for seq, ((start, end), late, jitter) in enumerate(zip(spans, late_ns, jitter_ns, strict=True))
            ],
            host=f"node{rank}",
        )
        for rank in range(2)
    ]
    _, described, waiting = analyze(timelines)
    assert [one.last_rank for one in described[0]] == [1, None, 1]
    assert (waiting.collectives, waiting.undecided, [one.undecided for one in waiting.ranks]) == (3, 1, [1, 1])
    assert 0 < waiting.open_ns <= waiting.undecided_ns < 100_000
    assert waiting.straggler == waiting.ranks[1]
