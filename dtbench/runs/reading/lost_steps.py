"""Steps of a complete launch that no rank has a row of: its ranks trained them, and its table of steps lost them.

Steps count from 0 over all phases, and a plan says how many are MEASURED and PROFILED.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import pandas as pd

from dtbench.base.units import count_in, count_things, find_absent, format_ns, is_or_are, name_runs
from dtbench.base.vocabulary import Phase
from dtbench.plan.plan import Plan
from dtbench.store.records.outline import PlanOutline
from dtbench.store.records.rank import WARMUP_LOSSES, RankRecord
from dtbench.store.records.run import OwnLoop

PLANNED: Final = (Phase.MEASURED, Phase.PROFILED)
"""Phases of which a plan says how many steps they have."""


def count_planned(plan: Plan | OwnLoop | PlanOutline) -> dict[Phase, int]:
    """Return how many steps each of these phases has; a person's own loop may end before, and tells none."""
    if not isinstance(plan, Plan) and plan.kind:
        return {}
    return {Phase.MEASURED: plan.measured_steps, Phase.PROFILED: plan.profiled_steps}


def count_losses(record: RankRecord, plan: Plan | OwnLoop) -> int:
    """Return how many losses a rank has to tell of, see ``RankRecord.losses``; a person's own loop tells none."""
    if not isinstance(plan, Plan):
        return 0
    return min(record.warmup.steps, WARMUP_LOSSES) + plan.measured_steps + plan.profiled_steps


def count_lost(steps: pd.DataFrame, planned: Mapping[Phase, int]) -> dict[Phase, int]:
    """Return how many steps of a phase no rank has; a phase of which all are there has no entry.

    Args:
        steps: of one launch, those that are left out too, columns as in the table ``steps``.
        planned: as ``count_planned`` says it.
    """
    lost = {phase: number - steps["step"][steps["phase"] == phase].nunique() for phase, number in planned.items()}
    return {phase: number for phase, number in lost.items() if number > 0}


def say_lost(steps: pd.DataFrame, planned: Mapping[Phase, int]) -> list[str]:
    """Say which steps no rank has, a sentence for each phase; where no phase tells it, which numbers are skipped.

    Arguments as ``count_lost``.
    """
    lost = count_lost(steps, planned)
    if lost:
        return [
            f"{planned[phase] - number} of {planned[phase]} {phase} steps are there: the table of steps lost the others"
            for phase, number in lost.items()
        ]
    numbers = {int(step) for step in steps["step"].unique()}
    skipped = find_absent(numbers, max(numbers, default=-1) + 1)
    if not skipped:
        return []
    count = count_in(skipped)
    of = f"step{'s' if count > 1 else ''} {name_runs(skipped)}"
    return [f"{of} {is_or_are(count)} of no rank: the table of steps lost {'them' if count > 1 else 'it'}"]


def say_surplus(steps: pd.DataFrame, planned: Mapping[Phase, int]) -> Iterator[str]:
    """Say of which phases more steps are there than the plan has; arguments as ``count_lost``."""
    for phase, number in planned.items():
        there = steps["step"][steps["phase"] == phase].nunique()
        if there > number:
            yield f"{there} {phase} steps are there, and {number} were planned: was the table of steps edited?"


_MOST_TICK_NS: Final = 10_000_000
"""Of a clock of CPU time that the kernel moves on with its own, at 100 Hz."""


def say_overused(steps: pd.DataFrame, cores: int) -> Iterator[str]:
    """Say of which ranks all steps took more CPU time than the cores have in as long, as none can.

    Args:
        steps: of one launch, columns as in the table ``steps``.
        cores: of the machine of its ranks.
    """
    sums = steps.groupby("rank")[["cpu_ns", "duration_ns"]].sum()
    for rank, cpu_ns, duration_ns in zip(sums.index, sums["cpu_ns"], sums["duration_ns"], strict=True):
        if cpu_ns > cores * (duration_ns + _MOST_TICK_NS):
            took = f"{format_ns(cpu_ns)} of CPU time in {format_ns(duration_ns)} of steps"
            yield f"rank {rank} took {took} on {count_things(cores, 'core')}, which cannot be: was the table edited?"
