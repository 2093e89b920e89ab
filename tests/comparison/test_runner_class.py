"""Two hosts are compared by what they are, or by the class that a person gave them; their names decide nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.errors import ComparisonError
from dtbench.comparison.comparison import Comparison
from dtbench.comparison.gate import Kept, judge, read_bound
from dtbench.comparison.reading.baselines import save_baseline
from dtbench.comparison.run import compare_paths
from dtbench.report.page.comparison_page import comparison_tables
from dtbench.store.records.run import Environment

Runs = Callable[..., Path]
FOUR = (100.0, 101.0, 99.0, 100.0)
SLOW = (120.0, 121.0, 119.0, 120.0)

Between = Callable[[dict[str, Any], dict[str, Any]], Comparison]


@pytest.fixture
def between(run_of: Runs, cell: Any, results: Path, environment: Environment, tmp_path: Path) -> Between:
    """Compare a baseline's file of one host with a run on another; what each is, beside its name."""

    def compare(first: dict[str, Any], second: dict[str, Any]) -> Comparison:
        one = environment.model_copy(update={"host": "runner-7f3a", **first})
        other = environment.model_copy(update={"host": "runner-c01d", **second})
        run_of({"only": cell(FOUR, environment=one)}, run_id="20260101T120000Z-aaaa")
        run_of({"only": cell(SLOW, environment=other)}, run_id="20260102T120000Z-bbbb")
        saved = tmp_path / "main.json"
        save_baseline("main", "20260101T120000Z-aaaa", results=results, to=saved)
        return compare_paths(str(saved), "20260102T120000Z-bbbb", results=results)

    return compare


def test_two_hosts_that_are_alike_are_compared_whatever_they_are_called(between: Between) -> None:
    found = between({"system": "Linux-6.8.0-1021-azure"}, {"system": "Linux-6.8.0-1027-azure"})
    assert [(one.what, one.why) for one in found.environment] == [("host", ""), ("system", "")]
    assert judge(read_bound("step_time > 3%"), found).kept is Kept.EXCEEDED


def test_two_hosts_of_unlike_processors_are_refused(between: Between) -> None:
    with pytest.raises(ComparisonError, match="processor AMD EPYC against Xeon"):
        between({}, {"processor": "Xeon"})


def test_two_hosts_of_one_runner_class_are_compared_and_what_it_stands_for_is_said(between: Between) -> None:
    found = between({"runner_class": "perf"}, {"runner_class": "perf", "processor": "Xeon"})
    said = "both ran on runner class `perf`, so these count as alike, and a difference may be theirs: "
    assert f"{said}processor AMD EPYC against Xeon" in found.notes
    (table,) = [one for one in comparison_tables(found) if one.key == "environment"]
    assert [row[:4] for row in table.words] == [
        ("host", "runner-7f3a", "runner-c01d", "does not matter"),
        ("processor", "AMD EPYC", "Xeon", "within the runner class"),
    ]


def test_two_hosts_of_two_runner_classes_are_refused_though_they_look_alike(between: Between) -> None:
    with pytest.raises(ComparisonError, match="runner class perf against perf-2"):
        between({"runner_class": "perf"}, {"runner_class": "perf-2"})
