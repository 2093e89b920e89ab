"""How much of the time lies between MEASURED steps, and so in no step time: a loop of one's own loads batches there.

::

    |██ step ██|           |██ step ██|           |██ step ██|
               └ between ──┘
    └──────── cycle ───────┘
"""

from collections.abc import Sequence

import pandas as pd

from dtbench.analyze.summary import BetweenSteps
from dtbench.analyze.tables import IS_LEFT_OUT
from dtbench.analyze.undisturbed import keep_finished
from dtbench.vocabulary import Phase


def find_between_steps(launches: Sequence[pd.DataFrame], ranks: int) -> BetweenSteps | None:
    """Return means over MEASURED steps that are followed by another; None: no such step is known.

    Args:
        launches: every timed step of each; the column ``is_left_out`` tells which others disturbed.
        ranks: of each launch.
    """
    cycles_ns, steps_ns = list[float](), list[float]()
    for steps in launches:
        measured = keep_finished(steps[steps["phase"] == Phase.MEASURED], ranks)
        if not len(measured):
            continue
        by_step = measured.groupby("step")
        starts_ns = measured.groupby(["step", "rank"])["start_ns"].min().unstack("rank")
        after_ns = starts_ns.shift(-1)[starts_ns.index.to_series().diff(-1) == -1]
        own_ns = (after_ns - starts_ns.loc[after_ns.index]).mean(axis=1)  # of the ranks: each has its own clock
        own_ns = own_ns[(own_ns > 0) & ~by_step[IS_LEFT_OUT].any().loc[own_ns.index]]
        cycles_ns += own_ns.tolist()
        steps_ns += by_step["duration_ns"].max().loc[own_ns.index].tolist()
    if not cycles_ns:
        return None
    cycle_ns, step_ns = (sum(times_ns) / len(times_ns) for times_ns in (cycles_ns, steps_ns))
    return BetweenSteps(between_ns=max(0.0, cycle_ns - step_ns), cycle_ns=cycle_ns)
