"""How long the timeline takes to its first picture and to each frame, in headless Chromium without a GPU.

``python -m tests.benchmarks.timeline_frames [--chromium /usr/bin/chromium] [--spans 200000]`` draws made-up jobs of 1,
8 and 64 ranks, half as many spans of hosts beside, 1400 x 900 pixels, and prints of each

* when the first picture was there, from the start of loading a file that holds all. The aim is 2 s;
* the best, the median and the worst frame at zooms from everything down to a microsecond, each from the call to the
  moment at which its pixels can be read back, so that painting, which Chromium puts off, is in it;
* how far apart the page's own frames were while it zoomed in, as it opens and with all rows of all ranks shown. The aim
  is a median of 33 ms at most.

On a busy machine only the best says something about the code.
"""

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
from playwright.sync_api import Page, sync_playwright

from dtbench.report.timeline import script_text

_ZOOMS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.001, 0.0001, 0.000001)
_FRAMES = 31
_ZOOM_FRAMES = 90
_LANES = (0.80, 0.05, 0.15)  # part of the spans on the compute, communication and copy lane

_PAGE = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><body><div id="place"></div>
<script type="application/json" id="job">{job}</script><script type="module">
{script}
const job = JSON.parse(document.getElementById("job").textContent);
window.extent = job.extent_ns;
window.timeline = createTimeline(document.getElementById("place"), {{document: job, height: 880}});
await window.timeline.ready;
requestAnimationFrame(() => requestAnimationFrame(() => {{ window.paintedMs = performance.now(); }}));
</script>"""

_ZOOM_IN = """async (frames) => {
  const [start, end] = window.extent;
  const moments = [];
  for (let i = 0; i < frames; i++) {
    const length = (end - start) * 0.9 ** i;
    const from = start + (end - start - length) / 3;
    window.timeline.zoomTo(from, from + length);
    moments.push(await new Promise(requestAnimationFrame));
  }
  return moments.slice(1).map((moment, i) => moment - moments[i]);
}"""

_MEASURE = """async ([zoom, frames]) => {
  const {timeline} = window;
  const [start, end] = window.extent;
  const brush = document.querySelector("canvas").getContext("2d");
  const times = [];
  for (let i = 0; i < frames; i++) {
    const from = start + (end - start) * (1 - zoom) * (i / frames);
    timeline.zoomTo(from, from + (end - start) * zoom);
    const began = performance.now();
    timeline.redraw();
    brush.getImageData(0, 0, 1, 1);
    times.push(performance.now() - began);
    await new Promise(requestAnimationFrame);
  }
  return [times, timeline.state().drawn.rects];
}"""


def make_job(ranks: int, spans: int) -> dict[str, object]:
    """Make a document of a job that computes, communicates and copies, with short and long spans beside each other.

    Half as many spans are of hosts, each call of which launches one kernel.
    """
    random = np.random.default_rng(5)
    strings = ["", "all_reduce", "grad_reduce", "layers.0", *(f"void kernel_{i}<float>(int)" for i in range(40))]
    made = [_make_rank(rank, spans // ranks, random) for rank in range(ranks)]
    return {
        "format_version": 1,
        "title": f"{spans} spans, {ranks} ranks",
        "strings": strings,
        "origin_ns": "0",
        "extent_ns": [0, 10_000_000_000],
        "shown_steps": [1],
        "steps": [1],
        "notes": [],
        "ranks": made,
    }


def _make_rank(rank: int, spans: int, random: np.random.Generator) -> dict[str, object]:
    lanes, exposed = [], ([0], [0])
    for kind, part in enumerate(_LANES):
        starts, lengths = _make_spans(max(2, int(spans * part)), random)
        number = len(starts)
        if kind == 1:
            exposed = starts, [length // 2 for length in lengths]
            collectives = _make_collectives(starts, lengths)
        lanes.append(
            {
                "lane": f"{rank}/{kind}",
                "name": f"stream {kind}",
                "start": starts,
                "duration": lengths,
                "kind": [kind] * number,
                "text": random.integers(4, 44, number).tolist(),
                "collective": list(range(number)) if kind == 1 else [-1] * number,
                "call": [i // 4 for i in range(number)] if kind == 0 else [],
            }
        )
    return {
        "rank": rank,
        "is_device": True,
        "is_aligned": True,
        "clock_offset_ns": 0,
        "clock_uncertainty_ns": None,
        "steps": {"number": [1], "start": [0], "duration": [10_000_000_000], "exposed_comm_ns": [0], "compute_ns": [0]},
        "regions": {"name": [], "start": [], "duration": []},
        "exposed": {"start": exposed[0], "duration": exposed[1]},
        "lanes": lanes,
        "collectives": collectives,
        "host": [_make_thread(max(8, spans // 2), random)],
    }


def _make_thread(spans: int, random: np.random.Generator) -> dict[str, object]:
    columns = {}
    for part, number in (
        ("ranges", spans // 10),
        ("operators", spans // 2),
        ("calls", spans - spans // 10 - spans // 2),
    ):
        starts, lengths = _make_spans(max(2, number), random)
        text = random.integers(4, 44, len(starts)).tolist()
        columns[part] = {
            "text": text,
            "start": starts,
            "duration": lengths,
            "level": [i % 3 for i in range(len(starts))],
        }
    return {"lane": "1/1", "name": "thread 1", **columns}


def _make_spans(number: int, random: np.random.Generator) -> tuple[list[int], list[int]]:
    lengths = random.lognormal(0, 2, number)
    gaps = random.lognormal(0, 2, number) * 0.3
    ends = np.cumsum(lengths + gaps)
    scale = 1e10 / ends[-1]
    starts = ((ends - lengths) * scale).astype(np.int64)
    return starts.tolist(), np.maximum(1, (lengths * scale).astype(np.int64) - 1).tolist()


def _make_collectives(starts: Sequence[int], lengths: Sequence[int]) -> dict[str, object]:
    number = len(starts)
    words = ("operation", "purpose", "owner", "group", "axis", "region", "dtype", "cause")
    unknown = ("seq", "size_bytes", "group_size", "issue_ns", "skew_wait_ns", "last_rank", "busbw", "is_async")
    return {
        "index": list(range(number)),
        "match": list(range(number)),
        "start": starts,
        "duration": lengths,
        **{word: [min(place + 1, 3) if place < 3 else 0] * number for place, word in enumerate(words)},
        **{word: [None] * number for word in unknown},
        "exposed_ns": [length // 2 for length in lengths],
        "hidden_ns": [length - length // 2 for length in lengths],
        "causes": [{}] * number,
    }


def measure(page: Page, folder: Path, ranks: int, spans: int) -> None:
    """Print a line for the first picture, for each zoom, and for zooming."""
    text = msgspec.json.encode(make_job(ranks, spans)).decode()
    file = folder / f"{ranks}.html"
    file.write_text(_PAGE.format(job=text, script=script_text()), encoding="utf-8")
    page.goto(file.as_uri())
    page.wait_for_function("window.paintedMs")
    said = f"{spans} spans, {ranks} ranks, {len(text) / 1e6:.0f} MB"
    print(f"{said}: first picture after {page.evaluate('window.paintedMs'):.0f} ms")
    for zoom in _ZOOMS:
        times, rects = page.evaluate(_MEASURE, [zoom, _FRAMES])
        print(f"  {zoom:>9.4%} in view: {_say(times)}, {rects} rects")
    for named, state in (("as it opens", {}), ("with all rows", {"folded": "none", "host": "on"})):
        page.evaluate("(state) => window.timeline.setState(state)", state)
        print(f"  zooming in, {named}: {_say(page.evaluate(_ZOOM_IN, _ZOOM_FRAMES))}")


def _say(times_ms: Sequence[float]) -> str:
    best_ms, median_ms, worst_ms = min(times_ms), statistics.median(times_ms), max(times_ms)
    return f"best {best_ms:5.1f} ms, median {median_ms:5.1f} ms, worst {worst_ms:5.1f} ms"


def main() -> None:
    """Measure in the Chromium that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--spans", type=int, default=200_000)
    told = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=told.chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        with TemporaryDirectory() as folder:
            for ranks in (1, 8, 64):
                measure(page, Path(folder), ranks, told.spans)
        browser.close()


if __name__ == "__main__":
    main()
