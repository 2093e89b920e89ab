"""The canvas in headless Chromium: what is drawn where, what mouse and keys do, what is said of a collective."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtbench.base.units import format_bytes, format_ns
from dtbench.report.timeline import timeline_html, timeline_page
from dtbench.report.timeline.document import LaneColumns, RankColumns, TimelineDocument

Show = Callable[[TimelineDocument], Any]

COMPUTE, HIDDEN, EXPOSED, COPY, PAPER = (0, 114, 178), (247, 221, 164), (230, 159, 0), (204, 121, 167), (255, 255, 255)
INK, HOST = (31, 35, 40), (89, 99, 110)
WIDTH = 1000
US = 1_000


def state(page: Any) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate("window.timeline.state()")
    return found


def row_of(page: Any, lane: str, rank: int = 0) -> dict[str, float]:
    found: dict[str, float] = next(
        row for row in state(page)["rows"] if row["rank"] == rank and row.get("lane") == lane
    )
    return found


def x_of(page: Any, moment_ns: int) -> float:
    now = state(page)
    part = (moment_ns - now["start_ns"]) / (now["end_ns"] - now["start_ns"])
    return float(now["gutter"] + part * (canvas_width(page) - now["gutter"]))


def canvas_width(page: Any) -> int:
    return int(page.evaluate("document.querySelector('canvas').clientWidth"))


def colour_at(page: Any, x: float, y: float) -> tuple[int, ...]:
    script = "([x, y]) => [...document.querySelector('canvas').getContext('2d').getImageData(x, y, 1, 1).data]"
    return tuple(page.evaluate(script, [x, y])[:3])


def settle(page: Any) -> None:
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def find(page: Any, words: str) -> None:
    """Type what is looked for, and wait until it was: where that takes long, it is when a person stops typing."""
    page.get_by_label("Find spans").fill(words)
    page.wait_for_function("!window.timeline.state().isLooking")
    settle(page)


def focus(page: Any) -> None:
    page.evaluate("document.querySelector('canvas').focus()")


def click_lane(page: Any, lane: str, moment_ns: int, rank: int = 0) -> None:
    row = row_of(page, lane, rank)
    box = page.locator("canvas").bounding_box()
    page.mouse.click(box["x"] + x_of(page, moment_ns), box["y"] + row["y"] + row["height"] / 2)
    settle(page)


def test_every_span_is_drawn_in_its_colour_where_it_ran(show: Show, document: TimelineDocument) -> None:
    page = show(document)
    compute, comm, copy = (
        row_of(page, lane)["y"] + 3 for lane in ("stream 7 · compute", "stream 20 · shard", "stream 22 · copy")
    )
    assert colour_at(page, x_of(page, 300 * US), compute) == COMPUTE
    assert colour_at(page, x_of(page, 500 * US), compute) == PAPER
    assert colour_at(page, x_of(page, 350 * US), comm) == HIDDEN
    assert colour_at(page, x_of(page, 100 * US), comm) == PAPER
    low = row_of(page, "stream 22 · copy")
    assert colour_at(page, x_of(page, 895 * US), low["y"] + low["height"] - 6) == COPY
    assert colour_at(page, x_of(page, 895 * US), copy) == PAPER  # copies are half as high


def test_exposed_time_is_hatched_in_its_lane_and_in_the_strip_of_its_rank(
    show: Show, document: TimelineDocument
) -> None:
    page = show(document)
    comm = row_of(page, "stream 20 · shard")
    head = next(row for row in state(page)["rows"] if row["type"] == "rank")
    for y in (comm["y"] + comm["height"] - 12, head["y"] + head["height"] - 3):
        seen = [colour_at(page, x_of(page, 500 * US) + offset, y) for offset in range(12)]
        assert EXPOSED in seen
        assert min(sum(colour) for colour in seen) < sum(EXPOSED) // 2  # a dark line of the hatch
    assert colour_at(page, x_of(page, 300 * US), head["y"] + head["height"] - 3) not in (EXPOSED, HIDDEN)


def test_what_is_marked_as_exposed_adds_up_to_what_is_counted(show: Show, document: TimelineDocument) -> None:
    page = show(document)
    assert state(page)["exposed_ns"] == {"0": 300 * US, "1": 300 * US}
    page.evaluate("window.timeline.zoomTo(450000, 950000)")
    assert state(page)["exposed_ns"] == {"0": 200 * US, "1": 200 * US}


def test_a_wheel_zooms_about_the_pointer(show: Show, document: TimelineDocument) -> None:
    page = show(document)
    box = page.locator("canvas").bounding_box()
    x = x_of(page, 250 * US)
    page.mouse.move(box["x"] + x, box["y"] + 100)
    page.mouse.wheel(0, -300)
    settle(page)
    now = state(page)
    assert now["end_ns"] - now["start_ns"] == pytest.approx(1_000_000 * 1.0018**-300)
    assert x_of(page, 250 * US) == pytest.approx(x, abs=0.5)


@pytest.mark.parametrize(
    ("key", "start", "end"),
    [
        ("w", 150_000, 850_000),
        ("+", 150_000, 850_000),
        ("d", 20_000, 1_020_000),  # it may be moved a little beyond its ends
        ("ArrowLeft", -20_000, 980_000),
    ],
)
def test_keys_zoom_and_move(show: Show, document: TimelineDocument, key: str, start: int, end: int) -> None:
    page = show(document)
    focus(page)
    page.keyboard.press(key)
    assert (state(page)["start_ns"], state(page)["end_ns"]) == pytest.approx((start, end))
    page.keyboard.press("f")
    assert (state(page)["start_ns"], state(page)["end_ns"]) == (0, 1_000_000)


def test_keys_work_at_once_and_not_while_a_person_types(show: Show, document: TimelineDocument) -> None:
    page = show(document)
    page.keyboard.press("w")
    zoomed = (150_000, 850_000)
    assert (state(page)["start_ns"], state(page)["end_ns"]) == pytest.approx(zoomed)
    page.evaluate("document.body.append(document.createElement('textarea'))")
    page.locator("textarea").focus()
    page.keyboard.type("wsfn")
    assert (state(page)["start_ns"], state(page)["end_ns"]) == pytest.approx(zoomed)
    page.evaluate("document.querySelector('textarea').blur()")
    page.keyboard.press("Control+f")
    assert (state(page)["start_ns"], state(page)["end_ns"]) == pytest.approx(zoomed)


def test_keys_that_scroll_a_page_scroll_it_and_keys_are_not_those_of_a_timeline_out_of_sight(
    show: Show, document: TimelineDocument
) -> None:
    page = show(document)
    page.evaluate("document.body.append(Object.assign(document.createElement('div'), {style: 'height: 3000px'}))")
    page.evaluate("scrollTo(0, 2000)")
    page.keyboard.press("w")
    assert (state(page)["start_ns"], state(page)["end_ns"]) == (0, 1_000_000)
    page.evaluate("scrollTo(0, 0)")
    page.keyboard.press("w")
    assert state(page)["start_ns"] == pytest.approx(150_000)
    page.keyboard.press("PageDown")
    page.wait_for_function("scrollY > 0")


def test_in_a_notebook_keys_are_the_timelines_under_the_pointer(
    page: Any, document: TimelineDocument, site: str, tmp_path: Path
) -> None:
    (tmp_path / "notebook.html").write_text(
        f'<link rel="icon" href="data:,"><button>a cell</button>{timeline_html(document)}{timeline_html(document)}',
        encoding="utf-8",
    )
    page.goto(f"{site}/notebook.html")
    page.wait_for_function("() => document.querySelectorAll('.dtb-timeline').length === 2")
    settle(page)
    page.get_by_role("button", name="a cell").focus()
    page.keyboard.press("n")
    assert page.locator(".dtb-says").all_inner_texts() == ["", ""]
    page.locator("canvas").first.hover()
    page.keyboard.press("n")
    first, second = page.locator(".dtb-says").all_inner_texts()
    assert "gradient reduction" in first
    assert second == ""
    page.mouse.move(2, 2)  # and the focus, which it had for so long, is a cell's again
    assert page.evaluate("document.activeElement.tagName") == "BUTTON"
    page.keyboard.press("p")
    assert page.locator(".dtb-says").all_inner_texts() == [first, ""]


def test_dragging_moves_and_shift_dragging_zooms_to_the_range(show: Show, document: TimelineDocument) -> None:
    page = show(document)
    page.evaluate("window.timeline.zoomTo(200000, 600000)")
    box = page.locator("canvas").bounding_box()
    start = x_of(page, 400 * US)
    page.mouse.move(box["x"] + start, box["y"] + 15)
    page.mouse.down()
    page.mouse.move(box["x"] + x_of(page, 500 * US), box["y"] + 15, steps=3)
    page.mouse.up()
    assert (state(page)["start_ns"], state(page)["end_ns"]) == pytest.approx((100 * US, 500 * US), abs=2 * US)
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + x_of(page, 200 * US), box["y"] + 15)
    page.mouse.down()
    page.mouse.move(box["x"] + x_of(page, 300 * US), box["y"] + 15, steps=3)
    page.mouse.up()
    page.keyboard.up("Shift")
    assert (state(page)["start_ns"], state(page)["end_ns"]) == pytest.approx((200 * US, 300 * US), abs=2 * US)
    assert page.evaluate("window.chosen") == []


def test_a_click_on_a_collective_tells_its_owner(show: Show, document: TimelineDocument, markup: str) -> None:
    page = show(document)
    click_lane(page, "stream 20 · shard", 300 * US)
    (chosen,) = page.evaluate("window.chosen")
    assert chosen["id"] == "collective:0:3"
    assert chosen["collective"]["owner"] == f"layers.0 {markup}"
    assert (chosen["start_ns"], chosen["duration_ns"]) == (200 * US, 400 * US)
    shown = page.locator(".dtb-details").inner_text()
    for words in (
        markup,
        "4.00 KiB",
        "2.50 GB/s",
        "200 us",
        "bandwidth",
        "150 us",
        "group 0, 2 ranks",
        "41",
        "rank 1, 50.0 us",
    ):
        assert words in shown
    assert "The same on 2 ranks" in shown


def test_a_wait_for_nobody_knows_whom_is_told_too(
    show: Show, document: TimelineDocument, one_rank: RankColumns
) -> None:
    collectives = replace(one_rank.collectives, last_rank=[None, None])
    page = show(replace(document, ranks=[replace(one_rank, collectives=collectives)]))
    click_lane(page, "stream 20 · shard", 300 * US)
    assert "other ranks, 50.0 us" in page.locator(".dtb-details").inner_text()
    page.evaluate("window.timeline.select({rank: 0, index: 4})")
    assert "waited for" not in page.locator(".dtb-details dt").all_inner_texts()


def test_the_same_collective_of_another_rank_is_outlined_and_can_be_chosen(
    show: Show, document: TimelineDocument
) -> None:
    page = show(document)
    other = row_of(page, "stream 20 · shard", rank=1)
    plain = colour_at(page, x_of(page, 350 * US), other["y"])
    click_lane(page, "stream 20 · shard", 300 * US)
    assert plain != (0, 0, 0)
    assert colour_at(page, x_of(page, 350 * US), row_of(page, "stream 20 · shard", rank=1)["y"]) == (0, 0, 0)
    page.get_by_role("button", name="rank 1: 400 us, exposed 200 us, starts +0 ns").click()
    assert state(page)["selected"] == "collective:1:3"


def test_hovering_says_what_it_is(show: Show, document: TimelineDocument, markup: str) -> None:
    page = show(document)
    row = row_of(page, "stream 7 · compute")
    box = page.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + x_of(page, 650 * US), box["y"] + row["y"] + 5)
    shown = page.locator(".dtb-tip").inner_text()
    assert markup in shown
    assert "100 us" in shown
    page.mouse.move(box["x"] + x_of(page, 750 * US), box["y"] + row["y"] + 5)
    assert not page.locator(".dtb-tip").is_visible()


def test_names_with_markup_are_text_everywhere(show: Show, document: TimelineDocument, markup: str) -> None:
    page = show(document)
    click_lane(page, "stream 20 · shard", 300 * US)
    assert page.locator("img").count() == 0
    assert page.locator("body script").count() == 1
    assert markup in page.locator(".dtb-title").inner_text()
    assert markup in page.locator(".dtb-notes").inner_text()


def test_n_and_p_go_through_exposed_collectives_and_escape_lets_go(show: Show, document: TimelineDocument) -> None:
    page = show(document)
    focus(page)
    seen = []
    for key in ("n", "n", "n", "p", "Escape"):
        page.keyboard.press(key)
        seen.append(state(page)["selected"])
    assert seen == ["collective:0:3", "collective:1:3", "collective:0:4", "collective:1:3", None]
    assert [one and one["id"] for one in page.evaluate("window.chosen")] == seen


def test_the_largest_exposed_collective_comes_first_and_then_the_next_largest(
    show: Show, document: TimelineDocument
) -> None:
    page = show(document)
    seen = []
    for key in ("l", "l", "l", "Escape", "l"):
        page.keyboard.press(key)
        seen.append(state(page)["selected"])
    assert seen == ["collective:0:3", "collective:1:3", "collective:0:4", None, "collective:0:3"]
    page.get_by_role("button", name="largest exposed collective").click()
    assert state(page)["selected"] == "collective:1:3"


LOOKED_FOR = {
    "gemm": ["span:0:0:0", "span:1:0:0"],
    "LAYERS.0": ["collective:0:3", "collective:1:3"],
    "longer than": ["collective:0:3", "collective:1:3", "collective:0:4", "collective:1:4"],  # a cause, in words
    "skew": ["collective:0:3", "collective:1:3"],  # a part of its exposed time alone
    "all-reduce unattributed": ["collective:0:4", "collective:1:4"],
    "nobody is called so": [],
}


@pytest.mark.parametrize("text", list(LOOKED_FOR))
def test_spans_are_found_by_name_owner_and_cause_and_counted(show: Show, document: TimelineDocument, text: str) -> None:
    page = show(document)
    page.keyboard.press("/")
    page.keyboard.type(text)
    found = LOOKED_FOR[text]
    assert page.locator(".dtb-count").inner_text() == (f"{len(found)} found" if found else "none")
    seen = []
    for place in range(len(found)):
        page.keyboard.press("Enter")
        seen.append(state(page)["selected"])
        assert page.locator(".dtb-count").inner_text() == f"{place + 1} of {len(found)}"
    assert seen == found
    if found:
        page.keyboard.press("Shift+Enter")
        assert state(page)["selected"] == found[max(len(found) - 2, 0)]
    page.keyboard.press("Escape")
    assert page.locator(".dtb-count").inner_text() == ""


def test_what_is_found_is_marked_below_it_also_in_folded_ranks(
    show: Show, document: TimelineDocument, many_ranks: TimelineDocument
) -> None:
    page = show(document)
    row = row_of(page, "stream 7 · compute")
    below = row["y"] + row["height"] - 2
    assert colour_at(page, x_of(page, 300 * US), below) == PAPER
    find(page, "gemm")
    assert colour_at(page, x_of(page, 300 * US), below) == INK
    assert colour_at(page, x_of(page, 650 * US), below) == PAPER
    page = show(many_ranks)
    find(page, "gemm")
    row = state(page)["rows"][1]
    assert colour_at(page, x_of(page, 300 * US), row["y"] + row["height"] - 2) == INK
    page.get_by_label("Ranks to show").fill("3, 60")
    assert page.locator(".dtb-count").inner_text() == "2 found"


def test_a_person_reads_words_and_no_keys(show: Show, document: TimelineDocument) -> None:
    page = show(document)
    click_lane(page, "stream 20 · shard", 300 * US)
    shown = page.locator(".dtb-details").inner_text()
    for words in ("longer than what hides it", "waited for other ranks", "gradient reduction", "all-reduce"):
        assert words in shown
    assert not re.search(r"[a-z]_[a-z]|busbw|seq", shown)
    assert (
        page.evaluate(
            """async (words) => {
          const {spellKeys} = await import("./timeline.js");
          return spellKeys("stream 4 · dp_shard: grad_reduce, all_to_all", words);
        }""",
            document.words,
        )
        == "stream 4 · dp_shard: gradient reduction, all-to-all"
    )
    assert "gradient reduction" in page.locator(".dtb-legend").inner_text()


def test_names_are_shortened_around_what_tells_them_apart(page: Any, show: Show, document: TimelineDocument) -> None:
    show(document)
    names = ["layers.10.attention.wq", "layers.10.attention.wk", "layers.2.attention.wk", "gemm_a_and_a_long_tail"]
    script = """async (names) => {
      const {findDifferences, shortenTo} = await import("./timeline.js");
      const places = findDifferences(names);
      return [30, 12, 8, 4, 2].map((most) => names.map((name) => shortenTo(name, most, places.get(name))));
    }"""
    assert page.evaluate(script, names) == [
        names,
        ["lay…ntion.wq", "lay…ntion.wk", "layers.2.at…", "gemm_a_and_…"],
        ["la…on.wq", "la…on.wk", "la….2.a…", "gemm_a_…"],
        ["….wq", "….wk", "…2.…", "gem…"],
        [""] * 4,
    ]


def test_a_thread_is_named_once_and_then_what_its_rows_hold(page: Any, show: Show, hosted: TimelineDocument) -> None:
    show(hosted)
    script = """async (threads) => {
      const {labelHost, prepareThreads} = await import("./timeline.js");
      return prepareThreads(threads, 3).lanes.map(labelHost);
    }"""
    (thread,) = json.loads(hosted.to_json())["ranks"][0]["host"]
    bare = {**thread, "name": "thread 2 · autograd", "ranges": {"text": [], "start": [], "duration": [], "level": []}}
    labels = ["thread 1", "", "operators", "calls", "thread 2 · autograd", "calls"]
    assert page.evaluate(script, [thread, bare]) == labels


def test_a_kernel_is_called_by_its_function(page: Any, show: Show, document: TimelineDocument) -> None:
    show(document)
    names = {
        "void at::native::(anonymous namespace)::foo<4, bar>(int)": "foo",
        "attention<bf16>(float*)": "attention",  # of no namespace: all its letters
        "aten::mm": "aten::mm",
        "(unnamed)": "(unnamed)",
    }
    script = "async (names) => { const {shorten} = await import('./timeline.js'); return names.map(shorten); }"
    assert page.evaluate(script, list(names)) == list(names.values())


def test_what_is_shown_is_told_and_a_timeline_can_be_opened_with_it(show: Show, many_ranks: TimelineDocument) -> None:
    page = show(many_ranks)
    page.get_by_label("Ranks to show").fill("3, 60")
    find(page, "gemm")
    page.evaluate("window.timeline.select({rank: 60, index: 4})")
    page.evaluate("window.timeline.zoomTo(500000, 1000000)")
    page.wait_for_function("window.told.length && window.told.at(-1).from === '500000'")
    told = page.evaluate("window.told.at(-1)")
    assert (
        told.items()
        >= {
            "from": "500000",
            "to": "1000000",
            "selected": "collective:60:4",
            "ranks": "3, 60",
            "find": "gemm",
        }.items()
    )
    shown = state(page)
    page.evaluate("window.timeline.setState({})")
    assert (state(page)["selected"], len(state(page)["ranks"])) == (None, 64)
    page.evaluate("(told) => window.timeline.setState(told)", told)
    again = state(page)
    for key in ("start_ns", "end_ns", "selected", "ranks", "scroll", "found"):
        assert again[key] == shown[key]
    page.evaluate("window.timeline.setState({from: 'x', to: '7', selected: 'span:9', folded: '1-', scroll: '-'})")
    assert (state(page)["start_ns"], state(page)["end_ns"], state(page)["selected"]) == (0, 1_000_000, None)
    assert "what this address selects is not drawn here" in page.locator(".dtb-notes").inner_text()


def test_the_address_of_a_page_keeps_what_it_shows(chromium: Any, document: TimelineDocument, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(timeline_page(document), encoding="utf-8")
    page = chromium.new_page(viewport={"width": 1000, "height": 700})
    page.goto(f"{file.as_uri()}#other=1")
    page.keyboard.press("l")
    page.keyboard.press("w")
    page.wait_for_url("**#other=1&timeline.from=*")
    address = page.url
    page.reload()
    page.wait_for_selector("canvas")
    said = page.locator(".dtb-details h3").inner_text()
    page.close()
    other = chromium.new_page(viewport={"width": 640, "height": 700})
    other.goto(address)
    other.wait_for_selector("canvas")
    assert other.locator(".dtb-details h3").inner_text() == said
    other.evaluate("location.hash = '#timeline.selected=collective:1:4'")
    other.wait_for_function("(said) => document.querySelector('.dtb-details h3').textContent !== said", arg=said)
    there = other.locator(".dtb-details h3").inner_text()
    other.evaluate("location.hash = '#elsewhere'")
    settle(other)
    assert other.locator(".dtb-details h3").inner_text() == there
    other.keyboard.press("Escape")
    other.keyboard.press("f")
    other.wait_for_function("location.hash === ''")
    other.close()


@pytest.mark.parametrize("size", [(1400, 900), (900, 700), (640, 900)])
def test_a_page_of_its_own_fills_the_window(
    chromium: Any, document: TimelineDocument, tmp_path: Path, size: tuple[int, int]
) -> None:
    file = tmp_path / "page.html"
    file.write_text(timeline_page(document), encoding="utf-8")
    page = chromium.new_page(viewport={"width": size[0], "height": size[1]})
    page.goto(file.as_uri())
    page.wait_for_selector("canvas")
    page.keyboard.press("l")
    settle(page)
    bottom = page.locator(".dtb-timeline").evaluate("(one) => one.getBoundingClientRect().bottom")
    assert size[1] - 40 <= bottom <= size[1]
    assert page.evaluate("document.documentElement.scrollHeight") == size[1]
    assert page.evaluate("document.documentElement.scrollWidth") == size[0]
    details, canvas = (page.locator(part).bounding_box() for part in (".dtb-details", ".dtb-canvas"))
    beside, below = canvas["x"] + canvas["width"] <= details["x"], canvas["y"] + canvas["height"] <= details["y"]
    assert (beside, below) == ((True, False) if size[0] > 720 else (False, True))
    page.close()


def test_rows_of_the_host_lie_below_the_device_and_name_ranges_and_operators(
    show: Show, hosted: TimelineDocument
) -> None:
    page = show(hosted)
    lanes = [row["lane"] for row in state(page)["rows"] if row["type"] == "lane"]
    host = ["thread 1 · ranges", "thread 1 · ranges", "thread 1 · operators", "thread 1 · calls"]
    assert lanes == ["stream 7 · compute", "stream 20 · shard", "stream 22 · copy", *host]
    operators = row_of(page, "thread 1 · operators")
    assert colour_at(page, x_of(page, 240 * US), operators["y"] + 2) == HOST
    assert colour_at(page, x_of(page, 300 * US), operators["y"] + 2) == PAPER
    click_lane(page, "thread 1 · ranges", 50 * US)
    shown = page.locator(".dtb-details").inner_text()
    for words in ("FSDP::pre_forward (layers.0)", "host", "900 us"):
        assert words in shown
    assert state(page)["exposed_ns"] == {"0": 300 * US}
    page.keyboard.press("h")
    assert [row["lane"] for row in state(page)["rows"] if row["type"] == "lane"] == lanes[:3]
    page.get_by_role("button", name="rows of the host").click()
    assert [row["lane"] for row in state(page)["rows"] if row["type"] == "lane"] == lanes


def test_a_kernel_leads_to_its_launch_and_a_launch_to_all_that_it_launched(
    show: Show, hosted: TimelineDocument
) -> None:
    page = show(hosted)
    calls = row_of(page, "thread 1 · calls")
    plain = colour_at(page, x_of(page, 310 * US), calls["y"])
    click_lane(page, "stream 22 · copy", 850 * US)
    assert colour_at(page, x_of(page, 310 * US), row_of(page, "thread 1 · calls")["y"]) == (0, 0, 0) != plain
    assert "500 us before its start, by cudaLaunchKernel" in page.locator(".dtb-details").inner_text()
    page.get_by_role("button", name="Show its launch").click()
    assert state(page)["selected"] == "span:0:6:1"
    led = page.locator(".dtb-others button")
    assert led.all_inner_texts() == ["gradient reduction · all-reduce", "copy"]
    led.first.click()
    assert state(page)["selected"] == "collective:0:4"
    click_lane(page, "stream 7 · compute", 650 * US)
    assert "before its start" not in page.locator(".dtb-details").inner_text()
    assert page.locator(".dtb-others").count() == 0


def test_the_first_launches_can_be_reached_though_they_were_before_all_work(
    show: Show, hosted: TimelineDocument
) -> None:
    page = show(hosted)
    assert state(page)["start_ns"] == 0
    click_lane(page, "stream 7 · compute", 100 * US)
    page.get_by_role("button", name="Show its launch").click()
    now = state(page)
    assert now["start_ns"] < -40 * US < now["end_ns"]


def test_what_was_not_recorded_of_a_host_has_a_row_that_says_so(
    show: Show, document: TimelineDocument, one_rank: RankColumns
) -> None:
    page = show(replace(document, ranks=[replace(one_rank, host_lacks=["operators", "launches"])]))
    assert [row["type"] for row in state(page)["rows"]][-1] == "lacking"
    page.keyboard.press("h")
    assert "lacking" not in [row["type"] for row in state(page)["rows"]]


def test_hosts_of_many_ranks_come_when_asked_for_and_what_is_found_there_shows_them(
    show: Show, document: TimelineDocument, hosted: TimelineDocument
) -> None:
    (rank,) = hosted.ranks
    page = show(replace(document, ranks=[replace(rank, rank=number) for number in range(10)]))
    assert {row["type"] for row in state(page)["rows"]} == {"folded"}
    find(page, "pre_forward")
    assert page.locator(".dtb-count").inner_text() == "10 found"
    page.get_by_label("Find spans").press("Enter")
    now = state(page)
    assert (now["selected"], {row["rank"] for row in now["rows"] if row["type"] == "lane"}) == ("span:0:3:0", {0})
    page.wait_for_function("window.told.at(-1)?.host === 'on'")
    assert page.evaluate("window.told.at(-1).folded") == "1-9"


def test_a_collective_can_be_selected_from_outside(show: Show, document: TimelineDocument) -> None:
    page = show(document)
    assert page.evaluate("window.timeline.select({rank: 1, index: 4})") is True
    assert state(page)["selected"] == "collective:1:4"
    assert page.evaluate("window.timeline.select('collective:1:99')") is False
    assert page.evaluate("window.timeline.select('span:9:0:0')") is False
    assert page.evaluate("window.timeline.select(null)") is True
    assert state(page)["selected"] is None


def test_many_ranks_are_folded_scroll_and_can_be_picked(show: Show, many_ranks: TimelineDocument) -> None:
    page = show(many_ranks)
    assert {row["type"] for row in state(page)["rows"]} == {"folded"}
    focus(page)
    page.keyboard.press("PageDown")
    assert state(page)["scroll"] > 0
    page.get_by_label("Ranks to show").fill("3-4, 60")
    now = state(page)
    assert (now["ranks"], now["scroll"]) == ([3, 4, 60], 0)
    assert {row["type"] for row in now["rows"]} == {"rank", "regions", "lane"}
    page.get_by_label("Ranks to show").fill("")
    assert len(state(page)["ranks"]) == 64


def test_what_is_selected_is_in_sight_beside_its_description(show: Show, many_ranks: TimelineDocument) -> None:
    page = show(many_ranks)
    page.set_viewport_size({"width": 640, "height": 520})
    settle(page)
    page.evaluate("window.timeline.select({rank: 40, index: 3})")
    settle(page)
    row = next(row for row in state(page)["rows"] if row["rank"] == 40)
    height = page.evaluate("document.querySelector('canvas').clientHeight")
    assert 24 <= row["y"] <= row["y"] + row["height"] <= height


def test_a_folded_rank_shows_its_exposed_collectives(show: Show, many_ranks: TimelineDocument) -> None:
    page = show(many_ranks)
    box = page.locator("canvas").bounding_box()
    row = state(page)["rows"][2]
    page.mouse.click(box["x"] + x_of(page, 300 * US), box["y"] + row["y"] + 18)
    assert state(page)["selected"] == "collective:2:3"
    page.mouse.click(box["x"] + 30, box["y"] + row["y"] + 8)
    assert "lane" in {row["type"] for row in state(page)["rows"] if row["rank"] == 2}


def test_a_collective_beside_compute_on_one_stream_can_be_hit_in_the_strip_of_its_rank(
    show: Show, document: TimelineDocument, one_rank: RankColumns
) -> None:
    both = LaneColumns("0/7", "stream 7", [200 * US, 300 * US], [400 * US, 250 * US], [1, 0], [4, 1], [0, -1])
    page = show(replace(document, ranks=[replace(one_rank, lanes=[both])]))
    head = next(row for row in state(page)["rows"] if row["type"] == "rank")
    box = page.locator("canvas").bounding_box()
    page.mouse.click(box["x"] + x_of(page, 500 * US), box["y"] + head["y"] + head["height"] - 3)
    assert state(page)["selected"] == "collective:0:3"


def test_a_frame_has_no_more_rectangles_than_pixels_allow_whatever_the_number_of_spans(
    show: Show, document: TimelineDocument, one_rank: RankColumns
) -> None:
    number = 200_000
    start = (np.arange(number) * 5).tolist()
    lane = LaneColumns("0/7", "stream 7", start, [4] * number, [0] * number, [1] * number, [-1] * number)
    page = show(replace(document, ranks=[replace(one_rank, lanes=[lane])]))
    for zoom in (1, 0.1, 0.01, 0.001, 0.0001):
        page.evaluate(f"window.timeline.zoomTo(0, {int(1_000_000 * zoom)}); window.timeline.redraw()")
        drawn = state(page)["drawn"]
        assert drawn["rects"] < WIDTH
        assert drawn["pixels"] <= 3 * WIDTH  # its lane and the strip of its rank
    assert drawn["rects"] > 10  # at this zoom single spans have borders
    row = row_of(page, "stream 7")
    assert colour_at(page, x_of(page, 52), row["y"] + 3) == COMPUTE
    assert colour_at(page, x_of(page, 54) + 5, row["y"] + 3) == PAPER


def test_a_document_that_does_not_come_is_said_and_not_hidden(
    page: Any, show: Show, document: TimelineDocument
) -> None:
    show(document)
    page.evaluate(
        """async () => {
          window.timeline.destroy();
          const {createTimeline} = await import("./timeline.js");
          const place = document.getElementById("place");
          const load = async () => { throw new Error("the traces are gone <b>"); };
          await createTimeline(place, {load}).ready.catch(() => {});
        }"""
    )
    assert page.locator("#place").inner_text().strip() == "The timeline cannot be drawn: the traces are gone <b>"


def test_a_document_of_another_format_is_refused(page: Any, show: Show, document: TimelineDocument) -> None:
    show(document)
    page.evaluate(
        """async () => {
          const {createTimeline} = await import("./timeline.js");
          const place = document.getElementById("place");
          await createTimeline(place, {document: {format_version: 2}}).ready.catch(() => {});
        }"""
    )
    assert "format 2" in page.locator("#place").inner_text()


def test_nothing_is_left_of_a_timeline_that_was_destroyed(show: Show, document: TimelineDocument) -> None:
    page = show(document)
    page.evaluate("window.timeline.destroy()")
    assert page.locator("#place").inner_html() == ""


def test_a_rank_on_a_clock_of_its_own_says_so(show: Show, document: TimelineDocument) -> None:
    first, second = document.ranks
    apart = replace(second, is_aligned=False, clock_offset_ns=None)
    page = show(replace(document, ranks=[replace(first, clock_offset_ns=-2_500), apart]))
    page.evaluate("window.timeline.select({rank: 0, index: 3})")
    assert "2.50 us behind, corrected" in page.locator(".dtb-details").inner_text()
    page.evaluate("window.timeline.select({rank: 1, index: 3})")
    assert "its own: the others' cannot be compared with it" in page.locator(".dtb-details").inner_text()


def test_times_and_sizes_are_spelled_as_everywhere_in_dtbench(
    page: Any, show: Show, document: TimelineDocument
) -> None:
    show(document)
    random = np.random.default_rng(7)
    edges = [
        0,
        1,
        9,
        10,
        999,
        1_000,
        1023,
        1024,
        9_994,
        9_995,
        9_999,
        99_950,
        999_499,
        999_500,
        999_999,
        1_048_064,
        1_664,
        1_625,
        1_635,
    ]
    values = [*edges, *(int(value) for value in 10 ** random.uniform(0, 13, 3_000))]
    script = """async (values) => {
      const {formatNs, formatBytes} = await import("./timeline.js");
      return values.map((value) => [formatNs(value), formatBytes(value)]);
    }"""
    spelled = page.evaluate(script, values)
    assert [tuple(pair) for pair in spelled] == [(format_ns(value), format_bytes(value)) for value in values]


def test_two_timelines_in_one_page_of_a_dark_notebook_need_neither_server_nor_network(
    page: Any, document: TimelineDocument, tmp_path: Path
) -> None:
    body = timeline_html(document) + timeline_html(document)
    head = '<meta charset="utf-8"><link rel="icon" href="data:,">'
    file = tmp_path / "notebook.html"
    file.write_text(f'<!doctype html>{head}<body style="background:#111">{body}</body>', encoding="utf-8")
    page.context.set_offline(True)
    page.goto(file.as_uri())
    page.wait_for_function("() => document.querySelectorAll('.dtb-timeline').length === 2")
    settle(page)
    assert page.locator("img").count() == 0
    names = page.locator(".dtb-title").all_inner_texts()
    assert names == [document.title] * 2
    backgrounds = page.evaluate(
        "[...document.querySelectorAll('.dtb-timeline')].map((one) => getComputedStyle(one).backgroundColor)"
    )
    assert backgrounds == ["rgb(27, 31, 36)"] * 2


# How they run the scripts of an output: `evalHtmlScriptTags` in @jupyterlab/rendermime, `domEval` in vscode's notebook.
NOTEBOOKS = {
    "jupyterlab": """for (const script of [...place.getElementsByTagName("script")]) {
      const copy = document.createElement("script");
      for (const {name, value} of script.attributes) copy.setAttribute(name, value);
      copy.textContent = script.textContent;
      script.parentNode.replaceChild(copy, script);
    }""",
    "vscode": """for (const script of [...place.getElementsByTagName("script")]) {
      const copy = document.createElement("script");
      copy.text = script.innerText;
      if (script.type) copy.setAttribute("type", script.type);
      place.appendChild(copy).parentNode.removeChild(copy);
    }""",
}


@pytest.mark.parametrize("notebook", sorted(NOTEBOOKS))
def test_the_snippet_draws_in_the_output_of_a_notebook(
    page: Any, show: Show, document: TimelineDocument, notebook: str
) -> None:
    show(document)
    page.evaluate("window.timeline.destroy()")
    insert = "(snippet) => { const place = document.getElementById('place'); place.innerHTML = snippet; %s }"
    page.evaluate(insert % NOTEBOOKS[notebook], timeline_html(document))
    page.wait_for_selector("#place canvas")
    settle(page)
    assert page.locator(".dtb-title").inner_text() == document.title
    assert COMPUTE in {colour_at(page, 400, y) for y in range(0, 200, 4)}


def test_the_canvas_says_what_it_is_and_takes_the_focus(show: Show, document: TimelineDocument) -> None:
    page = show(document)
    canvas = page.locator("canvas")
    assert canvas.get_attribute("role") == "application"
    assert "Timeline" in canvas.get_attribute("aria-label")
    page.keyboard.press("Tab")
    for _ in range(9):
        if page.evaluate("document.activeElement.tagName") == "CANVAS":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("n")
    assert "gradient reduction" in page.locator(".dtb-says").inner_text()


def test_a_finer_screen_gets_as_many_pixels(chromium: Any, site: str, show: Show, document: TimelineDocument) -> None:
    show(document)
    fine = chromium.new_page(viewport={"width": WIDTH, "height": 520}, device_scale_factor=2)
    fine.goto(f"{site}/index.html")
    fine.evaluate("window.timeline.ready")
    size = fine.evaluate("[document.querySelector('canvas').width, document.querySelector('canvas').clientWidth]")
    row = row_of(fine, "stream 7 · compute")
    seen = colour_at(fine, 2 * x_of(fine, 300 * US), 2 * (row["y"] + 3))
    fine.set_viewport_size({"width": 800, "height": 520})
    settle(fine)
    narrow = fine.evaluate("document.querySelector('canvas').width")
    fine.close()
    assert size[0] == 2 * size[1]
    assert seen == COMPUTE
    assert narrow < size[0]
