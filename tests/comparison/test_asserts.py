"""A comparison in a test of somebody's: it raises on what is established and exceeded, and where nobody can tell."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dtbench
from dtbench.base.errors import UndecidedError
from dtbench.comparison.gate import BoundError
from dtbench.report.notebook.compared import ComparisonReport

FOUR = (100.0, 101.0, 99.0, 100.0)
SLOW = (120.0, 121.0, 119.0, 120.0)
WILD = (60.0, 95.0, 165.0, 120.0)


@pytest.fixture
def found(run_of: Callable[..., Path], cell: Any) -> Callable[[tuple[float, ...]], ComparisonReport]:
    """Compare launches of these times, in ms, with four of about 100."""

    def compare(times_ms: tuple[float, ...]) -> ComparisonReport:
        run = run_of({"base": cell(FOUR[: len(times_ms)]), "candidate": cell(times_ms)})
        return dtbench.compare(f"{run}:base", f"{run}:candidate")

    return compare


Found = Callable[[tuple[float, ...]], ComparisonReport]


def test_an_established_slowdown_raises_with_its_numbers(found: Found) -> None:
    with pytest.raises(AssertionError, match=r"`step_time > 5%`, candidate against base: EXCEEDED, .*\+20\.0 %"):
        found(SLOW).assert_no_slowdown(max_percent=5)


def test_what_is_kept_raises_nothing(found: Found) -> None:
    slow = found(SLOW)
    slow.assert_no_slowdown(max_percent=30)
    slow.assert_kept("step_time > 30%", "mechanism changed")
    slow.assert_kept()


def test_what_is_not_established_raises_unless_it_is_let_pass(found: Found) -> None:
    wild = found(WILD)
    with pytest.raises(UndecidedError, match="not established"):
        wild.assert_no_slowdown()
    wild.assert_no_slowdown(pass_unestablished=True)


def test_too_few_launches_raise_whatever_is_let_pass(found: Found) -> None:
    with pytest.raises(UndecidedError, match="1 against 1 launches are too few"):
        found((120.0,)).assert_no_slowdown(pass_unestablished=True)


def test_what_is_no_bound_is_said(found: Found) -> None:
    slow = found(SLOW)
    for bound in ("step_tme > 5%", "exposed[layers.77] > 5%"):
        with pytest.raises(BoundError):
            slow.assert_kept(bound)
    for percent in (-1.0, float("nan"), float("inf")):
        with pytest.raises(BoundError, match="from 0"):
            slow.assert_no_slowdown(max_percent=percent)
