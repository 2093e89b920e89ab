"""FSDP's ranges are lost, its operators are not: no cause gets surer, and what may be FSDP's is no purpose's zero."""

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.vocabulary import Cause, MissingInput, Operation, Purpose, Region
from dtbench.report.words.trace_words import answer_lines
from dtbench.traces.causes.split import CauseSplit
from dtbench.traces.job.foreign import analyze_traces
from dtbench.traces.job.means import MeanPurpose, average_purposes
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.notes.lacking import PartRounds, UnknownPurposes
from dtbench.traces.notes.note import pick_notes
from dtbench.traces.time.intervals import unite
from dtbench.traces.who.collectives import Collective
from dtbench.traces.who.unranged import find_unasked, find_unranged

FSDP2 = Path(__file__).parent / "recorded" / "two_ranks_one_gpu" / "fsdp2"
Key = tuple[int, str, int]
Lost = Callable[[int, int, dict[str, Any]], bool]


def lose(target: Path, is_lost: Lost, ranks: tuple[int, ...] = (0, 1)) -> TraceSet:
    """Analyze FSDP2's traces without some of FSDP's ranges, by rank and by step, from 0."""
    for rank in ranks:
        trace = json.loads(gzip.decompress((FSDP2 / f"rank{rank}.json.gz").read_bytes()))
        events: list[dict[str, Any]] = trace["traceEvents"]
        starts = sorted(
            one["ts"]
            for one in events
            if one["name"].startswith("ProfilerStep") and one.get("cat") == "user_annotation"
        )
        trace["traceEvents"] = [
            one
            for one in events
            if not (
                one["name"].startswith("FSDP::") and is_lost(rank, sum(start <= one["ts"] for start in starts) - 1, one)
            )
        ]
        (target / f"rank{rank}.json").write_text(json.dumps(trace))
    return analyze_traces([target])


@cache
def analyze_whole(ranks: tuple[int, ...] = (0, 1)) -> TraceSet:
    return analyze_traces([FSDP2 / f"rank{rank}.json.gz" for rank in ranks])


def split_by_place(traces: TraceSet) -> Iterator[tuple[Key, CauseSplit]]:
    for one in traces.analyses:
        for collective, split in zip(one.collectives, one.splits, strict=True):
            if collective.is_seen:
                yield (one.rank, collective.lane, collective.start_ns), split


def find_purposes(traces: TraceSet) -> dict[Purpose, MeanPurpose]:
    return {row.purpose: row for row in average_purposes(traces.analyses)}


ALL: Lost = lambda _rank, _step, _one: True  # noqa: E731
OF_RANK: Lost = lambda rank, _step, _one: rank == 1  # noqa: E731
OF_STEP: Lost = lambda _rank, step, _one: step == 1  # noqa: E731
OF_ONE_UNIT: Lost = lambda _rank, step, one: step == 1 and "layers.0" in one["name"]  # noqa: E731


@pytest.mark.parametrize(
    ("is_lost", "ranks"),
    [(ALL, (0, 1)), (ALL, (0,)), (ALL, (1,)), (OF_RANK, (0, 1)), (OF_STEP, (0, 1)), (OF_ONE_UNIT, (0, 1))],
    ids=["all", "rank 0 alone", "rank 1 alone", "of one rank", "of one step", "of one unit in one step"],
)
def test_no_cause_gets_surer_without_ranges(tmp_path: Path, is_lost: Lost, ranks: tuple[int, ...]) -> None:
    whole = dict(split_by_place(analyze_whole(ranks)))
    for place, split in split_by_place(lose(tmp_path, is_lost, ranks)):
        known = {cause: ns for cause, ns in split.by_cause.items() if cause is not Cause.UNKNOWN}
        assert {cause: ns for cause, ns in known.items() if ns > whole[place].by_cause.get(cause, 0)} == {}


def test_what_rests_on_who_asked_is_unknown_and_says_so(tmp_path: Path) -> None:
    traces = lose(tmp_path, ALL)
    parts = [
        part
        for one in traces.analyses
        for collective, split in zip(one.collectives, one.splits, strict=True)
        if collective.operation is not Operation.ALL_REDUCE
        for part in split.parts
    ]
    assert {part.cause for part in parts} == {Cause.SKEW, Cause.UNKNOWN}
    missing = {part.missing for part in parts if part.cause is Cause.UNKNOWN}
    assert missing == {(MissingInput.ASKER,), (MissingInput.CLOCKS,)}
    assert {note.may_be for note in pick_notes(traces.notes, UnknownPurposes)} == {
        frozenset({Purpose.GRAD_REDUCE, Purpose.UNSHARD})
    }
    waits = [line for line in answer_lines(traces) if line.startswith(("gradient wait", "unshard wait"))]
    assert len(waits) == 2
    assert all(line.endswith("the traces do not hold who asked for them") for line in waits)


