"""A stage's time is that of the slowest rank in each round; a wrong key of any rank is counted and named with it."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dtbench.base.vocabulary import Axis, DeviceKind, Operation, Purpose, Stage, StageOutcome, StatePart
from dtbench.plan.plan import MeshAxis
from dtbench.runs.cell import summarize_stages as stages
from dtbench.runs.cell.stage_plan import StagePlan
from dtbench.runs.cell.summarize_stages import MOST_WRONG_KEYS
from dtbench.runs.stage_summary import StageSummary
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.records.extras import RankExtras
from dtbench.store.records.rank import RankRecord
from dtbench.store.records.state import LEAST_SAMPLES, StageMemory, StageMismatch, StageRecord, StateDictRecord
from dtbench.store.records.traffic import Traffic

MEMORY = StageMemory(
    host_before_bytes=100,
    host_peak_bytes=150,
    device_before_bytes=None,
    device_peak_bytes=None,
    samples=LEAST_SAMPLES + 1,
    sampling_cpu_ns=10,
)
GATHER = Traffic(
    purpose=Purpose.STATE, axis=Axis.SHARD, operation=Operation.ALL_GATHER, count=3, size_bytes=300, count_async=3
)


NOTHING = StagePlan(None, (), 1)


def make_stage(*duration_ns: int, wrong: int = 0, state_bytes: int = 40) -> StageRecord:
    return StageRecord(
        stage=Stage.GATHER,
        part=StatePart.MODEL,
        duration_ns=duration_ns,
        wait_ns=tuple(one // 2 for one in duration_ns),
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
    fields: dict[str, Any] = {"rank": rank, "extras": RankExtras(state_dict=StateDictRecord(stages=stages))}
    return RankRecord.model_construct(**fields)


def summarize_stages(launches: Sequence[Sequence[RankRecord]], plan: StagePlan) -> tuple[StageSummary, ...]:
    """Summarise launches that have as many ranks as the first."""
    return stages.summarize_stages(dict(enumerate(launches)), replace(plan, ranks=len(launches[0])))


def test_the_slowest_rank_of_each_round_counts() -> None:
    ranks = [make_rank(0, make_stage(10, 50, 30)), make_rank(1, make_stage(20, 40, 10, state_bytes=60))]
    (row,) = summarize_stages([ranks], NOTHING)
    assert (row.duration_ns, row.shortest_ns, row.wait_ns, row.rounds) == (30, 20, 15, 3)
    assert (row.state_bytes, row.all_ranks_bytes) == (60, 100)
    assert (row.collectives, row.sent_bytes, row.object_collectives) == (3, 300, 2)
    assert (row.host_peak_bytes, row.device_peak_bytes, row.file_bytes) == (50, None, None)
    assert (row.mismatched, row.mismatches) == (0, ())


def test_rounds_of_all_launches_count_and_bytes_are_those_of_one() -> None:
    launches = [[make_rank(rank, make_stage(duration_ns)) for rank in (0, 1)] for duration_ns in (10, 30)]
    (row,) = summarize_stages(launches, NOTHING)
    assert (row.duration_ns, row.rounds, row.all_ranks_bytes, row.known_part) == (20, 2, 80, None)


def test_a_launch_of_which_a_rank_does_not_tell_is_in_no_number_but_its_wrong_keys_are_counted() -> None:
    whole = [make_rank(0, make_stage(10)), make_rank(1, make_stage(10))]
    (row,) = summarize_stages([whole, [make_rank(0, make_stage(30, wrong=1)), make_rank(1)]], NOTHING)
    assert (row.duration_ns, row.rounds, row.all_ranks_bytes, row.mismatched) == (10, 1, 80, 1)
    assert str(row.known_part) == "launch0 alone, of 2"
    (row,) = summarize_stages([[make_rank(0, make_stage(10)), make_rank(1)]], NOTHING)
    assert (row.rounds, row.all_ranks_bytes, row.host_peak_bytes, row.mismatched) == (0, None, None, None)
    assert row.outcome is StageOutcome.NOT_COMPARED
    assert math.isnan(row.duration_ns)


def test_bits_are_equal_only_where_every_rank_compared_them_and_memory_is_of_all_ranks() -> None:
    silent = make_stage(10).model_copy(update={"mismatched": None, "memory": None})
    (row,) = summarize_stages([[make_rank(0, make_stage(10)), make_rank(1, silent)]], NOTHING)
    assert (row.outcome, row.mismatched, row.host_peak_bytes) == (StageOutcome.NOT_COMPARED, None, None)
    (row,) = summarize_stages([[make_rank(0, make_stage(10, wrong=2)), make_rank(1, silent)]], NOTHING)
    assert (row.outcome, row.mismatched) == (StageOutcome.WRONG, 2)


def test_wrong_keys_are_all_counted_and_the_first_named_with_their_rank() -> None:
    (row,) = summarize_stages([[make_rank(0, make_stage(1)), make_rank(3, make_stage(1, wrong=25))]], NOTHING)
    assert (row.mismatched, len(row.mismatches)) == (25, MOST_WRONG_KEYS)
    assert {(one.rank, one.words) for one in row.mismatches} == {(3, "missing")}


def test_wrong_keys_of_all_ranks_add_up() -> None:
    ranks = [make_rank(rank, make_stage(1, wrong=wrong)) for rank, wrong in enumerate((2, 0, 5))]
    (row,) = summarize_stages([ranks], NOTHING)
    assert row.mismatched == 7
    assert [one.rank for one in row.mismatches] == [0, 0, 2, 2, 2, 2, 2]


KNOWN: dict[str, Any] = {
    "stages": ["gather"],
    "broken": [{"part": "model", "stage": "gather", "says": "out of bounds"}],
}


@pytest.mark.parametrize(
    ("wrong", "raised", "asked", "outcome"),
    [
        (0, None, None, StageOutcome.EQUAL),
        (1, None, None, StageOutcome.WRONG),
        (0, "RuntimeError: out of bounds", None, StageOutcome.RAISED),
        (0, "RuntimeError: out of bounds", KNOWN, StageOutcome.BROKEN),
        (0, "RuntimeError: another", KNOWN, StageOutcome.RAISED),
        (1, None, KNOWN, StageOutcome.WRONG),
        (0, None, KNOWN, StageOutcome.MENDED),
    ],
)
def test_what_became_of_a_stage_is_judged_beside_what_is_known_of_it(
    scenario: Callable[..., Scenario],
    wrong: int,
    raised: str | None,
    asked: dict[str, Any] | None,
    outcome: StageOutcome,
) -> None:
    if raised is None:
        ranks = [make_rank(0, make_stage(1)), make_rank(1, make_stage(1, wrong=wrong))]
    else:
        unfinished = StageRecord(stage=Stage.GATHER, part=StatePart.MODEL)
        ranks = [make_rank(0, unfinished), make_rank(1, unfinished.model_copy(update={"raised": raised}))]
    plan = NOTHING if asked is None else StagePlan(scenario(state_dict=asked), (), 1)
    (row,) = summarize_stages([ranks], plan)
    assert row.outcome is outcome
    assert [(one.rank, one.words) for one in row.raised] == ([] if raised is None else [(1, raised)])
    assert math.isnan(row.duration_ns) is math.isnan(row.shortest_ns) is (raised is not None)


@pytest.mark.parametrize(
    ("torch", "outcome"),
    [
        ("2.12.1+cu130", StageOutcome.EQUAL),
        ("2.13.0+cpu", StageOutcome.MENDED),
        ("2.14.0a0+git1", StageOutcome.MENDED),
        (None, StageOutcome.MENDED),
    ],
)
def test_a_stage_may_work_in_a_torch_older_than_the_first_that_breaks_it(
    scenario: Callable[..., Scenario], torch: str | None, outcome: StageOutcome
) -> None:
    asked = {**KNOWN, "broken": [{**KNOWN["broken"][0], "since": "2.13"}]}
    plan = StagePlan(scenario(state_dict=asked), (), 1, torch=torch)
    (row,) = summarize_stages([[make_rank(0, make_stage(1)), make_rank(1, make_stage(1))]], plan)
    assert row.outcome is outcome
    raised = StageRecord(stage=Stage.GATHER, part=StatePart.MODEL, raised="RuntimeError: out of bounds")
    (row,) = summarize_stages([[make_rank(0, raised)]], plan)
    assert row.outcome is StageOutcome.BROKEN


@pytest.mark.parametrize(
    ("torch", "works", "raises"),
    [
        ("2.13.0+cpu", StageOutcome.MENDED, StageOutcome.BROKEN),
        ("2.14.1", StageOutcome.EQUAL, StageOutcome.RAISED),
        ("2.15.0+cu132", StageOutcome.EQUAL, StageOutcome.RAISED),
        (None, StageOutcome.MENDED, StageOutcome.BROKEN),
    ],
)
def test_a_stage_must_work_from_the_first_torch_on_that_mends_it(
    scenario: Callable[..., Scenario], torch: str | None, works: StageOutcome, raises: StageOutcome
) -> None:
    asked = {**KNOWN, "broken": [{**KNOWN["broken"][0], "until": "2.14"}]}
    plan = StagePlan(scenario(state_dict=asked), (), 1, torch=torch)
    (row,) = summarize_stages([[make_rank(0, make_stage(1)), make_rank(1, make_stage(1))]], plan)
    assert row.outcome is works
    raised = StageRecord(stage=Stage.GATHER, part=StatePart.MODEL, raised="RuntimeError: out of bounds")
    (row,) = summarize_stages([[make_rank(0, raised)]], plan)
    assert row.outcome is raises


LINK = {"kind": "emulated", "latency_us": 20_000, "bandwidth_gb_per_s": 0.001}
MESH = (MeshAxis(name=Axis.SHARD, size=2),)


def test_what_a_link_of_known_cost_takes_is_alpha_and_beta_for_tensors_and_objects(
    scenario: Callable[..., Scenario],
) -> None:
    """Three gathers of 100 B and two objects of 8 B; a byte takes 1 us, a message 20 ms."""
    asked = scenario(parallel={"kind": "fsdp2", "shards": 2}, network=LINK, state_dict={"stages": ["gather"]})
    (row,) = summarize_stages([[make_rank(0, make_stage(1)), make_rank(1, make_stage(1))]], StagePlan(asked, MESH, 1))
    assert row.link_ns == 5 * 20_000_000 + (3 * 100 + 2 * 8) * 1_000
    assert math.isnan(summarize_stages([[make_rank(0, make_stage(1))]], NOTHING)[0].link_ns)


def test_a_rank_or_a_round_that_sends_other_than_its_formula_is_told(scenario: Callable[..., Scenario]) -> None:
    model = {"kind": "mlp", "layers": 2, "dim": 8, "hidden_dim": 8, "bias": False}
    asked = scenario(model=model, parallel={"kind": "fsdp2", "shards": 2}, state_dict={"stages": ["gather"]})
    right = make_stage(1).model_copy(
        update={"traffic": (GATHER.model_copy(update={"count": 4, "size_bytes": 4 * 256}),)}
    )
    unstable = right.model_copy(update={"traffic_is_stable": False})
    for seen, matches in (((right, right), True), ((right, make_stage(1)), False), ((right, unstable), False)):
        ranks = [make_rank(rank, stage) for rank, stage in enumerate(seen)]
        (row,) = summarize_stages([ranks], StagePlan(asked, MESH, 1))
        assert row.matches_plan is matches
        assert row.is_steady is (unstable not in seen)
    assert summarize_stages([[make_rank(0, right)]], NOTHING)[0].matches_plan is None


def test_over_nccl_without_a_link_nobody_sees_collectives_and_no_difference_is_claimed(
    scenario: Callable[..., Scenario],
) -> None:
    asked = scenario(parallel={"kind": "fsdp2", "shards": 2}, state_dict={"stages": ["gather"]}, device="cuda")
    silent = make_stage(1).model_copy(update={"traffic": (), "object_collectives": 0})
    (row,) = summarize_stages([[make_rank(0, silent)]], StagePlan(asked, (), 1, DeviceKind.CUDA))
    assert (row.collectives, row.sent_bytes, row.object_collectives, row.matches_plan) == (None, None, None, None)
    (seen,) = summarize_stages([[make_rank(0, silent)]], StagePlan(asked, (), 1))
    assert (seen.collectives, seen.matches_plan) == (0, False)


def test_of_a_stage_that_raised_nothing_is_told_to_be_zero(scenario: Callable[..., Scenario]) -> None:
    ranks = [make_rank(rank, RAISED) for rank in (0, 1)]
    (row,) = summarize_stages([ranks], StagePlan(scenario(state_dict=KNOWN), (), 1))
    told = (row.state_bytes, row.all_ranks_bytes, row.collectives, row.sent_bytes, row.object_collectives)
    assert (*told, row.host_peak_bytes, row.mismatched) == (None,) * 7
    assert '"sent_bytes":"NaN"' in row.model_dump_json()
    (row,) = summarize_stages([ranks, [make_rank(0, make_stage(10)), make_rank(1, make_stage(10))]], NOTHING)
    assert (row.all_ranks_bytes, row.sent_bytes, row.rounds) == (80, 300, 1), "of the launch that came to its end"


RAISED = StageRecord(stage=Stage.GATHER, part=StatePart.MODEL, raised="RuntimeError: out of bounds")
SAVE = make_stage(1).model_copy(update={"stage": Stage.SAVE})
READ = make_stage(1).model_copy(update={"stage": Stage.READ})
WRONG_READ = make_stage(1, wrong=2).model_copy(update={"stage": Stage.READ})
RAISED_READ = RAISED.model_copy(update={"stage": Stage.READ})


@pytest.mark.parametrize(
    ("stages", "outcome", "mismatched"),
    [
        ((SAVE,), StageOutcome.NOT_COMPARED, None),
        ((SAVE, READ), StageOutcome.EQUAL, 0),
        ((SAVE, WRONG_READ), StageOutcome.WRONG, None),
        ((SAVE, RAISED_READ), StageOutcome.NOT_COMPARED, None),
    ],
)
def test_what_a_save_wrote_is_judged_by_who_reads_it(
    stages: tuple[StageRecord, ...], outcome: StageOutcome, mismatched: int | None
) -> None:
    row, *_ = summarize_stages([[make_rank(0, *stages), make_rank(1, *stages)]], NOTHING)
    assert (row.stage, row.outcome, row.mismatched) == (Stage.SAVE, outcome, mismatched)


def test_a_stage_that_had_nothing_to_compare_is_not_said_to_be_equal() -> None:
    empty = make_stage(1).model_copy(update={"stage": Stage.FLATTEN, "mismatched": None})
    (row,) = summarize_stages([[make_rank(0, empty), make_rank(1, empty)]], NOTHING)
    assert (row.outcome, row.mismatched) == (StageOutcome.NOT_COMPARED, None)


def save_told(*file_bytes: int | None) -> tuple[RankRecord, ...]:
    return tuple(make_rank(rank, SAVE.model_copy(update={"file_bytes": one})) for rank, one in enumerate(file_bytes))


def test_what_a_rank_does_not_tell_of_a_stage_is_no_zero_and_no_other_ranks_stands_for_it() -> None:
    """A record that lacks the keys: whether bits are equal, bytes and collectives are not known."""
    whole = json.loads(make_stage(10).model_dump_json())
    lacking = {name: value for name, value in whole.items() if name in ("stage", "part", "duration_ns", "wait_ns")}
    silent = StageRecord.model_validate_json(json.dumps(lacking))
    for ranks in ((silent, silent), (make_stage(10), silent), (silent, make_stage(10))):
        (row,) = summarize_stages([[make_rank(rank, one) for rank, one in enumerate(ranks)]], NOTHING)
        told = (row.state_bytes, row.all_ranks_bytes, row.collectives, row.sent_bytes, row.object_collectives)
        assert told == (None,) * 5
        assert (row.outcome, row.mismatched, row.rounds) == (StageOutcome.NOT_COMPARED, None, 1)


def test_a_rank_that_does_not_tell_what_it_sent_neither_keeps_nor_breaks_the_formula(
    scenario: Callable[..., Scenario],
) -> None:
    parallel = {"kind": "fsdp2", "shards": 2}
    asked = scenario(parallel=parallel, network=LINK, state_dict={"stages": ["gather"]})
    plan = StagePlan(asked, MESH, 1)
    planned = plan.find_traffic(StatePart.MODEL, Stage.GATHER)
    assert planned is not None
    lines = tuple(GATHER.model_copy(update={"count": one.count, "size_bytes": one.size_bytes}) for one in planned)
    right = make_stage(1).model_copy(update={"traffic": lines})
    silent = make_stage(1).model_copy(update={"traffic": None})
    for first, second, matches in ((right, right, True), (right, silent, None), (silent, make_stage(1), False)):
        (row,) = summarize_stages([[make_rank(0, first), make_rank(1, second)]], plan)
        assert row.matches_plan is matches
        assert math.isnan(row.link_ns) is (silent in (first, second))


def test_files_that_a_rank_does_not_tell_of_are_not_known_and_a_stage_without_has_none() -> None:
    (row,) = summarize_stages([save_told(5, 7)], NOTHING)
    assert row.file_bytes == 7
    (row,) = summarize_stages([save_told(5, None)], NOTHING)
    assert '"file_bytes":"NaN"' in row.model_dump_json()
    assert math.isnan(StageSummary.model_validate_json(row.model_dump_json()).file_bytes or 0)
    (row,) = summarize_stages([[make_rank(0, make_stage(1))]], NOTHING)
    assert row.file_bytes is None


@pytest.mark.parametrize(
    ("samples", "is_kept", "peak_bytes"),
    [(1, False, None), (LEAST_SAMPLES, False, None), (LEAST_SAMPLES + 1, False, 50), (1, True, 50)],
)
def test_a_peak_that_too_few_samples_saw_is_not_known(samples: int, *, is_kept: bool, peak_bytes: int | None) -> None:
    few = MEMORY.model_copy(update={"samples": samples, "is_host_peak_kept": is_kept})
    ranks = [make_rank(0, make_stage(1)), make_rank(1, make_stage(1).model_copy(update={"memory": few}))]
    (row,) = summarize_stages([ranks], NOTHING)
    assert row.host_peak_bytes == peak_bytes


def test_a_stage_is_mended_only_where_every_rank_came_to_its_end_and_compared(
    scenario: Callable[..., Scenario],
) -> None:
    plan = StagePlan(scenario(state_dict=KNOWN), (), 1)
    untimed, uncompared = make_stage(), make_stage(1).model_copy(update={"mismatched": None})
    for second in ([untimed], [uncompared], []):
        (row,) = summarize_stages([[make_rank(0, make_stage(1)), make_rank(1, *second)]], plan)
        assert row.outcome is StageOutcome.NOT_COMPARED
    whole = [make_rank(0, make_stage(1)), make_rank(1, make_stage(1))]
    assert summarize_stages([whole, whole], plan)[0].outcome is StageOutcome.MENDED
    assert summarize_stages([whole, whole[:1]], plan)[0].outcome is StageOutcome.NOT_COMPARED
    assert summarize_stages([whole, []], plan)[0].outcome is StageOutcome.NOT_COMPARED


def test_a_save_that_is_known_to_be_broken_is_mended_where_what_it_wrote_is_read(
    scenario: Callable[..., Scenario],
) -> None:
    broken = [{"part": "model", "stage": "save", "says": "no such file"}]
    plan = StagePlan(scenario(state_dict={"stages": ["save", "read"], "broken": broken}), (), 1)
    for done, outcome in (
        ((SAVE, READ), StageOutcome.MENDED),
        ((SAVE, READ.model_copy(update={"mismatched": None})), StageOutcome.NOT_COMPARED),
        ((SAVE,), StageOutcome.NOT_COMPARED),
    ):
        row, *_ = summarize_stages([[make_rank(0, *done), make_rank(1, *done)]], plan)
        assert row.outcome is outcome


def test_ranks_that_tell_of_unlike_numbers_of_rounds_have_no_time_together() -> None:
    """One raised, or lost rounds, where the other has times: which round is which is not known."""
    for other in (RAISED, make_stage(10)):
        (row,) = summarize_stages([[make_rank(0, make_stage(10, 20)), make_rank(1, other)]], NOTHING)
        assert (row.rounds, row.state_bytes, row.mismatched) == (0, None, None)
        assert math.isnan(row.duration_ns)
    whole = [make_rank(rank, make_stage(30)) for rank in (0, 1)]
    (row,) = summarize_stages([[make_rank(0, make_stage(10, 20)), make_rank(1, make_stage(10))], whole], NOTHING)
    assert (row.rounds, row.duration_ns, str(row.known_part)) == (1, 30, "launch1 alone, of 2")
    unlike = make_stage(10, 20).model_copy(update={"wait_ns": (5,)})
    (row,) = summarize_stages([[make_rank(0, unlike), make_rank(1, make_stage(10, 20))]], NOTHING)
    assert (row.duration_ns, math.isnan(row.wait_ns)) == (15, True)


def test_ranks_without_stages_have_no_rows() -> None:
    assert summarize_stages([[make_rank(0)], []], NOTHING) == ()
    assert not math.isnan(summarize_stages([[make_rank(0, make_stage(1))]], NOTHING)[0].quartile1_ns)


def test_memory_of_devices_is_the_highest_only_where_every_rank_tells_its_own() -> None:
    def with_device(*peaks_bytes: int | None) -> int | None:
        memories = [
            MEMORY.model_copy(update={"device_before_bytes": 100, "device_peak_bytes": peak}) for peak in peaks_bytes
        ]
        told = [make_stage(10).model_copy(update={"memory": memory}) for memory in memories]
        (row,) = summarize_stages([[make_rank(rank, stage) for rank, stage in enumerate(told)]], NOTHING)
        return row.device_peak_bytes

    assert with_device(150, 170) == 70
    assert with_device(150, None) is None
