"""The document of a timeline: what is written is what the tables say, and nothing in it is anything but text."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.errors import StoreError, TraceError
from dtbench.report.timeline import make_timeline, open_run_timeline, script_text, timeline_html
from dtbench.report.timeline.document import TimelineDocument
from dtbench.report.timeline.page import MODULES
from dtbench.store.layout import RunFolder
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.spans import EXPOSED, SPANS, collect_spans
from tests.known import total
from tests.put_trace import put_trace

ROOT = Path(__file__).parents[3]
RECORDED = ROOT / "tests" / "traces" / "recorded"


@pytest.fixture(scope="module")
def ddp() -> TraceSet:
    return analyze_traces([RECORDED / "ddp_2ranks_rank0.json.gz"])


@pytest.fixture(scope="module")
def written(ddp: TraceSet) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(make_timeline(ddp, title="ddp").to_json())
    return read


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The example run, with a trace in the second of its cells."""
    folder = tmp_path / "run"
    shutil.copytree(ROOT / "results" / "example", folder)
    put_trace("fsdp2_tp_2x2_rank0.json.gz", RunFolder(folder).launch("fsdp2_tp", 0))
    return folder


def test_the_document_holds_every_span_of_the_table(ddp: TraceSet, written: dict[str, Any]) -> None:
    table = SPANS.tabulate(collect_spans(ddp))
    strings = written["strings"]
    rows = [
        [lane["lane"], lane["name"], start, start + length, ("compute", "comm", "copy")[kind], strings[text]]
        for rank in written["ranks"]
        for lane in rank["lanes"]
        for start, length, kind, text in zip(lane["start"], lane["duration"], lane["kind"], lane["text"], strict=True)
    ]
    columns = ["lane", "lane_name", "start_ns", "end_ns", "kind", "name"]
    assert rows == table[columns].to_numpy().tolist()


def test_the_marked_lengths_add_up_to_the_exposed_time_of_every_step(ddp: TraceSet, written: dict[str, Any]) -> None:
    (rank,) = written["ranks"]
    exposed, steps = rank["exposed"], rank["steps"]
    inside = [
        sum(
            max(0, min(start + length, end) - max(start, begin))
            for start, length in zip(exposed["start"], exposed["duration"], strict=True)
        )
        for begin, end in zip(
            steps["start"], map(sum, zip(steps["start"], steps["duration"], strict=True)), strict=True
        )
    ]
    counted = [step.overlap.exposed_comm_ns for step in ddp.analyses[0].steps]
    assert inside == counted == steps["exposed_comm_ns"]
    assert sum(exposed["duration"]) == total(counted) > 0
    table = EXPOSED.tabulate(collect_spans(ddp))
    assert sum(table["end_ns"] - table["start_ns"]) == total(counted)


def test_collectives_are_told_as_in_their_table(ddp: TraceSet, written: dict[str, Any]) -> None:
    columns = written["ranks"][0]["collectives"]
    table = COLLECTIVES.tabulate(ddp.analyses).iloc[columns["index"]]
    strings = written["strings"]
    for word in ("owner", "purpose", "operation", "cause", "group", "region", "dtype"):
        assert [strings[code] for code in columns[word]] == table[word].tolist()
    for number in ("size_bytes", "exposed_ns", "hidden_ns", "seq"):
        assert columns[number] == table[number].tolist()
    assert [sum(causes.values()) for causes in columns["causes"]] == columns["exposed_ns"]
    assert columns["start"] == (table["start_ns"] - int(written["origin_ns"])).tolist()


def test_each_region_of_the_shown_steps_is_told(ddp: TraceSet, written: dict[str, Any]) -> None:
    (one,) = ddp.analyses
    regions, told = one.timeline.regions, written["ranks"][0]["regions"]
    assert [written["strings"][code] for code in told["name"]] == list(regions.regions)
    assert told["start"] == (regions.starts_ns - int(written["origin_ns"])).tolist()
    assert told["duration"] == (regions.ends_ns - regions.starts_ns).tolist()
    names = make_timeline(ddp, steps=11).document.ranks[0].regions.name
    assert 0 < len(names) < len(told["name"])


ALONE = "rank 1 of 2 is not drawn: no trace of it is there"


def test_what_is_not_known_of_a_collective_is_null_and_no_zero_and_counted(ddp: TraceSet) -> None:
    (one,) = ddp.analyses
    first, *others = one.collectives
    timeline = replace(
        one.timeline,
        collectives=(replace(first, issue_ns=None), *others),
        undecided_ns=(5, *(0 for _ in others)),
    )
    document = make_timeline(replace(ddp, analyses=(replace(one, timeline=timeline),))).document
    columns = document.ranks[0].collectives
    assert (columns.issue_ns[0], columns.exposed_ns[0], columns.hidden_ns[0]) == (None, None, None)
    assert columns.issue_ns[1] == (others[0].issue_ns or 0) - int(document.origin_ns)
    assert "whether 1 collective ran hidden or exposed is not known" in document.notes[-1]
    assert make_timeline(ddp).document.notes == [ALONE]


