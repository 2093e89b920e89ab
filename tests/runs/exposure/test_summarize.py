"""From what ranks wrote to estimates, disputes and the gain of overlapping, with answers known beforehand."""

import math
from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest

from dtbench.base.vocabulary import Arm, DeviceKind, Estimate, Operation, Purpose
from dtbench.runs.exposure.agreement import Agreement, judge
from dtbench.runs.exposure.summarize import LaunchExposure, summarize_exposure
from dtbench.runs.summary import Estimated, ExposureRow, ExposureSummary
from dtbench.store.records.arms import ArmSteps
from dtbench.traces.rows.tables import PURPOSES

MS = 1_000_000
ALL = ("trace", "ablation", "wait")
FULL, REMOVED, SERIAL = Arm.FULL, Arm.REMOVED, Arm.SERIAL
ABCCBA = (FULL, REMOVED, SERIAL, SERIAL, REMOVED, FULL) * 2
Steps = Callable[..., ArmSteps]
Launch = Callable[..., LaunchExposure]


def summarize(*launches: LaunchExposure, asked: tuple[str, ...] = ALL) -> ExposureSummary:
    found = summarize_exposure(asked, launches, DeviceKind.CPU)
    assert found is not None
    return found


def means_ms(row: ExposureRow) -> dict[str, float]:
    return {one.estimate.value: one.mean_ns / MS for one in row.estimates}


def of(row: ExposureRow, estimate: Estimate) -> Estimated:
    return next(one for one in row.estimates if one.estimate is estimate)


def test_equal_estimates_agree_on_every_rank_and_on_their_mean(steps_of: Steps, launch_of: Launch) -> None:
    arms = {0: steps_of({FULL: 100, REMOVED: 80}, 20.0), 1: steps_of({FULL: 100, REMOVED: 76}, 24.0)}
    found = summarize(launch_of({0: [19.0, 21.0], 1: [23.0, 25.0]}, arms))
    assert [row.rank for row in found.rows] == [None, 0, 1]
    assert means_ms(found.rows[0]) == pytest.approx({"trace": 22, "ablation": 22, "wait": 22})
    assert means_ms(found.rows[2]) == pytest.approx({"trace": 24, "ablation": 24, "wait": 24})
    assert [row.disputes for row in found.rows] == [(), (), ()]
    assert found.notes == ()
    assert [one.count for one in found.rows[1].estimates] == [2, 4, 4]
    assert of(found.rows[0], Estimate.TRACE).standard_error_ns == pytest.approx(1 * MS)


def test_contention_is_disputed_where_it_is(steps_of: Steps, launch_of: Launch) -> None:
    arms = {rank: steps_of({FULL: 100, REMOVED: removed_ms}, 20.0) for rank, removed_ms in ((0, 80), (1, 40))}
    found = summarize(launch_of({0: [20.0, 20.1], 1: [20.0, 20.1]}, arms))
    mean, first, second = found.rows
    assert not first.disputes
    assert len(second.disputes) == 2
    assert second.disputes[0].startswith(
        "trace 20.1 ms against ablation 60.0 ms, 40.0 ms apart where 6.00 ms would pass"
    )
    assert "contention" in mean.disputes[0]


def test_a_negative_ablation_stays_negative(steps_of: Steps, launch_of: Launch) -> None:
    found = summarize(launch_of({0: [0.5, 0.6]}, {0: steps_of({FULL: 80, REMOVED: 81}, 0.4)}))
    assert means_ms(found.rows[0])["ablation"] == -1.0
    assert not found.rows[0].disputes


def test_skew_that_the_trace_shows_is_named_with_its_figure(steps_of: Steps, launch_of: Launch) -> None:
    arms = {rank: steps_of({FULL: 100, REMOVED: 95}, 30.0) for rank in (0, 1)}
    launch = launch_of({0: [30.0, 30.2], 1: [30.0, 30.2]}, arms, skew_ms={0: 80.0, 1: 0.0})
    found = summarize(launch)
    # rank 0 waited 80 ms in two profiled steps
    assert any("(the trace shows 40.0 ms of waiting for a later rank)" in said for said in found.rows[1].disputes)
    assert any("(the trace shows 20.0 ms of waiting for a later rank)" in said for said in found.rows[0].disputes)


