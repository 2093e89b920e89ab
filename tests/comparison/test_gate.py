"""Bounds: what they read as, when they are exceeded, and what cannot be judged."""

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.comparison.comparison import Comparison, Outcome
from dtbench.comparison.gate import BoundError, Kept, check_subjects, judge, read_bound
from dtbench.comparison.run import compare_sides
from dtbench.store.records.baseline import Issued
from dtbench.store.records.traffic import Traffic

Make = Callable[..., Any]
TIMES = (100.0, 101.0, 99.5, 100.5, 100.2)


@pytest.fixture
def slower_by(launch_of: Make, side_of: Make, gather_of: Make) -> Callable[..., Comparison]:
    """Compare with a side that is slower by a factor and exposes 4 ms of ``layers.3`` in place of 2."""

    def side(label: str, times: list[float], *, exposed_ms: float, turn: int, count: int, has_order: bool) -> Any:
        order = Issued(
            operation=Operation.ALL_GATHER,
            purpose=Purpose.UNSHARD,
            owner="layers.3",
            size_bytes=8,
            dtype="float32",
            group_size=2,
        )
        issued = Traffic(
            purpose=Purpose.UNSHARD,
            axis=Axis.SHARD,
            operation=Operation.ALL_GATHER,
            count=count,
            size_bytes=8,
            count_async=0,
        )
        launches = [
            launch_of(
                index,
                time,
                owned=[gather_of("layers.3", exposed_ms + index / 100)],
                started=2 * index + turn + 1,
                traffic=[issued],
                order=[order] * count if has_order else None,
            )
            for index, time in enumerate(times)
        ]
        return side_of(label, launches)

    def make(
        factor: float, launches: int = 5, *, traffic: int = 1, has_order: bool = True, left_out: tuple[str, ...] = ()
    ) -> Comparison:
        times = [factor * time for time in TIMES[:launches]]
        new = side("new", times, exposed_ms=4.0, turn=1, count=traffic, has_order=has_order)
        return compare_sides(
            side("old", list(TIMES[:launches]), exposed_ms=2.0, turn=0, count=1, has_order=True),
            new.model_copy(update={"left_out": left_out}),
        )

    return make


@pytest.mark.parametrize(
    ("bound", "factor", "kept"),
    [
        ("step_time > 3%", 1.05, Kept.EXCEEDED),
        ("step_time > 3 %", 1.02, Kept.KEPT),
        ("step_time>3%", 0.9, Kept.KEPT),
        ("step_time > 0.3%", 1.005, Kept.EXCEEDED),  # below the threshold, and found all the same
        ("step_time < -5%", 0.9, Kept.EXCEEDED),
        ("step_time < -15%", 0.9, Kept.KEPT),
        ("step_time > 4 ms", 1.05, Kept.EXCEEDED),
        ("step_time > 4000us", 1.03, Kept.KEPT),
        ("exposed[layers.3] > 50%", 1.0, Kept.EXCEEDED),
        ("owner_exposed[layers.3] > 1.5 ms", 1.0, Kept.EXCEEDED),
        ("owner_exposed[layers.3] > 2.5 ms", 1.0, Kept.KEPT),
        ("mechanism  changed", 1.0, Kept.KEPT),
        ("allocated_memory > 5%", 1.0, Kept.UNDECIDED),
    ],
)
def test_a_bound_is_exceeded_where_the_change_is_found_and_beyond_it(
    slower_by: Callable[..., Comparison], bound: str, factor: float, kept: Kept
) -> None:
    found = judge(read_bound(bound), slower_by(factor))
    assert found.kept is kept
    assert f"`{bound}`, new against old" in found.words


