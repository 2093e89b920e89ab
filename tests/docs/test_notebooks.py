"""What the stored notebooks show is what they show when they are run."""

import re
from pathlib import Path

import nbformat
import pytest

from tests.docs.notebooks import NOTEBOOKS, outline, show_anew


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


def test_an_outline_knows_no_numbers_but_every_word() -> None:
    def of(text: str) -> list[object]:
        output = nbformat.v4.new_output("stream", name="stdout", text=text)
        return [*outline(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", outputs=[output])]))]

    assert of("3.98e+07 ms, bucket 2") == of("12 ms, bucket 11")
    assert of("12 ms exposed") != of("12 ms hidden")
