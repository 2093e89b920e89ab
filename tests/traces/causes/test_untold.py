"""Calls that launched work are lost, kernels are not: no cause gets surer, and what is known all the same stays."""

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtbench.base.vocabulary import Cause, MissingInput
from dtbench.report.words.trace_words import advise_traces
from dtbench.traces.causes.holders import find_holders
from dtbench.traces.causes.split import CauseSplit
from dtbench.traces.causes.surroundings import Surroundings
from dtbench.traces.job.explain import Explained, explain
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.kinds.categories import CALLS, DEVICE_CATEGORIES
from dtbench.traces.rank.analysis import TraceAnalysis, analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.time.overlap import Overlap
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Collective
from tests.traces.conftest import draw_events

RECORDED = Path(__file__).parent.parent / "recorded"
TRACES = RECORDED / "two_ranks_one_gpu"
Key = tuple[int, str, int]


def lose_launches(source: Path, path: Path) -> Path:
    """Write a trace without the calls into the runtime of the thread that ran backward."""
    said = json.loads(gzip.decompress(source.read_bytes()))
    backward = {one["tid"] for one in said["traceEvents"] if "evaluate_function" in one.get("name", "")}
    said["traceEvents"] = [
        one for one in said["traceEvents"] if not (one.get("cat") == "cuda_runtime" and one["tid"] in backward)
    ]
    path.write_text(json.dumps(said))
    return path


@cache
def read_job(folder: Path) -> tuple[Trace, ...]:
    return tuple(read_trace(path) for path in sorted(folder.iterdir()))


@cache
def analyze_job(folder: Path) -> tuple[tuple[TraceAnalysis, ...], Explained]:
    """Analyze each rank, and explain them together."""
    analyses = tuple(analyze_trace(trace) for trace in read_job(folder))
    return analyses, explain(analyses)


def find_launches(trace: Trace) -> list[int]:
    """Return the calls that launched what is in the trace, in order of time."""
    ids, tied = trace.correlation.values, trace.correlation.events
    ran = ids[trace.is_one_of(DEVICE_CATEGORIES)[tied]]
    calls = tied[np.isin(ids, ran) & trace.is_one_of(CALLS)[tied]]
    return sorted(calls.tolist(), key=lambda call: int(trace.start_ns[call]))


def lose(trace: Trace, calls: Sequence[int]) -> Trace:
    kept = np.ones(len(trace), dtype=np.bool_)
    kept[list(calls)] = False
    return trace.select(kept)


def split_by_place(explained: Explained) -> Mapping[Key, tuple[Collective, CauseSplit]]:
    """Return what ran by rank, lane and start, with its causes."""
    return {
        (one.rank, collective.lane, collective.start_ns): (collective, split)
        for one in explained.analyses
        for collective, split in zip(one.collectives, one.splits, strict=True)
        if len(collective.span.starts_ns)
    }


def sum_causes(explained: Explained) -> Counter[Cause]:
    """Return the exposed time of each cause over all owners: what answers and advice go by."""
    total_ns = Counter[Cause]()
    for row in explained.owners:
        total_ns[row.cause] += row.exposed_ns
    return total_ns


def sum_queued(explained: Explained) -> int:
    """Return how long collectives stood behind others, in steps and outside."""
    parts = [part for one in explained.analyses for split in one.splits for part in split.parts]
    return sum(part.exposed_ns for part in parts if part.cause is Cause.QUEUED)


def check_not_surer(explained: Explained, whole: Explained) -> None:
    """Hold causes and figures of a trace without some launches against those of the whole one."""
    before = split_by_place(whole)
    for place, (_, split) in split_by_place(explained).items():
        known = before[place][1].by_cause
        for cause, exposed_ns in split.by_cause.items():
            assert cause is Cause.UNKNOWN or exposed_ns <= known.get(cause, 0), (place, cause, known, split)
    total_ns, before_ns = sum_causes(explained), sum_causes(whole)
    if [one.timeline.steps for one in explained.analyses] == [one.timeline.steps for one in whole.analyses]:
        assert all(total_ns[cause] <= before_ns[cause] for cause in total_ns if cause is not Cause.UNKNOWN)
    for one, of_whole in zip(explained.analyses, whole.analyses, strict=True):
        assert not set(find_zeros(one.whole)) - set(find_zeros(of_whole.whole))


