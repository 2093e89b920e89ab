"""The parts of the steps that estimate exposed communication again, each alone."""

import itertools
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker room imports torch")

from torch._subclasses import FakeTensorMode
from torch.autograd import Variable

from dtbench.base.units import NS_PER_MS
from dtbench.base.vocabulary import Arm, Axis, DeviceKind, Operation, Purpose
from dtbench.store.records.arms import ArmCount
from dtbench.store.records.rank import ReceiptOutcome
from dtbench.store.records.traffic import Traffic
from dtbench.worker.extras.exposure.arm_loop import Block
from dtbench.worker.extras.exposure.arm_receipt import Evidence, make_arm_receipt
from dtbench.worker.extras.exposure.backward_end import BackwardEnd
from dtbench.worker.extras.exposure.ddp_logger import LoggedBackwards
from dtbench.worker.extras.exposure.estimate import ArmRunner, record_blocks
from dtbench.worker.extras.exposure.operator_count import count_operators
from dtbench.worker.extras.exposure.wait_clock import WaitClock
from dtbench.worker.extras.still_steps import hold_weights, sum_weights
from dtbench.worker.loop.clock import HostClock
from dtbench.worker.loop.train import TrainStep
from dtbench.worker.network.carrier import Carrier
from dtbench.worker.parallelize.parallelized import Sync

ALL = (Arm.FULL, Arm.REMOVED, Arm.SERIAL)


@pytest.mark.parametrize(("device", "times_the_end"), [(DeviceKind.CPU, True), (DeviceKind.CUDA, False)])
def test_only_where_the_host_waits_is_the_end_of_backward_timed(device: DeviceKind, *, times_the_end: bool) -> None:
    model = torch.nn.parallel.DistributedDataParallel.__new__(torch.nn.parallel.DistributedDataParallel)
    nothing: dict[str, Any] = dict.fromkeys(("built", "optimizer", "recorder", "autocast", "clip_norm", "observed"))
    parallel: Any = SimpleNamespace(model=model, read_sync=lambda: Sync.REDUCE)
    step = TrainStep(parallel=parallel, micro_batches=1, **nothing)
    plan, batches = SimpleNamespace(device=device), SimpleNamespace(make=lambda number: number)
    at = SimpleNamespace(plan=plan, recorder=None, journal=None, carrier=Carrier())
    trained: Any = SimpleNamespace(at=at, step=step, batches=batches, first=9)
    loop = ArmRunner(trained, HostClock())._make_loop(itertools.count())
    assert (loop.witness.end is not None) == times_the_end
    assert (loop.step is not step) == times_the_end


def make_block(arm: Arm, end_ns: tuple[int, ...], *stood: dict[Purpose, int]) -> Block:
    return Block(
        arm=arm,
        step_ns=(10,) * len(end_ns),
        stood_ns=stood,
        end_ns=end_ns,
        stolen_fraction=(0.0,) * len(end_ns),
        has_nan=False,
    )


def test_the_copies_out_of_buckets_are_no_wait() -> None:
    unshard, gradients = Purpose.UNSHARD, Purpose.GRAD_REDUCE
    full = make_block(Arm.FULL, (50, 8), {unshard: 3, gradients: 1}, {})
    removed = make_block(Arm.REMOVED, (9, 11, 100), {}, {}, {})
    blocks = record_blocks([full, removed], ends=True)
    assert blocks[0].wait_ns == {gradients: (1 + 50 - 11, 0), unshard: (3, 0)}
    assert blocks[1].wait_ns == {}
    assert [block.arm for block in blocks] == [Arm.FULL, Arm.REMOVED]
    (alone,) = record_blocks([make_block(Arm.FULL, (0, 0), {unshard: 3}, {})], ends=False)
    assert alone.wait_ns == {unshard: (3, 0)}


