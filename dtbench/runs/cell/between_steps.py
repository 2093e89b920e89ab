"""How much of the time lies between MEASURED steps, and so in no step time: a loop of one's own loads batches there.

On the slowest rank of each step::

    |██ step ██|           |██ step ██|           |██ step ██|
               └ between ──┘
    └──────── cycle ───────┘
"""

from collections.abc import Sequence

import pandas as pd

from dtbench.base.vocabulary import Phase
from dtbench.runs.reading.undisturbed import IS_LEFT_OUT, keep_finished
from dtbench.runs.summary import BetweenSteps


def find_between_steps(launches: Sequence[pd.DataFrame], ranks: int) -> BetweenSteps | None:
    """Return means over MEASURED steps that are followed by another.

    None: no such step is known, or a host was so far ahead of its device that steps began before others had ended.

    Args:
        launches: every timed step of each; the column ``is_left_out`` tells which others disturbed.
        ranks: of each launch.
    """
    found = [_tell_cycles(keep_finished(steps[steps["phase"] == Phase.MEASURED], ranks)) for steps in launches]
    cycles = pd.concat(found) if found else pd.DataFrame()
    if not len(cycles):
        return None
    between_ns = float((cycles["cycle_ns"] - cycles["duration_ns"]).mean())
    cycle_ns = float(cycles["cycle_ns"].mean())
    return BetweenSteps(between_ns=between_ns, cycle_ns=cycle_ns) if between_ns >= 0 else None


def _tell_cycles(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the slowest rank of each step that is followed by another and that nothing disturbed.

    Returns:
        A row for each step: columns of the table ``steps`` and ``cycle_ns``, until it starts the next one; each rank
        has its own clock.
    """
    after = steps[["rank", "step", "start_ns"]].assign(step=steps["step"] - 1)
    is_disturbed = steps.groupby("step")[IS_LEFT_OUT].transform("any")
    slowest = steps[~is_disturbed].sort_values("duration_ns", kind="stable").drop_duplicates("step", keep="last")
    followed = slowest.merge(after, on=["rank", "step"], suffixes=("", "_after"))
    cycles = followed.assign(cycle_ns=followed["start_ns_after"] - followed["start_ns"])
    return cycles[cycles["cycle_ns"] > 0]