def test_every_number_is_one_that_javascript_counts_exactly(written: dict[str, Any]) -> None:
    def numbers(value: object) -> list[float]:
        if isinstance(value, dict):
            return [number for part in value.values() for number in numbers(part)]
        if isinstance(value, list):
            return [number for part in value for number in numbers(part)]
        return [value] if isinstance(value, int | float) else []

    assert max(abs(number) for number in numbers(written)) < 2**53
    assert isinstance(written["origin_ns"], str)


def test_one_step_and_a_range_of_steps_can_be_asked_for(ddp: TraceSet) -> None:
    assert make_timeline(ddp, steps=11).document.shown_steps == [11]
    document = make_timeline(ddp, steps=(10, 11)).document
    assert (document.shown_steps, document.steps, document.notes) == ([10, 11], [10, 11, 12], [ALONE])
    with pytest.raises(TraceError, match="no step 13: they have 10-12"):
        make_timeline(ddp, steps=13)


def test_no_name_can_end_the_element_that_holds_it(document: TimelineDocument, markup: str) -> None:
    snippet = timeline_html(document)
    assert snippet.count("</script>") == 2  # of the document and of the module
    found = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', snippet, re.DOTALL)
    assert found is not None
    assert json.loads(found[1]) == json.loads(document.to_json())
    assert markup not in snippet


def test_the_module_can_stand_inside_a_page_and_asks_for_nothing() -> None:
    script = script_text()
    assert "</" not in script
    assert "<!--" not in script
    assert re.search(r"https?://|\bimport\b|\bfetch\b|innerHTML|localStorage", script) is None


def test_modules_of_the_timeline_import_what_those_before_them_export_and_no_name_is_theirs_twice() -> None:
    folder = ROOT / "dtbench" / "report" / "timeline"
    assert sorted(MODULES) == sorted(path.name for path in folder.glob("*.js"))
    exported: dict[str, set[str]] = {}
    names: list[str] = []
    for name in MODULES:
        text = (folder / name).read_text(encoding="utf-8")
        for wanted, other in re.findall(r'^import \{([^}]*)\} from "\./(\w+\.js)";$', text, re.MULTILINE):
            assert {one.strip() for one in wanted.split(",")} <= exported[other], (name, other)
        defined = re.findall(r"^(export )?(?:function|class|const) (\w+)", text, re.MULTILINE)
        exported[name] = {one for export, one in defined if export}
        names += [one for _, one in defined]
    assert len(names) == len(set(names))


def test_a_saved_page_has_the_title_as_text(ddp: TraceSet, tmp_path: Path, markup: str) -> None:
    timeline = make_timeline(ddp, title=markup)
    timeline.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<title>&lt;img src=x onerror=alert(1)&gt;&lt;/script&gt;</title>" in page
    assert markup not in page


def test_a_run_shows_the_first_launch_that_has_traces(run: Path) -> None:
    document = open_run_timeline(run).document
    assert document.title == "run · fsdp2_tp · launch 0"
    assert document.notes[0] == "no traces are left of ddp launch 0: fsdp2_tp launch 0 is drawn"
    named = open_run_timeline(run, cell="fsdp2_tp").document
    assert not any("no traces are left" in note for note in named.notes)
    assert [lane.name for lane in document.ranks[0].lanes][1:] == [
        "thread 3653 · shard: grad_reduce, unshard, all_reduce",
        "thread 3652 · shard: unshard, grad_reduce",
        "thread 3666 · tensor",
        "thread 3668 · tensor: all_reduce",
    ]


def test_a_launch_whose_traces_are_gone_is_one_sentence(run: Path) -> None:
    with pytest.raises(StoreError, match=r"traces: no trace is there \(deleted, or none was written\)"):
        open_run_timeline(run, cell="ddp")


def test_a_launch_that_is_not_there_is_refused_with_those_that_are(run: Path) -> None:
    with pytest.raises(StoreError, match=r"no launch 3 of cell ddp .* ddp launch 0, fsdp2_tp launch 0"):
        open_run_timeline(run, cell="ddp", launch=3)


def test_a_launch_whose_traces_cannot_be_read_says_why(run: Path) -> None:
    path = run / "cells" / "fsdp2_tp" / "launch0" / "traces" / "rank0.1.pt.trace.json.gz"
    path.write_bytes(b"no trace")
    with pytest.raises(StoreError, match=r"none of the traces can be used: .*rank0\.1\.pt\.trace\.json\.gz"):
        open_run_timeline(run, cell="fsdp2_tp")
