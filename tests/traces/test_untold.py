"""Collectives whose launch is lost: what they were for is not known, and what may be theirs is no zero."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtbench.base.vocabulary import Operation, Purpose
from dtbench.report.words.trace_words import answer_lines
from dtbench.traces.account.purpose_times import PurposeTime
from dtbench.traces.account.untold_times import bound_purposes, place_untold
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.means import MeanPurpose, average_purposes
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.note import say_notes
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import unite
from dtbench.traces.time.shares import share_time
from dtbench.traces.who.collectives import Collective
from dtbench.traces.who.untold import find_untold

DDP = Path(__file__).parent / "recorded" / "two_ranks_one_gpu" / "ddp"
NOTE = "the launch of 3 collectives, "


def lose_launches(target: Path, is_lost: Callable[[int, int], bool]) -> TraceSet:
    """Analyze DDP's traces without the launches of some of the six all-reduces of each step, by rank and place."""
    for rank in (0, 1):
        trace = json.loads(gzip.decompress((DDP / f"rank{rank}.json.gz").read_bytes()))
        events: list[dict[str, Any]] = trace["traceEvents"]
        calls = {
            one["args"].get("correlation"): one for one in events if one.get("cat") in ("cuda_runtime", "cuda_driver")
        }
        kernels = [one for one in events if one.get("cat") == "kernel" and "nccl" in one["name"]]
        kernels = sorted((one for one in kernels if one["args"]["correlation"] in calls), key=lambda one: one["ts"])
        lost = [calls[one["args"]["correlation"]] for place, one in enumerate(kernels) if is_lost(rank, place % 6)]
        trace["traceEvents"] = [one for one in events if not any(one is call for call in lost)]
        (target / f"rank{rank}.json").write_text(json.dumps(trace))
    return analyze_traces([target])


def find_gradients(traces: TraceSet) -> MeanPurpose:
    return next(row for row in average_purposes(traces.analyses) if row.purpose is Purpose.GRAD_REDUCE)


def test_the_gradient_wait_is_at_least_what_is_seen_where_a_buckets_launch_is_lost(tmp_path: Path) -> None:
    whole = find_gradients(analyze_traces([DDP]))
    traces = lose_launches(tmp_path, lambda _, place: place == 5)
    found = find_gradients(traces)
    assert not whole.is_least
    assert not whole.is_wait_least
    assert found.is_least
    assert found.is_wait_least
    assert found.wait_ns is not None
    assert whole.wait_ns is not None
    assert 0 < found.wait_ns < whole.wait_ns
    (said,) = (line for line in answer_lines(traces) if line.startswith("gradient wait"))
    assert said.startswith("gradient wait at least ")
    assert (
        sum(
            NOTE in note and "of grad_reduce there may be more than is said" in note for note in say_notes(traces.notes)
        )
        == 2
    )


def test_the_wait_is_not_known_where_nothing_else_was_awaited(tmp_path: Path) -> None:
    """Of two steps of rank 0 nothing is known: an all-reduce between them may be of either."""
    traces = lose_launches(tmp_path, lambda _, place: place > 0)
    assert [one.unsure_steps for one in traces.analyses] == [(2, 3), ()]
    known = [step for one in traces.analyses for step in one.steps if step.step not in one.unsure_steps]
    rows = [row for step in known for row in step.purposes]
    gradients = [row for row in rows if row.purpose is Purpose.GRAD_REDUCE]
    assert all(row.count == 1 and row.wait_ns != 0 and row.is_wait_least for row in gradients)
    assert any(row.wait_ns is None for row in gradients)


def test_nothing_is_left_open_where_the_other_ranks_tell(tmp_path: Path) -> None:
    whole = find_gradients(analyze_traces([DDP]))
    found = find_gradients(lose_launches(tmp_path, lambda rank, place: rank == 1 and place == 2))
    assert found == whole


@pytest.mark.parametrize("lost", range(6))
def test_buckets_keep_their_numbers_where_one_launch_is_lost(tmp_path: Path, lost: int) -> None:
    whole = analyze_traces([DDP])
    traces = lose_launches(tmp_path, lambda _, place: place == lost)
    for one, other in zip(traces.analyses, whole.analyses, strict=True):
        owners = [collective.owner for collective in other.collectives]
        assert [collective.owner or name for collective, name in zip(one.collectives, owners, strict=True)] == owners
    (note,) = [note for note in say_notes(traces.notes) if "DDP's buckets" in note] or [""]
    assert ("in steps 2-4 all-reduces" in note) is (lost < 5)


