"""Scenarios that no person wrote: what a file says of a cell gives that cell again, and one field changed."""

from pathlib import Path

import pytest

from dtbench.base.errors import ScenarioError
from dtbench.scenario.load import load_scenario, load_scenario_file
from dtbench.scenario.written import (
    Words,
    change_field,
    leave_out_secrets,
    sections_of,
    spell,
    spell_scenario,
    write_scenario,
)

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def test_every_shipped_cell_comes_back_from_what_is_written_of_it() -> None:
    cells = [cell for file in sorted(SCENARIOS.rglob("*.yaml")) for cell in load_scenario_file(file).cells]
    assert len(cells) > 150
    for cell in cells:
        text = spell_scenario("What?", sections_of(cell.scenario))
        assert load_scenario(text, "x.yaml").cells[0].scenario == cell.scenario


def test_only_what_differs_is_written() -> None:
    (cell,) = write_scenario(
        "x",
        "What?",
        {
            "model": {"kind": "mlp", "layers": 2, "dim": 8, "hidden_dim": 8},
            "data": {"global_batch": 2, "sequence_length": 4},
            "parallel": {"kind": "ddp", "replicas": 2},
        },
    ).cells
    assert sections_of(cell.scenario)["parallel"] == {"kind": "ddp", "replicas": 2}
    changed = change_field(cell.scenario, "parallel.bucket_cap_mb=0.5")
    assert sections_of(changed)["parallel"] == {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 0.5}
    for override, said in (("parallel.bucket_cap=1", "did you mean"), ("parallel.replicas=2", "it is so already")):
        with pytest.raises(ScenarioError, match=said):
            change_field(cell.scenario, override)
        with pytest.raises(ScenarioError, match=f"^--set {override}: "):
            change_field(cell.scenario, override)
        with pytest.raises(ScenarioError, match=f"^--change {override}: "):
            change_field(cell.scenario, override, "--change")


def test_what_is_secret_is_left_out_for_those_who_run_it_to_set() -> None:
    words: Words = {
        "model": {"kind": "mlp", "layers": 2, "dim": 8, "hidden_dim": 8},
        "data": {"global_batch": 2, "sequence_length": 4},
        "parallel": {"kind": "ddp", "replicas": 2},
        "env": {"NCCL_TOKEN": "abc", "TORCH_HUB": "http://me:pw@host", "NCCL_ALGO": "Ring"},
    }
    (cell,) = write_scenario("x", "What?", words).cells
    shown, names = leave_out_secrets(cell.scenario)
    assert names == ("NCCL_TOKEN", "TORCH_HUB")
    assert shown.env == {"NCCL_ALGO": "Ring"}
    assert leave_out_secrets(shown) == (shown, ())


def test_comments_stand_below_the_question() -> None:
    (cell,) = write_scenario(
        "x",
        "What?",
        {
            "model": {"kind": "mlp", "layers": 2, "dim": 8, "hidden_dim": 8},
            "data": {"global_batch": 2, "sequence_length": 4},
            "parallel": {"kind": "ddp", "replicas": 2},
        },
    ).cells
    text = spell_scenario("What?", sections_of(cell.scenario), comments=["mind: this", "and that"])
    assert text.splitlines()[:3] == ["# What?", "# mind: this", "# and that"]
    file = load_scenario(text, "x.yaml")
    assert file.question == "What?"
    assert file.cells[0].scenario == cell.scenario


@pytest.mark.parametrize("text", ["1e3", "yes", "0.5", "null", "a: b", "#x", "1_000", "0x10", "~"])
def test_texts_stay_texts(text: str) -> None:
    (cell,) = write_scenario(
        "x",
        "What?",
        {
            "model": {"kind": "mlp", "layers": 2, "dim": 8, "hidden_dim": 8},
            "data": {"global_batch": 2, "sequence_length": 4},
            "parallel": {"kind": "ddp", "replicas": 2},
            "env": {"NCCL_NAME": text},
        },
    ).cells
    assert cell.scenario.env == {"NCCL_NAME": text}
    assert "\n" not in spell({"NCCL_NAME": text})
