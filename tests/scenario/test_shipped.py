"""The scenarios in the repository: each loads, plans, and states its question."""

from pathlib import Path

import pytest

from dtbench.plan import plan_for_check
from dtbench.scenario.load import load_scenario_file

_FILES = sorted((Path(__file__).parents[2] / "scenarios").rglob("*.yaml"))


def test_the_scenarios_that_the_readme_names_are_there() -> None:
    on_cpu = {
        "quickstart",
        "ddp",
        "ddp_tp",
        "fsdp1",
        "fsdp1_tp",
        "fsdp2",
        "fsdp2_tp",
        "hsdp",
        "hsdp_tp",
        "bucket_sweep",
    }
    on_gpus = {"one_gpu", "eight_gpus", "sixteen_gpus"}
    assert on_cpu | on_gpus <= {path.stem for path in _FILES}


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_a_shipped_scenario_asks_a_question_and_has_a_plan(path: Path) -> None:
    first_line = path.read_text(encoding="utf-8").splitlines()[0]
    assert first_line.startswith("# ")
    assert first_line.endswith("?")
    file = load_scenario_file(path)
    assert file.question == first_line.removeprefix("# ")
    for cell in file.cells:
        assert plan_for_check(cell.scenario).ranks >= 1


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_the_cells_of_a_shipped_scenario_train_the_same_model_on_the_same_data(path: Path) -> None:
    cells = load_scenario_file(path).cells
    assert len({(cell.scenario.model, cell.scenario.data, cell.scenario.seed) for cell in cells}) == 1
