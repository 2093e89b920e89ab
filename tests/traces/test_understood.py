"""Work of any vendor's device is accounted for or refused; the host's operators never stand in for it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.errors import TraceError
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.means import average
from dtbench.traces.notes.files import NotUnderstood
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace

CASES = Path(__file__).parent / "cases"


@pytest.mark.parametrize("name", ["xpu.json", "privateuse1.json"])
def test_launches_of_other_vendors_tell_steps_and_communication(name: str) -> None:
    one = analyze_trace(read_trace(CASES / name))
    assert [step.step for step in one.steps] == [1, 2]
    accounts = [step.overlap for step in one.steps]
    assert [(one.comm_ns, one.exposed_comm_ns, one.compute_ns) for one in accounts] == [
        (3_000_000, 3_000_000, 4_000_000)
    ] * 2
    assert {str(collective.operation) for collective in one.collectives} == {"all_reduce"}
    assert one.uncorrelated.launch_missing == 0


@pytest.mark.parametrize("category", ["hip_driver", "xpu_driver", "privateuse1_driver", "glow_runtime", "musa_runtime"])
def test_whatever_the_vendor_calls_its_launches_the_answer_is_the_same(category: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text((CASES / "xpu.json").read_text().replace("xpu_runtime", category))
    assert average([analyze_trace(read_trace(path))]) == average([analyze_trace(read_trace(CASES / "xpu.json"))])


def test_mtias_device_rows_are_its_work() -> None:
    (step,) = analyze_trace(read_trace(CASES / "mtia.json")).steps
    assert step.overlap.compute_ns == 4 * 300_000
    assert (step.overlap.comm_ns, step.overlap.exposed_comm_ns) == (800_000, 800_000)


@pytest.mark.parametrize("category", ["hpu_op", "npu_kernel", "cuda_profiler_range", "some_new_thing"])
def test_a_device_category_that_nobody_knows_is_refused_and_counted(category: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text((CASES / "mtia.json").read_text().replace("mtia_ccp_events", category))
    with pytest.raises(TraceError, match=f"5 events of category {category} ran on a device and are not understood"):
        analyze_traces([path])


@pytest.mark.parametrize("library", ["nccl", "xccl", "hccl"])
def test_a_devices_collectives_without_its_rows_are_refused_and_hosts_operators_stand_for_no_compute(
    draw_rows: Any, library: str
) -> None:
    path = draw_rows(
        {"cat": "cpu_op", "name": "aten::mm", "pid": 100, "tid": 1, "ts": 0, "dur": 10},
        {"cat": "user_annotation", "name": f"{library}:all_reduce", "pid": 100, "tid": 1, "ts": 12, "dur": 5},
    )
    with pytest.raises(TraceError, match="1 collective of a device's library, and no kernel is in it"):
        analyze_trace(read_trace(path))


def test_rows_on_a_device_that_no_launch_is_tied_to_are_refused_by_their_category(draw_rows: Any) -> None:
    path = draw_rows(
        {"cat": "cpu_op", "name": "aten::mm", "pid": 100, "tid": 1, "ts": 0, "dur": 10},
        {"cat": "cuda_profiler_range", "name": "gemm", "pid": 0, "tid": 7, "ts": 2, "dur": 5},
    )
    with pytest.raises(TraceError, match="1 event of category cuda_profiler_range"):
        analyze_trace(read_trace(path))


def test_unknown_rows_of_a_host_cost_a_note_and_no_number(draw_rows: Any) -> None:
    operator = {"cat": "cpu_op", "name": "aten::mm", "pid": 100, "tid": 1, "ts": 0, "dur": 10}
    alone = analyze_trace(read_trace(draw_rows(operator)))
    beside = analyze_trace(
        read_trace(draw_rows(operator, *[{"cat": "io", "name": "read", "pid": 9, "tid": 1, "ts": 2, "dur": 5}] * 3))
    )
    assert beside.whole == alone.whole
    assert beside.notes == (NotUnderstood((), "io", 3),)


@pytest.mark.parametrize("launch", ["cudaLaunchKernel", "hipExtModuleLaunchKernel", "urEnqueueKernelLaunch"])
def test_launches_without_any_kernel_are_refused(launch: str, draw_rows: Any) -> None:
    path = draw_rows(
        {"cat": "cpu_op", "name": "aten::mm", "pid": 100, "tid": 1, "ts": 0, "dur": 10},
        {"cat": "xpu_runtime", "name": launch, "pid": 100, "tid": 1, "ts": 1, "dur": 2, "args": {"correlation": 5}},
    )
    with pytest.raises(TraceError, match="1 call to launch kernels, and no kernel is in it"):
        analyze_trace(read_trace(path))


@pytest.fixture
def draw_rows(tmp_path: Path) -> Callable[..., Path]:
    """Write complete events as a trace."""

    def write(*rows: dict[str, Any]) -> Path:
        path = tmp_path / f"trace{len(rows)}.json"
        path.write_text(json.dumps({"traceEvents": [{"ph": "X", **row} for row in rows]}))
        return path

    return write
