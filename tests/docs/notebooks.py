"""The notebooks, stored with what they show: ``python -m tests.docs.notebooks`` runs them all and stores that anew.

A code host shows them without running anything, so what is stored is small: pictures in few colours at a width
that a page has, and words in place of a page that needs a script. ``test_notebooks.py`` runs each one and holds
that what is stored is what it shows today: its structure, since times differ from machine to machine.
"""

import base64
import io
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

ROOT: Final = Path(__file__).parents[2]
NOTEBOOKS: Final = tuple(sorted((ROOT / "notebooks").glob("*.ipynb")))
READ: Final = ("results/example", "results/example_sweep", "tests/traces/recorded")
"""What the notebooks open: a copy of these stands beside each while it runs, and nothing else that lies about."""
_WIDTH: Final = 900
_COLOURS: Final = 64
_TIMEOUT_S: Final = 300
_NUMBER: Final = re.compile(r"-?\b\d+(\.\d+)?(e[-+]\d+)?\b")


def show_anew(path: Path) -> NotebookNode:
    """Return a notebook with what it shows now, run from the top in a place of its own.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell raised.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as name:
        for folder in READ:
            shutil.copytree(ROOT / folder, Path(name) / folder)
        beside = Path(name, "notebooks")
        beside.mkdir()
        NotebookClient(notebook, timeout=_TIMEOUT_S, resources={"metadata": {"path": str(beside)}}).execute()
    for cell in _code_of(notebook):
        cell.metadata = NotebookNode()
        cell.outputs = [_make_small(output) for output in cell.outputs]
    return notebook


def outline(notebook: NotebookNode) -> Iterator[tuple[str, Any]]:
    """Yield what each code cell shows, without its numbers: its source, and of each output kind, media and words."""
    for cell in _code_of(notebook):
        yield "source", cell.source
        for output in cell.outputs:
            words = output.get("text") or output.get("data", {}).get("text/plain", "")
            yield output.output_type, (*sorted(output.get("data", {})), *_NUMBER.sub("#", words).split())


def store(path: Path) -> None:
    """Run a notebook and store it with what it shows."""
    nbformat.write(show_anew(path), path)


def _code_of(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _make_small(output: NotebookNode) -> NotebookNode:
    """Return an output as a code host can show it."""
    shown = output.get("data", {})
    if "<script" in shown.get("text/html", ""):
        del shown["text/html"]
    if "image/png" in shown:
        shown["image/png"] = _shrink(shown["image/png"])
    return output


def _shrink(picture: str) -> str:
    """Return a picture in few colours, no wider than a page; base64 in and out."""
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    image.thumbnail((_WIDTH, _WIDTH), Image.Resampling.LANCZOS)
    written = io.BytesIO()
    image.quantize(_COLOURS, dither=Image.Dither.NONE).save(written, "PNG", optimize=True)
    return base64.b64encode(written.getvalue()).decode()


if __name__ == "__main__":
    for one in NOTEBOOKS:
        store(one)
        sys.stdout.write(f"{one.relative_to(ROOT)}: {one.stat().st_size / 1000:.0f} kB\n")
