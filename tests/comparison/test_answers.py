"""What a comparison says: the sentence, the mechanism, whose time changed; nothing that was not found."""

import math
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dtbench.base.units import format_ns
from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.comparison.comparison import Comparison, Outcome
from dtbench.comparison.gate import Kept, judge, read_bound
from dtbench.comparison.run import compare_sides
from dtbench.comparison.sentence import spell_interval
from dtbench.comparison.statistics import compare_samples
from dtbench.report.page.comparison_page import comparison_tables
from dtbench.store.records.baseline import Issued, MeasuredLaunch, MeasuredSide
from dtbench.store.records.rank import Receipt, ReceiptOutcome
from dtbench.store.records.traffic import Traffic

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
    told = comparison_tables(found.model_copy(update={"metrics": (step,)}))
    (cost,) = (section for section in told if section.title == "What it cost")
    assert list(cost.words[0][3:5]) == words


def test_what_is_not_established_is_not_called_the_same_and_says_what_would_have_been_seen(
    compare: Callable[..., Comparison],
) -> None:
    found = compare(TIMES, (100.4, 99.2, 101.1, 99.9, 100.6))
    step = found.metrics[0]
    assert step.outcome is Outcome.NOT_ESTABLISHED
    words = re.fullmatch(
        r"Whether the step times differ is not established \(.*, 95 % interval (.*) to (.*) %, 5 launches each\); "
        r"a change of ([\d.]+) % would be found 8 times of 10",
        found.sentence,
    )
    assert words is not None
    told = [100 * (step.low - 1), 100 * (step.high - 1), 100 * step.detectable]
    assert [float(word) for word in words.groups()] == pytest.approx(told, abs=0.06)


def test_no_difference_is_said_only_where_the_interval_lies_within_the_threshold(
    compare: Callable[..., Comparison],
) -> None:
    for threshold in (0.001, 0.005, 0.01, 0.02, 0.03, 0.1):
        found = compare(TIMES, (100.4, 99.2, 101.1, 99.9, 100.6), threshold=threshold)
        step = found.metrics[0]
        is_within = max(abs(step.low - 1), abs(step.high - 1)) <= threshold
        assert found.sentence.startswith("No difference in step time beyond the") is is_within
        assert ("not established" in found.sentence) is not is_within
        assert f"95 % interval {spell_interval(step)}" in found.sentence


def test_a_difference_that_does_not_matter_is_told_as_such(compare: Callable[..., Comparison]) -> None:
    found = compare(TIMES, tuple(1.005 * time for time in TIMES))
    assert found.sentence.startswith("The step times differ by 0.50 %, less than the 1.0 % that matter (")
    slower = tuple(time * by for time, by in zip(TIMES, (1.004, 1.009, 1.001, 1.011, 1.013), strict=True))
    step = compare(TIMES, slower).metrics[0]
    wide = compare(TIMES, slower, threshold=(step.ratio + step.high) / 2 - 1).metrics[0]
    assert wide.p_value < 0.05
    assert wide.outcome is Outcome.NOT_ESTABLISHED, "there is a difference; whether it matters is not told"
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
    owned = [[gather_of(name, ms).model_copy(update={"size_bytes": ms})] for name, ms in (("old", 2.0), ("new", 3.0))]
    found = compare(TIMES, TIMES, {"owned": owned[0]}, {"owned": owned[1]})
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


def issued(owner: str, size: int | None = 1024, **how: Any) -> Issued:
    told = {"dtype": "bfloat16", "group_size": 4, **how}
    return Issued(operation=Operation.ALL_GATHER, purpose=Purpose.UNSHARD, owner=owner, size_bytes=size, **told)


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


ORDERS: Any = {"traffic": [traffic(2, 2048)], "order": [issued("a"), issued("b")]}
SWAPPED: Any = {**ORDERS, "order": [issued("b"), issued("a")]}
MORE: Any = {"traffic": [traffic(3, 3072)], "order": [issued("a"), issued("b"), issued("c")]}
PREFETCHED: Any = {**ORDERS, "prefetch": "2"}


