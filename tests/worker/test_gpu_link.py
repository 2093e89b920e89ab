"""The link on a real device: one rank with NCCL, of a supposed two, and two ranks that share the device."""

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.errors import PlanError
from dtbench.base.ranges import CollectiveLabel, timed_range
from dtbench.base.units import NS_PER_MS
from dtbench.base.vocabulary import Arm, Axis, Operation, Region
from dtbench.plan.plan import Machine, make_plan
from dtbench.plan.traffic.link import service_ns
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.store.layout import LaunchFolder
from dtbench.store.records.rank import RankRecord, Receipt, ReceiptOutcome
from dtbench.store.records.run import WorkerOrder

torch = pytest.importorskip("torch", reason="torch is what is tested here; install the extra `run`")

import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

from dtbench.worker.machine.spin import Spin
from dtbench.worker.network.carrier import Carrier
from dtbench.worker.network.cuda_link import CudaLink
from dtbench.worker.network.named_nccl import register_named_nccl
from dtbench.worker.recording.recorder import Recorder
from tests.known import known

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.ranks,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]

SERVICE_MS = 20.0
NETWORK = EmulatedNetwork(kind="emulated", latency_us=1000 * SERVICE_MS, bandwidth_gb_per_s=1000.0)
DEVICE = torch.device("cuda", 0)


def elapsed_ms(run: Callable[[], object]) -> float:
    """Time what the current stream has to do for something the second time: the first loads kernels."""
    run()
    return elapsed_once_ms(run)


def elapsed_once_ms(run: Callable[[], object]) -> float:
    """Time it the first time."""
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def takes(ms: float) -> Any:
    """Equal to what was measured, to the accuracy of a calibrated clock and to what a host needs before it launches.

    The device stands still meanwhile: 1.2 ms for an all-gather into a list and 1.0 ms for a backward of DDP, on a host
    of an H100.
    """
    return pytest.approx(ms, rel=0.03, abs=2.0)


class SlowBackend:
    """A backend whose transfer takes a known time on a stream of its own, and which keeps hold of no tensor."""

    def __init__(self, spin: Spin, duration_ms: float) -> None:
        self._spin, self._duration_ns = spin, round(duration_ms * NS_PER_MS)
        self._stream, self._ended = torch.cuda.Stream(), torch.cuda.Event()

    def copy(self, output: Any, source: Any) -> "SlowBackend":
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._spin.take(self._duration_ns)
            output.copy_(source)
            self._ended.record()
        return self

    def synchronize(self) -> None:
        torch.cuda.current_stream().wait_event(self._ended)


class Link:
    """A calibrated link and collectives for it that no process group issues."""

    def __init__(self) -> None:
        torch.cuda.set_device(DEVICE)
        self.spin = Spin(torch.cuda)
        self.link = CudaLink(NETWORK, self.spin)
        self.link.prepare(DEVICE)
        self._issued = 0
        warm = torch.zeros(8, device=DEVICE)
        self.carry(lambda: SlowBackend(self.spin, 1.0).copy(warm, warm), [warm]).wait()

    def carry(self, start: Callable[[], Any], outputs: list[Any]) -> Any:
        self._issued += 1
        label = CollectiveLabel(
            group="0",
            seq=self._issued,
            operation=Operation.ALL_REDUCE,
            size_bytes=8,
            axis=Axis.REPLICATE,
            is_async=True,
            owner="",
        )
        return self.link.carry(label, (0, 1), start, outputs, is_named=False)


@pytest.fixture(scope="module")
def link() -> Link:
    return Link()


@pytest.mark.parametrize(("moves_ms", "ends_ms"), [(1.0, SERVICE_MS), (35.0, 35.0)])
def test_a_collective_is_done_when_backend_and_link_are(link: Link, moves_ms: float, ends_ms: float) -> None:
    output, source = torch.zeros(8, device=DEVICE), torch.ones(8, device=DEVICE)
    backend = SlowBackend(link.spin, moves_ms)
    host_ms = []

    def run() -> None:
        begun = time.perf_counter()
        link.carry(lambda: backend.copy(output, source), [output]).wait()
        host_ms.append(1000 * (time.perf_counter() - begun))

    assert elapsed_ms(run) == takes(ends_ms)
    assert host_ms[1] < SERVICE_MS / 2, "the host has waited"
    assert torch.equal(output, source)


