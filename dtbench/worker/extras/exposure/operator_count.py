"""How many operators a step runs: what arms must not differ in."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch._subclasses import FakeTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Counted:
    """A count that threads share."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self.count = 0

    def add(self) -> None:
        """One more."""
        self.count = next(self._numbers) + 1


class _CountingMode(TorchDispatchMode):
    """Counts operators; of a DTensor's those on its local part, as torch's CommDebugMode does.

    Those of namespace ``c10d`` are the backend's calls themselves. What computes shapes alone is no part of a step:
    DTensor asks once for what it has not seen before, in torch 2.11 for every new step size of AdamW.
    """

    def __init__(self, counted: Counted) -> None:
        super().__init__()
        self._counted = counted

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        if getattr(func, "namespace", "") != "c10d" and not any(map(_is_shape, tree_leaves(result))):
            self._counted.add()
        return result


def _is_shape(value: object) -> bool:
    return isinstance(value, torch.Tensor) and (isinstance(value, FakeTensor) or value.is_meta)


@contextmanager
def count_operators() -> Iterator[Counted]:
    """Count what is dispatched inside, also by callbacks of futures, which the thread that completes one runs."""
    counted = Counted()
    own, original = threading.get_ident(), torch._C.Future.then

    def then(future: Any, callback: Callable[[Any], Any]) -> Any:
        def run(result: Any) -> Any:
            if threading.get_ident() == own:
                return callback(result)
            with _CountingMode(counted):
                return callback(result)

        return original(future, run)

    with mock.patch.object(torch._C.Future, "then", then), _CountingMode(counted):
        yield counted
