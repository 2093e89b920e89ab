"""Which cells of a run can be asked: those whose launches tell a host; of the others it is said why not."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dtbench.base.errors import PredictionError
from dtbench.runs.reading.run_data import read_run_data
from dtbench.runs.run import summarize_data
from dtbench.runs.scaling import subjects
from dtbench.runs.scaling.measured import Measured
from dtbench.runs.scaling.subjects import subjects_of_file, subjects_of_run
from dtbench.runs.summary import CellSummary
from dtbench.scenario.catalog import open_scenario

ROOT = Path(__file__).parents[3]


def test_cells_without_a_closed_form_say_why() -> None:
    data = read_run_data(ROOT / "results" / "example")
    found = subjects_of_run(data)
    assert found.found == ()
    assert [*found.refused] == [cell.name for cell in summarize_data(data).cells]
    assert all("has no known cost" in why for why in found.refused.values())
    assert [*subjects_of_run(data, "ddp").refused] == ["ddp"]


def test_each_cell_is_measured_on_the_machine_that_it_ran_on(
    cell: Callable[..., CellSummary], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = cell(284.0)
    assert one.scenario is not None
    asked = []

    def measure(summary: CellSummary, read: Any, cores: int | None) -> Any:
        asked.append((summary.name, read, cores))
        if summary.name == "b":
            raise PredictionError("its steps are not gone by")
        return summary.scenario, SimpleNamespace(torch="2.13.0"), Measured(2, (2e8,), (8e6,), cores=cores)

    named = tuple(one.model_copy(update={"name": name}) for name in "ab")
    monkeypatch.setattr(subjects, "measure_host", measure)
    monkeypatch.setattr(subjects, "summarize_data", lambda _data: SimpleNamespace(cells=named))
    data: Any = SimpleNamespace(cells=("read a", "read b"), environment=SimpleNamespace(cores=16))
    found = subjects_of_run(data)
    assert asked == [("a", "read a", 16), ("b", "read b", 16)]
    (first,) = found.found
    assert (first.name, first.torch, first.measured[0].cores) == ("a", "2.13.0", 16)
    assert found.refused == {"b": "its steps are not gone by"}


def test_of_a_scenario_nothing_was_measured() -> None:
    file = open_scenario("quickstart", ())
    found = subjects_of_file(file)
    assert [one.name for one in found.found] == [one.name for one in file.cells]
    assert all(not one.measured for one in found.found)