@pytest.mark.parametrize(
    ("ways", "kept", "did"),
    [
        ([SWAPPED] * 3, Kept.UNDECIDED, ["issued collectives in another order"]),
        ([MORE] * 3, Kept.UNDECIDED, ["issued other collectives"]),
        ([PREFETCHED] * 3, Kept.UNDECIDED, ["had other receipts of prefetch"]),
        ([ORDERS] * 3, Kept.KEPT, []),
        ([{**ORDERS, "order": None}] * 3, Kept.NOT_ESTABLISHED, []),
    ],
)
def test_where_launches_of_a_side_did_unlike_things_nothing_is_said_to_be_the_same(
    launch_of: Make, side_of: Make, ways: list[Any], kept: Kept, did: list[str]
) -> None:
    def make(label: str, ways: list[Any]) -> Any:
        launches = []
        for index, way in enumerate(ways):
            got = way.get("prefetch", "0")
            receipt = Receipt(knob="prefetch", asked=got, got=got, outcome=ReceiptOutcome.AGREES)
            launch = launch_of(index, 100.0, **{name: told for name, told in way.items() if name != "prefetch"})
            launches.append(launch.model_copy(update={"receipts": (receipt,)}))
        return side_of(label, launches)

    old, new = make("old", [ORDERS] * 4), make("new", [ORDERS, *ways])
    found = compare_sides(old, new)
    assert found.mechanism == ()
    assert judge(read_bound("mechanism changed"), found).kept is kept
    doubts = tuple(f"launch1, launch2, launch3 of new {one} than launch0, which is compared" for one in did)
    assert found.mechanism_doubts == doubts
    assert set(doubts) <= set(found.notes)
    (told,) = (section for section in comparison_tables(found) if section.title.startswith("What was done"))
    assert [row[0] for row in told.rows] == (["not established"] if doubts else ["nothing"])
    back = compare_sides(make("old", [*ways, ORDERS]), new)
    assert judge(read_bound("mechanism changed"), back).kept is kept
    if doubts:
        assert "issued" not in back.sentence
        assert "per step" not in back.sentence


def test_where_no_launch_of_one_side_did_what_any_of_the_other_did_the_mechanism_changed(
    launch_of: Make, side_of: Make
) -> None:
    old = side_of("old", [launch_of(index, 100.0, **way) for index, way in enumerate([ORDERS, SWAPPED])])
    new = side_of("new", [launch_of(index, 100.0, **MORE) for index in range(2)])
    found = compare_sides(old, new)
    assert judge(read_bound("mechanism changed"), found).kept is Kept.EXCEEDED
    assert "launch1 of old issued collectives in another order than launch0, which is compared" in found.notes


def test_what_is_not_known_of_collectives_is_not_said_to_be_the_same(compare: Callable[..., Comparison]) -> None:
    def told(**did: Any) -> tuple[str, ...]:
        (section,) = (one for one in comparison_tables(compare(TIMES, TIMES, did, did)) if "differently" in one.title)
        return tuple(section.words[0])

    alike = "as many collectives, of the same sizes, of the same types, over as many ranks, in the same order"
    assert told(**ORDERS) == ("nothing", alike)
    assert told(traffic=[traffic(2, 2048)]) == (
        "nothing",
        (
            "as many collectives, of as many bytes in all; not known: the size of each, their data types, how many "
            "ranks take part in each and their order"
        ),
    )
    sizeless = [issued("a", None), issued("b", None)]
    assert told(order=sizeless) == (
        "nothing",
        (
            "as many collectives, of the same types, over as many ranks, in the same order; not known: the size of "
            "each, their bytes in all and which are asynchronous"
        ),
    )


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ({"dtype": "bfloat16"}, {"dtype": "float32"}, ("dtype", "bfloat16", "float32")),
        ({"group_size": 8}, {"group_size": 2}, ("group_size", "8 ranks", "2 ranks")),
        ({"dtype": ""}, {"dtype": "float32"}, None),
        ({"group_size": 8}, {"group_size": None}, None),
        ({"algorithm": "RING"}, {"algorithm": "TREE"}, ("algorithm", "RING", "TREE")),
        ({"algorithm": ""}, {"algorithm": "TREE"}, None),
    ],
    ids=str,
)
def test_another_type_groups_of_another_size_and_another_algorithm_are_done_differently_where_both_tell(
    compare: Callable[..., Comparison], before: Any, after: Any, change: tuple[str, str, str] | None
) -> None:
    sides = [{"order": [issued("a", **how), issued("b", **how)]} for how in (before, after)]
    told = compare(TIMES, TIMES, *sides).mechanism
    what, *values = change or ("",)
    assert mechanism(compare(TIMES, TIMES, *sides)) == ([(what, "unshard all-gather", *values)] if change else [])
    assert all(not one.ranks for one in told)


