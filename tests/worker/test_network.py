"""The emulated link on real ranks: every strategy trains as over gloo alone, and waits for what the link costs."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.units import NS_PER_MS
from dtbench.base.vocabulary import Operation
from dtbench.plan.traffic.link import service_ns
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.store.records.rank import RankRecord, ReceiptOutcome

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
pytestmark = pytest.mark.ranks

LINK = {"kind": "emulated", "latency_us": 1000.0, "bandwidth_gb_per_s": 1.0}
UNCHECKED = {"correctness": {"enabled": False}}

STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {"parallel": {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 0.05}},
    "ddp, compressed": {"parallel": {"kind": "ddp", "replicas": 2, "comm_hook": {"kind": "fp16_compress"}}},
    "ddp, powersgd": {
        "parallel": {
            "kind": "ddp",
            "replicas": 2,
            "bucket_cap_mb": 4096,
            "comm_hook": {"kind": "powersgd", "start_powersgd_iter": 2},
        }
    },
    "ddp and tensor": {"parallel": {"kind": "ddp", "replicas": 2, "tensor": 2}},
    "tensor": {"parallel": {"kind": "ddp", "replicas": 1, "tensor": 2}},
    "fsdp1": {"parallel": {"kind": "fsdp1", "shards": 2}},
    "fsdp1 and tensor": {"parallel": {"kind": "fsdp1", "shards": 2, "tensor": 2}},
    "fsdp1, hybrid": {"parallel": {"kind": "fsdp1", "shards": 2, "replicas": 2, "sharding_strategy": "HYBRID_SHARD"}},
    "fsdp1, hybrid and tensor": {
        "parallel": {"kind": "fsdp1", "shards": 2, "replicas": 2, "tensor": 2, "sharding_strategy": "HYBRID_SHARD"}
    },
    "fsdp2": {"parallel": {"kind": "fsdp2", "shards": 2}},
    "fsdp2, asynchronous": {
        "parallel": {"kind": "fsdp2", "shards": 2, "unshard_async_op": True, "forward_prefetch": 1}
    },
    "fsdp2, tensor and sequence": {"parallel": {"kind": "fsdp2", "shards": 2, "tensor": 2, "sequence_parallel": True}},
    "hsdp": {"parallel": {"kind": "fsdp2", "replicas": 2, "shards": 2}},
    "hsdp and tensor": {"parallel": {"kind": "fsdp2", "replicas": 2, "shards": 2, "tensor": 2}},
}


@pytest.mark.quick(
    "ddp",
    "fsdp2, asynchronous",
)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_losses_over_the_link_are_those_over_gloo_alone(
    launch: Callable[..., Any], scenario: Callable[..., Any], strategy: str
) -> None:
    def run(**network: Any) -> list[RankRecord]:
        wanted = scenario(**STRATEGIES[strategy], **UNCHECKED, **network)
        launched = launch(wanted)
        ranks = [launched.rank(rank) for rank in range(len(list(launched.folder.path.glob("ranks/rank*.json"))))]
        shutil.rmtree(launched.folder.path)
        return ranks

    alone, linked = run(), run(network=LINK)
    assert [rank.losses[: len(alone[0].losses)] for rank in linked] == [rank.losses for rank in alone]
    assert [rank.traffic for rank in linked] == [rank.traffic for rank in alone]
    for rank in linked:
        (receipt,) = (one for one in rank.receipts if one.knob == "network.kind")
        assert receipt.outcome is not ReceiptOutcome.DISAGREES, receipt
        assert "every one of" in receipt.note  # on a loaded machine gloo may be slower than the link


@pytest.mark.timed
def test_gradients_take_what_the_link_costs_one_after_another(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    from dtbench.traces.rows.launch_tables import read_tables

    network = EmulatedNetwork(kind="emulated", latency_us=15_000.0, bandwidth_gb_per_s=0.01)
    wanted = scenario(
        **STRATEGIES["ddp"], **UNCHECKED, network=network.model_dump(mode="json"), measure={"profiled_steps": 3}
    )
    launched = launch(wanted)
    collectives = read_tables(launched.folder).collectives
    gradients = collectives[collectives["purpose"] == "grad_reduce"]
    costs_ns = [
        service_ns(network, Operation.ALL_REDUCE, int(size_bytes), (0, 1), ("", 0))
        for size_bytes in gradients["size_bytes"]
    ]
    steps = gradients.assign(cost_ns=costs_ns).dropna(subset=["step"]).groupby(["rank", "step"])
    assert len(steps) == 2 * 3
    for _, step in steps:
        ordered = step.sort_values("start_ns")
        assert (ordered["start_ns"].iloc[1:].to_numpy() >= ordered["end_ns"].iloc[:-1].to_numpy() - 500_000).all()
        duration_ns = int(ordered["end_ns"].iloc[-1] - ordered["start_ns"].iloc[0])
        assert 0 <= duration_ns - step["cost_ns"].sum() + NS_PER_MS <= 30 * NS_PER_MS  # the link's time, and waking up
    assert gradients["exposed_queued_ns"].sum() > gradients["exposed_ns"].sum() / 2
