"""The finer accounts as tables: columns and dtypes as written down, whatever a trace lacks."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import pytest

from dtbench.traces import tables
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.rows.tabulate import (
    COMM_WAIT_TABLE,
    GAP_TABLE,
    GROUP_TABLE,
    LANE_TABLE,
    OVERLAP_TAX_TABLE,
    PROBE_TABLE,
    Table,
)
from tests.known import total

TABLES: list[tuple[Callable[[list[TraceAnalysis]], pd.DataFrame], dict[str, str]]] = [
    (LANE_TABLE.tabulate, tables.LANES),
    (GROUP_TABLE.tabulate, tables.GROUPS),
    (GAP_TABLE.tabulate, tables.GAPS),
    (COMM_WAIT_TABLE.tabulate, tables.COMM_WAITS),
    (OVERLAP_TAX_TABLE.tabulate, tables.OVERLAP_TAX),
    (PROBE_TABLE.tabulate, tables.PROBES),
]
DRAWINGS = {
    "one kernel": "kernel gemm @s7 | = |",
    "one collective": "kernel ncclKernel @s20 | = |",
    "one copy": "copy Memcpy DtoD @s7 | = |",
    "a step that launched nothing": "step ProfilerStep#1 @1 |===|\nkernel gemm @s7 | =  |",
    "no communication": "step ProfilerStep#1 @1 |===|\ncall cudaLaunchKernel @1 |a |\nkernel gemm @s7 | aa |",
    "no compute": "step ProfilerStep#1 @1 |===|\ncall cudaLaunchKernel @1 |a |\nkernel ncclKernel @s20 | aa |",
    "operators only": "step ProfilerStep#1 @1 |===|\nop aten::mm @1 | = |",
}


@pytest.mark.parametrize("drawing", list(DRAWINGS.values()), ids=list(DRAWINGS))
def test_a_trace_that_lacks_something_has_every_table(draw: Callable[..., Path], drawing: str) -> None:
    one = analyze_trace(read_trace(draw(drawing)))
    for tabulate, columns in TABLES:
        table = tabulate([one])
        assert {name: str(dtype) for name, dtype in table.dtypes.items()} == columns
    assert len(GAP_TABLE.tabulate([one])) == len(one.steps)
    assert total(group.exposed_ns for group in one.accounts.whole.groups) == one.whole.exposed_comm_ns


def test_a_time_of_day_is_exact_beside_one_that_is_not_known() -> None:
    day_ns = 1_694_128_201_430_448_001
    assert int(float(day_ns)) != day_ns
    rows: list[Mapping[str, object]] = [{"at_ns": day_ns, "seq": 1}, {"at_ns": None, "seq": 2}]
    table = Table("times", {"at_ns": "Int64", "seq": "int64"}, lambda analyses: iter(rows)).tabulate([])
    assert table["at_ns"][0] == day_ns
    assert table["at_ns"][1] is pd.NA


def test_no_traces_give_empty_tables_with_their_columns() -> None:
    for tabulate, columns in TABLES:
        assert list(tabulate([]).columns) == list(columns)


def test_steps_keep_the_order_of_the_trace_and_ranks_theirs(draw: Callable[..., Path]) -> None:
    drawing = """
        step ProfilerStep#7    @1   |===   |
        step ProfilerStep#8    @1   |   ===|
        call cudaLaunchKernel  @1   |a  b  |
        kernel gemm            @s7  | a  b |
    """
    ranks = [analyze_trace(read_trace(draw(drawing)), rank=rank) for rank in (1, 0)]
    table = GAP_TABLE.tabulate(ranks)
    assert json.loads(table[["rank", "step"]].to_json(orient="values")) == [[1, 7], [1, 8], [0, 7], [0, 8]]