def find_zeros(account: Overlap) -> list[str]:
    return [name for name, value in vars(account).items() if value == 0]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("folder", "tries"),
    [
        (TRACES / "fsdp2", 2),
        (TRACES / "fsdp2_tp", 2),
        (TRACES / "ddp", 1),
        (TRACES / "graph", 1),
        (TRACES / "at_once", 2),
        (RECORDED / "one_hardware_queue" / "queue1", 2),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else "",
)
def test_no_cause_gets_surer_where_launches_are_lost(folder: Path, tries: int, count: int) -> None:
    """On each rank one launch of each try, or three in a row."""
    rng = random.Random(f"{folder.name} {count}")
    _, whole = analyze_job(folder)
    for _ in range(tries):
        lost = []
        for trace in read_job(folder):
            calls = find_launches(trace)
            first = rng.randrange(len(calls) + 1 - min(count, len(calls)))
            lost.append(analyze_trace(lose(trace, calls[first : first + count])))
        check_not_surer(explain(lost), whole)


@pytest.mark.parametrize(
    ("name", "rank", "place"),
    [
        ("fsdp2", 1, 43),  # of a gather: the next one's unit could have been asked for when that one's began to compute
        ("fsdp2", 0, 238),  # likewise: the next one was issued late only by what came thereafter
        ("fsdp2", 1, 154),  # of compute between two reductions: they did not become ready at once
        ("fsdp2", 1, 181),  # of a fill of a buffer on a stream of its own: what stood launched may have needed it
        ("fsdp2", 0, 9),  # of a copy after it: nobody had launched what could have hidden it
        ("ddp", 1, 156),  # of the next reduction
        ("fsdp2_tp", 1, 142),  # of the compute after it: nothing of its region was left to hide behind
        ("fsdp2_tp", 0, 190),  # of the next compute: the host launched it when all was over, so that nobody waited
    ],
)
def test_a_single_launch_decides(name: str, rank: int, place: int) -> None:
    analyses, whole = analyze_job(TRACES / name)
    trace = read_job(TRACES / name)[rank]
    lost = analyze_trace(lose(trace, find_launches(trace)[place : place + 1]))
    check_not_surer(explain([lost if at == rank else one for at, one in enumerate(analyses)]), whole)


@pytest.mark.parametrize("name", ["host", "ddp", "skew"])
def test_without_the_launches_of_one_thread_none_gets_surer_and_what_is_known_stays(name: str, tmp_path: Path) -> None:
    """The ids of the calls that are left still tell what queued; not that nothing was left to hide behind."""
    sources = [TRACES / name / f"rank{rank}.json.gz" for rank in range(2)]
    traces = analyze_traces([lose_launches(source, tmp_path / source.name[:-3]) for source in sources])
    _, whole = analyze_job(TRACES / name)
    analyses = [analyze_trace(read_trace(tmp_path / source.name[:-3])) for source in sources]
    check_not_surer(explain(analyses), whole)
    assert set(sum_causes(explain(analyses))) <= {Cause.SKEW, Cause.QUEUED, Cause.UNKNOWN}
    assert sum_queued(explain(analyses)) == sum_queued(whole)
    untold = [(one.rank, step.step) for one in traces.analyses for step in one.steps if step.overlap.step_ns is None]
    assert untold == [(0, 2)] * (name == "ddp")  # it may begin with what ran just before its first known kernel
    unknown = [row for row in traces.owners if row.cause is Cause.UNKNOWN]
    assert any(MissingInput.LAUNCHES in row.missing for row in unknown)
    if name != "skew":  # there the late rank makes nearly all
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
    timeline = analyze_trace(read_trace(path)).timeline
    ready_ns = [way[0].ready_ns or 0 for way in timeline.ways or [timeline.collectives]]
    assert ready_ns[0] - ready_ns[-1] == unlaunched_us * 1000


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
    timeline = analyze_trace(read_trace(path)).timeline
    (one,) = timeline.collectives
    hidden_ns = [Surroundings(timeline, may_be=may_be).launched_after_ns(one, 1) for may_be in (False, True)]
    assert hidden_ns == [0, 5000]


def test_the_ids_of_the_calls_before_and_after_tell_when_a_lost_one_was_made(draw: Callable[..., Path]) -> None:
    """The lane alone would not: b may be the input of c, and d may have been launched to run beside it."""
    path = draw("""
        call cudaLaunchKernel           @1 |a c e             |
        kernel gemm                     @7 |  aabbb     ddee  |
        kernel ncclDevKernel_AllReduce  @8 |       cccc       |
        """)
    timeline = analyze_trace(read_trace(path)).timeline
    first_ns, last_ns = timeline.compute_launches_ns
    assert first_ns.tolist() == [0, 1, 2001, 4000]
    assert last_ns.tolist() == [0, 1999, 3999, 4000]
    assert {way[0].ready_ns for way in timeline.ways} == {7000}


