"""Of all ranks the one that did worst stands for the cell, whichever place it has among them."""

from collections.abc import Callable, Sequence
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest

from dtbench.runs.cell import worst_ranks
from dtbench.store.records.rank import Memory, Receipt, ReceiptOutcome


def end(steps: int, *, settled: bool) -> SimpleNamespace:
    return SimpleNamespace(steps=steps, settled=settled)


def result(error: float, *, passed: bool | None, missed: int = 0) -> SimpleNamespace:
    return SimpleNamespace(gradient_error=error, passed=passed, missed=(0,) * missed)


def make_rank(part: str, value: Any) -> Any:
    """Make a rank of which only a part is known, by its dotted name."""
    for name in reversed(part.split(".")):
        value = SimpleNamespace(**{name: value})
    return value


@pytest.mark.parametrize("first", [0, 1])
def test_a_knob_of_which_ranks_say_that_it_agrees_and_that_it_has_no_effect_is_contested(first: int) -> None:
    outcomes = (ReceiptOutcome.AGREES, ReceiptOutcome.NO_EFFECT)
    ranks = [
        make_rank("receipts", (Receipt(knob="k", asked="1", got="1", outcome=outcomes[place]),))
        for place in (first, 1 - first)
    ]
    (found,) = worst_ranks.worst_receipts(ranks)
    assert (found.outcome, found.note) == (ReceiptOutcome.NO_EFFECT, "other ranks say that it agrees")
    assert worst_ranks.find_contested_knobs(ranks) == ("k",)
    assert worst_ranks.find_contested_knobs(ranks[:1]) == ()


@pytest.mark.parametrize(("knob", "is_contested"), [("parallel.bucket_cap_mb", True), ("model.forward_ms", False)])
def test_a_knob_of_which_ranks_got_different_values_is_contested_unless_it_is_measured(
    knob: str, *, is_contested: bool
) -> None:
    ranks = [
        make_rank("receipts", (Receipt(knob=knob, asked="4", got=got, outcome=ReceiptOutcome.AGREES),))
        for got in ("4194304", "4194304", "1048576")
    ]
    (found,) = worst_ranks.worst_receipts(ranks)
    assert (found.got, found.note) == ("4194304", "other ranks got 1048576" if is_contested else "")
    assert worst_ranks.find_contested_knobs(ranks) == ((knob,) if is_contested else ())
    assert worst_ranks.find_contested_knobs(ranks[:2]) == ()


def receipt(knob: str, *, agrees: bool) -> SimpleNamespace:
    outcome = ReceiptOutcome.AGREES if agrees else ReceiptOutcome.DISAGREES
    return SimpleNamespace(knob=knob, got="1", outcome=outcome)


@pytest.mark.parametrize(
    ("find", "part", "values", "worst"),
    [
        (worst_ranks.worst_warmup, "warmup", [end(20, settled=True), end(8, settled=False), end(12, settled=False)], 2),
        (worst_ranks.worst_warmup, "warmup", [end(8, settled=True), end(20, settled=True), end(12, settled=True)], 1),
        (worst_ranks.worst_correctness, "correctness", [result(1.0, passed=True), result(1e-9, passed=False), None], 1),
        (worst_ranks.worst_correctness, "correctness", [result(1e-7, passed=True), result(1e-5, passed=True), None], 1),
        (
            worst_ranks.worst_canary,
            "extras.canary",
            [result(0, passed=None), result(0, passed=False, missed=1), result(0, passed=False, missed=3)],
            2,
        ),
        (worst_ranks.worst_canary, "extras.canary", [result(0, passed=True), result(0, passed=None), None], 1),
        (
            worst_ranks.slowest_compilation,
            "compilation",
            [SimpleNamespace(duration_ns=5), None, SimpleNamespace(duration_ns=9)],
            2,
        ),
        (worst_ranks.most_state_taken, "extras.state_dict.taken_fraction", [0.1, None, 0.4], 2),
    ],
)
def test_the_worst_is_found_wherever_it_stands(
    find: Callable[[Sequence[Any]], object], part: str, values: list[Any], worst: int
) -> None:
    for order in permutations(values):
        assert find([make_rank(part, value) for value in order]) is values[worst]


def test_a_receipt_that_disagrees_stands_for_its_knob() -> None:
    agreeing, other, bad = receipt("a", agrees=True), receipt("b", agrees=True), receipt("a", agrees=False)
    for order in permutations([agreeing, other, bad]):
        ranks: Any = [SimpleNamespace(receipts=(one,)) for one in order]
        found = worst_ranks.worst_receipts(ranks)
        assert {one.knob: one for one in found} == {"a": bad, "b": other}


def test_of_memory_each_figure_has_its_own_largest_rank() -> None:
    ranks: Any = [
        SimpleNamespace(memory=SimpleNamespace(rss_peak_bytes=7, allocated_peak_bytes=2, reserved_peak_bytes=5)),
        SimpleNamespace(memory=SimpleNamespace(rss_peak_bytes=3, allocated_peak_bytes=4, reserved_peak_bytes=6)),
    ]
    found = worst_ranks.peak_memory(ranks)
    assert found is not None
    assert (found.rss_peak_bytes, found.allocated_peak_bytes, found.reserved_peak_bytes) == (7, 4, 6)
    assert worst_ranks.peak_memory([]) is None


@pytest.mark.parametrize(("peaks", "largest"), [((5, 9), 9), ((5, None), None), ((None, None), None)])
def test_a_devices_peak_is_the_largest_where_every_rank_tells_its_own(
    peaks: tuple[int | None, ...], largest: int | None
) -> None:
    memories = [Memory(rss_peak_bytes=7, allocated_peak_bytes=peak, reserved_peak_bytes=peak) for peak in peaks]
    found = worst_ranks.peak_memory([make_rank("memory", memory) for memory in memories])
    assert found == Memory(rss_peak_bytes=7, allocated_peak_bytes=largest, reserved_peak_bytes=largest)
