"""Equality in integer nanoseconds with every figure recorded for real GPU traces."""

import json
from pathlib import Path
from typing import Any

import pytest

from dtbench.traces.host.correlate import Uncorrelated
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.rows.tables import PURPOSES
from dtbench.traces.time.overlap import Overlap
from tests.known import total
from tests.unpack import unpack

FOLDER = Path(__file__).parents[3] / "shared" / "traces"
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="the recorded GPU traces (../shared/traces) are not on this machine"
)
SINGLE = ("a100x8_ddp_rank.json.gz", "mi300x_ddp_rank.json.gz", "h800_deepep_train.json.gz")
ARCHIVE = "v100x8_dlrm_all_ranks.tar.gz"


def expected() -> dict[str, Any]:
    figures: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text())
    return figures


def figures_of(overlap: Overlap) -> dict[str, int]:
    names = ("compute_ns", "comm_ns", "exposed_comm_ns", "hidden_comm_ns", "exposed_copy_ns", "idle_ns")
    return {"window_ns": overlap.step_ns, **{name: getattr(overlap, name) for name in names}}


def check(path: Path, figures: dict[str, Any]) -> None:
    one = analyze_trace(read_trace(path))
    assert figures_of(one.whole) == figures["whole"]
    assert [{"step": f"ProfilerStep#{step.step}", **figures_of(step.overlap)} for step in one.steps] == figures["steps"]
    for overlap, purposes in [(one.whole, one.whole_purposes), *((step.overlap, step.purposes) for step in one.steps)]:
        parts = (overlap.compute_ns, overlap.exposed_comm_ns, overlap.exposed_copy_ns, overlap.idle_ns)
        assert total(parts) == overlap.step_ns
        assert total(purpose.exposed_ns for purpose in purposes) == overlap.exposed_comm_ns
        assert total(purpose.hidden_ns for purpose in purposes) == overlap.hidden_comm_ns
        assert total(purpose.comm_ns for purpose in purposes) == overlap.comm_ns
    assert sum(one.exposed_ns) == one.whole.exposed_comm_ns
    assert COLLECTIVES.tabulate([one])["step"].notna().sum() == PURPOSES.tabulate([one])["count"].sum()


@pytest.mark.parametrize("name", SINGLE)
def test_every_figure_of_a_single_trace_is_met(name: str) -> None:
    check(FOLDER / name, expected()[name])


@pytest.fixture
def ranks(tmp_path: Path) -> dict[str, Path]:
    unpack(FOLDER / ARCHIVE, tmp_path)
    return {path.name: path for path in tmp_path.rglob("*.json")}


def test_every_figure_of_all_eight_ranks_is_met(ranks: dict[str, Path]) -> None:
    figures = expected()[ARCHIVE]["ranks"]
    assert sorted(ranks) == sorted(figures)
    for name, path in ranks.items():
        check(path, figures[name])


def test_communication_that_is_not_called_nccl_is_found_and_local_compute_of_the_same_library_is_not() -> None:
    one = analyze_trace(read_trace(FOLDER / "h800_deepep_train.json.gz"))
    assert one.unknown_names == ()
    assert len(one.collectives) == 16  # each of two kernels
    assert {str(collective.operation) for collective in one.collectives} == {"all_to_all"}


def test_gradients_buckets_and_broadcasts_of_a_ddp_trace_are_told_apart() -> None:
    one = analyze_trace(read_trace(FOLDER / "mi300x_ddp_rank.json.gz"))
    for step in one.steps:
        assert {str(p.purpose): (p.count, p.size_bytes) for p in step.purposes} == {
            "grad_reduce": (2, 23_379_024),
            "other": (2, 19_360),
        }
    issued = COLLECTIVES.tabulate([one]).dropna(subset="step")  # the rest was launched before the trace began
    assert set(issued["owner"]) == {
        *("bucket 0", "bucket 1"),
        "DistributedDataParallel_0",  # its buffers; a frame of `with_stack`
    }


def test_kernels_launched_before_the_trace_are_counted_and_nothing_else_is_untied() -> None:
    one = analyze_trace(read_trace(FOLDER / "mi300x_ddp_rank.json.gz"))
    assert one.uncorrelated == Uncorrelated(launched_before=968)