def test_a_host_bound_step_says_how_much_of_it_is_idle(steps_of: Steps, launch_of: Launch) -> None:
    launch = launch_of({0: [30.0, 30.2]}, {0: steps_of({FULL: 100, REMOVED: 95}, 30.0)}, idle_ms=40.0)
    found = summarize(launch)
    assert "(host time 40.0 ms, 40.0 % of a profiled step)" in found.rows[0].disputes[0]


def test_launches_are_the_units_where_there_are_several(steps_of: Steps, launch_of: Launch) -> None:
    launches = [
        launch_of({0: [trace_ms] * 3}, {0: steps_of({FULL: 100, REMOVED: removed_ms}, 20.0)}, name=name)
        for name, trace_ms, removed_ms in (("launch0", 18.0, 82), ("launch1", 22.0, 78))
    ]
    trace, ablation, wait = summarize(*launches).rows[0].estimates
    for one in (trace, ablation):
        assert (one.mean_ns, one.count) == (20 * MS, 2)
        assert one.standard_error_ns == pytest.approx(2 * MS)
    assert (wait.mean_ns, wait.standard_error_ns) == (20 * MS, 0)


def test_only_what_was_asked_is_estimated(steps_of: Steps, launch_of: Launch) -> None:
    launch = launch_of({0: [20.0, 20.0]}, {0: steps_of({FULL: 100, REMOVED: 80})})
    assert list(means_ms(summarize(launch, asked=("ablation", "trace")).rows[0])) == ["trace", "ablation"]
    assert summarize_exposure(("trace",), [launch], DeviceKind.CPU) is None
    assert summarize_exposure((), [launch], DeviceKind.CPU) is None


def test_ddps_logger_stands_beside_where_it_wrote_something(steps_of: Steps, launch_of: Launch) -> None:
    steps = steps_of({FULL: 100, REMOVED: 80}, 20.0, logged_ms=[19.0, 21.0])
    found = summarize(launch_of({0: [20.0, 20.2]}, {0: steps}))
    assert means_ms(found.rows[0])["logger"] == 20.0
    assert not found.rows[0].disputes
    wrong = steps_of({FULL: 100, REMOVED: 80}, 20.0, logged_ms=[5.0, 5.1])
    (said,) = summarize(launch_of({0: [20.0, 20.2]}, {0: wrong})).rows[0].disputes
    assert said.startswith("waits 20.0 ms against DDP's logger 5.05 ms")


def test_the_gain_of_overlapping_is_of_the_slowest_rank(steps_of: Steps, launch_of: Launch) -> None:
    arms = {
        0: steps_of({FULL: 100, REMOVED: 80, SERIAL: 120}, 20.0, order=ABCCBA),
        1: steps_of({FULL: 104, REMOVED: 84, SERIAL: 118}, 20.0, order=ABCCBA),
    }
    found = summarize(launch_of({0: [20.0, 20.0], 1: [20.0, 20.0]}, arms))
    assert (found.serial_ns, found.overlapped_ns) == (120 * MS, 104 * MS)
    without = summarize(launch_of({0: [20.0, 20.0]}, {0: steps_of({FULL: 100, REMOVED: 80}, 20.0)}))
    assert math.isnan(without.serial_ns)


def test_what_overlapping_gained_is_not_known_of_the_ranks_that_are_left(steps_of: Steps, launch_of: Launch) -> None:
    arms = {rank: steps_of({FULL: 100, REMOVED: 80, SERIAL: 120}, 20.0, order=ABCCBA) for rank in (0, 1)}
    exposed_ms = {0: [20.0, 20.0], 1: [20.0, 20.0]}
    whole, lost = launch_of(exposed_ms, arms), launch_of({0: [20.0, 20.0]}, {0: arms[0]})
    alone = summarize(replace(lost, world_size=2))
    assert math.isnan(alone.serial_ns)
    assert math.isnan(alone.gain_error_ns)
    assert "the steps for ablation and waits are missing on rank 1" in alone.notes
    assert "what overlapping gained is not told: the slowest rank may be it" in alone.notes
    assert "the mean over ranks leaves out rank 1, of which an estimate is missing" in alone.notes
    assert {str(one.part) for one in alone.rows[0].estimates} == {"rank 0 alone, of 2"}
    assert {one.part for one in alone.rows[1].estimates} == {None}
    both = summarize(whole, replace(lost, name="launch1", index=1, world_size=2))
    assert (both.serial_ns, both.overlapped_ns) == (120 * MS, 100 * MS)
    assert str(both.gain_part) == "launch0 alone, of 2"
    assert str(both.rows[1].estimates[0].part or "") == ""
    assert str(both.rows[2].estimates[0].part) == "launch0 alone, of 2"
    assert whole.world_size == 2
    assert summarize(whole).gain_part is None


