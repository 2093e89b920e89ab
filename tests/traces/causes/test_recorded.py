"""Causes in recorded gloo runs of ours, whose strategies are known."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from dtbench.base.vocabulary import Cause, Operation, Purpose
from dtbench.traces.causes.split import split_exposed
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.timeline import RankTimeline

TRACES = Path(__file__).parents[1] / "recorded"


def analysed(name: str) -> RankTimeline:
    return analyze_trace(read_trace(TRACES / name)).timeline


@pytest.mark.parametrize("name", ["ddp_2ranks_rank0.json.gz", "fsdp2_tp_2x2_rank0.json.gz"])
def test_causes_add_up_to_the_exposed_time_of_every_collective(name: str) -> None:
    timeline = analysed(name)
    # A last start in the middle of every span: parts of it then lie before and after.
    middles = [(one.start_ns + one.end_ns) // 2 for one in timeline.collectives]
    for splits in (split_exposed(timeline, middles), split_exposed(timeline, [None] * len(middles))):
        assert [sum(part.exposed_ns for part in one.parts) for one in splits] == list(timeline.exposed_ns)
        assert all(part.exposed_ns > 0 for one in splits for part in one.parts)


def test_one_rank_of_many_tells_no_skew_and_no_bandwidth() -> None:
    timeline = analysed("ddp_2ranks_rank0.json.gz")
    causes = {part.cause for one in split_exposed(timeline, [None] * len(timeline.collectives)) for part in one.parts}
    assert not causes & {Cause.SKEW, Cause.BANDWIDTH}


def test_ddps_third_bucket_stands_behind_the_first_on_gloos_thread() -> None:
    timeline = analysed("ddp_2ranks_rank0.json.gz")
    splits = split_exposed(timeline, [None] * len(timeline.collectives))
    owners = [one.owner for one in timeline.collectives if one.span.length_ns][:3]
    assert owners == ["bucket 0", "bucket 1", "bucket 2"]
    (part,) = splits[2].parts
    assert (part.cause, part.behind) == (Cause.QUEUED, 0)


def test_filling_a_bucket_is_no_late_issue() -> None:
    timeline = analysed("ddp_2ranks_rank0.json.gz")
    early = [replace(one, ready_ns=(one.issue_ns or 0) - 1_000_000) for one in timeline.collectives]
    splits = split_exposed(replace(timeline, collectives=tuple(early)), [None] * len(early))
    assert Cause.LATE_ISSUE not in {part.cause for split in splits for part in split.parts}


def test_what_ddps_last_bucket_did_not_queue_is_tail_though_other_buckets_are_copied_out_beside_it() -> None:
    timeline = analysed("ddp_2ranks_rank0.json.gz")
    splits = split_exposed(timeline, [None] * len(timeline.collectives))
    parts = [splits[index].parts for index, one in enumerate(timeline.collectives) if one.owner == "bucket 2"]
    assert [[part.cause for part in one] for one in parts] == [
        [Cause.QUEUED],
        [Cause.QUEUED, Cause.TAIL],
        [Cause.QUEUED, Cause.TAIL],
    ]


def test_fsdp2_blocks_on_gloo_and_its_gathers_are_issued_after_the_compute_that_could_hide_them() -> None:
    timeline = analysed("fsdp2_tp_2x2_rank0.json.gz")
    splits = split_exposed(timeline, [None] * len(timeline.collectives))
    found: dict[Operation | None, Counter[Cause]] = {}
    for one, split in zip(timeline.collectives, splits, strict=True):
        if one.purpose in (Purpose.UNSHARD, Purpose.GRAD_REDUCE):
            found.setdefault(one.operation, Counter()).update(part.cause for part in split.parts)
    assert found[Operation.REDUCE_SCATTER].keys() == {Cause.SYNC_OP}
    assert found[Operation.ALL_GATHER].keys() == {Cause.LATE_ISSUE, Cause.SYNC_OP}
    # The first gather of a forward follows nothing; every other follows a unit's compute.
    assert found[Operation.ALL_GATHER][Cause.LATE_ISSUE] == 3 * 5


def test_the_gradient_norm_is_needed_at_once() -> None:
    timeline = analysed("fsdp2_tp_2x2_rank0.json.gz")
    splits = split_exposed(timeline, [None] * len(timeline.collectives))
    norms = [
        split.cause for one, split in zip(timeline.collectives, splits, strict=True) if one.purpose is Purpose.OTHER
    ]
    assert set(norms) == {Cause.NEEDED_AT_ONCE}


def test_without_steps_no_gather_could_have_been_issued_before_the_optimizer_changed_what_it_gathers() -> None:
    trace = read_trace(TRACES / "two_ranks_one_gpu" / "fsdp2" / "rank0.json.gz")
    without = trace.select(~trace.is_named(lambda name: name.startswith("ProfilerStep#")))
    late_ns = [
        {
            one.start_ns: split.by_cause.get(Cause.LATE_ISSUE, 0)
            for one, split in zip(timeline.collectives, split_exposed(timeline, [None] * 36), strict=True)
            if one.purpose is Purpose.UNSHARD
        }
        for timeline in (analyze_trace(trace).timeline, analyze_trace(without).timeline)
    ]
    with_steps, without_steps = late_ns
    assert sum(with_steps.values()) > 0
    assert all(without_steps[start_ns] <= time_ns for start_ns, time_ns in with_steps.items())
    assert any(without_steps.values())  # units after the first of a pass still have one before them
