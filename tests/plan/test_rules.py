"""One table says why a scenario cannot run: each row once, asked where it applies and where enough is known."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from dtbench.base.errors import PlanError
from dtbench.base.vocabulary import DeviceKind
from dtbench.cli.main import main
from dtbench.plan.plan import Machine, make_plan
from dtbench.plan.rules.machine import MOST_LAYERS, MOST_RANKS
from dtbench.plan.rules.rule import ON_CPU, ON_CUDA, Case, Rule, find_reasons
from dtbench.plan.rules.table import LIMITS, RULES
from dtbench.prediction.obstacles import OBSTACLES
from dtbench.scenario.schema.scenario import Scenario

Make = Callable[..., Scenario]
LAPTOP = Machine(cpu_cores=2, cuda_devices=0)


def _refuse(case: Case) -> Iterable[str]:
    return [f"{case.ranks} ranks are planted; none works"]


PLANTED = Rule("planted", "nothing holds", _refuse)


def test_each_rule_has_a_name_of_its_own_and_says_what_must_hold() -> None:
    rules = (*LIMITS, *RULES, *OBSTACLES)
    assert len({rule.name for rule in rules}) == len(rules)
    assert all(rule.says and not rule.says.endswith(".") and rule.devices for rule in rules)


@pytest.mark.parametrize(
    ("rule", "known", "is_asked"),
    [
        (PLANTED, {}, True),
        (replace(PLANTED, devices=ON_CUDA), {}, False),
        (replace(PLANTED, devices=ON_CPU), {}, True),
        (replace(PLANTED, needs=frozenset({"memory_bytes"})), {}, False),
        (replace(PLANTED, needs=frozenset({"memory_bytes"})), {"memory_bytes": 0}, True),
        (replace(PLANTED, until=(2, 14)), {}, True),
        (replace(PLANTED, until=(2, 14)), {"torch": "2.13.1+cpu"}, True),
        (replace(PLANTED, until=(2, 14)), {"torch": "2.14.0"}, False),
        (replace(PLANTED, until=(2, 14), needs=frozenset({"torch"})), {}, False),
    ],
)
def test_a_rule_is_asked_where_it_applies_and_enough_is_known(
    scenario: Make, rule: Rule, known: dict[str, Any], is_asked: bool
) -> None:
    found = list(find_reasons([rule], Case(scenario(), DeviceKind.CPU, **known)))
    assert found == (["2 ranks are planted; none works"] if is_asked else [])


def test_a_row_more_is_a_reason_more_for_check_and_run(
    scenario: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_plan(scenario(), LAPTOP)
    monkeypatch.setattr("dtbench.plan.plan.RULES", [*RULES, PLANTED])
    with pytest.raises(PlanError, match="2 ranks are planted; none works"):
        make_plan(scenario(), LAPTOP)
    for verb in ("check", "run"):
        with pytest.raises(SystemExit, match="3"):
            main([verb, "quickstart"])
        assert "2 ranks are planted; none works" in " ".join(capsys.readouterr().err.split())


def test_what_is_beyond_all_limits_is_told_at_once_and_nothing_else_is_looked_at(
    scenario: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dtbench.plan.plan.RULES", [replace(PLANTED, test=lambda _: pytest.fail("looked"))])
    model = {"kind": "mlp", "layers": MOST_LAYERS + 1, "dim": 8, "hidden_dim": 8}
    with pytest.raises(PlanError) as refused:
        make_plan(scenario(model=model, parallel={"kind": "ddp", "replicas": MOST_RANKS + 1}), LAPTOP)
    layers, ranks = str(refused.value).splitlines()
    assert layers == f"model.layers={MOST_LAYERS + 1} is more than {MOST_LAYERS}; no plan is made for that"
    assert ranks.startswith(f"parallel asks for {MOST_RANKS + 1} ranks")
