"""A recipe of ``docs/architecture.md``, followed to the letter in a copy of the repository."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

Steps = Mapping[str, Callable[[str], str]]
"""By the file that a step touches, what it makes of its text; of a file that is not there, of none."""


def insert(text: str, before: str, lines: str) -> str:
    """Put lines before what stands once in a text."""
    assert text.count(before) == 1, before
    return text.replace(before, lines + before)


def follow(folder: Path, steps: Steps, *, without: str | None = None) -> None:
    """Copy the repository and follow a recipe in the copy, but for one step."""
    ignored = shutil.ignore_patterns("__pycache__", "recorded", "torch_facts")
    for name in ("dtbench", "tests", "docs", "scenarios"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored if name == "tests" else None)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name, change in steps.items():
        if name != without:
            path = folder / name
            path.write_text(change(path.read_text(encoding="utf-8") if path.exists() else ""), encoding="utf-8")


def call(folder: Path, module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a module of the copy."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(
        command, cwd=folder, env={**env, "PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False
    )


def call_tests(folder: Path, *files_and_functions: tuple[str, str]) -> subprocess.CompletedProcess[str]:
    """Run functions of files of tests of the copy."""
    files = dict.fromkeys(file for file, _ in files_and_functions)
    functions = " or ".join(dict.fromkeys(function for _, function in files_and_functions))
    return call(folder, "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files, "-k", functions)


def list_touched(folder: Path) -> set[str]:
    """Return the files of a copy that are not as here."""
    files = [path for path in folder.rglob("*") if path.suffix in (".py", ".md", ".json", ".yaml", ".toml")]
    names = [path.relative_to(folder) for path in files]
    return {
        str(name)
        for name in names
        if not (ROOT / name).exists() or (folder / name).read_bytes() != (ROOT / name).read_bytes()
    }


def read_recipe(name: str) -> str:
    """Return what the page says of adding something."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return page.partition(f"* **{name}**")[2].partition("\n* **")[0].partition("\n\n")[0]
