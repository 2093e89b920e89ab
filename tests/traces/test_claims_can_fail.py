"""Every check of the scenarios of gradient waits, FSDP and utilities turns when its number leaves what the file claims.

Cells are made by hand: each check passes on numbers that keep its claim and fails on numbers just outside.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dtbench.base.vocabulary import Cause, Purpose
from dtbench.runs import judge_checks
from dtbench.runs.judge_checks import judge_checklist
from dtbench.runs.summary import CellSummary, Interval, OwnerSummary, PredictionSummary
from dtbench.scenario.checks.checklist import (
    Bound,
    Check,
    Checklist,
    EqualLosses,
    InsidePrediction,
    KnobReceipt,
    LeadingCause,
    Order,
)
from dtbench.scenario.checks.values import ValueName
from dtbench.scenario.load import load_scenario_file
from dtbench.store.records.checks import CheckOutcome
from dtbench.store.records.rank import Receipt, ReceiptOutcome
from dtbench.store.records.run import RunStatus

_SCENARIOS = Path(__file__).parents[2] / "scenarios"
_FILES = {
    path.stem: load_scenario_file(path)
    for folder in ("data_parallel_utils", "fsdp", "utilities")
    for path in sorted((_SCENARIOS / folder).glob("*.yaml"))
}
_CLAIMS = [
    pytest.param(name, check, id=f"{name}-{place}-{check.kind}")
    for name, file in _FILES.items()
    for place, check in enumerate(file.checklist.checks)
]
_BASE = 1e12
"""What the other cell of a comparison has."""


def test_every_file_claims_something_and_answers_its_question() -> None:
    assert len(_FILES) > 10
    assert [name for name, file in _FILES.items() if not file.checklist.checks or not file.checklist.answer] == []


@pytest.mark.parametrize(("name", "check"), _CLAIMS)
def test_a_claim_holds_on_numbers_that_keep_it_and_turns_on_others(
    monkeypatch: pytest.MonkeyPatch, name: str, check: Check
) -> None:
    cells = [cell.name for cell in _FILES[name].cells]
    match check:
        case Bound():
            kept, broken = bound_numbers(check, cells)
            assert judge_numbers(monkeypatch, check, kept) is CheckOutcome.PASSED
            for numbers in broken:
                assert judge_numbers(monkeypatch, check, numbers) is CheckOutcome.FAILED
        case Order(cells=ordered):
            rising = {cell: 10.0**place for place, cell in enumerate(ordered)}
            assert judge_numbers(monkeypatch, check, rising) is CheckOutcome.PASSED
            falling = dict(zip(ordered, reversed(rising.values()), strict=True))
            assert judge_numbers(monkeypatch, check, falling) is CheckOutcome.FAILED
        case _:
            assert judge(check, [make_cell(cell, **keeping(check)) for cell in cells]) is CheckOutcome.PASSED
            broken_cells = [make_cell(cell, **breaking(check, place)) for place, cell in enumerate(cells)]
            assert judge(check, broken_cells) is CheckOutcome.FAILED


def judge(check: Check, cells: list[CellSummary]) -> CheckOutcome:
    judged = judge_checklist(Checklist(checks=(check,)), cells, ())
    assert judged is not None
    return judged.results[0].outcome


def judge_numbers(monkeypatch: pytest.MonkeyPatch, check: Check, numbers: Mapping[str, float]) -> CheckOutcome:
    """Judge cells that have these numbers, whatever a check asks for."""

    def find(cell: CellSummary, _name: ValueName) -> float:
        return numbers[cell.name]

    monkeypatch.setattr(judge_checks, "find_number", find)
    return judge(check, [make_cell(cell) for cell in numbers])


def bound_numbers(check: Bound, cells: list[str]) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Return numbers of all cells inside a bound, and some just outside either of its sides."""
    low, high = check.low, check.high
    inside = low if low is not None else high
    assert inside is not None

    def all_have(number: float) -> dict[str, float]:
        other = check.over or check.minus
        mine = number * _BASE if check.over is not None else number + (0 if other is None else _BASE)
        return {cell: _BASE if cell == other else mine for cell in cells}

    return all_have(inside), [all_have(number) for number in just_outside(low, high)]


def just_outside(low: float | None, high: float | None) -> Iterator[float]:
    if low is not None:
        yield low - 0.01 * abs(low) - 0.1
    if high is not None:
        yield high + 0.01 * abs(high) + 0.1


def make_cell(name: str, **fields: Any) -> CellSummary:
    """Return as much of a cell as checks look at."""
    time = Interval(median=10.0, low=10.0, high=10.0, quartile1=10.0, quartile3=10.0, count=1)
    blank = {"launches": (0,), "losses": (1.0,) * 5, "step_time": time, "receipts": (), "probes": ()}
    unchecked = {"correctness": None, "canary": None, "state_steps": None}
    of_all_ranks = {"purposes": (), "owners": (), "ranks": (), "plan": SimpleNamespace(ranks=0)}
    complete = {"status": RunStatus.COMPLETE, "name": name}
    return CellSummary.model_construct(**{**blank, **unchecked, **of_all_ranks, **complete, **fields})


def keeping(check: Check) -> dict[str, Any]:
    match check:
        case InsidePrediction():
            return {"prediction": predicted(is_inside=True)}
        case KnobReceipt(knob=knob, outcome="agrees"):
            return {"receipts": (receipt(knob, ReceiptOutcome.AGREES),)}
        case KnobReceipt(knob=knob):
            return {"receipts": (receipt(knob, ReceiptOutcome.NO_EFFECT),)}
        case LeadingCause(leads=leads, purpose=purpose):
            return {"ranks": (SimpleNamespace(rank=0),), "owners": (exposed(leads, purpose),)}
        case EqualLosses():
            return {}
        case _:
            raise AssertionError(f"say what keeps a check of kind {check.kind}")


def breaking(check: Check, place: int) -> dict[str, Any]:
    match check:
        case InsidePrediction():
            return {"prediction": predicted(is_inside=False)}
        case KnobReceipt(knob=knob):
            return {"receipts": (receipt(knob, ReceiptOutcome.DISAGREES),)}
        case LeadingCause(leads=leads, purpose=purpose):
            other = next(cause for cause in Cause if cause is not leads)
            return {"ranks": (SimpleNamespace(rank=0),), "owners": (exposed(other, purpose),)}
        case EqualLosses(tolerance=tolerance):
            return {"losses": (1.0 + 3 * place * tolerance,) * 5}
        case _:
            raise AssertionError(f"say what breaks a check of kind {check.kind}")


def predicted(*, is_inside: bool) -> PredictionSummary:
    return PredictionSummary(expected_ns=10.0, low_ns=9.0, high_ns=11.0, is_inside=is_inside, sentence="")


def receipt(knob: str, outcome: ReceiptOutcome) -> Receipt:
    return Receipt(knob=knob, asked="", got="", outcome=outcome)


def exposed(cause: Cause, purpose: Purpose | None) -> OwnerSummary:
    assert purpose is not None
    return OwnerSummary(
        owner="", operation=None, purpose=purpose, cause=cause, exposed_ns=5, owner_exposed_ns=5, waited_for=None
    )
