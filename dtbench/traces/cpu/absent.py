"""Steps of a trace of CPUs that lack operators that most have, and compute nothing for long: not all recorded.

::

    step      2                3                4
    thread    mm mm add add    mm mm            mm mm add add     in 3 those of backward are lost: the thread computed
    gloo        ███ ███          ███ ███          ███ ███         there, and nothing tells when
"""

from collections.abc import Collection, Sequence

import numpy as np

from dtbench.traces.host.absent import count_operators, find_lacking_operators
from dtbench.traces.host.steps import Step
from dtbench.traces.kinds.categories import OPERATOR
from dtbench.traces.time.intervals import Intervals
from dtbench.traces.trace import Trace


def find_absent(
    trace: Trace, lanes: Collection[int], computing: Collection[int], compute: Intervals, steps: Sequence[Step]
) -> dict[int, int]:
    """Count the operators that steps lack and that most have, by place of the step; of those not all recorded.

    Of steps in which these threads began no operator of any kind, nothing is recorded: they are not among them.

    Args:
        trace: of CPUs.
        lanes: threads that run the model.
        computing: of names, those of what computes.
        compute: when any of these threads computed.
        steps: of the trace.
    """
    is_operator = np.isin(trace.lane, [*lanes]) & trace.is_one_of((OPERATOR,))
    every = count_operators(trace, np.flatnonzero(is_operator), steps)
    counts = np.where(np.isin(np.arange(len(every)), [*computing])[:, np.newaxis], every, 0)
    found = find_lacking_operators(counts, compute, steps)
    return {place: lacks for place, lacks in found.items() if every[:, place].any()}
