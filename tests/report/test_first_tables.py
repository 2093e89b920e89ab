"""First tables are short and hold most of what is exposed, of what is recorded here."""

from pathlib import Path

import pytest

from dtbench.report.page.page import Cell, Column, Table
from tests.report.first_tables import find_first_tables, measure_table

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", ["results/example", "tests/traces/recorded/fsdp2_tp_2x2_rank0.json.gz"])
def test_first_tables_are_short_and_hold_most(path: str) -> None:
    found = list(find_first_tables(ROOT / path))
    assert found
    assert [one.words for one in found if not one.is_short_and_holds_most] == []


def test_a_table_that_holds_too_little_fails() -> None:
    columns = (Column("purpose"), Column("cause"), Column("exposed"), Column("share"))
    rows = [
        ("unshard", "late", Cell("7", value=7), Cell("", value=0.7)),
        ("2 more", "", Cell("3", value=3), Cell("", value=0.3)),
    ]
    found = measure_table("made", Table("t", columns, rows))
    assert (found.rows, found.held, found.rest) == (1, 0.7, "2 more")
    assert found.words.endswith("FAILS")
