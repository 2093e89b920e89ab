"""The recipe "Add an extra of the worker" of docs/architecture.md, followed on a copy of the package.

The extra counts this rank's parameters once training is over, where the scenario asks for it. What it takes is all in
``NEW`` and ``LINES``.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

import dtbench
from dtbench.store.records.arms import ArmSteps
from dtbench.store.records.extras import RankExtras
from dtbench.store.records.lifecycle import LifecycleRecord
from dtbench.store.records.rank import RankRecord, Receipt, ReceiptOutcome
from dtbench.worker import session
from dtbench.worker.extras.extra import Extra, Finding, Trained, Watch
from dtbench.worker.extras.registered import EXTRAS
from dtbench.worker.loop.context import RankContext

PACKAGE = Path(dtbench.__file__).parent

NEW = {
    "worker/extras/census/__init__.py": '"""The extra ``census``: how many parameters a rank holds."""\n',
    "worker/extras/census/census.py": '''"""Counts this rank's parameters when training is over."""

from dtbench.store.records.census import Census
from dtbench.worker.extras.extra import Finding, Trained


def count_parameters(trained: Trained) -> Finding | None:
    """Count them."""
    if not trained.at.scenario.measure.census:
        return None
    return Finding(Census(parameters=sum(one.numel() for one in trained.step.parallel.parameters)))
''',
    "store/records/census.py": '''"""How many parameters a rank held: a part of its record."""

from dtbench.base.record import Amount, Record


class Census(Record):
    """Counted after PROFILED steps."""

    parameters: Amount
