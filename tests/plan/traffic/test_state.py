"""What stages send: the numbers that torch 2.13 was seen to send, for four matrices of 2,048 B in two blocks.

They were recorded by ``dtbench run`` of every stage under each strategy, as ``state_dict_matrix.yaml`` runs them.
"""

from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.vocabulary import Stage, StatePart
from dtbench.plan.traffic.state import stage_traffic
from dtbench.scenario.schema.scenario import Scenario

Make = Callable[..., Scenario]
Sent = dict[str, tuple[int, int]]
MODEL = {"kind": "mlp", "layers": 2, "dim": 16, "hidden_dim": 32, "bias": False}
DDP: dict[str, Any] = {"kind": "ddp", "replicas": 2}
FSDP1: dict[str, Any] = {"kind": "fsdp1", "shards": 2}
HYBRID: dict[str, Any] = {**FSDP1, "replicas": 2, "sharding_strategy": "HYBRID_SHARD"}
FSDP2: dict[str, Any] = {"kind": "fsdp2", "shards": 2}
HSDP: dict[str, Any] = {**FSDP2, "replicas": 2}
CUT: dict[str, Any] = {**FSDP2, "tensor": 2}

SENT: list[tuple[dict[str, Any], str, Sent, Sent]] = [
    (DDP, "gather", {}, {}),
    (DDP, "broadcast", {"broadcast": (4, 8192)}, {"broadcast": (8, 16384)}),
    *(
        line
        for one in (FSDP1, HYBRID)
        for line in (
            (one, "shard", {"all_gather": (2, 8192)}, {"all_reduce": (1, 4), "all_gather": (4, 16384)}),
            (one, "gather", {"all_gather": (2, 8192)}, {"all_reduce": (1, 4), "all_gather": (4, 16384)}),
            (one, "load", {"all_gather": (6, 16384)}, {"all_gather": (8, 16384)}),
            (one, "distribute", {"all_gather": (2, 8192)}, {}),
            (one, "broadcast", {"broadcast": (4, 8192), "all_gather": (2, 8192)}, {"broadcast": (8, 16384)}),
            (one, "save", {}, {}),
        )
    ),
    *(
        line
        for one in (FSDP2, HSDP)
        for line in (
            (one, "shard", {}, {}),
            (one, "gather", {"all_gather": (4, 8192)}, {"all_gather": (8, 16384)}),
            (one, "gather_offload", {"all_gather": (4, 8192)}, {"all_gather": (8, 16384)}),
            (one, "broadcast", {"broadcast": (4, 8192)}, {"broadcast": (8, 16384)}),
            (one, "load", {}, {}),
        )
    ),
    (FSDP2, "distribute", {"scatter": (4, 8192)}, {"scatter": (8, 16384)}),
    (
        HSDP,
        "distribute",
        {"broadcast": (4, 8192), "scatter": (4, 8192)},
        {"broadcast": (8, 16384), "scatter": (8, 16384)},
    ),
    (CUT, "gather", {"all_gather": (8, 12288)}, {"all_gather": (16, 24576)}),
    (CUT, "distribute", {"scatter": (8, 12288)}, {"scatter": (16, 24576)}),
    (
        {**CUT, "replicas": 2},
        "distribute",
        {"broadcast": (4, 8192), "scatter": (8, 12288)},
        {"broadcast": (8, 16384), "scatter": (16, 24576)},
    ),
]

FSDP1_CUT: dict[str, Any] = {**FSDP1, "tensor": 2}
BIASED = {"kind": "mlp", "layers": 3, "dim": 24, "hidden_dim": 64, "bias": True}
# three blocks of: rows 6,144 and 256 B, columns 6,144 B, not cut 96 B
CUT_MODEL_SENT: list[tuple[dict[str, Any], str, Sent]] = [
    *(
        line
        for one in (FSDP1_CUT, {**HYBRID, "tensor": 2})
        for line in (
            (one, "shard", {"all_gather": (9, 38304)}),
            (one, "offload", {"all_gather": (9, 38304)}),
            (one, "gather", {"all_gather": (12, 56736)}),
            (one, "load", {"all_gather": (21, 57408)}),
        )
    ),
    (CUT, "distribute", {"scatter": (21, 56736), "broadcast": (3, 144)}),
    ({**CUT, "replicas": 2}, "distribute", {"broadcast": (15, 38064), "scatter": (21, 56736)}),
]


def send(scenario: Scenario, part: StatePart, stage: str) -> Sent | None:
    lines = stage_traffic(scenario, part, Stage(stage))
    return None if lines is None else {str(line.operation): (line.count, line.size_bytes) for line in lines}


@pytest.mark.parametrize(("parallel", "stage", "model", "optimizer"), SENT)
def test_a_stage_sends_what_torch_was_seen_to_send(
    scenario: Make, parallel: dict[str, Any], stage: str, model: Sent, optimizer: Sent
) -> None:
    asked = scenario(model=MODEL, parallel=parallel)
    assert (send(asked, StatePart.MODEL, stage), send(asked, StatePart.OPTIMIZER, stage)) == (model, optimizer)


@pytest.mark.parametrize(("parallel", "stage", "model"), CUT_MODEL_SENT)
def test_over_a_tensor_axis_what_it_cuts_by_rows_by_columns_and_not_at_all_is_sent_apart(
    scenario: Make, parallel: dict[str, Any], stage: str, model: Sent
) -> None:
    assert send(scenario(model=BIASED, parallel=parallel), StatePart.MODEL, stage) == model


@pytest.mark.parametrize(("momentum", "copies"), [(0.0, 0), (0.9, 1)])
def test_sgd_has_a_state_only_with_momentum(scenario: Make, momentum: float, copies: int) -> None:
    asked = scenario(model=MODEL, parallel=FSDP2, optimizer={"kind": "sgd", "momentum": momentum})
    sent = send(asked, StatePart.OPTIMIZER, "gather")
    assert sent == ({"all_gather": (4, 8192)} if copies else {})


@pytest.mark.parametrize(
    ("fields", "stage"),
    [
        ({"model": {**MODEL, "dim": 15}, "parallel": FSDP2}, "gather"),
        ({"model": MODEL, "parallel": FSDP1_CUT}, "distribute"),
        ({"model": MODEL, "parallel": {**FSDP1_CUT, "use_orig_params": True}}, "shard"),
        ({"model": MODEL, "parallel": {**DDP, "tensor": 2}}, "gather"),
        ({"model": MODEL, "parallel": {**FSDP1, "use_orig_params": True}}, "gather"),
    ],
)
def test_where_no_formula_is_known_nothing_is_said(scenario: Make, fields: dict[str, Any], stage: str) -> None:
    assert stage_traffic(scenario(**fields), StatePart.MODEL, Stage(stage)) is None
