"""Stages of real training states on real ranks: bit-equal, counted; a wrong bit is named with key, rank and stage."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

from dtbench.store.records import RankRecord, StageRecord
from dtbench.vocabulary import Operation, Stage, StatePart

ALL: list[Stage] = [stage for stage in Stage if stage is not Stage.STAGE_PINNED]
BROKEN_IN_FSDP1 = (Stage.GATHER_OFFLOAD, Stage.UNFLATTEN)  # see dtbench/refusals.py
WRONG = "a gathered state is wrong"
STRATEGIES: dict[str, tuple[dict[str, Any], list[Stage]]] = {
    "ddp": ({"kind": "ddp", "replicas": 2}, ALL),
    "fsdp1": ({"kind": "fsdp1", "shards": 2}, [stage for stage in ALL if stage not in BROKEN_IN_FSDP1]),
    "fsdp2": ({"kind": "fsdp2", "shards": 2}, ALL),
}


def by_name(record: RankRecord) -> dict[tuple[StatePart, Stage], StageRecord]:
    return {(one.part, one.stage): one for one in record.stages}


@pytest.mark.ranks
@pytest.mark.parametrize(("parallel", "stages"), STRATEGIES.values(), ids=STRATEGIES)
def test_every_stage_gives_back_the_bits_that_it_was_given(
    launch: Callable[..., Any], scenario: Callable[..., Any], parallel: dict[str, Any], stages: list[Stage]
) -> None:
    launched = launch(scenario(parallel=parallel, state_dict={"stages": stages, "rounds": 2}))
    for rank in (0, 1):
        found = launched.rank(rank).stages
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
def test_a_wrong_element_is_named_with_its_key_on_the_rank_and_in_the_stage_that_has_it(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    asked = {"stages": ["shard", "gather", "load"], "parts": ["model"], "rounds": 2}
    launched = launch(scenario(parallel={"kind": "fsdp2", "shards": 2}, state_dict=asked), fault=WRONG)
    found = [
        (rank, one.stage, wrong.key, wrong.words)
        for rank in (0, 1)
        for one in launched.rank(rank).stages
        for wrong in one.mismatches
    ]
    assert found == [(1, Stage.GATHER, "layers.1.ffn.w2.weight", "1 of 3072 elements differ")]


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
        (part, stage): [(line.operation, line.count, line.size_bytes) for line in one.traffic]
        for (part, stage), one in stages.items()
    }
    for part, tensors, all_bytes in ((StatePart.MODEL, 8, 4096), (StatePart.OPTIMIZER, 16, 8192)):
        assert sent[part, Stage.SHARD] == sent[part, Stage.LOAD] == []
        assert sent[part, Stage.GATHER] == [(Operation.ALL_GATHER, tensors, all_bytes)]
        assert sent[part, Stage.DISTRIBUTE] == [(Operation.SCATTER, tensors, all_bytes)]
        assert sent[part, Stage.BROADCAST] == [(Operation.BROADCAST, tensors, all_bytes)]
    held = {stage: stages[StatePart.OPTIMIZER, stage].state_bytes for stage in (Stage.SHARD, Stage.GATHER)}
    assert held == {Stage.SHARD: 8192 // 2 + 8 * 4, Stage.GATHER: 8192 + 8 * 4}
    assert all(one.traffic_is_stable for one in stages.values())
    assert stages[StatePart.MODEL, Stage.BROADCAST].object_collectives == 2
