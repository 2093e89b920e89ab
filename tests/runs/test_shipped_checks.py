"""Every check of a shipped scenario can fail: it turns as soon as its number leaves the bounds that the file states."""

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dtbench.base.vocabulary import Cause
from dtbench.runs import judge_checks
from dtbench.runs.judge_checks import judge_checklist
from dtbench.runs.summary import CellSummary, ProbeSummary
from dtbench.scenario.checks.checklist import Bound, Check, Checklist, EqualLosses, KnobReceipt, LeadingCause, Order
from dtbench.scenario.checks.values import ValueName
from dtbench.scenario.load import load_scenario_file
from dtbench.seeds.functions import DDP, FUNCTIONS, Reach
from dtbench.store.records.checks import CheckOutcome
from dtbench.store.records.rank import Receipt, ReceiptOutcome
from dtbench.store.records.run import RunStatus

_SCENARIOS = Path(__file__).parents[2] / "scenarios"
_FOLDERS = (".", "ddp", "state_dict", "strategies")  # of the others' checks see test_claims_can_fail.py
_FILES = {
    path.stem: load_scenario_file(path) for folder in _FOLDERS for path in sorted((_SCENARIOS / folder).glob("*.yaml"))
}
_CLAIMED = [(name, place) for name, file in _FILES.items() for place in range(len(file.checklist.checks))]
_WHOLE = 1000.0


def make_cell(name: str, **fields: Any) -> CellSummary:
    """Make as much of a cell as these checks look at."""
    unchecked = {"correctness": None, "canary": None, "state_steps": None}
    of_all_ranks = {"purposes": (), "owners": (), "ranks": (), "plan": SimpleNamespace(ranks=0)}
    blank = {"name": name, "launches": (0,), "losses": (1.0,) * 5, "receipts": (), "probes": ()}
    complete = {"status": RunStatus.COMPLETE}
    return CellSummary.model_construct(**{**blank, **unchecked, **of_all_ranks, **complete, **fields})


def cells_of(name: str) -> list[CellSummary]:
    return [make_cell(cell.name) for cell in _FILES[name].cells]


def judge_alone(name: str, place: int, cells: list[CellSummary]) -> CheckOutcome:
    alone = Checklist(checks=(_FILES[name].checklist.checks[place],))
    judged = judge_checklist(alone, cells, ())
    assert judged is not None
    return judged.results[0].outcome


def outside(bound: Bound) -> Iterator[float]:
    if bound.low is not None:
        yield bound.low - abs(bound.low) / 10 - 0.1
    if bound.high is not None:
        yield bound.high + abs(bound.high) / 10 + 0.1


def inside(bound: Bound) -> float:
    low, high = bound.low, bound.high
    if low is not None and high is not None:
        return (low + high) / 2
    return low + abs(low) / 10 + 0.01 if low is not None else (high or 0.0) - abs(high or 0.0) / 10


def say(monkeypatch: pytest.MonkeyPatch, bound: Bound, number: float) -> None:
    """Let every cell have the number, and whatever it is compared with a thousand."""
    other = bound.over or bound.minus

    def find(cell: CellSummary, name: ValueName) -> float:
        if name.text == bound.per or (cell.name == other and bound.per is None):
            return _WHOLE
        scaled = number * _WHOLE if bound.over or bound.per else number + (_WHOLE if bound.minus else 0)
        return scaled if name.text == bound.value else math.nan

    monkeypatch.setattr(judge_checks, "find_number", find)


Case = tuple[CheckOutcome, list[CellSummary]]
"""Cells, and what a check says of them once numbers are found as the monkeypatch has it."""


def cases_of_bound(monkeypatch: pytest.MonkeyPatch, bound: Bound, cells: list[CellSummary]) -> Iterator[Case]:
    say(monkeypatch, bound, inside(bound))
    yield CheckOutcome.PASSED, cells
    for number in outside(bound):
        say(monkeypatch, bound, number)
        yield CheckOutcome.FAILED, cells


def cases_of_receipt(check: KnobReceipt, cells: list[CellSummary]) -> Iterator[Case]:
    wanted = ReceiptOutcome.AGREES if check.outcome == "agrees" else ReceiptOutcome.NO_EFFECT
    for outcome in ReceiptOutcome:
        receipt = Receipt(knob=check.knob, asked="a", got="b", outcome=outcome)
        told = [make_cell(cell.name, receipts=(receipt,)) for cell in cells]
        yield (CheckOutcome.PASSED if outcome is wanted else CheckOutcome.FAILED), told


