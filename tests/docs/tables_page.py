"""The reference of tables, made of the columns that produce them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dtbench.base.columns import Column, Table
from dtbench.report.notebook import compared, history
from dtbench.report.notebook.many import RUN_COLLECTIVES, RUN_OWNERS
from dtbench.report.notebook.predict import PREDICTED
from dtbench.report.notebook.what_if import WHAT_IF
from dtbench.report.page.cell_tables import CELLS, LAUNCHES
from dtbench.report.page.run_tables import ESTIMATES, OWNERS
from dtbench.runs.reading.gains import GAINS
from dtbench.runs.reading.many_runs import RUN_STEPS
from dtbench.store.finish import STEPS
from dtbench.store.use_file import USES
from dtbench.traces.rows.tables import TABLES, WHOLE
from dtbench.traces.spans import EXPOSED, SPANS, STAGE_WORK

AnyTable = Table[Any, Any, Any]

GROUPS: Final[Mapping[str, Sequence[AnyTable]]] = {
    "Many runs: `dtbench.load_runs(folder)`, `load_collectives(folder)`, `load_owners(folder)`": (
        RUN_STEPS,
        RUN_COLLECTIVES,
        RUN_OWNERS,
    ),
    "One run: `dtbench.load_run(folder)`, and `steps.parquet` of each launch": (
        CELLS,
        LAUNCHES,
        STEPS,
        OWNERS,
        ESTIMATES,
    ),
    "Traces: `dtbench.read_trace(...)`, `.tables` of a run, and `*.parquet` of each launch": (*TABLES[::-1], WHOLE),
    "What a picture of one step is drawn from": (SPANS, EXPOSED, STAGE_WORK),
    "What would change it: `.what_if()` of a run or of traces, and `gains.parquet` of each launch": (WHAT_IF, GAINS),
    "Other numbers of ranks: `.predict()` of a run": (PREDICTED,),
    "A comparison: `dtbench.compare(...)`": (
        compared.METRICS,
        compared.MECHANISM,
        compared.COLLECTIVES,
        compared.KERNELS,
    ),
    "A number over runs: `dtbench.history(...)`": (history.POINTS, history.CHANGES),
}

_HEAD: Final = """\
# Tables

<!-- Made of the columns themselves by `python -m tests.docs`; a test fails where they differ. -->

Lengths of time are integer nanoseconds, sizes bytes, shares fractions. A number that is not known is NA, never 0; a
word that nobody knows is empty. Tables of a run have the columns `run`, `cell` and `launch` before those below.
A table of an older version may lack a column: it is then NA.
"""


def make_tables_page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *(line for title, tables in GROUPS.items() for line in _write_group(title, tables))])


def _write_group(title: str, tables: Sequence[AnyTable]) -> Iterator[str]:
    yield f"## {title}\n"
    for table in tables:
        columns = (*table.all_columns, *(USES if table is STEPS else ()))
        yield f"### {table.name}\n"
        yield f"{table.doc}\n"
        yield "| column | dtype | unit | what it says |\n|---|---|---|---|"
        yield from (_write_column(column) for column in columns)
        yield ""
        if table is STEPS:
            names = " and ".join(f"`{column.name}`" for column in USES)
            yield f"{names} are there where somebody looked at the whole machine.\n"


def _write_column(column: Column[Any]) -> str:
    unit = column.unit.value if column.unit else ""
    when = f", on a clock: {column.clock}" if column.clock else ""
    return f"| `{column.name}` | {column.dtype} | {unit} | {column.doc.replace('|', chr(92) + '|')}{when} |"
