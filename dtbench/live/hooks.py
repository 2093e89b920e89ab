"""Where torch's collectives and their waits on CPU are seen; ``dtbench.live.waits`` is told.

=============================================  ========================================================================
issued from Python                             methods of ``ProcessGroup``, however their callers were imported
issued in C++ (DDP, functional collectives)    the same methods behind ``dtbench.named_gloo``; else only counted
waited for in Python (FSDP, your own calls)    ``Work.wait``
waited for by DTensor                          ``wait_tensor``
waited for by DDP's reducer, in C++            its callback at the end of backward, see [Note: the reducer's wait]
waited for by DDP's broadcast of buffers       the whole call
=============================================  ========================================================================

What waits elsewhere (a future, ``is_completed`` in a loop, a compiled graph) is not seen, and counted as such. On CUDA
a host's wait returns at once and the stream waits: there, events around the stream's waits would tell ``Waits``, read
some steps later; nothing here does.

[Note: the reducer's wait] Callbacks of the autograd engine run after its last node, in the order in which they were
queued. Ours is queued by the first node of backward, DDP's when its last bucket is issued; ours queues another one,
which is last::

    backward()   node node ... node |ours| DDP: waits for its buckets, copies out of them |ours| returns

Between the two lies what DDP waits, with the copies: it stood still for at most so long. Where no bucket is on its
way, nobody waits, and nothing is counted.
"""

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.autograd import Variable

from dtbench.base.ranges import ROOT
from dtbench.base.vocabulary import REDUCTIONS, Axis, Operation, Purpose, Region, purpose_of
from dtbench.live.groups import Groups
from dtbench.live.waits import Label, Standing, Waits
from dtbench.worker.network.link import flatten_tensors
from dtbench.worker.network.named_gloo import METHODS, is_async_call
from dtbench.worker.recording.recorder import Recorder
from dtbench.worker.uncompiled import pass_over

_REPLICATED: Final = (Axis.REPLICATE, Axis.DATA)
"""Axes over which DDP reduces."""
_UNIT_METHODS: Final = ("unshard", "wait_for_unshard", "post_backward")
_KEPT: Final = 1024
"""Entries of works and outputs above which those of the past are dropped."""
_BUCKETS: Final = Label(Purpose.GRAD_REDUCE, Operation.ALL_REDUCE, Region.BACKWARD)

_Call = Callable[..., Any]


