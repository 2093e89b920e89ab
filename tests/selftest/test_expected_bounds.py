"""The closed forms that cells of a selftest are held against: bounds on either side, from known or measured costs."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from dtbench.base.errors import PredictionError
from dtbench.launch.cells import plan_cells
from dtbench.plan.plan import Machine
from dtbench.runs.summary import CellSummary
from dtbench.scenario.written import Words
from dtbench.selftest.evidence import Bucket, Evidence, Traced
from dtbench.selftest.expected_bounds import Feed, bounds_from_known, bounds_from_measured, find_feed
from dtbench.selftest.sections import SHARED, Blocks, ddp, emulate
from dtbench.selftest.situations import draw_rows
from dtbench.selftest.words import write_scenario
from dtbench.store.records.run import CellRecord

MS = 1_000_000


def plan(cells: dict[str, Words]) -> dict[str, CellRecord]:
    file = write_scenario("What is foretold?", SHARED, cells)
    return {cell.name: cell for cell in plan_cells(file, Machine(cpu_cores=2, cuda_devices=0))}


def plan_tail() -> CellRecord:
    """Four buckets of 1 MiB, 15 ms each, beside 28 ms of backward."""
    link = emulate({"latency_us": 5_000.0, "bandwidth_gb_per_s": 0.1048576})
    return plan({"one": ddp(Blocks(4, 1, 0.0, 28.0), link)})["one"]


def test_a_step_is_bounded_by_sleeps_and_link_alone_and_by_a_host_that_is_hidden_nowhere() -> None:
    foretold = bounds_from_known(plan_tail(), host_ns=8 * MS)
    assert foretold.step_ns.low_ns == 4 * 28 * MS + 15 * MS
    assert foretold.step_ns.low_ns < foretold.step_ns.expected_ns <= foretold.step_ns.low_ns + 8 * MS
    assert foretold.step_ns.high_ns == foretold.step_ns.low_ns + 8 * MS + 10 * MS
    assert (foretold.exposed_ns.low_ns, foretold.exposed_ns.high_ns) == (10 * MS, 25 * MS)
    assert not foretold.is_disputed


def make_unlinked(profiled_ms: int, ready_ms: list[int], *, measured_ms: int | None = None) -> Feed:
    """Return a run whose MEASURED steps took as long as PROFILED ones unless told otherwise."""
    buckets = tuple(Bucket(2**20, ready * MS, (ready + 1) * MS) for ready in ready_ms)
    traced = Traced(buckets, profiled_ms * MS, 0, ((0, 0), (1, 0)), 0)
    return Feed(traced, 0, (profiled_ms if measured_ms is None else measured_ms) * MS)


def test_measured_ready_times_move_the_closed_form() -> None:
    """Buckets ready 1 ms later each, and 3 ms of host after the last: 116 + 15 + 3."""
    foretold = bounds_from_measured(plan_tail(), make_unlinked(120, [29, 58, 87, 116]))
    assert foretold.step_ns.expected_ns == 134 * MS
    assert (foretold.step_ns.low_ns, foretold.step_ns.high_ns) == (124 * MS, 144 * MS)
    assert foretold.exposed_ns.expected_ns == 15 * MS


def test_what_the_profiler_adds_to_the_host_is_taken_off() -> None:
    """Of 8 ms beside 112 of compute MEASURED steps took 4: a bucket each 28.5 ms, 1.5 after the last."""
    feed = make_unlinked(120, [29, 58, 87, 116], measured_ms=116)
    assert bounds_from_measured(plan_tail(), feed).step_ns.expected_ns == 114 * MS + 15 * MS + 3 * MS // 2


def test_a_host_that_no_step_shows_stays_as_it_was_profiled() -> None:
    feed = make_unlinked(112, [28, 56, 84, 111], measured_ms=90)
    assert bounds_from_measured(plan_tail(), feed).step_ns.expected_ns == 112 * MS + 15 * MS


def test_of_two_runs_without_a_link_the_faster_one_feeds() -> None:
    """Their traces say the opposite of their MEASURED steps; one without a trace feeds nothing."""
    steps_ms = {"slow": (300, 290), "fast": (280, 295)}
    runs = [
        Evidence(make_step(measured_ms), (), make_unlinked(profiled_ms, [20]).traced)
        for measured_ms, profiled_ms in steps_ms.values()
    ]
    feed = find_feed([*runs, Evidence(make_step(100), (), None)])
    assert feed is not None
    assert feed == Feed(make_unlinked(295, [20]).traced, 0, 280 * MS)
    assert find_feed([Evidence(make_step(100), (), None)]) is None
    assert find_feed([Evidence(make_step(math.nan), (), runs[0].traced)]) is None
    assert find_feed([Evidence(make_step(100), (), replace(feed.traced, backward_at_ns=None))]) is None


def make_step(median_ms: float) -> CellSummary:
    """Return a summary of which nothing but the step is looked at."""
    step_time = SimpleNamespace(median=median_ms * MS)
    return cast("CellSummary", SimpleNamespace(step_time=step_time))


def test_the_sweep_of_caps_is_foretold_from_one_run_without_a_link() -> None:
    (row,) = draw_rows(0, ("caps",))
    cells = plan(dict(row.cells))
    unlinked = make_unlinked(243, [place * 20 for place in range(1, 13)])
    steps_ms = [bounds_from_measured(cells[f"caps_{cap}"], unlinked).step_ns.expected_ns // MS for cap in (1, 3, 12)]
    assert steps_ms == [284 + 2, 282 + 2, 372 + 2]


def test_ready_times_that_do_not_fit_the_blocks_give_no_closed_form() -> None:
    with pytest.raises(PredictionError):
        bounds_from_measured(plan_tail(), make_unlinked(120, [29, 58, 87]))
    with pytest.raises(PredictionError):
        bounds_from_known(replace_network(plan_tail()), host_ns=0)


def replace_network(cell: CellRecord) -> CellRecord:
    """Return the same cell over gloo alone, of which nobody knows the cost."""
    unlinked = plan({"one": ddp(Blocks(4, 1, 0.0, 28.0), {"kind": "real"})})["one"]
    return cell.model_copy(update={"scenario": unlinked.scenario})
