"""The emulated link in a device trace: the kernels that take its time, and what moved the data meanwhile.

::

    host     ├──────── dtbench::collective ────────┤
               ├ dtbench::link ┤   call of NCCL
    lane                           ██████spin██████
    NCCL                                  ██          moves the data: of no kind, as gloo's spans are on CPU
    as read                        ████████████████   one collective, on its lane until both have ended

Consumers wait for the link, which waits for NCCL, so that the collective lasts until the later end of the two. A spin
inside ``dtbench::timed`` is a block's compute; only what was launched inside ``dtbench::link`` is the link's.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dtbench.base.ranges import COLLECTIVE_PREFIX, LINK_PREFIX
from dtbench.base.vocabulary import Kind
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.kinds.categories import KERNEL
from dtbench.traces.time.enclosures import NOTHING
from dtbench.traces.time.intervals import Bools
from dtbench.traces.trace import Details, Trace


def serves(trace: Trace, nesting: Nesting) -> Bools:
    """Select the kernels that take the time of the link, shape ``(n,)``."""
    found = np.zeros(len(trace), dtype=np.bool_)
    links = trace.is_named(lambda name: name.startswith(LINK_PREFIX))
    if links.any():
        kernels = np.flatnonzero(trace.is_one_of((KERNEL,)))
        found[kernels[nesting.innermost(nesting.calls(kernels), links) != NOTHING]] = True
    return found


def read_link(trace: Trace, nesting: Nesting, kinds: Mapping[Kind, Bools]) -> tuple[Trace, Mapping[Kind, Bools]]:
    """Return trace and kinds with each collective that the link carried where its lane served it, and nowhere else.

    Args:
        trace: the events.
        nesting: its nesting.
        kinds: as from ``device_kinds``, for each shape ``(n,)``.

    Returns:
        The trace, with services that last until their backend has ended and say what it says; and the kinds, without
        the backend's own events, which have none.
    """
    spins = np.flatnonzero(serves(trace, nesting))
    if not len(spins):
        return trace, kinds
    comm = np.flatnonzero(kinds[Kind.COMM])
    moves = comm[~np.isin(comm, spins)]
    issues = trace.is_named(lambda name: name.startswith(COLLECTIVE_PREFIX))
    issue_of_spin, issue_of_move = (nesting.innermost(nesting.calls(events), issues) for events in (spins, moves))
    is_carried = (issue_of_move != NOTHING) & np.isin(issue_of_move, issue_of_spin)
    moves, issue_of_move = moves[is_carried], issue_of_move[is_carried]
    latest_ns: dict[int, int] = {}
    said: dict[int, Details] = {}
    for move, issue in zip(moves.tolist(), issue_of_move.tolist(), strict=True):
        latest_ns[issue] = max(latest_ns.get(issue, 0), int(trace.end_ns[move]))
        if move in trace.details:
            said.setdefault(issue, trace.details[move])
    ends_ns, details = trace.end_ns.copy(), dict(trace.details)
    for spin, issue in zip(spins.tolist(), issue_of_spin.tolist(), strict=True):
        ends_ns[spin] = max(int(ends_ns[spin]), latest_ns.get(issue, 0))
        if issue in said:
            details[spin] = said[issue]
    masks = {kind: mask.copy() for kind, mask in kinds.items()}
    for mask in masks.values():
        mask[moves] = False
    return replace(trace, end_ns=ends_ns, details=details), masks
