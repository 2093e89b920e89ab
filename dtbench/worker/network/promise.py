"""What a collective that somebody else carries gives those who wait for it: its outputs, or why there are none.

An exception that Python sets on a future of torch's does not exist for C++, which waits, sees no error and reads
outputs that nobody filled: DDP's reducer dies of a segmentation fault, a functional collective computes on with what
was there. An exception of a *callback* is an error in C++ of the future that the callback makes. So a promise's future
is one that a callback makes, which raises where there are no outputs.

The ``Work`` that torch makes of it (``_create_work_from_future``) still comes back from ``wait`` without an error:
``Link.check`` says so before the step counts.
"""

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class _Failure:
    error: Exception


def _unwrap(told: Any) -> Any:
    value = told.value()
    if isinstance(value, _Failure):
        raise value.error
    return value


@dataclass(frozen=True)
class Promise:
    """Is kept or broken once.

    Attributes:
        future: done when either has happened; raises for who waits for it if it was broken, in C++ too.
    """

    future: Any = field(init=False)
    _told: Any = field(default_factory=torch.futures.Future)

    def __post_init__(self) -> None:
        object.__setattr__(self, "future", self._told.then(_unwrap))

    def keep(self, outputs: list[torch.Tensor]) -> None:
        """Return the outputs, and run the callbacks of who took the future."""
        self._told.set_result(outputs)

    def break_with(self, error: Exception) -> None:
        """Say why there are none."""
        self._told.set_result(_Failure(error))
