"""Histories with changes that are planted, of numbers that runs would have, without their folders."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtbench.comparison.history.history import By, History, tell_history
from dtbench.comparison.history.readings import Reading, Readings
from dtbench.store.records.run import Commit, Environment

MS = 1_000_000
DAY_NS = 86_400 * 1_000_000_000
BEGAN_NS = 1_767_225_600 * 1_000_000_000
"""2026-01-01."""

PLANTED: Mapping[int, float] = {60: 1.04, 110: 0.97, 160: 1.05}
"""By the first run of a level, its ratio to the level before."""

ENVIRONMENT = Environment(
    host="node1",
    system="Linux-6.1",
    processor="AMD EPYC",
    cores=2,
    memory_bytes=1 << 34,
    python="3.12.1",
    torch="2.13.0",
    cuda=None,
    nccl=None,
    packages={"torch": "2.13.0"},
    devices=(),
    variables={},
    notes=(),
)


def draw_noise(kind: str, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Return logarithms of how far runs lie from what they should be, about 1 %."""
    match kind:
        case "normal":
            return generator.normal(0, 0.01, count)
        case "heavy tails":
            return 0.006 * generator.standard_t(2.5, count)
        case "skewed":
            return 0.01 * generator.exponential(1.0, count)
        case "two modes":
            return generator.normal(0, 0.004, count) + 0.02 * (generator.random(count) < 0.3)
        case _:
            return generator.normal(0, 0.01, count) + 0.5 * (generator.random(count) < 0.03)


def draw_values(
    seed: int, count: int = 200, changes: Mapping[int, float] | None = None, noise: str = "normal"
) -> NDArray[np.float64]:
    """Return the numbers of runs, ns; ``changes`` as ``PLANTED``, none where left out."""
    logs = draw_noise(noise, count, np.random.default_rng(seed)) + np.log(100.0 * MS)
    for place, ratio in (changes or {}).items():
        logs[place:] += np.log(ratio)
    return np.asarray(np.exp(logs), dtype=np.float64)


def make_reading(at: int, value: float, commit: str = "", **environment: Any) -> Reading:
    """Return a run with one launch on one day; ``commit`` repeats to a whole name."""
    changed = {"commit": Commit(revision=(commit * 40)[:40], is_dirty=False)} if commit else {}
    run_id = f"run{at:03}"
    return Reading(
        run=Path("results/small", run_id),
        run_id=run_id,
        started_unix_ns=BEGAN_NS + at * DAY_NS,
        values=(value,),
        environment=ENVIRONMENT.model_copy(update={**changed, **environment}),
        settings={"model.layers": "2"},
    )


def make_readings(values: Sequence[float] | NDArray[np.float64]) -> Readings:
    """Return a run for each number, a day apart."""
    return Readings("small", "plain", [make_reading(at, float(one)) for at, one in enumerate(values)], {})


def make_history(
    values: Sequence[float] | NDArray[np.float64],
    by: By = By.RUN,
    metric: tuple[str, str] = ("step_time", ""),
    threshold: float = 0.01,
) -> History:
    """Return the history of such runs."""
    return tell_history(Path("results"), make_readings(values), metric, by, threshold)
