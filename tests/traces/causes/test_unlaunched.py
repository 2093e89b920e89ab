"""Calls that launched compute are lost, kernels are not: what made a collective's input is then not known."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Cause, MissingInput
from dtbench.report.page.trace_words import advise_traces
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace

TRACES = Path(__file__).parent.parent / "recorded" / "two_ranks_one_gpu"


def lose_launches(source: Path, path: Path) -> Path:
    """Write a trace without the calls into the runtime of the thread that ran backward."""
    said = json.loads(gzip.decompress(source.read_bytes()))
    backward = {one["tid"] for one in said["traceEvents"] if "evaluate_function" in one.get("name", "")}
    said["traceEvents"] = [
        one for one in said["traceEvents"] if not (one.get("cat") == "cuda_runtime" and one["tid"] in backward)
    ]
    path.write_text(json.dumps(said))
    return path


@pytest.mark.parametrize("name", ["host", "ddp", "skew"])
def test_without_the_launches_of_one_thread_only_other_ranks_are_a_cause(name: str, tmp_path: Path) -> None:
    """Of ``host`` the whole traces say that nothing was left to hide behind, and neither queued nor issued late."""
    sources = [TRACES / name / f"rank{rank}.json.gz" for rank in range(2)]
    traces = analyze_traces([lose_launches(source, tmp_path / source.name[:-3]) for source in sources])
    assert {row.cause for row in traces.owners} == {Cause.SKEW, Cause.UNKNOWN}
    unknown = [row for row in traces.owners if row.cause is Cause.UNKNOWN]
    assert all(MissingInput.LAUNCHES in row.missing for row in unknown)
    assert any("calls that launched compute are missing" in one.words for one in advise_traces(traces))


@pytest.mark.parametrize(
    ("calls", "compute", "unlaunched_us"),
    [
        ("ac         ", "aaa======         ", 6),  # may have been launched before c
        ("acd        ", "aaad=====         ", 0),  # what the lane ran before was launched after c
        ("ca         ", "   aaa=====       ", 0),
        ("ac         ", "aaa         ======", 0),  # began after c had
        ("fc         ", "=======f          ", 0),  # what the lane ran after was launched before c, and so it was ready
    ],
    ids=["before", "after another", "after the issue's", "after its start", "before another"],
)
def test_what_the_lane_ran_before_and_after_bounds_a_launch_that_is_not_told(
    draw: Callable[..., Path], calls: str, compute: str, unlaunched_us: int
) -> None:
    path = draw(f"""
        call cudaLaunchKernel           @1 |{calls}             |
        kernel gemm                     @7 |  {compute}    |
        kernel ncclDevKernel_AllReduce  @8 |            ccccccc     |
        """)
    (one,) = analyze_trace(read_trace(path)).collectives
    assert one.unlaunched_ns == unlaunched_us * 1000


def test_compute_that_the_region_may_have_launched_after_the_issue_may_have_hidden_it(
    draw: Callable[..., Path],
) -> None:
    """A cell of backward: it ended on the host long before its last kernels ran."""
    path = draw("""
        step ProfilerStep#1                                  @1 |==================================|
        op autograd::engine::evaluate_function: MmBackward0  @1 | ====                             |
        call cudaLaunchKernel                                @1 | ac                               |
        kernel gemm                                          @7 |  aa      =====                   |
        kernel ncclDevKernel_AllReduce                       @8 |     cccc                         |
        """)
    (one,) = analyze_trace(read_trace(path)).collectives
    assert one.unlaunched_ns == 5000