def test_a_launch_without_the_steps_that_wait_at_once_has_no_part_in_what_overlapping_gained(
    steps_of: Steps, launch_of: Launch
) -> None:
    whole = steps_of({FULL: 100, REMOVED: 80, SERIAL: 120}, 20.0, order=ABCCBA)
    slow = steps_of({FULL: 140, REMOVED: 80}, 20.0)
    arms = (whole, slow, whole)
    launches = [launch_of({0: [20.0]}, {0: of_rank}, name=f"launch{index}") for index, of_rank in enumerate(arms)]
    found = summarize(*launches)
    assert (found.serial_ns, found.overlapped_ns) == (120 * MS, 100 * MS)
    assert str(found.gain_part) == "launches 0, 2 alone, of 3"
    without = summarize(launches[1])
    assert (without.overlapped_ns, without.gain_part) == (140 * MS, None)


def test_an_arm_that_computes_something_else_is_not_subtracted(steps_of: Steps, launch_of: Launch) -> None:
    arms = {
        0: steps_of({FULL: 100, REMOVED: 30}, 20.0, operators={REMOVED: 60}),
        1: steps_of({FULL: 100, REMOVED: 80}, 20.0),
    }
    found = summarize(launch_of({0: [20.0, 20.0], 1: [20.0, 20.0]}, arms))
    assert math.isnan(of(found.rows[0], Estimate.ABLATION).mean_ns)
    assert not any(row.disputes for row in found.rows)
    (note,) = found.notes
    assert note == (
        "steps without communication differ from the others in more than that on rank 0, so ablation is not used: "
        "60 operators a step instead of 100"
    )


def test_an_arm_that_issues_other_collectives_is_not_subtracted(steps_of: Steps, launch_of: Launch) -> None:
    steps = steps_of({FULL: 100, REMOVED: 80, SERIAL: 120}, 20.0, order=ABCCBA)
    full, removed, serial = steps.counts
    fewer = tuple(one.model_copy(update={"count": 2}) for one in serial.traffic)
    waiting = tuple(one.model_copy(update={"count_async": 0}) for one in removed.traffic)
    counts = (
        full,
        removed.model_copy(update={"traffic": waiting}),
        serial.model_copy(update={"traffic": fewer}),
    )
    found = summarize(launch_of({0: [20.0, 20.0]}, {0: steps.model_copy(update={"counts": counts})}))
    assert math.isnan(found.serial_ns)
    assert of(found.rows[0], Estimate.ABLATION).mean_ns == 20 * MS  # whether it waits at once is no difference
    (note,) = found.notes
    reduce = f"{Operation.ALL_REDUCE} of {Purpose.GRAD_REDUCE} with 3.00 MiB"
    assert note.endswith(f"so what overlapping gained is not told: 2 {reduce} a step instead of 3 {reduce}")


def test_an_arm_that_nobody_counted_is_not_subtracted(steps_of: Steps, launch_of: Launch) -> None:
    steps = steps_of({FULL: 100, REMOVED: 80}, 20.0).model_copy(update={"counts": ()})
    found = summarize(launch_of({0: [20.0, 20.0]}, {0: steps}))
    assert math.isnan(of(found.rows[0], Estimate.ABLATION).mean_ns)
    assert found.notes[0].endswith("ablation is not used: nobody counted what these steps do")