def test_a_step_without_ranges_is_no_zero_in_the_mean_of_a_purpose(tmp_path: Path) -> None:
    whole, found = find_purposes(analyze_whole()), find_purposes(lose(tmp_path, OF_STEP))
    for purpose in (Purpose.GRAD_REDUCE, Purpose.UNSHARD):
        assert not whole[purpose].is_least
        assert found[purpose].is_least
        assert found[purpose].is_wait_least
        assert (found[purpose].wait_ns or 0) < (whole[purpose].wait_ns or 0)


def test_a_step_without_ranges_makes_no_rounds(tmp_path: Path) -> None:
    assert not pick_notes(lose(tmp_path, OF_STEP).notes, PartRounds)


ONE = Collective(
    group="0", axis=None, seq=None, operation=Operation.ALL_REDUCE, purpose=Purpose.OTHER, owner="",
    size_bytes=8, issue_ns=1, issue_end_ns=None, span=unite([10], [20]), above=("c10d::allreduce_",),
)  # fmt: skip
GRADIENT = replace(ONE, purpose=Purpose.GRAD_REDUCE)
GATHER = replace(ONE, operation=Operation.ALL_GATHER, above=("c10d::_allgather_base_",))
SCATTER = replace(ONE, operation=Operation.REDUCE_SCATTER, above=("c10d::_reduce_scatter_base_",))
NODE = "autograd::engine::evaluate_function: RegisterPostBackwardFunctionBackward"
TO_ALL = replace(ONE, operation=Operation.ALL_TO_ALL, above=("c10d::alltoall_base_",))
GRADIENTS = frozenset({Purpose.GRAD_REDUCE})
PARAMETERS = frozenset({Purpose.UNSHARD})
DDP = "DistributedDataParallel.forward"
ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"


@pytest.mark.parametrize(
    ("ones", "names", "found"),
    [
        ([GATHER, SCATTER], (), {0: PARAMETERS, 1: GRADIENTS}),
        ([GATHER, replace(SCATTER, group="1")], (), {}),
        ([GATHER, GATHER], (), {}),  # anybody's
        ([GATHER, GATHER], ("fsdp::all_gather_copy_in",), {0: PARAMETERS, 1: PARAMETERS}),
        ([GATHER], ("fsdp::all_gather_copy_in", "FSDP::all_gather (layers.0)"), {}),  # not FSDP's, as its ranges say
        ([GATHER], ("FullyShardedDataParallel.forward",), {0: PARAMETERS}),
        ([replace(GATHER, issue_ns=None)], ("fsdp::all_gather_copy_in",), {}),
        ([replace(GATHER, region=Region.OPTIMIZER)], ("fsdp::all_gather_copy_in",), {}),
        ([replace(GATHER, above=("_c10d_functional::all_gather_into_tensor",))], ("fsdp::chunk_cat",), {}),
        ([GATHER, SCATTER, ONE, replace(ONE, above=(NODE,))], (), {0: PARAMETERS, 1: GRADIENTS, 3: GRADIENTS}),
        ([ONE, TO_ALL], (DDP,), {0: GRADIENTS}),
        ([ONE, TO_ALL], (DDP, ACCUMULATE), {}),
        ([ONE, TO_ALL], (), {}),
    ],
)
def test_a_trace_without_ranges_tells_by_what_else_is_left_that_they_are_lost(
    ones: list[Collective], names: tuple[str, ...], found: dict[int, frozenset[Purpose]]
) -> None:
    assert find_unranged(ones, [0] * len(ones), names) == found


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([[GRADIENT, GRADIENT], [ONE, ONE]], {2, 3}),
        ([[GRADIENT, GRADIENT], [GRADIENT, ONE]], {3}),
        ([[GRADIENT, GRADIENT, ONE], [ONE, ONE, ONE]], {3, 4, 5}),
        ([[GRADIENT, GRADIENT, ONE], [ONE]], set()),  # gradients are accumulated
        ([[GRADIENT, GRADIENT], [GRADIENT, GRADIENT, ONE]], set()),  # a loss now and then
        ([[GRADIENT], [replace(ONE, group="1")]], set()),
        ([[GRADIENT], [TO_ALL]], set()),
        ([[GRADIENT], [replace(ONE, above=("SyncBatchNorm",))]], set()),
        ([[ONE, TO_ALL], [ONE, ONE, TO_ALL]], set()),
    ],
)
def test_a_step_that_has_others_in_place_of_a_purpose_has_lost_its_ranges(
    steps: list[list[Collective]], found: set[int]
) -> None:
    ones = [one for step in steps for one in step]
    step_of = [place for place, step in enumerate(steps) for _ in step]
    assert find_unranged(ones, step_of, ()) == dict.fromkeys(sorted(found), GRADIENTS)


def test_causes_of_others_of_its_step_and_purpose_rest_on_it_too() -> None:
    ones = [GRADIENT, GRADIENT, GRADIENT, ONE, TO_ALL]
    assert find_unasked(ones, [0, 0, 1, 1, 1], {3: GRADIENTS}) == {2, 3}
    assert find_unasked([replace(ONE, issue_ns=None)], [0], {0: GRADIENTS}) == frozenset()
