"""Steps of a complete launch that no rank has a row of: its ranks trained them, and its table of steps lost them.

Steps count from 0 over all phases, and a plan says how many are MEASURED and PROFILED.
"""

from collections.abc import Mapping
from typing import Final

import pandas as pd

from dtbench.base.units import count_in, find_absent, is_or_are, name_runs
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
