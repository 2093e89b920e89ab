"""Owners on real ranks: what the analyser reads from a trace against what the worker recorded where FSDP asked."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.vocabulary import Purpose, Region
from dtbench.store.records.rank import RankRecord
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.who.collectives import Collective
from dtbench.traces.who.facts import RankFacts
from tests.newer_torch import FRACTIONS_BESIDE_DELAYED, torch_version

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
pytestmark = pytest.mark.ranks

# Units and buckets of different sizes, divisible by every axis: bytes tell whose a collective is, apart from any name.
HIDDEN = (24, 40, 16, 56)
UNEVEN = {
    "kind": "custom",
    "factory": "example_model:build_uneven",
    "arguments": {"width": 16, "hidden": list(HIDDEN)},
}
UNUSED = "unused-parameter map"
UNITS = {"root", *(f"blocks.{index}" for index in range(4))}
THREE_BLOCKS_A_UNIT = {"root", "blocks.0, blocks.1, blocks.2", "blocks.3"}
PARAMETER_PURPOSES = (Purpose.UNSHARD, Purpose.GRAD_REDUCE)

FSDP: dict[str, dict[str, Any]] = {
    "fsdp1": {"kind": "fsdp1", "shards": 2},
    "fsdp1, hybrid": {"kind": "fsdp1", "shards": 2, "replicas": 2, "sharding_strategy": "HYBRID_SHARD"},
    "fsdp2 and tensor": {"kind": "fsdp2", "shards": 2, "tensor": 2},
    "fsdp2, gathered ahead": {
        "kind": "fsdp2",
        "shards": 2,
        "unshard_async_op": True,
        "forward_prefetch": 1,
        "backward_prefetch": 2,
    },
    "hsdp and tensor": {"kind": "fsdp2", "shards": 2, "replicas": 2, "tensor": 2},
    "fsdp2, three blocks a unit": {"kind": "fsdp2", "shards": 2, "blocks_per_unit": 3},
}

DDP: dict[str, dict[str, Any]] = {
    "buckets": {},
    "static graph": {"static_graph": True},
    "unused parameters": {"find_unused_parameters": True},
    "hook": {"comm_hook": {"kind": "allreduce"}},
    "delayed": {"delay_all_reduce": ["blocks.1"]},
    "tensor": {"tensor": 2},
}


def owner_of_tensor(one: Collective) -> str:
    """Tell whether the tensor plan says so: what a block's second layer puts out, and the gradient of what its first
    takes in, are summed."""
    last = "2" if one.region is Region.FORWARD else "0"
    is_so = one.owner in {f"blocks.{index}.{last}" for index in range(4)}
    return "as cut" if is_so else f"{one.owner} in {one.region}"


def read_rank(launched: Any, rank: int) -> tuple[RankRecord, tuple[Collective, ...]]:
    record = launched.rank(rank)
    trace = read_trace(launched.folder.find_traces()[rank])
    analysis = analyze_trace(trace, rank=rank, facts=RankFacts.of(record))
    assert analysis.unmatched == 0
    assert {owner_of_tensor(one) for one in analysis.collectives if one.purpose is Purpose.TENSOR} <= {"as cut"}
    assert {one.owner for one in analysis.collectives if one.purpose is Purpose.OTHER} <= {"clip_grad_norm_"}
    found = tuple(one for one in analysis.collectives if one.purpose in PARAMETER_PURPOSES)
    for one in found:
        assert rank in one.group_ranks
        assert one.group_size == len(one.group_ranks) == 2
        assert one.dtype == "float" or one.owner == UNUSED
        assert None not in (one.region, one.is_async, one.seq, one.axis, one.first_wait_ns, one.first_wait_end_ns)
    return record, found


@pytest.mark.quick(
    "fsdp1",
    "fsdp2, gathered ahead",
)
@pytest.mark.parametrize("name", FSDP)
def test_the_owner_of_every_fsdp_collective_is_the_unit_that_asked_for_it(
    launch: Callable[..., Any], scenario: Callable[..., Any], name: str
) -> None:
    launched = launch(
        scenario(
            model=UNEVEN,
            parallel=FSDP[name],
            gradient_clip_norm=1.0,
            measure={"profiled_steps": 2},
            correctness={"enabled": False},
        )
    )
    for rank in range(len(launched.folder.find_traces())):
        record, collectives = read_rank(launched, rank)
        told = {(owned.group, owned.seq): owned.owner for owned in record.owned}
        assert {(found.group, found.seq): found.owner for found in collectives} == told
        assert set(told.values()) == (THREE_BLOCKS_A_UNIT if "blocks_per_unit" in FSDP[name] else UNITS)
        carried = {one.owner: one for one in record.carried}
        assert len({one.size_bytes for one in record.carried}) == len(carried), "bytes tell units apart"
        shards = FSDP[name]["shards"]
        for found in collectives:
            assert found.parameters == carried[found.owner].parameters
            parts = shards if str(found.axis) == "replicate" else 1  # HSDP reduces what reduce-scatter left
            assert found.size_bytes == carried[found.owner].size_bytes // parts


@pytest.mark.quick("buckets", "hook")
@pytest.mark.parametrize("name", DDP)
def test_every_ddp_bucket_has_the_parameters_that_it_carries(
    launch: Callable[..., Any], scenario: Callable[..., Any], name: str
) -> None:
    if name == "delayed" and torch_version() < FRACTIONS_BESIDE_DELAYED:
        pytest.skip("this torch takes whole MiB only beside delay_all_reduce")
    parallel = {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 0.004, **DDP[name]}
    launched = launch(
        scenario(model=UNEVEN, parallel=parallel, measure={"profiled_steps": 2}, correctness={"enabled": False})
    )
    for rank in range(len(launched.folder.find_traces())):
        record, collectives = read_rank(launched, rank)
        carried = {one.owner: one for one in record.carried}
        buckets = [found for found in collectives if found.owner != UNUSED]
        assert {found.owner for found in buckets} == set(carried)
        assert len({one.size_bytes for one in record.carried}) == len(carried) > 2, "bytes tell buckets apart"
        for found in buckets:
            assert found.parameters == carried[found.owner].parameters
            assert found.size_bytes == carried[found.owner].size_bytes
        names = [parameter for one in record.carried for parameter in one.parameters]
        assert len(names) == len(set(names)) == 4 * 4 + 2


def test_reducing_every_micro_batch_names_the_same_buckets_each_time(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    launched = launch(
        scenario(
            model=UNEVEN,
            parallel={"kind": "ddp", "replicas": 2, "bucket_cap_mb": 0.004},
            accumulation={"micro_batches": 2, "sync": "every"},
            correctness={"enabled": False},
        )
    )
    record, collectives = read_rank(launched, 0)
    steps = 2  # the one that pays for the profiler's start, and one PROFILED
    wanted = {(one.owner, one.size_bytes): 2 * steps for one in record.carried}
    assert Counter((found.owner, found.size_bytes) for found in collectives) == wanted


@pytest.mark.thorough
def test_all_that_powersgd_reduces_for_a_bucket_is_that_buckets(
    launch: Callable[..., Any], scenario: Callable[..., Any]
) -> None:
    # one bucket: with several, callbacks that wait hold both of gloo's threads and nothing moves any more
    hook = {"kind": "powersgd", "matrix_approximation_rank": 1}
    parallel = {"kind": "ddp", "replicas": 2, "comm_hook": hook}
    launched = launch(
        scenario(model=UNEVEN, parallel=parallel, correctness={"enabled": False}, measure={"profiled_steps": 1})
    )
    record, collectives = read_rank(launched, 0)
    reduced: Counter[str] = Counter()
    for found in collectives:
        reduced[found.owner] += found.size_bytes or 0
    # a matrix n x m becomes one column of n and one row of m; vectors stay as they are
    assert reduced == {
        one.owner: 2 * 4 * sum(sum(shape_of(parameter)) for parameter in one.parameters) for one in record.carried
    }


def shape_of(fqn: str) -> tuple[int, ...]:
    *_, layer, kind = fqn.split(".")
    hidden = HIDDEN[int(fqn.split(".")[1])] if fqn.startswith("blocks") else 16
    rows, columns = (hidden, 16) if layer == "0" else (16, hidden)
    return (rows, columns) if kind == "weight" else (rows,)