def make_count(arm: Arm, *, operators: int = 7, count: int = 2) -> ArmCount:
    row = Traffic(
        purpose=Purpose.UNSHARD,
        axis=Axis.SHARD,
        operation=Operation.ALL_GATHER,
        count=count,
        size_bytes=64,
        count_async=0,
    )
    return ArmCount(arm=arm, operators=operators, traffic=(row,))


def make_evidence(**changes: Any) -> Evidence:
    fields: dict[str, Any] = {
        "exposure": ("trace", "ablation", "wait"),
        "counts": tuple(make_count(arm) for arm in ALL),
        "nan_arms": frozenset(),
        "held_weights": True,
        "objects": 0,
        "seen": 12,
        "unseen": 0,
    }
    return Evidence(**{**fields, **changes})


def test_arms_that_differ_in_nothing_but_communication_agree() -> None:
    receipt = make_arm_receipt(make_evidence())
    assert receipt.outcome is ReceiptOutcome.AGREES
    assert receipt.knob == "measure.exposure"
    assert receipt.got == receipt.asked == "[trace, ablation, wait]"
    assert receipt.note == (
        "a step of each arm (full, removed, serial) ran 7 operators and issued 2 collectives; 12 of 12 waits seen"
    )


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        (
            {"counts": (make_count(Arm.FULL), make_count(Arm.REMOVED, operators=5))},
            "arms differ in what they compute: full 7 operators, removed 5 operators",
        ),
        (
            {"counts": (make_count(Arm.FULL), make_count(Arm.REMOVED, count=1))},
            "arms differ in what they issue: full 2 collectives of 64 bytes, removed 1 collective of 64 bytes",
        ),
        ({"nan_arms": frozenset({Arm.REMOVED})}, "a loss of arm removed is NaN"),
        ({"nan_arms": frozenset(ALL)}, "training has diverged; a smaller optimizer.lr works"),
        ({"held_weights": False}, "weights have changed with a learning rate of 0"),
        ({"unseen": 1}, "nobody was seen to wait for 1 of 13 collectives: `wait` is too small"),
    ],
)
def test_any_other_difference_is_a_disagreement_with_both_numbers(changes: dict[str, Any], note: str) -> None:
    receipt = make_arm_receipt(make_evidence(**changes))
    assert receipt.outcome is ReceiptOutcome.DISAGREES
    assert note in receipt.note


def test_waits_that_nobody_asked_for_need_not_be_seen() -> None:
    receipt = make_arm_receipt(make_evidence(unseen=1, exposure=("ablation",)))
    assert receipt.outcome is ReceiptOutcome.AGREES


def test_objects_that_were_carried_are_said() -> None:
    assert "3 calls that exchange Python objects were carried" in make_arm_receipt(make_evidence(objects=3)).note


def end_late(sync: Sync) -> int:
    """Run a backward that works for 30 ms and then, as DDP's reducer does, for 40 ms in a callback."""
    end = BackwardEnd(WaitClock(), lambda: sync)
    weight = torch.ones(3, requires_grad=True)

    def work(_gradient: Any) -> None:
        time.sleep(0.03)
        Variable._execution_engine.queue_callback(lambda: time.sleep(0.04))

    weight.register_hook(work)
    end.begin_step()
    end.run_backward((2 * weight).sum())
    assert weight.grad.tolist() == [2, 2, 2]
    return end.duration_ns


def test_the_end_of_backward_begins_after_its_last_node() -> None:
    assert 38 * NS_PER_MS <= end_late(Sync.REDUCE) <= 65 * NS_PER_MS


def test_a_backward_that_keeps_its_gradients_has_no_end() -> None:
    assert end_late(Sync.HOLD) == 0


def test_operators_are_counted_on_every_thread_that_completes_a_future() -> None:
    future: Any = torch.futures.Future()
    with count_operators() as counted:
        torch.ones(2) + 1
        own = counted.count
        later = future.then(lambda _future: torch.ones(2) + 1)
        thread = threading.Thread(target=future.set_result, args=(None,))
        thread.start()
        later.wait()
        thread.join()
        later.then(lambda _future: torch.ones(2) + 1).wait()
    torch.ones(2)
    assert own > 1
    assert counted.count == 3 * own