def test_a_lane_serves_one_after_another_beside_compute(link: Link) -> None:
    outputs = [torch.zeros(8, device=DEVICE) for _ in range(3)]
    source = torch.ones(8, device=DEVICE)

    def run() -> None:
        works = [link.carry(partial(SlowBackend(link.spin, 1.0).copy, output, source), [output]) for output in outputs]
        link.spin.take(50 * NS_PER_MS)
        for work in works:
            work.wait()

    assert elapsed_ms(run) == takes(3 * SERVICE_MS)
    assert torch.equal(sum(outputs), 3 * source)


def test_what_the_caller_drops_is_not_overwritten_while_the_backend_reads_it(link: Link) -> None:
    size = 1 << 20
    output = torch.zeros(size, device=DEVICE)

    def issue() -> Any:
        source = torch.full((size,), 7.0, device=DEVICE)
        backend = SlowBackend(link.spin, 30.0)
        return link.carry(lambda: backend.copy(output, source), [output])

    work = issue()
    junk = [torch.full((size,), 3.0, device=DEVICE) for _ in range(4)]  # would take the place of what was dropped
    work.wait()
    assert torch.equal(output, torch.full((size,), 7.0, device=DEVICE))
    assert len(junk) == 4


def test_the_tally_says_what_spins_took(link: Link) -> None:
    before = link.link.carried
    output = torch.zeros(8, device=DEVICE)
    for _ in range(5):
        link.carry(lambda: SlowBackend(link.spin, 1.0).copy(output, output), [output]).wait()
    tally = link.link.carried
    assert (tally.count - before.count, tally.late - before.late) == (5, 0)
    assert tally.took_ns - before.took_ns == pytest.approx(5 * SERVICE_MS * NS_PER_MS, rel=0.03)


class Group:
    """NCCL's group of this process alone, which the link takes for one of two ranks."""

    def __init__(self) -> None:
        torch.cuda.set_device(DEVICE)
        self.link = CudaLink(NETWORK, Spin(torch.cuda))
        self.link.prepare(DEVICE)
        self.carrier = Carrier(self.link, settle=torch.cuda.synchronize)
        self.recorder = Recorder()
        self._before = 0
        backend = register_named_nccl(self.recorder, self.carrier)
        store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
        self.group: Any = dist.group.WORLD
        dist.all_reduce(torch.zeros(1, device=DEVICE))  # NCCL makes its communicator; a group of one needs no link
        torch.cuda.synchronize()
        self.group._ranks = (0, 1)

    def begin(self) -> None:
        """Forget what another test did."""
        self.carrier.arm, self.recorder.is_naming = None, False
        self.recorder.begin_step()
        self._before = self.link.carried.count

    def served(self) -> int:
        """Collectives that the link carried in this test."""
        return self.link.carried.count - self._before


@pytest.fixture(scope="module")
def joined() -> Iterator[Group]:
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(dist.Work, "wait", dist.Work.wait)  # named waits stay no longer than these tests
        made = Group()
        try:
            yield made
        finally:
            dist.destroy_process_group()


@pytest.fixture
def group(joined: Group) -> Group:
    joined.begin()
    return joined


def ones(length: int = 8) -> Any:
    return torch.ones(length, device=DEVICE)


def find(newer: str, older: str) -> Any:
    """Return what torch 2.13 or 2.11 calls so; the older name warns in the newer torch."""
    return getattr(dist, newer, None) or getattr(dist, older)


