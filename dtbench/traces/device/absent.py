"""Steps of a device that lost rows of the host and of the device alike, as where a profiler's buffer was dropped.

::

    step            2              3              4
    host         mm mm add add    mm        add    mm mm add add     in 3 operators, their calls and their kernels are
    device          ██ ██ █ █       ██         █      ██ ██ █ █      lost: it neither stood idle nor computed less

Where calls or kernels are lost alone, the others show it: see ``lost_kernels.py``, ``unlaunched.py``, and for
operators alone, ``who``. So a step is not all recorded where it lacks operators (``host/absent.py``), no row of the
host begins for long, or the ids of calls, by which a driver counts them, go on by many at once (a host that waits for
its device may stand still for longer than rows are lost), and less than in any other step ran on the device, with what
lost its launch; or nothing started on it between those ids: then the step's first may be lost, and who began there.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from dtbench.traces.host.absent import LONGER, count_operators, find_lacking_operators
from dtbench.traces.host.correlate import Link, find_links
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.host.steps import Step
from dtbench.traces.kinds.categories import CALLS, DEVICE_CATEGORIES, OPERATOR
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
    gaps = _find_gaps(trace, steps)
    found = find_lacking_operators(counts, unite(begun_ns, begun_ns + 1), steps, np.array([gap.ids for gap in gaps]))
    if not found:
        return {}
    ran = _count_ran(trace, nesting, steps)
    least = np.delete(ran, [*found]).min()
    usual = max(gap.ids for place, gap in enumerate(gaps) if place not in found)
    started_ns = np.sort(trace.start_ns[trace.is_one_of(DEVICE_CATEGORIES)])
    return {
        place: lacks
        for place, lacks in found.items()
        if ran[place] < _MOST_SHARE * least or gaps[place].lacks_all(started_ns, usual)
    }


class _Gap(NamedTuple):
    """The largest difference between the ids of a call of a step and of the one before, and when both began."""

    ids: int = 0
    from_ns: int = 0
    until_ns: int = 0

    def lacks_all(self, started_ns: Ints, usual: int) -> bool:
        """Tell whether calls are lost here, more than the ``usual``, and nothing started on the device meanwhile."""
        first, beyond = started_ns.searchsorted((self.from_ns, self.until_ns)).tolist()
        return self.ids > LONGER * max(1, usual) and first == beyond


def _find_gaps(trace: Trace, steps: Sequence[Step]) -> list[_Gap]:
    """Return the largest gap of each step; of 0 where no two calls have an id."""
    calls = np.flatnonzero(trace.is_one_of(CALLS))
    ids = trace.correlation.values_at(calls, 0)
    calls, ids = calls[ids > 0], ids[ids > 0]
    order = np.argsort(trace.start_ns[calls], kind="stable")
    begun_ns, ids = trace.start_ns[calls][order], ids[order]
    gaps = []
    for step in steps:
        first, beyond = begun_ns.searchsorted((step.host.start_ns, step.host.end_ns)).tolist()
        more = np.diff(ids[max(0, first - 1) : beyond])
        at = max(0, first - 1) + int(more.argmax()) if len(more) else 0
        gaps.append(_Gap(int(more.max()), int(begun_ns[at]), int(begun_ns[at + 1])) if len(more) else _Gap())
    return gaps


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
