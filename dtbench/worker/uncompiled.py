"""Functions of dtbench that ``torch.compile`` neither traces nor compiles, where torch calls them inside what it does.

Said of their code, once: a call costs nothing more, and nothing of the compiler is imported.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.profiler import record_function

_Function = TypeVar("_Function", bound=Callable[..., Any])


def keep_uncompiled(function: _Function) -> _Function:
    """Let a function and everything that it calls run as it is written."""
    return _skip(function, skips_inner=True)


def pass_over(function: _Function) -> _Function:
    """Let a function run as it is written, and what it calls as it would run without it."""
    return _skip(function, skips_inner=False)


def _skip(function: _Function, *, skips_inner: bool) -> _Function:
    frames: Any = torch._C._dynamo.eval_frame
    action = frames._FrameAction
    strategy = frames._FrameExecStrategy(action.SKIP, action.SKIP if skips_inner else action.DEFAULT)
    frames.set_code_exec_strategy(function.__code__, strategy)
    return function


@keep_uncompiled
def begin_range(name: str | None) -> Any:
    """Begin a named range in the trace, where a ``with`` would be compiled; None: none."""
    opened = None if name is None else record_function(name)
    if opened is not None:
        opened.__enter__()
    return opened


@keep_uncompiled
def end_range(opened: Any) -> None:
    """End what ``begin_range`` gave."""
    if opened is not None:
        opened.__exit__(None, None, None)
