"""What a fresh interpreter loads: start-up stays quick because nothing heavy is imported before it is needed."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

_HEAVY = {"torch", "pandas", "numpy", "matplotlib", "scipy", "tensorboard", "pyarrow", "jinja2", "IPython"}


def loaded_by(statement: str) -> set[str]:
    """Return the names of all modules that a statement loads in a new interpreter."""
    tail = "except SystemExit:\n    pass\nprint()\nprint(json.dumps(sorted(sys.modules)))"
    script = f"import sys, json\ntry:\n    {statement}\n{tail}"
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return set(json.loads(finished.stdout.splitlines()[-1]))


def test_importing_dtbench_loads_its_public_names_and_nothing_else() -> None:
    ours = {name for name in loaded_by("import dtbench") if name.startswith("dtbench")}
    assert ours == {"dtbench", "dtbench.training_model"}
    assert not loaded_by("import dtbench") & (_HEAVY | {"pydantic", "yaml", "typer", "rich"})


def test_help_loads_neither_numbers_nor_plots_nor_records() -> None:
    loaded = loaded_by("from dtbench.cli.main import main; main(['--help'])")
    assert not loaded & (_HEAVY | {"pydantic", "yaml"})


@pytest.mark.parametrize("arguments", [["list", "--json"], ["check", "quickstart"], ["check", "--help"]])
def test_looking_at_scenarios_loads_nothing_heavy(arguments: list[str]) -> None:
    assert not loaded_by(f"from dtbench.cli.main import main; main({arguments!r})") & _HEAVY


@pytest.mark.parametrize(("arguments", "spared"), [(["--json"], {"rich"}), ([], set())], ids=["json", "text"])
def test_accounting_for_traces_loads_numpy_and_nothing_else_that_is_heavy(
    arguments: list[str], spared: set[str]
) -> None:
    trace = Path(__file__).parent / "traces" / "recorded" / "ddp_2ranks_rank0.json.gz"
    loaded = loaded_by(f"from dtbench.cli.main import main; main({['analyze', str(trace), *arguments]!r})")
    assert "numpy" in loaded
    assert not loaded & (_HEAVY - {"numpy"} | {"yaml"} | spared)
    assert not loaded & {
        "dtbench.store.records.run",
        "dtbench.scenario.schema.scenario",
        "dtbench.plan.plan",
        "dtbench.base.record",
    }


@pytest.mark.skipif(
    tuple(map(int, version("typer").split(".")[:2])) >= (0, 29),
    reason="the installed typer is newer than pyproject.toml allows, and loads pydantic itself",
)
def test_accounting_for_traces_makes_no_models_of_scenarios() -> None:
    trace = Path(__file__).parent / "traces" / "recorded" / "ddp_2ranks_rank0.json.gz"
    loaded = loaded_by(f"from dtbench.cli.main import main; main({['analyze', str(trace), '--json']!r})")
    assert not loaded & {"pydantic", "numpy.ma"}


def test_a_command_that_ends_looks_for_no_garbage() -> None:
    script = (
        "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 0));"
        "from dtbench.cli.main import main; main(['list', '--json'])"
    )
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert finished.stdout.splitlines()[-1] == "True"


def test_a_handler_for_a_persons_profiler_loads_no_analysis() -> None:
    loaded = loaded_by("import dtbench, tempfile; dtbench.trace_handler(tempfile.gettempdir())")
    assert not {name for name in loaded if name.startswith(("dtbench.traces", "dtbench.report", "pandas"))}


def test_reading_and_planning_scenarios_needs_no_console() -> None:
    loaded = loaded_by("import dtbench.scenario.catalog, dtbench.plan.plan")
    assert not loaded & (_HEAVY | {"typer", "rich"})


def test_the_tested_torch_is_the_one_that_the_extra_asks_for() -> None:
    import tomllib

    from dtbench.base.torch_versions import is_tested_torch, spell_tested_torch

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"]["run"] == [f"torch{spell_tested_torch()}"]
    assert is_tested_torch("2.13.0+cpu")
    assert not is_tested_torch("2.16.0")
