"""One screen of anyone's traces: bars of steps alone beside each other, and files that are left out come first."""

from dataclasses import replace
from pathlib import Path

import pytest

from dtbench.report.page.brief.traces import traces_brief
from dtbench.report.page.page import Chart, Facts, Table
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.means import average
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.files import LeftOut, NumberedByName

PIPELINE = Path(__file__).parents[2] / "traces" / "recorded" / "pipelines" / "plain"


@pytest.fixture(scope="module")
def traces() -> TraceSet:
    return analyze_traces([PIPELINE])


def find_chart(traces: TraceSet) -> Chart:
    found = traces_brief(traces).parts[0].find("ranks")
    assert isinstance(found, Chart)
    return found


def take_steps(traces: TraceSet, *ranks: int) -> TraceSet:
    analyses = tuple(replace(one, steps=()) if one.rank in ranks else one for one in traces.analyses)
    return replace(traces, analyses=analyses)


def test_a_whole_trace_is_not_drawn_as_a_step(traces: TraceSet) -> None:
    assert [bar.label for bar in find_chart(traces).bars] == ["rank 0", "rank 1"]
    less = take_steps(traces, 0)
    assert not average(less.analyses[:1]).are_steps
    chart = find_chart(less)
    assert [bar.label for bar in chart.bars] == ["rank 1"]
    assert "no step is known of rank 0" in chart.note
    table = traces_brief(less).parts[0].find("losses")
    assert isinstance(table, Table)
    assert table.said[-1] == "all times: of rank 1 alone, of 2; not known of the others"


def test_shares_of_whole_traces_are_of_the_trace(traces: TraceSet) -> None:
    page = traces_brief(take_steps(traces, 0, 1))
    chart = find_chart(take_steps(traces, 0, 1))
    assert chart.title == "Where the time went, whole traces"
    assert chart.figures == ("trace", "exposed", "of trace")
    assert len(chart.bars) == 2
    largest = page.parts[0].find("largest")
    assert isinstance(largest, Facts)
    assert largest.title.startswith("The largest owners, ")
    assert "of trace)" in largest.facts[0].words


def test_a_trace_that_is_left_out_is_the_first_of_all_notes(traces: TraceSet) -> None:
    lesser = [NumberedByName((at,)) for at in range(9)]
    noted = replace(traces, notes=(*lesser, LeftOut(3, "rank3.json: no kernel is in it")))
    doubts = traces_brief(noted).parts[0].find("doubts")
    assert isinstance(doubts, Facts)
    assert doubts.facts[0].words == "rank 3 is left out: rank3.json: no kernel is in it"