CALLS: dict[str, Callable[..., Any]] = {
    "all_reduce": lambda out, own, **how: dist.all_reduce(out.copy_(own), **how),
    "broadcast": lambda out, own, **how: dist.broadcast(out.copy_(own), 0, **how),
    "reduce": lambda out, own, **how: dist.reduce(out.copy_(own), 0, **how),
    "all_gather": lambda out, own, **how: dist.all_gather([out], own, **how),
    "all_gather_single": find("all_gather_single", "all_gather_into_tensor"),
    "reduce_scatter": lambda out, own, **how: dist.reduce_scatter(out, [own], **how),
    "reduce_scatter_single": find("reduce_scatter_single", "reduce_scatter_tensor"),
    "all_to_all_single": dist.all_to_all_single,
    "gather": lambda out, own, **how: dist.gather(own, [out], 0, **how),
    "scatter": lambda out, own, **how: dist.scatter(out, [own], 0, **how),
}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_every_collective_takes_the_links_time_and_gives_nccls_result(
    group: Group, name: str, *, is_async: bool
) -> None:
    output, own = torch.zeros(8, device=DEVICE), ones()

    def run() -> None:
        work = CALLS[name](output, own, async_op=is_async)
        if is_async:
            assert isinstance(work, dist.Work)
            work.wait()

    assert elapsed_ms(run) == takes(SERVICE_MS)
    assert torch.equal(output, own)
    assert group.served() == 2


def test_functional_collectives_wait_for_the_link(group: Group) -> None:
    results: list[Any] = []
    gather: Any = getattr(functional, "all_gather_single", None) or functional.all_gather_tensor

    def run() -> None:
        results.append(functional.all_reduce(ones(), "sum", group.group) + 0)
        results.append(gather(ones(), 0, group.group) + 0)

    assert elapsed_ms(run) == takes(2 * SERVICE_MS)
    assert all(torch.equal(result, ones()) for result in results)


@pytest.mark.parametrize("is_async", [False, True])
def test_the_host_waits_for_a_barrier(group: Group, *, is_async: bool) -> None:
    torch.cuda.synchronize()
    begun = time.perf_counter()
    work = dist.barrier(async_op=is_async, device_ids=[0])
    if is_async:
        work.wait()
    assert 1000 * (time.perf_counter() - begun) >= SERVICE_MS - 1
    assert group.served() == 1


def test_objects_travel_over_the_link(group: Group) -> None:
    gathered: list[Any] = [None]
    dist.all_gather_object(gathered, {"rank": 0})
    broadcast = ["text"]
    dist.broadcast_object_list(broadcast, 0)
    assert (gathered, broadcast) == ([{"rank": 0}], ["text"])
    assert group.served() == 4, "a size and the bytes of each"


def test_a_bracket_is_one_launch_of_nccl_and_each_of_its_collectives_a_service(group: Group) -> None:
    tensors = [ones(), 2 * ones()]

    def run() -> None:
        with dist.distributed_c10d._coalescing_manager(group.group, DEVICE, async_ops=True) as bracket:
            for tensor in tensors:
                group.group.allreduce([tensor], dist.AllreduceOptions())
        bracket.wait()

    assert elapsed_ms(run) == takes(2 * SERVICE_MS)
    assert [tensor.tolist() for tensor in tensors] == [[1.0] * 8, [2.0] * 8]


def test_a_call_that_nccl_coalesces_itself_is_one_collective(group: Group) -> None:
    tensors = [ones(), 2 * ones()]

    def run() -> None:
        with dist.distributed_c10d._coalescing_manager(group.group, async_ops=True) as bracket:
            for tensor in tensors:
                dist.all_reduce(tensor)
        bracket.wait()

    assert elapsed_ms(run) == takes(SERVICE_MS)
    assert group.served() == 2


def test_ddps_reducer_waits_for_the_link(group: Group) -> None:
    model = DistributedDataParallel(nn.Linear(4, 2).to(DEVICE), device_ids=[0])
    batch = torch.ones(3, 4, device=DEVICE)
    model(batch).sum().backward()
    model.zero_grad()
    loss = model(batch).sum()
    assert elapsed_once_ms(loss.backward) == takes(SERVICE_MS)
    assert torch.equal(model.module.weight.grad, torch.full((2, 4), 3.0, device=DEVICE))
    assert group.recorder.step_issues()[-1].operation is Operation.ALL_REDUCE


