"""The real worker with one planted fault: ``python faulty_worker.py FAULT --order FILE``; unknown to the product."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partialmethod
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as checkpoint
import torch.distributed.checkpoint.state_dict as state_dict

from dtbench.base.vocabulary import Axis, Operation, Region
from dtbench.worker import __main__ as worker
from dtbench.worker.extras.state_dict import rank_guard
from dtbench.worker.loop.steps import Phases
from dtbench.worker.loop.train import TrainStep
from dtbench.worker.network import carrier, link, named_gloo
from dtbench.worker.network.link import flatten_tensors
from dtbench.worker.parallelize import ddp_hooks, waited_ddp

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


class Careless(dist.Work):
    """A work whose consumer does not wait, however it waits."""

    def __init__(self, work: Any, outputs: list[torch.Tensor]) -> None:
        super().__init__()
        self.work, self.outputs = work, outputs

    def wait(self, _timeout: Any = None) -> bool:
        return True

    def get_future(self) -> Any:
        return done(self.outputs).get_future()


def hurry() -> None:
    """Let gloo have moved the data when a call over the link returns: nobody who does not wait is ever too early."""
    carry = link.Link.carry

    def hurried(self: Any, label: Any, ranks: Any, start: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
        def move() -> Any:
            work = start()
            if work is not None and label.operation not in (Operation.SEND, Operation.RECV):
                work.wait()
            return work

        return carry(self, label, ranks, move, *args, **kwargs)

    link.Link.carry = hurried  # type: ignore[method-assign]


def never_wait(axis: Axis, operation: Operation, *, place: int | None = None) -> None:
    """Let nobody wait for these, in any step; ``place``: only for this one of each step."""
    hurry()

    def forward(method: str, of: Operation, payload: int, watch: Any) -> Callable[..., Any]:
        real, recorder = _forward(method, of, payload, watch), watch.recorder

        def call(group: Any, *args: Any, **kwargs: Any) -> Any:
            work = real(group, *args, **kwargs)
            if of is not operation or recorder.axes.get(group._name) is not axis or recorder.region is None:
                return work
            alike = [issue for issue in recorder.step_issues() if (issue.axis, issue.operation) == (axis, operation)]
            matches = place is None or len(alike) == place + 1
            return Careless(work, list(flatten_tensors(args[0]))) if matches else work

        return call

    named_gloo._forward = forward  # type: ignore[assignment]


def look_alike(operation: Operation) -> None:
    """Let steps be given what is no ``Work`` for these: FSDP2 waits for nothing else."""
    hurry()
    send = carrier.Carrier._send

    class LookAlike:
        def __init__(self, work: Any) -> None:
            self.wait = work.wait

    def lie(self: Any, issued: Any, start: Callable[..., Any]) -> Any:
        work = send(self, issued, start)
        return LookAlike(work) if issued.region and issued.label.operation is operation else work

    carrier.Carrier._send = lie  # type: ignore[method-assign]


def forget_in_hook(*, takes_future: bool) -> None:
    """Let ``allreduce_hook`` hand its bucket back at once."""
    hurry()

    def allreduce_hook(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        work = dist.all_reduce(bucket.buffer().div_(group.size()), group=group, async_op=True)
        if takes_future:
            work.get_future()
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    ddp_hooks._TORCHS = {**ddp_hooks._TORCHS, "allreduce": allreduce_hook}


def forget_delayed() -> None:
    """Do as torch does: drop the work of the delayed all-reduce."""
    hurry()
    waited_ddp.WaitedDdp.finish_backward = lambda self: None  # type: ignore[method-assign]


def forget_tensors() -> None:
    """Let nobody wait for what DTensor redistributes."""
    hurry()
    functional.wait_tensor = lambda tensor: tensor


def index_early() -> None:
    """Let each step look something up with an index that was broadcast a moment ago."""
    hurry()
    run = TrainStep.run

    def looked_up(self: Any, batch: Any, after_backward: Any = None) -> Any:
        self.recorder.enter(Region.FORWARD)
        index = torch.zeros(1, dtype=torch.int64)
        work = dist.all_reduce(index, async_op=True)
        torch.ones(4)[index]
        work.wait()
        return run(self, batch, after_backward)

    TrainStep.run = looked_up  # type: ignore[method-assign]


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


def after_gather(act: Callable[[dict[str, Any]], None]) -> None:
    """Do something with what rank 1 gathers, but for the first time: all else starts from that."""
    original, seen = state_dict._gather_state_dict, list[None]()

    def gather(state: dict[str, Any], **options: Any) -> dict[str, Any]:
        gathered: dict[str, Any] = original(state, **options)
        seen.append(None)
        if RANK == 1 and len(seen) > 1:
            act(gathered)
        return gathered

    state_dict._gather_state_dict = gather


def raise_before_gather() -> None:
    """Raise on rank 1 before it gathers, but for the first time; rank 0 waits as in a kernel that nobody ends."""
    original, seen = state_dict._gather_state_dict, list[None]()

    def gather(state: dict[str, Any], **options: Any) -> Any:
        seen.append(None)
        if RANK == 1 and len(seen) > 1:
            raise RuntimeError("planted: no room on the device")
        try:
            return original(state, **options)
        except RuntimeError:
            time.sleep(600)
            raise

    state_dict._gather_state_dict = gather
    patient = rank_guard.RankGuard.__init__
    rank_guard.RankGuard.__init__ = partialmethod(patient, patience_s=0.5)  # type: ignore[assignment,method-assign]


def spoil(gathered: dict[str, Any]) -> None:
    """Change an element of one parameter."""
    gathered["layers.1.ffn.w2.weight"].view(-1)[-1] += 1


def save_late() -> None:
    """Write what an asynchronous save was given only when somebody asks for its result: steps beside it show in it."""

    class Late(Future[Any]):
        def __init__(self, write: Callable[[], Any]) -> None:
            super().__init__()
            self._write = write

        def result(self, timeout: float | None = None) -> Any:
            self.set_result(self._write())
            return super().result(timeout)

    def write_late(state: Any, **options: Any) -> Future[Any]:
        return Late(lambda: checkpoint.save(state, **options))

    checkpoint.async_save = write_late


def profile_with_memory() -> None:
    """Let whoever profiles need a GiB of host memory, and give it back."""
    profile = Phases.profile

    def hungry(self: Phases, first: int) -> Any:
        bytearray(b"\1") * (1 << 30)
        return profile(self, first)

    Phases.profile = hungry  # type: ignore[method-assign]


def order_sets_by_rank() -> None:
    """Begin again with a hash seed of this rank's own, as fresh processes have: sets of words differ in their order."""
    if os.environ.get("PYTHONHASHSEED") != str(RANK):
        os.environ["PYTHONHASHSEED"] = str(RANK)
        os.execv(sys.executable, [sys.executable, __file__, "sets in any order", *sys.argv[1:]])


