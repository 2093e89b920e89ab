"""What a step costs without communication: known, measured, and spread."""

from collections.abc import Callable
from typing import Any

import pytest

from dtbench.base.errors import PredictionError
from dtbench.prediction.costs import Costs, UnitCosts, known_costs, measured_costs, same_costs, spread_host
from dtbench.prediction.predict import predict_step
from dtbench.scenario.schema.scenario import Scenario
from tests.prediction.situations import in_ms, link, plan_of, timed

Make = Callable[..., Scenario]
MS = 1_000_000


def test_a_timed_model_says_what_each_rank_costs(scenario: Make) -> None:
    asked = scenario(model=timed(2, 10, 20, slow_rank={"rank": 1, "factor": 1.5}), network=link(1, 1))
    costs = known_costs(asked, plan_of(asked))
    assert costs == {
        0: Costs((UnitCosts(10 * MS, 20 * MS),) * 2),
        1: Costs((UnitCosts(15 * MS, 30 * MS),) * 2),
    }


def test_nobody_knows_what_a_transformer_costs(scenario: Make) -> None:
    asked = scenario(network=link(1, 1))
    with pytest.raises(PredictionError, match=r"model\.kind=transformer costs; take model\.kind=timed"):
        known_costs(asked, plan_of(asked))


KNOWN = Costs((UnitCosts(10 * MS, 20 * MS),) * 3)


def test_a_run_without_a_link_is_predicted_to_the_nanosecond(scenario: Make) -> None:
    """Ready at 55, 76 and 99 ms, and 7 ms until the update is over: on a link of no cost that is the step."""
    costs = measured_costs(
        KNOWN, forward_ns=33 * MS, ready_ns=[55 * MS, 76 * MS, 99 * MS], after_ns=5 * MS, finish_ns=2 * MS
    )
    parallel = {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 100.0}
    asked = scenario(model=timed(3, 10, 20), parallel=parallel, network=link(0, 0))
    plan = plan_of(asked)
    step = predict_step(asked, plan, same_costs(costs, plan)).of(0)
    assert in_ms(step.forward_ns) == 33
    assert round(in_ms(step.collectives[0].issue_ns)) == 99
    assert round(in_ms(step.step_ns)) == 99 + 2 + 5
    assert in_ms(step.compute_ns) == 90


@pytest.mark.parametrize("ready_ms", [[55, 76], [55, 99, 76], [30, 76, 99]])
def test_ready_times_that_cannot_be_are_refused(ready_ms: list[int]) -> None:
    with pytest.raises(PredictionError, match="one for each of 3 blocks"):
        measured_costs(KNOWN, forward_ns=33 * MS, ready_ns=[time * MS for time in ready_ms], after_ns=0)


@pytest.mark.parametrize("micro_batches", [1, 2, 3])
@pytest.mark.parametrize("host_ns", [0, 1, 999, 10_000_019])
def test_spreading_the_host_keeps_its_time(host_ns: int, micro_batches: int) -> None:
    costs = spread_host(KNOWN, host_ns, micro_batches=micro_batches)
    in_batches = sum(unit.forward_host_ns + unit.backward_host_ns for unit in costs.units)
    assert 0 <= host_ns - (micro_batches * in_batches + costs.optimizer_ns) < 2 * micro_batches


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda plan: {0: KNOWN}, "each of 2 ranks"),
        (lambda plan: same_costs(Costs(KNOWN.units[:2]), plan), "each of 3 blocks"),
        (
            lambda plan: same_costs(Costs((UnitCosts(1, 1, ready=(1.0,)),) * 3), plan),
            "each parameter of a block, or of none",
        ),
    ],
)
def test_costs_that_do_not_fit_are_refused(scenario: Make, wrong: Callable[..., Any], sentence: str) -> None:
    asked = scenario(model=timed(3, 10, 20), network=link(1, 1))
    with pytest.raises(PredictionError, match=sentence):
        predict_step(asked, plan_of(asked), wrong(plan_of(asked)))