def test_what_is_removed_is_filled_on_the_stream_that_issued_it_and_waited_for_on_another(group: Group) -> None:
    group.carrier.arm = Arm.REMOVED
    output, own = torch.zeros(8, device=DEVICE), torch.zeros(8, device=DEVICE)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        group.link.spinner.take(30 * NS_PER_MS)
        own.fill_(5.0)
        work = CALLS["all_gather_single"](output, own, async_op=True)
    work.wait()
    assert torch.equal(output.clone(), torch.full((8,), 5.0, device=DEVICE))
    assert group.served() == 0


def test_what_is_serial_leaves_nothing_to_run_beside(group: Group) -> None:
    group.carrier.arm = Arm.SERIAL

    def run() -> None:
        group.link.spinner.take(30 * NS_PER_MS)
        work = dist.all_reduce(ones(), async_op=True)
        group.link.spinner.take(30 * NS_PER_MS)
        work.wait()

    assert elapsed_ms(run) == takes(60 + SERVICE_MS)


def test_a_graph_that_is_captured_is_refused(group: Group) -> None:
    tensor = ones()

    def capture() -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
            tensor.add_(1)  # an empty graph warns
            dist.all_reduce(tensor)

    with pytest.raises(PlanError, match="CUDA graph"):
        capture()
    torch.cuda.synchronize()


def test_the_trace_shows_collectives_on_their_lane_and_blocks_as_compute(group: Group, tmp_path: Path) -> None:
    from torch.profiler import ProfilerActivity, profile, record_function

    from dtbench.traces.rank.analysis import analyze_trace
    from dtbench.traces.reader import read_trace

    def step() -> None:
        works = [dist.all_reduce(ones(1 << 20), async_op=True) for _ in range(2)]
        with record_function(timed_range("layers.0", Region.BACKWARD)):
            group.link.spinner.take(30 * NS_PER_MS)
        for work in works:
            work.wait()
        ones().add_(1)
        torch.cuda.synchronize()

    step()
    group.recorder.is_naming = True
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        step()
    group.recorder.is_naming = False
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    one = analyze_trace(read_trace(tmp_path / "trace.json"))
    assert [found.operation for found in one.collectives] == [Operation.ALL_REDUCE] * 2
    assert len({found.lane for found in one.collectives}) == 1
    first, second = one.collectives
    for found in (first, second):
        assert (found.end_ns - found.start_ns) / NS_PER_MS == takes(SERVICE_MS)
    assert second.start_ns >= first.end_ns
    assert known(one.whole.comm_ns) / NS_PER_MS == takes(2 * SERVICE_MS)
    assert known(one.whole.compute_ns) / NS_PER_MS == takes(30)
    assert known(one.whole.exposed_comm_ns) / NS_PER_MS == pytest.approx(10, abs=2)


# Two ranks that share the device. Each has it for a slice of some milliseconds in turn, so that NCCL is slow and
# times are coarse: what is checked of times is that they are no shorter than they may be.

LINK = {"kind": "emulated", "latency_us": 60_000.0, "bandwidth_gb_per_s": 1.0}
MLP = {"kind": "mlp", "layers": 2, "dim": 64, "hidden_dim": 128}
STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {"parallel": {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 0.02}},
    "ddp, compressed": {"parallel": {"kind": "ddp", "replicas": 2, "comm_hook": {"kind": "fp16_compress"}}},
    "fsdp1": {"parallel": {"kind": "fsdp1", "shards": 2}},
    "fsdp2": {"parallel": {"kind": "fsdp2", "shards": 2}},
    "fsdp2, asynchronous": {
        "parallel": {"kind": "fsdp2", "shards": 2, "unshard_async_op": True, "forward_prefetch": 1}
    },
    "fsdp2, tensor": {"parallel": {"kind": "fsdp2", "shards": 1, "tensor": 2}},
}


