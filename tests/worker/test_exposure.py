"""Arms on real ranks over the emulated link: what is removed is what the link costs, and nothing else."""

from collections.abc import Callable
from statistics import median
from typing import Any

import pytest

from dtbench.base.units import NS_PER_MS, NS_PER_US
from dtbench.base.vocabulary import Arm, Purpose
from dtbench.machine.processes import count_cores
from dtbench.store.records.arms import ArmSteps
from dtbench.store.records.rank import RankRecord, Receipt, ReceiptOutcome

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
pytestmark = [pytest.mark.ranks, pytest.mark.timed]

LATENCY_US = 20_000.0
LINK = {"kind": "emulated", "latency_us": LATENCY_US, "bandwidth_gb_per_s": 1.0}
MLP = {"kind": "mlp", "layers": 2, "dim": 64, "hidden_dim": 128}
# long units: a loaded machine must not be refused
TIMED = {"kind": "timed", "layers": 2, "dim": 64, "hidden_dim": 64, "forward_ms": 60, "backward_ms": 60}
ARMS = (Arm.FULL, Arm.REMOVED, Arm.SERIAL)

STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {"parallel": {"kind": "ddp", "replicas": 2}},
    "ddp, compressed": {"parallel": {"kind": "ddp", "replicas": 2, "comm_hook": {"kind": "fp16_compress"}}},
    "ddp, optimizer in backward": {"parallel": {"kind": "ddp", "replicas": 2, "optimizer_in_backward": True}},
    "ddp, accumulated": {"parallel": {"kind": "ddp", "replicas": 2}, "accumulation": {"micro_batches": 2}},
    "fsdp1": {"parallel": {"kind": "fsdp1", "shards": 2}},
    "fsdp2": {"parallel": {"kind": "fsdp2", "shards": 2}},
    "fsdp2, clipped": {"parallel": {"kind": "fsdp2", "shards": 2}, "gradient_clip_norm": 1.0},
    "hsdp": {"parallel": {"kind": "fsdp2", "replicas": 2, "shards": 2}},
}
"""Everything is exposed: each collective blocks, or is issued when backward is over (one bucket)."""

OVERLAPPED: dict[str, dict[str, Any]] = {
    "fsdp2, asynchronous": {
        "parallel": {"kind": "fsdp2", "shards": 2, "unshard_async_op": True, "forward_prefetch": 1},
        "model": TIMED,
    },
    "fsdp2 and tensor": {"parallel": {"kind": "fsdp2", "shards": 2, "tensor": 2}},
    "ddp and tensor": {"parallel": {"kind": "ddp", "replicas": 2, "tensor": 2}},
    "ddp, small buckets": {"parallel": {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 0.02}, "model": TIMED},
}


def run_arms(launch: Callable[..., Any], scenario: Callable[..., Any], sections: dict[str, Any]) -> list[RankRecord]:
    measure = {"exposure": ["trace", "ablation", "wait"], "stall_timeout_s": 60}
    wanted = scenario(**{"model": MLP, "network": LINK, "measure": measure, **sections})
    launched = launch(wanted)
    return [launched.rank(rank) for rank in range(len(list(launched.folder.path.glob("ranks/rank*.json"))))]


def arms_of(rank: RankRecord) -> ArmSteps:
    assert rank.extras.exposure is not None
    return rank.extras.exposure


def receipt_of(rank: RankRecord, knob: str) -> Receipt:
    return next(receipt for receipt in rank.receipts if receipt.knob == knob)


def step_ns(rank: RankRecord, arm: Arm) -> int:
    """Return the shortest step of an arm: what other processes take from this machine only adds."""
    return min(ns for block in arms_of(rank).blocks if block.arm is arm for ns in block.step_ns)


def waits_ns(rank: RankRecord) -> list[tuple[int, int]]:
    """Return each step of arm ``full``: how long it was, and how long of that it stood still."""
    pairs: list[tuple[int, int]] = []
    for block in arms_of(rank).blocks:
        if block.arm is Arm.FULL:
            sums = [sum(waits) for waits in zip(*block.wait_ns.values(), strict=True)]
            pairs += zip(block.step_ns, sums, strict=True)
    return pairs


def wait_ns(rank: RankRecord) -> int:
    """Return how long a step of arm ``full`` stood still, the median: a rank that is held up stands still for less."""
    return round(median(wait for _, wait in waits_ns(rank)))


