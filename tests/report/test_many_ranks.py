"""The answer of a job of many ranks fits one screen, and names the host, the rank and the cause."""

import re
from pathlib import Path
from textwrap import wrap

import pytest

from dtbench.cli.analyze import print_traces
from dtbench.report.documents.traces import document_head
from dtbench.report.page.slowest_ranks import MOST_RANKS
from dtbench.report.page.trace_page import time_table, traces_page, waiting_table
from dtbench.report.words.trace_words import brief_lines
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.trace_set import TraceSet
from tests.traces.ranks.cluster import Cluster, run_cluster

LINES = 40
WIDTH = 100


def read_job(folder: Path, ranks: int, late: int, **job: object) -> TraceSet:
    """Write the traces of a job with one late rank, and analyse them."""
    run_cluster(Cluster(ranks=ranks, late={late: 900_000}, seed=3, **job)).write(folder)  # type: ignore[arg-type]
    return analyze_traces([folder], workers=1)


def show(traces: TraceSet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines on a terminal, which breaks those that no pipe does."""
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    print_traces(traces, ["traces"])
    return [part for line in capsys.readouterr().out.splitlines() for part in wrap(line.rstrip(), WIDTH) or [""]]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> TraceSet:
    return read_job(tmp_path_factory.mktemp("job"), ranks=24, late=13, steps=2)


def test_one_screen_names_host_rank_and_cause(
    job: TraceSet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = show(job, capsys, monkeypatch)
    assert len(printed) <= LINES
    text = re.sub(r"\s+", " ", " ".join(printed))
    assert "2 of 3 hosts wait mostly for node1 (ranks 8-15)" in text
    assert "for rank 13, last in 22 of its 22" in text
    assert "waited for rank 13" in text
    assert "the 3 ranks with the longest steps and rank 13, waited for longest, of 24; --json has all" in text
    assert [line.split()[1] for line in printed if line.startswith("rank ") and "█" in line].count("13") == 1


def test_what_the_answer_advises_is_not_said_again_where_there_is_little_room(job: TraceSet) -> None:
    lines = brief_lines(job)
    assert sum("wait" in line and "per step" in line for line in lines) == 1, "both waits in one line"


def test_of_the_ranks_that_are_not_shown_medians_and_ranges_are_said(job: TraceSet) -> None:
    said = time_table(job).said[-1]
    assert re.fullmatch(r"the other 8 ranks: step [\d.]+ ms \(.* to .*\), compute .*, exposed communication .*", said)
    table = waiting_table(job)
    assert len(table.rows) == MOST_RANKS
    assert table.said[0].startswith("the 16 ranks that others wait for longest, of 24; the other 8 ranks: waited ")


def test_a_host_that_is_named_has_a_table_beside_the_others(job: TraceSet) -> None:
    part = traces_page(job).find("by_host")
    assert part is not None
    (table,) = part.blocks
    rows = table.words  # type: ignore[union-attr]
    assert rows[0][:2] == ("node1", "ranks 8-15")
    assert {row[0] for row in rows} == {"node0", "node1", "node2"}
    assert traces_page(job).find("by_tensor_parallel_rank") is None


def test_links_and_the_host_are_in_the_page_and_in_the_document(job: TraceSet) -> None:
    document = document_head(job)
    awaited = {"host": "node1", "ranks": list(range(8, 16)), "waiting": ["node0", "node2"], "hosts": 3}
    assert document["awaited_host"].items() > awaited.items()  # type: ignore[attr-defined]
    assert document["slow_group"] is None, "one rank is slow, and no group"
    part = traces_page(job).find("links")
    assert part is not None
    (table,) = part.blocks
    assert {row[0] for row in table.words} == {"along tensor", "along data", "group 3"}  # type: ignore[union-attr]
    assert len(document["links"]) == 3  # type: ignore[arg-type]
    assert table.said[0].startswith("link: bytes over the time in which any")  # type: ignore[union-attr]
    assert len(table.said) == 1, "no two of a group ran at once"  # type: ignore[union-attr]


@pytest.mark.thorough
@pytest.mark.parametrize("mix", ["tensor", "expert", "data"])
def test_a_thousand_ranks_fit_one_screen(
    mix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = read_job(tmp_path, ranks=1024, late=778, mix=mix, apart_ns=50_000_000)
    printed = show(traces, capsys, monkeypatch)
    assert len(printed) <= LINES
    text = re.sub(r"\s+", " ", " ".join(printed))
    assert "127 of 128 hosts wait mostly for node97 (ranks 776-783)" in text
    assert "for rank 778" in text
    assert "waited for" in text
