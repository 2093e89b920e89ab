"""Whose gradient a collective of the tensor axis completes: told by the hook that waits for it.

::

    backward      mm │issue│ other compute ............... │ sync_grad_hook (layers.1.up.weight) ──────────┤
    tensor axis            ├─────────── reduce-scatter of its gradient ──────────────────────────────────┤
    first wait                                               |

DTensor's redistributions belong to the module, or to the operator, that asked. ``sync_grad_hook`` runs for a parameter,
and its range says for which (``dtbench.worker.probes.parameters``): what is first waited for inside belongs to that.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dtbench.base.ranges import parse_probe_range
from dtbench.base.vocabulary import Region
from dtbench.seeds.functions import GRADIENT_HOOKS, stem_of
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Collective

HOOK: Final = f"{stem_of(GRADIENT_HOOKS)}.sync_grad_hook"


def name_gradients(trace: Trace, collectives: Sequence[Collective]) -> tuple[Collective, ...]:
    """Return collectives that a parameter's hook was the first to wait for to that parameter."""
    owners = {number: owner for number, name in enumerate(trace.names) if (owner := _parameter_of(name)) is not None}
    events = np.flatnonzero(np.isin(trace.name, list(owners)))
    events = events[np.argsort(trace.start_ns[events], kind="stable")]
    if not len(events):
        return tuple(collectives)
    starts_ns, ends_ns = trace.start_ns[events], trace.end_ns[events]
    named = []
    for one in collectives:
        waited_ns = one.first_wait_ns
        place = -1 if waited_ns is None else int(starts_ns.searchsorted(waited_ns, side="right")) - 1
        if waited_ns is not None and place >= 0 and waited_ns < ends_ns[place]:
            named.append(replace(one, owner=owners[int(trace.name[events[place]])], awaited_by=HOOK))
        else:
            named.append(one)
    return tuple(named)


def _parameter_of(name: str) -> str | None:
    """Return the parameter that a range of the hook is for; None: another range, or the hook of nobody knows what."""
    found = parse_probe_range(name)
    if found is None or found[0] != HOOK or found[1] in set(Region):
        return None
    return found[1]
