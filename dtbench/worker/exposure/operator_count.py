"""How many operators a step runs: what arms must not differ in."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode


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

    Those of namespace ``c10d`` are the backend's calls themselves.
    """

    def __init__(self, counted: Counted) -> None:
        super().__init__()
        self._counted = counted

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        if getattr(func, "namespace", "") != "c10d":
            self._counted.add()
        return func(*args, **(kwargs or {}))


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
