"""The real worker with one planted fault: ``python faulty_worker.py FAULT --order FILE``; unknown to the product."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from dtbench.vocabulary import Axis, Operation, Region
from dtbench.worker import __main__ as worker
from dtbench.worker.network import named_gloo
from dtbench.worker.train import TrainStep

_forward = named_gloo._forward
RANK = int(os.environ.get("RANK", "0"))


def done(result: Any) -> Any:
    """A work that is finished without anything having been sent."""
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(result)
    return torch._C._distributed_c10d._create_work_from_future(future)


def drop(axis: Axis, operation: Operation) -> None:
    """Lose the second collective of this axis and operation on every rank: it returns at once and moves nothing."""
    seen: list[None] = []

    def forward(method: str, of: Operation, payload: int, watch: Any) -> Callable[..., Any]:
        real, recorder = _forward(method, of, payload, watch), watch.recorder

        def call(group: Any, *args: Any, **kwargs: Any) -> Any:
            matches = of is operation and recorder.axes.get(group._name) is axis and recorder.region is not None
            if matches:
                seen.append(None)
            return done(args[0]) if matches and len(seen) == 2 else real(group, *args, **kwargs)

        return call

    named_gloo._forward = forward  # type: ignore[assignment]


def delay_gathers(*, skip_one_wait: bool) -> None:  # noqa: C901 - one closure in another, as the patched code is
    """Let all-gathers fill their output 30 ms late, poisoned until then; optionally skip the third wait for one."""

    def forward(method: str, of: Operation, payload: int, watch: Any) -> Callable[..., Any]:
        real, recorder = _forward(method, of, payload, watch), watch.recorder

        def call(group: Any, *args: Any, **kwargs: Any) -> Any:
            if of is not Operation.ALL_GATHER or recorder.region is None or not isinstance(args[0], torch.Tensor):
                return real(group, *args, **kwargs)
            output, *args = args  # type: ignore[assignment]
            gathered = torch.empty_like(output)
            real(group, gathered, *args, **kwargs).wait()
            output.fill_(float("nan"))
            future: torch.futures.Future[Any] = torch.futures.Future()

            def arrive() -> None:
                output.copy_(gathered)
                future.set_result([output])

            threading.Timer(0.03, arrive).start()
            work = torch._C._distributed_c10d._create_work_from_future(future)
            late.append(work)
            return work

        return call

    late: list[Any] = []
    waited: list[Any] = []
    named_gloo._forward = forward  # type: ignore[assignment]
    name_waits = named_gloo._name_waits

    def patched(recorder: Any, waits: Any) -> None:
        name_waits(recorder, waits)
        wait = dist.Work.wait

        def maybe_wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            if any(work is item for item in late):
                waited.append(work)
                if skip_one_wait and len(waited) == 3:
                    return True
            return wait(work, *args, **kwargs)

        dist.Work.wait = maybe_wait

    named_gloo._name_waits = patched


def in_step(step: int, misbehave: Callable[[], None]) -> None:
    """Misbehave on rank 1 in the backward of one step."""
    run = TrainStep.run
    count = [0]

    def faulty(self: Any, batch: Any, after_backward: Any = None) -> Any:
        if RANK == 1 and count[0] == step:
            self.recorder.enter(Region.BACKWARD)
            misbehave()
        count[0] += 1
        return run(self, batch, after_backward)

    TrainStep.run = faulty  # type: ignore[method-assign]


def fail() -> None:
    raise RuntimeError("planted: the data loader lost its file")


def segfault() -> None:
    import ctypes

    ctypes.string_at(0)


FAULTS: dict[str, Callable[[], None]] = {
    "none": lambda: None,
    "drop all-reduce": lambda: drop(Axis.REPLICATE, Operation.ALL_REDUCE),
    "drop all-gather": lambda: drop(Axis.SHARD, Operation.ALL_GATHER),
    "drop reduce-scatter": lambda: drop(Axis.SHARD, Operation.REDUCE_SCATTER),
    "drop tensor all-reduce": lambda: drop(Axis.TENSOR, Operation.ALL_REDUCE),
    "late gathers": lambda: delay_gathers(skip_one_wait=False),
    "late gathers, one wait skipped": lambda: delay_gathers(skip_one_wait=True),
    "raise": lambda: in_step(10, fail),
    "segfault": lambda: in_step(10, segfault),
    "kill": lambda: in_step(10, lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "hang": lambda: in_step(10, lambda: time.sleep(600)),
    "exit": lambda: in_step(10, lambda: os._exit(0)),
}

if __name__ == "__main__":
    FAULTS[sys.argv.pop(1)]()
    worker.main()
