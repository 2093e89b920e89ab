"""What DDP's own logger says of exposed communication, in steps of its own: on CUDA it synchronises in forward.

``backward_comm_time - backward_compute_comm_overlap_time`` of ``_get_ddp_logging_data``, never the parts alone: from
the end of backward's compute to the end of its communication. The logger reads a backward's times in the next forward,
for every 100th step after the first ten unless it is told otherwise.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from dtbench.worker.parallelize.parallelized import Sync

_TORCHS_RATE: Final = 100
"""torch's ``kDDPRuntimeLoggingSampleRate`` (reducer.hpp), which it does not give back."""


@contextmanager
def sampling_every_step(model: DistributedDataParallel) -> Iterator[None]:
    """Let the logger read every step."""
    model._set_ddp_runtime_logging_sample_rate(1)
    try:
        yield
    finally:
        model._set_ddp_runtime_logging_sample_rate(_TORCHS_RATE)


class LoggedBackwards:
    """Runs backward in place of ``Tensor.backward``; before it, the logger has just read the one before."""

    def __init__(self, model: DistributedDataParallel, read_sync: Callable[[], Sync]) -> None:
        self._model, self._read_sync = model, read_sync
        self._read: list[int | None] = []
        self._iteration: int | None = None

    def run_backward(self, loss: Tensor) -> None:
        """Do as ``loss.backward()``."""
        if self._read_sync() is not Sync.HOLD:
            self._read.append(self._read_last())
        loss.backward()

    def exposed_ns(self, steps: int) -> tuple[int, ...]:
        """Return the exposed communication of each step but the last, whose own nobody has read; all were sampled.

        Args:
            steps: that this has run; each reduced its gradients equally often.
        """
        each = len(self._read) // steps
        own = self._read[1:]  # the first was read of a backward before these steps
        groups = [own[number * each : (number + 1) * each] for number in range(steps - 1)]
        sampled = ([value for value in group if value is not None] for group in groups)
        return tuple(sum(values) for values in sampled if values and len(values) == each)

    def _read_last(self) -> int | None:
        """Return the backward before, or None if it was not sampled."""
        data: dict[str, Any] = self._model._get_ddp_logging_data()
        iteration, self._iteration = self._iteration, data.get("iteration")
        comm_ns = data.get("backward_comm_time", 0)
        if iteration == self._iteration or comm_ns <= 0:
            return None
        return int(comm_ns - data["backward_compute_comm_overlap_time"])
