"""What a comparison says: the sentence, the mechanism, whose time changed; nothing that was not found."""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from dtbench.comparison.comparison import Comparison, Outcome
from dtbench.comparison.run import compare_sides
from dtbench.report.comparison_text import comparison_sections
from dtbench.store.baseline import Issued, MeasuredLaunch, MeasuredSide
from dtbench.store.traffic_records import Traffic
from dtbench.vocabulary import Axis, Operation, Purpose

Make = Callable[..., Any]
TIMES = (100.0, 101.0, 99.5, 100.5, 100.2)


@pytest.fixture
def compare(launch_of: Make, side_of: Make) -> Callable[..., Comparison]:
    """Compare two sides of launches of these step times; ``before`` and ``after`` say what they communicated."""

    def make(
        times: tuple[float, ...],
        others: tuple[float, ...],
        before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None,
        **options: Any,
    ) -> Comparison:
        def launches(values: tuple[float, ...], told: dict[str, Any] | None, turn: int) -> list[MeasuredLaunch]:
            return [
                launch_of(index, value, started=2 * index + turn + 1, **(told or {}))
                for index, value in enumerate(values)
            ]

        return compare_sides(
            side_of("old", launches(times, before, 0)), side_of("new", launches(others, after, 1)), **options
        )

    return make


def test_a_slowdown_is_told_in_percent_with_its_interval_and_launches(compare: Callable[..., Comparison]) -> None:
    sentence = compare(TIMES, tuple(1.062 * time for time in TIMES)).sentence
    assert (
        sentence == "new is 6.2 % slower than old (106 ms against 100 ms, 95 % interval 6.2 to 6.2 %, 5 launches each)"
    )


def test_a_speedup_has_its_interval_the_right_way_round(compare: Callable[..., Comparison]) -> None:
    found = compare(TIMES, (80.0, 81.0, 79.5, 80.3, 80.1))
    ends = re.search(r"new is 20\.1 % faster than old .*95 % interval ([\d.]+) to ([\d.]+) %", found.sentence)
    assert ends is not None
    assert 15 < float(ends[1]) < 20.1 < float(ends[2]) < 25


def test_what_takes_many_times_as_long_is_told_so(compare: Callable[..., Comparison]) -> None:
    assert compare(TIMES, tuple(3 * time for time in TIMES)).sentence.startswith("new takes 3.00 x as long as old (")


@pytest.mark.parametrize(
    ("ratios", "words"),
    [
        ((4.501, 1.042, 14.21), ["4.50 x", "1.04 to 14.2 x"]),
        ((12.3, 0.456, 3427.0), ["12.3 x", "0.456 to 3430 x"]),
        ((1.2, 0.9, 1.4), ["+20.0 %", "-10.0 to +40.0 %"]),
    ],
)
def test_a_change_and_its_interval_are_told_alike_in_percent_or_in_times(
    compare: Callable[..., Comparison], ratios: tuple[float, ...], words: list[str]
) -> None:
    found = compare(TIMES, TIMES)
    step = found.metrics[0].model_copy(update=dict(zip(("ratio", "low", "high"), ratios, strict=True)))
    told = comparison_sections(found.model_copy(update={"metrics": (step,)}))
    (cost,) = (section for section in told if section.title == "What it cost")
    assert list(cost.rows[0][3:5]) == words


def test_no_difference_says_above_what_one_would_have_been_seen(compare: Callable[..., Comparison]) -> None:
    found = compare(TIMES, (100.4, 99.2, 101.1, 99.9, 100.6))
    assert found.metrics[0].outcome is Outcome.NO_DIFFERENCE
    words = re.match(r"No difference in step time detectable above ([\d.]+) % \(", found.sentence)
    assert words is not None
    assert float(words[1]) == pytest.approx(100 * found.metrics[0].detectable, abs=0.06)


def test_a_difference_that_does_not_matter_is_told_as_such(compare: Callable[..., Comparison]) -> None:
    found = compare(TIMES, tuple(1.005 * time for time in TIMES))
    assert found.sentence.startswith("The step times differ by 0.50 %, less than the 1.0 % that matter (")
    assert compare(TIMES, tuple(1.005 * time for time in TIMES), threshold=0.001).sentence.startswith(
        "new is 0.50 % slower"
    )