def cases_of_losses(check: EqualLosses, cells: list[CellSummary]) -> Iterator[Case]:
    yield CheckOutcome.PASSED, cells
    losses = [(1.0 + 3 * check.tolerance * number,) * 5 for number in range(len(cells))]
    yield CheckOutcome.FAILED, [make_cell(cell.name, losses=one) for cell, one in zip(cells, losses, strict=True)]


def cases_of_order(monkeypatch: pytest.MonkeyPatch, check: Order, cells: list[CellSummary]) -> Iterator[Case]:
    for sign, outcome in ((1, CheckOutcome.PASSED), (-1, CheckOutcome.FAILED)):
        numbers = {name: sign * 10.0**place for place, name in enumerate(check.cells)}
        monkeypatch.setattr(judge_checks, "find_number", lambda cell, _name, known=numbers: known.get(cell.name, 0.0))
        yield outcome, cells


def cases_of_cause(monkeypatch: pytest.MonkeyPatch, check: LeadingCause, cells: list[CellSummary]) -> Iterator[Case]:
    for others, outcome in ((1.0, CheckOutcome.PASSED), (3.0, CheckOutcome.FAILED)):
        exposed = {cause: 2.0 if cause is check.leads else others for cause in Cause}
        exposed[Cause.UNKNOWN] = 0.0
        monkeypatch.setattr(
            judge_checks, "exposed_by_cause", lambda _cell, cause, _purpose, known=exposed: known[cause]
        )
        yield outcome, cells


def cases_of(monkeypatch: pytest.MonkeyPatch, check: Check, cells: list[CellSummary]) -> Iterator[Case]:
    match check:
        case Bound():
            return cases_of_bound(monkeypatch, check, cells)
        case KnobReceipt():
            return cases_of_receipt(check, cells)
        case EqualLosses():
            return cases_of_losses(check, cells)
        case Order():
            return cases_of_order(monkeypatch, check, cells)
        case LeadingCause():
            return cases_of_cause(monkeypatch, check, cells)
        case _:
            raise AssertionError(f"say how {check.kind} can fail")


@pytest.mark.parametrize(("name", "place"), _CLAIMED)
def test_a_check_of_a_shipped_scenario_can_fail(monkeypatch: pytest.MonkeyPatch, name: str, place: int) -> None:
    check = _FILES[name].checklist.checks[place]
    seen = set()
    for outcome, cells in cases_of(monkeypatch, check, cells_of(name)):
        assert judge_alone(name, place, cells) is outcome
        seen.add(outcome)
    assert seen == {CheckOutcome.PASSED, CheckOutcome.FAILED}


@pytest.mark.parametrize("name", [name for name, file in _FILES.items() if file.checklist.functions])
def test_a_function_that_no_cell_calls_fails_its_scenario(name: str) -> None:
    functions = _FILES[name].checklist.functions
    for silent in (None, *functions):
        probes = tuple(
            ProbeSummary(
                label=label, calls=0, most_calls=0 if label == silent else 1, raised=0, total_ns=1, per_call_ns=1.0
            )
            for label in functions
        )
        judged = judge_checklist(Checklist(functions=functions), [make_cell("any", probes=probes)], ())
        assert judged is not None
        assert judged.outcome is (CheckOutcome.PASSED if silent is None else CheckOutcome.FAILED)


def test_every_scenario_of_ddp_claims_something() -> None:
    files = {path.stem: _FILES[path.stem] for path in (_SCENARIOS / "ddp").glob("*.yaml")}
    silent = {name for name, file in files.items() if not file.checklist.functions or not file.checklist.checks}
    assert silent <= {"bucket_sweep"}
    assert all(file.checklist.answer for name, file in files.items() if name not in silent)


def test_every_function_of_ddp_that_can_be_reached_here_is_claimed_by_a_scenario() -> None:
    reachable = {one.label for one in FUNCTIONS if one.file == DDP and one.reach in (Reach.DRIVEN, Reach.CALLED)}
    nested = {
        "_build_params_for_reducer.produces_sparse_gradient",
        "_register_accum_grad_hook.compiled_accum_grad_hook",
    }
    claimed = {label for file in _FILES.values() for label in file.checklist.functions}
    unclaimed = reachable - claimed
    ddps = "distributed.DistributedDataParallel"
    newest = {one.label for one in FUNCTIONS if one.since == (2, 15)}  # with a knob that no older torch has
    assert unclaimed - newest == {f"{ddps}.{name}" for name in nested}, "have no name to probe"
