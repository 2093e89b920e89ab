"""Frames of Python around an issue that say what it is for, or how it was issued: rows of ``with_stack``, by file.

Only files of libraries whose collectives are of one kind are asked: a person's own file may have any name.
"""

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from dtbench.traces.time.enclosures import NOTHING, Enclosures, find_enclosures
from dtbench.traces.time.intervals import Ints
from dtbench.traces.trace import Trace

_TELLS: Final = re.compile(
    r"(.*\W)?(deepspeed/runtime/zero/|megatron/core/optimizer/distrib_optimizer\.py"
    r"|megatron/core/distributed/param_and_grad_buffer\.py|torch/distributed/optim/zero_redundancy_optimizer\.py"
    r"|distributed_fused_adam\.py|torch/distributed/checkpoint/|torch/nn/utils/clip_grad\.py"
    r"|torch/distributed/distributed_c10d\.py\(\d+\): i?(send|recv)$)"
)


def find_frames(trace: Trace, events: Ints) -> list[tuple[str, ...]]:
    """Return the names of the telling frames open when each event of a thread begins, innermost first.

    Args:
        trace: the events.
        events: shape ``(k,)``; ``NOTHING`` has none.
    """
    frames = np.flatnonzero(trace.is_named(_TELLS.match) & trace.is_one_of(("python_function",)))
    if not len(frames) or not len(events):
        return [()] * len(events)
    around = find_enclosures(frames, trace.lane, trace.start_ns, trace.end_ns)
    places = np.where(events == NOTHING, NOTHING, around.places_around(trace.lane[events], trace.start_ns[events]))
    return [tuple(trace.name_of(frame) for frame in _climb(around, place)) for place in places.tolist()]


def _climb(around: Enclosures, place: int) -> Iterator[int]:
    while place != NOTHING:
        yield int(around.events[place])
        place = int(around.above[place])
