"""What is said of other settings of real models: their compute by hand, and what speaks against it."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dtbench.base.errors import PredictionError
from dtbench.base.vocabulary import Cause, Operation, Phase, Purpose
from dtbench.plan.plan import Plan
from dtbench.prediction.compute import Compute, share_compute
from dtbench.prediction.costs import same_costs
from dtbench.prediction.predict import predict_step
from dtbench.prediction.products import count_products
from dtbench.runs.representative import Doubt, DoubtKind
from dtbench.runs.run import summarize_run
from dtbench.runs.settings.base import MOST_OFF, CostSource, find_base
from dtbench.runs.settings.candidates import find_candidates
from dtbench.runs.settings.forecast import MODEL_ERROR_SHARED, forecast_cell
from dtbench.runs.summary import CellSummary, Disturbed, OwnerSummary, PurposeSummary, RankBreakdown, RegionTimes
from dtbench.scenario.schema.model import Mlp, Transformer

MS = 1_000_000
EXAMPLE = Path(__file__).parents[2] / "results" / "example"
Make = Callable[..., CellSummary]
MLP = {"kind": "mlp", "layers": 12, "dim": 256, "hidden_dim": 512, "bias": False}  # of 1 MiB a block
TRANSFORMER = {"kind": "transformer", "layers": 3, "dim": 64, "heads": 4, "ffn_dim": 96, "vocab_size": 256}
CAP = "parallel.bucket_cap_mb=2"


def computed(
    make: Make, found: Compute, sections: Mapping[str, Any] = {}, exposed: Mapping[Purpose, float] | None = None
) -> CellSummary:
    """Return a cell whose regions and PROFILED steps are those of its closed form with such compute.

    Args:
        make: makes a cell.
        found: what each rank computes.
        sections: of its scenario.
        exposed: shares of a step that PROFILED steps show in place of the closed form's.
    """
    cell = make(0.0, **{"model": MLP, **sections})
    scenario, plan = cell.scenario, cell.plan
    assert scenario is not None
    assert isinstance(plan, Plan)
    assert isinstance(scenario.model, Mlp | Transformer)
    products = count_products(scenario.model, scenario.data.sequence_length)
    costs = share_compute(products, found, micro_batches=scenario.accumulation.micro_batches)
    step = predict_step(scenario, plan, same_costs(costs, plan)).of(0)
    shares = {purpose: time_ns / step.step_ns for purpose, time_ns in step.exposed_by_purpose_ns.items()}
    purposes = {purpose: round(share * step.step_ns) for purpose, share in (exposed or shares).items()}
    regions = RegionTimes(forward_ns=step.forward_ns, backward_ns=step.backward_ns, optimizer_ns=step.optimizer_ns)
    return cell.model_copy(
        update={
            "launch_medians_ns": (float(step.step_ns),),
            "launch_regions": (regions,),
            "cores": 2,
            "ranks": tuple(_make_rank(rank, step.step_ns, sum(purposes.values())) for rank in range(plan.ranks)),
            "purposes": tuple(_make_purpose(purpose, time_ns) for purpose, time_ns in purposes.items()),
        }
    )


def _make_rank(rank: int, step_ns: int, exposed_ns: int) -> RankBreakdown:
    return RankBreakdown(
        rank=rank,
        steps=1,
        step_ns=step_ns,
        compute_ns=step_ns - exposed_ns,
        comm_ns=exposed_ns,
        hidden_comm_ns=0,
        exposed_comm_ns=exposed_ns,
        exposed_copy_ns=0,
        idle_ns=0,
    )


def _make_purpose(purpose: Purpose, exposed_ns: int) -> PurposeSummary:
    return PurposeSummary(
        purpose=purpose,
        count=1,
        size_bytes=1,
        planned_count=None,
        planned_size_bytes=None,
        matches_plan=None,
        comm_ns=exposed_ns,
        hidden_ns=0,
        exposed_ns=exposed_ns,
        wait_ns=None,
        hidden_fraction=0.0,
        overlap_possible=None,
        overlap_reason="",
    )


def with_launches(cell: CellSummary, *times: float) -> CellSummary:
    """Return the cell with launches of which each took so many times as long."""
    (step_ns,), (regions,) = cell.launch_medians_ns, cell.launch_regions
    assert regions is not None
    regions_ns = regions.model_dump()
    return cell.model_copy(
        update={
            "launches": tuple(range(len(times))),
            "launch_medians_ns": tuple(step_ns * one for one in times),
            "launch_regions": tuple(
                RegionTimes(**{name: one * time_ns for name, time_ns in regions_ns.items()}) for one in times
            ),
        }
    )


# twelve blocks of 1 MiB: 20 ms a block in backward, 15 for the first, whose input has no gradient
ALIKE = Compute(0, 235 * MS, 4 * MS)


def test_larger_buckets_save_of_a_real_model_what_they_save_of_blocks_that_take_as_long(cell: Make) -> None:
    """A bucket takes 12 ms and 10 for each MiB. A block's gradients: of `down` after half of it, of `up` at its end.

    Buckets of a block are ready at 20, 40, ..., and each waits for the one before: 20 + 12 * 22 = 284. Two blocks a
    bucket: ready at 40, 80, ..., 200 and, with the shorter first block, 235; served in 32: 267. All in one: 235 + 132.
    """
    one = computed(cell, ALIKE)
    assert one.launch_medians_ns[0] == pytest.approx(288 * MS, abs=10)
    found = forecast_cell(one, [CAP, "parallel.bucket_cap_mb=12", "network.latency_us=0"])
    steps_ms = {answer.change: answer.step_ns / MS for answer in found.answers}
    assert steps_ms == {
        "network.latency_us=0": pytest.approx(245 + 4, abs=0.1),
        CAP: pytest.approx(267 + 4, abs=0.1),
        "parallel.bucket_cap_mb=12": pytest.approx(367 + 4, abs=0.1),
    }
    assert found.source is CostSource.REGIONS
    assert found.off == pytest.approx(0, abs=1e-4)
    assert all(answer.low_ns is None for answer in found.answers)  # of one launch


def test_intervals_hold_what_shared_cores_may_do(cell: Make) -> None:
    found = forecast_cell(with_launches(computed(cell, ALIKE), 1.0, 1.0, 1.0), [CAP])
    (answer,) = found.answers
    assert answer.low_ns is not None
    assert answer.high_ns is not None
    assert (answer.high_ns - answer.low_ns) / 2 == pytest.approx(MODEL_ERROR_SHARED * found.step_ns)
    assert found.model_error == MODEL_ERROR_SHARED


def test_each_launch_has_the_compute_of_its_own(cell: Make) -> None:
    """A launch that took longer in all regions computes so much more, as its link takes what it takes."""
    found = forecast_cell(with_launches(computed(cell, ALIKE), 1.0, float("nan"), 1.03), ["network.latency_us=0"])
    assert (found.launches, found.missing) == (2, 1)
    alone = forecast_cell(with_launches(computed(cell, ALIKE), 1.03), ["network.latency_us=0"])
    first = forecast_cell(computed(cell, ALIKE), ["network.latency_us=0"])
    mean_ns = (alone.answers[0].step_ns + first.answers[0].step_ns) / 2
    assert found.answers[0].step_ns == pytest.approx(mean_ns)
    assert alone.answers[0].step_ns > 1.03 * first.answers[0].step_ns  # nothing of the link grew


@pytest.mark.parametrize("model", [{**MLP, "layers": 4}, TRANSFORMER])
@pytest.mark.parametrize(
    "parallel",
    [
        {"kind": "ddp", "replicas": 2},
        {"kind": "fsdp1", "shards": 2},
        {"kind": "fsdp2", "shards": 2},
        {"kind": "fsdp2", "shards": 2, "unshard_async_op": True, "forward_prefetch": 1},
    ],
)
def test_what_is_offered_can_be_asked_and_is_what_its_closed_form_says(
    cell: Make, model: dict[str, Any], parallel: dict[str, Any]
) -> None:
    """The changed cell, made with the same compute, takes what was said of it."""
    found, sections = Compute(80 * MS, 160 * MS, 6 * MS), {"model": model, "parallel": parallel}
    one = computed(cell, found, sections)
    assert one.scenario is not None
    told = forecast_cell(one)
    assert not told.not_asked
    assert sorted(answer.change for answer in told.answers) == sorted(
        candidate.change for candidate in find_candidates(one.scenario.parallel)
    )
    for answer in told.answers:
        fields = dict(one.partition("=")[::2] for one in answer.change.split(" + ") if "{" not in one)
        values = {name.removeprefix("parallel."): _read(text) for name, text in fields.items()}
        if values:
            after = computed(cell, found, {**sections, "parallel": {**parallel, **values}})
            assert answer.step_ns == pytest.approx(after.launch_medians_ns[0], abs=0.2 * MS)


def _read(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    return float(text) if "." in text else int(text) if text.isdigit() else text


def test_a_rank_that_holds_all_parameters_updates_all(cell: Make) -> None:
    one = computed(cell, Compute(80 * MS, 160 * MS, 30 * MS), {"parallel": {"kind": "fsdp1", "shards": 2}})
    whole, kept = (
        computed(cell, Compute(80 * MS, 160 * MS, ms * MS), {"parallel": {"kind": "fsdp1", "shards": 2, **more}})
        for ms, more in ((60, {"sharding_strategy": "NO_SHARD"}), (30, {"sharding_strategy": "SHARD_GRAD_OP"}))
    )
    changes = ["parallel.sharding_strategy=NO_SHARD", "parallel.sharding_strategy=SHARD_GRAD_OP"]
    said_ns = {answer.change: answer.step_ns for answer in forecast_cell(one, changes).answers}
    assert said_ns[changes[0]] == pytest.approx(whole.launch_medians_ns[0], abs=0.2 * MS)
    assert said_ns[changes[1]] == pytest.approx(kept.launch_medians_ns[0], abs=0.2 * MS)


def test_what_a_real_model_computes_otherwise_is_not_said(cell: Make) -> None:
    one = computed(cell, Compute(80 * MS, 160 * MS, 30 * MS), {"parallel": {"kind": "fsdp2", "shards": 2}})
    with pytest.raises(PredictionError, match=r"with another parallel\.mixed_precision\.param_dtype was not measured"):
        forecast_cell(one, ["parallel.mixed_precision.param_dtype=bfloat16"])


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (
            MOST_OFF + 0.01,
            (
                "of grad_reduce its closed form leaves 17.0 % of a measured step exposed, and PROFILED steps showed "
                "8.0 % of it: more than 8.0 % apart, so that what hiding it saves is not known"
            ),
        ),
        (-MOST_OFF - 0.01, "more than 8.0 % apart"),
        (MOST_OFF - 0.01, None),
    ],
)
def test_what_profiled_steps_show_otherwise_is_refused(cell: Make, share: float, said: str | None) -> None:
    """Of 288 ms 49 are exposed: all that is after the last block."""
    right = computed(cell, ALIKE)
    exposed = {Purpose.GRAD_REDUCE: right.ranks[0].exposed_comm_ns / right.ranks[0].step_ns - share}
    one = computed(cell, ALIKE, exposed=exposed)
    if said is None:
        assert forecast_cell(one, [CAP]).off == pytest.approx(abs(share), abs=1e-3)
    else:
        with pytest.raises(PredictionError, match=said):
            forecast_cell(one, [CAP])


def test_purposes_that_are_off_by_less_are_off_together(cell: Make) -> None:
    sections = {"model": {**MLP, "layers": 3}, "parallel": {"kind": "fsdp2", "shards": 2}}
    right = computed(cell, Compute(80 * MS, 160 * MS, 6 * MS), sections)
    step_ns = right.ranks[0].step_ns
    exposed = {one.purpose: (one.exposed_ns or 0) / step_ns - 0.05 for one in right.purposes}
    assert len(exposed) == 2
    with pytest.raises(PredictionError, match="of all purposes its closed form leaves"):
        forecast_cell(computed(cell, Compute(80 * MS, 160 * MS, 6 * MS), sections, exposed))


def test_what_ranks_waited_for_each_other_is_in_their_compute_and_not_held_against_it(cell: Make) -> None:
    right = computed(cell, ALIKE)
    step_ns, share = right.ranks[0].step_ns, right.ranks[0].exposed_comm_ns / right.ranks[0].step_ns
    one = computed(cell, ALIKE, exposed={Purpose.GRAD_REDUCE: share + 0.1})
    for cause in (Cause.SKEW, Cause.TAIL):
        owner = OwnerSummary(
            owner="bucket 11",
            operation=Operation.ALL_REDUCE,
            purpose=Purpose.GRAD_REDUCE,
            cause=cause,
            exposed_ns=round(0.1 * step_ns),
            owner_exposed_ns=round((share + 0.1) * step_ns),
        )
        owned = one.model_copy(update={"owners": (owner,)})
        if cause is Cause.SKEW:
            assert forecast_cell(owned, [CAP]).off == pytest.approx(0, abs=1e-3)
        else:
            with pytest.raises(PredictionError, match=r"more than 8\.0 % apart"):
                forecast_cell(owned, [CAP])


def test_a_profiler_that_makes_steps_longer_makes_no_link_slower(cell: Make) -> None:
    """What is exposed is held against it in ms: of a step that is 1.2 times as long it is a smaller share."""
    one = computed(cell, ALIKE)
    ranks = tuple(rank.model_copy(update={"step_ns": round(1.2 * rank.step_ns)}) for rank in one.ranks)
    assert forecast_cell(one.model_copy(update={"ranks": ranks}), [CAP]).off == pytest.approx(0, abs=1e-3)


TAKEN = Disturbed(launch=0, phase=Phase.PROFILED, steps=8, of_launches=1, left_alone=1, stolen_fraction=0.4, takers=())


@pytest.mark.parametrize(
    ("update", "said"),
    [
        ({"ranks": ()}, "nothing to hold its closed form against: no PROFILED step was traced"),
        ({"unseen_collectives": 2}, "against: 2 collectives were launched and not seen to run"),
        ({"disturbed": (TAKEN,)}, "against: of PROFILED steps, others"),
        (
            {"doubts": (Doubt(DoubtKind.UNLIKE_MEASURED, (3.0,)),)},
            "against: PROFILED steps took 3.00 x as long as MEASURED ones",
        ),
        ({"doubts": (Doubt(DoubtKind.UNSURE_MEASURED, (1.1,)),)}, None),
        ({"launch_regions": ()}, "not all ranks of launch 0 tell how long forward, backward and optimizer took"),
        ({"launch_regions": (None,)}, "not all ranks of launch 0 tell how long"),
        ({"launch_medians_ns": (400.0 * MS,)}, "of launch 0 take 288 ms together, and a measured step 400 ms"),
        ({"launch_medians_ns": (float("nan"),)}, "there is no MEASURED step"),
        ({"cores": 1}, "2 ranks share 1 core: while one waits the others compute faster"),
        ({"cores": 1, "ranks_per_host": 1}, None),
        ({"cores": None}, None),
        ({"rank_doubts": ("the record of rank 1 is missing",)}, "its steps are not gone by: the record of rank 1"),
    ],
)
def test_what_speaks_against_its_steps_is_said(cell: Make, update: dict[str, Any], said: str | None) -> None:
    one = computed(cell, ALIKE).model_copy(update=update)
    if said is None:
        assert forecast_cell(one, [CAP]).answers
    else:
        with pytest.raises(PredictionError, match=said):
            forecast_cell(one, [CAP])


def test_what_is_exposed_of_a_purpose_must_be_known(cell: Make) -> None:
    one = computed(cell, ALIKE)
    purposes = tuple(purpose.model_copy(update={"exposed_ns": None}) for purpose in one.purposes)
    with pytest.raises(PredictionError, match="what was exposed is not known of each purpose"):
        forecast_cell(one.model_copy(update={"purposes": purposes}), [CAP])


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"network": {"kind": "real"}}, r"network\.kind=real: what it carries has no known cost; network\.kind=emul"),
        ({"model": {"kind": "custom", "factory": "mine:build"}}, r"model\.kind=custom: how its blocks share"),
        ({"model": {**MLP, "compile": {}}}, r"no closed form: model\.compile: a graph computes in an order of its own"),
        ({"parallel": {"kind": "ddp", "replicas": 1, "tensor": 2}, "model": MLP}, "over a tensor axis a real model"),
    ],
)
def test_cells_that_cannot_be_asked_say_which_part_is_not_known(
    cell: Make, sections: dict[str, Any], said: str
) -> None:
    with pytest.raises(PredictionError, match=said):
        forecast_cell(cell(284.0, **{"model": MLP, **sections}), [CAP])


def test_buckets_of_the_shipped_run_are_issued_when_products_say() -> None:
    """A transformer under DDP on two cores: from bucket to bucket, in its traces and in its closed form."""
    base = find_base(summarize_run(EXAMPLE).cells[0])
    told = predict_step(base.scenario, base.plan, base.costs[0]).of(0)
    told_ns = [after.issue_ns - before.issue_ns for before, after in pairwise(told.collectives)]
    table = pd.read_parquet(EXAMPLE / "cells" / "ddp" / "launch0" / "collectives.parquet").dropna(subset=["step"])
    issued = table[table["purpose"] == "grad_reduce"].pivot_table(
        index=["rank", "step"], columns="owner", values="issue_ns", aggfunc="first"
    )
    seen_ns = issued[[one.owner for one in told.collectives]].diff(axis=1).iloc[:, 1:].mean()
    assert [*seen_ns] == pytest.approx(told_ns, rel=0.15)
    assert base.off is not None
    assert base.off < 0.03
