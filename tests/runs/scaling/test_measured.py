"""What launches tell of a host: its time by the closed form, and how much ranks differ in CPU time."""

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from dtbench.base.errors import PredictionError
from dtbench.base.vocabulary import Phase
from dtbench.plan.plan import Plan
from dtbench.prediction.costs import known_costs, spread_host
from dtbench.prediction.predict import MEAN_JITTER, time_step
from dtbench.runs.check_prediction import bound_cell
from dtbench.runs.scaling.measured import Measured, find_spread_ns, measure_host, stretch
from dtbench.runs.summary import CellSummary

MS = 1_000_000
Make = Callable[..., CellSummary]


def read(*launches: Sequence[tuple[int, int, Phase, int]]) -> Any:
    """Return what was read of launches: rank, step, phase and CPU time in ms."""
    tables = [pd.DataFrame(rows, columns=["rank", "step", "phase", "cpu_ns"]) for rows in launches]
    return SimpleNamespace(
        launches=tuple(SimpleNamespace(steps=table.assign(cpu_ns=table["cpu_ns"] * MS)) for table in tables)
    )


def test_ranks_differ_by_the_root_of_the_mean_variance_over_steps_and_launches() -> None:
    """10 and 14 differ by a variance of 8, 20 and 20 by none, 30 and 34 by 8: the mean is 16 / 3."""
    measured, profiled = Phase.MEASURED, Phase.PROFILED
    first = [(0, 1, measured, 10), (1, 1, measured, 14), (0, 2, measured, 20), (1, 2, measured, 20)]
    more = [(0, 3, profiled, 10), (1, 3, profiled, 90), (0, 4, measured, 7)]  # profiled; of one rank alone
    second = [(0, 1, measured, 30), (1, 1, measured, 34)]
    assert find_spread_ns(read([*first, *more], second), 2) == pytest.approx(math.sqrt(16 / 3) * MS)


def test_of_one_rank_or_of_no_step_it_is_not_known() -> None:
    assert math.isnan(find_spread_ns(read([(0, 1, Phase.MEASURED, 10)]), 1))
    assert math.isnan(find_spread_ns(read([]), 2))
    assert math.isnan(find_spread_ns(read(), 2))


def test_the_host_of_each_launch_is_that_with_which_the_closed_form_is_its_step(cell: Make) -> None:
    one = cell(284.0, 30.0)
    scenario, plan = one.scenario, one.plan
    assert scenario is not None
    assert isinstance(plan, Plan)
    known = known_costs(scenario, plan)

    def step_of(host_ms: int) -> int:
        costs = {rank: spread_host(costs, host_ms * MS, micro_batches=1) for rank, costs in known.items()}
        return time_step(scenario, plan, costs, jitter_share=MEAN_JITTER)

    one = one.model_copy(update={"launch_medians_ns": (float(step_of(8)), float("nan"), float(step_of(12)))})
    one = one.model_copy(update={"prediction": bound_cell(one, cores=2)})
    rows = [(0, 1, Phase.MEASURED, 10), (1, 1, Phase.MEASURED, 12)]
    found_scenario, found_plan, measured = measure_host(one, read(rows), 2)
    assert (found_scenario, found_plan) == (scenario, plan)
    assert measured.hosts_ns == pytest.approx((8 * MS, 12 * MS), abs=20_000)
    assert measured.host_ns == pytest.approx(10 * MS, abs=20_000)
    assert (measured.world, measured.cores, measured.cpu_ns) == (2, 2, 30 * MS)
    assert measured.spread_ns == pytest.approx(math.sqrt(2) * MS)


def test_a_cell_that_cannot_be_gone_by_is_refused(cell: Make) -> None:
    with pytest.raises(PredictionError, match="not held against its closed form"):
        measure_host(cell(284.0), read(), 2)


def test_ranks_that_outnumber_cores_wait_for_each_other() -> None:
    assert [stretch(8, 2), stretch(2, 2), stretch(1, 2), stretch(8, None)] == [4, 1, 1, 1]
    assert Measured(8, (1.0,), (30.0,), cpu_ns=5.0, cores=2).contended_ns == 20
    assert Measured(8, (1.0,), (30.0,), cpu_ns=9.0, cores=2).contended_ns == 30  # no more than all of it
    assert Measured(8, (1.0,), (30.0,), cores=2).contended_ns == 30
