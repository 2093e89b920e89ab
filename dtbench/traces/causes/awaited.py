"""When, on the host's clock, a consumer could first have queued a wait for each collective of a device trace.

What the host launched before that does not depend on the collective, whatever the streams did::

    host      c          k1   w      k2        c: issue; k1, k2: launches of compute; w: the first possible wait
    comm          ├───c──────────┤
    compute                       ██k1██ ██k2██     k1 stood launched and needed nothing of c; k2 may have waited for it

A wait of one stream for another is a call of the host (``cudaStreamWaitEvent``), which says neither stream. Where a
trace holds such calls, every one after the issue may be the wait, but not those that lie inside the call that issues a
collective (there the communication waits for compute), nor those of an owner whose own waits are known: FSDP's lie in
ranges of its own, DTensor's in ``wait_tensor``. A trace without such calls says less: then the owner's structure
decides, and for what has none nothing is known. torch 2.15's NCCL engine records each wait with group and number of its
collective: what FSDP does not wait for in ranges of its own is waited for there, and nowhere else.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from dtbench.base.vocabulary import Purpose, Region
from dtbench.traces.causes.ready import find_copy_outs
from dtbench.traces.host.backwards import OPTIMIZER, engine_nodes, is_on_device, sort_starts
from dtbench.traces.host.nesting import Nesting
from dtbench.traces.kinds.categories import CALLS, DEVICE_RANGE
from dtbench.traces.kinds.operators import is_issue, is_wait_tensor
from dtbench.traces.time.intervals import Intervals, Ints
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Collective, Regions
from dtbench.traces.who.purposes import ACCUMULATES, FSDP1, find_unit, is_fsdps, is_functional
from dtbench.traces.who.strategy import Strategy, find_strategies

_STREAM_WAIT: Final = re.compile(r"(?:cuda|hip|cu|musa|xpu)StreamWaitEvent\w*")
_RS_WAIT: Final = "FSDP::post_backward_rs_wait"
"""From torch 2.13 on the only range in which backward's compute waits for an earlier reduction."""
_LAST_WAITS: Final = ("FSDP::root_post_backward_callback", "FSDP::finalize_backward")
"""In which FSDP2 reduces what no hook of backward has, and compute waits for all reductions at the end."""
_REDUCTION_WAITS: Final = (_RS_WAIT, *_LAST_WAITS)
_FSDP1_UNSHARDS: Final = (f"{FSDP1}_pre_forward", f"{FSDP1}_pre_backward_hook")
_WAIT: Final = "wait"
"""What a record of a wait calls it."""
_FUNCTION: Final = re.compile(r"_?[A-Z]\w*")
"""How autograd functions are called, forward and backward; operators have a namespace."""
_OF_ACTIVATIONS: Final = (Purpose.TENSOR, Purpose.CONTEXT, Purpose.EXPERT)


@dataclass(frozen=True)
class Awaited:
    """When a wait for one collective may first have been queued.

    Attributes:
        from_ns: host's clock; None: no wait was queued before the trace ends.
        is_known: whether what was launched before needs nothing of it; False: the trace does not tell.
    """

    from_ns: int | None
    is_known: bool

    def is_before(self, launch_ns: int) -> bool:
        """Tell whether what was launched then may depend on it."""
        return self.from_ns is not None and self.from_ns <= launch_ns


def find_awaited(
    trace: Trace, nesting: Nesting, regions: Regions, collectives: Sequence[Collective], *, is_late: bool = False
) -> tuple[Awaited | None, ...]:
    """Find the first possible wait for each collective; None: its issue is not in the trace, or a graph's.

    Args:
        trace: of a device.
        nesting: its nesting.
        regions: what the training loop was doing when.
        collectives: of the trace.
        is_late: a wait inside a call that may have issued one whose issue is not in the trace is nobody's; False:
            anybody's.
    """
    waits = _Waits(trace, nesting, regions, _Issues.of(collectives, with_untold=is_late))
    return tuple(
        None if one.issue_ns is None or one.is_captured else waits.first_for(one, one.issue_ns) for one in collectives
    )


@dataclass(frozen=True)
class _Issues:
    """When collectives were issued: at these moments, or between two."""

    moments_ns: frozenset[int]
    between_ns: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, collectives: Sequence[Collective], *, with_untold: bool) -> "_Issues":
        """Collect those of some collectives."""
        untold = [one.issue_between_ns for one in collectives if one.issue_ns is None and len(one.span.starts_ns)]
        return cls(
            frozenset(one.issue_ns for one in collectives if one.issue_ns is not None),
            tuple(between for between in untold if between is not None and with_untold),
        )

    def may_be_inside(self, start_ns: int, end_ns: int) -> bool:
        """Tell whether a call may have issued one."""
        if start_ns in self.moments_ns:
            return True
        return any(first_ns < end_ns and last_ns > start_ns for first_ns, last_ns in self.between_ns)


