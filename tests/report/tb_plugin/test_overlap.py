"""Bars of the tab Overlap, of tables small enough to check by eye: two ranks, two steps of 10 ms each."""

from collections.abc import Callable

import pandas as pd
import pytest

from dtbench.base.vocabulary import Cause
from dtbench.report.page.page import Chart, Table
from dtbench.report.tb_plugin.overlap import By, CellTables, Choice, OverlapDocument, make_overlap
from dtbench.runs.summary import CellSummary
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.rows.tables import OVERLAP, PURPOSES

MS = 1_000_000
WINDOWS = [(rank, step) for rank in (0, 1) for step in (3, 4)]
EXPOSED_MS = (4, 2, 2, 0)
"""Of each window; as much again is hidden."""


def spell_table(dtypes: dict[str, str], rows: list[dict[str, object]]) -> pd.DataFrame:
    """Make a table of which only some columns are told; those of time in ms."""
    table = pd.DataFrame([{"launch": 0, **row} for row in rows])
    for name in table.columns.intersection([name for name in dtypes if name.endswith("_ns")]):
        table[name] *= MS
    return table.reindex(columns=["launch", *dtypes]).astype({"launch": "int64", **dtypes})


@pytest.fixture
def tables() -> CellTables:
    accounts = zip(WINDOWS, EXPOSED_MS, strict=True)
    overlap: list[dict[str, object]] = [
        {
            "rank": rank,
            "step": step,
            "step_ns": 10,
            "exposed_copy_ns": 0,
            "exposed_comm_ns": exposed,
            "hidden_comm_ns": exposed,
            "comm_ns": 2 * exposed,
            "compute_ns": 5,
            "idle_ns": 5 - exposed,
        }
        for (rank, step), exposed in accounts
    ]
    purposes: list[dict[str, object]] = [
        {
            "rank": rank,
            "step": step,
            "purpose": "grad_reduce",
            "count": 2,
            "size_bytes": 2048,
            "comm_ns": 4,
            "hidden_ns": 1,
            "exposed_ns": 3,
            "wait_ns": 2,
            "is_wait_least": False,
        }
        for rank, step in WINDOWS[:2]  # in the other two windows it does not occur
    ]
    rank, step = WINDOWS[2]
    gather = {"purpose": "unshard", "count": 1, "size_bytes": 512, "comm_ns": 4, "hidden_ns": 2, "exposed_ns": 2}
    purposes.append({"rank": rank, "step": step, **gather, "wait_ns": 2, "is_wait_least": False})
    collectives: list[dict[str, object]] = [
        {
            "rank": rank,
            "step": step,
            "owner": owner,
            "operation": "all_reduce",
            "purpose": "grad_reduce",
            "start_ns": 0,
            "end_ns": 4,
            "exposed_ns": exposed,
            "hidden_ns": 0,
            "skew_wait_ns": 0,
            "transfer_ns": 4,
            **{f"exposed_{cause}_ns": 0 for cause in Cause},
            "exposed_tail_ns": exposed - 1,
            "exposed_skew_ns": 1,
            "size_bytes": 1024,
        }
        for owner, exposed, windows in (("bucket 0", 4, WINDOWS[:1]), ("bucket 1", 2, WINDOWS[1:3]))
        for rank, step in windows
    ] + [
        {
            "rank": 1,
            "step": 4,
            "owner": "bucket 1",
            "operation": "all_reduce",
            "purpose": "grad_reduce",
            "start_ns": 0,
            "end_ns": 1,
            "exposed_ns": 0,
            "hidden_ns": 1,
            "skew_wait_ns": 0,
            "transfer_ns": 1,
            **{f"exposed_{cause}_ns": 0 for cause in Cause},
            "size_bytes": 1024,
        }
    ]
    for table, unit in ((collectives, "dtype"), (collectives, "parameters")):
        for row in table:
            row[unit] = ""
    return CellTables(
        launches=(0,),
        overlap=spell_table(OVERLAP.dtypes, overlap).assign(launch=0),
        purposes=spell_table(PURPOSES.dtypes, purposes).assign(launch=0),
        collectives=spell_table(COLLECTIVES.dtypes, collectives).assign(launch=0),
    )


Show = Callable[..., OverlapDocument]


@pytest.fixture
def show(make_ddp: Callable[..., CellSummary], tables: CellTables) -> Show:
    """Show the bars that stand for something, of all ranks and steps or of one."""
    return lambda by, rank=None, step=None: make_overlap(make_ddp(), tables, Choice(by, rank, step))


def chart_of(document: OverlapDocument) -> tuple[Chart, Table]:
    assert document.chart is not None
    assert isinstance(document.chart.table, Table)
    return document.chart, document.chart.table


def test_the_sentence_says_what_of_the_time_of_steps_was_exposed(show: Show) -> None:
    assert show(By.RANK).sentence == "4 profiled steps, all ranks' together; exposed 20.0 % of their time"  # 8 of 40 ms
    assert show(By.STEP, rank=0).sentence.endswith("exposed 30.0 % of their time")
    assert show(By.STEP, rank=0, step=4).sentence.startswith("1 profiled step of one rank; exposed 20.0 %")


def test_a_bar_is_the_mean_of_a_rank_or_of_a_step(show: Show) -> None:
    chart, table = chart_of(show(By.RANK))
    exposed = [part.key for part in chart.parts].index("exposed_comm_ns")
    assert [(bar.label, bar.lengths_ns[exposed]) for bar in chart.bars] == [("rank 0", 3 * MS), ("rank 1", MS)]
    assert [bar.whole_ns for bar in chart.bars] == [10 * MS, 10 * MS]
    assert [bar.below_ns for bar in chart.bars] == [3 * MS, MS]
    assert [row[-2:] for row in table.words] == [("50.0 %", "30.0 %"), ("50.0 %", "10.0 %")]
    chart, _ = chart_of(show(By.STEP))
    assert [(bar.label, bar.lengths_ns[exposed]) for bar in chart.bars] == [("step 3", 3 * MS), ("step 4", MS)]


def test_a_purpose_is_the_mean_over_all_windows_also_those_in_which_it_did_not_occur(show: Show) -> None:
    chart, table = chart_of(show(By.PURPOSE))
    assert [bar.lengths_ns for bar in chart.bars] == [(6 * MS // 4, 2 * MS // 4), (MS // 2, MS // 2)]
    row, _ = table.words
    assert row == ("grad_reduce", "2", "2.00 KiB", "2.000", "0.500", "1.500", "1.000", "25.0 %")


def test_an_owners_share_is_its_part_of_what_all_owners_exposed(show: Show) -> None:
    chart, table = chart_of(show(By.OWNER))
    # 4 ms of bucket 0 in one window, twice 2 ms of bucket 1 in two: each is a mean of 1 ms over the four
    assert [row[0] for row in table.words] == ["bucket 0", "bucket 1"]
    assert [row[4:] for row in table.words] == [("1.000", "50.0 %"), ("1.000", "50.0 %")]
    lengths = [{part.key: ns for part, ns in zip(chart.parts, bar.lengths_ns, strict=True) if ns} for bar in chart.bars]
    assert lengths == [{"skew": MS // 4, "tail": 3 * MS // 4}, {"skew": MS // 2, "tail": MS // 2}]
    _, table = chart_of(show(By.OWNER, rank=0))
    assert [row[4:] for row in table.words] == [("2.000", "66.7 %"), ("1.000", "33.3 %")]
