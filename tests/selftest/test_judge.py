"""Rows are judged by what their cells left behind: every check passes where it should, and fails where it should."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dtbench.base.vocabulary import Cause, Estimate, Operation, Phase, Purpose, Region
from dtbench.launch.cells import plan_cells
from dtbench.plan.plan import Machine
from dtbench.runs.summary import (
    CellSummary,
    Disturbed,
    Estimated,
    ExposureRow,
    ExposureSummary,
    Interval,
    OwnerSummary,
    PurposeSummary,
    RankBreakdown,
)
from dtbench.selftest.evidence import Bucket, Evidence, Found, Traced
from dtbench.selftest.expectations import (
    Aligned,
    Counted,
    Expectation,
    ForwardTook,
    Named,
    Ordered,
    Rebuilt,
    WithoutEffect,
)
from dtbench.selftest.judge import judge_row
from dtbench.selftest.records import Bounds, ExpectedBounds, RowOutcome
from dtbench.selftest.row import Row
from dtbench.selftest.sections import SHARED, Blocks, ddp, emulate
from dtbench.selftest.words import write_scenario
from dtbench.store.records.rank import Memory, RankRecord, Receipt, ReceiptOutcome, WarmupEnd
from dtbench.store.records.run import CellRecord, RunStatus

MS = 1_000_000


def plan_row(row: Row) -> dict[str, CellRecord]:
    """Plan a row's cells for two cores."""
    file = write_scenario("Is this row found?", SHARED, row.cells)
    return {cell.name: cell for cell in plan_cells(file, Machine(cpu_cores=2, cuda_devices=0))}


def make_interval(median_ns: float) -> Interval:
    return Interval(median=median_ns, low=median_ns, high=median_ns, quartile1=median_ns, quartile3=median_ns, count=5)


def make_exposure(
    trace_ms: float, ablation_ms: float, wait_ms: float, *disputes: str, error_ms: float = 0.1, unjudged: str = ""
) -> ExposureSummary:
    estimates = ((Estimate.TRACE, trace_ms), (Estimate.ABLATION, ablation_ms), (Estimate.WAIT, wait_ms))
    row = ExposureRow(
        rank=None,
        estimates=tuple(
            Estimated(estimate=estimate, mean_ns=ms * MS, standard_error_ns=error_ms * MS, count=5)
            for estimate, ms in estimates
        ),
        disputes=disputes,
    )
    return ExposureSummary(rows=(row,), serial_ns=float("nan"), overlapped_ns=float("nan"), notes=(), unjudged=unjudged)


def make_owner(owner: str, cause: Cause, exposed_ms: float, **more: Any) -> OwnerSummary:
    fields = {"operation": Operation.ALL_REDUCE, "purpose": Purpose.GRAD_REDUCE, **more}
    ns = round(exposed_ms * MS)
    return OwnerSummary(owner=owner, cause=cause, exposed_ns=ns, owner_exposed_ns=ns, **fields)


def make_purpose(purpose: Purpose, count: int, size_bytes: int, **more: Any) -> PurposeSummary:
    fields = {
        "planned_count": count,
        "planned_size_bytes": size_bytes,
        "matches_plan": True,
        **dict.fromkeys(("comm_ns", "hidden_ns", "exposed_ns", "wait_ns"), 0),
        "hidden_fraction": 0.0,
        "overlap_possible": True,
        "overlap_reason": "",
        **more,
    }
    return PurposeSummary(purpose=purpose, count=count, size_bytes=size_bytes, **fields)


