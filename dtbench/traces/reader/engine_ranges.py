"""The ranges that a library of collectives puts around its own work: one spelling, and the end that it means.

::

    record_param_comms   ├────────┤                      torch's record of a collective, whatever library carries it out
      nccl:all_reduce      ├─────┤                       ProcessGroupNCCL's range
      all_reduce           ├────────────────────┤        torch 2.15's: bare, and open until its ``Work`` is released

What begins inside a record is of its collective, whatever it is called, and so ends with it: what the thread does after
that is not inside the collective, nor are the kernels that it launches then. A bare name gets the prefix that tells it
from a person's range; a name that a person gave to the communication itself (``dist.record_comm``) stays.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from dtbench.traces.kinds.operators import RECORD, is_bare_operation
from dtbench.traces.time.intervals import Ints
from dtbench.traces.trace import Trace

_UNSAID: Final = ("coalesced", "batch_op_issue")
"""Several collectives at once; the records inside say which."""
_PREFIX: Final = "nccl:"


def settle_engine_ranges(trace: Trace) -> Trace:
    """Return the trace with each range inside a record named as one of a library, and ended with its record."""
    ranges = np.flatnonzero(trace.is_one_of(("user_annotation",)))
    records = np.flatnonzero(trace.is_named(RECORD.__eq__))
    if not len(ranges) or not len(records):
        return trace
    ranges, records = _find_inside(trace, ranges, records)
    if not len(ranges):
        return trace
    end_ns = trace.end_ns.copy()
    end_ns[ranges] = np.minimum(end_ns[ranges], end_ns[records])
    codes = {name: code for code, name in enumerate(trace.names)}
    name = trace.name.copy()
    for one, record in zip(ranges.tolist(), records.tolist(), strict=True):
        said = trace.details.get(record)
        called = trace.name_of(one)
        if called in _UNSAID or (said is not None and called == said.collective) or is_bare_operation(called):
            name[one] = codes.setdefault(_PREFIX + called, len(codes))
    return replace(trace, names=tuple(codes), name=name, end_ns=end_ns)


def _find_inside(trace: Trace, ranges: Ints, records: Ints) -> tuple[Ints, Ints]:
    """Return the ranges that begin inside a record of their thread, and the innermost such record of each."""
    inside, around = [], []
    for lane in sorted(set(trace.lane[records].tolist())):
        mine = records[trace.lane[records] == lane]
        mine = mine[np.lexsort((-trace.end_ns[mine], trace.start_ns[mine]))]
        some = ranges[trace.lane[ranges] == lane]
        place = np.searchsorted(trace.start_ns[mine], trace.start_ns[some], side="right") - 1
        record = mine[np.maximum(place, 0)]
        is_inside = (place >= 0) & (trace.end_ns[record] > trace.start_ns[some])
        inside.append(some[is_inside])
        around.append(record[is_inside])
    return np.concatenate(inside), np.concatenate(around)
