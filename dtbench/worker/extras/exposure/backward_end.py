"""What DDP does between the last node of backward and its return: it waits for its buckets, and copies out of them.

::

    backward()   node node ... node | DDP's finalisation: waits, copies out |
                                    ^ our callback                          ^ backward() returns

The reducer waits in C++, where nothing can be patched. Callbacks of the autograd engine run after the last node, in the
order in which they were queued; ours is queued by the first node of backward (the last of forward), DDP's when its last
bucket is issued. The copies cost the same with nothing to wait for, and are subtracted later.
"""

import time
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.autograd import Variable

from dtbench.worker.extras.exposure.wait_clock import WaitClock
from dtbench.worker.parallelize.parallelized import Sync


class BackwardEnd:
    """Runs backward in place of ``Tensor.backward`` and times its end.

    Attributes:
        duration_ns: of the ends of all backwards since ``begin_step`` that reduced gradients.
    """

    def __init__(self, clock: WaitClock, read_sync: Callable[[], Sync]) -> None:
        """Tell ``clock`` of the waits; ``read_sync`` says what the coming backward does to its gradients."""
        self.duration_ns = 0
        self._clock, self._read_sync = clock, read_sync
        self._begun_ns: int | None = None

    def begin_step(self) -> None:
        """Start from zero."""
        self.duration_ns = 0

    def run_backward(self, loss: Tensor) -> None:
        """Do as ``loss.backward()``."""
        if self._read_sync() is Sync.HOLD:
            loss.backward()
            return
        node: Any = loss.grad_fn
        handle = node.register_prehook(self._queue)
        loss.backward()
        if self._begun_ns is not None:
            self.duration_ns += time.perf_counter_ns() - self._begun_ns
            self._clock.reducer_done()
        self._begun_ns = None
        handle.remove()

    def _queue(self, _gradients: Any) -> None:
        Variable._execution_engine.queue_callback(self._begin)

    def _begin(self) -> None:
        self._clock.stand_for_reducer()
        self._begun_ns = time.perf_counter_ns()
