"""Sends and receives over gloo, whose spans lie on the thread that asked for them: when each ran, and who waited.

::

    c10d::send          ├─┤
    gloo:send             ├───────────────────────────────┤      open until ``wait()`` returns, whenever the data went
    thread                    ██ compute ██  host   ██         |
    wait                                              ░░░░░░░░     from the last that the thread began or ended
    counted as its span       ▓▓▓▓▓▓▓▓▓▓▓▓▓         ▓▓▓▓▓▓▓▓▓▓

torch opens the span when it makes the work and closes it when somebody has waited for that (``ProcessGroupGloo.cpp``,
``SendWork::wait``). So how long the thread stood still is known, and nothing else: beside compute it may have been
under way, and is counted as hidden, which is at most what was; while the thread did neither, the host worked.

``dist.recv`` is ``dist.irecv`` and a wait at once, and leaves the same spans: where the thread went on meanwhile the
call did not block, where it stood still from the call's return only frames (``with_stack``) say whether it did.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dtbench.base.vocabulary import POINT_TO_POINT
from dtbench.traces.account.waits import Wait
from dtbench.traces.time.intervals import Intervals, Ints, clip, intersect, unite, unite_all
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Collective

_CALL: Final = re.compile(r".*\bdistributed_c10d\.py\(\d+\): (i?)(?:send|recv)")


def settle_sends(
    trace: Trace, collectives: Sequence[Collective], compute: Mapping[str, Intervals]
) -> tuple[Collective, ...]:
    """Return sends and receives on threads that run the model the time that they take, and their waits.

    Args:
        trace: the events.
        collectives: of the trace.
        compute: of each thread that runs the model, as from ``compute_of_threads``.
    """
    if not any(one.operation in POINT_TO_POINT and one.lane in compute for one in collectives):
        return tuple(collectives)
    of_model = unite_all(*compute.values())
    moments = {lane: _moments(trace, lane) for lane in {one.lane for one in collectives} & set(compute)}
    return tuple(
        _settle(one, of_model, moments[one.lane])
        if one.operation in POINT_TO_POINT and one.lane in moments and len(one.span.starts_ns)
        else one
        for one in collectives
    )


def _moments(trace: Trace, lane: str) -> Ints:
    """Return when a thread began or ended anything, rising."""
    mine = trace.lane == ["/".join(one) for one in trace.lanes].index(lane)
    return np.sort(np.concatenate((trace.start_ns[mine], trace.end_ns[mine])))


def _settle(one: Collective, compute: Intervals, moments_ns: Ints) -> Collective:
    last = int(moments_ns.searchsorted(one.end_ns, side="left")) - 1
    from_ns = max(int(moments_ns[last]) if last >= 0 else one.start_ns, one.start_ns, one.issue_end_ns or 0)
    from_ns = min(from_ns, one.end_ns)
    until_ns = one.end_ns
    if one.first_wait_ns is not None:  # a range says when its consumer came
        from_ns = min(max(one.first_wait_ns, one.start_ns), until_ns)
    beside = intersect(clip(one.span, one.start_ns, from_ns), compute)
    waited = unite([from_ns], [until_ns])
    return replace(
        one,
        span=unite_all(beside, waited),
        first_wait_ns=from_ns,
        first_wait_end_ns=until_ns,
        waited=waited,
        is_wait_seen=True,
        is_async=_find_async(one, from_ns) if one.is_async is None else one.is_async,
    )


def _find_async(one: Collective, wait_ns: int) -> bool | None:
    """Tell whether the call that issued may return before it is done; None: it was waited for at once, by whomever."""
    call = next((found for name in one.above if (found := _CALL.fullmatch(name))), None)
    if call is not None:
        return call[1] == "i"
    return True if one.issue_end_ns is not None and wait_ns > one.issue_end_ns else None


def find_send_waits(told: Sequence[Collective], settled: Sequence[Collective]) -> tuple[Wait, ...]:
    """Return the waits that ``settle_sends`` found and no range of the trace says.

    Args:
        told: what it was given.
        settled: what it gave.
    """
    return tuple(
        Wait(after.purpose, after.first_wait_ns, after.first_wait_end_ns, index)
        for index, (before, after) in enumerate(zip(told, settled, strict=True))
        if before.first_wait_ns is None and after.first_wait_ns is not None and after.first_wait_end_ns is not None
    )
