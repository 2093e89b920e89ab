"""Every check of a shipped scenario can fail: it turns as soon as its number leaves the bounds that the file states."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dtbench.analyze import judge_checks
from dtbench.analyze.judge_checks import judge_checklist
from dtbench.analyze.summary import CellSummary, ProbeSummary
from dtbench.probe_catalogue.functions import DDP, FUNCTIONS, Reach
from dtbench.scenario.checklist import Bound, Checklist, EqualLosses, KnobReceipt, LeadingCause, Order
from dtbench.scenario.load import load_scenario_file
from dtbench.scenario.values import ValueName
from dtbench.store.check_records import CheckOutcome
from dtbench.store.records import Receipt, ReceiptOutcome
from dtbench.vocabulary import Cause

_FOLDER = Path(__file__).parents[2] / "scenarios" / "ddp"
_FILES = {path.stem: load_scenario_file(path) for path in sorted(_FOLDER.glob("*.yaml"))}
_CLAIMED = [(name, place) for name, file in _FILES.items() for place in range(len(file.checklist.checks))]
_WHOLE = 1000.0


def make_cell(name: str, **fields: Any) -> CellSummary:
    """Make as much of a cell as these checks look at."""
    return CellSummary.model_construct(
        **{"name": name, "launches": (0,), "losses": (1.0,) * 5, "receipts": (), "probes": (), **fields}
    )


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


@pytest.mark.parametrize(("name", "place"), _CLAIMED)
def test_a_check_of_a_shipped_scenario_can_fail(monkeypatch: pytest.MonkeyPatch, name: str, place: int) -> None:
    check, cells = _FILES[name].checklist.checks[place], cells_of(name)
    match check:
        case Bound():
            say(monkeypatch, check, inside(check))
            assert judge_alone(name, place, cells) is CheckOutcome.PASSED
            for number in outside(check):
                say(monkeypatch, check, number)
                assert judge_alone(name, place, cells) is CheckOutcome.FAILED
        case KnobReceipt():
            for outcome in ReceiptOutcome:
                receipt = Receipt(knob=check.knob, asked="a", got="b", outcome=outcome)
                wanted = CheckOutcome.PASSED if outcome is ReceiptOutcome.AGREES else CheckOutcome.FAILED
                told = [make_cell(cell.name, receipts=(receipt,)) for cell in cells]
                assert judge_alone(name, place, told) is wanted
        case EqualLosses():
            assert judge_alone(name, place, cells) is CheckOutcome.PASSED
            apart = [
                make_cell(cell.name, losses=(1.0 + 3 * check.tolerance * number,) * 5)
                for number, cell in enumerate(cells)
            ]
            assert judge_alone(name, place, apart) is CheckOutcome.FAILED
        case Order():
            numbers = dict(zip(check.cells, range(1, 100), strict=False))
            monkeypatch.setattr(judge_checks, "find_number", lambda cell, _name: 10.0 ** numbers.get(cell.name, 0))
            assert judge_alone(name, place, cells) is CheckOutcome.PASSED
            monkeypatch.setattr(judge_checks, "find_number", lambda cell, _name: -(10.0 ** numbers.get(cell.name, 0)))
            assert judge_alone(name, place, cells) is CheckOutcome.FAILED
        case LeadingCause(leads=leads):
            for others, outcome in ((1.0, CheckOutcome.PASSED), (3.0, CheckOutcome.FAILED)):
                exposed = {cause: 2.0 if cause is leads else others for cause in Cause}
                monkeypatch.setattr(
                    judge_checks, "exposed_by_cause", lambda _cell, cause, _purpose, e=exposed: e[cause]
                )
                assert judge_alone(name, place, cells) is outcome
        case _:
            raise AssertionError(f"say how {check.kind} can fail")


@pytest.mark.parametrize("name", [name for name, file in _FILES.items() if file.checklist.functions])
def test_a_function_that_no_cell_calls_fails_its_scenario(name: str) -> None:
    functions = _FILES[name].checklist.functions
    for silent in (None, *functions):
        probes = tuple(
            ProbeSummary(
                label=label, calls=0, most_calls=0 if label == silent else 1, raised=0, total_ns=1, branches=()
            )
            for label in functions
        )
        judged = judge_checklist(Checklist(functions=functions), [make_cell("any", probes=probes)], ())
        assert judged is not None
        assert judged.outcome is (CheckOutcome.PASSED if silent is None else CheckOutcome.FAILED)


def test_every_scenario_of_the_folder_claims_something() -> None:
    silent = {name for name, file in _FILES.items() if not file.checklist.functions or not file.checklist.checks}
    assert silent <= {"bucket_sweep"}
    assert all(file.checklist.answer for name, file in _FILES.items() if name not in silent)


def test_every_function_of_ddp_that_can_be_reached_here_is_claimed_by_a_scenario() -> None:
    reachable = {one.label for one in FUNCTIONS if one.file == DDP and one.reach in (Reach.DRIVEN, Reach.CALLED)}
    nested = {
        "_build_params_for_reducer.produces_sparse_gradient",
        "_register_accum_grad_hook.compiled_accum_grad_hook",
    }
    claimed = {label for file in _FILES.values() for label in file.checklist.functions}
    unclaimed = reachable - claimed
    assert unclaimed == {f"distributed.DistributedDataParallel.{name}" for name in nested}, "have no name to probe"
