"""When a run tells what it does."""

from dataclasses import replace
from pathlib import Path

import pytest

from dtbench.base.errors import LaunchError
from dtbench.launch import run as launch_run
from dtbench.launch.cells import plan_cells
from dtbench.launch.run import Observer, run_scenario
from dtbench.plan.plan import Machine
from dtbench.scenario.load import load_scenario

SWEEP = """\
# When is a cell shown?
schema_version: 1
device: cpu
model: {kind: transformer, layers: 1, dim: 8, heads: 2, ffn_dim: 8, vocab_size: 16}
data: {global_batch: 2, sequence_length: 4}
parallel: {kind: ddp, replicas: 1}
correctness: {enabled: false}
repeat: 2
matrix:
  seed: [0, 1]
"""


@pytest.mark.parametrize(
    ("failing", "told"),
    [
        (
            None,
            ["start seed-0", "end seed-0", "start seed-1", "end seed-1", "start seed-1", "end seed-1", "start seed-0"],
        ),
        ("seed-0", ["start seed-0", "end seed-0", "start seed-1", "end seed-1", "start seed-1", "end seed-1"]),
    ],
)
def test_the_end_of_a_launch_is_told_before_the_next_begins(
    failing: str | None, told: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The last launch's end is that of the run."""
    log: list[str] = []

    def launch_nothing(order: object, *_: object, **__: object) -> None:
        if getattr(order, "cell", None) == failing:
            raise LaunchError("planted")

    monkeypatch.setattr(launch_run, "launch_ranks", launch_nothing)
    file = load_scenario(SWEEP, "sweep.yaml", ())
    observer = replace(
        Observer(),
        on_launch=lambda cell, _index, _plan: log.append(f"start {cell}"),
        on_end=lambda cell: log.append(f"end {cell}"),
    )
    cells = plan_cells(file, Machine(cpu_cores=1, cuda_devices=0))
    if failing is None:
        run_scenario(file, cells, tmp_path, observer=observer)
    else:
        with pytest.raises(LaunchError):
            run_scenario(file, cells, tmp_path, observer=observer)
    assert log == told