class Hooks:
    """Tells ``waits`` of the collectives of the thread that opened a step."""

    def __init__(self, waits: Waits, recorder: Recorder, groups: Groups) -> None:
        self._waits, self._recorder, self._groups = waits, recorder, groups
        self._thread = threading.get_ident()
        self._owner = ""
        self._works: dict[int, tuple[int, Any]] = {}
        self._outputs: dict[int, int] = {}
        self._reduced: dict[int, Any] = {}
        self._labels: dict[Any, Label] = {}

    def begin_step(self) -> None:
        """A step begins on this thread."""
        self._thread = threading.get_ident()
        self._groups.look()
        self._groups.take_untold()

    def end_step(self) -> int:
        """It has ended; gives how many collectives no hook saw, and nobody was seen to wait for."""
        flying = self._waits.is_in_flight
        self._reduced = {number: ref for number, ref in self._reduced.items() if flying(number)}
        if len(self._works) > _KEPT:
            self._works = {key: found for key, found in self._works.items() if flying(found[0])}
        if len(self._outputs) > _KEPT:
            self._outputs = {key: number for key, number in self._outputs.items() if flying(number)}
        return self._groups.take_untold()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let calls pass through these hooks for as long as the context lasts."""
        with ExitStack() as stack:
            for method, (operation, _) in METHODS.items():
                self._put(stack, dist.ProcessGroup, method, partial(self._watch_issue, operation))
            self._put(stack, dist.Work, "wait", self._watch_work)
            self._put(stack, functional, "wait_tensor", self._watch_tensor)
            self._put(stack, dist, "_broadcast_coalesced", self._watch_broadcast)
            self._put(stack, torch.autograd, "_engine_run_backward", self._watch_engine)
            for method in _UNIT_METHODS:
                self._put(stack, _find_units(), method, self._watch_unit)
            yield

    def _put(self, stack: ExitStack, home: Any, name: str, watch: Callable[[_Call], _Call]) -> None:
        if (call := getattr(home, name, None)) is not None:
            stack.enter_context(mock.patch.object(home, name, _pass_compiler(call, pass_over(watch(call)))))

    @property
    def _counts(self) -> bool:
        return self._waits.is_open and threading.get_ident() == self._thread

    def _watch_issue(self, operation: Operation, issue: _Call) -> _Call:
        def issued(group: Any, *args: Any, **kwargs: Any) -> Any:
            known = self._groups.find(group) if self._counts else None
            if known is None:
                return issue(group, *args, **kwargs)
            before, begun_ns = known.count(), self._waits.now_ns()
            work = issue(group, *args, **kwargs)
            known.tell(before)
            region = self._recorder.region
            label = self._find_label(known.axis, operation, region)
            is_async = work is not None and is_async_call(args, kwargs)
            number = self._waits.issue(label, begun_ns, is_async=is_async)
            if work is None:
                self._waits.end_wait(self._waits.begin_wait(number, region))
                return None
            ref = weakref.ref(work)
            self._works[id(work)] = number, ref
            if known.axis in _REPLICATED and operation in REDUCTIONS and region is Region.BACKWARD:
                self._reduced[number] = ref
            if known.group is None and args:  # a functional collective may have asked in C++
                self._outputs.update((tensor.data_ptr(), number) for tensor in flatten_tensors(args[0]))
            return work

        return issued

    def _find_label(self, axis: Axis | None, operation: Operation | None, region: Region | None) -> Label:
        key = axis, operation, region, self._owner
        if key not in self._labels:
            self._labels[key] = Label(purpose_of(axis, operation, region), operation, region, self._owner)
        return self._labels[key]

    def _watch_work(self, wait: _Call) -> _Call:
        def waited(work: Any, *args: Any, **kwargs: Any) -> Any:
            found = self._works.pop(id(work), None) if self._counts else None
            if found is None or found[1]() is not work:
                return wait(work, *args, **kwargs)
            standing = self._waits.begin_wait(found[0], self._recorder.region)
            try:
                return wait(work, *args, **kwargs)
            finally:
                self._waits.end_wait(standing)

        return waited

    def _watch_tensor(self, wait: _Call) -> _Call:
        def waited(tensor: torch.Tensor) -> torch.Tensor:
            standing = self._begin_tensor(tensor) if self._counts else None
            try:
                return wait(tensor)
            finally:
                self._waits.end_wait(standing)

        return waited

    def _begin_tensor(self, tensor: torch.Tensor) -> Standing | None:
        region = self._recorder.region
        number = self._outputs.pop(tensor.data_ptr(), None)
        if number is not None:
            return self._waits.begin_wait(number, region)
        is_awaited, axis = self._groups.take_awaited(_REPLICATED)
        if not is_awaited:
            return None
        return self._waits.begin_waits(self._find_label(axis, None, region), region, ())

    def _watch_broadcast(self, broadcast: _Call) -> _Call:
        """Watch a function that waits in C++ for all that it issues."""

        def broadcasted(group: Any, *args: Any, **kwargs: Any) -> Any:
            known = self._groups.find(group) if self._counts else None
            if known is None:
                return broadcast(group, *args, **kwargs)
            region, before = self._recorder.region, known.count()
            label = self._find_label(known.axis, Operation.BROADCAST, region)
            first = self._waits.issue(label, self._waits.now_ns(), is_async=False)
            standing = self._waits.begin_wait(first, region)
            try:
                return broadcast(group, *args, **kwargs)
            finally:
                known.tell(before)
                for number in self._waits.issued_since(first):
                    self._waits.land(number)
                self._waits.end_wait(standing)

        return broadcasted

    def _watch_engine(self, run: _Call) -> _Call:
        def ran(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            nodes = (getattr(output, "grad_fn", None) or getattr(output, "node", None) for output in outputs)
            node = next((node for node in nodes if node is not None), None) if self._counts else None
            if node is None:
                return run(outputs, *args, **kwargs)
            end = _EndOfBackward(self._begin_reducer, self._end_reducer)
            handle = node.register_prehook(end.queue)
            try:
                return run(outputs, *args, **kwargs)
            finally:
                handle.remove()
                end.finish()

        return ran

    def _begin_reducer(self) -> Standing | None:
        numbers = tuple(
            number for number, ref in self._reduced.items() if ref() is None and self._waits.is_in_flight(number)
        )
        if not numbers and not self._groups.take_untold(_REPLICATED):
            return None
        return self._waits.begin_waits(_BUCKETS, self._recorder.region, numbers)

    def _end_reducer(self, standing: Standing | None) -> None:
        self._groups.take_untold(_REPLICATED)
        self._waits.end_wait(standing)

    def _watch_unit(self, call: _Call) -> _Call:
        """While a method of FSDP2's unit runs, what is issued is that unit's."""

        def watched(unit: Any, *args: Any, **kwargs: Any) -> Any:
            before, self._owner = self._owner, getattr(unit, "_module_fqn", None) or ROOT
            try:
                return call(unit, *args, **kwargs)
            finally:
                self._owner = before

        return watched


class _EndOfBackward:
    """Looks when the callbacks of an autograd engine's run begin and end; see [Note: the reducer's wait]."""

    def __init__(self, begin: Callable[[], Standing | None], end: Callable[[Standing | None], None]) -> None:
        self._begin, self._end = begin, end
        self._standing: Standing | None = None

    def queue(self, _gradients: Any) -> None:
        """The first node of backward runs."""
        Variable._execution_engine.queue_callback(self._start)

    def _start(self) -> None:
        self._standing = self._begin()
        if self._standing is not None:
            Variable._execution_engine.queue_callback(self.finish)

    def finish(self) -> None:
        """All callbacks have run; or backward has returned, or raised, before that was told."""
        standing, self._standing = self._standing, None
        if standing is not None:
            self._end(standing)


def _pass_compiler(call: _Call, watched: _Call) -> _Call:
    """Return what is watched, but for calls that are being compiled, in which nothing happens yet."""

    @pass_over
    def passed(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return call(*args, **kwargs)
        return watched(*args, **kwargs)

    return passed


def _find_units() -> Any:
    """Return the class of FSDP2's units; None: this torch has it elsewhere, and nobody owns what it asks for."""
    try:
        from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
    except ImportError:
        return None
    return FSDPParamGroup
