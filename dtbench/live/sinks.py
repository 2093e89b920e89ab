"""Where a monitor's numbers go: functions that take them, each made for one place; it imports its package then.

A sink is any function of a ``Report``; it runs on rank 0, where a step ends, every ``every`` steps.
"""

import json
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

from dtbench.base.errors import MissingError, StoreError
from dtbench.live.numbers import Late


@dataclass(frozen=True)
class Report:
    """What a monitor says of its last steps.

    Attributes:
        step: number of the last of them, from 0.
        numbers: see ``dtbench.live.numbers.summarize``; NaN: not known.
        late: the rank that the others wait for; None: none is.
        notes: what the numbers do not count, a sentence each.
    """

    step: int
    numbers: dict[str, float]
    late: Late | None
    notes: tuple[str, ...]

    def __str__(self) -> str:
        numbers = self.numbers
        waits = [
            f"{name.removesuffix('_wait_ms')} {value:.3g}"
            for name, value in numbers.items()
            if name.endswith("_wait_ms") and value > 0
        ]
        bound = "at least " if numbers["unseen"] else ""
        parts = [
            f"step {self.step}: {numbers['step_ms']:.4g} ms",
            f"{bound}{numbers['exposed_ms']:.3g} ms exposed" + (f" ({', '.join(waits)})" if waits else ""),
        ]
        if not math.isnan(numbers["hidden_fraction"]):
            parts.append(f"at most {100 * numbers['hidden_fraction']:.1f} % of communication hidden")
        return "; ".join([*self.notes, ", ".join(parts), *([str(self.late)] if self.late else [])])


Sink = Callable[[Report], None]


def print_line() -> Sink:
    """Return a sink that writes a line to the standard output."""

    def write(report: Report) -> None:
        sys.stdout.write(f"dtbench: {report}\n")
        sys.stdout.flush()

    return write


def json_lines(path: str | PathLike[str]) -> Sink:
    """Return a sink that appends one JSON object a line: ``step``, ``unix_s``, all numbers (null: not known), ``late``.

    Raises:
        StoreError: nothing can be written there.
    """
    file = Path(path)
    _make_parent(file)

    def write(report: Report) -> None:
        known = {name: None if math.isnan(value) else value for name, value in report.numbers.items()}
        late = None if report.late is None else str(report.late)
        line = {"step": report.step, "unix_s": time.time(), **known, "late": late, "notes": list(report.notes)}
        with file.open("a", encoding="utf-8") as opened:
            opened.write(json.dumps(line, allow_nan=False) + "\n")

    return write


def prometheus(path: str | PathLike[str]) -> Sink:
    """Return a sink that keeps a file of gauges in Prometheus' text format, for node_exporter's textfile collector.

    Each report replaces the file whole; names are ``dtbench_<number>``, and what is not known is ``NaN``.

    Raises:
        StoreError: nothing can be written there.
    """
    file = Path(path)
    _make_parent(file)

    def write(report: Report) -> None:
        gauges = {"step": float(report.step), **report.numbers}
        lines = [f"# TYPE dtbench_{name} gauge\ndtbench_{name} {_spell(value)}\n" for name, value in gauges.items()]
        beside = file.with_name(f".{file.name}.{os.getpid()}")
        beside.write_text("".join(lines), encoding="utf-8")
        beside.replace(file)

    return write


def tensorboard(folder: str | PathLike[str]) -> Sink:
    """Return a sink that writes scalars ``dtbench/<number>`` for TensorBoard; what is not known is left out.

    Raises:
        MissingError: tensorboard is not installed.
    """
    writer = _find("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(folder))

    def write(report: Report) -> None:
        for name, value in _name_known(report).items():
            writer.add_scalar(name, value, report.step)
        writer.flush()

    return write


def wandb() -> Sink:
    """Return a sink that logs ``dtbench/<number>`` to the run that ``wandb.init`` began; at W&B's own step.

    The trainer's step is ``dtbench/step``: W&B takes no step that is before its own.

    Raises:
        MissingError: wandb is not installed.
    """
    package = _find("wandb", "wandb")

    def write(report: Report) -> None:
        package.log({**_name_known(report), "dtbench/step": report.step})

    return write


def mlflow() -> Sink:
    """Return a sink that logs ``dtbench/<number>`` to the active run of MLflow.

    Raises:
        MissingError: mlflow is not installed.
    """
    package = _find("mlflow", "mlflow")

    def write(report: Report) -> None:
        package.log_metrics(_name_known(report), step=report.step)

    return write


def _name_known(report: Report) -> dict[str, float]:
    return {f"dtbench/{name}": value for name, value in report.numbers.items() if not math.isnan(value)}


def _spell(value: float) -> str:
    return "NaN" if math.isnan(value) else repr(value)


def _find(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingError(f"this sink needs {package}: pip install {package}") from error


def _make_parent(file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("a", encoding="utf-8").close()
    except OSError as error:
        raise StoreError(f"{file}: cannot be written ({error.strerror})") from error
