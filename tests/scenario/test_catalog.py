"""Names: where they are looked up, which file wins, and what a broken file does to the list."""

import os
from pathlib import Path

import pytest

from dtbench.base.errors import ScenarioError
from dtbench.scenario import catalog
from dtbench.scenario.catalog import Origin, find_scenario, list_scenarios, open_scenario


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_shipped_scenario_is_found_from_anywhere(elsewhere: Path) -> None:
    assert not (elsewhere / "scenarios").exists()
    assert open_scenario("quickstart").name == "quickstart"


def test_a_wheel_finds_the_files_it_carries(elsewhere: Path, small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = elsewhere / "site-packages" / "dtbench" / "scenario"
    carried = write(package / "shipped" / "carried.yaml", small)
    monkeypatch.setattr(catalog, "__file__", str(package / "catalog.py"))
    assert find_scenario("carried") == carried


def test_an_installation_without_shipped_files_still_lists_ones_own(
    elsewhere: Path, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "__file__", str(elsewhere / "site-packages" / "dtbench" / "scenario" / "catalog.py"))
    write(elsewhere / "scenarios" / "mine.yaml", small)
    assert [listed.entry.name for listed in list_scenarios()] == ["mine"]


def test_ones_own_scenarios_are_found_in_folders_too(elsewhere: Path, small: str) -> None:
    write(elsewhere / "scenarios" / "deep" / "mine.yaml", small)
    assert open_scenario("mine").question == "Does it work?"


def test_ones_own_scenario_wins_and_the_list_says_so(elsewhere: Path, small: str) -> None:
    write(elsewhere / "scenarios" / "quickstart.yaml", small)
    own, shipped = (listed.entry for listed in list_scenarios() if listed.entry.name == "quickstart")
    assert (own.origin, own.hidden_by) == (Origin.OWN, None)
    assert (shipped.origin, shipped.hidden_by) == (Origin.SHIPPED, own.path)
    assert find_scenario("quickstart") == own.path


def test_a_broken_file_is_listed_with_its_error(elsewhere: Path) -> None:
    write(elsewhere / "scenarios" / "broken.yaml", "# Is it broken?\nschema_version: 1\nfoo: 1\n")
    listed = next(listed for listed in list_scenarios() if listed.entry.name == "broken")
    assert listed.question == "Is it broken?"
    assert listed.error is not None
    assert f"{Path('scenarios') / 'broken.yaml'}:3:1" in listed.error


def test_other_and_hidden_files_are_no_scenarios(elsewhere: Path, small: str) -> None:
    for name in ("README.md", ".hidden.yaml", ".git/a.yaml", "notes.txt"):
        write(elsewhere / "scenarios" / name, small)
    assert {listed.entry.origin for listed in list_scenarios()} == {Origin.SHIPPED}


def test_two_files_of_one_name_ask_for_a_path(elsewhere: Path, small: str) -> None:
    write(elsewhere / "scenarios" / "a" / "twin.yaml", small)
    write(elsewhere / "scenarios" / "b" / "twin.yaml", small)
    with pytest.raises(ScenarioError, match=r"`twin` could be .* give the path"):
        find_scenario("twin")


@pytest.mark.parametrize("written", ["mine.yaml", "./mine.yaml", f"sub{os.sep}mine.yml"])
def test_a_path_is_taken_as_it_is(elsewhere: Path, small: str, written: str) -> None:
    write(elsewhere / written, small)
    assert open_scenario(written).name == "mine"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("quikstart", "did you mean `quickstart`\\?\n`dtbench list` shows them all"),
        ("zzz", "No scenario is called `zzz`.\n`dtbench list` shows them all"),
        ("quickstart.yaml", "There is no file `quickstart.yaml`; did you mean the scenario `quickstart`"),
        ("./zzz.yaml", "There is no file `./zzz.yaml`; `dtbench list`"),
        ("", "No scenario is called ``"),
        ("a\0b", "No scenario is called"),
        ("a\0b.yaml", "There is no file"),
        ("x" * 5000 + ".yaml", "There is no file"),
        (".", "No scenario is called"),
        ("./", "this is a folder"),
    ],
)
def test_an_unknown_name_or_path_says_what_to_do(elsewhere: Path, written: str, told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        open_scenario(written)
