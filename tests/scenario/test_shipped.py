"""The scenarios in the repository: each loads, plans, and states its question."""

from pathlib import Path

import pytest

from dtbench.base.record import Record
from dtbench.plan.plan import plan_for_check
from dtbench.scenario.load import load_scenario_file
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.scenario.schema.scenario import Fsdp2

_FOLDER = Path(__file__).parents[2] / "scenarios"
_FILES = sorted(_FOLDER.rglob("*.yaml"))
_ON_CPU = (
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
)
_ON_GPUS = ("one_gpu", "eight_gpus", "sixteen_gpus")


def _find(name: str) -> Path:
    return next(path for path in _FILES if path.stem == name)


def test_the_scenarios_that_the_readme_names_are_there() -> None:
    assert {*_ON_CPU, *_ON_GPUS} <= {path.stem for path in _FILES}


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_a_shipped_scenario_asks_a_question_and_has_a_plan(path: Path) -> None:
    first_line = path.read_text(encoding="utf-8").splitlines()[0]
    assert first_line.startswith("# ")
    assert first_line.endswith("?")
    file = load_scenario_file(path)
    assert file.question == first_line.removeprefix("# ")
    for cell in file.cells:
        assert plan_for_check(cell.scenario).ranks >= 1


_CHANGE_NO_RESULT = frozenset(
    {
        *("outputs", "running_statistics", "unused_layers", "sparse_embedding", "compile", "iterations"),
        *("forward_ms", "backward_ms", "slow_rank"),
    }
)
"""Fields of ``model`` and ``data`` that cells may differ in: what is trained is the same function of the same rows.

Iterations of unequal number leave rows out; that is what such cells compare.
"""


def _strip(section: Record) -> Record:
    same = {name: None for name in _CHANGE_NO_RESULT if name in type(section).model_fields}
    return section.model_copy(update=same)


_OF_SEVERAL_MODELS = ("flatten_unflatten",)
"""What they ask is what a model's size or cut changes."""


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_the_cells_of_a_shipped_scenario_train_the_same_model_on_the_same_data(path: Path) -> None:
    scenarios = [cell.scenario for cell in load_scenario_file(path).cells]
    trained = {(_strip(one.model), _strip(one.data), one.seed) for one in scenarios}
    assert (len(trained) == 1) == (path.stem not in _OF_SEVERAL_MODELS)


@pytest.mark.parametrize("name", _ON_CPU)
def test_a_scenario_for_cpus_asks_about_a_link_and_can_be_taken_to_gpus_without_it(name: str) -> None:
    path = _find(name)
    links = {
        network.model_copy(update={"between_nodes": None})
        for cell in load_scenario_file(path).cells
        if isinstance(network := cell.scenario.network, EmulatedNetwork)
    }
    assert len(links) == 1, "cells that have unlike links inside a node cannot be compared"
    assert all(isinstance(cell.scenario.network, EmulatedNetwork) for cell in load_scenario_file(path).cells)
    on_gpus = load_scenario_file(path, ["device=cuda", "network.kind=real"])
    assert {plan_for_check(cell.scenario).backend for cell in on_gpus.cells} == {"nccl"}


def test_what_runs_on_one_node_runs_over_the_same_link() -> None:
    networks = [load_scenario_file(_find(name)).cells[0].scenario.network for name in _ON_CPU]
    links = [network for network in networks if isinstance(network, EmulatedNetwork)]
    assert len({link for link in links if link.between_nodes is None}) == 1


@pytest.mark.parametrize("name", _ON_CPU)
def test_fsdp2_on_cpus_gathers_ahead_in_all_cells_but_that_of_torchs_defaults(name: str) -> None:
    for cell in load_scenario_file(_find(name)).cells:
        parallel = cell.scenario.parallel
        if isinstance(parallel, Fsdp2):
            ahead = (parallel.unshard_async_op, parallel.forward_prefetch)
            assert ahead == ((False, 0) if cell.name == "torch_default" else (True, 1))


def test_no_two_scenarios_have_one_name() -> None:
    assert len({path.stem for path in _FILES}) == len(_FILES)


@pytest.mark.parametrize("name", _ON_CPU)
def test_a_scenario_for_cpus_answers_its_question_and_can_be_wrong(name: str) -> None:
    checklist = load_scenario_file(_find(name)).checklist
    assert checklist.checks
    assert checklist.answer is not None
