"""What a collective was for on a rank whose trace does not tell, by the traces of the other ranks."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.vocabulary import Purpose
from dtbench.report.words.trace_words import answer_lines
from dtbench.traces.job.explain import explain
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.means import MeanPurpose, average_purposes
from dtbench.traces.job.told_purposes import find_told_purposes, give_purposes
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.job import PurposesDisputed, PurposesFollowed
from dtbench.traces.notes.note import pick_notes, say_notes
from dtbench.traces.rank.analysis import TraceAnalysis

TRACES = Path(__file__).parent / "recorded"


def leave_out(source: Path, target: Path, is_lost: Callable[[dict[str, Any]], bool]) -> TraceSet:
    """Analyze two ranks, of the second of which some events are lost."""
    for rank in (0, 1):
        trace = json.loads(gzip.decompress((source / f"rank{rank}.json.gz").read_bytes()))
        if rank:
            trace["traceEvents"] = [one for one in trace["traceEvents"] if not is_lost(one)]
        (target / f"rank{rank}.json").write_text(json.dumps(trace))
    return analyze_traces([target])


def average_by_purpose(traces: TraceSet) -> dict[Purpose, MeanPurpose]:
    return {row.purpose: row for row in average_purposes(traces.analyses)}


def test_where_all_that_a_rank_does_not_tell_is_of_one_purpose_its_times_are_known(tmp_path: Path) -> None:
    source = TRACES / "two_ranks_one_gpu" / "ddp"
    whole = average_by_purpose(analyze_traces([source]))
    traces = leave_out(source, tmp_path, lambda one: one.get("cat") == "cpu_op")
    found = average_by_purpose(traces)
    assert list(found) == list(whole) == [Purpose.GRAD_REDUCE]
    names = ("count", "size_bytes", "comm_ns", "hidden_ns", "exposed_ns", "part")
    assert [getattr(found[Purpose.GRAD_REDUCE], name) for name in names] == [
        getattr(whole[Purpose.GRAD_REDUCE], name) for name in names
    ]
    assert (
        "rank 1: its trace does not tell what 18 collectives are for; the other ranks' traces do, and are followed"
    ) in say_notes(traces.notes)


def is_computing(one: dict[str, Any]) -> bool:
    name = one["name"]
    return one.get("cat") == "cpu_op" and "gloo" not in name and "c10d" not in name and name != "record_param_comms"


def test_where_it_is_of_several_each_ones_times_are_known(tmp_path: Path) -> None:
    source = TRACES / "zero" / "zero3"
    whole = analyze_traces([source])
    traces = leave_out(source, tmp_path, is_computing)
    names = ("count", "size_bytes", "comm_ns", "wait_ns", "is_wait_least", "part", "is_least")
    found, wanted = average_by_purpose(traces), average_by_purpose(whole)
    assert list(found) == list(wanted)
    for purpose, row in wanted.items():
        assert [getattr(found[purpose], name) for name in names] == [getattr(row, name) for name in names]
    (said,) = (line for line in answer_lines(traces) if line.startswith("gradient wait"))
    assert said in answer_lines(whole)


def of_pair(
    names: tuple[tuple[str, ...], tuple[str, ...]], purposes: tuple[Purpose, Purpose]
) -> tuple[TraceAnalysis, ...]:
    """Return two ranks whose last collective has names around it and is of a purpose, each its own."""
    found = []
    for one, above, purpose in zip(
        analyze_traces([TRACES / "two_ranks_one_gpu" / "ddp"]).analyses, names, purposes, strict=True
    ):
        *more, last = (replace(each, above=()) for each in one.collectives)
        collectives = (*more, replace(last, above=above, purpose=purpose))
        found.append(replace(one, timeline=replace(one.timeline, collectives=collectives)))
    return tuple(found)


@pytest.mark.parametrize(
    ("names", "is_followed"),
    [
        ((("forward",), ("forward",)), True),
        ((("forward", "ProfilerStep#4"), ("forward", "ProfilerStep#3")), True),
        (((), ("hook",)), True),
        ((("clip_grad_norm_",), ()), False),
        ((("clip_grad_norm_",), ("hook",)), False),
    ],
)
def test_a_rank_whose_names_tell_more_is_not_overruled(
    names: tuple[tuple[str, ...], tuple[str, ...]], is_followed: bool
) -> None:
    analyses = of_pair(names, (Purpose.OTHER, Purpose.GRAD_REDUCE))
    found = explain(analyses)
    assert (found.analyses[0].collectives[-1].purpose is Purpose.GRAD_REDUCE) is is_followed
    assert bool(pick_notes(found.over_ranks.notes, PurposesFollowed)) is is_followed
    assert not pick_notes(found.over_ranks.notes, PurposesDisputed)


def test_what_the_other_ranks_disagree_about_is_not_known_and_no_zero() -> None:
    first, second = of_pair(((), ()), (Purpose.OTHER, Purpose.GRAD_REDUCE))
    matches = explain([first, second]).over_ranks.matches
    third = replace(second.timeline, rank=2)
    collectives = (*third.collectives[:-1], replace(third.collectives[-1], purpose=Purpose.TENSOR))
    third = replace(third, collectives=collectives)
    (group,) = matches.groups
    index = group.index[:, [0, 1, 1]]
    of_three = replace(matches, groups=(replace(group, ranks=(0, 1, 2), index=index),))
    told = find_told_purposes(of_three, [first.timeline, second.timeline, third])
    assert dict(told[0].disputed) == {len(first.collectives) - 1: frozenset({Purpose.GRAD_REDUCE, Purpose.TENSOR})}
    (note,) = told[0].note(0)
    assert str(note) == (
        "rank 0: its trace does not tell what 1 collective is for, and the other ranks disagree (grad_reduce, tensor):"
        " of these there may be more than is said"
    )
    given = give_purposes(first, told[0])
    rows = {row.purpose: row for row in given.whole_purposes}
    assert (rows[Purpose.TENSOR].count, rows[Purpose.TENSOR].comm_ns, rows[Purpose.TENSOR].wait_ns) == (0, None, None)
    assert [step.purposes for step in given.steps[:-1]] == [step.purposes for step in first.steps[:-1]]  # not there
    was, now = (
        {row.purpose: row for row in one.steps[-1].purposes}[Purpose.GRAD_REDUCE].exposed_ns for one in (first, given)
    )
    assert was is not None
    assert now is not None
    assert 0 < now < was
