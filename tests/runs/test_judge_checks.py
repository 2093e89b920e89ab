"""Each kind of check passes, fails, and stays unjudged, on cells made by hand."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.vocabulary import (
    Cause,
    DeviceKind,
    Estimate,
    Operation,
    Phase,
    Purpose,
    Stage,
    StageOutcome,
    StatePart,
)
from dtbench.report.page.checklist import answer_line, remedy_line
from dtbench.runs.cell.cell_notes import describe_disturbed, say_taken
from dtbench.runs.cell.summarize_extras import summarize_probes
from dtbench.runs.judge_checks import judge_checklist
from dtbench.runs.stage_summary import StageSummary
from dtbench.runs.summary import (
    BranchSummary,
    CellSummary,
    Disturbed,
    Estimated,
    ExposureRow,
    ExposureSummary,
    Interval,
    OwnerSummary,
    PredictionSummary,
    ProbeSummary,
    PurposeSummary,
    RankBreakdown,
)
from dtbench.scenario.checks.checklist import Checklist
from dtbench.scenario.schema.scenario import Scenario
from dtbench.seeds.functions import GRADIENT_HOOKS, Reach
from dtbench.store.records.checks import CheckOutcome, ChecksSummary
from dtbench.store.records.probes import ProbedBranch, ProbedFunction, Probes
from dtbench.store.records.rank import CorrectnessResult, Memory, Receipt, ReceiptOutcome
from dtbench.store.records.run import OwnLoop, RunStatus, TookCores, UsedGpu
from dtbench.traces.known_part import KnownPart

MS = 1_000_000
NAN = math.nan
HOOK = "_data_parallel_utils.sync_grad_hook"
PASSED, FAILED, NOT_JUDGED = CheckOutcome.PASSED, CheckOutcome.FAILED, CheckOutcome.NOT_JUDGED


def interval(median: float) -> Interval:
    return Interval(median=median, low=median, high=median, quartile1=median, quartile3=median, count=20)


def purpose(kind: Purpose, wait_ms: int) -> PurposeSummary:
    return PurposeSummary(
        purpose=kind,
        count=3,
        size_bytes=4096,
        planned_count=None,
        planned_size_bytes=None,
        matches_plan=None,
        comm_ns=40 * MS,
        hidden_ns=10 * MS,
        exposed_ns=30 * MS,
        wait_ns=wait_ms * MS,
        hidden_fraction=0.25,
        overlap_possible=None,
        overlap_reason="",
    )


def owner(name: str, cause: Cause, exposed_ms: int, kind: Purpose = Purpose.GRAD_REDUCE) -> OwnerSummary:
    return OwnerSummary(
        owner=name,
        operation=Operation.ALL_REDUCE,
        purpose=kind,
        cause=cause,
        exposed_ns=exposed_ms * MS,
        owner_exposed_ns=30 * MS,
    )


RANKS = tuple(
    RankBreakdown(
        rank=rank,
        steps=5,
        step_ns=100 * MS,
        compute_ns=50 * MS,
        comm_ns=40 * MS,
        hidden_comm_ns=10 * MS,
        exposed_comm_ns=30 * MS,
        exposed_copy_ns=0,
        idle_ns=(20 + rank) * MS,
    )
    for rank in (0, 1)
)

PLAIN = CellSummary(
    name="plain",
    status=RunStatus.COMPLETE,
    reason=None,
    scenario=None,
    plan=OwnLoop(
        script="train.py",
        device=DeviceKind.CPU,
        backend="gloo",
        mesh=(),
        ranks=2,
        min_warmup_steps=8,
        max_warmup_steps=60,
        measured_steps=20,
        profiled_steps=5,
        tokens_per_step=None,
        notes=(),
    ),
    launches=(0,),
    step_time=interval(100.0 * MS),
    launch_medians_ns=(100.0 * MS,),
    profiler_cost=interval(1.1),
    time_to_first_step_ns=NAN,
    tokens_per_second=1000.0,
    model_flops_utilization=NAN,
    memory=Memory(rss_peak_bytes=300 * 1024 * 1024, allocated_peak_bytes=None, reserved_peak_bytes=None),
    cpu_ns_per_step=80.0 * MS,
    hidden_fraction=0.25,
    exposed_step_fraction=0.3,
    purposes=(purpose(Purpose.GRAD_REDUCE, wait_ms=40),),
    owners=(owner("bucket 0", Cause.LATE_READY, 20), owner("bucket 1", Cause.TAIL, 10)),
    ranks=RANKS,
    receipts=(
        Receipt(knob="parallel.static_graph", asked="true", got="True", outcome=ReceiptOutcome.AGREES),
        Receipt(knob="parallel.forward_prefetch", asked="1", got="1", outcome=ReceiptOutcome.NO_EFFECT),
    ),
    warmup=None,
    correctness=None,
    losses=(4.0, 3.5, 3.0, 2.5, 2.0, 1.0, 0.9),
    unread_events=0,
    unknown_names=(),
    trace_paths=(),
    notes=(),
    prediction=PredictionSummary(
        expected_ns=98.0 * MS, low_ns=90.0 * MS, high_ns=110.0 * MS, is_inside=True, sentence="inside"
    ),
    probes=(
        ProbeSummary(
            label=HOOK,
            calls=40,
            most_calls=60,
            raised=0,
            total_ns=400 * MS,
            per_call_ns=8.0 * MS,
            branches=(
                BranchSummary(name="awaited", calls=20, most_calls=20, total_ns=300 * MS, per_call_ns=15.0 * MS),
            ),
        ),
    ),
)


def change(**update: Any) -> CellSummary:
    return PLAIN.model_copy(update=update)


ASYNC = change(name="async", step_time=interval(80.0 * MS), purposes=(purpose(Purpose.GRAD_REDUCE, wait_ms=10),))


def judge(check: dict[str, object], *cells: CellSummary) -> tuple[CheckOutcome, str]:
    result = summarize(check, *cells).results[0]
    return result.outcome, result.got


def summarize(check: dict[str, object], *cells: CellSummary, overrides: tuple[str, ...] = ()) -> ChecksSummary:
    checklist = Checklist.model_validate({"checks": (check,)}, strict=False)
    found = judge_checklist(checklist, cells or (PLAIN, ASYNC), overrides)
    assert found is not None
    return found


def bound(value: str, **bounds: object) -> dict[str, object]:
    return {"kind": "bound", "value": value, "cell": "plain", **bounds}


@pytest.mark.parametrize(
    ("check", "outcome", "got"),
    [
        (bound("step_time.median", at_most_ms=100), PASSED, "100 ms"),
        (bound("step_time.median", at_most_ms=99), FAILED, "100 ms"),
        (bound("step_time.median", at_least_ms=101), FAILED, "100 ms"),
        (bound("time_to_first_step_ns", at_most_ms=99), NOT_JUDGED, "n/a"),
        (bound("memory.rss_peak_bytes", at_most_mib=300), PASSED, "300 MiB"),
        (bound("memory.rss_peak_bytes", at_most_mib=299), FAILED, "300 MiB"),
        (bound("memory.allocated_peak_bytes", at_most_mib=1), NOT_JUDGED, "n/a"),
        (bound("hidden_fraction", at_least=0.2, at_most=0.3), PASSED, "25.0 %"),
        (bound("hidden_fraction", at_least=0.3), FAILED, "25.0 %"),
        (bound("profiler_cost.median", at_most=1.2), PASSED, "1.10 x"),
        (bound("compilation.graphs", at_most=1), NOT_JUDGED, "n/a"),
        (bound("correctness.loss_error", at_most=1), NOT_JUDGED, "n/a"),
        (bound("purposes.grad_reduce.wait_ns", at_least_ms=36, at_most_ms=44), PASSED, "40.0 ms"),
        (bound("purposes.grad_reduce.wait_ns", at_most_ms=30), FAILED, "40.0 ms"),
        (bound("purposes.unshard.count", at_most=0), PASSED, "0"),
        (bound("purposes.unshard.count", at_least=1), FAILED, "0"),
        (bound("purposes.unshard.hidden_fraction", at_least=0), NOT_JUDGED, "n/a"),
        (bound("causes.tail.exposed_ns", at_most_ms=10), PASSED, "10.0 ms"),
        (bound("causes.skew.exposed_ns", at_least_ms=1), FAILED, "0 ns"),
        (bound("purposes.unshard.causes.tail.exposed_ns", at_most_ms=0), PASSED, "0 ns"),
        (bound("purposes.grad_reduce.causes.late_ready.exposed_ns", at_least_ms=21), FAILED, "20.0 ms"),
        (bound("owners.bucket 1.exposed_ns", at_least_ms=10), PASSED, "10.0 ms"),
        (bound("owners.bucket 1.exposed_ns", at_least_ms=11), FAILED, "10.0 ms"),
        (bound("owners.bucket 7.exposed_ns", at_most_ms=11), NOT_JUDGED, "n/a"),
        (bound("ranks.1.idle_ns", at_least_ms=21), PASSED, "21.0 ms"),
        (bound("ranks.mean.idle_ns", at_least_ms=21), FAILED, "20.5 ms"),
        (bound("ranks.9.idle_ns", at_least_ms=21), NOT_JUDGED, "n/a"),
        (bound("exposure.ablation.mean_ns", at_least_ms=0), NOT_JUDGED, "n/a"),
        (bound("prediction.expected_ns", at_least_ms=98), PASSED, "98.0 ms"),
        (bound(f"probes.{HOOK}.calls", at_least=40), PASSED, "40"),
        (bound(f"probes.{HOOK}.most_calls", at_most=59), FAILED, "60"),
        (bound(f"probes.{HOOK}.per_call_ns", at_most_ms=8), PASSED, "8.00 ms"),
        (bound(f"probes.{HOOK}.awaited.calls", at_least=20), PASSED, "20"),
        (bound(f"probes.{HOOK}.awaited.per_call_ns", at_most_ms=10), FAILED, "15.0 ms"),
        (bound(f"probes.{HOOK}.plain.calls", at_least=1), FAILED, "0"),
        (bound(f"probes.{HOOK}.plain.per_call_ns", at_most_ms=1), NOT_JUDGED, "n/a"),
        (bound(f"probes.{HOOK}.awaitd.calls", at_most=0), NOT_JUDGED, "n/a"),
        (bound("probes.distributed.DistributedDataParallel.forward.calls", at_least=1), NOT_JUDGED, "n/a"),
        (bound("step_time.median", cell="async", over="plain", at_most=0.8), PASSED, "0.800 x"),
        (bound("step_time.median", cell="async", over="plain", at_most=0.7), FAILED, "0.800 x"),
        (bound("purposes.unshard.count", cell="async", over="plain", at_most=1), NOT_JUDGED, "n/a"),
        (bound("step_time.median", minus="async", at_least_ms=20), PASSED, "20.0 ms"),
        (bound("step_time.median", per="cpu_ns_per_step", at_most=1.25), PASSED, "1.25 x"),
        (bound("step_time.median", per="cpu_ns_per_step", at_most=1.24), FAILED, "1.25 x"),
        (bound("step_time.median", per="purposes.unshard.wait_ns", at_most=1), NOT_JUDGED, "n/a"),
        (bound("step_time.median", minus="async", at_least_ms=21), FAILED, "20.0 ms"),
        ({"kind": "bound", "value": "hidden_fraction", "at_most": 0.3}, PASSED, "plain 25.0 %, async 25.0 %"),
        (
            {"kind": "bound", "value": "step_time.median", "at_least_ms": 90},
            FAILED,
            "async 80.0 ms, plain 100 ms",
        ),
        ({"kind": "bound", "value": "step_time.median", "over": "plain", "at_most": 0.9}, PASSED, "0.800 x"),
    ],
)
def test_a_bound_is_judged_by_its_number(check: dict[str, object], outcome: CheckOutcome, got: str) -> None:
    assert judge(check) == (outcome, got)


@pytest.mark.parametrize(
    ("cells", "apart", "outcome"),
    [
        (("async", "plain"), 0.0, PASSED),
        (("async", "plain"), 0.25, PASSED),
        (("async", "plain"), 0.26, FAILED),
        (("plain", "async"), 0.0, FAILED),
    ],
)
def test_cells_stand_in_an_order(cells: tuple[str, ...], apart: float, outcome: CheckOutcome) -> None:
    check = {"kind": "order", "value": "step_time.median", "cells": cells, "apart": apart}
    assert judge(check)[0] is outcome


@pytest.mark.parametrize(
    ("update", "why"),
    [
        ({"unlike": {"plain": "cores 2 and 64"}}, "they ran in unlike environments (async and plain differ: cores"),
        ({"silent_launches": (0,)}, "it is not known on which machine and software async ran"),
    ],
)
def test_times_of_cells_that_did_not_surely_run_in_alike_environments_are_not_judged(
    update: dict[str, object], why: str
) -> None:
    alike = ASYNC.model_copy(update={"launches": (0,)})
    elsewhere = alike.model_copy(update=update)
    order: dict[str, object] = {"kind": "order", "value": "step_time.median", "cells": ("async", "plain")}
    over = bound("step_time.median", cell="async", over="plain", at_most=0.8)
    for check in (order, over):
        assert judge(check, PLAIN, alike)[0] is PASSED
        outcome, got = judge(check, PLAIN, elsewhere)
        assert (outcome, got.startswith(why)) == (NOT_JUDGED, True)
    assert judge(bound("step_time.median", cell="async", at_most_ms=80), PLAIN, elsewhere)[0] is PASSED


def test_cells_that_are_equal_stand_in_no_order() -> None:
    check: dict[str, object] = {"kind": "order", "value": "hidden_fraction", "cells": ("plain", "async")}
    assert judge(check) == (FAILED, "plain 25.0 %, async 25.0 %")


def test_an_order_by_a_number_that_is_not_known_is_not_judged() -> None:
    check: dict[str, object] = {"kind": "order", "value": "time_to_first_step_ns", "cells": ("plain", "async")}
    assert judge(check)[0] is NOT_JUDGED


def predicted(*, is_inside: bool | None) -> CellSummary:
    held = PLAIN.prediction
    assert held is not None
    return change(prediction=held.model_copy(update={"is_inside": is_inside, "sentence": "n/a: no closed form"}))


def test_a_step_time_is_held_against_its_closed_form() -> None:
    check: dict[str, object] = {"kind": "prediction", "cell": "plain"}
    assert judge(check, predicted(is_inside=True)) == (PASSED, "100 ms, bounds 90.0 ms to 110 ms")
    assert judge(check, predicted(is_inside=False))[0] is FAILED
    assert judge(check, predicted(is_inside=None)) == (NOT_JUDGED, "n/a: no closed form")
    assert judge(check, change(prediction=None))[0] is NOT_JUDGED


@pytest.mark.parametrize(
    ("knob", "wanted", "outcome"),
    [
        ("parallel.static_graph", "agrees", PASSED),
        ("parallel.static_graph", "no_effect", FAILED),
        ("parallel.forward_prefetch", "no_effect", PASSED),
        ("parallel.forward_prefetch", "agrees", FAILED),
        ("parallel.static_graphs", "agrees", NOT_JUDGED),
    ],
)
def test_a_receipt_says_what_became_of_a_knob(knob: str, wanted: str, outcome: CheckOutcome) -> None:
    assert judge({"kind": "receipt", "knob": knob, "outcome": wanted, "cell": "plain"})[0] is outcome


@pytest.mark.parametrize("wanted", ["agrees", "no_effect"])
def test_a_receipt_on_which_ranks_contradict_each_other_is_not_judged(wanted: str) -> None:
    contested = Receipt(knob="k", asked="1", got="1", outcome=ReceiptOutcome.NO_EFFECT, note="others agree")
    cell = change(receipts=(contested,), contested_knobs=("k",))
    check: dict[str, object] = {"kind": "receipt", "knob": "k", "outcome": wanted, "cell": "plain"}
    assert judge(check, cell) == (NOT_JUDGED, "asked 1, got 1: no effect here; others agree")


def test_the_cause_that_explains_most_leads() -> None:
    check: dict[str, object] = {"kind": "cause", "leads": "late_ready", "purpose": "grad_reduce", "cell": "plain"}
    assert judge(check) == (PASSED, "late_ready 66.7 %, tail 33.3 %")
    assert judge({**check, "leads": "tail"})[0] is FAILED
    assert judge({**check, "purpose": "unshard"}) == (NOT_JUDGED, "nothing is exposed")
    assert judge(check, change(ranks=())) == (NOT_JUDGED, "causes are not known")
    assert judge(check, change(owners=())) == (NOT_JUDGED, "causes are not known")


RANK_0 = KnownPart(ranks=(0,), of_ranks=2, has_every_rank=False)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("purposes.grad_reduce.wait_ns", {"wait_part": RANK_0}),
        ("purposes.grad_reduce.exposed_ns", {"part": RANK_0}),
        ("purposes.grad_reduce.hidden_fraction", {"part": RANK_0}),
    ],
)
def test_a_mean_of_some_ranks_is_not_judged_and_says_of_which(name: str, known: dict[str, KnownPart]) -> None:
    value = 10.0 if name.endswith("_ns") else 1.0
    check = bound(name, cell="plain", **{"at_most_ms" if name.endswith("_ns") else "at_most": value * 10})
    row = purpose(Purpose.GRAD_REDUCE, wait_ms=40)
    assert judge(check, change(purposes=(row,)))[0] is PASSED
    part = change(purposes=(row.model_copy(update=known),))
    assert judge(check, part) == (NOT_JUDGED, "known of rank 0 alone, of 2")


@pytest.mark.parametrize(
    "check",
    [
        bound("exposed_step_fraction", at_most=0.9),
        bound("purposes.grad_reduce.exposed_ns", at_most_ms=99),
        bound("ranks.mean.idle_ns", at_most_ms=99),
        {"kind": "cause", "leads": "late_ready", "purpose": "grad_reduce", "cell": "plain"},
    ],
)
def test_numbers_that_leave_out_collectives_that_nobody_saw_run_are_not_judged(check: dict[str, object]) -> None:
    assert judge(check)[0] is PASSED
    unseen = change(unseen_collectives=2)
    assert judge(check, unseen) == (NOT_JUDGED, "2 collectives were launched and not seen to run")
    assert judge(bound("step_time.median", at_most_ms=100), unseen)[0] is PASSED
    assert judge(bound("ranks.mean.step_ns", at_most_ms=100), unseen)[0] is PASSED


def test_an_answer_says_of_a_number_that_more_was_launched_than_was_seen() -> None:
    checklist = Checklist.model_validate(
        {"answer": "{exposed_step_fraction} exposed", "checks": (bound("step_time.median", at_most_ms=100),)},
        strict=False,
    )
    for unseen, words in ((0, "30.0 % exposed"), (1, "30.0 % (where 1 collective was launched and not seen to run) ")):
        found = judge_checklist(checklist, [change(unseen_collectives=unseen)], ())
        assert found is not None
        assert str(found.answer).startswith(words)


def test_a_cause_known_of_some_ranks_leads_nothing() -> None:
    check: dict[str, object] = {"kind": "cause", "leads": "tail", "cell": "plain"}
    row = owner("a", Cause.TAIL, 20)
    assert judge(check, change(owners=(row,)))[0] is PASSED
    found = judge(check, change(owners=(row.model_copy(update={"part": RANK_0}),)))
    assert found == (NOT_JUDGED, "known of rank 0 alone, of 2")
    assert judge(check, change(owners=(row,), ranks=RANKS[:1], part=RANK_0))[0] is NOT_JUDGED


def test_losses_of_every_launch_are_compared() -> None:
    check: dict[str, object] = {"kind": "losses", "tolerance": 0.01}
    same, other = (4.0, 3.5, 3.0, 2.5, 2.0), (4.0, 3.5, 3.0, 2.5, 2.1)
    for later, outcome in ((same, PASSED), (other, FAILED), ((), NOT_JUDGED)):
        cell = change(name="async", losses=same, launch_losses=(same, later))
        assert judge(check, PLAIN, cell)[0] is outcome


def test_losses_of_the_first_steps_are_compared_and_no_later_ones() -> None:
    check: dict[str, object] = {"kind": "losses", "tolerance": 0.01}
    assert judge(check, PLAIN, change(name="async", losses=(4.0, 3.5, 3.0, 2.5, 2.01, 7.0)))[0] is PASSED
    assert judge(check, PLAIN, change(name="async", losses=(4.0, 3.5, 3.0, 2.5, 2.1)))[0] is FAILED
    assert judge(check, PLAIN, change(name="async", losses=(4.0, 3.5, 3.0, 2.5, NAN)))[0] is NOT_JUDGED
    assert judge(check, PLAIN, change(name="async", losses=(4.0,)))[0] is NOT_JUDGED
    lost = (4.0, 3.5, math.inf, math.inf, math.inf)
    assert judge(check, change(losses=lost), change(name="async", losses=lost))[0] is NOT_JUDGED


def exposed(*means_ms: float, disputes: tuple[str, ...] = ()) -> ExposureSummary:
    estimates = tuple(
        Estimated(estimate=estimate, mean_ns=mean * MS, standard_error_ns=1.0, count=5)
        for estimate, mean in zip((Estimate.TRACE, Estimate.ABLATION, Estimate.WAIT), means_ms, strict=False)
    )
    return ExposureSummary(
        rows=(ExposureRow(rank=None, estimates=estimates, disputes=disputes),),
        serial_ns=NAN,
        overlapped_ns=NAN,
        notes=(),
    )


def test_estimates_agree_or_are_disputed() -> None:
    check: dict[str, object] = {"kind": "estimates", "cell": "plain"}
    assert judge(check, change(exposure=exposed(30, 31))) == (PASSED, "trace 30.0 ms, ablation 31.0 ms")
    assert judge(check, change(exposure=exposed(30, 90, disputes=("they differ",))))[0] is FAILED
    assert judge(check, change(exposure=exposed(30)))[0] is NOT_JUDGED
    assert judge(check, PLAIN) == (NOT_JUDGED, "not estimated")


def test_estimates_and_a_gain_that_are_of_some_ranks_or_launches_are_not_judged() -> None:
    mean = exposed(30, 31).rows[0]
    of_rank_0 = mean.model_copy(
        update={"estimates": tuple(one.model_copy(update={"part": RANK_0}) for one in mean.estimates)}
    )
    some = exposed(30, 31).model_copy(update={"rows": (of_rank_0,)})
    check: dict[str, object] = {"kind": "estimates", "cell": "plain"}
    assert judge(check, change(exposure=some)) == (NOT_JUDGED, "known of rank 0 alone, of 2")
    whole = exposed(30, 31).model_copy(update={"serial_ns": 120.0 * MS, "overlapped_ns": 100.0 * MS})
    gain = bound("exposure.serial_ns", per="exposure.overlapped_ns", cell="plain", at_least=1.1)
    assert judge(gain, change(exposure=whole)) == (PASSED, "1.20 x")
    of_one = KnownPart(launches=(0,), of_launches=4, has_every_rank=False)
    lost = whole.model_copy(update={"gain_part": of_one})
    assert judge(gain, change(exposure=lost)) == (NOT_JUDGED, "known of launch0 alone, of 4")


def test_an_owners_exposed_time_is_that_of_all_its_causes() -> None:
    rows = (owner("bucket 0", Cause.TAIL, 20), owner("bucket 1", Cause.TAIL, 9), owner("bucket 0", Cause.SKEW, 5))
    assert judge(bound("owners.bucket 0.exposed_ns", at_most_ms=24), change(owners=rows)) == (FAILED, "25.0 ms")


def test_checks_are_of_the_launches_that_the_cell_with_fewest_has() -> None:
    cells = [change(name=name, launches=tuple(range(count))) for name, count in (("plain", 3), ("b", 2), ("c", 4))]
    assert summarize(bound("hidden_fraction", at_most=1), *cells).launches == 2


UNCALLED = ProbeSummary(label="ddp._localize_dtensor", calls=0, most_calls=0, raised=0, total_ns=0, per_call_ns=NAN)


def judge_functions(*labels: str, absent: tuple[str, ...] = ()) -> ChecksSummary:
    cells = [PLAIN, ASYNC.model_copy(update={"probes": (UNCALLED,), "absent_functions": absent})]
    found = judge_checklist(Checklist(functions=labels), cells, ())
    assert found is not None
    return found


def test_losses_of_one_launch_alone_are_held_against_nothing() -> None:
    outcome, got = judge({"kind": "losses", "tolerance": 0.01}, PLAIN)
    assert (outcome, got) == (NOT_JUDGED, "there is one launch alone: nothing to compare its losses with")


def test_each_function_must_be_called_in_some_cell() -> None:
    assert judge_functions(HOOK).outcome is PASSED
    found = judge_functions(HOOK, "ddp._localize_dtensor")
    assert (found.outcome, found.results[0].got) == (FAILED, "ddp._localize_dtensor never called")


def test_a_function_is_not_judged_where_the_probes_of_a_cell_are_lost() -> None:
    lost = change(probes=(), rank_doubts=("launch0: ranks 0-1 say nothing of the functions under study",))
    cells = [lost, ASYNC.model_copy(update={"probes": (UNCALLED,)})]
    found = judge_checklist(Checklist(functions=(UNCALLED.label,)), cells, ())
    assert found is not None
    (result,) = (one for one in found.results if one.kind == "functions")
    assert (result.outcome, result.got) == (NOT_JUDGED, "launch0: ranks 0-1 say nothing of the functions under study")


def test_a_function_that_the_installed_torch_does_not_have_is_told_and_fails_nothing() -> None:
    absent = "ddp._reconstruct_dtensor"
    found = judge_functions(HOOK, absent, absent=(absent,))
    assert (found.outcome, found.results[0].got) == (PASSED, f"{absent} not in this torch")
    found = judge_functions(absent, absent=(absent,))
    assert (found.outcome, found.results[0].got) == (NOT_JUDGED, "no function was probed")


def test_a_function_of_which_nobody_says_anything_is_not_judged_for_it_may_not_have_been_called() -> None:
    silent = "ddp._reconstruct_dtensor"
    found = judge_functions(HOOK, silent)
    assert (found.outcome, found.results[0].got) == (NOT_JUDGED, f"{silent} not watched")
    found = judge_functions(HOOK, silent, UNCALLED.label)
    assert (found.outcome, found.results[0].got) == (FAILED, f"{UNCALLED.label} never called, {silent} not watched")


def answered(answer: str, at_most_ms: float = 100) -> ChecksSummary:
    checklist = Checklist.model_validate(
        {"checks": (bound("step_time.median", at_most_ms=at_most_ms),), "answer": answer}, strict=False
    )
    found = judge_checklist(checklist, [PLAIN, ASYNC], ())
    assert found is not None
    return found


def test_the_answer_has_the_numbers_of_the_run() -> None:
    answer = (
        "{step_time.median of plain}, {step_time.median of async over plain}, {step_time.median of plain minus async}, "
        "{hidden_fraction of async}; fastest {lowest step_time.median}, slowest {highest step_time.median}; "
        "{time_to_first_step_ns of plain}, {lowest time_to_first_step_ns}."
    )
    which = "a cell that cannot be told from others"
    told = f"100 ms, 0.800 x, 20.0 ms, 25.0 %; fastest {which}, slowest {which}; n/a, n/a."
    assert answered(answer).answer == told


def test_the_answer_names_a_cell_only_where_launches_tell_it_from_all_others() -> None:
    checks = (bound("step_time.median", at_most_ms=100),)
    answer = "{lowest step_time.median}/{highest purposes.grad_reduce.count}/{highest hidden_fraction}"
    checklist = Checklist.model_validate({"checks": checks, "answer": answer}, strict=False)
    which = "a cell that cannot be told from others"
    for count, by_time in ((1, which), (3, which), (4, "async")):
        cells = [
            cell.model_copy(
                update={
                    "launch_medians_ns": tuple(cell.step_time.median * (1 + 0.001 * place) for place in range(count)),
                    "hidden_fraction": cell.step_time.median / 1e9,
                }
            )
            for cell in (PLAIN, ASYNC)
        ]
        found = judge_checklist(checklist, cells, ())
        assert found is not None
        assert found.answer == f"{by_time}/{which}/{which}"  # as many collectives; no launch's hidden share is there
    row = purpose(Purpose.GRAD_REDUCE, wait_ms=40).model_copy(update={"count": 9})
    found = judge_checklist(checklist, [PLAIN, ASYNC.model_copy(update={"purposes": (row,)})], ())
    assert found is not None
    assert found.answer == f"{which}/async/{which}"


@pytest.mark.parametrize("how", ["lowest", "highest"])
def test_a_cell_of_which_the_number_is_not_known_may_have_the_lowest_and_highest(how: str) -> None:
    checks = (bound("step_time.median", at_most_ms=100),)
    answer = f"{{{how} hidden_fraction}}"
    checklist = Checklist.model_validate({"checks": checks, "answer": answer}, strict=False)
    cells = [PLAIN.model_copy(update={"hidden_fraction": math.nan}), ASYNC]
    found = judge_checklist(checklist, cells, ())
    assert found is not None
    assert found.answer == "async (of the 1 of 2 cells of which it is known)"
    found = judge_checklist(checklist, [cells[0], cells[0].model_copy(update={"name": "third"}), ASYNC], ())
    assert found is not None
    assert found.answer == "async (of the 1 of 3 cells of which it is known)"


def test_there_is_no_answer_where_a_check_failed() -> None:
    found = answered("{step_time.median of plain}", at_most_ms=1)
    assert (found.outcome, found.answer) == (FAILED, None)
    assert found.is_broken


def test_nothing_is_answered_where_a_launch_is_left_out() -> None:
    torn = PLAIN.model_copy(update={"unreadable": {1: "launch.json: broken"}})
    checklist = Checklist.model_validate(
        {"checks": (bound("step_time.median", at_most_ms=100),), "answer": "{step_time.median of plain}"}, strict=False
    )
    found = judge_checklist(checklist, [torn, ASYNC], ())
    assert found is not None
    assert (found.outcome, found.answer, found.is_broken) == (NOT_JUDGED, None, True)
    assert (found.results[0].words, found.results[0].got) == (
        "every launch can be read, and is no copy",
        "`plain launch1`",
    )


DOUBTED = PLAIN.model_copy(update={"rank_doubts": ("launch0: the record of rank 1 is missing, its checks are lost",)})


@pytest.mark.parametrize(
    "check",
    [
        bound("step_time.median", at_most_ms=100),
        bound("step_time.median", at_most_ms=1),
        bound("step_time.median", at_most=100, over="plain", cell="async"),
        {"kind": "order", "value": "step_time.median", "cells": ("async", "plain")},
        {"kind": "cause", "leads": "tail", "cell": "plain"},
    ],
)
def test_no_check_is_judged_by_a_cell_of_which_a_rank_is_not_seen(check: dict[str, object]) -> None:
    checklist = Checklist.model_validate({"checks": (check,), "answer": "Yes."}, strict=False)
    found = judge_checklist(checklist, [DOUBTED, ASYNC], ())
    assert found is not None
    assert (found.outcome, found.answer, found.is_broken) == (NOT_JUDGED, None, True)
    assert {result.outcome for result in found.results} == {NOT_JUDGED}
    assert found.results[0].words == "every rank is seen"
    assert all("the record of rank 1 is missing" in result.got for result in found.results)


def test_a_check_of_another_cell_is_judged_all_the_same() -> None:
    check = bound("step_time.median", at_most_ms=10**6, cell="async")
    found = judge_checklist(Checklist.model_validate({"checks": (check,)}, strict=False), [DOUBTED, ASYNC], ())
    assert found is not None
    assert [result.outcome for result in found.results] == [NOT_JUDGED, PASSED]


def test_where_most_is_unknown_no_cause_is_said_to_lead_or_not_to() -> None:
    cell = change(owners=(owner("a", Cause.UNKNOWN, 20), owner("b", Cause.TAIL, 10)))
    assert judge({"kind": "cause", "leads": "tail"}, cell)[0] is NOT_JUDGED
    assert judge({"kind": "cause", "leads": "unknown"}, cell)[0] is PASSED


@pytest.mark.parametrize(("unknown_ms", "outcome", "other"), [(9, PASSED, FAILED), (10, NOT_JUDGED, FAILED)])
def test_a_cause_leads_only_where_what_is_unknown_could_not_overturn_it(
    unknown_ms: int, outcome: CheckOutcome, other: CheckOutcome
) -> None:
    rows = (owner("a", Cause.TAIL, 20), owner("b", Cause.SKEW, 10), owner("c", Cause.UNKNOWN, unknown_ms))
    leads = judge({"kind": "cause", "leads": "tail"}, change(owners=rows))
    assert leads[0] is outcome
    assert ("25.0 % are unknown, which may decide it" in leads[1]) is (outcome is NOT_JUDGED)
    assert judge({"kind": "cause", "leads": "skew"}, change(owners=rows))[0] is other


def test_a_check_that_failed_weighs_more_than_one_that_was_not_judged() -> None:
    checks = (bound("time_to_first_step_ns", at_most_ms=1), bound("step_time.median", at_most_ms=1))
    found = judge_checklist(Checklist.model_validate({"checks": checks}, strict=False), [PLAIN], ())
    assert found is not None
    assert found.outcome is FAILED


@pytest.mark.parametrize(
    ("overrides", "is_broken"),
    [((), True), (("repeat=4",), True), (("repeat.at_most=4",), True), (("network.kind=real",), False)],
)
def test_checks_of_a_run_that_was_changed_do_not_count(overrides: tuple[str, ...], is_broken: bool) -> None:
    found = summarize(bound("step_time.median", at_most_ms=1), overrides=overrides)
    assert found.outcome is FAILED
    assert found.is_broken is is_broken


def test_a_file_that_claims_nothing_has_nothing_to_judge() -> None:
    assert judge_checklist(Checklist(), [PLAIN], ()) is None


def probes(calls: int, awaited: int) -> Probes:
    taken = {"awaited": awaited, "plain": calls - awaited}
    branches = tuple(
        ProbedBranch(name=name, calls=count, total_ns=count * MS) for name, count in taken.items() if count
    )
    function = ProbedFunction(
        file=GRADIENT_HOOKS,
        name="sync_grad_hook",
        reach=Reach.DRIVEN,
        calls=calls,
        raised=0,
        total_ns=calls * MS,
        branches=branches,
    )
    return Probes(functions=(function,), unprobed=(), unlisted=(), cost_per_call_ns=500)


def test_probes_of_all_ranks_become_one_row() -> None:
    (row,) = summarize_probes([probes(calls=10, awaited=4), probes(calls=20, awaited=0)])
    assert (row.label, row.calls, row.most_calls, row.total_ns) == (HOOK, 10, 20, 15 * MS)
    assert row.per_call_ns == MS
    branch = next(one for one in row.branches if one.name == "awaited")
    assert (branch.calls, branch.most_calls, branch.total_ns) == (0, 4, 2 * MS)


SOME = TookCores(phase=Phase.PROFILED, pid=None, name="some", cores=0.5, of_cores=2)
TAKER = TookCores(phase=Phase.MEASURED, pid=4711, name="python busy.py", cores=0.98, of_cores=2)
LOOP = "python busy.py (pid 4711) took 0.98 of 2 cores"
TAKEN = Disturbed(launch=0, phase=Phase.MEASURED, steps=8, left_alone=3, stolen_fraction=0.0, takers=(TAKER,))


@pytest.mark.parametrize(
    ("check", "outcome"),
    [
        (bound("step_time.median", at_most_ms=100), NOT_JUDGED),
        (bound("step_time.median", at_most_ms=1), NOT_JUDGED),
        ({**bound("step_time.median", at_most_ms=100), "cell": "plain"}, NOT_JUDGED),
        ({**bound("step_time.median", at_most_ms=100), "cell": "async"}, PASSED),
        ({"kind": "bound", "value": "step_time.median", "cell": "async", "over": "plain", "at_most": 9}, NOT_JUDGED),
        ({"kind": "order", "value": "step_time.median", "cells": ["async", "plain"]}, NOT_JUDGED),
        ({"kind": "losses", "tolerance": 0.5}, NOT_JUDGED),
    ],
)
def test_no_check_is_judged_by_a_cell_whose_cores_others_took(check: dict[str, Any], outcome: CheckOutcome) -> None:
    taken = PLAIN.model_copy(update={"disturbed": (TAKEN,)})
    checklist = Checklist.model_validate({"checks": [check], "answer": "Yes"}, strict=False)
    alone = judge_checklist(checklist, [PLAIN, ASYNC], ())
    assert alone is not None
    assert len(alone.results) == 1, "without it nothing is said"
    found = judge_checklist(checklist, [taken, ASYNC], ())
    assert found is not None
    assert (found.outcome, found.answer, found.is_broken) == (NOT_JUDGED, None, True)
    told, judged = found.results
    assert judged.outcome is outcome
    assert told.got == ("plain: python busy.py (pid 4711) took 0.98 of 2 cores; they left 3 of 8 MEASURED steps alone")


@pytest.mark.parametrize(("status", "how"), [(RunStatus.FAILED, "failed"), (RunStatus.RUNNING, "not finished")])
def test_no_check_is_judged_by_a_cell_of_which_a_launch_failed_or_never_ended(status: RunStatus, how: str) -> None:
    check = {**bound("step_time.median", at_most_ms=100), "cell": "plain"}
    checklist = Checklist.model_validate({"checks": [check], "answer": "Yes"}, strict=False)
    failed = PLAIN.model_copy(update={"status": status, "reason": "rank 1 killed by SIGSEGV"})
    found = judge_checklist(checklist, [failed, ASYNC], ())
    assert found is not None
    assert (found.outcome, found.answer) == (NOT_JUDGED, None)
    assert (found.results[0].outcome, found.results[0].got) == (NOT_JUDGED, f"`plain` {how}")
    assert {one.outcome for one in found.results} == {NOT_JUDGED}
    both = judge_checklist(checklist, [failed, ASYNC.model_copy(update={"status": RunStatus.FAILED})], ())
    assert both is not None
    assert both.results[0].got == (
        "`plain` and `async` failed" if how == "failed" else "`async` failed, `plain` not finished"
    )


def test_no_check_is_judged_by_a_cell_whose_results_are_wrong() -> None:
    good = CorrectnessResult(
        passed=True, loss_error=0.0, loss_tolerance=0.1, gradient_error=0.0, gradient_tolerance=0.1, worst_parameter="w"
    )
    check = bound("step_time.median", at_most_ms=100)
    checklist = Checklist.model_validate({"checks": [check], "answer": "Yes"}, strict=False)
    for passed in (True, False):
        wrong = PLAIN.model_copy(update={"correctness": good.model_copy(update={"passed": passed})})
        found = judge_checklist(checklist, [wrong, ASYNC], ())
        assert found is not None
        assert (found.answer is not None) is passed
        assert [result.outcome for result in found.results] == ([PASSED] if passed else [NOT_JUDGED] * 2)
    assert found is not None
    assert found.results[0].got == "plain: its results differ from those of a single process"


def became(outcome: StageOutcome) -> StageSummary:
    fields: dict[str, Any] = {
        "part": StatePart.OPTIMIZER,
        "stage": Stage.LOAD,
        "outcome": outcome,
        "matches_plan": None,
    }
    return StageSummary.model_construct(**fields)


@pytest.mark.parametrize(
    ("outcome", "kinds", "got"),
    [
        (StageOutcome.EQUAL, ["bound"], "100 ms"),
        (StageOutcome.BROKEN, ["bound"], "100 ms"),
        (StageOutcome.WRONG, ["results", "bound"], "plain: its training state is not what it should be"),
        (StageOutcome.RAISED, ["results", "bound"], "plain: torch raised in a stage of its training state"),
        (StageOutcome.MENDED, ["stages", "bound"], "plain: the load of the optimizer holds"),
    ],
)
def test_a_stage_of_the_training_state_that_became_other_than_it_should_leaves_no_answer(
    outcome: StageOutcome, kinds: list[str], got: str
) -> None:
    check = bound("step_time.median", at_most_ms=100)
    checklist = Checklist.model_validate({"checks": [check], "answer": "Yes"}, strict=False)
    found = judge_checklist(checklist, [PLAIN.model_copy(update={"stages": (became(outcome),)})], ())
    assert found is not None
    assert [result.kind for result in found.results] == kinds
    assert found.results[0].got == got
    wanted = {"results": NOT_JUDGED, "stages": FAILED, "bound": PASSED}
    assert found.outcome is wanted[kinds[0]]
    assert (found.answer is None) is (len(kinds) == 2)


def test_a_stage_that_is_called_broken_and_that_nobody_compared_is_not_judged(
    scenario: Callable[..., Scenario],
) -> None:
    broken = [{"part": "optimizer", "stage": "load", "says": "no such key"}]
    asked = scenario(state_dict={"stages": ["load"], "broken": broken})
    check = bound("step_time.median", at_most_ms=100)
    checklist = Checklist.model_validate({"checks": [check], "answer": "Yes"}, strict=False)
    stages = (became(StageOutcome.NOT_COMPARED),)
    for of_cell, outcome in ((asked, NOT_JUDGED), (None, PASSED)):
        cell = PLAIN.model_copy(update={"stages": stages, "scenario": of_cell})
        found = judge_checklist(checklist, [cell], ())
        assert found is not None
        assert (found.outcome, found.answer) == (outcome, "Yes" if outcome is PASSED else None)


def test_no_check_is_judged_by_a_cell_that_sent_other_than_its_plan_says() -> None:
    row = purpose(Purpose.GRAD_REDUCE, 3).model_copy(update={"matches_plan": False})
    other = PLAIN.model_copy(update={"purposes": (row,)})
    checklist = Checklist.model_validate(
        {"checks": [bound("step_time.median", at_most_ms=100)], "answer": "Yes"}, strict=False
    )
    found = judge_checklist(checklist, [other], ())
    assert found is not None
    assert (found.outcome, found.answer) == (NOT_JUDGED, None)
    assert found.results[0].got == "plain: what it communicated differs from its plan"


def test_others_that_had_only_gpus_are_not_said_to_have_had_cores() -> None:
    used = UsedGpu(phase=Phase.MEASURED, pid=30, name="python train.py", gpu=1, share=0.4)
    checklist = Checklist.model_validate({"checks": [{"kind": "losses", "tolerance": 0.5}]}, strict=False)
    for takers, words in (((used,), "others had the GPUs"), ((used, TAKER), "others took the cores")):
        taken = PLAIN.model_copy(update={"disturbed": (TAKEN.model_copy(update={"takers": takers}),)})
        assert say_taken(taken.disturbed) == words
        found = judge_checklist(checklist, [taken, ASYNC], ())
        assert found is not None
        assert answer_line(found) == f"no answer, nothing is judged: {words}"
        assert "python train.py (pid 30) had GPU 1 for 40.0 % of the time; they left 3 of 8" in str(remedy_line(found))


def test_functions_that_were_called_prove_nothing_either() -> None:
    called = PLAIN.model_copy(
        update={"probes": (ProbeSummary(label=HOOK, calls=1, most_calls=1, raised=0, total_ns=1, per_call_ns=1.0),)}
    )
    checklist = Checklist(functions=(HOOK,))
    for cell, outcome in ((called, PASSED), (called.model_copy(update={"disturbed": (TAKEN,)}), NOT_JUDGED)):
        found = judge_checklist(checklist, [cell], ())
        assert found is not None
        assert found.results[-1].outcome is outcome


@pytest.mark.parametrize(
    ("disturbed", "words"),
    [
        (
            (TAKEN.model_copy(update={"stolen_fraction": 0.3}),),
            (
                f"{LOOP} and other virtual machines of the host had 30.0 % of its cores; "
                "they left 3 of 8 MEASURED steps alone"
            ),
        ),
        (
            (TAKEN.model_copy(update={"stolen_fraction": 0.3, "takers": ()}),),
            "other virtual machines of the host had 30.0 % of its cores; they left 3 of 8 MEASURED steps alone",
        ),
        (
            (TAKEN.model_copy(update={"stolen_fraction": NAN, "takers": (), "phase": None}),),
            "others had the cores; they left 3 of 8 arm steps alone",
        ),
        (
            tuple(
                TAKEN.model_copy(
                    update={"launch": launch, "of_launches": 6, "takers": takers, "stolen_fraction": stolen}
                )
                for launch, takers, stolen in ((0, (), 0.4), (2, (TAKER,), 0.0), (3, (), NAN), (5, (TAKER,), 0.0))
            ),
            (
                "launch0: other virtual machines of the host had 40.0 % of its cores; "
                "they left 3 of 8 MEASURED steps alone. "
                f"launch2: {LOOP}; they left 3 of 8 MEASURED steps alone. "
                "launch3: others had the cores; they left 3 of 8 MEASURED steps alone. 1 more likewise"
            ),
        ),
        (
            (
                TAKEN.model_copy(
                    update={"takers": tuple(TAKER.model_copy(update={"pid": 7 + more}) for more in range(5))}
                ),
            ),
            " and ".join(f"python busy.py (pid {pid}) took 0.98 of 2 cores" for pid in (7, 8, 9))
            + " and 2 more; they left 3 of 8 MEASURED steps alone",
        ),
        (
            (
                TAKEN,
                TAKEN.model_copy(
                    update={
                        "phase": Phase.PROFILED,
                        "takers": (SOME, TAKER),
                    }
                ),
            ),
            (
                f"{LOOP} and some took 0.50 of 2 cores in PROFILED steps; "
                "they left 3 of 8 MEASURED steps and 3 of 8 PROFILED steps alone"
            ),
        ),
    ],
)
def test_whoever_took_the_cores_is_named_once(disturbed: tuple[Disturbed, ...], words: str) -> None:
    assert describe_disturbed(disturbed) == words


def at_least(cell: CellSummary) -> CellSummary:
    """Return a cell of whose gradient waits not every consumer can be seen."""
    rows = tuple(row.model_copy(update={"is_wait_least": True}) for row in cell.purposes)
    return cell.model_copy(update={"purposes": rows})


WAIT = "purposes.grad_reduce.wait_ns"
WHY = "not every consumer can be seen"


@pytest.mark.parametrize(
    ("check", "outcome", "got"),
    [
        (bound(WAIT, at_most_ms=44), NOT_JUDGED, f"at least 40.0 ms: {WHY}"),
        (bound(WAIT, at_most_ms=39), FAILED, "at least 40.0 ms"),
        (bound(WAIT, at_least_ms=39), PASSED, "at least 40.0 ms"),
        (bound(WAIT, at_least_ms=41), NOT_JUDGED, f"at least 40.0 ms: {WHY}"),
        (bound(WAIT, at_least_ms=36, at_most_ms=44), NOT_JUDGED, f"at least 40.0 ms: {WHY}"),
        (bound(WAIT, over="async", at_least=3), PASSED, "at least 4.00 x"),
        (bound(WAIT, over="async", at_most=5), NOT_JUDGED, f"at least 4.00 x: {WHY}"),
        (bound(WAIT, minus="async", at_most_ms=29), FAILED, "at least 30.0 ms"),
        (bound(WAIT, cell="async", minus="plain", at_most_ms=0), PASSED, "at most -30.0 ms"),
        (bound(WAIT, cell="async", over="plain", at_least=0.1), NOT_JUDGED, f"at most 0.250 x: {WHY}"),
        (bound("step_time.median", per=WAIT, at_most=2.5), PASSED, "at most 2.50 x"),
        (bound(WAIT, cell="async", at_most_ms=10), PASSED, "10.0 ms"),
        (bound("purposes.grad_reduce.exposed_ns", at_most_ms=30), PASSED, "30.0 ms"),
        ({"kind": "order", "value": WAIT, "cells": ("async", "plain")}, NOT_JUDGED, f"plain at least this: {WHY}"),
    ],
)
def test_a_wait_that_is_at_least_this_keeps_and_breaks_only_what_a_longer_one_would_too(
    check: dict[str, object], outcome: CheckOutcome, got: str
) -> None:
    assert judge(check, at_least(PLAIN), ASYNC) == (outcome, got)


def test_a_wait_that_is_at_least_this_of_some_ranks_is_not_judged_and_says_of_which() -> None:
    row = purpose(Purpose.GRAD_REDUCE, wait_ms=40).model_copy(update={"wait_part": RANK_0, "is_wait_least": True})
    assert judge(bound(WAIT, at_least_ms=1), change(purposes=(row,))) == (NOT_JUDGED, "known of rank 0 alone, of 2")


def test_a_wait_in_tables_of_an_older_version_is_at_least_this() -> None:
    row = purpose(Purpose.GRAD_REDUCE, wait_ms=40).model_copy(update={"is_wait_least": None})
    why = "the tables are of an older version"
    assert judge(bound(WAIT, at_most_ms=44), change(purposes=(row,))) == (NOT_JUDGED, f"at least 40.0 ms: {why}")
    assert judge(bound(WAIT, at_least_ms=36), change(purposes=(row,))) == (PASSED, "at least 40.0 ms")


def test_an_answer_says_at_least_of_a_wait_of_which_not_every_consumer_can_be_seen() -> None:
    answer = (
        f"{{{WAIT} of plain}}, {{{WAIT} of async}}, {{{WAIT} of plain over async}}, {{{WAIT} of async over plain}}, "
        f"{{{WAIT} of async minus plain}}, {{lowest {WAIT}}}."
    )
    checks = (bound("step_time.median", at_most_ms=100),)
    checklist = Checklist.model_validate({"checks": checks, "answer": answer}, strict=False)
    one = "at least 40.0 ms, 10.0 ms, at least 4.00 x, at most 0.250 x, at most -30.0 ms, n/a."
    both = "at least 40.0 ms, at least 10.0 ms, n/a, n/a, n/a, n/a."
    for cells, words in (((at_least(PLAIN), ASYNC), one), ((at_least(PLAIN), at_least(ASYNC)), both)):
        found = judge_checklist(checklist, cells, ())
        assert found is not None
        assert found.answer == words
