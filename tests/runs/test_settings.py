"""What is said of other settings: by hand on a link whose times are round, and what is refused."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from scipy import stats

from dtbench.base.errors import PredictionError
from dtbench.base.vocabulary import Phase
from dtbench.plan.plan import Plan
from dtbench.prediction.calibrate import calibrate
from dtbench.prediction.costs import known_costs, spread_host
from dtbench.prediction.predict import MEAN_JITTER, time_step
from dtbench.runs.check_prediction import bound_cell, leave_unjudged_prediction
from dtbench.runs.settings.candidates import AND, find_candidates
from dtbench.runs.settings.forecast import LEVEL, MODEL_ERROR, apply_change, forecast_cell, is_setting
from dtbench.runs.summary import CellSummary, Disturbed
from dtbench.scenario.schema.scenario import Fsdp1, Fsdp2, Parallel

MS = 1_000_000
Make = Callable[..., CellSummary]


def measured(make: Make, *steps_ms: float, **sections: Any) -> CellSummary:
    """Return a cell with a launch for each of these steps, held against its closed form."""
    cell = make(steps_ms[0], 30.0, **sections)
    cell = cell.model_copy(update={"launch_medians_ns": tuple(step * MS for step in steps_ms)})
    return cell.model_copy(update={"prediction": bound_cell(cell, cores=2)})


def test_larger_buckets_save_latency_and_lose_what_hides_them(cell: Make) -> None:
    """Twelve blocks of 20 ms and 1 MiB; a bucket takes 12 ms + 10 ms/MiB, so each block's waits for the one before.

    Buckets of a block are ready at 20, 40 ...; the link serves one in 22: the last ends at 20 + 12 * 22 = 284.
    Two a bucket: ready at 40, 80 ...; served in 32: at 240 the sixth is ready, and ends at 272. All in one: 240 + 132.
    """
    found = forecast_cell(
        measured(cell, 284.0), ["parallel.bucket_cap_mb=2", "parallel.bucket_cap_mb=12", "network.latency_us=0"]
    )
    steps_ms = {answer.change: answer.step_ns / MS for answer in found.answers}
    assert steps_ms == {
        "network.latency_us=0": 250.0,  # hidden but for the last: 240 + 10
        "parallel.bucket_cap_mb=2": 272.0,
        "parallel.bucket_cap_mb=12": 372.0,
    }
    assert [answer.saving_ns / MS for answer in found.answers] == [34.0, 12.0, -88.0]
    assert found.step_ns == 284 * MS
    assert found.missing == 0
    assert all(answer.low_ns is None for answer in found.answers)  # of one launch


def test_the_host_that_the_step_had_is_in_the_changed_one(cell: Make) -> None:
    """8 ms of host: a quarter before backward, a half spread over its blocks, a quarter after it."""
    one = measured(cell, 284.0)
    scenario, plan = one.scenario, one.plan
    assert scenario is not None
    assert isinstance(plan, Plan)
    known = known_costs(scenario, plan)
    costs = {rank: spread_host(costs, 8 * MS, micro_batches=1) for rank, costs in known.items()}
    step_ns = time_step(scenario, plan, costs, jitter_share=MEAN_JITTER)
    found = calibrate(scenario, plan, step_ns, most_ns=40 * MS)
    assert time_step(scenario, plan, found, jitter_share=MEAN_JITTER) == pytest.approx(step_ns, abs=20_000)
    answer = forecast_cell(measured(cell, step_ns / MS), ["parallel.bucket_cap_mb=12"]).answers[0]
    assert answer.step_ns == pytest.approx(372 * MS + 8 * MS, abs=60_000)  # none of it is hidden there


@pytest.mark.parametrize(("step_ms", "said"), [(280.0, "blocks and link alone"), (360.0, "with the longest host")])
def test_steps_that_no_host_explains_are_refused(cell: Make, step_ms: float, said: str) -> None:
    one = cell(284.0)
    assert one.scenario is not None
    assert isinstance(one.plan, Plan)
    with pytest.raises(PredictionError, match=said):
        calibrate(one.scenario, one.plan, step_ms * MS, most_ns=40 * MS)


def test_an_interval_holds_the_spread_of_launches_and_what_closed_forms_are_off_by(cell: Make) -> None:
    steps_ms = (286.0, 288.0, 293.0)
    (answer,) = forecast_cell(measured(cell, *steps_ms), ["parallel.bucket_cap_mb=2"]).answers
    mean, spread = sum(steps_ms) / 3, math.sqrt(sum((step - 289) ** 2 for step in steps_ms) / 2)
    launches = stats.t.ppf((1 + LEVEL) / 2, 2) * spread * math.sqrt(2 / 3)
    half = math.hypot(launches, MODEL_ERROR * mean)
    assert answer.low_ns is not None
    assert answer.high_ns is not None
    assert (answer.high_ns - answer.low_ns) / 2 / MS == pytest.approx(half)
    assert (answer.high_ns + answer.low_ns) / 2 == pytest.approx(answer.saving_ns)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("model.layers=4", "what else a scenario says is the work itself"),
        ("measure.measured_steps=4", "how it is measured"),
        ("parallel.bucket_cap=4", "^--change parallel.bucket_cap=4: .*did you mean `parallel.bucket_cap_mb`"),
        ("parallel.bucket_cap_mb=none at all", "parallel.bucket_cap_mb"),
        ("parallel.bucket_cap_mb=1", "^--change parallel.bucket_cap_mb=1: it is so already"),
        ("parallel.find_unused_parameters=true", "adds an all-reduce that nobody may wait for"),
        ("parallel.replicas=4", "4 ranks in place of 2"),
        ("parallel={kind: fsdp2, shards: 2}", "what else a scenario says is the work itself"),
        ("network.kind=real", "network.kind=real"),
        ("network.jitter={fraction: 0.5}", "which collective takes how much longer"),
    ],
)
def test_what_nobody_can_say_is_refused_by_a_sentence(cell: Make, change: str, said: str) -> None:
    with pytest.raises(PredictionError, match=said):
        forecast_cell(measured(cell, 284.0), [change])


def test_cells_of_which_nothing_is_known_are_refused(cell: Make) -> None:
    right = measured(cell, 284.0)
    for wrong, said in (
        (right.model_copy(update={"scenario": None}), "a loop of one's own"),
        (right.model_copy(update={"prediction": None}), "not held against its closed form"),
        (measured(cell, 330.0), "1 of 1 launches measured a step outside its closed form's bounds"),
        (
            right.model_copy(update={"unlike": {right.name: "launch0 and launch1 differ: cores 2 and 64"}}),
            "its launches ran in unlike environments: launch0 and launch1 differ: cores 2 and 64",
        ),
        (
            right.model_copy(update={"rank_doubts": ("the record of rank 1 is missing",)}),
            "not gone by|record of rank 1",
        ),
    ):
        with pytest.raises(PredictionError, match=said):
            forecast_cell(wrong, ["parallel.bucket_cap_mb=2"])


@pytest.mark.parametrize(
    "parallel",
    [
        {"kind": "ddp", "replicas": 2},
        {"kind": "ddp", "replicas": 2, "bucket_cap_mb_list": [1.0, 2.0]},
        {"kind": "fsdp1", "shards": 2},
        {"kind": "fsdp1", "shards": 2, "backward_prefetch": None},
        {"kind": "fsdp2", "shards": 2},
        {"kind": "fsdp2", "shards": 2, "unshard_async_op": True, "forward_prefetch": 1},
    ],
)
def test_what_is_offered_can_be_asked_and_is_not_so_already(cell: Make, parallel: dict[str, Any]) -> None:
    """Each is applied, planned and timed; none is refused."""
    made = cell(0.0, parallel=parallel)
    assert made.scenario is not None
    assert isinstance(made.plan, Plan)
    step_ns = time_step(made.scenario, made.plan, known_costs(made.scenario, made.plan), jitter_share=MEAN_JITTER)
    found = forecast_cell(measured(cell, step_ns / MS, parallel=parallel))
    offered = [candidate.change for candidate in find_candidates(made.scenario.parallel)]
    assert not found.not_asked
    assert sorted(offered) == sorted(answer.change for answer in found.answers)
    assert [answer.saving_ns for answer in found.answers] == sorted(
        (answer.saving_ns for answer in found.answers), reverse=True
    )


def test_settings_are_changed_together(cell: Make) -> None:
    made = cell(0.0, parallel={"kind": "fsdp2", "shards": 2})
    assert made.scenario is not None
    change = AND.join(("parallel.unshard_async_op=true", "parallel.forward_prefetch=2"))
    changed: Parallel = apply_change(made.scenario, change).parallel
    assert isinstance(changed, Fsdp2)
    assert (changed.unshard_async_op, changed.forward_prefetch) == (True, 2)
    assert not isinstance(changed, Fsdp1)


def test_another_number_of_ranks_is_another_job_whoever_applies_it(cell: Make) -> None:
    made = cell(0.0).scenario
    assert made is not None
    with pytest.raises(PredictionError, match=r"`parallel\.replicas=4` has 4 ranks in place of 2: that is another job"):
        apply_change(made, "parallel.replicas=4")


def test_settings_are_told_from_changes_of_a_graph() -> None:
    assert is_setting("parallel.bucket_cap_mb=1")
    assert is_setting("parallel.comm_hook={kind: fp16_compress}")
    assert not any(map(is_setting, ("hidden: all", "link: x2", "no straggler", "kernel: a=b x2")))


@pytest.mark.parametrize(("phase", "is_told"), [(Phase.PROFILED, True), (None, True), (Phase.MEASURED, False)])
def test_only_who_disturbed_measured_steps_speaks_against_them(cell: Make, phase: Phase | None, is_told: bool) -> None:
    """Its checks are not judged then, whatever the phase was: the step is held against its bounds by itself."""
    one = measured(cell, 290.0)
    taken = Disturbed(launch=0, phase=phase, steps=8, of_launches=1, left_alone=1, stolen_fraction=0.4, takers=())
    one = one.model_copy(update={"disturbed": (taken,)})
    one = one.model_copy(update={"prediction": leave_unjudged_prediction(one, one.prediction)})
    assert one.prediction is not None
    assert one.prediction.is_inside is None
    if is_told:
        assert forecast_cell(one, ["parallel.bucket_cap_mb=2"]).answers
    else:
        with pytest.raises(PredictionError, match="its steps are not gone by: others"):
            forecast_cell(one, ["parallel.bucket_cap_mb=2"])


def test_changes_that_do_not_apply_leave_the_others_and_are_counted(cell: Make) -> None:
    found = forecast_cell(measured(cell, 284.0), ["parallel.bucket_cap_mb=2", "parallel.unshard_async_op=true"])
    assert [answer.change for answer in found.answers] == ["parallel.bucket_cap_mb=2"]
    ((change, why),) = found.not_asked
    assert change == "parallel.unshard_async_op=true"
    assert "unshard_async_op" in why


def test_launches_without_a_step_are_counted_and_one_outside_its_bounds_is_named(cell: Make) -> None:
    found = forecast_cell(measured(cell, 286.0, float("nan"), 288.0), ["parallel.bucket_cap_mb=2"])
    assert (found.launches, found.missing, found.step_ns) == (2, 1, 287 * MS)
    with pytest.raises(PredictionError, match=r"1 of 3 launches measured a step outside .*: 400 ms"):
        forecast_cell(measured(cell, 286.0, 400.0, 288.0), ["parallel.bucket_cap_mb=2"])


def test_over_a_link_with_jitter_nothing_is_said(cell: Make) -> None:
    network = {"kind": "emulated", "latency_us": 12_000.0, "bandwidth_gb_per_s": 0.1048576, "jitter": {"fraction": 0.1}}
    with pytest.raises(PredictionError, match="which collective takes how much longer"):
        forecast_cell(measured(cell, 300.0, network=network), ["parallel.bucket_cap_mb=2"])


@pytest.mark.parametrize("batches", [2, 3])
def test_each_micro_batch_has_its_part_of_the_host(cell: Make, batches: int) -> None:
    sections = {"accumulation": {"micro_batches": batches}, "data": {"global_batch": 12, "sequence_length": 8}}
    made = cell(0.0, **sections)
    assert made.scenario is not None
    assert isinstance(made.plan, Plan)
    known = known_costs(made.scenario, made.plan)
    costs = {rank: spread_host(one, 8 * MS, micro_batches=batches) for rank, one in known.items()}
    step_ns = time_step(made.scenario, made.plan, costs, jitter_share=MEAN_JITTER)
    (answer,) = forecast_cell(measured(cell, step_ns / MS, **sections), ["parallel.bucket_cap_mb=12"]).answers
    changed = apply_change(made.scenario, "parallel.bucket_cap_mb=12")
    assert answer.step_ns == pytest.approx(time_step(changed, made.plan, costs, jitter_share=MEAN_JITTER), abs=60_000)
