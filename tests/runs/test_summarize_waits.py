"""Gradient waits of a cell by parameter, from its tables of collectives, as a person and a check read them."""

import math
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from dtbench.report.page.cell_page import MOST_PARAMETERS, gradient_wait_blocks
from dtbench.report.render.terminal import render_block
from dtbench.runs.cell.summarize_waits import summarize_gradient_waits
from dtbench.runs.cell_numbers import find_number, find_part
from dtbench.runs.summary import CellSummary, GradientWait
from dtbench.scenario.checks.values import Quantity, read_value
from dtbench.traces.rows.collective_table import COLLECTIVES

HOOK = "_data_parallel_utils.sync_grad_hook"
STEPS = pd.DataFrame({"rank": [0], "step": [1]})


def collectives(*rows: dict[str, object]) -> pd.DataFrame:
    """Return a table whose rows say only what matters."""
    blank: dict[str, object] = {
        name: "" if dtype == "string" else pd.NA if dtype[0].isupper() else 0
        for name, dtype in COLLECTIVES.dtypes.items()
    }
    awaited = {"step": 1, "owner": "up", "awaited_by": HOOK, "issue_ns": 100, "first_wait_ns": 130, "wait_ns": 10}
    return pd.DataFrame([{**blank, **awaited, **row} for row in rows], columns=list(COLLECTIVES.dtypes)).astype(
        COLLECTIVES.dtypes
    )


def make_cell(waits: tuple[GradientWait, ...]) -> CellSummary:
    """Return a cell of which nothing else is known."""
    known: Any = {"gradient_waits": waits}
    return CellSummary.model_construct(**known)


def test_a_parameter_waits_the_median_of_its_waits() -> None:
    table = collectives(
        {"wait_ns": 10, "hidden_ns": 1, "exposed_ns": 9},
        {"wait_ns": 30, "hidden_ns": 3, "exposed_ns": 27},
        {"wait_ns": 12, "hidden_ns": 2, "exposed_ns": 10},
        {"owner": "down", "wait_ns": 0},
    )
    assert summarize_gradient_waits(table, STEPS) == (
        GradientWait(parameter="down", count=1, wait_ns=0, since_issue_ns=30, hidden_ns=None, exposed_ns=None),
        GradientWait(parameter="up", count=3, wait_ns=12, since_issue_ns=42, hidden_ns=2, exposed_ns=10),
    )


def test_what_some_of_its_collectives_hid_is_no_median_of_all() -> None:
    table = collectives({"hidden_ns": 1, "exposed_ns": 9}, {"hidden_ns": pd.NA, "exposed_ns": 27})
    (row,) = summarize_gradient_waits(table, STEPS)
    assert (row.count, row.wait_ns, row.hidden_ns, row.exposed_ns) == (2, 10, None, 18)


@pytest.mark.parametrize("row", [{"step": pd.NA}, {"awaited_by": ""}, {"wait_ns": pd.NA}])
def test_what_no_hook_of_a_step_waited_for_is_no_gradient_wait(row: dict[str, object]) -> None:
    assert summarize_gradient_waits(collectives(row), STEPS) == ()


@pytest.mark.parametrize("lost", [{"wait_ns": pd.NA}, {"awaited_by": ""}])
def test_a_wait_that_only_some_ranks_tell_says_of_which(lost: dict[str, object]) -> None:
    steps = pd.DataFrame({"rank": [0, 0, 1, 1], "step": [1, 2, 1, 2]})
    rows: list[dict[str, object]] = [
        {"rank": rank, "step": step, "wait_ns": 10 + rank} for rank in (0, 1) for step in (1, 2)
    ]
    (whole,) = summarize_gradient_waits(collectives(*rows), steps)
    assert whole.part is None
    waits = summarize_gradient_waits(collectives(*(row | (lost if row["rank"] else {}) for row in rows)), steps)
    part = find_part(make_cell(waits), read_value("gradient_waits.up.wait_ns"))
    assert (str(part), part is not None and part.has_every_rank) == ("rank 0 alone, of 2", False)
    console = Console(width=80, record=True)
    console.print(*map(render_block, gradient_wait_blocks(make_cell(waits))))
    assert "of rank 0 alone, of 2: not known of the others" in console.export_text()


def test_a_check_finds_a_parameters_wait_and_nothing_for_another_name() -> None:
    waits = (
        GradientWait(parameter="layers.0.up.weight", count=4, wait_ns=7, since_issue_ns=40, hidden_ns=5, exposed_ns=2),
    )
    cell = make_cell(waits)
    name = read_value("gradient_waits.layers.0.up.weight.wait_ns")
    assert name.quantity is Quantity.TIME
    assert find_number(cell, name) == 7
    assert find_number(cell, read_value("gradient_waits.layers.0.up.weight.since_issue_ns")) == 40
    assert find_number(cell, read_value("gradient_waits.layers.0.up.weight.hidden_ns")) == 5
    assert math.isnan(find_number(cell, read_value("gradient_waits.layers.1.up.weight.wait_ns")))
    with pytest.raises(ValueError, match="no number called"):
        read_value("gradient_waits.layers.0.up.weight.waits")


def test_the_longest_waits_are_printed_first_and_the_rest_is_counted() -> None:
    waits = tuple(
        GradientWait(
            parameter=f"p{index}", count=4, wait_ns=index * 1_000_000, since_issue_ns=0, hidden_ns=0, exposed_ns=0
        )
        for index in range(MOST_PARAMETERS + 2)
    )
    console = Console(width=80, record=True)
    console.print(*map(render_block, gradient_wait_blocks(make_cell(waits))))
    lines = console.export_text().splitlines()
    names = [line.split()[0] for line in lines if line.startswith("p")]
    assert names == [f"p{index}" for index in range(MOST_PARAMETERS + 1, 1, -1)]
    assert "and 2 parameters with shorter waits; --json has all" in lines