def test_a_launch_that_ended_early_leaves_the_trace_alone_and_a_note(steps_of: Steps, launch_of: Launch) -> None:
    found = summarize(launch_of({0: [20.0, 20.0]}, {0: None}))
    row = found.rows[0]
    assert means_ms(row)["trace"] == 20.0
    assert math.isnan(of(row, Estimate.ABLATION).mean_ns)
    assert not row.disputes
    assert found.notes == ("the steps for ablation and waits are missing: the launch ended before them",)
    whole = launch_of({0: [20.0, 20.0]}, {0: steps_of({FULL: 100, REMOVED: 80}, 20.0)})
    running = launch_of({0: [20.0, 20.0]}, {}, name="launch1", has_ended=False)
    assert summarize(whole, running).notes == (
        "launch1: the steps for ablation and waits are missing: it has not come to them",
        "trace and ablation are not of the same launches and ranks, so they are not held against each other",
        "trace and waits are not of the same launches and ranks, so they are not held against each other",
    )


def test_arms_that_were_asked_and_did_not_run_are_named(steps_of: Steps, launch_of: Launch) -> None:
    steps = steps_of({FULL: 100}, order=(FULL, FULL))
    assert summarize(launch_of({0: [20.0, 20.0]}, {0: steps})).notes == (
        "no step ran without communication, so ablation is not known",
        "nobody timed waits, so they are not known",
    )


def test_a_mean_is_over_the_ranks_of_which_all_is_known(steps_of: Steps, launch_of: Launch) -> None:
    steps = steps_of({FULL: 100, REMOVED: 80}, 20.0)
    found = summarize(launch_of({0: [20.0, 20.0], 1: [90.0, 90.0]}, {0: steps, 1: None}))
    assert means_ms(found.rows[0]) == {"trace": 20.0, "ablation": 20.0, "wait": 20.0}
    assert found.notes == (
        "the steps for ablation and waits are missing on rank 1",
        "the mean over ranks leaves out rank 1, of which an estimate is missing",
    )


def test_a_single_profiled_step_cannot_dispute_and_that_is_said(steps_of: Steps, launch_of: Launch) -> None:
    found = summarize(launch_of({0: [60.0]}, {0: steps_of({FULL: 100, REMOVED: 80}, 20.0)}))
    assert not found.rows[0].disputes
    assert found.notes[0] == (
        "trace and ablation are 40.0 ms apart, which a single value cannot judge: take more steps"
    )


def test_a_cell_that_wrote_nothing_has_no_estimates(launch_of: Launch) -> None:
    found = summarize(launch_of({}, {}, has_ended=False))
    (row,) = found.rows
    assert row.rank is None
    assert all(math.isnan(one.mean_ns) for one in row.estimates)


def test_ranks_that_ran_other_blocks_are_not_averaged_step_by_step(steps_of: Steps, launch_of: Launch) -> None:
    arms = {0: steps_of({FULL: 100, REMOVED: 80}, 20.0), 1: steps_of({FULL: 100, REMOVED: 78}, 22.0, steps=4)}
    found = summarize(launch_of({0: [20.0, 20.2], 1: [22.0, 22.2]}, arms))
    assert means_ms(found.rows[0]) == pytest.approx({"trace": 21.1, "ablation": 21, "wait": 21})
    assert math.isnan(of(found.rows[0], Estimate.ABLATION).standard_error_ns)


def test_on_cuda_waits_are_the_gaps_of_the_compute_stream_in_profiled_steps(steps_of: Steps, launch_of: Launch) -> None:
    steps = steps_of({FULL: 100}, order=(), logged_ms=[9.0, 9.2])
    launch = launch_of({0: [20.0, 20.0, 2.0]}, {0: steps}, gaps_ms={0: [18.0, 18.0, 0.0]})
    found = summarize_exposure(("trace", "wait"), [launch], DeviceKind.CUDA)
    assert found is not None
    assert means_ms(found.rows[0]) == {"trace": 14.0, "wait": 12.0, "logger": 9.1}
    assert of(found.rows[0], Estimate.WAIT).count == 3
    assert not found.rows[0].disputes
    assert found.notes == ()
    on_cpu = summarize(launch, asked=("trace", "wait"))
    assert math.isnan(of(on_cpu.rows[0], Estimate.WAIT).mean_ns)  # there clocks must have seen them


