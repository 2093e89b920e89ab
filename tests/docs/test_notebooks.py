"""What the stored notebooks show is what they show when they are run."""

import re
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest

import dtbench
from tests.copied_runs import give_own
from tests.docs.notebooks import NOTEBOOKS, ROOT, outline, show_anew


def name_of(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_what_is_stored_is_what_it_shows(path: Path) -> None:
    stored = nbformat.read(path, as_version=4)
    assert list(outline(stored)) == list(outline(show_anew(path))), "store it anew: python -m tests.docs.notebooks"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_what_is_stored_is_small_and_of_no_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text) < 400_000
    assert not re.search(r"/(tmp|home|root|work|Users)/|<script", text)


def test_every_cell_of_code_has_run_in_order_and_shows_something() -> None:
    for path in NOTEBOOKS:
        code = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)], path.name
        assert all(cell.outputs for cell in code), path.name
        assert not any(output.output_type == "error" for cell in code for output in cell.outputs), path.name


def test_every_notebook_ends_with_what_to_change() -> None:
    for path in NOTEBOOKS:
        titles = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.source.startswith("## ")]
        assert titles[-1].startswith("## Now change this\n"), path.name


def test_the_quickstart_means_over_no_runs_of_other_knobs(tmp_path: Path) -> None:
    """Where a user has runs of the same scenario, each is a row, and the knob that they differ in a column."""
    for run, size in (("20270101T000000-0000", 4.0), ("20270101T000001-0001", 25.0)):
        shutil.copytree(ROOT / "results" / "example", tmp_path / "results" / "quickstart" / run)
        give_own(tmp_path / "results" / "quickstart" / run, size)
    (cell,) = (
        cell.source
        for cell in nbformat.read(ROOT / "notebooks" / "quickstart.ipynb", as_version=4).cells
        if cell.cell_type == "code" and "load_runs(" in cell.source
    )
    *lines, last = cell.replace("../results", str(tmp_path / "results")).splitlines()
    names: dict[str, Any] = {"dtbench": dtbench}
    exec("\n".join([*lines, f"shown = {last}"]), names)
    assert len(names["shown"]) == 4
    assert set(names["steps"]["parallel.bucket_cap_mb"].dropna()) == {"4", "25"}


def test_an_outline_knows_no_numbers_but_every_word() -> None:
    def of(text: str) -> list[object]:
        output = nbformat.v4.new_output("stream", name="stdout", text=text)
        return [*outline(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", outputs=[output])]))]

    assert of("3.98e+07 ms, bucket 2") == of("12 ms, bucket 11")
    assert of("12 ms exposed") != of("12 ms hidden")
