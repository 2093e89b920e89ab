"""Steps at other numbers of ranks: by hand where a collective is fully exposed, what never falls, what is refused."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.errors import PredictionError
from dtbench.base.vocabulary import Purpose
from dtbench.prediction import predict
from dtbench.prediction.simulate import simulate
from dtbench.runs.scaling import scored
from dtbench.runs.scaling.curve import DEFAULT_WORLDS, Curve, Subject, draw_curve, find_fastest
from dtbench.runs.scaling.host import expect_maximum
from dtbench.runs.scaling.links import Cluster, read_link
from dtbench.runs.scaling.measured import Measured
from dtbench.runs.settings.forecast import MODEL_ERROR
from dtbench.scenario.schema.scenario import Scenario
from tests.runs.conftest import MS

Make = Callable[..., Scenario]
MIB = 2**20
RECORDED = Path(__file__).parents[2] / "benchmarks" / "recorded"
RING = {"kind": "emulated", "latency_us": 500.0, "bandwidth_gb_per_s": 0.1048576, "algorithm": "ring"}
"""Half a millisecond a message, and 10 ms for each MiB."""


def subject(make: Make, parallel: dict[str, Any], *measured: Measured, **sections: Any) -> Subject:
    model = {"kind": "timed", "layers": 4, "forward_ms": 10.0, "backward_ms": 20.0}
    data = {"global_batch": 48, "sequence_length": 8}
    asked = make(**{"model": model, "network": RING, "parallel": parallel, "data": data, **sections})
    return Subject("cell", asked, measured=measured)


def ran(world: int = 2, hosts_ms: tuple[float, ...] = (8.0, 8.0), spread_ms: float = 0.0) -> Measured:
    hosts = tuple(host * MS for host in hosts_ms)
    return Measured(world, tuple(200.0 * MS for _ in hosts), hosts, 8.0 * MS, spread_ms * MS, 2)


def steps_ms(curve: Curve) -> dict[int, float]:
    return {point.world: point.step_ns / MS for point in curve.points}


def test_one_bucket_that_nothing_hides_is_a_ring_by_hand(scenario: Make) -> None:
    """Four blocks of 1 MiB in a bucket, ready after backward: compute, then 2(N-1)/N of 40 ms and 2(N-1)/2 ms."""
    one = subject(scenario, {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 100.0})
    found = steps_ms(draw_curve(one, (2, 8, 64, 4096), Cluster()))
    for world, step_ms in found.items():
        assert step_ms == pytest.approx(120 + 2 * (world - 1) / world * 40 + 2 * (world - 1) * 0.5, abs=1e-4)
    (point,) = draw_curve(one, (64,), Cluster()).points
    assert point.exposed_ns == ((Purpose.GRAD_REDUCE, point.exposed_comm_ns),)
    assert point.exposed_comm_ns == pytest.approx(point.step_ns - 120 * MS, abs=1)
    assert (point.collectives, point.size_bytes, point.wire_bytes) == (1, 4 * MIB, 4 * MIB * 2 * 63 // 64)


def test_blocking_gathers_and_scatters_are_a_ring_by_hand(scenario: Make) -> None:
    """FSDP1 gathers four blocks in forward and again in backward, and scatters their gradients; all of it blocks."""
    one = subject(scenario, {"kind": "fsdp1", "shards": 2})
    for world, step_ms in steps_ms(draw_curve(one, (2, 8, 64, 512), Cluster())).items():
        each = (world - 1) / world * 10 + (world - 1) * 0.5
        assert step_ms == pytest.approx(120 + 12 * each, abs=1e-3)


def test_two_tiers_by_hand(scenario: Make) -> None:
    """HSDP of four shards on nodes of four: shards gather over the near link, replicas reduce over the far one."""
    parallel = {"kind": "fsdp2", "shards": 4, "replicas": 2}
    cluster = Cluster(None, read_link("latency=2ms,bandwidth=0.0524288GB/s"), 4)  # 20 ms for each MiB
    for world, step_ms in steps_ms(draw_curve(subject(scenario, parallel), (8, 16, 1024), cluster)).items():
        near, replicas = 3 / 4 * 10 + 3 * 0.5, world // 4
        far = 2 * (replicas - 1) / replicas * 5 + 2 * (replicas - 1) * 2
        assert step_ms == pytest.approx(120 + 4 * (3 * near + far), abs=1e-3)


def test_one_node_uses_the_near_link_alone(scenario: Make) -> None:
    one = subject(scenario, {"kind": "ddp", "replicas": 2})
    far = Cluster(None, read_link("latency=60ms,bandwidth=0.01GB/s"), 8)
    two, plain = (steps_ms(draw_curve(one, (2, 8, 16), cluster)) for cluster in (far, Cluster()))
    assert (two[2], two[8]) == (plain[2], plain[8])
    assert two[16] > 3 * plain[16]


@pytest.mark.parametrize(
    "parallel",
    [
        {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 1.0},
        {"kind": "fsdp1", "shards": 2},
        {"kind": "fsdp2", "shards": 2, "unshard_async_op": True},
        {"kind": "fsdp2", "shards": 2, "replicas": 2},
        {"kind": "fsdp2", "shards": 2, "tensor": 2},
    ],
)
def test_more_ranks_never_make_a_step_shorter_and_a_faster_link_never_longer(
    scenario: Make, parallel: dict[str, Any]
) -> None:
    one = subject(scenario, parallel, ran(spread_ms=0.5))
    curve = draw_curve(one, DEFAULT_WORLDS, Cluster())
    found = [point.step_ns for point in curve.points]
    assert len(found) == len(DEFAULT_WORLDS)
    assert found == sorted(found)
    fast = [point.step_ns for point in draw_curve(one, DEFAULT_WORLDS, Cluster(read_link("x4"))).points]
    assert all(after <= before for before, after in zip(found, fast, strict=True))
    memory = [point.state_bytes for point in curve.points]
    is_sharded = parallel["kind"] != "ddp" and "replicas" not in parallel
    assert all(after * 2 == before if is_sharded else after == before for before, after in pairwise(memory))


def test_at_the_world_that_was_measured_the_step_is_what_was_measured(scenario: Make) -> None:
    """Without a link that hides anything: 120 ms, the bucket, and 8 ms of host."""
    one = subject(scenario, {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 100.0}, ran())
    assert steps_ms(draw_curve(one, (2,), Cluster()))[2] == pytest.approx(120 + 40 + 1 + 8, abs=1e-4)


def test_the_band_holds_launches_the_model_and_all_of_the_skew(scenario: Make) -> None:
    parallel = {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 100.0}
    (still,) = draw_curve(subject(scenario, parallel, ran()), (64,), Cluster()).points
    assert still.high_ns is not None
    assert still.high_ns - still.step_ns == pytest.approx(MODEL_ERROR * still.step_ns)
    (skewed,) = draw_curve(subject(scenario, parallel, ran(spread_ms=2.0)), (64,), Cluster()).points
    later_ns = 2 * MS * (expect_maximum(64) - expect_maximum(2))
    assert skewed.step_ns == pytest.approx(still.step_ns + later_ns, abs=2)
    assert skewed.high_ns is not None
    assert (skewed.high_ns - skewed.step_ns) ** 2 == pytest.approx(
        (MODEL_ERROR * skewed.step_ns) ** 2 + later_ns**2, rel=1e-6
    )
    (wider,) = draw_curve(subject(scenario, parallel, ran(hosts_ms=(6.0, 10.0))), (64,), Cluster()).points
    assert wider.high_ns is not None
    assert wider.high_ns > still.high_ns
    for of_one in (subject(scenario, parallel, ran(hosts_ms=(8.0,))), subject(scenario, parallel)):
        (untold,) = draw_curve(of_one, (64,), Cluster()).points
        assert (untold.low_ns, untold.high_ns) == (None, None)


def test_what_was_never_scored_says_in_what(scenario: Make) -> None:
    parallel = {"kind": "ddp", "replicas": 2}
    few, many = draw_curve(subject(scenario, parallel, ran()), (scored.MOST_RANKS, 64), Cluster()).points
    assert few.beyond == ()
    assert many.beyond == (f"more than {scored.MOST_RANKS} ranks",)
    (blind,) = draw_curve(subject(scenario, parallel), (2,), Cluster()).points
    assert blind.beyond == ("no host",)
    assert blind.host is None
    cluster = Cluster(read_link("x8"), read_link("400G"), 2)
    (far,) = draw_curve(subject(scenario, parallel, ran()), (4,), cluster).points
    assert far.beyond == ("two tiers of links", "8.00 times the bandwidth")


def test_what_was_scored_is_what_is_recorded() -> None:
    """Predictions, or, while none are recorded, counterfactuals: of two ranks, and of four over two axes."""
    predictions = RECORDED / "predictions.json"
    if predictions.exists():
        worlds = [pair["world"] for pair in json.loads(predictions.read_bytes())]
        assert max(worlds) == scored.MOST_RANKS
    else:
        kinds = {pair["strategy"] for pair in json.loads((RECORDED / "counterfactuals.json").read_bytes())}
        assert kinds & {"hsdp", "ddp_tp", "fsdp2_tp"}
        assert scored.MOST_RANKS == 4


def test_a_curve_to_4096_ranks_simulates_each_once(scenario: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = []

    def count(given: Any) -> Any:
        programs.append(len(given))
        return simulate(given)

    monkeypatch.setattr(predict, "simulate", count)
    draw_curve(subject(scenario, {"kind": "fsdp2", "shards": 2}, ran()), DEFAULT_WORLDS, Cluster())
    assert programs == [1] * len(DEFAULT_WORLDS)
    programs.clear()
    model = {"kind": "timed", "layers": 4, "forward_ms": 10.0, "backward_ms": 20.0}
    slow = {**model, "slow_rank": {"rank": 3, "factor": 2.0}}
    one = subject(scenario, {"kind": "ddp", "replicas": 4}, model=slow)
    found = steps_ms(draw_curve(one, (8, 4096), Cluster()))
    assert programs == [2, 2]
    assert found[8] > 240


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"network": {"kind": "real"}}, "network.kind=real has no known cost"),
        ({"network": {**RING, "jitter": {"fraction": 0.5}}}, "which collective takes how much longer"),
        ({"device": "cuda"}, "on CUDA streams decide what overlaps"),
    ],
)
def test_cells_without_a_closed_form_are_refused(scenario: Make, sections: dict[str, Any], said: str) -> None:
    one = subject(scenario, {"kind": "ddp", "replicas": 2}, **sections)
    with pytest.raises(PredictionError, match=said):
        draw_curve(one, (8, 64), Cluster())


def test_real_models_are_refused(scenario: Make) -> None:
    asked = scenario(network=RING, parallel={"kind": "ddp", "replicas": 2})
    with pytest.raises(PredictionError, match=r"not known what model\.kind=transformer costs"):
        draw_curve(Subject("cell", asked), (8,), Cluster())


def test_worlds_that_cannot_be_leave_the_others(scenario: Make) -> None:
    one = subject(scenario, {"kind": "fsdp2", "shards": 2, "tensor": 2})
    curve = draw_curve(one, (3, 8), Cluster())
    assert [point.world for point in curve.points] == [8]
    ((world, why),) = curve.refused
    assert world == 3
    assert "the nearest are 2 and 4" in why
    with pytest.raises(PredictionError, match="the nearest are 2 and 4"):
        draw_curve(one, (3,), Cluster())


def test_ranks_that_all_do_different_things_are_refused_where_they_are_many(scenario: Make) -> None:
    """Groups of six shards, nodes of eight: the first is on one node, the second on two."""
    one = subject(scenario, {"kind": "fsdp2", "shards": 6, "replicas": 2})
    cluster = Cluster(None, read_link("400G"), 8)
    assert draw_curve(one, (24, 96), cluster).points
    with pytest.raises(PredictionError, match="384 ranks do different things"):
        draw_curve(one, (384,), cluster)


def test_layouts_are_set_side_by_side_at_one_world(scenario: Make) -> None:
    fast, slow = (
        draw_curve(Subject(name, subject(scenario, parallel).scenario), (8, 64), Cluster())
        for name, parallel in (("a", {"kind": "ddp", "replicas": 2}), ("b", {"kind": "fsdp1", "shards": 2}))
    )
    assert [curve.subject.name for curve, _ in find_fastest((slow, fast), 64)] == ["a", "b"]
    assert find_fastest((slow, fast), 16) == ()
