"""Which points a grid has, which of them cannot run, and which are the same."""

from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.errors import DtbenchError, PlanError, PredictionError, ScenarioError
from dtbench.cli.sweeps import read_sweeps
from dtbench.plan.plan import Machine
from dtbench.scenario.schema.scenario import Scenario
from dtbench.tuning.grid import Grid, OverAxis, find_same, make_grid, name_point, read_axes

Make = Callable[..., Scenario]
MACHINE = Machine(cpu_cores=2, cuda_devices=0)
TIMED = {"kind": "timed", "layers": 4, "forward_ms": 20.0, "backward_ms": 20.0}
LINK = {"kind": "emulated", "latency_us": 1000.0, "bandwidth_gb_per_s": 0.1}
DDP = {"kind": "ddp", "replicas": 2}
FSDP2 = {"kind": "fsdp2", "shards": 2}


def axes_of(*typed: str) -> tuple[OverAxis, ...]:
    return read_axes(read_sweeps(typed, "--over"))


def grid_of(scenario: Make, *typed: str, **sections: Any) -> Grid:
    asked = scenario(**{"model": TIMED, "network": LINK, "parallel": DDP, **sections})
    return make_grid("base", asked, axes_of(*typed), MACHINE)


def test_values_are_spelled_as_a_sweep_has_them_and_braces_hold_commas() -> None:
    assert axes_of("parallel.bucket_cap_mb=1,4,16", "parallel.comm_hook=null,{kind: fp16_compress, builtin: true}") == (
        OverAxis("parallel.bucket_cap_mb", ("1", "4", "16")),
        OverAxis("parallel.comm_hook", ("null", "{kind: fp16_compress, builtin: true}")),
    )
    assert axes_of("parallel.bucket_cap_mb_list=[1,4],[2,8]") == (
        OverAxis("parallel.bucket_cap_mb_list", ("[1, 4]", "[2, 8]")),
    )
    assert axes_of("parallel.bucket_cap_mb=[1,4]")[0].values == ("1", "4")
    assert axes_of("parallel.sharding_strategy=FULL_SHARD")[0].values == ("FULL_SHARD",)


@pytest.mark.parametrize(
    ("typed", "kind", "said"),
    [
        (("parallel.bucket_cap_mb=1", "parallel.bucket_cap_mb=2"), ScenarioError, "is given twice; write all its"),
        (("parallel.bucket_cap_mb=1,1.0",), ScenarioError, "1.0 stands twice"),
        (("parallel.bucket_cap_mb=[]",), ScenarioError, "there is no value"),
        (("parallel.bucket_cap_mb=1,{",), ScenarioError, "--over parallel.bucket_cap_mb"),
        (("model.layers=1,2",), PredictionError, "is the work itself"),
        (("data.global_batch=2",), PredictionError, "is the work itself"),
        (("parallel.bucket_cap_mb=" + ",".join(map(str, range(1, 1200))),), ScenarioError, "these are 1199 points"),
    ],
)
def test_what_is_no_grid_is_a_sentence(typed: tuple[str, ...], kind: type[DtbenchError], said: str) -> None:
    with pytest.raises(kind, match=r"(?s).") as raised:
        axes_of(*typed)
    assert said in str(raised.value)


def test_the_product_of_all_axes_are_the_points_each_with_what_it_changes(scenario: Make) -> None:
    grid = grid_of(scenario, "parallel.bucket_cap_mb=null,1", "parallel.static_graph=true,false")
    assert [(point.name, point.change) for point in grid.points] == [
        ("point_1", "parallel.static_graph=true"),
        ("point_2", ""),
        ("point_3", "parallel.bucket_cap_mb=1 + parallel.static_graph=true"),
        ("point_4", "parallel.bucket_cap_mb=1"),
    ]
    assert grid.points[1].same_as == ""
    assert name_point(grid, "") == "the unchanged cell"
    assert grid.find("point_3").scenario is not None
    assert grid.find("point_3").scenario.parallel.model_dump()["static_graph"] is True  # type: ignore[union-attr]


def test_fields_that_belong_together_come_in_any_order(scenario: Make) -> None:
    """Which of them is laid first is of no matter, though one alone would be refused."""
    grid = grid_of(scenario, "parallel.skip_all_reduce_unused_params=true", "parallel.find_unused_parameters=true")
    assert [point.refused for point in grid.points] == [""]


