"""One probe: counts the calls of one function, times them, and names them in the trace while steps are PROFILED.

[Note: what a probe leaves as it was] Arguments, result, exceptions, signature and docstring (``functools.wraps``). Code
that is being compiled by Dynamo calls the function itself, so that neither graph nor guards change: such calls are not
counted, and no range of them is in the trace. A warning with ``stacklevel=2`` names the probe's file as its place.
"""

import functools
import inspect
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

import torch
from torch.profiler import record_function

from dtbench.base.ranges import ROOT, probe_range
from dtbench.seeds.functions import StudiedFunction
from dtbench.store.records.probes import ProbedBranch, ProbedFunction
from dtbench.worker.probes.branches import CHOOSERS, Chooser
from dtbench.worker.probes.parameters import LEAVES_NAME, NAMERS, Namer, leave_name
from dtbench.worker.recording.recorder import Recorder

_OURS: Final = "dtbench."
_NO_FRAME: Final = "not Python"
_NO_STEP: Final = "no step"
"""Owner of what runs outside every region of a step: construction, state dicts of nobody."""


@dataclass(eq=False)
class _Sum:
    calls: int = 0
    total_ns: int = 0


class _Depth(threading.local):
    """How many calls of a function are open on this thread."""

    open = 0


@dataclass(eq=False)
class Probe:
    """Counts and times one function; see [Note: what a probe leaves as it was]."""

    function: StudiedFunction
    recorder: Recorder
    _sum: _Sum = field(default_factory=_Sum)
    _raised: int = 0
    _first_error: str | None = None
    _branches: dict[str, _Sum] = field(default_factory=dict)
    _callers: Counter[str] = field(default_factory=Counter)
    _depth: _Depth = field(default_factory=_Depth)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function that stands for the original: of its kind, be it a generator or a context manager."""
        if inspect.isgeneratorfunction(original):
            return self._wrap_generator(original)
        if inspect.isgeneratorfunction(inspect.unwrap(original)):
            return self._wrap_context(original)
        return self._wrap_plain(original)

    def read(self) -> ProbedFunction:
        """Return what was seen so far."""
        return ProbedFunction(
            file=self.function.file,
            name=self.function.name,
            reach=self.function.reach,
            calls=self._sum.calls,
            raised=self._raised,
            total_ns=self._sum.total_ns,
            branches=tuple(
                ProbedBranch(name=name, calls=one.calls, total_ns=one.total_ns)
                for name, one in sorted(self._branches.items())
            ),
            callers=dict(sorted(self._callers.items())),
            first_error=self._first_error,
        )

    def _wrap_plain(self, original: Callable[..., Any]) -> Callable[..., Any]:
        key = (self.function.file, self.function.name)
        choose: Chooser | None = CHOOSERS.get(key)
        name: Namer | None = NAMERS.get(key)
        leaves_name = key == LEAVES_NAME

        @functools.wraps(original)
        def probed(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(*args, **kwargs)
            branch = None if choose is None else choose(args, kwargs)
            self._count(sys._getframe().f_back, branch)
            parameter = None if name is None else name((args, kwargs), self.recorder.local_parts)
            started = self._begin(parameter)
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                self._note(error)
                raise
            finally:
                self._end(started, branch)
            if leaves_name:
                leave_name((args, kwargs), self.recorder.local_parts)
            return result

        return probed

    def _wrap_generator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def probed(*args: Any, **kwargs: Any) -> Iterator[Any]:
            self._count(sys._getframe().f_back, None)
            values = original(*args, **kwargs)
            while True:
                with self._time(None):
                    try:
                        value = next(values)
                    except StopIteration:
                        return
                yield value

        return probed

    def _wrap_context(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap what ``contextmanager`` made: entering and leaving are its own time, what runs between is not."""

        @contextmanager
        def around(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
            with self._time(None):
                context = original(*args, **kwargs)
                value = context.__enter__()
            try:
                yield value
            except BaseException:
                with self._time(None):
                    swallows = context.__exit__(*sys.exc_info())
                if not swallows:
                    raise
            else:
                with self._time(None):
                    context.__exit__(None, None, None)

        @functools.wraps(original)
        def probed(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(*args, **kwargs)
            self._count(sys._getframe().f_back, None)
            return around(args, kwargs)

        return probed

    def _count(self, frame: FrameType | None, branch: str | None) -> None:
        caller = self._name_caller(frame)
        with self._lock:
            self._sum.calls += 1
            self._callers[caller] += 1
            if branch is not None:
                self._branches.setdefault(branch, _Sum()).calls += 1

    def _name_caller(self, frame: FrameType | None) -> str:
        """Name who called; an override of dtbench that calls what it overrides is not who wanted it.

        torch's threads for the backward of a device call Python with no frame below.
        """
        own_name = self.function.name.rpartition(".")[2]
        while frame is not None:
            module = str(frame.f_globals.get("__name__", "?"))
            if not (module.startswith(_OURS) and frame.f_code.co_name == own_name):
                return f"{module}.{frame.f_code.co_qualname}".replace(".<locals>", "")
            frame = frame.f_back
        return _NO_FRAME

    @contextmanager
    def _time(self, branch: str | None) -> Iterator[None]:
        started = self._begin()
        try:
            yield
        except BaseException as error:
            self._note(error)
            raise
        finally:
            self._end(started, branch)

    def _begin(self, parameter: str | None = None) -> tuple[int, Any]:
        """Return when the call begins, and the range that is open around it; None: there is none.

        Args:
            parameter: whose the call is; None: it is the unit's that asks.
        """
        range_ = None
        if self.recorder.is_naming:
            range_ = record_function(probe_range(self.function.label, parameter or self._owner()))
            range_.__enter__()
        self._depth.open += 1
        return time.perf_counter_ns(), range_

    def _end(self, started: tuple[int, Any], branch: str | None) -> None:
        start_ns, range_ = started
        duration_ns = time.perf_counter_ns() - start_ns
        self._depth.open -= 1
        if range_ is not None:
            range_.__exit__(None, None, None)
        if not self._depth.open:
            self._add(duration_ns, branch)

    def _owner(self) -> str:
        if self.recorder.unit is not None:
            return self.recorder.unit or ROOT
        return _NO_STEP if self.recorder.region is None else str(self.recorder.region)

    def _note(self, error: BaseException) -> None:
        with self._lock:
            self._raised += 1
            if self._first_error is None:
                self._first_error = "".join(traceback.format_exception_only(error)).strip()

    def _add(self, duration_ns: int, branch: str | None) -> None:
        with self._lock:
            self._sum.total_ns += duration_ns
            if branch is not None:
                self._branches[branch].total_ns += duration_ns