def test_too_few_launches_are_told_before_any_number(compare: Callable[..., Comparison], gather_of: Make) -> None:
    told = {"owned": [gather_of("layers.3", 2.0)]}, {"owned": [gather_of("layers.3", 23.0, 40.0)]}
    assert compare((388.0,), (412.0,), *told).sentence == (
        "Not enough launches to tell (1 against 1; 4 each are needed): step 412 ms against 388 ms (+6.2 %); "
        "21.0 ms more exposed: unshard of layers.3 (all-gather, 2.00 ms to 40.0 ms)"
    )


def test_an_owner_is_named_only_where_its_change_is_found(
    compare: Callable[..., Comparison], launch_of: Make, side_of: Make, gather_of: Make
) -> None:
    def side(label: str, turn: int, times: tuple[float, ...]) -> MeasuredSide:
        made: MeasuredSide = side_of(
            label,
            [
                launch_of(
                    index,
                    100 + index % 2,
                    owned=[gather_of("layers.3", time), gather_of("steady", 2.0)],
                    started=2 * index + turn,
                )
                for index, time in enumerate(times)
            ],
        )
        return made

    noisy = compare_sides(side("old", 0, (2.0, 40.0, 5.0, 20.0, 3.0)), side("new", 1, (30.0, 3.0, 25.0, 4.0, 30.0)))
    assert "layers.3" not in noisy.sentence
    steady = compare_sides(side("old", 0, (2.0, 2.1, 2.0, 2.2, 2.1)), side("new", 1, (23.0, 23.1, 22.9, 23.0, 23.2)))
    assert "; 20.9 ms more exposed: unshard of layers.3 (all-gather, 2.10 ms to 23.0 ms)" in steady.sentence
    assert "steady" not in steady.sentence


def test_a_collective_that_got_longer_but_stayed_hidden_is_named_where_there_is_no_statistics(
    compare: Callable[..., Comparison], gather_of: Make
) -> None:
    found = compare((100.0,), (100.0,), {"owned": [gather_of("a", 0.0, 2.0)]}, {"owned": [gather_of("a", 0.0, 35.0)]})
    assert found.sentence.endswith("; 33.0 ms longer: unshard of a (all-gather, 2.00 ms to 35.0 ms)")


def test_what_one_side_never_did_is_no_question_of_chance(compare: Callable[..., Comparison], gather_of: Make) -> None:
    found = compare(TIMES, TIMES, {"owned": [gather_of("old", 2.0)]}, {"owned": [gather_of("new", 3.0)]})
    outcomes = {change.subject: (change.outcome, change.test) for change in found.metrics if change.subject}
    assert outcomes == {"old": (Outcome.LOWER, None), "new": (Outcome.HIGHER, None)}


def test_a_difference_below_the_noise_floor_is_doubted_where_launches_took_no_turns(
    launch_of: Make, side_of: Make
) -> None:
    drifting = [100.0, 100.2, 99.9, 100.1, 112.0, 112.2, 111.9, 112.1]

    def find(factor: float, *, turns: bool) -> tuple[Outcome, bool]:
        old, new = (
            [
                launch_of(index, by * time, started=(2 * index + turn + 1) if turns else 1 + index + 100 * turn)
                for index, time in enumerate(drifting)
            ]
            for turn, by in enumerate((1.0, factor))
        )
        found = compare_sides(side_of("old", old), side_of("new", new))
        return found.metrics[0].outcome, any("noise floor" in note for note in found.notes)

    assert find(1.11, turns=False) == (Outcome.HIGHER, True)
    assert find(1.3, turns=False) == (Outcome.HIGHER, False)
    assert find(1.05, turns=True) == (Outcome.HIGHER, False)


def traffic(count: int, size: int, asynchronous: int = 0, axis: Axis | None = Axis.SHARD) -> Traffic:
    return Traffic(
        purpose=Purpose.UNSHARD,
        axis=axis,
        operation=Operation.ALL_GATHER,
        count=count,
        size_bytes=size,
        count_async=asynchronous,
    )


def issued(owner: str, size: int | None = 1024) -> Issued:
    return Issued(operation=Operation.ALL_GATHER, purpose=Purpose.UNSHARD, owner=owner, size_bytes=size)