def make_summary(cell: CellRecord, **changes: Any) -> CellSummary:
    """Return the summary of a cell whose 130 ms step exposes 15 ms, the tail of the last of four buckets."""
    fields: dict[str, Any] = {
        "name": cell.name,
        "status": RunStatus.COMPLETE,
        "reason": None,
        "scenario": cell.scenario,
        "plan": cell.plan,
        "launches": (0,),
        "step_time": make_interval(130.0 * MS),
        "launch_medians_ns": (130.0 * MS,),
        "profiler_cost": make_interval(1.0),
        "time_to_first_step_ns": 1.0,
        "tokens_per_second": 1.0,
        "model_flops_utilization": float("nan"),
        "memory": Memory(rss_peak_bytes=1, allocated_peak_bytes=None, reserved_peak_bytes=None),
        "cpu_ns_per_step": 4.0 * MS,
        "hidden_fraction": 0.75,
        "exposed_step_fraction": 15 / 130,
        "purposes": (make_purpose(Purpose.GRAD_REDUCE, 4, 4 * 2**20),),
        "owners": (make_owner("bucket 3", Cause.TAIL, 15.0),),
        "ranks": tuple(
            RankBreakdown(
                rank=rank,
                steps=3,
                step_ns=130 * MS,
                compute_ns=115 * MS,
                comm_ns=60 * MS,
                hidden_comm_ns=45 * MS,
                exposed_comm_ns=15 * MS,
                exposed_copy_ns=0,
                idle_ns=0,
            )
            for rank in (0, 1)
        ),
        "receipts": (
            Receipt(knob="network.kind", asked="emulated", got="emulated", outcome=ReceiptOutcome.AGREES, note=""),
        ),
        "warmup": None,
        "correctness": None,
        "losses": (),
        "unread_events": 0,
        "unknown_names": (),
        "trace_paths": (),
        "notes": (),
        "exposure": make_exposure(15.0, 15.5, 14.5),
    }
    return CellSummary(**{**fields, **changes})


def make_rank(rank: int, **changes: Any) -> RankRecord:
    fields: dict[str, Any] = {
        "rank": rank,
        "host": "here",
        "pid": 1,
        "time_to_first_step_ns": 1,
        "memory": Memory(rss_peak_bytes=1, allocated_peak_bytes=None, reserved_peak_bytes=None),
        "warmup": WarmupEnd(steps=8, settled=True, reason=""),
        "correctness": None,
        "losses": (),
        "receipts": (),
        "traffic": (),
        "traffic_is_stable": True,
        "region_ns": {Region.FORWARD: 112 * MS},
        "overlap_possible": (),
        "process_groups": (),
        "bucket_bytes_per_step": ((4 * 2**20,), (2**20,) * 4),
        "fsdp_units": (),
    }
    return RankRecord(**{**fields, **changes})


TRACED = Traced(
    buckets=tuple(Bucket(2**20, (place + 1) * 20 * MS, (place + 1) * 20 * MS + MS) for place in range(12)),
    step_ns=243 * MS,
    backward_at_ns=MS,
    clock_ns=((0, 0), (1, 50_000)),
    clock_doubt_ns=30_000,
)

FORETOLD = ExpectedBounds(
    step_ns=Bounds(expected_ns=128 * MS, low_ns=125 * MS, high_ns=140 * MS),
    exposed_ns=Bounds(expected_ns=15 * MS, low_ns=10 * MS, high_ns=20 * MS),
    source="written down",
)


LINK = emulate({"latency_us": 5_000.0, "bandwidth_gb_per_s": 0.1048576})
TAIL = Named("one", Purpose.GRAD_REDUCE, Cause.TAIL, ("bucket 3",))


def make_row(*expectations: Expectation, cells: tuple[str, ...] = ("one",)) -> Row:
    """Return a row of cells of four buckets of 1 MiB, 15 ms each, beside 28 ms of backward."""
    words = ddp(Blocks(4, 1, 0.0, 28.0), LINK)
    return Row("row", "four buckets hide, all but the last", dict.fromkeys(cells, words), expectations)


def judge(row: Row, changes: Mapping[str, Any] | None = None, foretold: ExpectedBounds | None = FORETOLD) -> RowOutcome:
    """Judge a row of one cell that found what was injected, but for some changes."""
    changes = dict(changes or {})
    traced, ranks = changes.pop("traced", TRACED), changes.pop("ranks", (make_rank(0), make_rank(1)))
    planned = plan_row(row)["one"]
    disturbance = changes.pop("disturbance", 0.0)
    evidence = Evidence(make_summary(planned, **changes), ranks, traced, disturbance=disturbance)
    return judge_row(row, Found({"one": evidence}, {} if foretold is None else {"one": foretold}))


def failed(outcome: RowOutcome) -> list[str]:
    return [check.what for check in outcome.checks if not check.passed]


