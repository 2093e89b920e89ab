"""How long a thread stands still for collectives: works that are done 40 ms after they were issued."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker room imports torch")

import torch.distributed as dist
from torch.distributed import _functional_collectives

from dtbench.base.ranges import CollectiveLabel
from dtbench.base.units import NS_PER_MS
from dtbench.base.vocabulary import Axis, Operation, Purpose, Region
from dtbench.worker.extras.exposure.wait_clock import WaitClock
from dtbench.worker.network.carrier import Issued
from dtbench.worker.recording.recorder import DELAYED

DELAY_S = 0.04


class Pair:
    def ranks(self) -> tuple[int, ...]:
        return (0, 1)


class Alone:
    def ranks(self) -> tuple[int, ...]:
        return (0,)


@pytest.fixture
def clock() -> Iterator[WaitClock]:
    clock = WaitClock()
    with clock.installed():
        clock.begin_step()
        yield clock


def start_work() -> Any:
    done: Any = torch.futures.Future()
    threading.Timer(DELAY_S, done.set_result, ([],)).start()
    return torch._C._distributed_c10d._create_work_from_future(done)


def issue(clock: WaitClock, *, is_async: bool = True, owner: str = "", output: Any = None, group: Any = None) -> Any:
    """Issue an all-gather of weights (or, with an owner, a bucket of gradients)."""
    begun_ns = time.perf_counter_ns()
    operation, axis = (Operation.ALL_REDUCE, Axis.REPLICATE) if owner else (Operation.ALL_GATHER, Axis.SHARD)
    label = CollectiveLabel(
        group="0", seq=1, operation=operation, size_bytes=8, axis=axis, is_async=is_async, owner=owner
    )
    args = (torch.zeros(2) if output is None else output,)
    issued = Issued(label, Region.BACKWARD, group or Pair(), "method", args, is_named=False)
    work = start_work()
    clock.note(issued, work, begun_ns)
    return work


class Watch:
    """What the test sees pass around a wait: no less than the clock's, and on a loaded machine little more."""

    def __init__(self) -> None:
        self.seen_ns = 0

    def __enter__(self) -> None:
        self._begun_ns = time.perf_counter_ns()

    def __exit__(self, *_error: object) -> None:
        self.seen_ns += time.perf_counter_ns() - self._begun_ns

    def agrees_with(self, duration_ns: int) -> bool:
        return self.seen_ns // 2 <= duration_ns <= self.seen_ns


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_of_an_asynchronous_collective_only_the_wait_counts(clock: WaitClock, watch: Watch) -> None:
    for asleep_s in (0, 2 * DELAY_S):
        work = issue(clock)
        time.sleep(asleep_s)
        with watch:
            work.wait()
    assert watch.agrees_with(clock.end_step()[Purpose.UNSHARD])
    assert (clock.seen, clock.unseen) == (2, 0)


def test_of_a_blocking_collective_the_whole_call_counts(clock: WaitClock, watch: Watch) -> None:
    with watch:
        work = issue(clock, is_async=False)
        time.sleep(2 * DELAY_S)
        work.wait()
    assert watch.agrees_with(clock.end_step()[Purpose.UNSHARD])


def test_a_second_wait_and_a_wait_outside_a_step_do_not_count(clock: WaitClock) -> None:
    work = issue(clock)
    work.wait()
    clock.begin_step()
    work.wait()
    start_work().wait()
    assert clock.end_step() == {}


def test_a_wait_inside_a_wait_counts_once(clock: WaitClock) -> None:
    buckets = [issue(clock, owner=f"bucket {index}") for index in range(2)]
    clock.stand_for_reducer()
    buckets[0].wait()
    clock.reducer_done()
    assert clock.end_step() == {}
    assert (clock.seen, clock.unseen) == (2, 0), "the reducer has waited for the other in C++"


def test_the_reducer_does_not_wait_for_what_is_delayed(clock: WaitClock) -> None:
    work = issue(clock, owner=DELAYED)
    clock.stand_for_reducer()
    clock.reducer_done()
    work.wait()
    assert set(clock.end_step()) == {Purpose.GRAD_REDUCE}


def test_waits_of_other_threads_do_not_count(clock: WaitClock) -> None:
    work = issue(clock)
    thread = threading.Thread(target=work.wait)
    thread.start()
    thread.join()
    assert clock.end_step() == {}
    assert (clock.seen, clock.unseen) == (1, 0)


def test_a_collective_that_nobody_waits_for_is_counted(clock: WaitClock) -> None:
    issue(clock)
    issue(clock, group=Alone())
    assert clock.end_step() == {}
    assert (clock.seen, clock.unseen) == (0, 1), "alone in a group there is nothing to wait for"


def test_a_functional_collective_is_waited_for_by_its_tensor(clock: WaitClock, watch: Watch) -> None:
    tensor = torch.zeros(4)
    work = issue(clock, output=tensor)
    torch._C._distributed_c10d._register_work(tensor, work)
    with watch:
        waited = _functional_collectives.wait_tensor(tensor)
    assert waited.data_ptr() == tensor.data_ptr()
    assert watch.agrees_with(clock.end_step()[Purpose.UNSHARD])
    assert (clock.seen, clock.unseen) == (1, 0)


def test_a_call_that_waits_in_cpp_for_all_that_it_issues_is_one_wait(
    monkeypatch: pytest.MonkeyPatch, watch: Watch
) -> None:
    clock = WaitClock()

    def broadcast() -> None:
        for work in [issue(clock), issue(clock)]:
            future = work.get_future()
            future.wait()

    monkeypatch.setattr(dist, "_broadcast_coalesced", broadcast)
    with clock.installed():
        clock.begin_step()
        with watch:
            dist._broadcast_coalesced()
        assert watch.agrees_with(clock.end_step()[Purpose.UNSHARD])
    assert (clock.seen, clock.unseen) == (2, 0)


def test_a_call_without_a_work_has_waited_itself(clock: WaitClock) -> None:
    label = CollectiveLabel(
        group="0", seq=1, operation=Operation.BARRIER, size_bytes=0, axis=None, is_async=False, owner=""
    )
    clock.note(
        Issued(label, None, Pair(), "monitored_barrier", (), is_named=False),
        None,
        time.perf_counter_ns() - 7 * NS_PER_MS,
    )
    assert clock.end_step()[Purpose.OTHER] >= 7 * NS_PER_MS


def test_what_was_patched_is_put_back() -> None:
    before = dist.Work.wait, dist._broadcast_coalesced, _functional_collectives.wait_tensor
    with WaitClock().installed():
        assert dist.Work.wait is not before[0]
    assert (dist.Work.wait, dist._broadcast_coalesced, _functional_collectives.wait_tensor) == before