def test_a_change_that_is_not_found_exceeds_nothing_however_large(launch_of: Make, side_of: Make) -> None:
    wild = [launch_of(index, time) for index, time in enumerate((100.0, 180.0, 90.0, 170.0))]
    wilder = [launch_of(index, time) for index, time in enumerate((190.0, 95.0, 185.0, 120.0))]
    found = compare_sides(side_of("old", wild), side_of("new", wilder))
    assert found.metrics[0].ratio > 1.03
    assert found.metrics[0].outcome is Outcome.NOT_ESTABLISHED
    judged = judge(read_bound("step_time > 3%"), found)
    assert judged.kept is Kept.NOT_ESTABLISHED
    assert "not established, step time" in judged.words
    assert "show changes above" in judged.words


@pytest.mark.parametrize("bound", ["step_time > 0.1%", "step_time > 2%", "step_time > 30 us", "step_time > 9 ms"])
@pytest.mark.parametrize("factor", [1.0, 1.004, 1.015, 1.05, 0.97])
def test_a_bound_is_kept_only_where_the_whole_interval_is_within_it(
    slower_by: Callable[..., Comparison], bound: str, factor: float
) -> None:
    found, read = slower_by(factor), read_bound(bound)
    step = found.metrics[0]
    high = step.high - 1 if read.is_relative else (step.high - 1) * step.baseline.median
    point = step.ratio - 1 if read.is_relative else step.candidate.median - step.baseline.median
    is_found = step.outcome in (Outcome.HIGHER, Outcome.LOWER, Outcome.BELOW_THRESHOLD, Outcome.SAME)
    right = Kept.EXCEEDED if is_found and point > read.most else Kept.KEPT if high <= read.most else None
    assert judge(read, found).kept is (right or Kept.NOT_ESTABLISHED)


@pytest.mark.parametrize(
    ("exposed_ms", "outcome", "kept"),
    [
        ((None, None, None, 2.0), Outcome.NOT_ESTABLISHED, Kept.NOT_ESTABLISHED),
        ((2.0, 2.1, 1.9, None), Outcome.NOT_ESTABLISHED, Kept.NOT_ESTABLISHED),  # p is 0.06
        ((2.0, 2.1, 1.9, 2.0), Outcome.HIGHER, Kept.EXCEEDED),
        ((0.0, 0.0, 0.0, 2.0), Outcome.NOT_ESTABLISHED, Kept.NOT_ESTABLISHED),
        ((0.9, 0.7, 0.2, 1.4), Outcome.HIGHER, Kept.NOT_ESTABLISHED),  # new, but it may well be more than 1 ms
        ((0.5, 0.51, 0.5, 0.49), Outcome.HIGHER, Kept.KEPT),
    ],
)
def test_what_one_side_never_did_is_new_where_every_launch_of_the_other_did_it(
    launch_of: Make,
    side_of: Make,
    gather_of: Make,
    exposed_ms: tuple[float | None, ...],
    outcome: Outcome,
    kept: Kept,
) -> None:
    sides = [
        side_of(
            label,
            [
                launch_of(index, 100.0, owned=[] if time is None else [gather_of("extra", time)])
                for index, time in enumerate(times)
            ],
        )
        for label, times in (("old", (None,) * 4), ("new", exposed_ms))
    ]
    bound = read_bound("exposed[extra] > 1 ms")
    found = compare_sides(*sides)
    assert next(change.outcome for change in found.metrics if change.subject == "extra") is outcome
    assert judge(bound, found).kept is kept
    back = next(change for change in compare_sides(*sides[::-1]).metrics if change.subject == "extra")
    assert back.outcome is (Outcome.LOWER if outcome is Outcome.HIGHER else outcome)


def test_too_few_launches_are_undecided_and_never_kept_in_silence(slower_by: Callable[..., Comparison]) -> None:
    for factor in (0.5, 1.0, 2.0):
        judged = judge(read_bound("step_time > 3%"), slower_by(factor, 1))
        assert judged.kept is Kept.UNDECIDED
        assert "1 against 1 launches are too few" in judged.words


