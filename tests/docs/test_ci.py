"""The action of ``.github/actions/dtbench`` step by step, as a runner takes it, and the workflows of ``docs/ci.md``."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from xml.etree.ElementTree import parse

import pytest
import yaml

from dtbench.base import errors
from dtbench.cli.main import main
from tests.comparison.conftest import FakeCell, make_run
from tests.docs.followed import ROOT

ACTION: Final = yaml.safe_load((ROOT / ".github" / "actions" / "dtbench" / "action.yml").read_text(encoding="utf-8"))
PAGE: Final = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
BLOCKS: Final = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]

FOUR: Final = (100.0, 101.0, 99.0, 100.0)
SLOW: Final = (120.0, 121.0, 119.0, 120.0)
TINY: Final = """\
# Is a step with eight layers longer than one with two?
schema_version: 1
device: cpu
model: {kind: transformer, layers: 2, dim: 64, heads: 4, kv_heads: 2, ffn_dim: 96, vocab_size: 250}
data: {global_batch: 4, sequence_length: 32}
optimizer: {kind: sgd}
correctness: {enabled: false}
measure: {warmup: {min_steps: 8, max_steps: 8}, measured_steps: 4, profiled_steps: 1}
parallel: {kind: ddp, replicas: 2}
cells:
  base: {}
  candidate: {model: {layers: 8}}
"""


@dataclass
class Runner:
    """A folder in which steps of the action run one after another, as GitHub's runner runs them.

    Attributes:
        outputs: of each step that ran, by its id.
    """

    folder: Path
    given: Mapping[str, str]
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)

    def take(self, step_id: str, **outputs: str) -> None:
        """Leave a step out that others have run; these are its outputs."""
        self.outputs[step_id] = outputs

    def run(self, step_id: str) -> subprocess.CompletedProcess[str]:
        """Run a step in a bash that is started as the runner starts one."""
        (step,) = [one for one in ACTION["runs"]["steps"] if one["id"] == step_id]
        assert step["shell"] == "bash"
        script, told = self.folder / f"{step_id}.sh", self.folder / f"{step_id}.out"
        script.write_text(step["run"], encoding="utf-8")
        told.touch()
        named = {name: self._fill(value) for name, value in step["env"].items()}
        places = {"GITHUB_OUTPUT": told, "GITHUB_STEP_SUMMARY": self.summary, "RUNNER_TEMP": self.folder / "temp"}
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        variables = {**os.environ, **named, **{name: str(place) for name, place in places.items()}, "PATH": path}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        finished = subprocess.run(
            command, cwd=self.folder, env=variables, capture_output=True, text=True, timeout=300, check=False
        )
        lines = told.read_text(encoding="utf-8").splitlines()
        self.outputs[step_id] = dict(line.split("=", 1) for line in lines)
        return finished

    @property
    def summary(self) -> Path:
        """What is shown on the page of the job."""
        return self.folder / "summary.md"

    def _fill(self, value: str) -> str:
        def find(match: re.Match[str]) -> str:
            match match[1].split("."):
                case ["inputs", name]:
                    return self.given.get(name, str(ACTION["inputs"][name].get("default", "")))
                case ["steps", step, "outputs", name]:
                    return self.outputs[step].get(name, "")
            raise AssertionError(match[0])

        return re.sub(r"\$\{\{ (\S+) \}\}", find, value)


Start = Callable[..., Runner]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start a runner with inputs, in a clean folder where ``dtbench`` and ``python`` are this interpreter's."""
    folder = tmp_path / "work space"
    for name in ("bin", "temp"):
        (folder / name).mkdir(parents=True)
    for name, words in (("python", ""), ("dtbench", "-m dtbench ")):
        path = folder / "bin" / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n', encoding="utf-8")
        path.chmod(0o755)

    def make(**given: str) -> Runner:
        return Runner(folder, {name.replace("_", "-"): value for name, value in given.items()})

    return make


def make_results(runner: Runner) -> Path:
    """Write a run of two cells as ranks would have left it, in place of the first step."""
    cells = {"plain": FakeCell(FOUR), "slow": FakeCell(SLOW)}
    run = make_run(runner.folder / "results", "small", "20260101T120000Z-aaaa", cells)
    runner.take("run", run=str(run))
    return run


@pytest.mark.quick("exceeded")
@pytest.mark.parametrize(
    ("bounds", "unestablished", "code"),
    [
        pytest.param("step_time > 5%", "false", 10, id="exceeded"),
        ("step_time > 90%\n\n  \nmechanism changed\n", "false", 0),
        ("step_time > 20%", "false", 11),
        ("step_time > 20%", "true", 0),
        ("", "false", 0),
    ],
)
def test_cells_of_one_run_are_compared_and_the_summary_and_the_outputs_tell_it(
    start: Start, bounds: str, unestablished: str, code: int
) -> None:
    runner = start(bounds=bounds, pass_unestablished=unestablished)
    make_results(runner)
    finished = runner.run("compare")
    assert finished.returncode == code, finished.stderr
    assert "slow is 20.0 % slower than plain" in runner.summary.read_text(encoding="utf-8")
    outputs = runner.outputs["compare"]
    assert outputs["code"] == str(code)
    assert Path(outputs["markdown"]).read_text(encoding="utf-8") == runner.summary.read_text(encoding="utf-8")
    asked = [one for one in bounds.splitlines() if one.strip()]
    assert [case.attrib["name"] for case in parse(outputs["junit"]).iter("testcase")] == (asked or ["compared"])


def save(runner: Runner, run: Path, name: str) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["baseline", "save", "main", f"{run}:plain", "--to", str(runner.folder / name)])