def test_a_row_that_found_what_was_injected_passes_with_everything_side_by_side() -> None:
    outcome = judge(make_row(TAIL))
    assert outcome.passed, outcome.reasons
    (cell,) = outcome.cells
    assert (cell.answer.exposed_ns, cell.answer.cause, cell.answer.owner) == (15 * MS, Cause.TAIL, "bucket 3")
    assert {one.estimate: one.mean_ns for one in cell.estimates} == {
        Estimate.TRACE: 15 * MS,
        Estimate.ABLATION: 15_500_000,
        Estimate.WAIT: 14_500_000,
    }
    assert (cell.step_ns, cell.foretold) == (130 * MS, FORETOLD)


DISTURBED = Disturbed(launch=0, phase=Phase.MEASURED, steps=8, left_alone=3, stolen_fraction=0.0, takers=())


def test_a_row_whose_numbers_fit_does_not_pass_where_others_left_too_few_steps_alone() -> None:
    outcome = judge(make_row(TAIL), {"disturbed": (DISTURBED,), "disturbance": 0.01})
    assert not outcome.passed
    assert outcome.disturbed == {"one": 0.01}
    left = "others had the cores; they left 3 of 8 MEASURED steps alone"
    assert outcome.reasons == (f"cell one: nothing can be judged: {left}",)


@pytest.mark.parametrize(
    ("share", "step_ms", "disturbed"), [(0.81, 400, {"one": 0.81}), (0.019, 400, {}), (0.81, 130, {})]
)
def test_a_row_that_failed_says_where_others_had_the_machine(
    share: float, step_ms: int, disturbed: dict[str, float]
) -> None:
    outcome = judge(make_row(TAIL), {"disturbance": share, "step_time": make_interval(step_ms * MS)})
    assert outcome.passed == (step_ms == 130)
    assert outcome.disturbed == disturbed


DISAGREES = Receipt(
    knob="parallel.static_graph", asked="true", got="false", outcome=ReceiptOutcome.DISAGREES, note="who knows"
)
LINKED = make_summary(plan_row(make_row())["one"]).receipts
SLOW_LINK = (LINKED[0].model_copy(update={"outcome": ReceiptOutcome.NO_EFFECT}),)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"status": RunStatus.FAILED, "reason": "rank 1 was killed"}, ["ran"]),
        ({"ranks": ()}, ["ran"]),
        ({"receipts": (*LINKED, DISAGREES)}, ["receipts"]),
        ({"receipts": SLOW_LINK}, ["link"]),
        ({"receipts": ()}, ["receipts", "link"]),
        ({"purposes": ()}, ["traffic"]),
        ({"rank_doubts": ("launch0: rank 1 says nothing of the canary",)}, ["evidence", "receipts", "traffic"]),
        ({"disturbed": (DISTURBED,)}, ["evidence"]),
        ({"unreadable": {1: "steps.parquet: is broken"}}, ["evidence"]),
        ({"exposure": make_exposure(15.0, 15.5, 14.5, unjudged="rank 1 is lost")}, ["estimates"]),
        ({"purposes": (make_purpose(Purpose.GRAD_REDUCE, 3, 1, matches_plan=False),)}, ["traffic"]),
        ({"exposure": make_exposure(15.0, 30.0, 15.0, "trace 15.0 ms against ablation 30.0 ms")}, ["estimates"]),
        ({"exposure": make_exposure(15.0, float("nan"), 15.0)}, ["estimates"]),
        ({"exposure": make_exposure(15.0, 60.0, 15.0, error_ms=50.0)}, ["estimates"]),
        ({"exposure": None}, ["estimates"]),
        ({"step_time": make_interval(124.9 * MS)}, ["step"]),
        ({"step_time": make_interval(140.1 * MS)}, ["step"]),
        ({"step_time": make_interval(float("nan"))}, ["step"]),
        ({"owners": (make_owner("bucket 3", Cause.QUEUED, 15.0),)}, ["cause"]),
        ({"owners": (make_owner("bucket 2", Cause.TAIL, 15.0),)}, ["owner"]),
        ({"owners": ()}, ["cause"]),
    ],
)
def test_what_differs_from_what_was_injected_fails_and_says_why(changes: dict[str, Any], what: list[str]) -> None:
    outcome = judge(make_row(TAIL), changes)
    assert failed(outcome) == what
    assert not outcome.passed
    assert len(outcome.reasons) == len(what)
    assert all(reason.startswith("cell one") for reason in outcome.reasons)


