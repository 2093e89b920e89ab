"""``dtbench report``: which run is meant, and what is printed."""

from pathlib import Path

import pytest

from dtbench.base.errors import StoreError
from dtbench.store.find_run import find_run


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for name in ("small/20260101T120000Z-aaaa", "small/20260103T120000Z-cccc", "big/20260102T120000Z-bbbb"):
        (tmp_path / "results" / name).mkdir(parents=True)
        (tmp_path / "results" / name / "scenario.yaml").touch()
    (tmp_path / "results" / "small" / "20260104T120000Z-no-run").mkdir()
    return tmp_path / "results"


def test_the_latest_run_of_all_is_meant_by_nothing(results: Path) -> None:
    assert find_run(None, results) == results / "small" / "20260103T120000Z-cccc"


def test_a_scenarios_name_means_its_latest_run(results: Path) -> None:
    assert find_run("big", results) == results / "big" / "20260102T120000Z-bbbb"


def test_a_run_is_found_by_its_id_and_by_its_path(results: Path) -> None:
    run = results / "small" / "20260101T120000Z-aaaa"
    assert find_run("20260101T120000Z-aaaa", results) == run
    assert find_run("small/20260101T120000Z-aaaa", results) == run
    assert find_run(str(run), results) == run


def test_a_folder_that_is_no_run_is_not_taken_for_one(results: Path) -> None:
    with pytest.raises(StoreError, match="No run is called"):
        find_run("20260104T120000Z-no-run", results)


@pytest.mark.parametrize("named", ["/tmp/nope/traces", "traces/of/mine", "rank0.json.gz"])
def test_a_path_that_is_not_there_is_no_runs_name(results: Path, named: str) -> None:
    with pytest.raises(StoreError, match=f"^`{named}`: there is no such file or folder"):
        find_run(named, results)


def test_no_runs_at_all_says_how_to_make_one(tmp_path: Path) -> None:
    for named in (None, "small"):
        with pytest.raises(StoreError, match="no runs here; start one with `dtbench run"):
            find_run(named, tmp_path)
    with pytest.raises(StoreError, match="No file or folder is called `small`"):
        find_run("small", tmp_path)


def test_a_folder_of_an_archive_is_told_which_one_to_give(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "job.tar.gz").touch()
    with pytest.raises(StoreError, match=r"holds neither a run nor traces, but archives: give one of them, say .*job"):
        find_run(str(tmp_path / "traces"), tmp_path / "results")