def test_a_run_is_compared_with_the_file_of_a_baseline(start: Start) -> None:
    runner = start(baseline="the main.json", cell="slow")
    save(runner, make_results(runner), "the main.json")
    assert runner.run("compare").returncode == 10
    assert "is 20.0 % slower than main" in runner.summary.read_text(encoding="utf-8")


def test_where_there_is_no_baseline_yet_nothing_is_compared_and_nothing_fails(start: Start) -> None:
    runner = start(baseline="main.json", cell="slow")
    make_results(runner)
    assert runner.run("compare").returncode == 0
    assert "no baseline `main.json` yet" in runner.summary.read_text(encoding="utf-8")
    assert runner.outputs["compare"] == {}


def test_what_cannot_be_compared_is_said_in_the_summary(start: Start) -> None:
    runner = start(baseline="main.json", cell="slow")
    make_results(runner)
    (runner.folder / "main.json").write_text('{"format_version": 1, "labels": ["ma', encoding="utf-8")
    finished = runner.run("compare")
    assert finished.returncode == 6
    assert "was it edited or cut short?" in finished.stderr
    assert "was it edited or cut short?" in " ".join(runner.summary.read_text(encoding="utf-8").split())


@pytest.mark.ranks
@pytest.mark.thorough
def test_a_tiny_scenario_runs_step_by_step_and_a_single_launch_decides_nothing(start: Start) -> None:
    pytest.importorskip("torch", reason="ranks train with torch; install the extra `run`")
    runner = start(scenario="tiny.yaml")
    (runner.folder / "tiny.yaml").write_text(TINY, encoding="utf-8")
    ran = runner.run("run")
    assert ran.returncode == 0, ran.stderr
    assert Path(runner.outputs["run"]["run"]).parent == runner.folder / "results" / "tiny"
    compared = runner.run("compare")
    said = {11: "1 against 1 launches are too few", 9: "others took the cores"}  # as they do where tests run beside it
    assert said[compared.returncode] in compared.stderr
    assert said[compared.returncode] in runner.summary.read_text(encoding="utf-8")


def test_a_scenario_that_cannot_run_ends_the_first_step_with_its_code(start: Start) -> None:
    runner = start(scenario="no_such_scenario")
    ran = runner.run("run")
    assert ran.returncode == 2, ran.stderr
    assert "ended with code 2" in runner.summary.read_text(encoding="utf-8")


@pytest.mark.ranks
@pytest.mark.timed
@pytest.mark.thorough
def test_base_and_candidate_of_two_interpreters_take_turns_and_the_slower_one_exceeds(start: Start) -> None:
    pytest.importorskip("torch", reason="ranks train with torch; install the extra `run`")
    runner = start(scenario="tiny.yaml")
    for side in ("base", "candidate"):
        link_environment(runner.folder / f"venv-{side}")
    text = TINY.replace("base: {}", "base: {python: venv-base/bin/python}").replace(
        "candidate: {", "candidate: {python: venv-candidate/bin/python, "
    )
    (runner.folder / "tiny.yaml").write_text(f"{text}repeat: 4\n", encoding="utf-8")
    ran = runner.run("run")
    assert ran.returncode == 0, ran.stderr
    compared = runner.run("compare")
    assert compared.returncode == 10, compared.stderr
    assert "candidate against base: EXCEEDED" in compared.stderr


def link_environment(folder: Path) -> None:
    """Make a second path to this interpreter's environment, which counts as another interpreter."""
    if sys.prefix == sys.base_prefix:
        pytest.skip("this interpreter is in no environment of its own")
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (folder / "lib").symlink_to(Path(sys.prefix) / "lib")
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", folder)


def find_steps(block: Any) -> list[dict[str, Any]]:
    jobs = block.get("jobs", {}).values() if isinstance(block, dict) else []
    return [step for job in jobs for step in job["steps"]]


def test_workflows_of_the_page_give_the_action_inputs_that_it_has() -> None:
    used = [step for block in BLOCKS for step in find_steps(block) if "actions/dtbench" in step.get("uses", "")]
    assert len(used) >= 3
    for step in used:
        assert {"scenario"} <= set(step["with"]) <= set(ACTION["inputs"])
    named = set(re.findall(r"steps\.\w+\.outputs\.([\w-]+)", PAGE)) - {"cache-hit"}
    assert named <= set(ACTION["outputs"])


def test_the_page_tells_every_exit_code_of_a_comparison() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| (.*?) \|", PAGE, re.MULTILINE))
    told = (errors.TraceError, errors.StoreError, errors.CheckError, errors.ComparisonError)
    for error in (*told, errors.LaunchError, errors.GateError, errors.UndecidedError, errors.ScenarioError):
        assert rows[str(error.exit_code)]


def test_scripts_of_the_page_are_bash_and_their_commands_are_dtbenchs() -> None:
    verbs = {"run", "compare", "baseline", "report", "check"}
    scripts = [str(step["run"]) for block in BLOCKS for step in find_steps(block) if "run" in step]
    scripts += [
        "\n".join(job["script"])
        for block in BLOCKS
        if isinstance(block, dict)
        for job in block.values()
        if isinstance(job, dict) and "script" in job
    ]
    assert len(scripts) > 4
    for script in scripts:
        plain = re.sub(r"\$\{\{.*?\}\}", "x", script)
        checked = subprocess.run(["bash", "-n"], input=plain, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, f"{checked.stderr}\n{script}"
        assert set(re.findall(r"^\s*(?:\S+/)?dtbench (\w+)", plain, re.MULTILINE)) <= verbs