def test_where_only_the_trace_was_asked_no_estimate_can_differ() -> None:
    row = make_row(TAIL)
    row = replace(row, cells={"one": {**row.cells["one"], "measure": {"exposure": ("trace",)}}})
    assert judge(row, {"exposure": None}).passed
    assert failed(judge(row, {"exposure": None, "step_time": make_interval(1)})) == ["step"]


def test_exposed_communication_outside_its_bounds_fails_on_either_side() -> None:
    for low_ns, high_ns in ((0, 14 * MS), (16 * MS, 20 * MS)):
        bounds = Bounds(expected_ns=low_ns, low_ns=low_ns, high_ns=high_ns)
        outcome = judge(make_row(TAIL), foretold=FORETOLD.model_copy(update={"exposed_ns": bounds}))
        assert failed(outcome) == ["exposed communication"]


def test_a_cell_without_a_closed_form_fails_unless_it_feeds_the_others() -> None:
    assert failed(judge(make_row(TAIL), foretold=None)) == ["closed form"]
    row = Row("row", "it feeds others", make_row().cells, (), fed_by=("one",))
    assert judge(row, {"exposure": None}, foretold=None).passed


def test_a_cell_of_which_nothing_can_be_read_fails_its_row_and_nothing_else_is_said_of_it() -> None:
    outcome = judge_row(make_row(TAIL), Found({}, {}))
    assert failed(outcome) == ["ran"]
    assert outcome.cells[0].step_ns is None


def test_estimates_that_agree_only_because_nobody_is_sure_of_them_do_not_pass() -> None:
    outcome = judge(make_row(TAIL), {"exposure": make_exposure(41.0, 598.0, 424.0, error_ms=500.0)})
    assert outcome.cells[0].agree is None
    (reason,) = outcome.reasons
    assert "known to within" in reason


def test_a_dispute_that_the_closed_form_foretells_is_none() -> None:
    changes = {"exposure": make_exposure(15.0, 30.0, 15.0, "trace 15.0 ms against ablation 30.0 ms")}
    assert judge(make_row(TAIL), changes, FORETOLD.model_copy(update={"is_disputed": True})).passed


def test_ddps_own_logger_has_no_vote() -> None:
    exposure = make_exposure(15.0, 15.5, 14.5, "waits 14.5 ms against DDP's logger 20.0 ms")
    outcome = judge(make_row(TAIL), {"exposure": exposure})
    assert outcome.passed
    assert (outcome.cells[0].agree, len(outcome.cells[0].disputes)) == (True, 1)


def test_the_named_cause_is_of_the_purpose_that_was_injected() -> None:
    owners = (
        make_owner("layers.1", Cause.SYNC_OP, 40.0),
        make_owner("layers.0", Cause.LATE_ISSUE, 9.0, purpose=Purpose.UNSHARD, operation=Operation.ALL_GATHER),
        make_owner("layers.2", Cause.LATE_ISSUE, 8.0, purpose=Purpose.UNSHARD, operation=Operation.ALL_GATHER),
        make_owner("layers.1", Cause.NEEDED_AT_ONCE, 10.0, purpose=Purpose.UNSHARD, operation=Operation.ALL_GATHER),
    )
    late = Named("one", Purpose.UNSHARD, Cause.LATE_ISSUE, ("layers.0",), Operation.ALL_GATHER)
    outcome = judge(make_row(late), {"owners": owners})
    assert outcome.passed, outcome.reasons
    assert outcome.cells[0].answer.cause_ns == 17 * MS
    other = Named("one", Purpose.UNSHARD, Cause.LATE_ISSUE, ("layers.0",), Operation.BROADCAST)
    assert failed(judge(make_row(other), {"owners": owners})) == ["operation"]


def test_a_straggler_is_the_rank_that_most_was_waited_for() -> None:
    skew = Named("one", Purpose.GRAD_REDUCE, Cause.SKEW, ("bucket 0",), waited_for=1)
    for waited_for, what in ((1, []), (0, ["late rank"]), (None, ["late rank"])):
        owners = (make_owner("bucket 0", Cause.SKEW, 15.0, waited_for=waited_for),)
        assert failed(judge(make_row(skew), {"owners": owners})) == what


