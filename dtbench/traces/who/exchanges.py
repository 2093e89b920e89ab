"""Whether sends and receives of no known axis are a pipeline's: what shows stages, and no exchange among equals.

::

    stage 0   fwd send         fwd send recv bwd     one way alone, or what backward begins with
    stage 1       recv fwd bwd send recv fwd bwd send
    ring      fwd send recv fwd send recv fwd bwd    each rank sends and receives at once, and goes on: ring attention
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from dtbench.base.vocabulary import POINT_TO_POINT, Operation
from dtbench.traces.kinds.operators import ENGINE
from dtbench.traces.trace import Trace

_OPERATOR: Final = "cpu_op"
_SCHEDULES: Final = re.compile(
    r"PP:|.*(?:distributed/pipelining/|pipeline_?parallel|pipelin\w*/schedules?)", re.I | re.S
)
"""Ranges and frames of who runs stages: torch's ``pipelining``, Megatron-LM's and DeepSpeed's schedules."""
_COMPUTES: Final = re.compile(
    rf"{ENGINE}|aten::(?!empty|detach|view|as_strided|alias|slice|select|narrow|reshape|contiguous|resolve_|zeros|new_)"
)


def shows_stages(trace: Trace, issues: Iterable[tuple[int, Operation | None, Sequence[str]]]) -> bool:
    """Tell whether some send or receive is surely not of an exchange in which each rank does both at once.

    That is where a schedule's range or frame lies around one; where, between two computations of the thread that issues
    them, it only sends or only receives; or where backward begins right after forward received.

    Args:
        trace: of the issues.
        issues: event, operation and names around each, innermost first.
    """
    sent = [one for one in issues if one[1] in POINT_TO_POINT]
    if any(_SCHEDULES.match(name) for _, _, above in sent for name in above):
        return True
    computing = np.flatnonzero(trace.is_named(lambda name: bool(_COMPUTES.match(name))) & trace.is_one_of((_OPERATOR,)))
    computing = computing[np.argsort(trace.start_ns[computing], kind="stable")]
    batches: dict[tuple[int, int], set[Operation | None]] = defaultdict(set)
    for event, operation, above in sent:
        lane = int(trace.lane[event])
        mine = computing[trace.lane[computing] == lane]
        after = int(trace.start_ns[mine].searchsorted(trace.start_ns[event], side="right"))
        batches[lane, after].add(operation)
        in_backward = any(name.startswith(ENGINE) for name in above)
        if not in_backward and after < len(mine) and trace.name_of(int(mine[after])).startswith(ENGINE):
            return True
    return any(len(ways) == 1 for ways in batches.values())
