"""Where in its step something was issued, by what began or ended last on the host: step, backward, optimizer."""

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from dtbench.base.ranges import STEP_PREFIX
from dtbench.traces.kinds.categories import DEVICE_RANGE
from dtbench.traces.kinds.operators import ENGINE
from dtbench.traces.time.intervals import Ints
from dtbench.traces.trace import Trace

STEP_RANGE: Final = re.compile(r"Optimizer\.step#(\w+)\.step")
"""torch's range around an optimizer's step, by its class."""


class Place(IntEnum):
    """Where in its step something was issued: since the step began, since backward did, since the optimizer ended."""

    BEFORE = 0
    AFTER_BACKWARD = 1
    AFTER_OPTIMIZER = 2


@dataclass(frozen=True)
class Moments:
    """Moments of the host, each of shape ``(k,)`` and rising.

    Attributes:
        steps_ns: starts of the steps.
        nodes_ns: starts of the nodes of autograd's engine.
        optimizers_ns: ends of the optimizers' steps.
        optimizers: class of each of these.
    """

    steps_ns: Ints
    nodes_ns: Ints
    optimizers_ns: Ints
    optimizers: tuple[str, ...]

    def place(self, issue_ns: int) -> Place | None:
        """Return where something was issued; None: before the first step."""
        begun_ns = _last_before(self.steps_ns, issue_ns)
        if begun_ns is None:
            return None
        optimizer_ns, node_ns = (
            -1 if (last_ns := _last_before(moments_ns, issue_ns)) is None else last_ns
            for moments_ns in (self.optimizers_ns, self.nodes_ns)
        )
        if max(optimizer_ns, node_ns) < begun_ns:
            return Place.BEFORE
        return Place.AFTER_OPTIMIZER if optimizer_ns > node_ns else Place.AFTER_BACKWARD

    def optimizer_at(self, issue_ns: int) -> str:
        """Name the optimizer that stepped last before something that its step is followed by, else the next to step."""
        following = int(self.optimizers_ns.searchsorted(issue_ns, side="right"))
        chosen = following - (self.place(issue_ns) is Place.AFTER_OPTIMIZER)
        return self.optimizers[chosen] if 0 <= chosen < len(self.optimizers) else ""


def find_moments(trace: Trace) -> Moments:
    """Collect the moments of a trace."""
    on_host = ~trace.is_one_of((DEVICE_RANGE,))

    def starts(prefix: str) -> Ints:
        return np.sort(trace.start_ns[on_host & trace.is_named(lambda name: name.startswith(prefix))])

    optimizers = np.flatnonzero(on_host & trace.is_named(STEP_RANGE.fullmatch))
    optimizers = optimizers[np.argsort(trace.end_ns[optimizers], kind="stable")]
    return Moments(
        steps_ns=starts(STEP_PREFIX),
        nodes_ns=starts(ENGINE),
        optimizers_ns=trace.end_ns[optimizers],
        optimizers=tuple(
            match[1] for event in optimizers.tolist() if (match := STEP_RANGE.fullmatch(trace.name_of(event)))
        ),
    )


def _last_before(moments_ns: Ints, time_ns: int) -> int | None:
    place = int(moments_ns.searchsorted(time_ns, side="right")) - 1
    return int(moments_ns[place]) if place >= 0 else None