FAULTS: dict[str, Callable[[], None]] = {
    "none": lambda: None,
    "drop all-reduce": lambda: drop(Axis.REPLICATE, Operation.ALL_REDUCE),
    "drop all-gather": lambda: drop(Axis.SHARD, Operation.ALL_GATHER),
    "drop reduce-scatter": lambda: drop(Axis.SHARD, Operation.REDUCE_SCATTER),
    "drop tensor all-reduce": lambda: drop(Axis.TENSOR, Operation.ALL_REDUCE),
    "late gathers": lambda: delay_gathers(skip_one_wait=False),
    "late gathers, one wait skipped": lambda: delay_gathers(skip_one_wait=True),
    "nobody waits for all-reduces": lambda: never_wait(Axis.REPLICATE, Operation.ALL_REDUCE),
    "nobody waits for all-gathers": lambda: never_wait(Axis.SHARD, Operation.ALL_GATHER),
    "nobody waits for reduce-scatters": lambda: never_wait(Axis.SHARD, Operation.REDUCE_SCATTER),
    "nobody waits for tensor all-reduces": lambda: never_wait(Axis.TENSOR, Operation.ALL_REDUCE),
    "nobody waits for tensor all-gathers": lambda: never_wait(Axis.TENSOR, Operation.ALL_GATHER),
    "nobody waits for the second all-gather": lambda: never_wait(Axis.SHARD, Operation.ALL_GATHER, place=1),
    "nobody waits for the second all-reduce": lambda: never_wait(Axis.REPLICATE, Operation.ALL_REDUCE, place=1),
    "gathers give no work": lambda: look_alike(Operation.ALL_GATHER),
    "the hook forgets": lambda: forget_in_hook(takes_future=False),
    "the hook forgets its future": lambda: forget_in_hook(takes_future=True),
    "the delayed all-reduce is dropped": forget_delayed,
    "nobody waits for tensors": forget_tensors,
    "an index is read early": index_early,
    "a gathered state is wrong": lambda: after_gather(spoil),
    "a gather segfaults": lambda: after_gather(lambda _gathered: segfault()),
    "a gather raises and frees nobody": raise_before_gather,
    "a gather hangs": lambda: after_gather(lambda _gathered: time.sleep(600)),
    "a gather is killed from outside": lambda: after_gather(lambda _gathered: os.kill(os.getpid(), signal.SIGKILL)),
    "a save is written late": save_late,
    "the profiler needs memory": profile_with_memory,
    "sets in any order": order_sets_by_rank,
    "raise": lambda: in_step(10, fail),
    "segfault": lambda: in_step(10, segfault),
    "kill": lambda: in_step(10, lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "hang": lambda: in_step(10, lambda: time.sleep(600)),
    "exit": lambda: in_step(10, lambda: os._exit(0)),
}

if __name__ == "__main__":
    FAULTS[sys.argv.pop(1)]()
    worker.main()