@pytest.mark.parametrize(
    ("lose", "untold"),
    [
        (lambda waits: waits.assign(wait_ns=waits["wait_ns"].mask(waits["step"] == 31)), 1),
        (lambda waits: waits.assign(is_wait_least=waits["step"] == 31), 1),
        (lambda waits: waits[waits["step"] != 31], 1),
        (lambda waits: waits.assign(wait_ns=pd.NA), 3),
        (lambda waits: waits.assign(is_wait_least=True), 3),
    ],
    ids=["of a step", "a bound of a step", "no purpose of a step", "of none", "bounds alone"],
)
def test_a_wait_of_the_compute_stream_that_is_not_known_is_no_zero(
    lose: Callable[[pd.DataFrame], pd.DataFrame], untold: int, steps_of: Steps, launch_of: Launch
) -> None:
    whole = launch_of({0: [20.0, 20.1, 20.2]}, {0: steps_of({FULL: 100}, order=())}, gaps_ms={0: [19.0] * 3})
    launch = replace(whole, purposes=lose(whole.purposes).astype(PURPOSES.dtypes))
    found = summarize_exposure(("trace", "wait"), [launch], DeviceKind.CUDA)
    assert found is not None
    waited_ms = means_ms(found.rows[0])["wait"]
    assert math.isnan(waited_ms) if untold == 3 else waited_ms == 19.0
    assert found.notes[0].startswith(
        f"how long the compute stream waited is not known, or only at least, in {untold} of 3 rank steps"
    )
    assert not found.rows[0].disputes


def test_a_step_that_communicated_nothing_waited_for_nothing(steps_of: Steps, launch_of: Launch) -> None:
    launch = launch_of({0: [20.0, 20.0, 0.0]}, {0: steps_of({FULL: 100}, order=())}, gaps_ms={0: [18.0, 18.0]})
    found = summarize_exposure(("trace", "wait"), [launch], DeviceKind.CUDA)
    assert found is not None
    assert (means_ms(found.rows[0])["wait"], found.notes) == (12.0, ())


@pytest.mark.parametrize(("traced_ms", "apart"), [(30.0, "further apart than would pass"), (20.0, "alike")])
def test_estimates_of_other_launches_are_neither_agreement_nor_dispute(
    steps_of: Steps, launch_of: Launch, traced_ms: float, apart: str
) -> None:
    """The trace of one launch, ablation and waits of both: what differs may be the launches."""
    arms = {0: steps_of({FULL: 100, REMOVED: 80}, 20.0)}
    launches = [launch_of({0: [traced_ms] * 3}, arms), launch_of({}, arms, name="launch1")]
    found = summarize(*launches)
    assert str(of(found.rows[0], Estimate.TRACE).part) == "launch0 alone, of 2", apart
    assert [row.disputes for row in found.rows] == [(), ()]
    assert judge(found.rows[0]) is Agreement.UNKNOWN


def test_where_ddps_logger_was_read_and_nothing_is_there_of_it_it_is_not_known(
    steps_of: Steps, launch_of: Launch
) -> None:
    launch = launch_of({0: [20.0] * 3}, {0: steps_of({FULL: 100, REMOVED: 80}, 20.0)})
    for has_logger in (True, False):
        found = summarize_exposure(ALL, [launch], DeviceKind.CPU, has_logger=has_logger)
        assert found is not None
        logged = [one.mean_ns for one in found.rows[0].estimates if one.estimate is Estimate.LOGGER]
        assert [math.isnan(mean_ns) for mean_ns in logged] == [True] * has_logger


def test_of_no_launch_nothing_is_estimated() -> None:
    assert summarize_exposure(ALL, [], DeviceKind.CPU) is None


def test_a_mean_over_ranks_of_unlike_launches_is_of_the_launches_that_all_have(
    steps_of: Steps, launch_of: Launch
) -> None:
    """Rank 1's trace of launch 0 is lost: rank 0's of that launch may not pull the mean, which is said of launch 1."""
    arms = {rank: steps_of({FULL: 100, REMOVED: 80}, 20.0) for rank in (0, 1)}
    whole = launch_of({0: [20.0] * 3, 1: [10.0] * 3}, arms, name="launch1")
    found = summarize(launch_of({0: [60.0] * 3}, arms), whole)
    trace = of(found.rows[0], Estimate.TRACE)
    assert (trace.mean_ns / MS, str(trace.part)) == (15.0, "launch1 alone, of 2")
