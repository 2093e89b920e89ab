"""How long a run may take: from its own launches, from an earlier run, and unknown where neither tells."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dtbench.launch.time_left import Earlier, TimeLeft, find_earlier

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


def test_an_earlier_run_foretells_launches_and_what_it_took_beside_them() -> None:
    earlier = Earlier("one", {"a": [10 * S, 20 * S, 12 * S], "b": [40 * S]}, rest_ns=5 * S)
    assert earlier.foretell_ns({"a": 2, "b": 1}) == (5 + 24 + 40) * S
    assert earlier.foretell_ns({"c": 1}) == (5 + 26) * S


@pytest.fixture
def results(tmp_path: Path) -> Path:
    shutil.copytree(RESULTS / "example", tmp_path / "quickstart" / "20260101T000000-aaaa")
    return tmp_path


def change(run: Path, **fields: Any) -> None:
    path = run / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_the_newest_complete_run_with_the_same_overrides_is_the_one(results: Path) -> None:
    first = results / "quickstart" / "20260101T000000-aaaa"
    found = find_earlier(results, "quickstart", ())
    assert found is not None
    assert set(found.launches_ns) == {"ddp", "fsdp2_tp"}
    record = json.loads((first / "run.json").read_text())
    whole_ns = record["ended_unix_ns"] - record["started_unix_ns"]
    assert found.rest_ns + sum(map(sum, found.launches_ns.values())) == whole_ns
    assert find_earlier(results, "quickstart", ("model.layers=2",)) is None
    assert find_earlier(results, "other", ()) is None
    second = results / "quickstart" / "20260102T000000-bbbb"
    shutil.copytree(first, second)
    change(second, status="failed", reason="rank 1 raised")
    found = find_earlier(results, "quickstart", ())
    assert found is not None
    assert found.run_id == record["run_id"]


def test_a_run_that_cannot_be_read_tells_nothing(results: Path) -> None:
    run = results / "quickstart" / "20260101T000000-aaaa"
    (run / "cells" / "ddp" / "launch0" / "launch.json").write_text("{")
    assert find_earlier(results, "quickstart", ()) is None
    (run / "run.json").write_text("{")
    assert find_earlier(results, "quickstart", ()) is None
