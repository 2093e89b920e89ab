"""The steps of a launch without those that other guests of its machine disturbed; see ``dtbench.disturbance``.

A step is left out for all ranks, in all tables, when it was disturbed on the machine of any.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import pandas as pd

from dtbench.disturbance import DISTURBED, find_undisturbed
from dtbench.vocabulary import Phase

_JUDGED: Final = (Phase.MEASURED, Phase.PROFILED)

LeftOut = Mapping[Phase, frozenset[int]]
"""Numbers of the steps of each phase that are left out; a phase from which none is has no entry."""


def find_left_out(steps: pd.DataFrame) -> dict[Phase, frozenset[int]]:
    """Give the steps to leave out.

    Args:
        steps: columns as in ``tables.STEPS``, of one launch.
    """
    found = {}
    for phase in _JUDGED:
        stolen = steps[steps["phase"] == phase].groupby("step")["stolen_fraction"].max()
        kept = find_undisturbed(stolen.tolist())
        left_out = frozenset(int(step) for step, is_kept in zip(stolen.index, kept, strict=True) if not is_kept)
        if left_out:
            found[phase] = left_out
    return found


def find_disturbance(steps: pd.DataFrame) -> float:
    """Give what other guests had of the machine's cores in MEASURED and PROFILED steps, median; 0 where nobody knows.

    Args:
        steps: columns as in ``tables.STEPS``, of one launch, those to leave out left out.
    """
    judged = steps[steps["phase"].isin([phase.value for phase in _JUDGED])]
    stolen = judged.groupby("step")["stolen_fraction"].max().fillna(0.0)
    return float(stolen.median()) if len(stolen) else 0.0


def keep_undisturbed_steps(steps: pd.DataFrame, launch: Sequence[str] = ()) -> pd.DataFrame:
    """Give a table of steps without those to leave out, each launch judged for itself.

    Args:
        steps: columns as in ``tables.STEPS``, and those that tell launches apart.
        launch: names of these; none: all steps are of one launch.
    """
    if not (steps["stolen_fraction"] >= DISTURBED).any():
        return steps
    launches = [one for _, one in steps.groupby(list(launch), observed=True, sort=False)] if launch else [steps]
    return pd.concat([leave_out(one, find_left_out(one)) for one in launches])


def leave_out(table: pd.DataFrame, left_out: LeftOut) -> pd.DataFrame:
    """Give a table without the rows of these steps; one without a column ``step`` as it is."""
    numbers = frozenset().union(*left_out.values())
    return table[~table["step"].isin(numbers)] if numbers and "step" in table else table