class _Waits:
    """Where a trace may wait for collectives; moments of the host's clock, rising."""

    def __init__(self, trace: Trace, nesting: Nesting, regions: Regions, issues: _Issues) -> None:
        self._trace = trace
        self._regions = regions
        calls = np.flatnonzero(trace.is_named(_STREAM_WAIT.fullmatch) & trace.is_one_of(CALLS))
        self._records = len(calls) > 0
        self._recorded_of = _find_recorded(trace)
        anyones = [call for call in calls.tolist() if self._is_anyones(nesting, call, issues)]
        self._recorded = np.sort(trace.start_ns[np.array(anyones, dtype=np.int64)])

    def _is_anyones(self, nesting: Nesting, call: int, issues: _Issues) -> bool:
        """Tell whether a recorded wait may be for any collective: nothing around it says whose it is.

        ``record_param_comms`` lies around a ``Work.wait`` too, and then issues nothing.
        """
        around = list(nesting.enclosing(call))
        names = [self._trace.name_of(above) for above in around]
        outermost = [above for above, name in zip(around, names, strict=True) if is_issue(name)][-1:]
        if any(issues.may_be_inside(*self._window_of(above)) for above in outermost):
            return False
        if any(_said_of(self._trace, above) is not None for above in around):
            return False
        return not any(is_fsdps(name) or is_wait_tensor(name) for name in names)

    def _window_of(self, event: int) -> tuple[int, int]:
        return int(self._trace.start_ns[event]), int(self._trace.end_ns[event])

    def first_for(self, one: Collective, issue_ns: int) -> Awaited:
        """Return the first possible wait for a collective that was issued then."""
        returned_ns = issue_ns if one.issue_end_ns is None else one.issue_end_ns
        recorded = self._recorded_of.get((one.group, one.seq))
        if recorded is not None and not any(is_fsdps(name) for name in one.above):
            return Awaited(_first_from(recorded, issue_ns), is_known=True)
        own = self._first_own(one, issue_ns)
        anyones_ns = _first_from(self._recorded, issue_ns)
        if own is not None:
            return Awaited(_earlier(own.from_ns, anyones_ns), own.is_known)
        if any(is_fsdps(name) for name in one.above):
            return Awaited(None, is_known=False)
        if one.is_async is False or self._hands_back(one):  # whoever issued it waits at once
            return Awaited(returned_ns, is_known=True)
        return Awaited(anyones_ns, is_known=self._records)

    def _hands_back(self, one: Collective) -> bool:
        """Tell whether an autograd function returns its result, in a trace that holds no waits of streams.

        Tensor, context and expert parallelism communicate what the next operator takes; those that do so asynchronously
        say it in their names (Megatron's ``LinearWithGradAccumulationAndAsyncCommunication``).
        """
        if self._records or one.is_async or one.purpose not in _OF_ACTIVATIONS:
            return False
        function = next((name for name in one.above if _FUNCTION.fullmatch(name)), None)
        return function is not None and "async" not in function.lower()

    def _first_own(self, one: Collective, issue_ns: int) -> Awaited | None:
        """Return the first wait that the structure of its owner allows; None: it has none that is known."""
        if any(is_functional(name) for name in one.above):
            is_known = self._records or len(self._wait_tensors) > 0
            return Awaited(_first_from(self._wait_tensors, issue_ns), is_known)
        if any(name.startswith("FSDP::") for name in one.above):
            return self._first_of_fsdp2(one, issue_ns)
        if any(name.startswith(FSDP1) and is_fsdps(name) for name in one.above):
            return self._first_of_fsdp1(one, issue_ns)
        if one.purpose is Purpose.GRAD_REDUCE and one.is_async is not False:
            is_reducers = self._is_ddp and any(ACCUMULATES.match(name) for name in one.above)
            return self._after_backward(issue_ns, is_known=is_reducers or self._records)
        return None

    def _first_of_fsdp2(self, one: Collective, issue_ns: int) -> Awaited | None:
        if one.purpose is Purpose.UNSHARD:
            ranges = self._copy_outs.get(find_unit(one.above) or one.owner)
            return None if ranges is None else Awaited(_first_from(ranges, issue_ns), is_known=True)
        if one.purpose is not Purpose.GRAD_REDUCE:
            return None
        if any(name.split(" (")[0] in _LAST_WAITS for name in one.above):  # the root's: it is waited for right there
            return Awaited(issue_ns if one.issue_end_ns is None else one.issue_end_ns, is_known=True)
        next_ns, last = _first_from(self._reduction_waits, issue_ns), self._after_backward(issue_ns, is_known=True)
        if last is None:
            return None if next_ns is None else Awaited(next_ns, is_known=True)
        return Awaited(_earlier(next_ns, last.from_ns), is_known=True)

    def _first_of_fsdp1(self, one: Collective, issue_ns: int) -> Awaited | None:
        if one.purpose is Purpose.GRAD_REDUCE:
            return self._after_backward(issue_ns, is_known=True)
        if one.purpose is not Purpose.UNSHARD:
            return None
        if not any(name.endswith("_prefetch") for name in one.above):
            return Awaited(issue_ns, is_known=True)  # its unit waits for it in the same range
        return Awaited(_first_from(self._fsdp1_unshards, issue_ns), is_known=True)

    def _after_backward(self, issue_ns: int, *, is_known: bool) -> Awaited | None:
        """Return the end of the last node of autograd's engine in the backward pass that issued then; None: not known.

        An optimizer that steps inside one of its nodes waits for the gradients that it takes, and what was launched
        there may have: then only calls of the host tell.
        """
        place = self._regions.place_at(issue_ns)
        if place is None or self._regions.regions[place] is not Region.BACKWARD:
            return None
        ends_ns = self._nodes.ends_ns
        last = int(ends_ns.searchsorted(int(self._regions.ends_ns[place]), side="right")) - 1
        if last < 0:
            return None
        beyond_ns = int(ends_ns[last])
        first, beyond = self._steps_inside.searchsorted((issue_ns, beyond_ns)).tolist()
        return Awaited(max(issue_ns, beyond_ns), is_known and (self._records or first == beyond))

    @cached_property
    def _is_ddp(self) -> bool:
        return Strategy.DDP in find_strategies(self._trace)

    @cached_property
    def _nodes(self) -> Intervals:
        return engine_nodes(self._trace, handing_over=True)

    @cached_property
    def _steps_inside(self) -> Ints:
        """When optimizers began to step inside nodes of autograd's engine, rising."""
        is_step = self._trace.is_named(lambda name: name.startswith(OPTIMIZER)) & ~is_on_device(self._trace)
        starts_ns = sort_starts(self._trace, is_step)
        return starts_ns[self._nodes.covers(starts_ns)]

    @cached_property
    def _copy_outs(self) -> Mapping[str, Ints]:
        return find_copy_outs(self._trace)

    @cached_property
    def _wait_tensors(self) -> Ints:
        chosen = self._trace.is_named(is_wait_tensor)
        return np.sort(self._trace.start_ns[chosen])

    @cached_property
    def _fsdp1_unshards(self) -> Ints:
        return self._starts(_FSDP1_UNSHARDS)

    @cached_property
    def _reduction_waits(self) -> Ints:
        """Starts of the ranges in which compute waits for reductions; before torch 2.13 the next one's own."""
        before = () if len(self._starts((_RS_WAIT,))) else ("FSDP::post_backward_reduce",)
        return self._starts((*_REDUCTION_WAITS, *before))

    def _starts(self, names: tuple[str, ...]) -> Ints:
        chosen = self._trace.is_named(lambda name: name.split(" (")[0] in names)
        return np.sort(self._trace.start_ns[chosen & ~self._trace.is_one_of((DEVICE_RANGE,))])


def _find_recorded(trace: Trace) -> Mapping[tuple[str, int | None], Ints]:
    """Return the starts of all recorded waits of each collective, by its group and number, rising."""
    starts: dict[tuple[str, int | None], list[int]] = {}
    for event in trace.details:
        if (said := _said_of(trace, event)) is not None:
            starts.setdefault(said, []).append(int(trace.start_ns[event]))
    return {said: np.sort(np.array(some, dtype=np.int64)) for said, some in starts.items()}


def _said_of(trace: Trace, event: int) -> tuple[str, int | None] | None:
    """Return group and number of the collective that a record says is waited for; None: it is no such record."""
    said = trace.details.get(event)
    if said is None or said.collective != _WAIT or said.seq is None or said.group is None:
        return None
    return said.group, said.seq


def _first_from(moments_ns: Ints, time_ns: int) -> int | None:
    place = int(moments_ns.searchsorted(time_ns, side="right"))
    return int(moments_ns[place]) if place < len(moments_ns) else None


def _earlier(*moments_ns: int | None) -> int | None:
    return min((moment for moment in moments_ns if moment is not None), default=None)