def test_what_cannot_run_is_there_with_the_reason(scenario: Make) -> None:
    grid = grid_of(scenario, "parallel.bucket_cap_mb=-1,1", "parallel.replicas=2,4")
    reasons = {point.change: point.refused for point in grid.points}
    assert "must be" in reasons["parallel.bucket_cap_mb=-1"]
    assert "--set" not in reasons["parallel.bucket_cap_mb=-1"]
    assert grid.runnable == ("point_3",)
    batch = {"global_batch": 4, "sequence_length": 8}
    other = grid_of(scenario, "parallel.replicas=2,4", data=batch).points[1].refused
    assert other == "it has 4 ranks in place of 2: that is another job"
    plan = grid_of(scenario, "parallel.skip_all_reduce_unused_params=true,false").points[0].refused
    assert "find_unused_parameters" in plan


@pytest.mark.parametrize(
    ("typed", "kind", "said"),
    [
        ("parallel.bucket_cap=1,2", ScenarioError, "no point can run: parallel.bucket_cap=1: "),
        ("parallel.bucket_cap=1", ScenarioError, "did you mean `parallel.bucket_cap_mb`?"),
        ("parallel.replicas=3,5", PlanError, "and 1 more reason"),
    ],
)
def test_a_grid_of_which_no_point_can_run_is_refused(
    scenario: Make, typed: str, kind: type[DtbenchError], said: str
) -> None:
    with pytest.raises(kind) as raised:
        grid_of(scenario, typed)
    assert said in str(raised.value)


def test_whole_strategies_are_points_too(scenario: Make) -> None:
    grid = grid_of(scenario, "parallel={kind: ddp, replicas: 2},{kind: fsdp2, shards: 2}")
    same, other = grid.points
    assert same.same_as == ""
    assert other.may_run
    assert other.scenario is not None
    assert other.scenario.parallel.kind == "fsdp2"


def test_a_scenario_that_cannot_run_itself_is_refused(scenario: Make) -> None:
    with pytest.raises(PlanError):
        grid_of(scenario, "parallel.bucket_cap_mb=1", data={"global_batch": 3, "sequence_length": 8})


def test_caps_that_make_the_same_buckets_are_one_point(scenario: Make) -> None:
    caps = "parallel.bucket_cap_mb=null,1000,2000,0.001,0.002"
    grid = grid_of(scenario, caps, "parallel.static_graph=false,true", model={**TIMED, "dim": 64})
    alike = {point.change: of for point, of in find_same(grid)}
    assert alike["parallel.bucket_cap_mb=2000"] in ("parallel.bucket_cap_mb=1000", "the unchanged cell")
    assert alike["parallel.bucket_cap_mb=0.002"] == "parallel.bucket_cap_mb=0.001"
    assert len(grid.runnable) + len(alike) == 10
    runs = {grid.find(name).change for name in grid.runnable}
    assert "parallel.static_graph=true" in runs  # it issues the same, and yet the host does something else


def test_prefetch_beyond_the_last_block_is_the_same_as_up_to_it(scenario: Make) -> None:
    parallel = {**FSDP2, "unshard_async_op": True}
    grid = grid_of(scenario, "parallel.forward_prefetch=1,2,3,4,8,9", parallel=parallel)
    alike = {point.change: of for point, of in find_same(grid)}
    ahead = "parallel.forward_prefetch"
    assert alike == {f"{ahead}=8": f"{ahead}=4", f"{ahead}=9": f"{ahead}=4"}  # the root gathers four blocks ahead


def test_what_is_not_known_to_be_the_same_is_not_taken_to_be(scenario: Make) -> None:
    """Over a real network FSDP's order of issue has no closed form here: each value is a point."""
    grid = grid_of(scenario, "parallel.forward_prefetch=8,9", parallel=FSDP2, network={"kind": "real"})
    assert len(grid.runnable) == 2


def test_no_point_has_the_name_of_the_cell(scenario: Make) -> None:
    asked = scenario(model=TIMED, network=LINK, parallel=DDP)
    grid = make_grid("point_1", asked, axes_of("parallel.bucket_cap_mb=1,2"), MACHINE)
    assert "point_1" not in [point.name for point in grid.points]
