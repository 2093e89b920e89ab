"""A rank's record of each format: today's, and the one in which what extras found out lay among all else.

``recorded/rank_format_1.json`` is of rank 0 of a run of two ranks under DDP that asked for every extra, written by the
last version that wrote format 1; host and place are left out, and of long lists all but the first.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.errors import StoreError
from dtbench.store.layout import LaunchFolder
from dtbench.store.read import read_rank_records
from dtbench.store.records.canary import CanaryResult
from dtbench.store.records.extras import RankExtras
from dtbench.store.records.outline import refuse_wrong_results
from dtbench.store.records.rank import RankRecord
from dtbench.store.write import write_record

FORMAT_1 = Path(__file__).parent / "recorded" / "rank_format_1.json"
EXTRAS = {"arms", "probes", "lived", "stages", "state_steps", "state_taken_fraction", "canary"}


def read_format_1() -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(FORMAT_1.read_text(encoding="utf-8"))
    return fields


def read_back(folder: Path, fields: dict[str, Any]) -> tuple[LaunchFolder, RankRecord]:
    launch = LaunchFolder(folder)
    launch.rank_record(0).parent.mkdir(parents=True, exist_ok=True)
    launch.rank_record(0).write_text(json.dumps(fields), encoding="utf-8")
    (record,) = read_rank_records(launch)
    return launch, record


def test_a_record_of_format_1_says_what_it_said(tmp_path: Path) -> None:
    written = read_format_1()
    _, record = read_back(tmp_path, written)
    told = json.loads(record.model_dump_json())
    extras = told.pop("extras")
    kept = [{**stage, "memory": {**stage["memory"], "is_host_peak_kept": False}} for stage in written["stages"]]
    assert told == {**{name: value for name, value in written.items() if name not in EXTRAS}, "format_version": 2}
    assert extras == {
        "exposure": written["arms"],
        "lifecycle": {"calls": written["lived"]},
        "state_dict": {
            "stages": kept,
            "steps": written["state_steps"],
            "taken_fraction": written["state_taken_fraction"],
        },
        "probes": written["probes"],
        "canary": written["canary"],
    }
    assert None not in extras.values()


def test_a_record_of_format_1_that_nobody_asked_for_more_has_no_extras(tmp_path: Path) -> None:
    without = {name: value for name, value in read_format_1().items() if name not in EXTRAS}
    empty: dict[str, Any] = {
        "arms": None,
        "probes": None,
        "lived": [],
        "stages": [],
        "state_steps": None,
        "canary": None,
    }
    for fields in (without, {**without, **empty}):
        _, record = read_back(tmp_path, fields)
        assert record.extras == RankExtras()
        assert record.extras.stages == ()


def test_a_record_is_written_in_todays_format_and_read_back(tmp_path: Path) -> None:
    launch, record = read_back(tmp_path, read_format_1())
    write_record(launch.rank_record(0), record)
    assert read_rank_records(launch) == (record,)
    assert json.loads(launch.rank_record(0).read_bytes())["format_version"] == 2


@pytest.mark.parametrize(("version", "why"), [(3, "written in format 3, this dtbench reads 2"), (0, "in format 0")])
def test_a_record_of_another_format_is_refused(tmp_path: Path, version: int, why: str) -> None:
    with pytest.raises(StoreError, match=why):
        read_back(tmp_path, {**read_format_1(), "format_version": version})
    with pytest.raises(StoreError, match=why):
        refuse_wrong_results(LaunchFolder(tmp_path), 1)


@pytest.mark.parametrize("changes", [{"arms": 3}, {"lived": [{"call": "pickle"}]}, {"stages": {"shard": 1}}])
def test_a_record_of_format_1_that_holds_something_else_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(StoreError, match="does not hold what it should, extras"):
        read_back(tmp_path, {**read_format_1(), **changes})


def test_a_table_over_many_runs_knows_a_failed_canary_of_either_format(tmp_path: Path) -> None:
    written = {**read_format_1(), "state_steps": None}
    launch, record = read_back(tmp_path, written)
    refuse_wrong_results(launch, 1)
    assert record.extras.canary is not None
    failed: CanaryResult = record.extras.canary.model_copy(update={"passed": False})
    older = {**written, "canary": json.loads(failed.model_dump_json())}
    newer = record.model_copy(update={"extras": record.extras.model_copy(update={"canary": failed})})
    for fields in (older, json.loads(newer.model_dump_json())):
        read_back(tmp_path, fields)
        with pytest.raises(StoreError, match="reads a collective's result before it is done"):
            refuse_wrong_results(launch, 1)


def test_a_table_over_many_runs_knows_a_wrong_training_state_of_either_format(tmp_path: Path) -> None:
    """Steps show in the saves of the recorded one; whether a stage may raise, or spoil keys, its scenario says."""
    launch, record = read_back(tmp_path, read_format_1())
    newer = json.loads(record.model_dump_json())
    for fields in (read_format_1(), newer):
        read_back(tmp_path, fields)
        with pytest.raises(StoreError, match="its training state is not what it should be"):
            refuse_wrong_results(launch, 1)
    state = newer["extras"]["state_dict"]
    state["steps"] = None
    for change, is_odd in (
        ({}, False),
        ({"mismatched": "NaN"}, False),
        ({"mismatched": 1}, True),
        ({"raised": "no"}, True),
    ):
        state["stages"][0] |= {"mismatched": 0, "raised": None, **change}
        for fields in (newer, {**read_format_1(), "state_steps": None, "stages": state["stages"]}):
            read_back(tmp_path, fields)
            assert refuse_wrong_results(launch, 1).has_odd_stage is is_odd