def test_some_of_another_type_are_counted(compare: Callable[..., Comparison]) -> None:
    def of(*types: str) -> dict[str, Any]:
        return {"order": [issued(str(number), dtype=one) for number, one in enumerate(types)]}

    (change,) = mechanism(compare(TIMES, TIMES, of("half", "half", "float32"), of("half", "float32", "float32")))
    assert change[2:] == ("1 x float32, 2 x half", "2 x float32, 1 x half")


def test_that_algorithms_are_not_known_is_said_where_some_launch_tells_them(compare: Callable[..., Comparison]) -> None:
    ring, none = ({"order": [issued("a", algorithm=word)]} for word in ("RING", ""))
    for sides, is_said in (((ring, none), True), ((none, none), False), ((ring, ring), False)):
        found = compare(TIMES, TIMES, *sides)
        assert found.mechanism == ()
        assert ("by which algorithm each is carried out" in found.mechanism_not_known) is is_said


def test_an_order_is_compared_also_where_owners_have_other_names_or_sizes_are_not_told(
    compare: Callable[..., Comparison],
) -> None:
    reduced = Issued(operation=Operation.REDUCE_SCATTER, purpose=Purpose.GRAD_REDUCE, owner="a", size_bytes=1024)
    renamed = reduced.model_copy(update={"owner": "z"})
    sizeless = reduced.model_copy(update={"size_bytes": None})
    for other, gathered in ((renamed, issued("y")), (sizeless, issued("a", None)), (reduced, issued("a"))):
        swapped = compare(TIMES, TIMES, {"order": [issued("a"), reduced]}, {"order": [other, gathered]})
        assert [change.what for change in swapped.mechanism] == ["order"]
        same = compare(TIMES, TIMES, {"order": [issued("a"), reduced]}, {"order": [gathered, other]})
        assert same.mechanism == ()


def test_an_operation_that_a_side_does_not_tell_is_no_change(
    compare: Callable[..., Comparison], gather_of: Make
) -> None:
    def untold(record: Any) -> Any:
        return record.model_copy(update={"operation": None})

    rows = [gather_of("a", 2.0), gather_of("b", 3.0)]
    told = {**ORDERS, "owned": rows}
    silent = {**ORDERS, "order": [*map(untold, ORDERS["order"])], "owned": [*map(untold, rows)]}
    for sides in ((told, silent), (silent, told)):
        found = compare(TIMES, TIMES, *sides)
        assert found.mechanism == ()
        judged = judge(read_bound("mechanism changed"), found)
        assert judged.kept is Kept.NOT_ESTABLISHED
        assert judged.words.endswith("in the same order; not known: which operation each is")
        assert "exposed" not in found.sentence
        for row in found.collectives:
            assert sum(map(math.isnan, row.exposed_ns)) == 1


def test_a_step_that_takes_no_time_is_none_that_was_measured(compare: Callable[..., Comparison]) -> None:
    assert compare(TIMES, (0.0,) * 5).metrics[0].outcome is Outcome.UNKNOWN


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


def test_the_headline_names_the_whole_difference_and_a_duration_that_did_not_change_once(
    compare: Callable[..., Comparison], gather_of: Make
) -> None:
    before = {"owned": [gather_of("layers.1", 1.5, 1.5), gather_of("layers.2", 1.5, 1.5), gather_of("root", 0.5, 0.5)]}
    after = {"owned": [gather_of("layers.1", 0.0, 1.5), gather_of("layers.2", 0.0, 1.5), gather_of("root", 0.5, 0.5)]}
    less = compare((13.5,), (10.5,), before, after).sentence
    assert less.endswith("; 3.00 ms less exposed: 1.50 ms of it unshard of layers.1 (all-gather, 1.50 ms)")
    more = compare((10.5,), (13.5,), after, before).sentence
    assert "; 3.00 ms more exposed: 1.50 ms of it unshard of layers.1 (all-gather, 1.50 ms)" in more
    moved = {"owned": [gather_of("layers.1", 4.0, 4.0), gather_of("layers.2", 0.0, 1.5), gather_of("root", 0.0, 0.5)]}
    both = compare((10.0,), (10.0,), before, moved).sentence
    assert "; 500 us more exposed in all, 2.50 ms more exposed by itself: unshard of layers.1 (" in both
    early = {"owned": [gather_of("layers.1", 4.0, 4.0), gather_of("layers.2", 0.0, 1.5), gather_of("root", 0.0, 0.5)]}
    late = {"owned": [gather_of("layers.1", 0.0, 4.0), gather_of("layers.2", 2.5, 2.5), gather_of("root", 2.0, 2.0)]}
    against = compare((10.0,), (10.0,), early, late).sentence
    assert "; 500 us more exposed in all, but 4.00 ms less exposed by itself: unshard of layers.1 (" in against


