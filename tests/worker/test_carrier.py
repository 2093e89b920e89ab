"""What becomes of a collective in each arm."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker room imports torch")

import torch.distributed as dist

from dtbench.base.ranges import CollectiveLabel
from dtbench.base.vocabulary import Arm, Axis, Operation, Purpose, Region
from dtbench.worker.network.carrier import Carrier, Issued, carry_objects


class Pair:
    """A group of two; this rank is the second."""

    def ranks(self) -> tuple[int, ...]:
        return (0, 1)

    def rank(self) -> int:
        return 1

    def size(self) -> int:
        return 2


class Alone(Pair):
    def ranks(self) -> tuple[int, ...]:
        return (0,)

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return 1


class FakeWork:
    def __init__(self, log: list[str]) -> None:
        self._log = log

    def wait(self) -> None:
        self._log.append("waited")


def make_issued(method: str, operation: Operation, *args: Any, group: Pair | None = None) -> Issued:
    label = CollectiveLabel(
        group="0", seq=1, operation=operation, size_bytes=8, axis=Axis.SHARD, is_async=True, owner=""
    )
    return Issued(label, Region.BACKWARD, group or Pair(), method, args, is_named=False)


def make_start(log: list[str]) -> Callable[[], Any]:
    def start() -> FakeWork:
        log.append("sent")
        return FakeWork(log)

    return start


def test_outside_arms_and_in_arm_full_a_collective_is_sent_and_not_waited_for() -> None:
    log: list[str] = []
    carrier = Carrier(tell=lambda issued, _work, begun_ns: log.append(f"told {issued.purpose} {begun_ns > 0}"))
    issued = make_issued("allreduce", Operation.ALL_REDUCE, [torch.ones(2)])
    carrier.carry(issued, make_start(log))
    assert log == ["sent"]
    carrier.arm = Arm.FULL
    carrier.carry(issued, make_start(log))
    assert log[1:] == ["sent", f"told {Purpose.GRAD_REDUCE} True"]


def test_arm_serial_waits_at_once_but_not_for_one_end_of_a_message() -> None:
    log: list[str] = []
    carrier = Carrier(arm=Arm.SERIAL, settle=lambda: log.append("settled"))
    carrier.carry(make_issued("allreduce", Operation.ALL_REDUCE, [torch.ones(2)]), make_start(log))
    assert log == ["settled", "sent", "waited", "settled"]
    carrier.carry(make_issued("send", Operation.SEND, [torch.ones(2)], 0, 0), make_start(log))
    assert log[4:] == ["sent"]
    assert carrier.carry(make_issued("monitored_barrier", Operation.BARRIER), lambda: None) is None


def test_arm_removed_sends_nothing_fills_the_outputs_and_is_done_at_once() -> None:
    log: list[str] = []
    carrier = Carrier(arm=Arm.REMOVED)
    output = torch.zeros(4)
    issued = make_issued("_allgather_base", Operation.ALL_GATHER, output, torch.tensor([1.0, 2.0]), "options")
    work = carrier.carry(issued, make_start(log))
    assert log == []
    assert output.tolist() == [1, 2, 1, 2]
    assert isinstance(work, dist.Work), "FSDP2 waits for nothing else"
    assert work.is_completed()
    assert work.wait()
    assert work.get_future().value()[0] is output
    assert carrier.carry(make_issued("monitored_barrier", Operation.BARRIER), make_start(log)) is None
    assert carrier.removed == 2


def test_what_is_left_out_in_a_group_of_one_is_not_missed_by_the_link() -> None:
    carrier = Carrier(arm=Arm.REMOVED)
    carrier.carry(make_issued("allreduce", Operation.ALL_REDUCE, [torch.ones(2)], group=Alone()), make_start([]))
    assert carrier.removed == 0


def test_objects_are_exchanged_in_arm_removed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    carrier = Carrier()
    arms: list[Arm | None] = []
    monkeypatch.setattr(dist, "all_gather_object", lambda *_args: arms.append(carrier.arm))
    with carry_objects(carrier):
        for arm in (Arm.REMOVED, Arm.FULL):
            carrier.arm = arm
            dist.all_gather_object([], 1)
            assert carrier.arm is arm
    assert arms == [None, Arm.FULL]
    assert carrier.objects == 1