def test_what_only_asks_for_a_shape_is_no_operator_of_a_step() -> None:
    """As DTensor does of what it has not seen before: an arm that comes first would run more than the others."""
    with count_operators() as counted:
        with FakeTensorMode():
            torch.empty_strided((2,), (1,)).addcdiv_(torch.ones(2), torch.ones(2), value=-0.1)
        torch.empty(2, device="meta") + 1
        assert counted.count == 0
        torch.ones(2).addcdiv_(torch.ones(2), torch.ones(2), value=-0.1)
    assert counted.count > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda weights: torch.optim.AdamW(weights, lr=0.1, weight_decay=0.5),
        lambda weights: torch.optim.AdamW(weights, lr=0.1, weight_decay=0.5, fused=True),
        lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9, weight_decay=0.5),
    ],
)
def test_weights_are_held_and_learning_rates_put_back(make: Callable[..., Any]) -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = make([weight])

    def train() -> None:
        weight.grad = torch.tensor([3.0, 4.0])
        optimizer.step()

    train()
    before, kept = sum_weights([weight]), weight.detach().clone()
    step: Any = SimpleNamespace(optimizer=optimizer)
    with hold_weights(step):
        train()
        assert torch.equal(weight, kept)
    assert sum_weights([weight]) == before
    train()
    assert not torch.equal(weight, kept)
    assert sum_weights([weight]) != before


def test_rates_come_back_also_where_a_state_was_loaded_meanwhile() -> None:
    """``load_state_dict`` gives an optimizer other groups, with the rate of the state."""
    optimizer = torch.optim.AdamW([torch.zeros(2, requires_grad=True)], lr=0.1)
    step: Any = SimpleNamespace(optimizer=optimizer)
    with hold_weights(step):
        optimizer.load_state_dict(optimizer.state_dict())
    assert [group["lr"] for group in optimizer.param_groups] == [0.1]


def test_weights_are_held_inside_ddps_backward() -> None:
    inner = SimpleNamespace(defaults={"lr": 0.1, "weight_decay": 0.2})
    step: Any = SimpleNamespace(optimizer=None, parallel=SimpleNamespace(inner_optimizer=inner))
    with hold_weights(step):
        assert inner.defaults == {"lr": 0.0, "weight_decay": 0.2}
    assert inner.defaults == {"lr": 0.1, "weight_decay": 0.2}


class FakeLogger:
    """Gives what the logger would have read before each backward: (iteration, communication, overlap)."""

    def __init__(self, *reads: tuple[int, int, int]) -> None:
        self._reads = list(reads)

    def _get_ddp_logging_data(self) -> dict[str, int]:
        iteration, comm_ns, overlap_ns = self._reads.pop(0)
        return {
            "iteration": iteration,
            "backward_comm_time": comm_ns,
            "backward_compute_comm_overlap_time": overlap_ns,
        }


def read_logged(logger: FakeLogger, backwards: int, steps: int) -> tuple[int, ...]:
    logged = LoggedBackwards(logger, lambda: Sync.REDUCE)
    for _ in range(backwards):
        logged.run_backward(torch.ones(1, requires_grad=True).sum())
    return logged.exposed_ns(steps)


def test_ddps_logger_is_one_backward_behind() -> None:
    logger = FakeLogger((9, 99, 0), (10, 50, 20), (11, 60, 20), (12, 70, 20))
    assert read_logged(logger, 4, 4) == (30, 40, 50)


def test_backwards_of_a_step_add_up_and_what_was_not_sampled_is_left_out() -> None:
    reads = [(number, 10 * number, 0) for number in range(1, 7)]
    assert read_logged(FakeLogger(*reads), 6, 3) == (20 + 30, 40 + 50)
    assert read_logged(FakeLogger((1, 9, 0), (1, 9, 0), (2, 0, 0), (3, 30, 10)), 4, 4) == (20,)
