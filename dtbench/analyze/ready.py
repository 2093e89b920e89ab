"""From when on a collective of a CPU trace could have been issued, where the trace can tell."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dtbench.analyze.collectives import Collective, Regions
from dtbench.analyze.intervals import Ints
from dtbench.analyze.nesting import Nesting
from dtbench.analyze.purposes import FSDP1_GRADIENTS
from dtbench.analyze.trace import Trace
from dtbench.vocabulary import Purpose

_ACCUMULATE: Final = "torch::autograd::AccumulateGrad"
_HOOK: Final = f"autograd::engine::evaluate_function: {_ACCUMULATE}"
_FSDP_GRADIENTS: Final = ("FSDP::post_backward_reduce", FSDP1_GRADIENTS)


def find_gradients_ready(trace: Trace, nesting: Nesting, issues: Sequence[int]) -> Mapping[int, int]:
    """Give when the gradients of each reduction were there, in ns, by the event that issued it.

    ::

        engine           ├─ evaluate_function: AccumulateGrad ───────┤
        AccumulateGrad     ███|
        bucket 0              |  copy, scale   ├─issue─┤                  ready where AccumulateGrad ends
        bucket 1              |                          ├─issue─┤        had waited for its turn: unknown since when

    A DDP bucket is launched in the hook of the ``AccumulateGrad`` that brought its last gradient, unless it had to wait
    for a bucket before it: of several launched in one hook only the first is told. FSDP's are ready when its
    post-backward begins. Other issues are left out.

    Args:
        trace: the events.
        nesting: its nesting.
        issues: events that issue collectives, in order of start.
    """
    known = {name: number for number, name in enumerate(trace.names)}
    ends_ns = np.sort(trace.end_ns[trace.name == known.get(_ACCUMULATE, -1)])
    hooks: set[int] = set()
    ready: dict[int, int] = {}
    for issue in issues:
        around = list(nesting.enclosing(issue))
        begun = [int(trace.start_ns[event]) for event in around if trace.name_of(event).startswith(_FSDP_GRADIENTS)]
        hook = next((event for event in around if trace.name_of(event) == _HOOK), None)
        if begun:
            ready[issue] = min(begun)
        elif hook is not None and hook not in hooks:
            hooks.add(hook)
            last_ns = _last_before(ends_ns, int(trace.start_ns[issue]))
            if last_ns is not None and last_ns > trace.start_ns[hook]:
                ready[issue] = last_ns
    return ready


def _last_before(times_ns: Ints, time_ns: int) -> int | None:
    place = int(np.searchsorted(times_ns, time_ns, side="right")) - 1
    return int(times_ns[place]) if place >= 0 else None


def tell_unshards_ready(collectives: Sequence[Collective], regions: Regions) -> tuple[Collective, ...]:
    """Fill in from when on each unshard could have been issued: the unit before began to compute.

    That is when it had been waited for. The first unshard of a forward or backward has none before it and stays
    unknown, as does one whose predecessor nobody was seen to wait for, and every one where no region is known.
    Collectives in order of issue.
    """
    told = list(collectives)
    before: Collective | None = None
    place_before = -1
    for index, one in enumerate(collectives):
        if one.purpose is not Purpose.UNSHARD or one.issue_ns is None or one.region is None:
            continue
        place = int(np.searchsorted(regions.starts_ns, one.issue_ns, side="right"))
        if before is not None and place == place_before and before.first_wait_end_ns is not None:
            told[index] = replace(one, ready_ns=min(before.first_wait_end_ns, one.issue_ns))
        before, place_before = one, place
    return tuple(told)
