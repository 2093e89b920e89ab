"""How long a run may take: from its own launches, from an earlier run, and unknown where neither tells."""

import json
import platform
import shutil
from pathlib import Path
from typing import Any

import pytest

from dtbench.launch.time_left import Earlier, TimeLeft, find_earlier
from dtbench.machine.processes import count_cores, name_processor
from dtbench.scenario.catalog import open_scenario
from dtbench.scenario.schema.scenario import Scenario

RESULTS = Path(__file__).parents[2] / "results"
S = 1_000_000_000


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def plan(*launches: tuple[str, int], **known_s: int) -> tuple[TimeLeft, Clock]:
    clock = Clock()
    return TimeLeft(launches, {cell: [seconds * S] for cell, seconds in known_s.items()}, clock), clock


def test_what_is_left_is_the_rest_of_this_launch_and_all_that_follow() -> None:
    left, clock = plan(("a", 0), ("b", 0), ("b", 1), a=10, b=40)
    assert left.left_ns() == 90 * S
    left.begin(("a", 0))
    clock.now_ns = 4 * S
    assert left.left_ns() == 86 * S
    clock.now_ns = 15 * S
    assert left.left_ns() == 80 * S  # late: the others are as long as before
    left.begin(("b", 0))
    assert left.left_ns() == 80 * S


def test_a_launch_of_this_run_tells_more_than_an_earlier_run() -> None:
    left, clock = plan(("a", 0), ("a", 1), a=10)
    left.begin(("a", 0))
    clock.now_ns = 30 * S
    left.begin(("a", 1))
    assert left.left_ns() == 30 * S


def test_of_cells_that_never_ran_the_others_tell_and_where_none_did_nothing_is_said() -> None:
    left, clock = plan(("a", 0), ("b", 0))
    assert left.left_ns() is None
    left.begin(("a", 0))
    assert left.left_ns() is None
    clock.now_ns = 20 * S
    left.begin(("b", 0))
    assert left.left_ns() == 20 * S


def test_cells_whose_time_is_that_of_others_are_named() -> None:
    left, clock = plan(("a", 0), ("b", 0), ("c", 0), ("a", 1), c=5)
    left.begin(("a", 0))
    assert left.find_guessed() == ["a", "b"]
    clock.now_ns = 20 * S
    left.begin(("b", 0))
    assert left.find_guessed() == ["b"]
    left.begin(("c", 0))
    assert left.find_guessed() == []


def test_an_earlier_run_foretells_launches_of_its_cells_and_what_it_took_beside_them() -> None:
    earlier = Earlier("one", {"a": [10 * S, 20 * S, 12 * S], "b": [40 * S]}, rest_ns=5 * S)
    assert earlier.foretell_ns({"a": 2, "b": 1}) == (5 + 24 + 40) * S
    assert earlier.find_unknown({"a": 2, "b": 1}) == []
    assert earlier.foretell_ns({"b": 1, "c": 3}) == (5 + 40) * S
    assert earlier.find_unknown({"b": 1, "c": 3}) == ["c"]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    run = tmp_path / "quickstart" / "20260101T000000-aaaa"
    shutil.copytree(RESULTS / "example", run)
    change(run / "env.json", processor=name_processor(), cores=count_cores())
    return tmp_path


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def cells_of(*overrides: str, only: tuple[str, ...] = ()) -> dict[str, Scenario]:
    return {cell.name: cell.scenario for cell in open_scenario("quickstart", list(overrides), only).cells}


def test_the_newest_complete_run_of_the_same_cells_is_the_one(results: Path) -> None:
    first = results / "quickstart" / "20260101T000000-aaaa"
    found = find_earlier(results, "quickstart", cells_of())
    assert found is not None
    assert set(found.launches_ns) == {"ddp", "fsdp2_tp"}
    record = json.loads((first / "run.json").read_text())
    whole_ns = record["ended_unix_ns"] - record["started_unix_ns"]
    assert found.rest_ns + sum(map(sum, found.launches_ns.values())) == whole_ns
    assert find_earlier(results, "other", cells_of()) is None
    second = results / "quickstart" / "20260102T000000-bbbb"
    shutil.copytree(first, second)
    change(second / "run.json", status="failed", reason="rank 1 raised")
    assert find_earlier(results, "quickstart", cells_of()) == found


@pytest.mark.parametrize(
    ("override", "is_same"),
    [("repeat=4", True), ("measure.measured_steps=800", False), ("cells.ddp.model.layers=48", False)],
)
def test_a_run_of_other_scenarios_tells_nothing_whether_it_was_set_or_edited(
    results: Path, override: str, *, is_same: bool
) -> None:
    assert (find_earlier(results, "quickstart", cells_of(override)) is not None) is is_same


def test_a_run_on_another_machine_tells_nothing_and_one_on_gpus_only_of_the_same(results: Path) -> None:
    run = results / "quickstart" / "20260101T000000-aaaa"
    record = json.loads((run / "run.json").read_text())
    for cell in record["cells"]:
        cell["plan"]["device"] = "cuda"
    change(run / "run.json", cells=record["cells"])
    change(run / "env.json", host="elsewhere")
    assert find_earlier(results, "quickstart", cells_of()) is None
    change(run / "env.json", host=platform.node())
    assert find_earlier(results, "quickstart", cells_of()) is not None
    for other in ({"cores": count_cores() + 1}, {"cores": count_cores(), "processor": "another"}):
        change(run / "env.json", **other)
        assert find_earlier(results, "quickstart", cells_of()) is None


def test_a_run_of_some_cells_tells_of_these_and_one_of_more_is_said_to_be(results: Path) -> None:
    whole = find_earlier(results, "quickstart", cells_of(only=("ddp",)))
    assert whole is not None
    assert (list(whole.launches_ns), list(whole.other_cells)) == (["ddp"], ["fsdp2_tp"])
    first, second = (results / "quickstart" / name for name in ("20260101T000000-aaaa", "20260102T000000-bbbb"))
    shutil.copytree(first, second)
    cells = json.loads((first / "run.json").read_text())["cells"]
    change(second / "run.json", run_id="20260102T000000-bbbb", cells=cells[:1], only=["ddp"], checklist={})
    found = find_earlier(results, "quickstart", cells_of())
    assert found is not None
    assert list(found.launches_ns) == ["ddp", "fsdp2_tp"]  # the older, which has all
    shutil.rmtree(first)
    some = find_earlier(results, "quickstart", cells_of())
    assert some is not None
    assert some.find_unknown({"ddp": 1, "fsdp2_tp": 1}) == ["fsdp2_tp"]


def test_a_run_that_cannot_be_read_tells_nothing(results: Path) -> None:
    run = results / "quickstart" / "20260101T000000-aaaa"
    (run / "cells" / "ddp" / "launch0" / "launch.json").write_text("{")
    assert find_earlier(results, "quickstart", cells_of()) is None
    (run / "run.json").write_text("{")
    assert find_earlier(results, "quickstart", cells_of()) is None
