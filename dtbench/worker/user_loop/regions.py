"""Which region a person's own training loop is in: seen from outside, since nobody wrote it down.

::

    step     |----------------------------------------------------------|
    torch          [autograd engine]   [clip_grad_norm_] [Optimizer.step]
    region   forward|backward      |fwd|optimizer       |optimizer      |forward

Everything inside a step that is neither the autograd engine, nor clipping, nor averaging over ranks, nor an optimizer's
update is ``forward``; so is what a closure does that an optimizer's step calls, but for its own backward and clipping.
"""

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import MethodType
from typing import Any, Final
from unittest import mock

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.profiler import record_function

from dtbench.base.ranges import AVERAGING_RANGE, CLIPPING_RANGE, region_range
from dtbench.base.vocabulary import Region
from dtbench.worker.recording.recorder import Recorder
from dtbench.worker.uncompiled import begin_range, end_range, keep_uncompiled, pass_over

_CLIP: Final = "torch.nn.utils.clip_grad"
_AVERAGING: Final = "torch.distributed.algorithms.model_averaging.utils"
_FSDP1: Final = "torch.distributed.fsdp.fully_sharded_data_parallel"

# Tensor.backward, autograd.backward and autograd.grad look the engine up at every call, so that a person's earlier
# import matters not; methods are looked up at every call anyway. torch's averagers look up what averages models (local
# SGD, also in PostLocalSGDOptimizer, which is no optimizer that has hooks).
_LOOKED_UP: Final = (
    ("torch.autograd", "_engine_run_backward", Region.BACKWARD, None),
    (f"{_FSDP1}.FullyShardedDataParallel", "clip_grad_norm_", Region.OPTIMIZER, CLIPPING_RANGE),
    (_AVERAGING, "average_parameters", Region.OPTIMIZER, AVERAGING_RANGE),
)
# Functions that torch has under several names (`torch.nn.utils.get_total_norm`), each of which a person may have
# imported: what is replaced is the function inside the wrapper that all these names share. clip_grad_norm_ and its
# deprecated alias call the first two.
_WRAPPED: Final = (
    (_CLIP, "_get_total_norm", CLIPPING_RANGE),
    (_CLIP, "_clip_grads_with_norm_", CLIPPING_RANGE),
    (_CLIP, "clip_grad_value_", None),
)
_LEADS_TO_CLIPPING: Final = "_get_total_norm"
"""What follows it, up to the next thing that is seen from outside, completes the norm over ranks and clips by it.

With DTensors that is left to whoever asked for the norm.
"""


class RegionMarks:
    """Tells the recorder which region a step is in, and puts the ranges of regions into the trace, one at a time.

    Attributes:
        stop: ends what the regions are watched for, where that is not left by itself.
    """

    def __init__(self, recorder: Recorder, stop: Callable[[], None]) -> None:
        self.stop = stop
        self._recorder = recorder
        self._range: Any = None
        self._lingering: tuple[Any, Region | None] | None = None
        self._thread = threading.get_ident()

    @keep_uncompiled
    def begin_step(self) -> None:
        """A step begins, with forward."""
        self._thread = threading.get_ident()
        self._switch(Region.FORWARD)

    @keep_uncompiled
    def end_step(self) -> None:
        """It has ended."""
        self._end_lingering()
        self._switch(None)

    @contextmanager
    def inside(self, region: Region) -> Iterator[None]:
        """Be in a region for a while, then in the one before; between steps this says nothing."""
        before = self.enter(region)
        try:
            yield
        finally:
            self.leave(before)

    @keep_uncompiled
    def name(self, name: str | None) -> str | None:
        """Return the name of the range around something, in a step that is traced; None: nothing has one."""
        return name if self._recorder.is_naming and self._recorder.region is not None else None

    @keep_uncompiled
    def enter(self, region: Region) -> Region | None:
        """Go to a region; gives the one before, None between steps."""
        lingered = self._end_lingering()
        before = self._recorder.region if lingered is None else lingered
        if before is not None:
            self._switch(region)
        return before

    @keep_uncompiled
    def leave(self, before: Region | None) -> None:
        """Go back to what ``enter`` gave."""
        self._end_lingering()
        if before is not None and self._recorder.region is not None:
            self._switch(before)

    @keep_uncompiled
    def linger(self, before: Region | None) -> None:
        """Stay in the region, in the range of clipping, until one is entered or left or the step ends.

        Args:
            before: what ``enter`` gave: the region that is gone back to.
        """
        if before is not None and threading.get_ident() == self._thread:
            self._end_lingering()
            self._lingering = (begin_range(self.name(CLIPPING_RANGE)), before)

    def _end_lingering(self) -> Region | None:
        """Return the region that lingering is in place of; None: nothing lingers."""
        if self._lingering is None or threading.get_ident() != self._thread:
            return None
        (opened, before), self._lingering = self._lingering, None
        end_range(opened)
        return before

    def _switch(self, region: Region | None) -> None:
        """Change region; a range ends only on the thread that began it (an optimizer may run on the engine's)."""
        if region is self._recorder.region:
            return
        is_own_thread = threading.get_ident() == self._thread
        if self._range is not None and is_own_thread:
            self._range.__exit__(None, None, None)
            self._range = None
        self._recorder.enter(region)
        if region is not None and self._recorder.is_naming and is_own_thread:
            self._range = record_function(region_range(region))
            self._range.__enter__()


