"""What no remedy for a cell's communication can gain more than: means over launches of what their replays say."""

from collections.abc import Sequence
from statistics import fmean

import pandas as pd

from dtbench.base.vocabulary import Operation, Purpose
from dtbench.runs.reading.cell_data import LaunchData
from dtbench.runs.reading.gains import GAINS
from dtbench.runs.summary import GainsSummary, OwnerGain


def summarize_gains(launches: Sequence[LaunchData], why_not: str | None) -> GainsSummary | None:
    """Return what a cell could gain; None: no launch was asked, or nothing could be asked for.

    A launch of which others disturbed every step says nothing; where the steps of another do not come out of their
    replay, nothing is said of the cell, as ``dtbench whatif`` says nothing. Nor is where steps are as MEASURED that may
    not be gone by, or of some launches alone. An owner that a launch lacks has no row.

    Args:
        launches: of the cell.
        why_not: its MEASURED steps may not be gone by, a clause; None: they may.
    """
    told = {one.place.launch: one.gains for one in launches if one.gains is not None}
    if not told:
        return None
    several = len(launches) > 1
    refused = [
        f"{f'launch {number}: ' * several}{one.refused}"
        for number, one in told.items()
        if one.refused and not one.is_left_out
    ]
    kept = {number: one.rows for number, one in told.items() if len(one.rows)}
    if not refused and not kept:
        refused = list(dict.fromkeys(one.refused for one in told.values() if one.refused))
        if not refused:
            return None
    as_measured = [number for number, rows in kept.items() if rows["host_times"].notna().all()]
    if as_measured and why_not is not None:
        refused.append(f"it is of steps as MEASURED, which are not gone by: {why_not}")
    if as_measured and len(as_measured) < len(kept):
        refused.append("the host's time explains the MEASURED step of some launches alone")
    if refused:
        return GainsSummary(refused=refused[0])
    return GainsSummary(
        step_ns=fmean(float(rows["step_ns"].iloc[0]) for rows in kept.values()),
        is_measured=bool(as_measured),
        launches=tuple(kept),
        rows=tuple(_mean_rows(list(kept.values()))),
    )


def _mean_rows(launches: Sequence[pd.DataFrame]) -> list[OwnerGain]:
    """Return the rows that every launch has, meaned."""
    key = list(GAINS.unique)
    groups = pd.concat(launches).groupby(key, dropna=False, sort=False)
    return [
        OwnerGain(
            owner=owner if isinstance(owner, str) else None,  # else NA
            purpose=Purpose(purpose) if isinstance(purpose, str) else None,
            operation=Operation(str(operation)) if operation else None,
            own_ns=float(mine["own_ns"].mean()),
            saving_ns=float(mine["saving_ns"].mean()),
        )
        for (owner, purpose, operation), mine in groups
        if len(mine) == len(launches)
    ]