def test_what_was_done_differently_exceeds_the_bound_on_it(slower_by: Callable[..., Comparison]) -> None:
    judged = judge(read_bound("mechanism changed"), slower_by(1.0, traffic=2))
    assert judged.kept is Kept.EXCEEDED
    assert "count of unshard all-gather: 2 against 1" in judged.words
    unknown = slower_by(1.0).model_copy(update={"is_mechanism_known": False})
    assert judge(read_bound("mechanism changed"), unknown).kept is Kept.UNDECIDED
    told = slower_by(1.0, left_out=("launch2",))
    lost = judge(read_bound("mechanism changed"), told)
    assert lost.kept is Kept.UNDECIDED
    assert "undecided, what launch2 of new issued is not known: left out" in lost.words
    unordered = judge(read_bound("mechanism changed"), slower_by(1.0, has_order=False))
    assert unordered.kept is Kept.NOT_ESTABLISHED
    said = (
        "as many collectives, of as many bytes in all; not known: the size of each, their data types, how many ranks "
        "take part in each and their order"
    )
    assert unordered.words.endswith(f"not established, {said}")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("step_tim > 3%", "no metric is called `step_tim`; did you mean `step_time`?"),
        ("qqq > 3%", r"there are step_time, tokens_per_second.* and owner_exposed\[an owner\]$"),
        ("step_time", "is no bound; write `step_time > 3%`"),
        ("step_time > 3", "is no bound"),
        ("step_time >= 3%", "is no bound"),
        ("step_time > 3 MiB", "`step_time` is bounded in %, ns, us, ms or s, not `MiB`"),
        ("host_memory > 3 ms", "is bounded in %, b, kib, mib or gib, not `ms`"),
        ("tokens_per_second < 3%", "`tokens_per_second < -3%`"),
        ("step_time > -3%", "`step_time > 3%`"),
        ("exposed > 3%", r"say of what, `exposed\[...\]` with a purpose in the brackets; `exposed_comm` is of the"),
        ("wait > 3%", r"`wait\[...\]` with a purpose in the brackets$"),
        ("step_time[unshard] > 3%", r"is of the whole step; leave `\[unshard\]` out"),
    ],
)
def test_a_bound_that_cannot_be_meant_is_refused_with_what_to_write(typed: str, said: str) -> None:
    with pytest.raises(BoundError, match=said):
        read_bound(typed)


def test_a_subject_that_is_nowhere_is_refused_with_those_there_are(slower_by: Callable[..., Comparison]) -> None:
    found = slower_by(1.0)
    check_subjects([read_bound("owner_exposed[layers.3] > 3%"), read_bound("mechanism changed")], [found])
    with pytest.raises(BoundError, match=r"nothing is called `layers.4` here; did you mean `layers.3`"):
        check_subjects([read_bound("owner_exposed[layers.4] > 3%")], [found])
    check_subjects([read_bound("allocated_memory > 3%")], [found])  # nobody has it: undecided, not unknown


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (f"step_time > {'9' * 400}%", "always be kept"),
        (f"step_time > {'9' * 400} ms", "always be kept"),
        ("exposed[ ] > 3%", "say of what"),
        ("step_time < 0%", "a fall, `step_time < -0.1%`"),
        ("step_time < -0%", "a fall, `step_time < -0.1%`"),
    ],
)
def test_a_bound_that_could_never_be_exceeded_is_refused(typed: str, said: str) -> None:
    with pytest.raises(BoundError, match=re.escape(said)):
        read_bound(typed)


def test_a_bound_with_very_many_spaces_is_refused_at_once() -> None:
    begun = time.process_time()
    with pytest.raises(BoundError):
        read_bound("a" + " " * 20_000)
    assert time.process_time() - begun < 2


def test_nothing_on_both_sides_is_no_change(launch_of: Make, side_of: Make) -> None:
    sides = [
        side_of(label, [launch_of(index, time + place, started=2 * index + place) for index, time in enumerate(TIMES)])
        for place, label in enumerate(("old", "new"))
    ]
    found = compare_sides(*sides)
    for bound in ("exposed_comm > 3%", "exposed_comm < -3%"):
        assert judge(read_bound(bound), found).kept is Kept.KEPT
