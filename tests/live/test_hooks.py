"""What hooks see of torch: works, tensors, a backward with callbacks, on a clock of the test's own."""

import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is what is watched")

import torch.distributed as dist
from torch.autograd import Variable
from torch.distributed import _functional_collectives as functional
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

from dtbench.base.vocabulary import Axis, Operation, Purpose, Region
from dtbench.live import groups as groups_module
from dtbench.live.groups import GroupCount, Groups
from dtbench.live.hooks import Hooks
from dtbench.live.waits import StepWaits, Waits
from dtbench.worker.recording.recorder import Recorder


@dataclass
class Clock:
    ns: int = 1_000

    def __call__(self) -> int:
        return self.ns


class FakeGroup:
    """A group of two ranks that counts what it issues."""

    group_name = "pair"

    def __init__(self) -> None:
        self.issued = 0

    def size(self) -> int:
        return 2

    def _get_sequence_number_for_group(self) -> int:
        return self.issued


class Bench:
    """Hooks on a clock that only waits turn, over one group."""

    def __init__(self, axis: Axis, *, counts: bool) -> None:
        self.clock, self.recorder, self.group = Clock(), Recorder(is_recording=False), FakeGroup()
        self.waits, self.groups = Waits(self.clock), Groups()
        self.groups._known["pair"] = GroupCount(self.group if counts else None, axis)
        self.hooks = Hooks(self.waits, self.recorder, self.groups)
        self.recorder.region = Region.BACKWARD
        self.begin()

    def begin(self) -> None:
        self.groups.take_untold()
        self.waits.begin_step()

    def end(self) -> tuple[StepWaits, int]:
        unseen = self.hooks.end_step()
        return self.waits.end_step()[0], unseen

    def issue(self, operation: Operation = Operation.REDUCE_SCATTER, *args: Any) -> Any:
        """Issue a collective that is never done."""

        def start(group: FakeGroup, *_: Any) -> Any:
            group.issued += 1
            return torch._C._distributed_c10d._create_work_from_future(torch.futures.Future())

        return self.hooks._watch_issue(operation, start)(self.group, *args)

    def wait(self, work: Any, wait_ns: int = 5) -> None:
        self.hooks._watch_work(lambda _work: self.pass_time(wait_ns))(work)

    def give_later(self, tensor: Any) -> Any:
        self.pass_time(7)
        return tensor

    def pass_time(self, ns: int) -> None:
        self.clock.ns += ns


@pytest.fixture
def bench() -> Bench:
    return Bench(Axis.SHARD, counts=True)


def sums(told: StepWaits) -> dict[Purpose, int]:
    return {purpose: ns for (purpose, _), ns in told.sums.items()}


def test_a_wait_in_python_is_timed_and_of_the_purpose_of_its_group_and_region(bench: Bench) -> None:
    work = bench.issue()
    bench.wait(work)
    told, unseen = bench.end()
    assert (sums(told), told.unseen, told.untold, unseen) == ({Purpose.GRAD_REDUCE: 5}, 0, 0, 0)


def test_what_another_thread_issues_and_waits_for_is_counted_and_not_timed(bench: Bench) -> None:
    thread = threading.Thread(target=lambda: bench.wait(bench.issue()))
    thread.start()
    thread.join()
    told, unseen = bench.end()
    assert (sums(told), unseen) == ({}, 1)


def test_a_collective_that_was_issued_past_all_hooks_is_counted(bench: Bench) -> None:
    bench.group.issued += 3
    assert bench.end()[1] == 3
    bench.group.issued += 2  # between steps
    bench.begin()
    assert bench.end()[1] == 0


def test_a_tensor_that_is_waited_for_tells_whose_group_it_came_from() -> None:
    bench = Bench(Axis.TENSOR, counts=True)
    bench.group.issued += 1  # a functional collective, in C++
    wait = bench.hooks._watch_tensor(bench.give_later)
    tensor = torch.zeros(2)
    assert wait(tensor) is tensor
    wait(tensor)  # again, when it is there
    told, unseen = bench.end()
    assert (sums(told), told.untold, unseen) == ({Purpose.TENSOR: 7}, 1, 0)


