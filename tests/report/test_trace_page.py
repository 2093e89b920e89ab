"""Tables of traces beside their JSON: bounds where something was not seen to run, and n/a that is no zero."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dtbench.report.documents import traces as traces_documents
from dtbench.report.page.trace_page import time_table
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.trace_set import TraceSet

RECORDED = Path(__file__).parents[1] / "traces" / "recorded" / "ddp_2ranks_rank0.json.gz"


@pytest.fixture(scope="module")
def seen() -> TraceSet:
    return analyze_traces([RECORDED])


@pytest.fixture(scope="module")
def lacking(seen: TraceSet) -> TraceSet:
    """Return the same with a collective in each step that was issued and not seen to run."""
    (one,) = seen.analyses
    steps = [replace(step, lost=1, overlap=replace(step.overlap, is_least=True)) for step in one.steps]
    return replace(seen, analyses=(replace(one, steps=tuple(steps)),))


def test_communication_is_at_least_what_was_seen_and_what_may_be_communication_at_most(
    seen: TraceSet, lacking: TraceSet
) -> None:
    told = time_table(seen)
    titles = [column.plain_title for column in told.columns]
    assert titles == ["rank", "step", "time", "compute", "exposed comm", "exposed copies", "host", *titles[7:]]
    assert titles[7:] == ["hidden share", "exposed share"]
    steps = len(seen.analyses[0].steps)
    for whole, bound in zip(told.words[:steps], time_table(lacking).words[:steps], strict=True):
        rank, step, time, compute, exposed, copies, host, _, share = whole
        least, most = [f"at least {exposed}", f"at least {share}"], [f"at most {copies}", f"at most {host}"]
        assert bound == (rank, step, time, compute, least[0], *most, "n/a", least[1])


def test_json_tells_no_hidden_share_where_not_all_was_seen(seen: TraceSet, lacking: TraceSet) -> None:
    for traces, is_least in ((seen, False), (lacking, True)):
        ranks: Any = traces_documents.document(traces)["ranks"]
        for step, told in zip(seen.analyses[0].steps, ranks[0]["steps"], strict=True):
            assert told["at_least"] is is_least
            assert told["exposed_comm_ns"] == step.overlap.exposed_comm_ns
            share = step.overlap.hidden_fraction
            assert told["hidden_fraction"] == ("NaN" if is_least else pytest.approx(share))
