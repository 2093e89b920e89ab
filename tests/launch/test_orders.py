"""What ranks are told of where a person's code lies."""

from dataclasses import replace
from pathlib import Path

import pytest

from dtbench.launch.cells import plan_cells
from dtbench.launch.orders import make_order, say_code
from dtbench.plan.plan import Machine
from dtbench.scenario.catalog import open_scenario
from dtbench.store.layout import LaunchFolder

MACHINE = Machine(cpu_cores=4, cuda_devices=0)


def test_the_commit_of_the_code_is_that_beside_the_scenario_unless_that_is_dtbenchs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = open_scenario("quickstart")
    order = make_order(plan_cells(shipped, MACHINE)[0], 0, LaunchFolder(tmp_path), None)
    own = tmp_path / "mine"
    assert say_code(order, shipped).code_folder == str(Path.cwd())
    assert say_code(order, replace(shipped, folder=own)).code_folder == str(own)
    assert say_code(order, replace(shipped, folder=None)).code_folder == str(Path.cwd())
    assert say_code(order, shipped).import_folders == (), "only a model of one's own is looked for"