''',
}

LINES = {
    "scenario/schema/measure.py": [
        ("    stall_timeout_s", '    census: bool = False\n    """Count parameters."""\n', "    stall_timeout_s"),
    ],
    "store/records/extras.py": [
        ("\n\nclass", "from dtbench.store.records.census import Census\n", "\n\nclass"),
        ("\n    canary: CanaryResult", "\n    census: Census | None = None", "\n    canary: CanaryResult"),
    ],
    "worker/extras/registered.py": [
        ("\nEXTRAS", "from dtbench.worker.extras.census.census import count_parameters\n", "\nEXTRAS"),
        ('    Extra("canary"', '    Extra("census", study=count_parameters),\n', '    Extra("canary"'),
    ],
}
"""By file the places before which a line is put: what is found, what is put there, what follows."""

SHOWN = {
    "runs/summary.py": [
        (
            "\n        canary: None",
            "\n        census: parameters of all ranks; None: nobody asked.",
            "\n        canary: None",
        ),
        ("\n    canary: CanaryResult", "\n    census: int | None = None", "\n    canary: CanaryResult"),
    ],
    "runs/cell/summarize_extras.py": [
        ("\n    canary: CanaryResult", "\n    census: int | None", "\n    canary: CanaryResult"),
        (
            "        canary=worst",
            "        census=sum(one.extras.census.parameters for one in ranks if one.extras.census),\n",
            "        canary=worst",
        ),
    ],
    "report/page/cell_page.py": [
        (
            "    if cell.canary is not None:\n",
            '    if cell.census:\n        yield Fact("census", f"{cell.census} parameters")\n',
            "    if cell.canary is not None:\n",
        ),
    ],
}
"""What shows it: a cell's number, how it comes from ranks, its line of the page."""

SCENARIO = """# How many parameters does each rank hold?
schema_version: 1
device: cpu
model: {kind: mlp, layers: 2, dim: 8, hidden_dim: 16, bias: false}
data: {global_batch: 4, sequence_length: 4}
measure: {warmup: {min_steps: 8, max_steps: 8}, measured_steps: 4, profiled_steps: 1, census: true}
correctness: {enabled: false}
parallel: {kind: ddp, replicas: 2}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """Follow it on a copy of the package; gives the folder in which that lies."""
    copy = tmp_path / "copy" / "dtbench"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in NEW.items():
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text(text, encoding="utf-8")
    for name, edits in {**LINES, **SHOWN}.items():
        text = (copy / name).read_text(encoding="utf-8")
        for found, put, follows in edits:
            assert text.count(found) == 1, (name, found)
            text = text.replace(found, put + follows)
        (copy / name).write_text(text, encoding="utf-8")
    return copy.parent


@pytest.mark.ranks
def test_the_recipe_for_an_extra_is_true(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "census.yaml").write_text(SCENARIO, encoding="utf-8")

    def dtbench_says(*words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(recipe)}
        command = [sys.executable, "-m", "dtbench", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    dtbench_says("run", "census.yaml")
    records = sorted(tmp_path.glob("results/census/*/cells/*/launch0/ranks/rank*.json"))
    told = [json.loads(record.read_bytes())["extras"] for record in records]
    parameters = 2 * 2 * 8 * 16  # two layers of two products
    assert [one["census"] for one in told] == 2 * [{"parameters": parameters}]
    assert [one["canary"] for one in told] == [None, None]
    (cell,) = json.loads(dtbench_says("report", "--json"))["cells"]
    assert cell["census"] == 2 * parameters
    assert f"census         {2 * parameters} parameters" in dtbench_says("report", "--full")
    for rank, silent in ((1, "rank 1 says"), (0, "ranks 0-1 say")):
        told[rank]["census"] = None
        records[rank].write_text(json.dumps({**json.loads(records[rank].read_bytes()), "extras": told[rank]}))
        assert f"{silent} nothing of `census`" in dtbench_says("report", "--full")


def test_each_extra_has_the_name_of_its_record() -> None:
    names = [extra.name for extra in EXTRAS]
    assert len(set(names)) == len(names)
    assert set(RankExtras.model_fields) == set(names) - {"lines"}, "lines are files of their own"


def receipt(knob: str) -> Receipt:
    return Receipt(knob=knob, asked="", got="", outcome=ReceiptOutcome.AGREES)


def make_extras(log: list[str], *, abandons: bool) -> tuple[Extra, ...]:
    """Make one that looks on, and two that run steps, one of them unwatched."""

    @contextmanager
    def looking_on() -> Iterator[None]:
        log.append("look on")
        yield
        log.append("look away")

    def estimate(trained: Trained) -> Finding:
        assert trained.first == 7
        so_far = trained.tell()
        assert ([one.knob for one in so_far.receipts], so_far.extras) == (["watched"], RankExtras())
        log.append("estimate")
        trained.at.carrier.is_abandoned = abandons
        return Finding(ArmSteps(blocks=(), counts=()), (receipt("estimated"),))

    def live(_trained: Trained) -> Finding:
        log.append("live")
        return Finding(LifecycleRecord(calls=()))

    watch = Watch(looking_on(), lambda: Finding(None, (receipt("watched"),)), lambda: log.append("seen"))
    return (
        Extra("lifecycle", study=live, is_unwatched=True),
        Extra("lines", watch=lambda _at: watch),
        Extra("exposure", study=estimate),
        Extra("canary"),
    )


@pytest.mark.parametrize("abandons", [False, True])
def test_a_rank_is_told_as_one_story(monkeypatch: pytest.MonkeyPatch, abandons: bool) -> None:
    log: list[str] = []
    at: Any = SimpleNamespace(carrier=SimpleNamespace(is_abandoned=False))

    def build(_at: RankContext) -> Any:
        log.append("build")
        return SimpleNamespace(step=None, batches=None)

    def train(_at: RankContext, _stack: Any, after_step: Callable[[], None]) -> Any:
        for _ in range(2):
            log.append("step")
            after_step()
        return SimpleNamespace(next_step=7)

    def make(*_: Any) -> RankRecord:
        log.append("record")
        fields: dict[str, Any] = {"receipts": (), "extras": RankExtras()}
        return RankRecord.model_construct(**fields)

    for name, function in {"build_stack": build, "train": train, "make_record": make}.items():
        monkeypatch.setattr(session, name, function)
    record = session.run_rank(at, make_extras(log, abandons=abandons))
    watched = ("look on", "build", "step", "seen", "step", "seen", "record", "estimate", "look away", "record")
    assert tuple(log) == (watched if abandons else (*watched, "live"))
    assert record.extras.exposure == ArmSteps(blocks=(), counts=())
    assert record.extras.lifecycle == (None if abandons else LifecycleRecord(calls=()))
    assert [one.knob for one in record.receipts] == ["estimated", "watched"]
