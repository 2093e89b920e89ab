"""Steps of a device that lost rows of the host and of the device alike, as where a profiler's buffer was dropped.

::

    step            2              3              4
    host         mm mm add add    mm        add    mm mm add add     in 3 operators, their calls and their kernels are
    device          ██ ██ █ █       ██         █      ██ ██ █ █      lost: it neither stood idle nor computed less

Where calls or kernels are lost alone, the others show it: see ``lost_kernels.py``, ``unlaunched.py``, and for
operators alone, ``who``. So a step is not all recorded where it lacks operators (``host/absent.py``), no row of the
host begins for long, and less than in any other step ran on the device, with what lost its launch.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from dtbench.traces.host.absent import count_operators, find_lacking_operators
from dtbench.traces.host.correlate import Link, find_links
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.host.steps import Step
from dtbench.traces.kinds.categories import CALLS, OPERATOR
from dtbench.traces.time.intervals import Ints, unite
from dtbench.traces.trace import Trace

_MOST_SHARE: Final = 0.9
"""Of what other steps ran on the device: a step that ran as much has lost no more than a few exceptions."""


def find_absent_work(trace: Trace, nesting: Nesting, steps: Sequence[Step]) -> dict[int, int]:
    """Count the operators that steps lack with what they launched, by place of the step; of those not all recorded.

    Args:
        trace: of a device.
        nesting: its nesting.
        steps: of the trace.
    """
    is_operator = trace.is_one_of((OPERATOR,))
    begun_ns = np.sort(trace.start_ns[is_operator | trace.is_one_of(CALLS)])
    counts = count_operators(trace, np.flatnonzero(is_operator), steps)
    found = find_lacking_operators(counts, unite(begun_ns, begun_ns + 1), steps)
    if not found:
        return {}
    ran = _count_ran(trace, nesting, steps)
    least = np.delete(ran, [*found]).min()
    return {place: lacks for place, lacks in found.items() if ran[place] < _MOST_SHARE * least}


def _count_ran(trace: Trace, nesting: Nesting, steps: Sequence[Step]) -> Ints:
    """Count what ran on the device that each step launched, or may have, as its launch is lost, shape ``(steps,)``.

    What is taken for launched before the trace is in no step's account, and may be a first step's that lacks operators.
    """
    events, links = find_links(trace, nesting)
    ran = events[links != Link.BEFORE_WINDOW]
    is_tied = nesting.launch[ran] != ran
    tied_ns, untied_ns = np.sort(nesting.launch_ns(ran[is_tied])), np.sort(trace.start_ns[ran[~is_tied]])
    hosts = np.array([(step.host.start_ns, step.host.end_ns) for step in steps], dtype=np.int64)
    may_be_its = np.array([(step.host.start_ns, max(step.host.end_ns, step.window.end_ns)) for step in steps])
    return np.asarray(np.diff(tied_ns.searchsorted(hosts))[:, 0] + np.diff(untied_ns.searchsorted(may_be_its))[:, 0])