def mechanism(found: Comparison) -> list[tuple[str, str, str, str]]:
    return [(one.what, one.subject, one.baseline, one.candidate) for one in found.mechanism]


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ({"traffic": [traffic(9, 2048)]}, {"traffic": [traffic(9, 2048)]}, []),
        (
            {"traffic": [traffic(9, 2048)]},
            {"traffic": [traffic(18, 4096, 18)]},
            [
                ("count", "unshard all-gather", "9", "18"),
                ("size_bytes", "unshard all-gather", "2.00 KiB", "4.00 KiB"),
                ("async", "unshard all-gather", "0 of 9", "18 of 18"),
            ],
        ),
        (
            {"traffic": [traffic(1, 10_000_000)]},
            {"traffic": [traffic(1, 10_000_001)]},
            [("size_bytes", "unshard all-gather", "10000000 B", "10000001 B")],
        ),
        (
            {"traffic": [traffic(1, 8)]},
            {"traffic": [traffic(1, 8), traffic(1, 8, axis=None)]},
            [
                ("count", "unshard all-gather on no axis", "none", "1"),
                ("size_bytes", "unshard all-gather on no axis", "none", "8 B"),
            ],
        ),
        (
            {"order": [issued("a"), issued("b"), issued("c")]},
            {"order": [issued("a"), issued("c"), issued("b")]},
            [
                (
                    "order",
                    "collective 2 of a step",
                    "unshard all-gather of b, 1.00 KiB",
                    "unshard all-gather of c, 1.00 KiB",
                )
            ],
        ),
        (
            {"order": [issued("a"), issued("b", 3072)]},
            {"order": [issued("a", 2048), issued("b", 2048)]},
            [("size_bytes", "unshard all-gather", "1.00 KiB, 3.00 KiB", "2 x 2.00 KiB")],
        ),
        ({"order": [issued("a", None)]}, {"order": [issued("a", 2048)]}, []),
        (
            {"order": [issued("a")]},
            {"order": [issued("a"), issued("a")]},
            [
                ("count", "unshard all-gather", "1", "2"),
                ("size_bytes", "unshard all-gather", "1.00 KiB", "2 x 1.00 KiB"),
            ],
        ),
    ],
)
def test_what_was_issued_differently_is_listed(
    compare: Callable[..., Comparison], before: dict[str, Any], after: dict[str, Any], changes: list[tuple[str, ...]]
) -> None:
    found = compare(TIMES, TIMES, before, after)
    assert mechanism(found) == changes
    assert found.is_mechanism_known
    if changes:
        assert changes[0][3] in found.sentence or "issued in another order" in found.sentence


def test_a_mechanism_that_a_side_does_not_tell_is_not_called_equal(compare: Callable[..., Comparison]) -> None:
    found = compare(TIMES, TIMES, {"traffic": [traffic(1, 8)]}, {})
    assert found.mechanism == ()
    assert not found.is_mechanism_known
    assert any("not known on both sides" in note for note in found.notes)


def test_a_launch_that_issued_something_else_than_the_first_is_named(launch_of: Make, side_of: Make) -> None:
    odd = side_of("odd", [launch_of(0, 100.0, traffic=[traffic(1, 8)]), launch_of(1, 100.0, traffic=[traffic(2, 8)])])
    even = side_of("even", [launch_of(0, 100.0, traffic=[traffic(1, 8)])])
    assert "launch1 of odd issued other collectives than launch0, which is compared" in compare_sides(odd, even).notes


def test_collectives_are_sorted_by_how_much_more_or_less_is_exposed(
    compare: Callable[..., Comparison], gather_of: Make
) -> None:
    before = {"owned": [gather_of("less", 9.0), gather_of("same", 5.0), gather_of("more", 1.0)]}
    after = {"owned": [gather_of("less", 2.0), gather_of("same", 5.0), gather_of("more", 4.0)]}
    rows = compare(TIMES, TIMES, before, after).collectives
    assert [row.owner for row in rows] == ["less", "more", "same"]
    sizes = [abs(row.exposed_ns[1] - row.exposed_ns[0]) for row in rows]
    assert all(one >= other for one, other in pairwise(sizes))


def test_a_comparison_survives_the_way_through_json(compare: Callable[..., Comparison]) -> None:
    found = compare((388.0,), (412.0,))
    again = Comparison.model_validate_json(found.model_dump_json())
    assert again.model_dump_json() == found.model_dump_json()
