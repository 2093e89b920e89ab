"""Whether collectives of a CPU trace were issued blocking, where the trace does not say so itself."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dtbench.base.vocabulary import POINT_TO_POINT
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.kinds.operators import is_issue
from dtbench.traces.time.intervals import Ints
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Collective


def find_blocking(trace: Trace, nesting: Nesting, collectives: Sequence[Collective]) -> tuple[Collective, ...]:
    """Fill ``is_async`` of collectives issued by an operator of a CPU thread, where it is None.

    ::

        FSDP::all_gather (0)   ├────────────────────────┤ |         blocking: the thread begins nothing, and ends no
          c10d::_allgather_base_   ├──┤                   |         span around the call, until the collective's end
        gloo:all_gather              ├────────────────┤   |

        AccumulateGrad         ├──────────┤               |         not: the span around it ends before
          c10d::allreduce_         ├──┤                   |
        gloo:all_reduce              ├────────────────┤   |

    A wait that is an event of its own (``wait_tensor``) begins after the call, so that the call did not block. Of one
    that ended before the call returned (its thread had lost its core) nothing tells: torch waits behind the operator.
    Of sends and receives on a thread of the model ``gloo_sends.py`` has said all that is known.
    """
    issues = _issues(trace)
    starts: dict[int, Ints] = {}
    found = []
    for collective in collectives:
        event = issues.get(collective.issue_ns) if collective.issue_ns is not None else None
        is_settled = collective.is_async is not None or collective.operation in POINT_TO_POINT
        is_told = not is_settled and event is not None and collective.end_ns > trace.end_ns[event]
        if event is None or not is_told or not len(collective.span.starts_ns):
            found.append(collective)
            continue
        lane = int(trace.lane[event])
        if lane not in starts:
            starts[lane] = np.sort(trace.start_ns[trace.lane == lane])
        found.append(replace(collective, is_async=not _stands_still(trace, nesting, event, collective, starts[lane])))
    return tuple(found)


def _issues(trace: Trace) -> dict[int, int]:
    """Return the outermost operator that issues, by its start."""
    events = np.flatnonzero(trace.is_named(is_issue))
    events = events[np.argsort(trace.end_ns[events], kind="stable")]
    return dict(zip(trace.start_ns[events].tolist(), events.tolist(), strict=True))


def _stands_still(trace: Trace, nesting: Nesting, event: int, collective: Collective, starts_ns: Ints) -> bool:
    around = next((above for above in nesting.enclosing(event) if not is_issue(trace.name_of(above))), None)
    if around is not None and trace.end_ns[around] < collective.end_ns:
        return False
    following = int(np.searchsorted(starts_ns, trace.end_ns[event], side="left"))
    return following == len(starts_ns) or int(starts_ns[following]) >= collective.end_ns