def test_where_ids_do_not_rise_with_time_only_the_lane_tells(draw: Callable[..., Path]) -> None:
    path = draw("""
        call cudaLaunchKernel           @1 |  c   a e         |
        kernel gemm                     @7 |        aabbbee   |
        kernel ncclDevKernel_AllReduce  @8 |    cccc          |
        """)
    first_ns, last_ns = analyze_trace(read_trace(path)).timeline.compute_launches_ns
    assert (first_ns.tolist(), last_ns.tolist()) == ([6000, 6001, 8000], [6000, 7999, 8000])


def test_an_id_that_cannot_be_of_its_time_tells_nothing(draw: Callable[..., Path]) -> None:
    """A kernel that began before calls with lower ids: whatever gave it that, it did not count calls."""
    path = draw("""
        call cudaLaunchKernel           @1 |a     c           |
        kernel gemm                     @7 |  aa              |
        kernel fill                     @9 |    xx            |
        kernel ncclDevKernel_AllReduce  @8 |       cccc       |
        """)
    first_ns, last_ns = analyze_trace(read_trace(path)).timeline.compute_launches_ns
    assert (first_ns.tolist(), last_ns.tolist()) == ([0, -1], [0, 3999])


def test_compute_of_another_lane_may_have_been_launched_right_before_the_issue(draw: Callable[..., Path]) -> None:
    """Neither the first moment at which that may have been, nor the last, is before the issue and after a's launch."""
    path = draw("""
        call cudaLaunchKernel           @1 |a c            |
        kernel gemm                     @7 | aaaaa         |
        kernel fill                     @9 |     ===       |
        kernel ncclDevKernel_AllReduce  @8 |         cccc  |
        """)
    ways = analyze_trace(read_trace(path)).timeline.ways
    assert [way[0].ready_ns for way in ways] == [8000, 6000]


def said(name: str, group: str, seq: int) -> str:
    sizes = {"In msg nelems": 1024, "Out msg nelems": 2048, "dtype": "Float"}
    return json.dumps({"Collective name": name, "Process Group Name": group, "Group size": 2, "Seq": seq, **sizes})


def explain_alike(tmp_path: Path, drawing: str, lost: str = "") -> tuple[TraceAnalysis, ...]:
    """Explain a job of two ranks that do the same, without the launches that these letters name."""
    top: dict[str, Any] = {"host_name": "one"}
    paths = []
    for rank in range(2):
        ids = {ord(letter) for letter in lost}
        events = [
            one
            for one in draw_events(drawing)
            if not (one["cat"] == "cuda_runtime" and one["args"].get("correlation") in ids)
        ]
        job = {"rank": rank, "world_size": 2, "pg_config": [{"pg_name": "0", "pg_desc": "", "ranks": [0, 1]}]}
        paths.append(tmp_path / f"rank{rank}{lost}.json")
        paths[-1].write_text(json.dumps({**top, "distributedInfo": job, "traceEvents": events}))
    return analyze_traces(paths).analyses


def test_waiting_that_another_collective_shares_is_not_hidden(draw: Callable[..., Path]) -> None:
    """Two wait at once for a late rank, exposed, so that each has half of that: what follows was put off by nothing."""
    path = draw(f"""
        call cudaLaunchKernel     @1  |abcd                                              |
        kernel gemm               @7  | aa                                               |
        kernel ncclDevKernel_One  @20 |    bbbbbbbbbbbbbbbbbbbbbbbb                      | {said("allreduce", "0", 1)}
        kernel ncclDevKernel_Two  @21 |    cccccccccccccccccccccccc                      | {said("allreduce", "1", 1)}
        kernel ncclDevKernel_One  @20 |                            dddddddddd            | {said("allreduce", "0", 2)}
        """)
    timeline = analyze_trace(read_trace(path)).timeline
    assert timeline.exposed_ns == (12_000, 12_000, 10_000)
    (*_, third) = find_holders(timeline, [24_000, 24_000, 28_000], [10_000, 10_000, 0])
    assert third.put_off_ns == 0
