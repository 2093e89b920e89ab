"""A baseline as a file that people commit or cache: what it says, what formatters do to it, and what is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.errors import StoreError
from dtbench.cli.main import main
from dtbench.comparison.reading.baselines import save_baseline
from dtbench.comparison.run import compare_paths
from dtbench.store.read import is_baseline_file

Runs = Callable[..., Path]
Command = Callable[..., tuple[int, str, str]]
FOUR = (100.0, 101.0, 99.0, 100.0)
SLOW = (120.0, 121.0, 119.0, 120.0)


@pytest.fixture
def two_cells(run_of: Runs, cell: Any) -> Path:
    return run_of({"plain": cell(FOUR), "slow": cell(SLOW)})


@pytest.fixture
def saved(two_cells: Path, results: Path, tmp_path: Path) -> Path:
    """Save a baseline in a folder that is not there yet."""
    path = tmp_path / "perf" / "main.json"
    save_baseline("main", f"{two_cells}:plain", results=results, to=path)
    return path


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command; gives exit code, output and errors, each on one line."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main([str(one) for one in arguments])
        printed = capsys.readouterr()
        assert isinstance(caught.value.code, int | None)
        return caught.value.code or 0, " ".join(printed.out.split()), " ".join(printed.err.replace("│", " ").split())

    return run


def test_a_baseline_in_a_file_says_the_same_as_its_run_wherever_it_lies(
    two_cells: Path, results: Path, saved: Path, tmp_path: Path
) -> None:
    before = compare_paths("small:plain", "small:slow", results=results)
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(two_cells, elsewhere / "small" / "run")
    shutil.rmtree(results)
    found = compare_paths(str(saved), f"{elsewhere / 'small' / 'run'}:slow", results=elsewhere)
    assert found.metrics == before.metrics
    assert found.baseline.label == "main"


@pytest.mark.parametrize("indent", [None, 4])
def test_a_formatter_that_sorts_keys_leaves_it_a_baseline(
    results: Path, saved: Path, two_cells: Path, indent: int | None
) -> None:
    document = json.loads(saved.read_text(encoding="utf-8"))
    saved.write_text(json.dumps(document, sort_keys=True, indent=indent), encoding="utf-8")
    assert compare_paths(str(saved), f"{two_cells}:slow", results=results).baseline.label == "main"


def test_what_else_is_json_is_no_baseline(two_cells: Path, tmp_path: Path) -> None:
    assert not is_baseline_file(two_cells / "run.json")
    assert not is_baseline_file(two_cells / "env.json")
    assert not is_baseline_file(tmp_path)
    for place, text in enumerate(("", "{", "[]", '{"traceEvents": []}', '{"schemaVersion": 1, "traceEvents": [')):
        path = tmp_path / f"{place}.json"
        path.write_text(text, encoding="utf-8")
        assert not is_baseline_file(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[: len(text) // 2], r"main\.json: broken .*; was it edited or cut short\?"),
        (lambda text: text.replace('"format_version": 1', '"format_version": 7', 1), "written in format 7"),
        (lambda text: text.replace('"launches"', '"lunches"', 1), r"main\.json: does not hold what it should"),
    ],
    ids=["cut", "version", "edited"],
)
def test_a_broken_file_is_refused_with_its_name(
    two_cells: Path, results: Path, saved: Path, change: Callable[[str], str], said: str
) -> None:
    saved.write_text(change(saved.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(StoreError, match=said):
        compare_paths(str(saved), f"{two_cells}:slow", results=results)


@pytest.mark.usefixtures("two_cells")
def test_the_command_saves_a_file_and_replaces_only_a_baseline_and_only_where_asked(
    command: Command, results: Path, tmp_path: Path
) -> None:
    path = tmp_path / "main.json"
    save = ("baseline", "save", "small", "small:plain", "--results", results, "--to")  # a label, not a name to look up
    code, out, _ = command(*save, path)
    assert code == 0
    assert f"saved 4 launches of plain as {path}" in out
    assert f"dtbench compare {path} <run>" in out
    assert not (results / ".baselines").exists()
    assert command("compare", path, "small:slow", "--results", results, "--fail-if", "step_time > 3%")[0] == 10
    before = path.read_bytes()
    code, _, err = command(*save, path)
    assert (code, path.read_bytes()) == (2, before)
    assert "--replace replaces it" in err
    assert command(*save, path, "--replace")[0] == 0
    other = tmp_path / "trace.json"
    other.write_text('{"traceEvents": []}', encoding="utf-8")
    code, _, err = command(*save, other, "--replace")
    assert (code, other.read_text(encoding="utf-8")) == (2, '{"traceEvents": []}')
    assert "no baseline" in err
    assert "is a JSON file" in command(*save, tmp_path / "main.txt")[2]
    folder = tmp_path / "folder.json"
    folder.mkdir()
    assert "is a folder" in command(*save, folder)[2]
