"""The timed model on real ranks: it trains correctly everywhere, takes its time, and the trace says so."""

from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.errors import LaunchError
from dtbench.base.units import NS_PER_MS
from dtbench.store.records.rank import Receipt, ReceiptOutcome

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
pytestmark = [pytest.mark.ranks, pytest.mark.timed]

# long units: a loaded machine must not be refused
UNITS = {"kind": "timed", "layers": 2, "dim": 32, "hidden_dim": 32, "forward_ms": 100, "backward_ms": 100}
DDP = {"kind": "ddp", "replicas": 2}
PLAIN = {
    "optimizer": {"kind": "sgd"},
    "data": {"global_batch": 4, "sequence_length": 4},
    "correctness": {"enabled": False},
    "measure": {"profiled_steps": 3},
}
LINK = {"kind": "emulated", "latency_us": 20_000.0, "bandwidth_gb_per_s": 1.0}

STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": DDP,
    "fsdp1": {"kind": "fsdp1", "shards": 2},
    "fsdp2, asynchronous": {"kind": "fsdp2", "shards": 2, "unshard_async_op": True, "forward_prefetch": 1},
    "ddp and tensor": {**DDP, "tensor": 2},
    "hsdp": {"kind": "fsdp2", "replicas": 2, "shards": 2},
}


def units_of(launched: Any, rank: int = 0) -> dict[str, Receipt]:
    return {one.knob: one for one in launched.rank(rank).receipts if one.knob.startswith("model.")}


@pytest.mark.quick("ddp and tensor", "fsdp2, asynchronous")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_timed_model_trains_as_one_process_does_under_every_strategy(
    launch: Callable[..., Any], scenario: Callable[..., Any], strategy: str
) -> None:
    launched = launch(scenario(model=UNITS, parallel=STRATEGIES[strategy]))
    assert launched.correctness.passed
    record = launched.rank()
    assert [one for one in record.receipts if one.outcome is ReceiptOutcome.DISAGREES] == []
    assert "before warm-up it missed by" in units_of(launched)["model.forward_ms"].note


def test_compute_in_the_trace_is_what_the_blocks_are_to_take(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    from dtbench.traces.rows.launch_tables import read_tables

    overlap = read_tables(launch(scenario(model=UNITS, parallel=DDP, **PLAIN)).folder).overlap
    assert len(overlap) == 2 * 3
    assert overlap["compute_ns"].median() == pytest.approx(2 * (100 + 100) * NS_PER_MS, rel=0.02)


def test_a_bucket_hides_behind_the_next_blocks_time_and_the_last_one_is_the_tail(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    from dtbench.traces.rows.launch_tables import read_tables

    block_mib = 2 * 32 * 32 * 4 / 2**20
    parallel = {**DDP, "bucket_cap_mb": block_mib * 0.9}
    wanted = scenario(model={**UNITS, "layers": 3}, parallel=parallel, network=LINK, **PLAIN)
    collectives = read_tables(launch(wanted).folder).collectives
    gradients = collectives[(collectives["purpose"] == "grad_reduce") & collectives["step"].notna()]
    assert sorted(gradients["owner"].unique()) == ["bucket 0", "bucket 1", "bucket 2"]
    exposed_ms = gradients.groupby("owner")["exposed_ns"].median() / NS_PER_MS
    assert exposed_ms["bucket 0"] < 5
    assert exposed_ms["bucket 1"] < 5
    assert exposed_ms["bucket 2"] > 15
    assert gradients[gradients["owner"] == "bucket 2"]["cause"].mode().tolist() == ["tail"]


def test_ranks_wait_for_the_slow_one_and_the_cause_is_skew(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    from dtbench.traces.rows.launch_tables import read_tables

    slow = {**UNITS, "slow_rank": {"rank": 1, "factor": 1.5}}
    launched = launch(scenario(model=slow, parallel=DDP, **PLAIN))
    assert units_of(launched, 1)["model.backward_ms"].note.startswith("1.5 times that on this rank")
    assert [one.outcome for one in units_of(launched, 1).values()] == [ReceiptOutcome.AGREES] * len(units_of(launched))
    tables = read_tables(launched.folder)
    compute_ns = tables.overlap.groupby("rank")["compute_ns"].median()
    assert compute_ns[1] / compute_ns[0] == pytest.approx(1.5, rel=0.05)
    gradients = tables.collectives[tables.collectives["purpose"] == "grad_reduce"]
    assert gradients[gradients["rank"] == 0]["cause"].mode().tolist() == ["skew"]
    assert "skew" not in gradients[gradients["rank"] == 1]["cause"].mode().tolist()


def test_a_unit_of_a_millisecond_is_refused_with_one_that_works_and_leaves_no_traceback(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    with pytest.raises(LaunchError) as refused:
        launch(scenario(model={**UNITS, "forward_ms": 1, "backward_ms": 0}, parallel=DDP, **PLAIN))
    told = str(refused.value)
    assert "model.forward_ms=1 misses its time by" in told
    assert "on the worst of 2 ranks at once); the limit is 5 % of a unit, so use" in told
    assert "Traceback" not in told
