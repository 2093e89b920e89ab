"""How long one frame of the timeline takes with 200,000 spans, in headless Chromium without a GPU.

``python -m tests.benchmarks.timeline_frames [--chromium /usr/bin/chromium] [--spans 200000]`` draws made-up jobs of 1,
8 and 64 ranks at zooms from everything down to a microsecond, 1400 x 900 pixels, and prints the best, the median and
the worst frame of each; on a busy machine only the best says something about the code. A frame is timed from the call
to the moment at which its pixels can be read back, so that painting, which Chromium puts off, is in it. The aim is a
median below 16 ms at any zoom.
"""

import argparse
import statistics
from collections.abc import Sequence

import msgspec
import numpy as np
from playwright.sync_api import Page, sync_playwright

from dtbench.report.timeline import script_text

_ZOOMS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.001, 0.0001, 0.000001)
_FRAMES = 31
_LANES = (0.80, 0.05, 0.15)  # part of the spans on the compute, communication and copy lane

_PAGE = """<!doctype html><link rel="icon" href="data:,"><body><div id="place"></div><script type="module">
{script}
window.createTimeline = createTimeline;
</script>"""

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
    """Make a document of a job that computes, communicates and copies, with short and long spans beside each other."""
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
    }


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


def measure(page: Page, ranks: int, spans: int) -> None:
    """Print a line for each zoom."""
    job = make_job(ranks, spans)
    page.evaluate(
        """async (text) => {
          window.timeline?.destroy();
          const began = performance.now();
          const job = JSON.parse(text);
          window.extent = job.extent_ns;
          window.timeline = createTimeline(document.getElementById("place"), {document: job, height: 880});
          await window.timeline.ready;
          window.openedMs = performance.now() - began;
        }""",
        msgspec.json.encode(job).decode(),
    )
    print(f"{spans} spans, {ranks} ranks: opened in {page.evaluate('window.openedMs'):.0f} ms")
    for zoom in _ZOOMS:
        times, rects = page.evaluate(_MEASURE, [zoom, _FRAMES])
        best_ms, median_ms, worst_ms = min(times), statistics.median(times), max(times)
        said = f"best {best_ms:5.1f} ms, median {median_ms:5.1f} ms, worst {worst_ms:5.1f} ms, {rects} rects"
        print(f"  {zoom:>9.4%} in view: {said}")


def main() -> None:
    """Measure in the Chromium that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--spans", type=int, default=200_000)
    told = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=told.chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_content(_PAGE.format(script=script_text()))
        page.wait_for_function("() => Boolean(window.createTimeline)")
        for ranks in (1, 8, 64):
            measure(page, ranks, told.spans)
        browser.close()


if __name__ == "__main__":
    main()
