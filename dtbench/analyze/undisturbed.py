"""The steps of a launch without those that other guests of its machine disturbed; see ``dtbench.disturbance``.

A step is left out for all ranks, in all tables, when it was disturbed on the machine of any. Pictures of single steps
show all of them.
"""

from collections.abc import Mapping
from typing import Final

import pandas as pd

from dtbench.disturbance import find_undisturbed
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


def leave_out(table: pd.DataFrame, left_out: LeftOut) -> pd.DataFrame:
    """Give a table without the rows of these steps; one without a column ``step`` as it is."""
    numbers = frozenset().union(*left_out.values())
    return table[~table["step"].isin(numbers)] if numbers and "step" in table else table