@pytest.fixture
def share(tmp_path: Path, scenario: Callable[..., Any]) -> Callable[..., tuple[list[RankRecord], LaunchFolder]]:
    """Run a scenario of two ranks on one device."""
    from dtbench.launch.local import launch_ranks

    def run(name: str, **sections: Any) -> tuple[list[RankRecord], LaunchFolder]:
        wanted = scenario(
            **{"model": MLP, "device": "cuda", "correctness": {"enabled": False}, **sections},
        )
        folder = LaunchFolder(tmp_path / name)
        order = WorkerOrder(
            cell="cell",
            index=0,
            scenario=wanted,
            plan=make_plan(wanted, Machine(cpu_cores=16, cuda_devices=2)),
            folder=str(folder.path),
            reference=None,
            is_reference=False,
            launched_unix_ns=time.time_ns(),
        )
        worker = (sys.executable, str(Path(__file__).parent / "one_device_worker.py"))
        launch_ranks(order, folder, on_look=lambda _ranks: None, worker=worker)
        return [RankRecord.model_validate_json(folder.rank_record(rank).read_bytes()) for rank in range(2)], folder

    return run


def network_receipt(rank: RankRecord) -> Receipt:
    return next(one for one in rank.receipts if one.knob == "network.kind")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_losses_over_the_link_are_those_over_nccl_alone(share: Callable[..., Any], strategy: str) -> None:
    alone, _ = share("alone", **STRATEGIES[strategy])
    linked, _ = share("linked", **STRATEGIES[strategy], network=LINK)
    for before, after in zip(alone, linked, strict=True):
        assert after.losses[: len(before.losses)] == pytest.approx(before.losses, rel=1e-6)
        receipt = network_receipt(after)
        assert "every one of" in receipt.note, receipt
        assert after.traffic, "what a wrapped group is asked is recorded"


def test_gradients_take_what_the_link_costs_one_after_another(share: Callable[..., Any]) -> None:
    from dtbench.traces.rows.launch_tables import read_tables

    network = EmulatedNetwork.model_validate(LINK)
    _, folder = share("timed", **STRATEGIES["ddp"], network=LINK, measure={"profiled_steps": 2})
    collectives = read_tables(folder).collectives
    gradients = collectives[collectives["purpose"] == "grad_reduce"].dropna(subset=["step"])
    assert set(gradients["rank"]) == {0, 1}
    for _, step in gradients.groupby(["rank", "step"]):
        ordered = step.sort_values("start_ns")
        assert len(ordered) > 1
        assert (ordered["start_ns"].to_numpy()[1:] >= ordered["end_ns"].to_numpy()[:-1]).all()
        cost_ns = service_ns(network, Operation.ALL_REDUCE, int(ordered["size_bytes"].iloc[0]), (0, 1), ("", 0))
        assert ((ordered["end_ns"] - ordered["start_ns"]) >= 0.8 * cost_ns).all()


def test_what_the_link_costs_is_what_is_saved_where_it_is_left_out(share: Callable[..., Any]) -> None:
    """One bucket, issued when backward is over: all of it is exposed."""
    measure = {"exposure": ["trace", "ablation", "wait"], "stall_timeout_s": 120, "measured_steps": 6}
    one_bucket = {"kind": "ddp", "replicas": 2, "bucket_cap_mb": 25}
    ranks, _ = share("ablation", network=LINK, measure=measure, parallel=one_bucket)
    for rank in ranks:
        receipt = next(one for one in rank.receipts if one.knob == "measure.exposure")
        assert receipt.outcome is ReceiptOutcome.AGREES, receipt
        arms = rank.extras.exposure
        assert arms is not None
        steps_ns = {arm: sorted(ns for block in arms.blocks if block.arm is arm for ns in block.step_ns) for arm in Arm}
        full, removed, serial = (values[len(values) // 2] / NS_PER_MS for values in steps_ns.values())
        assert full - removed >= 0.8 * 60
        assert serial >= full - 20
