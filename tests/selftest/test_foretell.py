"""The closed forms that cells of a selftest are held against: bounds on either side, from known or measured costs."""

import pytest

from dtbench.errors import PredictionError
from dtbench.launch.run import plan_cells
from dtbench.plan import Machine
from dtbench.selftest.evidence import Bucket, Traced
from dtbench.selftest.foretell import foretell_from_known, foretell_from_measured
from dtbench.selftest.sections import SHARED, Blocks, ddp, emulate
from dtbench.selftest.situations import draw_rows
from dtbench.selftest.words import Words, write_scenario
from dtbench.store.records import CellRecord

MS = 1_000_000


def plan(cells: dict[str, Words]) -> dict[str, CellRecord]:
    file = write_scenario("What is foretold?", SHARED, cells)
    return {cell.name: cell for cell in plan_cells(file, Machine(cpu_cores=2, cuda_devices=0))}


def plan_tail() -> CellRecord:
    """Four buckets of 1 MiB, 15 ms each, beside 28 ms of backward."""
    link = emulate({"latency_us": 5_000.0, "bandwidth_gb_per_s": 0.1048576})
    return plan({"one": ddp(Blocks(4, 1, 0.0, 28.0), link)})["one"]


def test_a_step_is_bounded_by_sleeps_and_link_alone_and_by_a_host_that_is_hidden_nowhere() -> None:
    foretold = foretell_from_known(plan_tail(), host_ns=8 * MS)
    assert foretold.step_ns.low_ns == 4 * 28 * MS + 15 * MS
    assert foretold.step_ns.low_ns < foretold.step_ns.expected_ns <= foretold.step_ns.low_ns + 8 * MS
    assert foretold.step_ns.high_ns == foretold.step_ns.low_ns + 8 * MS + 10 * MS
    assert (foretold.exposed_ns.low_ns, foretold.exposed_ns.high_ns) == (10 * MS, 25 * MS)
    assert not foretold.is_disputed


def make_unlinked(step_ms: int, ready_ms: list[int]) -> Traced:
    buckets = tuple(Bucket(2**20, ready * MS, (ready + 1) * MS) for ready in ready_ms)
    return Traced(buckets, step_ms * MS, 0, ((0, 0), (1, 0)), 0)


def test_measured_ready_times_move_the_closed_form() -> None:
    """Buckets ready 1 ms later each, and 3 ms of host after the last: 116 + 15 + 3."""
    foretold = foretell_from_measured(plan_tail(), make_unlinked(120, [29, 58, 87, 116]))
    assert foretold.step_ns.expected_ns == 134 * MS
    assert (foretold.step_ns.low_ns, foretold.step_ns.high_ns) == (124 * MS, 144 * MS)
    assert foretold.exposed_ns.expected_ns == 15 * MS


def test_the_sweep_of_caps_is_foretold_from_one_run_without_a_link() -> None:
    (row,) = draw_rows(0, ("caps",))
    cells = plan(dict(row.cells))
    unlinked = make_unlinked(243, [place * 20 for place in range(1, 13)])
    steps_ms = [foretell_from_measured(cells[f"caps_{cap}"], unlinked).step_ns.expected_ns // MS for cap in (1, 3, 12)]
    assert steps_ms == [284 + 2, 282 + 2, 372 + 2]


def test_ready_times_that_do_not_fit_the_blocks_give_no_closed_form() -> None:
    with pytest.raises(PredictionError):
        foretell_from_measured(plan_tail(), make_unlinked(120, [29, 58, 87]))
    with pytest.raises(PredictionError):
        foretell_from_known(replace_network(plan_tail()), host_ns=0)


def replace_network(cell: CellRecord) -> CellRecord:
    """Give the same cell over gloo alone, of which nobody knows the cost."""
    unlinked = plan({"one": ddp(Blocks(4, 1, 0.0, 28.0), {"kind": "real"})})["one"]
    return cell.model_copy(update={"scenario": unlinked.scenario})