@pytest.mark.parametrize(
    ("expected", "changes", "what"),
    [
        (Counted("one", Purpose.GRAD_REDUCE, 4, 4 * 2**20), {}, []),
        (Counted("one", Purpose.GRAD_REDUCE, 4, 2 * 2**20), {}, ["grad_reduce a step"]),
        (Counted("one", Purpose.UNSHARD, 4, 4 * 2**20), {}, ["unshard a step"]),
        (Rebuilt("one", (4 * 2**20,), (2**20,) * 4), {}, []),
        (Rebuilt("one", (2**20,) * 4, (2**20,) * 4), {}, ["buckets"]),
        (Rebuilt("one", (4 * 2**20,), (4 * 2**20,)), {}, ["buckets"]),
        (WithoutEffect("one", "parallel.static_graph"), {"receipts": LINKED}, ["parallel.static_graph"]),
        (WithoutEffect("one", "network.kind"), {}, ["network.kind"]),
        (Aligned("one", MS), {}, []),
        (Aligned("one", MS // 100), {}, ["clocks"]),
        (Aligned("one", MS), {"traced": None}, ["clocks"]),
        (ForwardTook("one", "one", 112 * MS, 112 * MS, 0.1), {}, []),
        (ForwardTook("one", "one", 100 * MS, 100 * MS, 0.1), {}, []),
        (ForwardTook("one", "one", 160 * MS, 112 * MS, 0.1), {}, ["forward"]),
        (ForwardTook("one", "one", 112 * MS, 90 * MS, 0.1), {}, ["forward"]),
        (ForwardTook("one", "one", 112 * MS, 112 * MS, 0.1), {"ranks": (make_rank(0, region_ns={}),)}, ["forward"]),
    ],
)
def test_each_expectation_passes_and_fails(expected: Expectation, changes: dict[str, Any], what: list[str]) -> None:
    assert failed(judge(make_row(expected), changes)) == what


def test_a_knob_without_effect_is_one_that_its_receipt_says_to_be_so() -> None:
    receipt = Receipt(knob="parallel.forward_prefetch", asked="1", got="1", outcome=ReceiptOutcome.NO_EFFECT)
    expected = WithoutEffect("one", "parallel.forward_prefetch")
    assert judge(make_row(expected), {"receipts": (*LINKED, receipt)}).passed


def judge_order(step_ms: Mapping[str, float], foretold_ms: Mapping[str, float]) -> list[str]:
    """Return what fails of the order of cells with these steps, foretold to take those."""
    row = make_row(Ordered(tuple(step_ms), 10 * MS), cells=tuple(step_ms))
    evidence = {
        name: Evidence(make_summary(cell, step_time=make_interval(step_ms[name] * MS)), (make_rank(0),), TRACED)
        for name, cell in plan_row(row).items()
    }
    foretold = {
        name: FORETOLD.model_copy(update={"step_ns": Bounds(expected_ns=round(ms * MS), low_ns=0, high_ns=1_000 * MS)})
        for name, ms in foretold_ms.items()
    }
    return failed(judge_row(row, Found(evidence, foretold)))


def test_steps_are_in_order_wherever_the_closed_form_tells_them_apart() -> None:
    assert judge_order({"a": 285, "b": 313, "c": 312}, {"a": 284, "b": 292, "c": 300}) == []
    assert judge_order({"a": 285, "b": 313, "c": 312}, {"a": 284, "b": 292, "c": 303}) == ["order"]
    assert judge_order({"a": 300, "b": 299}, {"a": 284, "b": 294}) == [], "10 ms put nothing in order"
    assert judge_order({"a": 300, "b": 300}, {"a": 284, "b": 295}) == ["order"]


def test_everything_that_was_found_survives_a_file() -> None:
    outcome = judge(make_row(TAIL))
    assert RowOutcome.model_validate_json(outcome.model_dump_json()) == outcome


def test_a_host_takes_longer_than_its_cpu_time_where_ranks_take_turns_on_a_core() -> None:
    summary = make_summary(plan_row(make_row())["one"], cpu_ns_per_step=6.0 * MS)
    assert [Evidence(summary, (), None, cores).host_ns for cores in (None, 1, 2, 16)] == [
        *(6 * MS, 12 * MS, 6 * MS, 6 * MS)
    ]
    nothing = summary.model_copy(update={"cpu_ns_per_step": float("nan")})
    assert Evidence(nothing, (), None, 2).host_ns is None
