"""A result that is deferred: poison until somebody waits, wherever they wait, and nobody else is touched."""

import math
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker room imports torch")

import torch.distributed as dist
from torch import Tensor

from dtbench.base.ranges import CollectiveLabel
from dtbench.base.units import NS_PER_MS
from dtbench.base.vocabulary import Axis, Operation, Purpose, Region
from dtbench.worker.network.carrier import Carrier, Issued, carry_objects
from dtbench.worker.network.deferred import CollectiveKey, DeferredResults, Poison, fill

LATE_NS = 100 * NS_PER_MS


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
        return (1,)


class Rooted:
    """Options of a broadcast or a reduction."""

    def __init__(self, root: int) -> None:
        self.rootRank = root


class Sent(dist.Work):
    """The backend's work; it is done at once, and keeps what it was given."""

    def __init__(self, sent: tuple[Any, ...]) -> None:
        super().__init__()
        self.sent = sent

    def wait(self, _timeout: Any = None) -> bool:
        return True


def make_issued(operation: Operation, *args: Any, group: Any = None, owner: str = "") -> Issued:
    label = CollectiveLabel(
        group="0", seq=1, operation=operation, size_bytes=8, axis=Axis.SHARD, is_async=True, owner=owner
    )
    return Issued(label, Region.BACKWARD, group or Pair(), "method", args, is_named=False)


def send(_issued: Issued, start: Callable[..., Any]) -> Any:
    return start()


def double(*sent: Any) -> Sent:
    """Do as a backend that doubles every tensor in place."""
    for tensor in sent[0]:
        tensor.mul_(2)
    return Sent(sent)


def gather(*sent: Any) -> Sent:
    """Do as a backend of two ranks that hold the same."""
    output, own = sent[:2]
    output.copy_(own.clone().repeat(2))
    return Sent(sent)


@pytest.mark.parametrize("poison", Poison)
def test_a_result_is_poison_until_somebody_waits(poison: Poison) -> None:
    output = torch.zeros(4)
    version = output._version
    issued = make_issued(Operation.ALL_GATHER, output, torch.tensor([1.0, 2.0]))
    work = DeferredResults(poison, LATE_NS).carry(issued, gather, send)
    assert isinstance(work, dist.Work), "FSDP2 waits for nothing else"
    assert all(math.isnan(value) or value > 1e38 for value in output.tolist())
    assert work.wait()
    assert output.tolist() == [1, 2, 1, 2]
    assert output._version == version, "as when a backend writes"


def test_what_is_reduced_in_place_reaches_the_backend_as_it_was() -> None:
    tensors = [torch.ones(2), torch.full((3,), 5.0)]
    work = DeferredResults(Poison.NAN, LATE_NS).carry(make_issued(Operation.ALL_REDUCE, tensors), double, send)
    assert all(tensor.isnan().all() for tensor in tensors)
    work.wait()
    assert [tensor.tolist() for tensor in tensors] == [[2, 2], [10, 10, 10]]


def test_a_shard_that_lies_in_the_gathered_tensor_stays_and_is_sent() -> None:
    output = torch.tensor([0.0, 0.0, 1.0, 2.0])
    issued = make_issued(Operation.ALL_GATHER, output, output[2:])
    work = DeferredResults(Poison.NAN, LATE_NS).carry(issued, gather, send)
    assert output[:2].isnan().all()
    assert output[2:].tolist() == [1, 2]
    work.wait()
    assert output.tolist() == [1, 2, 1, 2]


def test_a_wait_in_cpp_counts() -> None:
    output = torch.zeros(4)
    issued = make_issued(Operation.ALL_GATHER, output, torch.tensor([1.0, 2.0]))
    work = DeferredResults(Poison.NAN, LATE_NS).carry(issued, gather, send)
    torch._C._distributed_c10d._register_work(output, work)
    assert torch.ops._c10d_functional.wait_tensor(output).tolist() == [1, 2, 1, 2]


