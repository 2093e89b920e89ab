"""Stages of real training states on real ranks: bit-equal, counted; a wrong bit is named with key, rank and stage."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

from dtbench.base.errors import LaunchError
from dtbench.base.vocabulary import Operation, Stage, StageOutcome, StatePart
from dtbench.runs.cell.stage_plan import StagePlan
from dtbench.runs.cell.summarize_stages import summarize_stages
from dtbench.store.records.rank import RankRecord
from dtbench.store.records.run import RunStatus
from dtbench.store.records.state import StageRecord
from tests.known import known
from tests.newer_torch import FSDP1_OFFLOADS_WHAT_IT_GATHERS, torch_version

ALL: list[Stage] = [stage for stage in Stage if stage not in (Stage.STAGE_PINNED, Stage.PRE_LOAD)]
BROKEN_IN_FSDP1 = (Stage.GATHER_OFFLOAD, Stage.UNFLATTEN)  # see dtbench/plan/rules/refusals.py
WRONG = "a gathered state is wrong"
STRATEGIES: dict[str, tuple[dict[str, Any], list[Stage]]] = {
    "ddp": ({"kind": "ddp", "replicas": 2}, ALL),
    "fsdp1": ({"kind": "fsdp1", "shards": 2}, [stage for stage in ALL if stage not in BROKEN_IN_FSDP1]),
    "fsdp1, ShardedTensor": (
        {"kind": "fsdp1", "shards": 2, "sharded_state": "sharded_tensor"},
        [stage for stage in ALL if stage not in BROKEN_IN_FSDP1],
    ),
    "fsdp2": ({"kind": "fsdp2", "shards": 2}, ALL),
}


def by_name(record: RankRecord) -> dict[tuple[StatePart, Stage], StageRecord]:
    return {(one.part, one.stage): one for one in record.extras.stages}


@pytest.mark.ranks
@pytest.mark.quick("fsdp2")
@pytest.mark.parametrize(("parallel", "stages"), STRATEGIES.values(), ids=STRATEGIES)
def test_every_stage_gives_back_the_bits_that_it_was_given(
    launch: Callable[..., Any], scenario: Callable[..., Any], parallel: dict[str, Any], stages: list[Stage]
) -> None:
    asked = scenario(parallel=parallel, state_dict={"stages": stages, "rounds": 2})
    launched = launch(asked)
    rows = summarize_stages({0: [launched.rank(0), launched.rank(1)]}, StagePlan(asked, (), 2))
    assert [(one.part, one.stage, one.planned) for one in rows if one.matches_plan is False] == []
    assert any(one.planned for one in rows), "a formula that says nothing holds always"
    for rank in (0, 1):
        found = launched.rank(rank).extras.stages
        assert [(one.part, one.stage) for one in found] == [
            (part, stage)
            for part in StatePart
            for stage in stages
            if part is StatePart.OPTIMIZER or stage not in (Stage.FLATTEN, Stage.UNFLATTEN)
        ]
        assert [(one.part, one.stage, one.mismatches) for one in found if one.mismatched] == []
        assert all(len(one.duration_ns) == 2 and min(one.duration_ns) > 0 for one in found)
    assert not launched.folder.checkpoints.exists()


@pytest.mark.ranks
def test_over_a_tensor_axis_fsdp1_saves_and_loads_shards_of_its_model(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    stages = ["shard", "gather", "load", "pre_load"]
    asked = scenario(
        parallel={"kind": "fsdp1", "shards": 2, "tensor": 2},
        correctness={"enabled": False},
        measure={"probes": ["fsdp"]},
        state_dict={"stages": stages, "parts": ["model"], "rounds": 1},
    )
    launched = launch(asked)
    for rank in range(4):
        found = launched.rank(rank).extras.stages
        assert [(one.stage, one.mismatches, one.raised) for one in found] == [(Stage(one), (), None) for one in stages]
    calls = {one.name: one.calls for one in launched.rank().extras.probes.functions}
    assert calls["DTensorExtensions.all_gather_dtensor"] > 0
    assert calls["_pre_load_state_dict"] == calls["DTensorExtensions.pre_load_state_dict_transform"] > 0


@pytest.mark.ranks
def test_a_wrong_element_is_named_with_its_key_on_the_rank_and_in_the_stage_that_has_it(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    asked = {"stages": ["shard", "gather", "load"], "parts": ["model"], "rounds": 2}
    launched = launch(scenario(parallel={"kind": "fsdp2", "shards": 2}, state_dict=asked), fault=WRONG)
    found = [
        (rank, one.stage, wrong.key, wrong.words)
        for rank in (0, 1)
        for one in launched.rank(rank).extras.stages
        for wrong in one.mismatches
    ]
    assert found == [(1, Stage.GATHER, "layers.1.ffn.w2.weight", "1 of 3072 elements differ")]


STEPS: dict[str, Any] = {"stages": ["load"], "rounds": 2, "steps": 3}


@pytest.mark.ranks
@pytest.mark.quick("fsdp2")
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_steps_are_timed_around_a_load_and_beside_saves_that_hold_the_state_at_their_call(
    launch: Callable[..., Any], scenario: Callable[..., Any], strategy: str
) -> None:
    launched = launch(scenario(parallel=STRATEGIES[strategy][0], state_dict=STEPS, correctness={"enabled": False}))
    for rank in (0, 1):
        steps = launched.rank(rank).extras.state_dict.steps
        assert (len(steps.before_ns), len(steps.after_ns), len(steps.alone_ns), len(steps.beside_ns)) == (3, 2, 6, 6)
        assert all(blocked <= saved for blocked, saved in zip(steps.blocked_ns, steps.saved_ns, strict=True))
        assert steps.file_bytes > 0
        assert steps.mismatched == 0
    assert not launched.folder.checkpoints.exists()


@pytest.mark.ranks
def test_a_save_that_steps_beside_it_show_in_is_found(launch: Callable[..., Any], scenario: Callable[..., Any]) -> None:
    asked = scenario(parallel={"kind": "fsdp2", "shards": 2}, state_dict=STEPS, correctness={"enabled": False})
    launched = launch(asked, fault="a save is written late")
    assert launched.rank(0).extras.state_dict.steps.mismatched > 0


@pytest.mark.ranks
def test_a_stage_that_raises_on_two_ranks_of_four_is_the_last_and_the_launch_ends_well(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    """FSDP1 over a tensor axis cuts a ``ShardedTensor`` with ranks of its group as if they were those of the world."""
    known = {"part": "model", "stage": "shard", "says": "does not exist in input process group"}
    asked = scenario(
        model={"kind": "mlp", "layers": 1, "dim": 16, "hidden_dim": 32, "bias": False},
        parallel={"kind": "fsdp1", "shards": 2, "tensor": 2, "sharded_state": "sharded_tensor"},
        correctness={"enabled": False},
        measure={"probes": ["fsdp"]},
        state_dict={"stages": ["shard", "gather"], "parts": ["model"], "broken": [known]},
    )
    launched = launch(asked)
    found = [launched.rank(rank).extras.stages for rank in range(4)]
    assert [[(one.part, one.stage, one.duration_ns) for one in stages] for stages in found] == [
        [(StatePart.MODEL, Stage.SHARD, ())]
    ] * 4
    said = [stages[0].raised for stages in found]
    assert said[:2] == [None, None]
    assert all(words is not None and known["says"] in words and torch.__version__ in words for words in said[2:])
    (row,) = summarize_stages({0: [launched.rank(rank) for rank in range(4)]}, StagePlan(asked, (), 4))
    assert row.outcome is StageOutcome.BROKEN
    calls = {one.name: one.calls for one in launched.rank(0).extras.probes.functions}
    assert calls["DTensorExtensions.chunk_tensor"] == calls["_get_dt_pg"] == 2, "one of each matrix"


@pytest.mark.ranks
def test_a_rank_that_waits_for_one_that_raised_is_freed_and_the_launch_ends_well(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    """FSDP1's whole state dict on a host raises on rank 0 alone, in its first unit; rank 1 waits for it in the next.

    Until torch 2.14, where nobody raises.
    """
    says = "out of bounds for storage of size 0"
    known = {"part": "model", "stage": "gather_offload", "says": says, "until": "2.14"}
    asked = scenario(
        parallel={"kind": "fsdp1", "shards": 2},
        state_dict={"stages": ["gather_offload"], "parts": ["model"], "broken": [known]},
    )
    launched = launch(asked)
    (raised,), (freed,) = (launched.rank(rank).extras.stages for rank in (0, 1))
    assert launched.correctness.passed
    if torch_version() >= FSDP1_OFFLOADS_WHAT_IT_GATHERS:
        assert (raised.raised, freed.raised) == (None, None)
    else:
        assert says in raised.raised
        assert "Connection closed by peer" in freed.raised


KILLED: dict[str, tuple[str, dict[str, Any]]] = {
    "a gather segfaults": ("killed by SIGSEGV", {}),
    "a gather raises and frees nobody": ("raised", {}),
    "a gather hangs": ("hung", {"measure": {"stall_timeout_s": 5}}),
}


@pytest.mark.ranks
@pytest.mark.quick("a gather hangs")
@pytest.mark.parametrize("fault", KILLED)
def test_a_stage_that_kills_a_rank_is_a_row_and_the_launch_ends_well(
    launch: Callable[..., Any], scenario: Callable[..., Any], fault: str
) -> None:
    says, sections = KILLED[fault]
    known = {"part": "model", "stage": "gather", "says": says}
    state_dict = {"stages": ["shard", "gather", "load"], "parts": ["model"], "broken": [known], "rounds": 2}
    asked = scenario(parallel={"kind": "fsdp2", "shards": 2}, state_dict=state_dict, **sections)
    launched = launch(asked, fault=fault)
    assert launched.record.status is RunStatus.COMPLETE
    assert (1, says) in {(one.rank, one.what) for one in launched.record.failures}
    shard, gather = summarize_stages({0: [launched.rank(rank) for rank in (0, 1)]}, StagePlan(asked, (), 2))
    assert (shard.stage, shard.outcome, shard.rounds) == (Stage.SHARD, StageOutcome.EQUAL, 1), "of the first pass"
    assert (gather.stage, gather.outcome) == (Stage.GATHER, StageOutcome.BROKEN)
    said = {one.rank: one.words for one in gather.raised}
    assert said[1].startswith(f"{says}: ")
    assert torch.__version__ in said[1]
    assert launched.correctness.passed, "what was found before the stage stays"
    assert not launched.folder.checkpoints.exists()
    assert not launched.folder.rank_in_stage(0).exists()


@pytest.mark.ranks
def test_a_rank_that_is_killed_from_outside_in_a_stage_fails_the_launch(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    state_dict = {"stages": ["shard", "gather"], "parts": ["model"], "rounds": 2}
    asked = scenario(parallel={"kind": "fsdp2", "shards": 2}, state_dict=state_dict, correctness={"enabled": False})
    with pytest.raises(LaunchError, match="rank 1 killed by SIGKILL"):
        launch(asked, fault="a gather is killed from outside")


@pytest.mark.ranks
def test_what_crosses_the_wire_is_the_formula_to_the_byte(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    """Eight matrices of 512 B each; AdamW holds two of each beside a step count of 4 B."""
    model = {"kind": "mlp", "layers": 4, "dim": 8, "hidden_dim": 16, "bias": False}
    asked = {"stages": ["shard", "gather", "distribute", "broadcast", "load"], "rounds": 2}
    launched = launch(scenario(model=model, parallel={"kind": "fsdp2", "shards": 2}, state_dict=asked))
    stages = by_name(launched.rank())
    sent = {
        (part, stage): [(line.operation, line.count, line.size_bytes) for line in known(one.traffic)]
        for (part, stage), one in stages.items()
    }
    for part, tensors, all_bytes in ((StatePart.MODEL, 8, 4096), (StatePart.OPTIMIZER, 16, 8192)):
        assert sent[part, Stage.SHARD] == sent[part, Stage.LOAD] == []
        assert sent[part, Stage.GATHER] == [(Operation.ALL_GATHER, tensors, all_bytes)]
        assert sent[part, Stage.DISTRIBUTE] == [(Operation.SCATTER, tensors, all_bytes)]
        assert sent[part, Stage.BROADCAST] == [(Operation.BROADCAST, tensors, all_bytes)]
    other = launched.rank(1).extras.stages
    of_root = [one.traffic for one in launched.rank().extras.stages if one.stage is Stage.DISTRIBUTE]
    assert [one.traffic for one in other if one.stage is Stage.DISTRIBUTE] == of_root, (
        "of a scatter each rank has a part"
    )
    held = {stage: stages[StatePart.OPTIMIZER, stage].state_bytes for stage in (Stage.SHARD, Stage.GATHER)}
    assert held == {Stage.SHARD: 8192 // 2 + 8 * 4, Stage.GATHER: 8192 + 8 * 4}
    assert all(one.traffic_is_stable for one in stages.values())
    assert stages[StatePart.MODEL, Stage.BROADCAST].object_collectives == 2
