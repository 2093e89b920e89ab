"""``repeat``: a number, the word ``auto``, or a rule; anything else is told with its place."""

import pytest

from dtbench.base.errors import ScenarioError
from dtbench.cli.main import main
from dtbench.scenario.load import load_scenario
from dtbench.scenario.schema.repeat import AutoRepeat, count_launches
from dtbench.scenario.schema.scenario import Scenario


def read(small: str, line: str, *overrides: str) -> Scenario:
    return load_scenario(f"{small}{line}\n", "my.yaml", overrides).cells[0].scenario


def test_a_number_is_a_number(small: str) -> None:
    assert read(small, "repeat: 3").repeat == 3
    assert read(small, "seed: 1").repeat == 1
    assert count_launches(3) == 3


@pytest.mark.parametrize("line", ["repeat: auto", "repeat: {kind: auto}", "repeat: {}"])
def test_the_word_is_the_rule_with_its_defaults(small: str, line: str) -> None:
    rule = read(small, line).repeat
    assert rule == AutoRepeat(precision=0.02, time_budget_s=1800.0, at_least=4, at_most=40)
    assert count_launches(rule) == 4


def test_overrides_set_the_rule_or_parts_of_it(small: str) -> None:
    assert read(small, "repeat: 2", "repeat=auto").repeat == AutoRepeat()
    assert read(small, "repeat: {at_most: 9}", "repeat.precision=0.1").repeat == AutoRepeat(at_most=9, precision=0.1)
    assert read(small, "repeat: auto", "repeat.at_least=6").repeat == AutoRepeat(at_least=6)
    assert read(small, "repeat: auto", "repeat=5").repeat == 5


def test_a_scenario_keeps_its_rule_through_json(small: str) -> None:
    for line in ("repeat: 3", "repeat: auto", "repeat: {precision: 0.1}"):
        scenario = read(small, line)
        assert Scenario.model_validate_json(scenario.model_dump_json()) == scenario


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("repeat: 0", "my.yaml:{}:9: `repeat` must be a whole number above 0, `auto` or a mapping, not 0"),
        ("repeat: 0.5", "my.yaml:{}:9: `repeat` must be a whole number above 0, `auto` or a mapping, not 0.5"),
        ("repeat: aut", "or a mapping, not 'aut'; did you mean `auto`?"),
        ("repeat: [1]", "or a mapping, not a list of 1"),
        ("repeat:", "or a mapping, but it is empty or null"),
        ("repeat: {precison: 0.1}", "`precison` is not a field of `repeat`; did you mean `precision`?"),
        ("repeat: {precision: 2}", "my.yaml:{}:21: `repeat.precision` must be a number above 0 and below 1, not 2"),
        ("repeat: {kind: fixed}", "`repeat.kind` must be `auto`, not 'fixed'"),
        ("repeat: {at_least: 9, at_most: 3}", "`repeat`: at_most (3) is below at_least (9)"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(small: str, line: str, told: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        read(small, line)
    assert told.format(len(small.splitlines()) + 1) in str(refused.value)


@pytest.mark.parametrize("value", ["foo", "{a: 1}", "[1]"])
def test_a_field_of_several_plain_values_is_told_once(small: str, value: str) -> None:
    overrides = ("parallel={kind: fsdp2, shards: 2}", f"parallel.reshard_after_forward={value}")
    with pytest.raises(ScenarioError) as refused:
        read(small, "seed: 1", *overrides)
    assert str(refused.value).count("must be true or false or a whole number above 0 (or left out), not ") == 1


def test_check_says_what_the_rule_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["check", "quickstart", "--set", "repeat=auto"])
    assert "repeat: auto takes 4 to 40 launches of each cell, until" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(SystemExit, match="3"):
        main(["check", "quickstart", "--set", "cells.ddp.repeat=auto"])
    assert "differ in `repeat`; `auto` launches all cells in turns" in capsys.readouterr().err