def test_who_takes_a_future_gets_the_result_when_it_is_late_not_before() -> None:
    tensor = torch.ones(2)
    begun_ns = time.monotonic_ns()
    work = DeferredResults(Poison.NAN, LATE_NS).carry(make_issued(Operation.ALL_REDUCE, [tensor]), double, send)
    future = work.get_future()
    assert tensor.isnan().all()
    (result,) = future.wait()
    assert time.monotonic_ns() - begun_ns >= LATE_NS
    assert result is tensor
    assert result.tolist() == [2, 2]


def test_who_asks_again_and_again_is_answered_in_the_end() -> None:
    tensor = torch.ones(2)
    work = DeferredResults(Poison.NAN, LATE_NS).carry(make_issued(Operation.ALL_REDUCE, [tensor]), double, send)
    assert not work.is_completed()
    deadline_ns = time.monotonic_ns() + 100 * LATE_NS
    while not work.is_completed():
        assert time.monotonic_ns() < deadline_ns
        time.sleep(0.01)
    assert tensor.tolist() == [2, 2]


def test_futures_arrive_in_order_of_issue_with_what_their_callbacks_issue() -> None:
    deferred, log = DeferredResults(Poison.NAN, LATE_NS // 2), list[str]()

    def reduce(name: str) -> Any:
        tensors = [torch.ones(1)]
        future = deferred.carry(make_issued(Operation.ALL_REDUCE, tensors), double, send).get_future()
        return future.then(lambda done: log.append(f"{name} {done.value()[0].item():g}"))

    reduce("a").then(lambda _done: reduce("c"))
    reduce("b")
    assert log == []
    assert deferred.finish() == ()
    assert log == ["a 2", "b 2", "c 2"]


def test_a_future_fails_as_its_collective_does() -> None:
    class Broken(Sent):
        def wait(self, _timeout: Any = None) -> bool:
            raise ValueError("planted: the peer is gone")

    deferred = DeferredResults(Poison.NAN, 0)
    issued = make_issued(Operation.ALL_REDUCE, [torch.ones(1)])
    work = deferred.carry(issued, lambda *sent: Broken(sent), send)
    with pytest.raises(ValueError, match="planted"):
        work.wait()
    with pytest.raises(Exception, match="planted"):
        work.get_future().wait()


def test_what_nobody_waited_for_is_told_and_arrives_when_the_step_is_over() -> None:
    deferred = DeferredResults(Poison.NAN, LATE_NS)
    first, second = torch.ones(1), torch.ones(1)
    for tensor in (first, second):
        work = deferred.carry(make_issued(Operation.ALL_REDUCE, [tensor], owner="bucket 0"), double, send)
    work.wait()
    (forgotten,) = deferred.finish()
    assert forgotten == CollectiveKey(Purpose.GRAD_REDUCE, Operation.ALL_REDUCE, Region.BACKWARD, "bucket 0", place=0)
    assert (first.item(), second.item()) == (2, 2)
    assert [key.place for key in deferred.seen] == [0, 1]


def test_only_what_is_asked_for_is_deferred_and_places_count_all() -> None:
    deferred = DeferredResults(
        Poison.NAN, LATE_NS, is_deferred=lambda one: one.place == 1, find_unit=lambda: "layers.1"
    )
    tensors = [torch.ones(1) for _ in range(3)]
    for tensor in tensors:
        deferred.carry(make_issued(Operation.ALL_REDUCE, [tensor]), lambda *sent: Sent(sent), send)
    assert [tensor.isnan().item() for tensor in tensors] == [False, True, False]
    assert [(key.owner, key.place) for key in deferred.seen] == [("layers.1", 1)]


@pytest.mark.parametrize(
    ("operation", "args"),
    [
        (Operation.SEND, (1, 0)),
        (Operation.BROADCAST, (Rooted(1),)),
        (Operation.REDUCE, (Rooted(0),)),
        (Operation.BARRIER, ()),
    ],
)
def test_what_is_only_sent_is_nobodys_result(operation: Operation, args: tuple[Any, ...]) -> None:
    tensor, deferred, given = torch.ones(2), DeferredResults(Poison.NAN, LATE_NS), list[tuple[Any, ...]]()
    deferred.carry(make_issued(operation, [tensor], *args), lambda *sent: given.append(sent), send)
    assert given == [()], "started with torch's own arguments"
    assert tensor.tolist() == [1, 1]
    assert deferred.seen == []


@pytest.mark.parametrize(("operation", "root"), [(Operation.BROADCAST, 0), (Operation.REDUCE, 1)])
def test_what_is_received_from_or_at_a_root_is_a_result(operation: Operation, root: int) -> None:
    tensor = torch.ones(2)
    work = DeferredResults(Poison.NAN, LATE_NS).carry(make_issued(operation, [tensor], Rooted(root)), double, send)
    assert tensor.isnan().all()
    work.wait()
    assert tensor.tolist() == [2, 2]


def test_alone_in_a_group_nobody_waits_for_anybody() -> None:
    tensor = torch.ones(2)
    issued = make_issued(Operation.ALL_REDUCE, [tensor], group=Alone())
    DeferredResults(Poison.NAN, LATE_NS).carry(issued, lambda *sent: double(*(sent or ([tensor],))), send)
    assert tensor.tolist() == [2, 2]


def test_who_would_not_be_waited_for_is_not_here_either() -> None:
    class LookAlike:
        def wait(self) -> bool:
            return True

    tensor = torch.ones(2)
    issued = make_issued(Operation.ALL_REDUCE, [tensor])
    work = DeferredResults(Poison.NAN, LATE_NS).carry(issued, lambda *_sent: LookAlike(), send)
    assert not isinstance(work, dist.Work), "FSDP2 must not wait for it, as in any other step"
    assert tensor.isnan().all()


def test_memory_that_was_given_away_is_not_written() -> None:
    tensor = torch.ones(2)
    work = DeferredResults(Poison.NAN, LATE_NS).carry(make_issued(Operation.ALL_REDUCE, [tensor]), double, send)
    tensor.untyped_storage().resize_(0)
    work.wait()
    assert tensor.untyped_storage().nbytes() == 0


def test_copies_go_when_they_have_been_delivered() -> None:
    deferred, asides = DeferredResults(Poison.NAN, LATE_NS), list[weakref.ref[Tensor]]()

    def start(*sent: Any) -> None:
        asides.append(weakref.ref(sent[0][0]))

    work = deferred.carry(make_issued(Operation.ALL_REDUCE, [torch.ones(2)]), start, send)
    assert work is None, "a call that blocks has its result at once"
    assert asides[0]() is None


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.zeros(1, dtype=torch.int32), 2**31 - 1),
        (torch.zeros(1, dtype=torch.uint8), 255),
        (torch.zeros(1, dtype=torch.bool), True),
        (torch.zeros(1, dtype=torch.float16), 65504 / 2),
    ],
)
def test_what_cannot_be_nan_is_large(tensor: Tensor, expected: float) -> None:
    fill(tensor, Poison.LARGE)
    assert tensor.item() == expected


