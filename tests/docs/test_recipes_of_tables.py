"""The recipes of docs/architecture.md for a column and for a metric, followed in a copy of the package."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
RECORDED = REPOSITORY / "tests" / "traces" / "recorded" / "two_ranks_one_gpu"

COLUMN = """        Column("span_ns", "Int64", Unit.NS, "how long it ran", lambda row: row.one.span.length_ns),
"""
BOARD = """    _column("span_ns", "ran"),
"""
FIELD = """    half_ns: int | None = 500
"""
HALF = """        Column("half_ns", "Int64", Unit.NS, "half of it", lambda row: row.half_ns),
"""
SUMMED = """    half_ns: int | None = None
"""
METRIC = """    _of_column("copies", "exposed copies", OVERLAP["exposed_copy_ns"]),
"""
FOLLOW = """
import json, sys
import dtbench
from dtbench.cli.main import main
from dtbench.report.page.trace_page import purpose_table
from dtbench.report.tb_plugin.collectives import Query, list_collectives
from dtbench.report.documents.traces import collective_rows
from tests.docs.tables_page import make_tables_page

first, second, run = sys.argv[1:]
traces = dtbench.read_trace(first)
table = traces.collectives
lengths = (table["end_ns"] - table["start_ns"]).tolist()
query = Query(chosen={}, text="", owner=None, sort="span_ns", descending=True, offset=0)
board = list_collectives(table, query)
compared = dtbench.compare(first, second)
shown = purpose_table(traces.traces)
place = [column.title for column in shown.columns].index("half")
print(json.dumps({
    "package": dtbench.__file__,
    "is_span": table["span_ns"].tolist() == lengths,
    "json": [row["span_ns"] for row in collective_rows(traces.traces)] == lengths,
    "board": [column.header for column in board.columns][-1],
    "page": "| `span_ns` | Int64 | ns | how long it ran |" in make_tables_page(),
    "older": bool(dtbench.load_run(run).collectives["span_ns"].isna().all()),
    "halves": [row[place].words for row in shown.rows],
    "metric": compared.metrics.set_index("metric").loc["copies", ["unit", "baseline"]].tolist(),
    "copies": float(traces.overlap["exposed_copy_ns"].mean()),
}))
for words in (["report", run, "--full"], ["compare", first, second, "--fail-if", "copies > 1000000%"]):
    try:
        main(words)
    except SystemExit:
        pass
"""


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Follow both recipes in a copy of the package and return what then is shown."""
    folder = tmp_path_factory.mktemp("recipes")
    shutil.copytree(REPOSITORY / "dtbench", folder / "dtbench", ignore=shutil.ignore_patterns("__pycache__"))
    put_before_end(folder / "dtbench/traces/rows/collective_table.py", "COLLECTIVES: Final", "    ),\n)\n", COLUMN)
    put_before_end(folder / "dtbench/report/tb_plugin/collectives.py", "_SINGLE: Final", ")\n_GROUPED", BOARD)
    put_before_end(folder / "dtbench/traces/account/purpose_times.py", "class PurposeTime", "\n\ndef account", FIELD)
    put_before_end(folder / "dtbench/traces/rows/tables.py", "PURPOSES: Final", "    ),\n)\n", HALF)
    put_before_end(folder / "dtbench/runs/summary.py", "class PurposeSummary", "\n    @property", SUMMED)
    put_before_end(folder / "dtbench/base/vocabulary.py", "PURPOSE_TIMES: Final", "}", ', "half_ns": "half"')
    put_before_end(folder / "dtbench/comparison/metrics.py", "METRICS: Final", ')\n"""In the order', METRIC)
    (folder / "follow.py").write_text(FOLLOW, encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "follow.py", *map(str, (RECORDED / "ddp", RECORDED / "skew", REPOSITORY / "results/example"))],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(REPOSITORY)])},
        capture_output=True,
        text=True,
        check=False,
    )
    first, _, rest = ended.stdout.partition("\n")
    assert first, ended.stderr
    found: dict[str, Any] = {**json.loads(first), "gate": rest + ended.stderr}
    assert found["package"].startswith(str(folder))
    return found


def put_before_end(path: Path, start: str, end: str, line: str) -> None:
    """Put a line at the end of a list that a module declares."""
    text = path.read_text(encoding="utf-8")
    place = text.index(end, text.index(start))
    path.write_text(text[:place] + line + text[place:], encoding="utf-8")


def test_a_column_is_one_line_and_shown_everywhere(followed: dict[str, Any]) -> None:
    assert followed["is_span"]
    assert followed["json"]
    assert followed["page"]
    assert followed["board"] == "ran"
    assert followed["older"], "NA in a table of an older version"


def test_a_time_of_a_purpose_is_a_field_a_column_and_a_title(followed: dict[str, Any]) -> None:
    assert {*followed["halves"]} == {"500 ns"}
    assert re.search("hidden +exposed +half +wait", followed["gate"]), "of a run"


def test_a_metric_of_a_comparison_is_one_line(followed: dict[str, Any]) -> None:
    assert followed["metric"] == ["ns", followed["copies"]]
    assert "`copies > 1000000%`, skew against ddp: undecided, 1 against 1 launches are too few" in followed["gate"]
