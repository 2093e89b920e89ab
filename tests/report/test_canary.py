"""One line on missing waits: who was read too early, or that nobody was; and what follows from it."""

from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console, RenderableType

from dtbench.base.vocabulary import Operation, Purpose, Region
from dtbench.comparison.reading.measure import _find_doubt
from dtbench.report.page.page import Tone
from dtbench.report.words.canary import canary_words
from dtbench.report.words.sentences import check_word, is_trusted
from dtbench.runs.summary import CellSummary
from dtbench.store.records.canary import CanaryResult, MissedWait
from tests.report.shown import board_cell, facts_of, markdown_run, terminal_cell

INF = float("inf")


def shown(renderable: RenderableType) -> str:
    console = Console(width=200, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def make_result(**changes: Any) -> CanaryResult:
    fields: dict[str, Any] = {
        "passed": True,
        "steps": 2,
        "collectives": 14,
        "is_equal": True,
        "loss_error": 0.0,
        "gradient_error": 0.0,
    }
    return CanaryResult(**{**fields, **changes})


def make_missed(**changes: Any) -> MissedWait:
    fields: dict[str, Any] = {
        "purpose": Purpose.UNSHARD,
        "operation": Operation.ALL_GATHER,
        "region": Region.FORWARD,
        "owner": "layers.1",
        "place": None,
        "count": 1,
        "was_awaited": False,
    }
    return MissedWait(**{**fields, **changes})


FAILED = make_result(
    passed=False, is_equal=False, loss_error=INF, gradient_error=INF, missed=(make_missed(), make_missed(count=2))
)


def test_that_no_wait_is_missing_takes_one_line() -> None:
    assert canary_words(make_result()) == (
        "no missing wait: 2 steps with poison in place of what had not arrived gave equal losses and gradients "
        "(14 collectives each)"
    )
    rounded = make_result(is_equal=False, loss_error=1.25e-7, gradient_error=3e-6, collectives=1)
    assert "the same within rounding (losses off by 1.2e-07, gradients off by 3.0e-06) (1 collective each)" in (
        canary_words(rounded)
    )


@pytest.mark.parametrize(
    ("missed", "words"),
    [
        (make_missed(), "the all-gather of layers.1 (unshard, forward) was read, and nobody waited for it"),
        (
            make_missed(was_awaited=True, owner=None, place=2),
            "the all-gather number 3 (unshard, forward) was read before it was done",
        ),
        (
            make_missed(operation=None, purpose=None, region=None, owner=None, count=9),
            "one of 9 collectives was read, and nobody waited for it",
        ),
    ],
)
def test_what_was_read_too_early_is_named(missed: MissedWait, words: str) -> None:
    result = FAILED.model_copy(update={"missed": (missed,)})
    assert canary_words(result).startswith(f"FAILED, a wait is missing: {words} (2 steps")
    assert canary_words(result).endswith("differ from one without it: losses not finite, gradients not finite)")


def test_where_nobody_can_tell_the_reason_is_given() -> None:
    result = make_result(passed=None, steps=0, is_equal=False, reason="a single rank has nobody to wait for")
    assert canary_words(result) == ("it cannot be told whether a wait is missing: a single rank has nobody to wait for")


def test_a_missing_wait_is_shown_wherever_correctness_is_and_the_numbers_are_not_trusted(
    make_ddp: Callable[..., CellSummary], make_run: Callable[..., Any]
) -> None:
    honest, failed = make_ddp(update={"canary": make_result()}), make_ddp(update={"canary": FAILED})
    assert is_trusted(honest)
    assert check_word(failed) == "missing wait"
    assert not is_trusted(failed)
    for cell, words, tone in ((honest, "no missing wait", Tone.GOOD), (failed, "FAILED, a wait", Tone.BAD)):
        assert words in shown(terminal_cell(cell))
        assert f"canary: {words}" in markdown_run(make_run(cell))
        (fact,) = (one for one in facts_of(board_cell(make_run(cell)), "checks") if one.label == "canary")
        assert words in fact.words
        assert fact.tone is tone


def test_no_side_of_a_comparison_is_believed_that_lacks_a_wait(make_ddp: Callable[..., CellSummary]) -> None:
    assert _find_doubt(make_ddp(update={"canary": make_result()})) is None
    assert _find_doubt(make_ddp(update={"canary": FAILED})) == "it reads a collective's result before it is done"


def test_where_nobody_looked_nothing_is_said(make_ddp: Callable[..., CellSummary]) -> None:
    assert "canary" not in shown(terminal_cell(make_ddp()))
    assert is_trusted(make_ddp(update={"canary": make_result(passed=None, reason="no rank")}))
