"""Which region a person's own training loop is in: seen from outside, since nobody wrote it down.

::

    step     |----------------------------------------------------------|
    torch          [autograd engine]   [clip_grad_norm_] [Optimizer.step]
    region   forward|backward      |fwd|optimizer       |optimizer      |forward

Everything inside a step that is neither the autograd engine, nor clipping, nor an optimizer's update is ``forward``.
"""

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Final
from unittest import mock

from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.profiler import record_function

from dtbench.ranges import CLIPPING_RANGE, region_range
from dtbench.vocabulary import Region
from dtbench.worker.recorder import Recorder

# Functions that torch's public ones look up in their module at every call, so that a person's earlier import matters
# not: Tensor.backward, autograd.backward and autograd.grad run the first, clip_grad_norm_ the others.
_CALLS: Final = (
    ("torch.autograd", "_engine_run_backward", Region.BACKWARD, None),
    ("torch.nn.utils.clip_grad", "_get_total_norm", Region.OPTIMIZER, CLIPPING_RANGE),
    ("torch.nn.utils.clip_grad", "_clip_grads_with_norm_", Region.OPTIMIZER, CLIPPING_RANGE),
)


class RegionMarks:
    """Tells the recorder which region a step is in, and puts the ranges of regions into the trace, one at a time."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._range: Any = None
        self._thread = threading.get_ident()

    def begin_step(self) -> None:
        """A step begins, with forward."""
        self._thread = threading.get_ident()
        self._switch(Region.FORWARD)

    def end_step(self) -> None:
        """It has ended."""
        self._switch(None)

    @contextmanager
    def inside(self, region: Region) -> Iterator[None]:
        """Be in a region for a while, then in the one before; between steps this says nothing."""
        before = self.enter(region)
        try:
            yield
        finally:
            self.leave(before)

    def name(self, name: str | None) -> AbstractContextManager[Any]:
        """Give a range of this name around something in a step that is traced; None: nothing has one."""
        is_named = name is not None and self._recorder.is_naming and self._recorder.region is not None
        return record_function(name) if is_named else nullcontext()

    def enter(self, region: Region) -> Region | None:
        """Go to a region; gives the one before, None between steps."""
        before = self._recorder.region
        if before is not None:
            self._switch(region)
        return before

    def leave(self, before: Region | None) -> None:
        """Go back to what ``enter`` gave."""
        if before is not None and self._recorder.region is not None:
            self._switch(before)

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
    """A function of torch that says in which region it runs, and in a range of which name."""

    def __init__(self, marks: RegionMarks, region: Region, name: str | None, call: Callable[..., Any]) -> None:
        self._marks, self._region, self._name, self._call = marks, region, name, call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._marks.inside(self._region), self._marks.name(self._name):
            return self._call(*args, **kwargs)


def are_watched() -> bool:
    """Tell whether somebody watches regions now: two at once would see each other."""
    now = (getattr(importlib.import_module(module), name, None) for module, name, _, _ in _CALLS)
    return any(isinstance(call, _MarkedCall) for call in now)


@contextmanager
def watch_regions(marks: RegionMarks) -> Iterator[tuple[str, ...]]:
    """Mark the regions of all steps inside; gives the private functions that the installed torch lacks."""
    lacking = []
    before: list[Region | None] = []
    with ExitStack() as stack:
        for module_name, name, region, range_name in _CALLS:
            module = importlib.import_module(module_name)
            if hasattr(module, name):
                marked = _MarkedCall(marks, region, range_name, getattr(module, name))
                stack.enter_context(mock.patch.object(module, name, marked))
            else:
                lacking.append(f"{module_name}.{name}")
        pre = register_optimizer_step_pre_hook(lambda *_: before.append(marks.enter(Region.OPTIMIZER)))
        stack.callback(pre.remove)
        post = register_optimizer_step_post_hook(lambda *_: marks.leave(before.pop()))
        stack.callback(post.remove)
        yield tuple(lacking)
