"""The real worker with one planted lie: ``python lying_worker.py LIE --order FILE``; unknown to the product."""

import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

from dtbench.base.vocabulary import Arm, Operation
from dtbench.plan.traffic.link import service_ns
from dtbench.worker import __main__ as worker
from dtbench.worker.models import known_cost
from dtbench.worker.network import carrier, link, named_gloo


class LookAlike:
    """Has what a ``Work`` has and is none: FSDP2 waits only for what is one, and says nothing."""

    def __init__(self, work: Any) -> None:
        self.work = work

    def wait(self, *_args: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


def never_wait_for_gathers() -> None:
    """Return a look-alike for every all-gather; gloo has moved the data by then, so only the link's time is lost."""
    carry = link.Link.carry

    def lie(self: Any, label: Any, ranks: Any, start: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
        if label.operation is not Operation.ALL_GATHER:
            return carry(self, label, ranks, start, *args, **kwargs)

        def move() -> Any:
            work = start()
            work.wait()
            return work

        return LookAlike(carry(self, label, ranks, move, *args, **kwargs))

    link.Link.carry = lie  # type: ignore[method-assign]


def drop_a_bucket() -> None:
    """Lose the second all-reduce of every step: neither gloo nor link sees it."""
    real_forward = named_gloo._forward

    def forward(method: str, of: Operation, payload: int, watch: Any) -> Callable[..., Any]:
        real, recorder = real_forward(method, of, payload, watch), watch.recorder
        seen: dict[str, Any] = {"step": None, "count": 0}

        def call(group: Any, *args: Any, **kwargs: Any) -> Any:
            if of is not Operation.ALL_REDUCE or recorder.region is None:
                return real(group, *args, **kwargs)
            if seen["step"] is not recorder._step:  # every step begins a list of its own
                seen.update(step=recorder._step, count=0)
            seen["count"] += 1
            return done(args[0]) if seen["count"] == 2 else real(group, *args, **kwargs)

        return call

    named_gloo._forward = forward  # type: ignore[assignment]


def done(result: Any) -> Any:
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(result)
    return torch._C._distributed_c10d._create_work_from_future(future)


def ignore_bandwidth() -> None:
    """Let the link cost its latency only."""

    def lie(network: Any, operation: Any, _size_bytes: int, *args: Any) -> int:
        return service_ns(network, operation, 0, *args)

    mock.patch.object(link, "service_ns", lie).start()


def skip_compute_without_communication() -> None:
    """Let blocks take no time in the steps from which communication is removed."""
    carriers: list[Any] = []
    make, take = carrier.Carrier.__init__, known_cost.Sleep.take

    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        carriers.append(self)

    def skip(self: Any, duration_ns: int, done_ns: int = 0) -> None:
        if not any(one.arm is Arm.REMOVED for one in carriers):
            take(self, duration_ns, done_ns)

    carrier.Carrier.__init__ = remember  # type: ignore[method-assign]
    known_cost.Sleep.take = skip  # type: ignore[method-assign]


LIES: dict[str, Callable[[], None]] = {
    "never wait for gathers": never_wait_for_gathers,
    "drop a bucket": drop_a_bucket,
    "ignore bandwidth": ignore_bandwidth,
    "skip compute without communication": skip_compute_without_communication,
}

if __name__ == "__main__":
    LIES[sys.argv.pop(1)]()
    worker.main()