def test_objects_pass_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    carrier, seen = Carrier(), list[bool]()
    carrier.poison = DeferredResults(Poison.NAN, LATE_NS).carry
    monkeypatch.setattr(dist, "all_gather_object", lambda *_args: seen.append(carrier.poison is None))
    with carry_objects(carrier):
        dist.all_gather_object([], 1)
    assert seen == [True]
    assert carrier.poison is not None
    assert carrier.objects == 0, "these are counted for arms"


def test_a_carrier_lets_poison_carry_instead() -> None:
    tensor, carrier = torch.ones(2), Carrier()
    carrier.poison = DeferredResults(Poison.NAN, LATE_NS).carry
    carrier.carry(make_issued(Operation.ALL_REDUCE, [tensor]), double)
    assert tensor.isnan().all()


def test_a_callback_may_wait_for_what_it_issues() -> None:
    deferred = DeferredResults(Poison.NAN, LATE_NS // 2)

    def reduce(value: float) -> Any:
        tensors = [torch.full((1,), value)]
        return deferred.carry(make_issued(Operation.ALL_REDUCE, tensors), double, send).get_future()

    chained = reduce(1.0).then(lambda done: reduce(done.value()[0].item()).wait()[0].item())
    assert chained.wait() == 4
    assert deferred.finish() == ()
