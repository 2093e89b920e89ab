"""What a fresh interpreter loads: start-up stays quick because nothing heavy is imported before it is needed."""

import json
import subprocess
import sys

import pytest

_HEAVY = {"torch", "pandas", "numpy", "matplotlib", "scipy", "tensorboard", "pyarrow", "jinja2", "IPython"}


def loaded_by(statement: str) -> set[str]:
    """Give the names of all modules that a statement loads in a new interpreter."""
    tail = "except SystemExit:\n    pass\nprint()\nprint(json.dumps(sorted(sys.modules)))"
    script = f"import sys, json\ntry:\n    {statement}\n{tail}"
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return set(json.loads(finished.stdout.splitlines()[-1]))


def test_importing_dtbench_loads_nothing_but_itself() -> None:
    assert {name for name in loaded_by("import dtbench") if name.startswith("dtbench")} == {"dtbench"}
    assert not loaded_by("import dtbench") & (_HEAVY | {"pydantic", "yaml", "typer", "rich"})


def test_help_loads_neither_numbers_nor_plots_nor_records() -> None:
    loaded = loaded_by("from dtbench.cli.main import main; main(['--help'])")
    assert not loaded & (_HEAVY | {"pydantic", "yaml"})


@pytest.mark.parametrize("arguments", [["list", "--json"], ["check", "quickstart"], ["check", "--help"]])
def test_looking_at_scenarios_loads_nothing_heavy(arguments: list[str]) -> None:
    assert not loaded_by(f"from dtbench.cli.main import main; main({arguments!r})") & _HEAVY


def test_reading_and_planning_scenarios_needs_no_console() -> None:
    loaded = loaded_by("import dtbench.scenario.catalog, dtbench.plan")
    assert not loaded & (_HEAVY | {"typer", "rich"})
