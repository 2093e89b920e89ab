"""The finer accounts as tables: columns and dtypes as written down, whatever a trace lacks."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from dtbench.base.columns import Column, Table, Unit
from dtbench.base.vocabulary import Cause
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.rows.tables import COMM_WAITS, GAPS, GROUPS, LANES, OVERLAP_TAX, PROBES
from tests.known import total

RECORDED = Path(__file__).parent / "recorded"
TABLES = (LANES, GROUPS, GAPS, COMM_WAITS, OVERLAP_TAX, PROBES)
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
    for declared in TABLES:
        table = declared.tabulate([one])
        assert {name: str(dtype) for name, dtype in table.dtypes.items()} == declared.dtypes
    assert len(GAPS.tabulate([one])) == len(one.steps)
    assert total(group.exposed_ns for group in one.accounts.whole.groups) == one.whole.exposed_comm_ns


@pytest.mark.parametrize("name", ["ddp_2ranks_rank0", "fsdp2_tp_2x2_rank0"])
def test_of_each_collective_whose_cause_is_unknown_it_is_written_what_would_tell_it(name: str) -> None:
    traces = analyze_traces([RECORDED / f"{name}.json.gz"])
    table = COLLECTIVES.tabulate(traces.analyses)
    is_unknown = table["exposed_unknown_ns"].fillna(0) > 0
    assert is_unknown.any()
    assert ((table["missing"] != "") == is_unknown).all()
    told = {words for missing in table["missing"] for words in missing.split(", ") if words}
    assert told == {missing for row in traces.owners if row.cause is Cause.UNKNOWN for missing in row.missing}


def test_a_time_of_day_is_exact_beside_one_that_is_not_known() -> None:
    day_ns = 1_694_128_201_430_448_001
    assert int(float(day_ns)) != day_ns
    times = Table[None, None, tuple[int | None, int]](
        name="times",
        doc="One row per moment.",
        find=lambda _: ((None, row) for row in ((day_ns, 1), (None, 2))),
        keys=(),
        columns=(
            Column("at_ns", "Int64", Unit.NS, "when", lambda row: row[0], clock="a machine's"),
            Column("seq", "int64", None, "which", lambda row: row[1], least=0),
        ),
    )
    table = times.tabulate(None)
    assert table["at_ns"][0] == day_ns
    assert table["at_ns"][1] is pd.NA


def test_no_traces_give_empty_tables_with_their_columns() -> None:
    for declared in TABLES:
        assert list(declared.tabulate([]).columns) == list(declared.dtypes)


def test_steps_keep_the_order_of_the_trace_and_ranks_theirs(draw: Callable[..., Path]) -> None:
    drawing = """
        step ProfilerStep#7    @1   |===   |
        step ProfilerStep#8    @1   |   ===|
        call cudaLaunchKernel  @1   |a  b  |
        kernel gemm            @s7  | a  b |
    """
    ranks = [analyze_trace(read_trace(draw(drawing)), rank=rank) for rank in (1, 0)]
    table = GAPS.tabulate(ranks)
    assert json.loads(table[["rank", "step"]].to_json(orient="values")) == [[1, 7], [1, 8], [0, 7], [0, 8]]
