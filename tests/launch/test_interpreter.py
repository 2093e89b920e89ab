"""Other interpreters and variables of the ranks: asked before anything runs, and read back by the ranks themselves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench import __version__
from dtbench.base.errors import MissingError
from dtbench.launch.interpreter import probe_interpreter, probe_interpreters
from dtbench.plan.plan import Machine, make_plan
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.records.rank import ReceiptOutcome
from dtbench.store.records.run import CellRecord, Environment


def script(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
    path.chmod(0o755)
    return path


def says(dtbench: str) -> str:
    answer = {"python": "3.12.1", "torch": "2.11.0+cu128", "dtbench": dtbench, "cuda_devices": 0}
    return f"echo '{json.dumps(answer)}'"


def cell(name: str, scenario: Scenario) -> CellRecord:
    plan = make_plan(scenario, Machine(cpu_cores=2, cuda_devices=0))
    return CellRecord(name=name, scenario=scenario, plan=plan, launches=(0,))


def test_an_interpreter_says_what_it_has(tmp_path: Path) -> None:
    found = probe_interpreter(str(script(tmp_path / "python", "echo torch says hello", says(__version__))))
    assert (found.torch, found.dtbench) == ("2.11.0+cu128", __version__)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["echo \"ModuleNotFoundError: No module named 'torch'\" >&2", "exit 1"], "No module named 'torch'"),
        (["exit 3"], "it ended with code 3"),
        (["exit 0"], "cannot run dtbench's worker"),
        ([says("0.0.0")], "has dtbench 0.0.0"),
    ],
)
def test_an_interpreter_that_cannot_run_the_worker_is_refused(tmp_path: Path, lines: list[str], told: str) -> None:
    with pytest.raises(MissingError, match=told):
        probe_interpreter(str(script(tmp_path / "python", *lines)))


def test_every_interpreter_is_asked_once_and_all_that_fail_are_named(
    scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    asked = tmp_path / "asked"
    good = str(script(tmp_path / "good", f"echo x >> {asked}", says(__version__)))
    assert list(probe_interpreters([cell("a", scenario(python=good)), cell("b", scenario(python=good))])) == [good]
    assert asked.read_text(encoding="utf-8") == "x\n"
    missing = str(tmp_path / "missing")
    cells = [
        cell("a", scenario()),
        cell("b", scenario(python=good)),
        cell("c", scenario(python=missing)),
        cell("d", scenario(python=missing)),
        cell("e", scenario(python=str(script(tmp_path / "old", says("0.0.0"))))),
    ]
    with pytest.raises(MissingError) as caught:
        probe_interpreters(cells)
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"cell c and 1 more: python: {missing} cannot be started (No such file or directory)")
    assert second.startswith("cell e: ")


def test_an_interpreter_whose_torch_lacks_what_a_cell_asks_for_is_refused(
    scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    python = str(script(tmp_path / "python", says(__version__)))
    parallel = {"kind": "fsdp2", "shards": 2, "separate_reduce_scatter_group": True}
    cells = [cell("plain", scenario(python=python)), cell("apart", scenario(python=python, parallel=parallel))]
    with pytest.raises(MissingError) as caught:
        probe_interpreters(cells)
    assert str(caught.value) == (
        f"cell apart: python: {python}: parallel.separate_reduce_scatter_group needs torch 2.13 or newer, "
        "and this is 2.11.0+cu128; leave it out, or use a newer torch"
    )


@pytest.mark.ranks
@pytest.mark.thorough
def test_the_ranks_say_which_interpreter_and_variables_they_had(
    launch_fresh: Callable[..., Any], scenario: Callable[..., Scenario], other_python: Path
) -> None:
    pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")
    probe_interpreter(str(other_python))
    wanted = {"TORCH_SHOW_CPP_STACKTRACES": "1", "OMP_NUM_THREADS": "2"}
    launched = launch_fresh(scenario(python=str(other_python), env=wanted))
    receipts = {receipt.knob: receipt for receipt in launched.rank().receipts}
    assert receipts["python"].got == str(other_python)
    assert receipts["env.OMP_NUM_THREADS"].got == "2"
    names = ("python", "env.OMP_NUM_THREADS", "env.TORCH_SHOW_CPP_STACKTRACES")
    assert {receipts[name].outcome for name in names} == {ReceiptOutcome.AGREES}
    environment = Environment.model_validate_json(launched.folder.environment.read_bytes())
    assert environment.variables["TORCH_SHOW_CPP_STACKTRACES"] == "1"
    assert launched.correctness.passed
