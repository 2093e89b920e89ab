"""Small timelines whose every pixel is known, and a browser that draws them."""

import http.server
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dtbench.report.timeline import script_text
from dtbench.report.timeline.document import (
    WORDS,
    CollectiveColumns,
    ExposedColumns,
    LaneColumns,
    RankColumns,
    RegionColumns,
    StepColumns,
    TimelineDocument,
)
from dtbench.report.timeline.host_columns import HostSpanColumns, HostThreadColumns

MARKUP = "<img src=x onerror=alert(1)></script>"

STRINGS = [
    "",
    "gemm",
    MARKUP,
    "copy",
    "all_reduce",
    "grad_reduce",
    f"layers.0 {MARKUP}",
    "backward",
    "bandwidth",
    "0",
    "FSDP::pre_forward (layers.0)",
    "inner",
    "cudaLaunchKernel",
]


def make_rank(rank: int, **facts: Any) -> RankColumns:
    """Make a rank that computes in [0, 400) and [600, 700) us and communicates in [200, 600) and [900, 1000) us."""
    us = 1_000
    given: dict[str, Any] = {
        "rank": rank,
        "is_device": True,
        "is_aligned": True,
        "clock_offset_ns": 0,
        "clock_uncertainty_ns": None,
        "steps": StepColumns([7], [0], [1000 * us], [300 * us], [500 * us]),
        "regions": RegionColumns([7], [0], [1000 * us]),
        "exposed": ExposedColumns([400 * us, 900 * us], [200 * us, 100 * us]),
        "lanes": [
            LaneColumns("0/7", "stream 7 · compute", [0, 600 * us], [400 * us, 100 * us], [0, 0], [1, 2], [-1, -1]),
            LaneColumns(
                "0/20", "stream 20 · shard", [200 * us, 900 * us], [400 * us, 100 * us], [1, 1], [4, 4], [0, 1]
            ),
            LaneColumns("0/22", "stream 22 · copy", [800 * us], [100 * us], [2], [3], [-1]),
        ],
        "collectives": CollectiveColumns(
            index=[3, 4],
            match=[11, 12],
            start=[200 * us, 900 * us],
            duration=[400 * us, 100 * us],
            operation=[4, 4],
            purpose=[5, 5],
            owner=[6, 0],
            group=[9, 9],
            axis=[0, 0],
            region=[7, 7],
            dtype=[0, 0],
            cause=[8, 8],
            seq=[41, 42],
            size_bytes=[4096, None],
            group_size=[2, 2],
            issue_ns=[100 * us, None],
            skew_wait_ns=[50 * us, None],
            last_rank=[1, None],
            busbw=[2.5e9, None],
            is_async=[True, None],
            exposed_ns=[200 * us, 100 * us],
            hidden_ns=[200 * us, 0],
            causes=[{"skew": 50 * us, "bandwidth": 150 * us}, {"bandwidth": 100 * us}],
        ),
    }
    return RankColumns(**(given | facts))


def make_hosted_rank(rank: int = 0) -> RankColumns:
    """Make the same rank with a host: one call launches its first kernel, another a copy and the last collective."""
    us = 1_000
    host = HostThreadColumns(
        lane="9/1",
        name="thread 1",
        ranges=HostSpanColumns([10, 11], [-50 * us, 100 * us], [900 * us, 200 * us], [0, 1]),
        operators=HostSpanColumns([1], [150 * us], [100 * us]),
        calls=HostSpanColumns([12, 12], [-40 * us, 300 * us], [20 * us, 30 * us]),
    )
    made = make_rank(rank)
    calls = [[0, -1], [-1, 1], [1]]
    lanes = [replace(lane, call=call) for lane, call in zip(made.lanes, calls, strict=True)]
    return replace(made, lanes=lanes, host=[host])


def make_document(number: int = 2, **facts: Any) -> TimelineDocument:
    """Make a document of ranks that all did the same."""
    given: dict[str, Any] = {
        "format_version": 1,
        "title": f"a run {MARKUP}",
        "strings": STRINGS,
        "origin_ns": "1694128201000000000",
        "extent_ns": (0, 1_000_000),
        "shown_steps": [7],
        "steps": [7],
        "notes": [f"a note {MARKUP}"],
        "ranks": [make_rank(rank) for rank in range(number)],
        "words": WORDS,
    }
    return TimelineDocument(**(given | facts))


@pytest.fixture
def markup() -> str:
    """Return what names in the documents contain."""
    return MARKUP


@pytest.fixture
def one_rank() -> RankColumns:
    """Rank 0, as ``make_rank`` makes it."""
    return make_rank(0)


@pytest.fixture
def document() -> TimelineDocument:
    """Two ranks, each as ``make_rank`` makes them."""
    return make_document()


@pytest.fixture
def hosted() -> TimelineDocument:
    """One rank with a host, as ``make_hosted_rank`` makes it."""
    return make_document(ranks=[make_hosted_rank()])


@pytest.fixture
def many_ranks() -> TimelineDocument:
    """Sixty-four of them."""
    return make_document(64)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """Serve a folder; gives its address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
            pass

        def end_headers(self) -> None:
            self.send_header("Cache-Control", "no-store")  # else a browser keeps a file written again within a second
            super().end_headers()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=tmp_path)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


_PAGE = """<!doctype html><html><head><meta charset="utf-8"><link rel="icon" href="data:,"></head>
<body style="margin:0"><div id="place"></div>
<script type="module">
import {createTimeline} from "./timeline.js";
window.chosen = [];
window.told = [];
window.timeline = createTimeline(document.getElementById("place"), {
  load: async () => (await fetch("document.json")).json(),
  onSelect: (item) => window.chosen.push(item),
  onState: (state) => window.told.push(state),
  height: 500,
  theme: "light",
});
</script></body></html>"""


@pytest.fixture
def page(chromium: Any, site: str) -> Iterator[Any]:
    """Yield an empty page of 1000 x 520 pixels; whatever it complains of fails the test."""
    opened = chromium.new_page(viewport={"width": 1000, "height": 520})
    complaints: list[str] = []

    def refuse(dialog: Any) -> None:
        complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
    opened.on("dialog", refuse)
    yield opened
    opened.close()
    assert complaints == []


@pytest.fixture
def show(page: Any, site: str, tmp_path: Path) -> Callable[[TimelineDocument], Any]:
    """Return what opens a document in the page."""

    def open_document(document: TimelineDocument) -> Any:
        (tmp_path / "timeline.js").write_text(script_text(), encoding="utf-8")
        (tmp_path / "document.json").write_bytes(msgspec.json.encode(document))
        (tmp_path / "index.html").write_text(_PAGE, encoding="utf-8")
        page.goto(f"{site}/index.html")
        page.evaluate("window.timeline.ready")
        page.evaluate("window.timeline.redraw()")
        return page

    return open_document