@pytest.mark.parametrize("launches", [1, 5])
@pytest.mark.parametrize("change_ms", [0.4, 3.0, 20.0])
def test_every_time_of_the_headline_is_one_of_a_table_or_the_difference_of_two_in_its_row(
    launch_of: Make, side_of: Make, gather_of: Make, launches: int, change_ms: float
) -> None:
    """So no mean stands in the one and a median in the other."""

    def side(label: str, turn: int, exposed_ms: tuple[float, float]) -> MeasuredSide:
        wobble = (1.0, 1.001, 0.999, 1.002, 1.03)[:launches]  # the last is far from the others: mean and median differ
        return side_of(  # type: ignore[no-any-return]
            label,
            [
                launch_of(
                    index,
                    by * (50 + sum(exposed_ms)),
                    owned=[gather_of(owner, by * ms) for owner, ms in zip("ab", exposed_ms, strict=True)],
                    started=2 * index + turn,
                )
                for index, by in enumerate(wobble)
            ],
        )

    found = compare_sides(side("old", 0, (5.0, 4.0)), side("new", 1, (5.0 + change_ms, 4.0 + change_ms / 2)))
    spelled = set()
    for change in found.metrics:
        ends = change.baseline.median, change.candidate.median
        spelled |= {format_ns(time) for time in (*ends, abs(ends[1] - ends[0]))}
    for row in found.collectives:
        ends = row.exposed_ns
        spelled |= {format_ns(time) for time in (*row.duration_ns, *ends, abs(ends[1] - ends[0]))}
    told = re.findall(r"[\d.]+ (?:ns|us|ms|s)\b", found.sentence)
    assert len(told) >= 4
    assert set(told) <= spelled


def test_an_outcome_goes_by_the_interval_beside_it_also_among_many(
    launch_of: Make, side_of: Make, gather_of: Make
) -> None:
    """Twenty owners wobble; one of them changed. Alone, one in twenty would look changed by chance."""
    random = np.random.default_rng(5)

    def side(label: str, turn: int, factor: float) -> MeasuredSide:
        launches = []
        for index in range(6):
            by = random.normal(1, 0.03, 21)
            owned = [gather_of(f"layers.{at}", 2 * by[at]) for at in range(20)]
            owned.append(gather_of("changed", 2 * factor * by[20]))
            launches.append(launch_of(index, 100 * by[0], owned=owned, started=2 * index + turn))
        return side_of(label, launches)  # type: ignore[no-any-return]

    found = compare_sides(side("old", 0, 1.0), side("new", 1, 1.3), threshold=0.02)
    tested = [change for change in found.metrics if change.test is not None]
    assert len(tested) > 18
    for change in tested:
        leaves_out_1 = change.low > 1 or change.high < 1
        assert leaves_out_1 is (change.p_value < 0.05), change.subject
        is_within = max(abs(change.low - 1), abs(change.high - 1)) <= 0.02
        assert (change.outcome in (Outcome.NO_DIFFERENCE, Outcome.BELOW_THRESHOLD)) is is_within, change.subject
        assert (change.outcome in (Outcome.HIGHER, Outcome.LOWER)) is (leaves_out_1 and abs(change.ratio - 1) >= 0.02)
    alone = compare_samples(*(_of(found, "layers.3", side) for side in ("baseline", "candidate")), **ALONE)
    among = next(change for change in tested if change.subject == "layers.3")
    assert among.low < alone.low < alone.high < among.high, "wider for being one of many"
    assert [change.subject for change in tested if change.outcome is Outcome.HIGHER and change.subject] == ["changed"]


ALONE: Any = {"is_interleaved": True, "threshold": 0.02}


def _of(found: Comparison, owner: str, side: str) -> tuple[float, ...]:
    change = next(one for one in found.metrics if one.subject == owner)
    values: tuple[float, ...] = getattr(change, side).values
    return values
