"""A pytest plugin: the fixture ``dtbench`` runs scenarios and compares what came of them. ::

    def test_a_step_is_no_slower(dtbench):
        run = dtbench.run("step.yaml", set={"repeat": 4})
        dtbench.compare("baseline.json", run).assert_no_slowdown(max_percent=5)

Where dtbench is installed every session of pytest loads this module, so it imports nothing that pytest has not loaded;
a scenario trains in processes of its own, started by a command as a person types it.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dtbench.report.notebook.compared import ComparisonReport
    from dtbench.report.notebook.loaded import RunReport


@dataclass(frozen=True)
class BenchRun:
    """A run that a test started; a path to its folder, wherever one is asked for."""

    path: Path

    def __fspath__(self) -> str:
        """Return the run's folder."""
        return str(self.path)

    def cell(self, name: str) -> str:
        """Name one of its cells, as ``compare`` takes it."""
        return f"{self.path}:{name}"

    def load(self) -> "RunReport":
        """Return its numbers; raises as ``dtbench.load_run``."""
        import dtbench

        return dtbench.load_run(self.path)


@dataclass(frozen=True)
class Bench:
    """What a test asks of dtbench.

    Attributes:
        results: folder of all runs.
        folder: of the test: scenarios and baselines are looked for there first, then where pytest was started.
    """

    results: Path
    folder: Path

    def run(
        self,
        scenario: str | os.PathLike[str],
        *,
        set: Mapping[str, object] | None = None,  # noqa: A002 - as the command calls it
        cells: Iterable[str] = (),
    ) -> BenchRun:
        """Train a scenario on real ranks; the test fails with the command's own words where that ends badly.

        Args:
            scenario: a file, or the name of one.
            set: fields of the scenario in place of those in the file, ``{"repeat": 4, "model.layers": 2}``.
            cells: only these of its cells; none: all.
        """
        sets = [word for field, value in (set or {}).items() for word in ("--set", f"{field}={spell_value(value)}")]
        only = [word for name in cells for word in ("--cell", name)]
        command = ["run", self._find(scenario), *sets, *only, "--results", str(self.results), "--json"]
        environment = {**os.environ, "NO_COLOR": "1"}
        finished = subprocess.run(
            [sys.executable, "-m", "dtbench", *command], capture_output=True, text=True, env=environment, check=False
        )
        if finished.returncode:
            ended = f"`dtbench {' '.join(command)}` ended with code {finished.returncode}:\n{finished.stderr.strip()}"
            pytest.fail(ended, pytrace=False)
        return BenchRun(Path(json.loads(finished.stdout)["path"]))

    def compare(
        self,
        baseline: str | os.PathLike[str],
        candidate: str | os.PathLike[str],
        *,
        force: bool = False,
        threshold: float = 0.01,
    ) -> "ComparisonReport":
        """Compare two things: runs, cells of one (``run.cell("ddp")``), a baseline's file, traces.

        Arguments and errors as those of ``dtbench.compare``.
        """
        import dtbench

        sides = self._find(baseline), self._find(candidate)
        return dtbench.compare(*sides, results=self.results, force=force, threshold=threshold)

    def _find(self, named: str | os.PathLike[str]) -> str:
        beside = self.folder / named
        return str(beside) if beside.exists() else os.fspath(named)


def spell_value(value: object) -> str:
    """Spell a value as YAML reads it, which wants a point in a number with an exponent.

    >>> spell_value(3e-05), spell_value(None), spell_value([1, "a"]), spell_value("auto")
    ('3.0e-05', 'null', '[1, "a"]', 'auto')
    """
    return value if isinstance(value, str) else re.sub(r"^(-?\d+)e", r"\1.0e", json.dumps(value))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add where runs stay."""
    parser.getgroup("dtbench").addoption(
        "--dtbench-results",
        metavar="FOLDER",
        help="folder in which runs of the fixture `dtbench` stay; left out: each test's own temporary one",
    )


@pytest.fixture(name="dtbench")
def _dtbench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    """Run scenarios with its ``run``, and compare what came of them with its ``compare``."""
    kept = request.config.getoption("--dtbench-results")
    return Bench(tmp_path / "results" if kept is None else Path(kept).absolute(), request.path.parent)
