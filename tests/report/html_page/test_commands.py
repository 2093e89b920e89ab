"""``--html FILE``: the file beside what a command prints, its numbers those of ``--json``, and where it may lie."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import dtbench
from dtbench.report.notebook import page_file
from dtbench.report.timeline import make_timeline
from dtbench.store.layout import RunFolder
from dtbench.traces.job.foreign import analyze_traces
from tests.put_trace import put_trace
from tests.report.html_page.conftest import ANSWERS, RECORDED, RESULTS, PageFile, Written

Read = Callable[[str], PageFile]
Pages = Mapping[str, Written]
TRACE = RECORDED / "ddp_2ranks_rank0.json.gz"


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_a_command_says_on_standard_error_where_the_page_lies(name: str, pages: Pages) -> None:
    page = pages[name]
    assert page.code == 0
    (said,) = [line for line in page.err.splitlines() if line.startswith("Wrote ")]
    assert said.startswith(f"Wrote {page.file} (")
    assert "Wrote " not in page.out


@pytest.mark.parametrize("name", ["example", "trace"])
def test_a_command_prints_what_it_prints_without_a_page(
    name: str, pages: Pages, run_with: Callable[..., Written]
) -> None:
    assert pages[name].out == run_with(*ANSWERS[name]).out


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_a_page_is_well_formed_small_and_asks_for_nothing(name: str, pages: Pages, read_page: Read) -> None:
    page = read_page(pages[name].text)
    assert len(pages[name].text.encode()) < 1_000_000
    ids = [has["id"] for _, has in page.elements if "id" in has]
    assert len(ids) == len(set(ids))
    links = [str(has["href"]) for tag, has in page.elements if tag in ("a", "use")]
    assert links
    assert {link[1:] for link in links} <= set(ids)
    addresses = [str(has[key]) for _, has in page.elements for key in ("href", "src", "xlink:href") if key in has]
    assert all(address.startswith(("#", "data:")) for address in addresses)
    assert not any("style" in has or any(key.startswith("on") for key in has) for _, has in page.elements)


def numbers_of(document: object) -> set[float]:
    """Return every number of a JSON document."""
    match document:
        case bool():
            return set()
        case int() | float():
            return {float(document)}
        case dict():
            return set().union(*map(numbers_of, document.values()))
        case list():
            return set().union(*map(numbers_of, document))
    return set()


DERIVED = {"share", "hidden share of comm", "exposed share of step", "exposed comm"}
"""Columns of a run that its JSON has the parts of, and not the quotient or the mean; see below."""


@pytest.mark.parametrize("name", ["example", "example_sweep"])
def test_every_number_of_a_run_is_one_of_its_json(
    name: str, pages: Pages, documents: Mapping[str, Any], read_page: Read
) -> None:
    page, there = read_page(pages[name].text), numbers_of(documents[name])
    found = [
        str(value)
        for table in page.tables
        if table.block != "losses"  # has sums of the owners'; see below
        for row in table.rows
        for title, (_, value) in zip(table.titles, row, strict=True)
        if value not in (None, "NaN") and (title not in DERIVED or table.block == "purposes")
    ]
    found += [str(value) for _, value in page.tiles.values() if value != "NaN"]
    found += [str(value) for _, parts in page.bars for value in parts.values()]
    assert len(found) > 80
    assert set(map(float, found)) <= there


@pytest.mark.parametrize("name", ["example", "example_sweep"])
def test_each_cells_tiles_bars_and_owners_are_its_numbers(
    name: str, pages: Pages, documents: Mapping[str, Any], read_page: Read
) -> None:
    page = read_page(pages[name].text)
    for cell in documents[name]["cells"]:
        part = f"cell:{cell['name']}"
        waits = {row["purpose"]: row["wait_ns"] for row in cell["purposes"]}
        tiles = {label: str(value) for (of, label), (_, value) in page.tiles.items() if of == part}
        assert {label: float(value) for label, value in tiles.items() if value != "NaN"} == {
            "step time": cell["step_time"]["median"],
            "throughput": cell["tokens_per_second"],
            "exposed share": cell["exposed_step_fraction"],
            "hidden share": cell["hidden_fraction"],
            "gradient wait": waits["grad_reduce"],
            **({"unshard wait": waits["unshard"]} if "unshard" in waits else {}),
        }
        bars = [parts for of, parts in page.bars if of == part]
        keys = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns", "hidden_comm_ns")
        assert bars == [{key: str(rank[key]) for key in keys if rank[key]} for rank in cell["ranks"]]
        owners = page.table(part, "owners").column("exposed")
        assert sorted(float(str(value)) for _, value in owners) == sorted(row["exposed_ns"] for row in cell["owners"])
        if not any((table.part, table.block) == (part, "losses") for table in page.tables):
            assert cell["doubts"]  # its causes are no finding
            continue
        losses = page.table(part, "losses")
        sums = [float(str(value)) for _, value in losses.column("exposed")]
        assert sum(sums) == sum(row["exposed_ns"] for row in cell["owners"])
        for (purpose, _), total in list(zip(losses.column("purpose"), sums, strict=True))[:1]:
            by_cause = Counter[str]()
            for row in cell["owners"]:
                by_cause[row["cause"]] += row["exposed_ns"] * (row["purpose"] == purpose)
            assert total == by_cause.most_common(1)[0][1]
        shares = page.table(part, "breakdown").column("exposed share of step")
        expected = [rank["exposed_comm_ns"] / rank["step_ns"] for rank in cell["ranks"]]
        assert [float(str(value)) for _, value in shares] == expected


def test_numbers_of_traces_are_those_of_their_json(pages: Pages, documents: Mapping[str, Any], read_page: Read) -> None:
    page, document = read_page(pages["trace"].text), documents["trace"]
    times, there = page.table("times", "times"), numbers_of(document)
    assert {float(str(value)) for row in times.rows for _, value in row if value is not None} <= there
    steps = dtbench.read_trace(TRACE).overlap
    assert [value for _, value in times.column("exposed comm")][: len(steps)] == list(
        map(str, steps["exposed_comm_ns"])
    )
    exposed = [float(str(value)) * len(steps) for _, value in page.table("owners", "owners").column("exposed")]
    assert sorted(exposed) == pytest.approx(sorted(row["exposed_ns"] for row in document["owners"]))


def test_numbers_of_a_comparison_are_those_of_its_json(
    pages: Pages, documents: Mapping[str, Any], read_page: Read
) -> None:
    page = read_page(pages["comparison"].text)
    there = numbers_of(documents["comparison"])
    found = [value for value in page.values if value != "NaN"]
    assert len(found) > 40
    assert set(map(float, found)) <= there


def test_bounds_decide_the_exit_code_and_the_page_is_written(tmp_path: Path, run_with: Callable[..., Written]) -> None:
    sides = (f"{RESULTS}/example_sweep:micro_batches-1", f"{RESULTS}/example_sweep:micro_batches-4")
    written = run_with("compare", *sides, "--fail-if", "step_time > 3%", file=tmp_path / "page.html")
    assert written.code == 10
    assert "micro_batches-4 against micro_batches-1" in written.text


def test_several_comparisons_are_told_each_with_its_plot(read_page: Read) -> None:
    one = dtbench.compare(f"{RESULTS}/example:ddp", f"{RESULTS}/example:fsdp2_tp").comparison
    other = one.model_copy(update={"candidate": one.candidate.model_copy(update={"label": "other"})})
    text = page_file.comparisons_document([one, other])
    page = read_page(text)
    assert page.table("summary", "summary").column("candidate") == [("fsdp2_tp", None), ("other", None)]
    for label in ("fsdp2_tp", "other"):
        own = text.partition(f'data-part-of-page="candidate:{label}"')[2].partition("data-part-of-page")[0]
        assert own.count('class="plot"') == 1


def test_one_cell_of_a_run_is_a_page_of_its_own(
    tmp_path: Path, run_with: Callable[..., Written], read_page: Read
) -> None:
    text = run_with("report", RESULTS / "example", "--cell", "ddp", file=tmp_path / "page.html").text
    page = read_page(text)
    parts = {has["data-part-of-page"] for _, has in page.elements if "data-part-of-page" in has}
    assert "cell:ddp" in parts
    assert "cell:fsdp2_tp" not in parts
    assert "fsdp2_tp" not in text.partition('id="plots"')[2].partition('id="timeline"')[0]


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """Return a run whose first cell has the trace of a rank."""
    folder = tmp_path / "run"
    shutil.copytree(RESULTS / "example", folder)
    put_trace(TRACE.name, RunFolder(folder).launch("ddp", 0))
    return folder


def test_a_run_with_traces_has_the_timeline_of_its_first_launch(
    traced: Path, tmp_path: Path, run_with: Callable[..., Written], read_page: Read
) -> None:
    page = read_page(run_with("report", traced, file=tmp_path / "page.html").text)
    data = next(one for one in page.scripts if one.startswith("{"))
    assert json.loads(data)["title"] == "run · ddp · launch 0"
    assert len(page.scripts) == 3


def test_the_timeline_of_a_run_is_of_the_cell_that_its_answer_is_about(
    traced: Path, tmp_path: Path, run_with: Callable[..., Written], read_page: Read
) -> None:
    put_trace(TRACE.name, RunFolder(traced).launch("fsdp2_tp", 0))
    page = read_page(run_with("report", traced, file=tmp_path / "page.html").text)
    data = next(one for one in page.scripts if one.startswith("{"))
    assert json.loads(data)["title"] == "run · fsdp2_tp · launch 0"


def test_a_run_without_traces_says_that_there_is_no_timeline(pages: Pages, read_page: Read) -> None:
    assert "The timeline is left out: " in read_page(pages["example"].text).text


def test_a_timeline_that_is_too_large_is_left_out_with_the_command_that_shows_it(
    traced: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_with: Callable[..., Written],
    read_page: Read,
) -> None:
    monkeypatch.setattr(page_file, "MOST_BYTES", 100)
    of_run = read_page(run_with("report", traced, file=tmp_path / "page.html").text)
    assert f"it is too large for a page. See it with: dtbench tensorboard {traced}" in of_run.text
    of_trace = read_page(run_with("analyze", TRACE, file=tmp_path / "page.html").text)
    assert f"See it with: dtbench export {TRACE} --perfetto timeline.tar" in of_trace.text


def test_a_page_leaves_out_the_rows_of_hosts_before_its_timeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: Callable[..., Written], read_page: Read
) -> None:
    timeline = make_timeline(analyze_traces([TRACE]), most_spans=page_file.MOST_SPANS)
    monkeypatch.setattr(page_file, "MOST_BYTES", len(timeline.to_json()) - 1)
    page = read_page(run_with("analyze", TRACE, file=tmp_path / "page.html").text)
    drawn = json.loads(next(one for one in page.scripts if one.startswith("{")))
    assert drawn["notes"][-1] == "rows of hosts are left out: with them it is too large"
    assert [rank["host"] for rank in drawn["ranks"]] == [[]]


def test_analyzing_a_run_writes_the_page_of_its_report(
    traced: Path, tmp_path: Path, run_with: Callable[..., Written], read_page: Read
) -> None:
    page = read_page(run_with("analyze", traced, file=tmp_path / "page.html").text)
    assert {"cell:ddp", "cell:fsdp2_tp"} <= {str(has.get("data-part-of-page")) for _, has in page.elements}


def test_a_file_that_is_there_is_replaced(tmp_path: Path, run_with: Callable[..., Written]) -> None:
    file = tmp_path / "page.html"
    file.write_text("old", encoding="utf-8")
    assert run_with("analyze", TRACE, file=file).text.startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    "command", [("report", RESULTS / "example"), ("analyze", TRACE), ("compare", RESULTS / "example")]
)
@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        (".", "is a folder; name a file in it"),
        ("nowhere/page.html", "there is no folder"),
        ("run.json", "the page is an HTML file"),
    ],
)
def test_a_place_where_no_page_can_lie_is_refused_before_anything_is_read(
    command: tuple[str | Path, ...], place: str, sentence: str, tmp_path: Path, run_with: Callable[..., Written]
) -> None:
    refused = run_with(*command, file=tmp_path / place)
    assert refused.code == 2
    assert refused.out == ""
    assert sentence in " ".join(refused.err.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []
