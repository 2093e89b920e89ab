"""DDP that waits for what torch's own leaves in flight, and reduces what it is told to leave alone."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

from dtbench.base.ranges import region_range
from dtbench.base.vocabulary import Region
from dtbench.worker.network.named_gloo import find_recorder
from dtbench.worker.recording.recorder import DELAYED, IGNORED, Recorder


class WaitedDdp(DistributedDataParallel):
    """DDP that keeps the ``Work`` of its delayed all-reduce, and reduces ignored parameters after backward.

    torch drops the former (2.13, ``_delayed_all_reduce_hook``), so that the optimizer may read gradients that are still
    being reduced: losses were off by 1e-5 on gloo. ``finish_backward`` is called at the end of backward.

    Attributes:
        left_alone: trained parameters that DDP ignores.
        recorder: told what is reduced where DDP's order of issue does not tell it.
    """

    left_alone: tuple[nn.Parameter, ...] = ()
    recorder: Recorder
    _delayed_work: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is this process's own: torch the group, and this the recorder."""
        return {name: value for name, value in super().__getstate__().items() if name != "recorder"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the default group, as torch does, and the recorder that it tells, if any."""
        super().__setstate__(state)
        self.recorder = find_recorder(self.process_group) or Recorder()

    def _delayed_all_reduce_hook(self, grad: Tensor) -> Tensor:
        original = dist.all_reduce

        def keep_work(*args: Any, **kwargs: Any) -> Any:
            with self.recorder.reducing(DELAYED):
                self._delayed_work = original(*args, **kwargs)
            return self._delayed_work

        with mock.patch.object(dist, "all_reduce", keep_work):
            return super()._delayed_all_reduce_hook(grad)

    def _match_all_reduce_for_bwd_pass(self) -> None:
        """Shadow the buckets of ranks that still have rows: part of their backward."""
        with self._in_backward():
            super()._match_all_reduce_for_bwd_pass()

    def _match_unused_params_allreduce(self) -> None:
        with self._in_backward():
            super()._match_unused_params_allreduce()

    @contextmanager
    def _in_backward(self) -> Iterator[None]:
        recorder = self.recorder
        before = recorder.region
        recorder.enter(Region.BACKWARD)
        try:
            with record_function(region_range(Region.BACKWARD)) if recorder.is_naming else nullcontext():
                yield
        finally:
            recorder.enter(before)

    def finish_backward(self) -> None:
        """End this backward where torch leaves that to its caller; wait for the delayed all-reduce, if there was one.

        Average the ignored gradients.
        """
        if getattr(self, "require_manual_backward_finalization", False):
            self.finalize_backward()
        if self._delayed_work is not None:
            self._delayed_work.wait()
            self._delayed_work = None
        if self.left_alone:
            self._reduce_ignored()

    def _reduce_ignored(self) -> None:
        with self.recorder.reducing(IGNORED):
            gradients = [parameter.grad for parameter in self.left_alone if parameter.grad is not None]
            works = [
                dist.all_reduce(gradient.div_(self.process_group.size()), group=self.process_group, async_op=True)
                for gradient in gradients
            ]
        for work in works:
            work.wait()