def test_a_sum_in_backward_whose_node_is_lost_may_be_of_gradients(tmp_path: Path) -> None:
    for rank in (0, 1):
        trace = json.loads(gzip.decompress((DDP / f"rank{rank}.json.gz").read_bytes()))
        events: list[dict[str, Any]] = trace["traceEvents"]
        asked = [one for one in events if one["name"] == "c10d::allreduce_"][8]
        nodes = [
            one
            for one in events
            if "AccumulateGrad" in one["name"] and one["tid"] == asked["tid"]
            if one["ts"] <= asked["ts"] < one["ts"] + one["dur"]
        ]
        trace["traceEvents"] = [one for one in events if one not in nodes]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace))
    traces = analyze_traces([tmp_path])
    found = find_gradients(traces)
    assert found.is_least
    assert found.is_wait_least
    assert sum("who asked for 1 collective, " in note for note in say_notes(traces.notes)) == 2


ONE = Collective(
    group="0", axis=None, seq=None, operation=Operation.ALL_REDUCE, purpose=Purpose.OTHER, owner="",
    size_bytes=8, issue_ns=None, issue_end_ns=None, span=unite([10], [20]), above=(), is_wait_seen=True,
)  # fmt: skip
GRADIENT = replace(ONE, purpose=Purpose.GRAD_REDUCE, issue_ns=1, above=("call", "hook"), span=unite([110], [130]))


def bound(one: Collective, compute: tuple[int, int], rows: tuple[PurposeTime, ...]) -> tuple[PurposeTime, ...]:
    """Account for one of unknown purpose in a first step, and for one of gradients in a second."""
    both = [one, GRADIENT]
    shares = share_time([each.span for each in both], unite(*np.array([compute]).T), [Window(0, 100), Window(100, 200)])
    untold = find_untold(both)
    steps = [0, 1]
    placed = place_untold(untold, steps, shares)
    assert placed == [frozenset(untold.get(0, ())), frozenset()]
    first, second, _ = bound_purposes([rows, (), ()], both, steps, shares, untold)
    assert second == ()
    return first


SEEN = PurposeTime(
    Purpose.GRAD_REDUCE, count=1, size_bytes=8, unsized=0, comm_ns=5, hidden_ns=0, exposed_ns=5, wait_ns=0
)


@pytest.mark.parametrize(
    ("one", "compute", "changed"),
    [
        (ONE, (0, 5), {}),  # seen to be exposed, and waited for by nobody
        (ONE, (10, 15), {"hidden_ns": None}),
        (replace(ONE, is_wait_seen=False), (0, 5), {"wait_ns": None, "is_wait_least": True}),
        (replace(ONE, first_wait_ns=15, first_wait_end_ns=20), (0, 5), {"wait_ns": None, "is_wait_least": True}),
        (replace(ONE, operation=Operation.ALL_GATHER, is_wait_seen=False), (10, 15), {}),
        (replace(ONE, group="1", is_wait_seen=False), (10, 15), {}),
        (replace(ONE, issue_ns=5, above=("call", "aten::add"), is_wait_seen=False), (10, 15), {}),
        (replace(ONE, issue_ns=5, above=("c10d::allreduce_",), is_wait_seen=False), (10, 15), {}),
        (replace(ONE, issue_ns=5, above=("cuLaunchKernelEx",)), (10, 15), {"hidden_ns": None}),
        (replace(ONE, group="", operation=None), (10, 15), {"hidden_ns": None}),
    ],
)
def test_only_zeros_that_may_be_more_are_not_known(
    one: Collective, compute: tuple[int, int], changed: dict[str, Any]
) -> None:
    assert bound(one, compute, (SEEN,)) == (replace(SEEN, **changed),)


def test_a_purpose_that_nothing_was_seen_of_in_a_step_is_no_zero_where_one_may_be_of_it() -> None:
    (row,) = bound(replace(ONE, is_wait_seen=False), (0, 5), ())
    assert (row.purpose, row.count) == (Purpose.GRAD_REDUCE, 0)
    assert (row.size_bytes, row.comm_ns, row.hidden_ns, row.exposed_ns, row.wait_ns) == (None, None, 0, None, None)
    assert row.is_wait_least
