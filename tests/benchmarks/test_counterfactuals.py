"""Which cells and changes seeds draw: those of the record for ever, and real models that can be planned and asked."""

import json
from pathlib import Path

import pytest

from dtbench.plan.plan import plan_for_check
from dtbench.prediction.obstacles import find_obstacles
from dtbench.runs.settings.forecast import apply_change
from dtbench.scenario.schema.model import Mlp, Timed, Transformer
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.scenario.schema.scenario import Scenario
from dtbench.scenario.written import write_scenario
from dtbench.selftest.sections import SHARED
from tests.benchmarks.counterfactuals import FIRST_REAL, Drawn, draw

RECORDED = Path(__file__).parent / "recorded" / "counterfactuals.json"
REAL = range(FIRST_REAL, FIRST_REAL + 24)


def read(drawn: Drawn) -> Scenario:
    (cell,) = write_scenario("x", "What if?", {**SHARED, **drawn.words}).cells
    return cell.scenario


def test_seeds_of_the_record_draw_what_was_run() -> None:
    drawn: dict[int, list[str]] = {}
    for pair in json.loads(RECORDED.read_text(encoding="utf-8")):
        drawn.setdefault(pair["seed"], []).append(pair["change"])
    assert drawn
    for seed, changes in drawn.items():
        assert list(draw(seed).changes) == changes
        assert isinstance(read(draw(seed)).model, Timed)


@pytest.mark.parametrize("seed", REAL)
def test_real_models_can_be_planned_and_have_a_closed_form_with_each_change(seed: int) -> None:
    drawn = draw(seed)
    base = read(drawn)
    assert isinstance(base.model, Transformer | Mlp)
    assert isinstance(base.network, EmulatedNetwork)
    assert base.env == {"OMP_NUM_THREADS": "1"}
    assert len(set(drawn.changes)) == 5
    for scenario in (base, *(apply_change(base, change) for change in drawn.changes)):
        plan = plan_for_check(scenario)
        assert plan.ranks == 2
        assert not list(find_obstacles(scenario, plan))
        assert plan.flops_per_step is not None
        assert 4e9 < plan.flops_per_step / plan.ranks / base.model.layers < 12e9  # of a block: 20 ms and more


def test_real_models_are_of_both_kinds_and_of_three_strategies() -> None:
    assert {draw(seed).strategy for seed in REAL} == {
        f"{strategy} {kind}" for strategy in ("ddp", "fsdp1", "fsdp2") for kind in ("mlp", "transformer")
    }