def check_arms(ranks: list[RankRecord]) -> None:
    """Hold what is true of arms whatever the strategy."""
    for rank in ranks:
        assert [block.arm for block in arms_of(rank).blocks] == [*ARMS, *reversed(ARMS)] * 2
        assert {count.arm for count in arms_of(rank).counts} == set(ARMS)
        exposure = receipt_of(rank, "measure.exposure")
        assert exposure.outcome is ReceiptOutcome.AGREES, exposure
        assert "waits seen" in exposure.note
        network = receipt_of(rank, "network.kind")
        assert "every one of" in network.note, network
        assert receipt_of(rank, "optimizer.lr").outcome is ReceiptOutcome.AGREES
    correctness = ranks[0].correctness
    assert correctness is not None
    assert correctness.passed


def link_ns(rank: RankRecord) -> float:
    """Return what the link takes for all that a step issues to other ranks."""
    rows = [row for row in rank.traffic if row.axis is not None]
    return sum(row.count * LATENCY_US * NS_PER_US + row.size_bytes for row in rows)


@pytest.mark.quick("ddp", "fsdp2", "hsdp")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_blocks_costs_what_the_link_says_by_ablation_and_by_waits(
    launch: Callable[..., Any], scenario: Callable[..., Any], strategy: str
) -> None:
    ranks = run_arms(launch, scenario, STRATEGIES[strategy])
    check_arms(ranks)
    turns = max(1.0, len(ranks) / count_cores())  # ranks that share a core wake one after the other
    for rank in ranks:
        expected, slack = link_ns(rank), 0.1 * link_ns(rank) + turns * 10 * NS_PER_MS
        assert abs(wait_ns(rank) - expected) <= slack
        assert abs(step_ns(rank, Arm.FULL) - step_ns(rank, Arm.REMOVED) - expected) <= slack
        assert abs(step_ns(rank, Arm.SERIAL) - step_ns(rank, Arm.FULL)) <= slack, "nothing overlapped before"


@pytest.mark.quick("fsdp2, asynchronous")
@pytest.mark.parametrize("strategy", OVERLAPPED)
def test_a_step_less_its_waits_is_a_step_without_communication_whatever_is_hidden(
    launch: Callable[..., Any], scenario: Callable[..., Any], strategy: str
) -> None:
    ranks = run_arms(launch, scenario, OVERLAPPED[strategy])
    check_arms(ranks)
    for rank in ranks:
        slack = 0.25 * link_ns(rank) + 10 * NS_PER_MS
        own = min(step - wait for step, wait in waits_ns(rank))
        assert wait_ns(rank) > 0
        assert abs(own - step_ns(rank, Arm.REMOVED)) <= slack
        assert step_ns(rank, Arm.SERIAL) >= step_ns(rank, Arm.FULL) - slack


def test_ddps_own_logger_says_what_the_waits_say(launch: Callable[..., Any], scenario: Callable[..., Any]) -> None:
    for rank in run_arms(launch, scenario, STRATEGIES["ddp"]):
        logged = arms_of(rank).logged_ns
        assert len(logged) == 4, "as many as measured_steps"
        assert abs(min(logged) - wait_ns(rank)) <= 10 * NS_PER_MS


def test_waits_are_told_apart_by_purpose(launch: Callable[..., Any], scenario: Callable[..., Any]) -> None:
    for rank in run_arms(launch, scenario, OVERLAPPED["ddp and tensor"]):
        full = [block for block in arms_of(rank).blocks if block.arm is Arm.FULL]
        traffic = {row.purpose: row.count for row in rank.traffic}
        assert all(set(block.wait_ns) == {Purpose.TENSOR, Purpose.GRAD_REDUCE} == set(traffic) for block in full)
        for purpose, count in traffic.items():
            longest = max(ns for block in full for ns in block.wait_ns[purpose])
            assert longest >= 0.85 * count * LATENCY_US * NS_PER_US


def test_arms_change_no_loss_that_is_recorded_and_run_only_if_asked(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    import shutil

    def run(**measure: Any) -> RankRecord:
        launched = launch(scenario(model=MLP, parallel={"kind": "fsdp2", "shards": 2}, measure=measure))
        rank: RankRecord = launched.rank(0)
        shutil.rmtree(launched.folder.path)
        return rank

    alone, waited = run(), run(exposure=["trace", "wait"])
    assert alone.extras.exposure is None
    assert waited.losses == alone.losses
    assert waited.traffic == alone.traffic
    assert {block.arm for block in arms_of(waited).blocks} == {Arm.FULL}
    assert arms_of(waited).logged_ns == ()


def test_all_steps_are_in_the_tables_of_their_phase_and_those_of_arms_in_none(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    from dtbench.store.journal import RankState, read_journal

    launched = launch(scenario(model=MLP, measure={"exposure": ["trace", "wait"]}))
    journal = read_journal(launched.folder.journal(0))
    assert journal is not None
    assert journal.state is RankState.DONE
    assert (journal.phase, len(journal.timings)) == (None, 8 + 4 + 1)
    assert journal.step is not None
    assert journal.step > 8 + 4 + 1
