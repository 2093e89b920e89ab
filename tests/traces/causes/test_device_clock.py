"""A device whose times were put wrongly on its host's clock: what sets the one against the other is not known."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dtbench.base.vocabulary import Cause, MissingInput
from dtbench.report.documents.traces import document_head as traces_document
from dtbench.report.words.trace_words import remark_lines
from dtbench.traces.device.clock import DeviceClock
from dtbench.traces.job.trace_set import TraceSet, gather_ranks
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.rank.file import Analyzed, TraceFile
from dtbench.traces.reader import read_trace
from dtbench.traces.reader.source import TraceSource

if TYPE_CHECKING:
    from tests.traces.causes.conftest import Maker

MS = 1_000_000
AHEAD = 2 * MS
LAST = AHEAD + 4 * MS
RECORDED = Path(__file__).parents[4] / "shared" / "traces"


@pytest.fixture
def explain_shifted(maker: "Maker", tmp_path: Path) -> Callable[..., TraceSet]:
    """Explain two ranks, of which the second begins 0.5 ms later what both need at once; rank 0's device is shifted."""

    def explain(shift_us: int) -> TraceSet:
        answers = []
        for number in range(2):
            rank = maker.gpu(2)
            with rank.around("ProfilerStep#3"), rank.region("forward"):
                rank.kernel(AHEAD, AHEAD + MS)
                start_ns = AHEAD + MS + number * MS // 2
                rank.collective(
                    start_ns, AHEAD + 2 * MS, operation="allreduce", group="x", seq=1, is_async=True, mesh="mesh_tp"
                )
                rank.wait_on_stream()
                rank.kernel(AHEAD + 2 * MS, LAST)
                rank.add("cuda_runtime", "cudaDeviceSynchronize", (1, 1), (rank.host_ns, LAST + 4_000))
                rank.host_ns = LAST + 4_000
            for event in rank.events:
                event["ts"] += shift_us if event["cat"] == "kernel" and number == 0 else 0
            path = tmp_path / f"rank{number}.json"
            told = {"distributedInfo": {"rank": number}, "host_name": "one", "traceEvents": rank.events}
            path.write_text(json.dumps(told))
            trace = read_trace(path)
            answers.append(Analyzed(TraceFile(TraceSource(path)), analyze_trace(trace), number, 2, trace.unread))
        return gather_ranks(answers)

    return explain


@pytest.mark.parametrize("shift_us", [0, 8, -8])
def test_where_the_clocks_fit_to_some_microseconds_causes_are_told(
    explain_shifted: Callable[..., TraceSet], shift_us: int
) -> None:
    traces = explain_shifted(shift_us)
    one = traces.analyses[0]
    assert not one.clock.is_off
    assert set(one.splits[0].by_cause) == {Cause.SKEW, Cause.NEEDED_AT_ONCE}
    assert one.steps[0].purposes[0].wait_ns == MS


@pytest.mark.parametrize(
    ("shift_us", "clock", "words"),
    [
        (
            -2_500,
            DeviceClock(early=1, early_ns=497_500, late=0, late_ns=0, launched=3, awaited=3),
            "1 of 3 events on the device begin",
        ),
        (
            500,
            DeviceClock(early=0, early_ns=0, late=1, late_ns=496_000, launched=3, awaited=3),
            "1 of 3 events on the device end after a call",
        ),
    ],
    ids=["early", "late"],
)
def test_where_they_do_not_fit_nothing_is_said_that_rests_on_both(
    explain_shifted: Callable[..., TraceSet], shift_us: int, clock: DeviceClock, words: str
) -> None:
    fitting, traces = explain_shifted(0).analyses[0], explain_shifted(shift_us)
    one = traces.analyses[0]
    assert replace(one.clock, early_ns=0) == replace(clock, early_ns=0)
    assert abs((one.clock.early_ns or 0) - (clock.early_ns or 0)) < 5_000
    assert any(words in line and "rank 0" in line for line in remark_lines(traces))
    parts = {part.cause: part.missing for part in one.splits[0].parts}
    assert parts == {Cause.SKEW: (), Cause.UNKNOWN: (MissingInput.DEVICE_CLOCK,)}
    assert one.steps[0].purposes[0].wait_ns is None
    gaps = one.accounts.steps[0].gaps
    assert gaps is not None
    assert (gaps.comm_wait_ns, gaps.host_wait_ns, gaps.host_sync_ns) == (None, None, None)
    assert one.steps[0].overlap == fitting.steps[0].overlap
    ranks = traces_document(traces)["ranks"]
    assert isinstance(ranks, list)
    assert ranks[0]["device_clock"] == asdict(one.clock)
    assert traces.analyses[1].clock == DeviceClock(0, 0, 0, 0, launched=3, awaited=3)


@pytest.mark.parametrize("name", ["a100x8_ddp_rank.json.gz", "mi300x_ddp_rank.json.gz", "h800_deepep_train.json.gz"])
def test_of_recorded_traces_the_clocks_fit(name: str) -> None:
    if not RECORDED.is_dir():
        pytest.skip("the recorded GPU traces (../shared/traces) are not on this machine")
    assert not analyze_trace(read_trace(RECORDED / name)).clock.is_off
