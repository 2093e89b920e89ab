"""What a person asks of ``dtbench.capture``: read, checked, and described for the run."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from dtbench.base.errors import CaptureError
from dtbench.scenario.schema.scenario import Profiler
from dtbench.store.records.run import OwnLoop
from dtbench.worker.user_loop.peers import Peers

MIN_WARMUP_STEPS: Final = 8
LONGEST_PERIOD: Final = 32
"""Of steps that take turns: three of them are to be seen, once without profiler and twice with it, in a few minutes."""
_FEWEST_MEASURED: Final = 4


@dataclass(frozen=True)
class CaptureOptions:
    """What a person asked for, see ``dtbench.capture``."""

    results: Path
    name: str | None
    mesh: Any
    tokens_per_step: int | None
    max_warmup_steps: int
    measured_steps: int
    profiled_steps: int
    profiler: Mapping[str, bool] | None


def describe(options: CaptureOptions, peers: Peers) -> OwnLoop:
    """Return the loop as its run records it."""
    return OwnLoop(
        script=Path(sys.argv[0]).name or "python",
        device=peers.device,
        backend=peers.backend,
        mesh=(),
        ranks=peers.size,
        min_warmup_steps=MIN_WARMUP_STEPS,
        max_warmup_steps=options.max_warmup_steps,
        measured_steps=options.measured_steps,
        profiled_steps=options.profiled_steps,
        tokens_per_step=options.tokens_per_step,
        notes=(),
    )


def take_periods(loop: OwnLoop, period: int) -> OwnLoop:
    """Return the loop when so many of its steps, which take turns, are measured as one: of these fewer will do.

    Args:
        loop: as it was asked for, in steps of its own.
        period: 1: its steps are all alike.
    """
    if period == 1:
        return loop
    note = f"steps take turns: {period} of the loop are measured as one step, with what lies between them"
    return loop.model_copy(
        update={
            "measured_steps": max(_FEWEST_MEASURED, -(-loop.measured_steps // period)),
            "profiled_steps": -(-loop.profiled_steps // period),
            "tokens_per_step": None if loop.tokens_per_step is None else loop.tokens_per_step * period,
            "notes": (*loop.notes, note),
        }
    )


def check(options: CaptureOptions) -> None:
    """Raise ``CaptureError`` where a number of steps or tokens is none that a loop can have."""
    least = {
        "max_warmup_steps": MIN_WARMUP_STEPS,
        "measured_steps": _FEWEST_MEASURED,
        "profiled_steps": 1,
        "tokens_per_step": 1,
    }
    for name, minimum in least.items():
        value = getattr(options, name)
        if value is not None and (not isinstance(value, int) or value < minimum):
            raise CaptureError(f"dtbench.capture: {name}={value!r} must be a whole number of at least {minimum}")


def read_profiler(options: CaptureOptions) -> Profiler:
    """Return the profiler's options; raises ``CaptureError`` where one is unknown or wrong."""
    try:
        return Profiler.model_validate(dict(options.profiler or {}))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "its options"
        known = ", ".join(Profiler.model_fields)
        raise CaptureError(f"dtbench.capture: profiler, {where}: {first['msg']}; it knows {known}") from error
