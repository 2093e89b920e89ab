"""The page in a headless Chromium that reaches nothing but the server: every tab, by mouse and keyboard."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import dtbench
from dtbench.base.units import format_ns
from dtbench.base.vocabulary import Phase
from dtbench.report.page.brief.run import doubt_facts, run_brief
from dtbench.report.page.brief.traces import traces_brief
from dtbench.report.page.estimates import agreement_sentence, dispute_sentences, estimates_table
from dtbench.report.words import sentences
from dtbench.runs.run import summarize_run
from dtbench.store.journal import JournalWriter
from dtbench.store.layout import RunFolder
from dtbench.traces.rows.tables import TABLES
from tests.put_trace import put_trace

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, FrameLocator, Page, Route

    from tests.report.tb_plugin.conftest import AddRun

TRACE = Path(__file__).parents[2] / "traces" / "recorded" / "ddp_2ranks_rank0.json.gz"
RUN = "quickstart/20260101T120000-aaaa"
OTHER = "quickstart/20260102T120000-bbbb"
PATIENCE_MS = 90_000

# Static plugins and ours, so that the page is the same wherever the entry point is installed; ends with its input.
SERVE = """
import sys
from tensorboard import default, program
from dtbench.report.tb_plugin.plugin import BoardPlugin
board = program.TensorBoard(plugins=[*default.get_static_plugins(), BoardPlugin])
board.configure(argv=[None, "--logdir", sys.argv[1], "--port", "0", "--host", "localhost"])
print(board.launch(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def address(logdir: Path) -> Iterator[str]:
    """Serve the log directory; give the page's address."""
    command = [sys.executable, "-c", SERVE, str(logdir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.stdin.close()
            server.terminate()
            server.wait(timeout=60)


class Opened:
    """The page, and everything that went wrong on it."""

    def __init__(self, page: "Page", address: str, link: str) -> None:
        self.page, self.troubles = page, list[str]()
        page.set_default_timeout(PATIENCE_MS)
        page.route("**/*", lambda route: self._pass(route, address))
        page.on("requestfailed", lambda request: self.troubles.append(f"failed: {request.url} {request.failure}"))
        page.on("console", lambda said: self.troubles.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("dialog", self._dismiss)
        page.goto(link)
        self.board: FrameLocator = page.frame_locator('iframe[src*="name=dtbench"]')

    def _dismiss(self, dialog: "Dialog") -> None:
        self.troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _pass(self, route: "Route", address: str) -> None:
        """Let requests to the server through, and no other."""
        if route.request.url.startswith((address, "data:", "blob:")):
            route.continue_()
            return
        self.troubles.append(f"outside: {route.request.url}")
        route.abort()

    def open(self, tab: str) -> None:
        self.board.get_by_role("tab", name=tab).click()
        self.board.locator(f'[role=tab][aria-selected=true]:text-is("{tab}")').wait_for()

    def text(self, selector: str) -> str:
        """Return the words of the first element, as soon as it is there."""
        return self.board.locator(selector).first.inner_text()

    def answer(self) -> list[str]:
        """Return the lines of the answer, as soon as it is there; without the signs of their tones."""
        self.board.locator("[data-part-of-page=answer]").wait_for()
        lines = self.board.locator("[data-part-of-page=answer] p").all_inner_texts()
        return [line.lstrip("✓!✕") for line in lines]

    def rows(self, selector: str) -> list[list[str]]:
        """Return the words of a table's cells, as soon as it has rows."""
        self.board.locator(f"{selector} tbody tr").first.wait_for()
        script = "table => [...table.tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent))"
        rows: list[list[str]] = self.board.locator(selector).first.evaluate(script)
        return rows


@pytest.fixture
def open_page(chromium: "Browser", address: str) -> "Iterator[Callable[..., Opened]]":
    pages: list[Opened] = []

    def open_it(link: str = "") -> Opened:
        page = chromium.new_page(viewport={"width": 1400, "height": 900})  # in a context, and so a profile, of its own
        pages.append(Opened(page, address, link or f"{address}#dtbench"))
        return pages[-1]

    yield open_it
    for opened in pages:
        opened.page.close()


def give_trace(run: Path) -> None:
    """Let a run have the trace of one rank of its first cell, and no tables but those made from it."""
    launch = RunFolder(run).launch("ddp", 0)
    for table in TABLES:
        launch.derived_table(table.name).unlink(missing_ok=True)
    put_trace("ddp_2ranks_rank0.json.gz", launch)


def change_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    change(record)
    path.write_text(json.dumps(record), encoding="utf-8")


def test_every_tab_opens_without_networking_and_shows_the_tables_numbers(
    logdir: Path, open_page: "Callable[..., Opened]"
) -> None:
    give_trace(logdir / RUN)
    shown = open_page()
    summary = summarize_run(logdir / RUN)
    cell = summary.cells[0]
    assert shown.answer() == [line.words for line in run_brief(summary).answer]
    assert doubt_facts(summary)[0].words in shown.text("[data-part-of-page=doubts]")
    assert (sentences.answer_sentence(cell) or "no answer") in shown.text('[data-cell="ddp"] [data-block=lead]')
    assert shown.text('[data-cell="ddp"] .tile-words') == format_ns(cell.step_time.median)
    assert shown.board.locator('[data-cell="ddp"] .chart [data-part="exposed_comm_ns"]').count() == len(cell.ranks)

    shown.open("Overlap")
    table = dtbench.load_run(logdir / RUN).overlap.query("cell == 'ddp'")
    exposed_ms = f"{cell.ranks[0].exposed_comm_ns / 1e6:.1f}"
    assert exposed_ms in shown.rows(".table table")[0]
    shown.board.get_by_label("A bar per").select_option("step")
    shown.board.locator(".bar-label", has_text=f"step {table['step'].iloc[-1]}").wait_for()
    assert shown.board.locator(".bar").count() == table["step"].nunique()

    shown.open("Collectives")
    collectives = dtbench.load_run(logdir / RUN).collectives.query("cell == 'ddp'").reset_index(drop=True)
    first = collectives.sort_values("exposed_ns", ascending=False, kind="stable").iloc[0]
    assert format_ns(first["exposed_ns"]) in shown.rows("table.rows")[0]
    shown.board.locator("table.rows tbody tr").first.click()
    assert shown.text(".details h3") == f"{first['owner']}'s all-reduce"
    assert shown.text(".details dd") == first["owner"]

    shown.board.get_by_role("button", name="Show in the timeline").click()
    shown.board.locator(".timeline-box canvas").first.wait_for()
    shown.board.locator(".sentence", has_text=str(first["owner"])).wait_for()
    assert shown.troubles == []


def test_the_overview_says_whether_estimates_agree_and_shows_them(
    logdir: Path, add_estimates: "Callable[[Path], None]", open_page: "Callable[..., Opened]"
) -> None:
    add_estimates(logdir / RUN)
    shown = open_page()
    cell = next(one for one in summarize_run(logdir / RUN).cells if one.name == "fsdp2_tp")
    assert cell.exposure is not None
    card = '[data-cell="fsdp2_tp"]'
    assert agreement_sentence(cell.exposure) in shown.text(f"{card} [data-block=lead]")
    section = estimates_table(cell.exposure)
    table = shown.board.locator(f"{card} .table", has_text=section.title)
    assert table.locator("tbody tr").first.locator("td").all_inner_texts() == list(section.words[0])
    shown.board.locator(f"{card} .note", has_text=dispute_sentences(cell.exposure)[0]).first.wait_for()
    assert shown.troubles == []


def test_two_runs_are_compared_in_the_words_of_the_command(
    logdir: Path, add_run: "AddRun", open_page: "Callable[..., Opened]"
) -> None:
    from dtbench.comparison.run import compare_paths

    add_run(logdir, OTHER)
    shown = open_page()
    shown.open("Compare")
    sides = [str(logdir / name / "cells" / "ddp") for name in (RUN, OTHER)]
    sentence = compare_paths(*sides, results=logdir).sentence
    assert "; ".join(shown.answer()).startswith(sentence)
    shown.board.locator("[data-part-of-page=metrics] figure svg text", has_text="step time").wait_for()
    assert shown.board.locator("[data-part-of-page=sides] .bar").count() == 2
    chosen = shown.board.get_by_label("Candidate").input_value()
    shown.board.get_by_label("Candidate").select_option(json.dumps([RUN, "ddp"], separators=(",", ":")))
    shown.board.locator(".empty", has_text="choose two different cells or runs").wait_for()
    shown.board.get_by_label("Candidate").select_option(chosen)
    assert sentence.startswith(shown.text(".answer"))
    assert shown.troubles == []


def test_the_comparison_follows_the_chosen_run_and_begins_with_its_first_cell(
    logdir: Path, add_run: "AddRun", open_page: "Callable[..., Opened]"
) -> None:
    add_run(logdir, OTHER)
    shown = open_page()
    shown.open("Compare")
    baseline, candidate = (shown.board.get_by_label(side) for side in ("Baseline", "Candidate"))
    assert json.loads(baseline.input_value()) == [RUN, "ddp"]
    shown.open("Overview")
    shown.board.locator("[data-field=run] select").select_option(RUN)
    shown.board.locator(".run-id", has_text=Path(RUN).name).wait_for()
    shown.open("Compare")
    shown.board.locator(".answer").first.wait_for()
    assert [json.loads(side.input_value()) for side in (baseline, candidate)] == [[RUN, "ddp"], [RUN, "fsdp2_tp"]]
    assert shown.troubles == []


def test_the_latest_run_that_can_be_read_is_opened_whatever_its_folder_is_called(
    logdir: Path, add_run: "AddRun", open_page: "Callable[..., Opened]"
) -> None:
    change_json(add_run(logdir, "mine/first") / "run.json", lambda record: record.update(started_unix_ns=2**61))
    change_json(add_run(logdir, "mine/again") / "run.json", lambda record: record.update(started_unix_ns=2**61 + 1))
    (add_run(logdir, "mine/zzz") / "run.json").write_text("{")
    shown = open_page()
    assert shown.text(".run-id") == "again"
    assert shown.troubles == []


def test_a_reload_and_a_link_in_another_browser_show_the_same_collective(
    logdir: Path, add_run: "AddRun", open_page: "Callable[..., Opened]"
) -> None:
    add_run(logdir, OTHER)
    shown = open_page()
    shown.board.locator("[data-field=run] select").select_option(RUN)
    shown.board.locator(".run-id", has_text=Path(RUN).name).wait_for()
    shown.open("Collectives")
    shown.board.locator("[data-field=cell] select").select_option("fsdp2_tp")
    shown.board.get_by_role("combobox", name="purpose").select_option("unshard")
    shown.board.locator(".sentence", has_text="exposed of").wait_for()
    shown.board.get_by_role("button", name="time", exact=True).click()
    shown.board.locator('th[aria-sort="descending"]', has_text="time").wait_for()
    shown.board.locator("table.rows tbody tr").nth(2).click()
    seen = read_collectives(shown)
    shown.page.reload()
    assert read_collectives(shown) == seen
    other = open_page(shown.page.url)
    assert read_collectives(other) == seen
    other.page.evaluate("location.hash = '#dtbench&p.dtbench.tab=overlap&p.dtbench.overlap.by=step'")  # is pasted
    other.board.locator('[role=tab][aria-selected=true]:text-is("Overlap")').wait_for()
    other.board.locator(".bar-label", has_text="step").first.wait_for()
    assert other.board.locator("[data-field=run] select").input_value() == OTHER
    assert shown.troubles == other.troubles == []


def read_collectives(shown: Opened) -> list[object]:
    """Return what the tab shows: run, cell, rows, the opened one, and all that is said of it."""
    shown.board.locator(".details h3").wait_for()
    choices = [shown.board.locator(f"[data-field={name}] select").input_value() for name in ("run", "cell")]
    opened = shown.board.locator("table.rows tr.chosen").get_attribute("data-row")
    return [*choices, shown.rows("table.rows"), opened, shown.text(".details")]


def test_what_is_selected_in_a_timeline_and_compared_is_in_the_link_and_other_tabs_words_stay(
    logdir: Path, add_run: "AddRun", open_page: "Callable[..., Opened]"
) -> None:
    give_trace(logdir / RUN)
    add_run(logdir, OTHER)
    shown = open_page()
    shown.page.evaluate("location.hash += '&tagFilter=loss'")  # of another plugin
    shown.board.locator("[data-field=run] select").select_option(RUN)
    shown.open("Compare")
    shown.board.get_by_role("button", name="Swap").click()
    shown.open("Collectives")
    shown.board.locator("table.rows tbody tr").first.click()
    shown.board.get_by_role("button", name="Show in the timeline").click()
    shown.board.locator(".timeline-box canvas").first.wait_for()
    shown.board.locator(".controls .sentence", has_text="rank 0").wait_for()
    said = shown.text(".controls .sentence")
    assert "tagFilter=loss" in shown.page.url
    shown.board.get_by_label("Find spans").fill("reduce")
    shown.board.locator("canvas").first.focus()
    shown.page.keyboard.press("w")
    shown.page.wait_for_url("**timeline.from=*")
    other = open_page(shown.page.url)
    other.board.locator(".controls .sentence", has_text=said).wait_for()
    counted = shown.text(".dtb-count")
    assert " of " in counted
    assert other.text(".dtb-count") == counted
    assert other.page.url == shown.page.url
    other.open("Compare")
    sides = [json.loads(other.board.get_by_label(side).input_value()) for side in ("Baseline", "Candidate")]
    assert sides == [[RUN, "fsdp2_tp"], [RUN, "ddp"]]
    assert shown.troubles == other.troubles == []


def test_a_link_to_a_run_that_is_gone_says_so(address: str, open_page: "Callable[..., Opened]") -> None:
    shown = open_page(f"{address}#dtbench&p.dtbench.run=quickstart%2Fgone")
    shown.board.locator(".message", has_text="The run quickstart/gone is not here (any more)").wait_for()
    assert shown.text(".run-id") == Path(RUN).name
    shown.page.reload()
    shown.board.locator(".run-id").wait_for()
    assert shown.board.locator(".message").inner_text() == ""


def test_tabs_and_rows_are_reached_by_keyboard(open_page: "Callable[..., Opened]") -> None:
    shown = open_page()
    shown.board.get_by_role("tab", name="Overview").focus()
    shown.page.keyboard.press("ArrowRight")
    assert shown.text("[role=tab][aria-selected=true]") == "Overlap"
    shown.page.keyboard.press("End")
    assert shown.text("[role=tab][aria-selected=true]") == "Compare"
    shown.open("Collectives")
    shown.board.get_by_label("Show").select_option("owner")
    shown.board.locator("table.rows th", has_text="count").wait_for()
    owner = shown.rows("table.rows")[0][2]
    shown.board.locator("table.rows tbody tr").first.focus()
    shown.page.keyboard.press("Enter")
    shown.board.locator("button.chip").wait_for()
    assert {row[2] for row in shown.rows("table.rows")} == {owner}
    shown.board.get_by_role("button", name="time").click()
    shown.board.locator('th[aria-sort="descending"]', has_text="time").wait_for()
    assert shown.troubles == []


CUT = """main => [...main.querySelectorAll("th")].filter(head => /^(exposed|.*cause|mostly)/.test(head.textContent))
    .filter(head => head.getBoundingClientRect().right > head.closest(".scroller").getBoundingClientRect().right + 1)
    .map(head => head.textContent)"""
"""Heads of columns of exposed time and causes that lie beyond the edge of what scrolls."""


def test_at_no_width_is_a_column_cut_that_says_what_was_exposed_or_why(
    logdir: Path, add_run: "AddRun", open_page: "Callable[..., Opened]"
) -> None:
    add_run(logdir, OTHER)
    shown = open_page()
    for width in (1400, 900, 640):
        shown.page.set_viewport_size({"width": width, "height": 900})
        for tab in ("Overview", "Overlap", "Collectives", "Compare"):
            shown.open(tab)
            if tab == "Collectives":
                shown.board.locator("table.rows tbody tr").first.click()
                shown.board.locator(".details th", has_text="cause").wait_for()
            shown.board.locator("main th").first.wait_for()
            shown.page.wait_for_timeout(100)  # what watches widths is told after the next frame
            assert shown.board.locator("main").evaluate(CUT) == [], (width, tab)
    shown.open("Overview")
    heads = shown.board.locator("[data-part-of-page=cells] th")
    heads.filter(has_text="ranks").wait_for()
    natural, row = heads.all_inner_texts(), shown.rows("[data-part-of-page=cells] table")[0]
    scroller = shown.board.locator("[data-part-of-page=cells] .scroller")
    scroller.evaluate("scroller => (scroller.style.width = '300px')")  # no room, whatever the font
    heads.nth(1).filter(has_text="exposed comm").wait_for()
    assert shown.rows("[data-part-of-page=cells] table")[0][1] == row[natural.index("exposed comm")]
    scroller.evaluate("scroller => (scroller.style.width = '1300px')")
    heads.nth(1).filter(has_text="ranks").wait_for()
    assert shown.rows("[data-part-of-page=cells] table")[0] == row
    assert shown.troubles == []


def test_words_in_a_bar_are_shown_where_their_part_has_room_for_them(open_page: "Callable[..., Opened]") -> None:
    too_wide = """main => [...main.querySelectorAll("svg.bar g")].flatMap(group => {
        const words = group.querySelector("text.words:not([hidden])");
        return words && words.getBBox().width > group.querySelector("rect").getBBox().width ? [words.textContent] : [];
    })"""
    shown = open_page()
    shown.page.set_viewport_size({"width": 640, "height": 900})
    shown.board.locator("svg.bar text.words[hidden]").first.wait_for(state="attached")
    assert shown.board.locator("main").evaluate(too_wide) == []
    narrow = shown.board.locator("svg.bar text.words:not([hidden])").count()
    shown.page.set_viewport_size({"width": 1400, "height": 900})
    shown.page.wait_for_timeout(200)  # what watches widths is told after the next frame
    assert shown.board.locator("main").evaluate(too_wide) == []
    assert shown.board.locator("svg.bar text.words:not([hidden])").count() > narrow > 0
    assert shown.troubles == []


def test_a_person_gives_a_column_its_width_and_it_stays_when_the_table_is_sorted(
    open_page: "Callable[..., Opened]",
) -> None:
    shown = open_page()
    shown.open("Collectives")
    head = shown.board.locator("table.rows th", has_text="owner")
    head.wait_for()
    before = head.evaluate("head => head.offsetWidth")
    shown.board.get_by_role("separator", name="width of owner").focus()
    for _ in range(3):
        shown.page.keyboard.press("ArrowRight")
    assert abs(head.evaluate("head => head.offsetWidth") - before - 48) <= 1
    box = shown.board.get_by_role("separator", name="width of owner").bounding_box()
    assert box is not None
    shown.page.mouse.move(box["x"] + 4, box["y"] + 4)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] - 16, box["y"] + 4)
    shown.page.mouse.up()
    shown.board.get_by_role("button", name="time").click()
    shown.board.locator('th[aria-sort="descending"]', has_text="time").wait_for()
    assert abs(head.evaluate("head => head.offsetWidth") - before - 28) <= 1
    shown.board.get_by_role("separator", name="width of owner").dblclick()
    assert abs(head.evaluate("head => head.offsetWidth") - before) <= 2
    assert shown.troubles == []


def test_names_that_contain_markup_appear_as_text(logdir: Path, open_page: "Callable[..., Opened]") -> None:
    cell, owner, question = "<img src=x onerror=alert(1)>", "<b onclick=alert(2)>mine", "<script>alert(3)</script>?"
    run = logdir / RUN
    (run / "cells" / "ddp").rename(run / "cells" / cell)
    change_json(run / "run.json", lambda record: record.update(name="<i>scenario", question=question))
    change_json(run / "run.json", lambda record: record["cells"][0].update(name=cell))
    change_json(run / "run.json", lambda record: record.pop("checklist"))  # of the cell's old name
    change_json(run / "cells" / cell / "launch0" / "launch.json", lambda record: record.update(cell=cell))
    change_json(run / "env.json", lambda record: record.update(host="<svg onload=alert(4)>"))
    path = RunFolder(run).launch(cell, 0).derived_table("collectives")
    table = pd.read_parquet(path)
    table["owner"] = owner
    table.to_parquet(path)
    shown = open_page()
    assert shown.text(".question") == question
    assert "<svg onload=alert(4)>" in shown.text(".place")
    assert shown.text(".cell h3").startswith(cell)
    assert "<i>scenario" in shown.text("h2")
    shown.open("Collectives")
    assert shown.rows("table.rows")[0][2] == owner
    shown.board.locator("table.rows tbody tr").first.click()
    assert shown.text(".details dd") == owner
    for tab in ("Overlap", "Compare"):
        shown.open(tab)
        shown.board.locator("main select option", has_text="rank" if tab == "Overlap" else cell).first.wait_for(
            state="attached"
        )
    assert shown.board.locator("main img, main script, main svg[onload], main b[onclick]").count() == 0
    assert shown.troubles == []


def test_a_run_in_progress_is_followed_to_its_end(logdir: Path, open_page: "Callable[..., Opened]") -> None:
    run = logdir / RUN
    change_json(run / "run.json", lambda record: record.update(status="running", ended_unix_ns=None))
    launch, aside = RunFolder(run).launch("fsdp2_tp", 0), logdir.parent / "aside"
    launch.path.rename(aside)
    with JournalWriter(launch.journal(0), rank=0, pid=1, capacity=10) as journal:
        journal.begin(time.time_ns())
        journal.enter_step(Phase.MEASURED, 9, time.time_ns())
    shown = open_page()
    shown.board.locator(".progress", has_text="1 of 2 launches have ended").wait_for()
    shown.board.locator(".progress dd", has_text="MEASURED 0 of 8 steps").wait_for()
    assert shown.text('[data-cell="fsdp2_tp"] [data-block=problem]').startswith("!This cell is not finished")
    shutil.rmtree(launch.path)
    aside.rename(launch.path)
    change_json(run / "run.json", lambda record: record.update(status="complete", ended_unix_ns=2))
    shown.board.locator(".status-complete").wait_for()
    shown.board.locator('[data-cell="fsdp2_tp"] .chart').wait_for()
    assert shown.troubles == []


def test_plain_traces_have_every_tab(logdir: Path, open_page: "Callable[..., Opened]") -> None:
    shutil.rmtree(logdir / "quickstart")
    shutil.copytree(TRACE.parent / "pipelines" / "1f1b", logdir, dirs_exist_ok=True)
    shown = open_page()
    assert shown.answer()[0] == traces_brief(dtbench.read_trace(logdir).traces).answer[0].words
    shown.open("Overlap")
    assert len(shown.rows(".table table")) == 2
    shown.open("Timeline")
    shown.board.locator(".timeline-box canvas").first.wait_for()
    shown.open("Collectives")
    shown.board.locator("table.rows tbody tr").first.click()
    shown.board.locator(".details th", has_text="cause").wait_for()
    shown.open("Compare")
    shown.board.locator(".empty", has_text="there is one here").wait_for()
    assert shown.troubles == []


def test_what_cannot_be_read_is_a_sentence_on_the_page(logdir: Path, open_page: "Callable[..., Opened]") -> None:
    path = logdir / RUN / "cells/ddp/launch0/collectives.parquet"
    shown = open_page()
    shown.open("Timeline")
    shown.board.locator(".error", has_text="no trace is there").wait_for()
    path.write_bytes(b"no parquet")
    shown.open("Collectives")
    shown.board.locator(".error", has_text="not a readable table").wait_for()
    assert [line for line in shown.troubles if "status of 500" not in line] == []
