"""A stage's time is that of the slowest rank in each round; a wrong key of any rank is counted and named with it."""

import math
from typing import Any

from dtbench.analyze.summarize_stages import MOST_WRONG_KEYS, summarize_stages
from dtbench.store.records import RankRecord, StageMemory, StageMismatch, StageRecord, Traffic
from dtbench.vocabulary import Axis, Operation, Purpose, Stage, StatePart

MEMORY = StageMemory(
    host_before_bytes=100,
    host_peak_bytes=150,
    device_before_bytes=None,
    device_peak_bytes=None,
    samples=2,
    sampling_cpu_ns=10,
)
GATHER = Traffic(
    purpose=Purpose.STATE, axis=Axis.SHARD, operation=Operation.ALL_GATHER, count=3, size_bytes=300, count_async=3
)


def make_stage(*duration_ns: int, wrong: int = 0, state_bytes: int = 40) -> StageRecord:
    return StageRecord(
        stage=Stage.GATHER,
        part=StatePart.MODEL,
        duration_ns=duration_ns,
        state_bytes=state_bytes,
        traffic=(GATHER,),
        traffic_is_stable=True,
        object_collectives=2,
        object_bytes=17,
        file_bytes=None,
        memory=MEMORY,
        mismatched=wrong,
        mismatches=tuple(StageMismatch(key=f"w{key}", words="missing") for key in range(min(wrong, 20))),
    )


def make_rank(rank: int, *stages: StageRecord) -> RankRecord:
    fields: dict[str, Any] = {"rank": rank, "stages": stages}
    return RankRecord.model_construct(**fields)


def test_the_slowest_rank_of_each_round_counts() -> None:
    ranks = [make_rank(0, make_stage(10, 50, 30)), make_rank(1, make_stage(20, 40, 10, state_bytes=60))]
    (row,) = summarize_stages([ranks])
    assert (row.duration_ns, row.rounds) == (30, 3)
    assert (row.state_bytes, row.all_ranks_bytes) == (60, 100)
    assert (row.collectives, row.sent_bytes, row.object_collectives) == (3, 300, 2)
    assert (row.host_peak_bytes, row.device_peak_bytes, row.file_bytes) == (50, None, None)
    assert (row.mismatched, row.mismatches) == (0, ())


def test_rounds_of_all_launches_count_and_bytes_are_those_of_one() -> None:
    launches = [[make_rank(0, make_stage(10)), make_rank(1, make_stage(10))], [make_rank(0, make_stage(30))]]
    (row,) = summarize_stages(launches)
    assert (row.duration_ns, row.rounds, row.all_ranks_bytes) == (20, 2, 80)


def test_wrong_keys_are_all_counted_and_the_first_named_with_their_rank() -> None:
    (row,) = summarize_stages([[make_rank(0, make_stage(1)), make_rank(3, make_stage(1, wrong=25))]])
    assert (row.mismatched, len(row.mismatches)) == (25, MOST_WRONG_KEYS)
    assert {(one.rank, one.words) for one in row.mismatches} == {(3, "missing")}


def test_ranks_without_stages_have_no_rows() -> None:
    assert summarize_stages([[make_rank(0)], []]) == ()
    assert not math.isnan(summarize_stages([[make_rank(0, make_stage(1))]])[0].quartile1_ns)
