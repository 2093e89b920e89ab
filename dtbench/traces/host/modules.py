"""Which module's forward lies around a moment of a thread.

Four sources, the most exact first:

* the range that dtbench's worker puts around a module's call: ``dtbench::module layers.0.attention``;
* the module hierarchy that an operator carries (``with_modules``), as it is written there;
* ``nn.Module: Linear_3`` rows (``with_stack``), outermost first: ``Net_0.Block_1.Linear_3``;
* FSDP2's hooks: between the end of ``FSDP::pre_forward (layers.0)`` and the start of ``FSDP::post_forward (layers.0)``
  the unit ``layers.0`` runs; the root, which FSDP does not name, is ``root``.
"""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtbench.base.ranges import MODULE_PREFIX, ROOT
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.time.enclosures import NOTHING, Enclosures, find_enclosures
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.trace import Trace

_MODULE: Final = "nn.Module: "
_EXPERTS: Final = ("expert", "experts")
_HOOK: Final = re.compile(r"FSDP::(pre|post)_forward(?: \((.*)\))?", re.DOTALL)


@dataclass(frozen=True)
class Modules:
    """Module at every moment of a trace.

    Attributes:
        is_call: shape ``(n,)``, the ranges of dtbench's worker.
        frames: ``nn.Module`` rows of Python.
        units: time between FSDP's hooks; its events are indices into ``unit_names``.
        unit_names: FQN of each unit's forward.
    """

    is_call: Bools
    frames: Enclosures
    units: Enclosures
    unit_names: tuple[str, ...]


def find_modules(trace: Trace) -> Modules:
    """Collect what a trace says about modules, besides what single operators carry."""
    frames = np.flatnonzero(_is_named(trace, _MODULE))
    lanes, starts_ns, ends_ns, names = _find_units(trace)
    return Modules(
        is_call=_is_named(trace, MODULE_PREFIX) & trace.is_one_of(("user_annotation", "cpu_op")),
        frames=find_enclosures(frames, trace.lane, trace.start_ns, trace.end_ns),
        units=find_enclosures(np.arange(len(names)), lanes, starts_ns, ends_ns),
        unit_names=names,
    )


def find_modules_of_experts(trace: Trace) -> frozenset[str]:
    """Return the modules that call a part of theirs by the name of experts, where ranges of dtbench's worker say so."""
    calls = (name.removeprefix(MODULE_PREFIX).rpartition(".") for name in trace.names if name.startswith(MODULE_PREFIX))
    return frozenset(whole or ROOT for whole, _, part in calls if part in _EXPERTS)


def _is_named(trace: Trace, prefix: str) -> Bools:
    """Tell for each event, shape ``(n,)``, whether its name begins so."""
    return trace.is_named(lambda name: name.startswith(prefix))


def _find_units(trace: Trace) -> tuple[NDArray[np.int32], Ints, Ints, tuple[str, ...]]:
    """Pair each unit's hook before forward with the next hook of the unit on the thread, if that is the one after."""
    hooks = [_HOOK.fullmatch(name) for name in trace.names]
    numbers: dict[str, int] = {}
    unit_of = np.array(
        [numbers.setdefault(hook[2] or ROOT, len(numbers)) if hook else NOTHING for hook in hooks], dtype=np.int64
    )
    names = tuple(numbers)
    is_before = np.array([hook is not None and hook[1] == "pre" for hook in hooks], dtype=np.bool_)
    is_hook = trace.is_named(_HOOK.fullmatch) & trace.is_one_of(("user_annotation", "cpu_op"))
    events = np.flatnonzero(is_hook)
    lanes, units = trace.lane[events], unit_of[trace.name[events]]
    order = np.lexsort((trace.start_ns[events], units, lanes))
    events, lanes, units = events[order], lanes[order], units[order]
    before = is_before[trace.name[events]]
    first = np.flatnonzero(before[:-1] & ~before[1:] & (lanes[1:] == lanes[:-1]) & (units[1:] == units[:-1]))
    return (
        lanes[first],
        trace.end_ns[events[first]],
        trace.start_ns[events[first + 1]],
        tuple(names[unit] for unit in units[first].tolist()),
    )


def name_modules(trace: Trace, nesting: Nesting, modules: Modules, events: Ints) -> list[str]:
    """Name the module in whose forward each event of a thread begins; empty text: not known.

    Args:
        trace: the events.
        nesting: its nesting.
        modules: as from ``find_modules``.
        events: shape ``(k,)``, of threads; ``NOTHING`` has no module.
    """
    if np.all(events == NOTHING):
        return [""] * len(events)
    lanes, starts_ns = trace.lane[events], trace.start_ns[events]
    calls = nesting.innermost(events, modules.is_call) if modules.is_call.any() else np.full(len(events), NOTHING)
    frames = modules.frames.places_around(lanes, starts_ns)
    units = modules.units.around(lanes, starts_ns)
    known: dict[int, str] = {NOTHING: ""}
    names = []
    said = _find_hierarchies(trace, nesting, events)
    columns = (column.tolist() for column in (events, calls, frames, units))
    for hierarchy, event, call, frame, unit in zip(said, *columns, strict=True):
        if frame not in known:
            known[frame] = _path(trace, modules.frames, frame)
        range_name = "" if call == NOTHING else trace.name_of(call).removeprefix(MODULE_PREFIX)
        unit_name = "" if unit == NOTHING else modules.unit_names[unit]
        name = range_name or hierarchy or known[frame] or unit_name
        names.append("" if event == NOTHING else name)
    return names


def _find_hierarchies(trace: Trace, nesting: Nesting, events: Ints) -> list[str]:
    if not trace.modules:
        return [""] * len(events)
    says = np.zeros(len(trace), dtype=np.bool_)
    says[[event for event, module in trace.modules.items() if module]] = True
    found = np.where(says[events], events, nesting.innermost(events, says))
    return [trace.modules.get(event, "") for event in found.tolist()]


def _path(trace: Trace, frames: Enclosures, place: int) -> str:
    parts: list[str] = []
    while place != NOTHING:
        parts.append(trace.name_of(int(frames.events[place])).removeprefix(_MODULE))
        place = int(frames.above[place])
    return ".".join(reversed(parts))