def test_behind_a_wrapper_a_tensor_is_known_by_where_it_lies() -> None:
    bench = Bench(Axis.TENSOR, counts=False)
    tensor = torch.zeros(2)
    bench.issue(Operation.ALL_REDUCE, [tensor])
    bench.pass_time(2)
    bench.hooks._watch_tensor(bench.give_later)(tensor)
    told, _ = bench.end()
    assert (sums(told), told.untold, told.flight_ns) == ({Purpose.TENSOR: 7}, 0, 9)


@pytest.mark.parametrize("counts", [True, False], ids=["counted", "wrapped"])
def test_the_reducer_waits_from_the_last_node_to_the_last_callback(*, counts: bool) -> None:
    bench = Bench(Axis.REPLICATE, counts=counts)
    weight = torch.ones(2, requires_grad=True)

    def reduce(gradient: Any) -> Any:
        bench.pass_time(5)
        if counts:
            bench.group.issued += 1
        else:
            bench.issue(Operation.ALL_REDUCE)
        Variable._execution_engine.queue_callback(lambda: bench.pass_time(11))
        return gradient

    weight.register_hook(reduce)
    run = bench.hooks._watch_engine(torch.autograd._engine_run_backward)
    loss = (weight * 2).sum()
    run((loss,), (torch.ones(()),), False, False, (), allow_unreachable=True, accumulate_grad=True)
    told, unseen = bench.end()
    assert (sums(told), told.unseen, unseen) == ({Purpose.GRAD_REDUCE: 11}, 0, 0)
    assert told.untold == counts
    assert told.flight_ns == (0 if counts else 11)


def test_a_backward_that_reduces_nothing_waits_for_nothing() -> None:
    bench = Bench(Axis.REPLICATE, counts=True)
    weight = torch.ones(2, requires_grad=True)
    weight.register_hook(lambda _: Variable._execution_engine.queue_callback(lambda: bench.pass_time(11)))
    run = bench.hooks._watch_engine(torch.autograd._engine_run_backward)
    run(((weight * 2).sum(),), (torch.ones(()),), False, False, (), allow_unreachable=True, accumulate_grad=True)
    assert sums(bench.end()[0]) == {}


def test_a_broadcast_of_buffers_is_all_wait(bench: Bench) -> None:
    def broadcast(group: FakeGroup, _tensors: Collection[Any]) -> None:
        group.issued += 2
        bench.pass_time(6)

    bench.hooks._watch_broadcast(broadcast)(bench.group, ())
    told, unseen = bench.end()
    assert (sums(told), told.flight_ns, unseen) == ({Purpose.OTHER: 6}, 6, 0)


def test_what_an_fsdp_unit_asks_for_is_its_own(bench: Bench) -> None:
    class Unit:
        _module_fqn = "layers.3"

    bench.wait(bench.hooks._watch_unit(lambda _unit: bench.issue())(Unit()))
    bench.wait(bench.issue())
    told, _ = bench.end()
    assert [wait.label.owner for wait in told.waits] == ["layers.3", ""]


def test_no_hook_stays_behind() -> None:
    def look() -> Iterator[Any]:
        for home in (dist.ProcessGroup, dist.Work, FSDPParamGroup):
            yield {name: id(value) for name, value in vars(home).items()}
        yield functional.wait_tensor, dist._broadcast_coalesced, torch.autograd._engine_run_backward

    before = list(look())
    with Bench(Axis.SHARD, counts=True).hooks.installed():
        assert list(look()) != before
    assert list(look()) == before


def test_entries_of_works_that_nobody_waits_for_do_not_pile_up() -> None:
    bench = Bench(Axis.SHARD, counts=False)
    kept = []
    for _ in range(100):
        for _ in range(100):
            tensor = torch.zeros(1)
            kept.append((tensor, bench.issue(Operation.ALL_REDUCE, [tensor])))
        bench.end()
        bench.begin()
    assert len(bench.hooks._works) <= 1_224
    assert len(bench.hooks._outputs) <= 1_224
    assert len(bench.waits._flights) <= 200


def test_a_group_whose_backend_does_not_count_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mute(FakeGroup):
        def _get_sequence_number_for_group(self) -> int:
            raise RuntimeError("ProcessGroup fake does not yet support sequence numbers.")

    monkeypatch.setattr(groups_module, "list_groups", lambda: iter([("", Mute())]))
    monkeypatch.setattr(dist.distributed_c10d, "_world", SimpleNamespace(pg_map={"pair": None}))
    groups = Groups()
    groups.look()
    assert groups.uncounted == 1
    assert groups.take_untold() == 0
