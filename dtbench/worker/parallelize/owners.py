"""Whose collectives are: told to the recorder and put into the trace, while steps are PROFILED.

Two accounts that do not know of each other. The trace's: FSDP2's own ranges name the unit; FSDP1's do not, so the
functions that issue its collectives get one that does. The recorder's, which the first is held against: the functions
above these say which unit asks. DTensor's collectives belong to the module in whose call they, or the operator whose
gradient needs them, were issued: calls get ranges over a tensor axis. Nothing of it is in place in any other step.
"""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
import torch.distributed.fsdp._flat_param as torch_flat
import torch.distributed.fsdp._fully_shard._fsdp_param_group as torch_group
import torch.distributed.fsdp._runtime_utils as torch_runtime
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

from dtbench.base.ranges import module_range, unit_range
from dtbench.worker.parallelize.parallelized import plain_fqn
from dtbench.worker.recording.recorder import Recorder
from dtbench.worker.uncompiled import begin_range, end_range, pass_over

_Wrap = Callable[[Callable[..., Any], int], Callable[..., Any]]


@contextmanager
def watch_fsdp1_units(recorder: Recorder, units: Mapping[int, str]) -> Iterator[None]:
    """Tell whose every all-gather and reduction is, and name it in the trace.

    Args:
        recorder: told which unit asks.
        units: FQN of each unit, the root's empty, by ``id`` of its ``FlatParamHandle``.
    """
    tell = _telling(recorder, units)
    with (
        _wrapped((torch_runtime, "_unshard", tell, 1), (torch_runtime, "_post_backward_hook", tell, 1)),
        _name_fsdp1_units(units),
    ):
        yield


def _name_fsdp1_units(units: Mapping[int, str]) -> AbstractContextManager[None]:
    name = _naming(units)
    return _wrapped(
        (torch_flat.FlatParamHandle, "_all_gather_flat_param", name, 0),
        (torch_runtime, "_reduce_grad", name, 1),
        (torch_runtime, "_reduce_grad_no_shard", name, 1),
    )


@contextmanager
def watch_fsdp2_units(recorder: Recorder, units: Mapping[int, str]) -> Iterator[None]:
    """Tell whose every all-gather and reduction is; FSDP2 names them in the trace itself.

    Args:
        recorder: told which unit asks.
        units: FQN of each unit, the root's empty, by ``id`` of its ``FSDPParamGroup``.
    """
    tell = _telling(recorder, units)
    with _wrapped(
        (torch_group.FSDPParamGroup, "unshard", tell, 0), (torch_group.FSDPParamGroup, "post_backward", tell, 0)
    ):
        yield


@contextmanager
def _wrapped(*functions: tuple[Any, str, _Wrap, int]) -> Iterator[None]:
    """Put wrapped functions in place of torch's; what this torch does not have leaves its collectives without owner."""
    with ExitStack() as patches:
        for home, name, wrap, place in functions:
            if (original := getattr(home, name, None)) is not None:
                patches.enter_context(mock.patch.object(home, name, wrap(original, place)))
        yield


def _telling(recorder: Recorder, units: Mapping[int, str]) -> _Wrap:
    """Wrap a function: while it runs, the unit that is its argument number ``place`` asks for what is issued."""

    def wrap(original: Callable[..., Any], place: int) -> Callable[..., Any]:
        def told(*args: Any, **kwargs: Any) -> Any:
            before, recorder.unit = recorder.unit, units.get(id(args[place]))
            try:
                return original(*args, **kwargs)
            finally:
                recorder.unit = before

        return told

    return wrap


def _naming(units: Mapping[int, str]) -> _Wrap:
    """Wrap a function: it runs in a range that names the unit that is its argument number ``place``."""

    def wrap(original: Callable[..., Any], place: int) -> Callable[..., Any]:
        def named(*args: Any, **kwargs: Any) -> Any:
            fqn = units.get(id(args[place]))
            with nullcontext() if fqn is None else record_function(unit_range(fqn)):
                return original(*args, **kwargs)

        return named

    return wrap


@contextmanager
def name_live_owners() -> Iterator[None]:
    """Name in the trace what asks, by its FQN in the outermost module of this process that has it.

    Every module's call gets a range, and all that FSDP1 gathers or reduces for a unit.
    """
    outermost = _find_outermost()
    units = {
        id(part._handle): plain_fqn(f"{name}.").removesuffix(".")
        for module in outermost
        for name, part in module.named_modules()
        if isinstance(part, FullyShardedDataParallel) and part._handle is not None
    }
    with name_modules(*outermost), _name_fsdp1_units(units):
        yield


def _find_outermost() -> list[nn.Module]:
    modules = [thing for thing in gc.get_objects() if issubclass(type(thing), nn.Module) and "_modules" in vars(thing)]
    inner = {id(part) for module in modules for part in module.children()}
    outermost = [module for module in modules if id(module) not in inner]
    return [one.module if isinstance(one, DistributedDataParallel) else one for one in outermost]


@contextmanager
def name_modules(*modules: nn.Module) -> Iterator[None]:
    """Put a named range around the call of every module inside, hooks included: DTensor redistributes in hooks."""
    original = nn.Module.__call__
    names = {
        id(part): module_range(plain_fqn(f"{name}.").removesuffix("."))
        for module in modules
        for name, part in module.named_modules()
    }

    @pass_over
    def named(part: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(part, *args, **kwargs)
        opened = begin_range(names.get(id(part)))
        try:
            return original(part, *args, **kwargs)
        finally:
            end_range(opened)

    with mock.patch.object(nn.Module, "__call__", named):
        yield