class _MarkedCall:
    """A function or method of torch that says in which region it runs, and in a range of which name.

    Args:
        after: told which region was before, when the call has returned; left out: that is gone back to.
    """

    def __init__(
        self,
        marks: RegionMarks,
        region: Region,
        name: str | None,
        call: Callable[..., Any],
        after: Callable[[Region | None], None] | None = None,
    ) -> None:
        self.marks, self._region, self._name, self._call = marks, region, name, call
        self._after = after or marks.leave

    def __get__(self, instance: Any, _owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    @pass_over
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self._call(*args, **kwargs)
        before = self.marks.enter(self._region)
        opened = begin_range(self.marks.name(self._name))
        try:
            result = self._call(*args, **kwargs)
        except BaseException:
            end_range(opened)
            self.marks.leave(before)
            raise
        end_range(opened)
        self._after(before)
        return result


class _MarkedSteps:
    """The hooks around every optimizer's step: its update is ``optimizer``, a closure that it calls is as before it."""

    def __init__(self, marks: RegionMarks) -> None:
        self._marks = marks
        self._before: list[Region | None] = []

    def begin(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Begin a step; gives its arguments with the closure marked, None where there is no closure."""
        if torch.compiler.is_compiling():
            return None
        self._before.append(self._marks.enter(Region.OPTIMIZER))
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._mark(kwargs["closure"])}
        given = args[1:] if args and args[0] is optimizer else args
        if given and callable(given[0]):
            return (*args[: len(args) - len(given)], self._mark(given[0]), *given[1:]), kwargs
        return None

    def end(self, *_: Any) -> None:
        """End the step that began last."""
        if not torch.compiler.is_compiling():
            self._marks.leave(self._before.pop())

    def _mark(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        @pass_over
        def marked(*args: Any, **kwargs: Any) -> Any:
            before = self._marks.enter(Region.FORWARD)
            try:
                return closure(*args, **kwargs)
            finally:
                self._marks.leave(before)

        return marked


def find_marks() -> RegionMarks | None:
    """Return who watches regions now, None: nobody does; two at once would see each other."""
    calls = (getattr(_find_home(path), name, None) for path, name, _, _ in _LOOKED_UP)
    return next((call.marks for call in calls if isinstance(call, _MarkedCall)), None)


@contextmanager
def watch_regions(marks: RegionMarks) -> Iterator[tuple[str, ...]]:
    """Mark the regions of all steps inside; gives the functions that the installed torch lacks, or has otherwise."""
    lacking = []
    with ExitStack() as stack:
        for path, name, region, range_name in _LOOKED_UP:
            home = _find_home(path)
            if hasattr(home, name):
                marked = _MarkedCall(marks, region, range_name, getattr(home, name))
                stack.enter_context(mock.patch.object(home, name, marked))
            else:
                lacking.append(f"{path}.{name}")
        for path, name, range_name in _WRAPPED:
            cell = _find_inner(getattr(_find_home(path), name, None))
            if cell is None:
                lacking.append(f"{path}.{name}")
                continue
            after = marks.linger if name == _LEADS_TO_CLIPPING else None
            inner = cell.cell_contents
            stack.callback(setattr, cell, "cell_contents", inner)
            cell.cell_contents = _MarkedCall(marks, Region.OPTIMIZER, range_name, inner, after)
        steps = _MarkedSteps(marks)
        stack.callback(register_optimizer_step_pre_hook(steps.begin).remove)
        stack.callback(register_optimizer_step_post_hook(steps.end).remove)
        yield tuple(lacking)


def _find_home(path: str) -> Any:
    """Return a module by its path, or a class by that of its module and its name; None: there is none."""
    try:
        return importlib.import_module(path)
    except ImportError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name, None)


def _find_inner(function: Any) -> Any:
    """Return the cell in which a wrapper of ``functools`` keeps the function that it wraps; None: it keeps none."""
    wrapped = getattr(function, "__wrapped__", None)
    cells = getattr(function, "__closure__", None) or ()
    return next((cell for cell in cells if wrapped is not None and cell.cell_contents is wrapped), None)
