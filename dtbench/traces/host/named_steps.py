"""Steps that a trace marks otherwise than ``ProfilerStep#N``: a person's own ranges, by their name.

::

    trace     ├ my_step ──────┤ eval ├ my_step ──────┤         or ├ my_step 7 ┤ ├ my_step 8 ┤
    read as   ├ ProfilerStep#0 ┤      ├ ProfilerStep#1 ┤            as they are numbered

It is done where a trace is read, so that whoever asks for steps finds what he knows. A step is what its range issued,
no more: what is done between two of them is of no step.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np

from dtbench.base.errors import TraceError
from dtbench.base.ranges import STEP_PREFIX
from dtbench.base.units import count_things
from dtbench.scenario.mistakes import find_nearest
from dtbench.traces.kinds.categories import OPERATOR
from dtbench.traces.notes.files import NamedSteps
from dtbench.traces.time.intervals import Ints
from dtbench.traces.trace import Trace

_RANGES: Final = ("user_annotation", OPERATOR)
_NUMBER: Final = r"[\s#:=_./-]*[\[(]?(?P<number>\d{1,18})[\])]?"
_NUMBERED: Final = re.compile(rf"(?P<name>.+?){_NUMBER}", re.DOTALL)
_MARK: Final = re.compile(rf"{STEP_PREFIX}\d+")
# Ranges of torch's and of dtbench's, and of libraries: nobody marks a step with these.
_OF_OTHERS: Final = re.compile(
    r"ProfilerStep|dtbench::|Optimizer\.|FSDP|DistributedDataParallel|enumerate\(|autograd|\w+::|[a-z]*ccl:|gloo:|mpi:|PP:|"
    r"(?:Torch-Compiled|CompiledFunction|PyTorch)",
)
_MOST_NAMES: Final = 5


def mark_steps(trace: Trace, name: str) -> tuple[Trace, NamedSteps]:
    """Return a trace whose steps are its ranges of a name, and a note that says so, of no rank yet.

    Ranges called exactly so are numbered from 0 on in their order; without any, those of this name and a number of
    their own (``my_step 7``, ``my_step#7``, ``my_step[7]``) keep that. One inside another is no step, nor one that
    begins in a step and ends after it, though it has a number: ranks that lose others so are paired all the same. Of
    those with one number the first is a step. Marks of the profiler's are steps no more.

    Raises:
        TraceError: no range has the name.
    """
    is_range = trace.is_one_of(_RANGES)
    events = np.flatnonzero(is_range & trace.is_named(lambda one: one == name))
    own = re.compile(rf"{re.escape(name)}{_NUMBER}", re.DOTALL)
    is_numbered = not len(events)
    if is_numbered:
        events = np.flatnonzero(is_range & trace.is_named(own.fullmatch))
    if not len(events):
        raise TraceError(f"{trace.path}: no range is named `{name}`; {_point_to(trace, name)}")
    outermost = _leave_inside(trace, events)
    places = _find_apart(trace, outermost)
    steps = outermost[places]
    numbers = [
        int(match["number"]) if is_numbered and (match := own.fullmatch(trace.name_of(event))) else place
        for place, event in zip(places, steps.tolist(), strict=True)
    ]
    ranges = len(set(numbers))
    said = NamedSteps(
        ranks=(),
        name=name,
        ranges=ranges,
        is_numbered=is_numbered,
        inside=len(events) - len(outermost),
        overlapping=len(outermost) - len(steps),
        repeated=len(steps) - ranges,
        marks=int(np.count_nonzero(trace.is_named(_MARK.fullmatch) & is_range)),
    )
    return _rename(trace, steps, numbers), said


def _rename(trace: Trace, steps: Ints, numbers: Iterable[int]) -> Trace:
    """Give some ranges the names of steps; whatever was called so before is called no step any more."""
    names = [f"({one})" if _MARK.fullmatch(one) else one for one in trace.names]
    place = {f"{STEP_PREFIX}{number}": len(names) + at for at, number in enumerate(dict.fromkeys(numbers))}
    name = trace.name.copy()
    name[steps] = [place[f"{STEP_PREFIX}{number}"] for number in numbers]
    renamed = replace(trace, names=(*names, *place), name=name, has_named_steps=True)
    return renamed.select(np.ones(len(trace), dtype=np.bool_))  # every name is some event's


def _leave_inside(trace: Trace, events: Ints) -> Ints:
    """Return ranges in order of time, both of their begins and of their ends, without those inside others."""
    order = events[np.lexsort((-trace.end_ns[events], trace.start_ns[events]))]
    starts_ns, ends_ns = trace.start_ns[order[1:]], trace.end_ns[order]
    until_ns = np.maximum.accumulate(ends_ns)[:-1]
    is_outside = np.append(True, (ends_ns[1:] > until_ns) | (starts_ns >= until_ns))
    return np.asarray(order[is_outside], dtype=np.int64)


def _find_apart(trace: Trace, outermost: Ints) -> list[int]:
    """Return the places of ranges, of those in order of time, that begin when the last one returned has ended."""
    places: list[int] = []
    for place, event in enumerate(outermost.tolist()):
        if not places or trace.start_ns[event] >= trace.end_ns[outermost[places[-1]]]:
            places.append(place)
    return places


def find_likely_range(trace: Trace) -> tuple[str, int] | None:
    """Return the name of ranges that may mark steps, and how many there are: of those that come twice, which take most.

    None: no range of a person's own comes twice.
    """
    own = _list_own(trace)
    outermost = {name: _leave_inside(trace, np.array(events)) for name, events in own.items() if len(events) > 1}
    found = {name: events[_find_apart(trace, events)] for name, events in outermost.items()}
    took_ns = {
        name: int((trace.end_ns - trace.start_ns)[events].sum()) for name, events in found.items() if len(events) > 1
    }
    most = max(took_ns, key=took_ns.__getitem__, default=None)
    return None if most is None else (most, len(found[most]))


def _list_own(trace: Trace) -> dict[str, list[int]]:
    """Return the ranges of a person's own by name, without the numbers at their ends."""
    events = np.flatnonzero(
        trace.is_one_of(("user_annotation",)) & trace.is_named(lambda one: not _OF_OTHERS.match(one))
    )
    found: dict[str, list[int]] = {}
    for event in events.tolist():
        whole = trace.name_of(event)
        match = _NUMBERED.fullmatch(whole)
        found.setdefault(match["name"] if match else whole, []).append(event)
    return found


def _point_to(trace: Trace, name: str) -> str:
    """Say which ranges there are, in place of one that is not."""
    counts = Counter({own: len(events) for own, events in _list_own(trace).items()})
    near = find_nearest(name, counts)
    if near is not None:
        return f"did you mean `{near}` ({count_things(counts[near], 'range')})?"
    if not counts:
        return "none is a loop's own; `with torch.profiler.record_function('my_step'):` around a step makes one"
    named = ", ".join(f"`{own}` ({count})" for own, count in counts.most_common(_MOST_NAMES))
    more = f" and {len(counts) - _MOST_NAMES} more" if len(counts) > _MOST_NAMES else ""
    return f"there are {named}{more}"
