"""A collective that fails fails for C++ too, and nothing counts after it."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

from dtbench.base.ranges import CollectiveLabel
from dtbench.base.vocabulary import Axis, Operation
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.worker.network import link
from dtbench.worker.network.carrier import Carrier
from dtbench.worker.network.promise import Promise

GONE = "Connection closed by peer [127.0.0.1]:4711"
GONE_PATTERN = "a collective failed: Connection closed by peer"
NETWORK = EmulatedNetwork(kind="emulated", latency_us=1.0, bandwidth_gb_per_s=1.0)
LABEL = CollectiveLabel(
    group="0", seq=1, operation=Operation.SEND, size_bytes=4, axis=Axis.REPLICATE, is_async=True, owner=""
)


def fail() -> None:
    raise RuntimeError(GONE)


def test_cpp_sees_that_a_promise_was_broken() -> None:
    promise = Promise()
    work = torch._C._distributed_c10d._create_work_from_future(promise.future)
    promise.break_with(RuntimeError(GONE))
    with pytest.raises(RuntimeError, match="Connection closed by peer"):
        promise.future.wait()
    with pytest.raises(RuntimeError, match="Connection closed by peer"):
        work.get_future().wait()
    assert not work.is_success()


def test_a_promise_that_was_kept_gives_its_outputs_and_runs_callbacks_where_it_was_kept() -> None:
    promise, ran = Promise(), list[threading.Thread]()
    outputs = [torch.ones(2)]

    def go_on(future: Any) -> Any:
        ran.append(threading.current_thread())
        return future.value()

    chained = promise.future.then(go_on)
    work = torch._C._distributed_c10d._create_work_from_future(promise.future)
    promise.keep(outputs)
    assert work.wait()
    assert work.is_success()
    assert promise.future.value()[0] is outputs[0]
    assert chained.value()[0] is outputs[0]
    assert ran == [threading.current_thread()]


def test_after_a_collective_failed_none_is_issued_and_no_step_counts(tmp_path: Path) -> None:
    carried = link.Link(NETWORK, tmp_path)
    carrier = Carrier(carried)
    carrier.check()
    work = carried.carry(LABEL, (0, 1), lambda: SimpleNamespace(wait=fail), [torch.zeros(1)], is_named=False)
    with pytest.raises(RuntimeError, match="Connection closed by peer"):
        work.get_future().wait()
    with pytest.raises(link.CollectiveError, match=GONE_PATTERN):
        carrier.check()
    with pytest.raises(link.CollectiveError, match="a collective failed"):
        carried.carry(LABEL, (0, 1), pytest.fail, [torch.zeros(1)], is_named=False)


def test_what_follows_from_outputs_that_nobody_filled_is_said_to_be_the_collectives_failure(tmp_path: Path) -> None:
    """As torch's check of DDP's parameters does, which reads the sizes of a rank that is gone."""
    carried = link.Link(NETWORK, tmp_path)
    work = carried.carry(LABEL, (0, 1), lambda: SimpleNamespace(wait=fail), [torch.zeros(1)], is_named=False)
    work.wait()
    with pytest.raises(link.CollectiveError, match=GONE_PATTERN), Carrier(carried).blaming_failures():
        raise RuntimeError("value cannot be converted to type int without overflow")
    with pytest.raises(ValueError, match="mine"), Carrier(link.Link(NETWORK, tmp_path)).blaming_failures():
        raise ValueError("mine")


def test_who_blocks_is_told_at_once(tmp_path: Path) -> None:
    carried = link.Link(NETWORK, tmp_path)
    with pytest.raises(RuntimeError, match="Connection closed by peer"):
        carried.carry(LABEL, (0, 1), fail, [torch.zeros(1)], is_named=False)
