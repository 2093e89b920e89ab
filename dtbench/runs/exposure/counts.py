"""Whether arms differ from ``full`` in nothing but communication: their operators and collectives, as ranks counted."""

from collections.abc import Sequence

from dtbench.base.units import format_bytes
from dtbench.base.vocabulary import Arm
from dtbench.store.records.arms import ArmCount, ArmSteps
from dtbench.store.records.traffic import Traffic


def find_unlike_arms(steps: ArmSteps) -> dict[Arm, str]:
    """Name the arms of a rank whose steps did something else than those of ``full``, and what.

    The step time of such an arm must not be subtracted. An arm that nobody counted may be unlike.
    """
    counts = {count.arm: count for count in steps.counts}
    others = dict.fromkeys(block.arm for block in steps.blocks if block.arm is not Arm.FULL)
    compared = {arm: _compare_counts(counts.get(Arm.FULL), counts.get(arm)) for arm in others}
    return {arm: why for arm, why in compared.items() if why is not None}


def _compare_counts(full: ArmCount | None, other: ArmCount | None) -> str | None:
    if full is None or other is None:
        return "nobody counted what these steps do"
    if full.operators != other.operators:
        return f"{other.operators} operators a step instead of {full.operators}"
    expected, got = _spell(full.traffic), _spell(other.traffic)
    return None if expected == got else f"{got} a step instead of {expected}"


def _spell(traffic: Sequence[Traffic]) -> str:
    """Spell what a step issued; whether it waited at once is no difference."""
    spelled = sorted(
        f"{one.count} {one.operation} of {one.purpose} with {format_bytes(one.size_bytes)}" for one in traffic
    )
    return ", ".join(spelled) or "no collective"
