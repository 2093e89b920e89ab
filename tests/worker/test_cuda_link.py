"""The link on a device, on one whose time is computed: when collectives are done, and who waits for whom."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the worker room imports torch")

from dtbench.base.errors import PlanError
from dtbench.base.ranges import CollectiveLabel, LinkLabel, link_range
from dtbench.base.units import NS_PER_MS
from dtbench.base.vocabulary import Axis, Operation
from dtbench.plan.traffic.link import service_ns
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.worker.machine.spin import Spin
from dtbench.worker.network.cuda_link import LATE_NS, CudaLink
from tests.worker.fake_cuda import FakeCuda, FakeNccl, FakeWork, Ran, finish_on

MS = NS_PER_MS
NETWORK = EmulatedNetwork(kind="emulated", latency_us=1000.0, bandwidth_gb_per_s=0.001)  # 1 ms, and 1 ms for 1000 bytes


@dataclass
class Bench:
    """A link on a device, with a backend that takes the time that it is given.

    Attributes:
        ranks: of every group.
    """

    network: EmulatedNetwork = NETWORK
    ranks: tuple[int, ...] = (0, 1)
    cuda: FakeCuda = field(default_factory=FakeCuda)
    seen: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nccl = FakeNccl(self.cuda)
        self.link = CudaLink(self.network, Spin(self.cuda), self.cuda, finish_on(self.cuda))
        self.link.prepare(torch.device("cpu"))
        self.origin_ns = self.cuda.host_ns
        self.cuda.ran.clear()

    def at(self, time_ms: float) -> None:
        """Let the host come to this time, ms since the link was ready."""
        self.cuda.host_ns = self.origin_ns + time_ms * MS

    def issue(
        self,
        size_bytes: int,
        *,
        moves_ms: float = 0.1,
        group: str = "0",
        operation: Operation = Operation.ALL_REDUCE,
        blocks: bool = False,
        is_named: bool = False,
        outputs: list[Any] | None = None,
    ) -> FakeWork:
        """Issue a collective on the current stream."""
        self.seen[group] = self.seen.get(group, 0) + 1

        def start() -> Any:
            return self.nccl.block(moves_ms * MS) if blocks else self.nccl.issue(group, moves_ms * MS)

        label = CollectiveLabel(
            group=group,
            seq=self.seen[group],
            operation=operation,
            size_bytes=size_bytes,
            axis=Axis.REPLICATE,
            is_async=not blocks,
            owner="",
        )
        tensors = [torch.zeros(1)] if outputs is None else outputs
        work: FakeWork = self.link.carry(label, self.ranks, start, tensors, is_named=is_named)
        return work

    def done_ms(self, work: FakeWork) -> float:
        """Return when a work is done, ms since the link was ready."""
        return (work.event.at_ns - self.origin_ns) / MS

    def spins_ms(self) -> list[tuple[float, float]]:
        """Return when the link served, ms since it was ready."""
        return [((one.start_ns - self.origin_ns) / MS, (one.end_ns - self.origin_ns) / MS) for one in self.spins()]

    def spins(self) -> list[Ran]:
        return self.cuda.of("spin")


def test_a_collective_takes_the_links_time_beside_the_backends() -> None:
    bench = Bench()
    assert bench.done_ms(bench.issue(2000, moves_ms=2.5)) == 3.0
    assert bench.spins_ms() == [(0.0, 3.0)]


def test_a_slow_backend_is_waited_for_and_holds_the_lane_too() -> None:
    bench = Bench()
    assert bench.done_ms(bench.issue(2000, moves_ms=5)) == 5.0
    assert bench.done_ms(bench.issue(1000, moves_ms=0.5)) == 7.0
    assert bench.spins_ms() == [(0.0, 3.0), (5.0, 7.0)]


def test_service_begins_when_the_inputs_are_there_on_the_device_however_early_the_host_issues() -> None:
    bench = Bench()
    bench.cuda.default.run("compute", 10 * MS)
    assert bench.done_ms(bench.issue(1000)) == 12.0
    assert bench.cuda.host_ns == bench.origin_ns, "the host has waited for nothing"


def test_who_waits_does_so_on_its_own_stream_and_nobody_else_does() -> None:
    bench = Bench()
    work = bench.issue(4000)
    bench.cuda.default.run("compute", 2 * MS)
    consumer = bench.cuda.Stream()
    with bench.cuda.stream(consumer):
        work.wait()
    assert (consumer.free_ns - bench.origin_ns, bench.cuda.default.free_ns - bench.origin_ns) == (5 * MS, 2 * MS)


@pytest.mark.parametrize(("lanes", "ends_ms"), [("per_group", [3.0, 5.0, 6.0]), ("shared", [3.0, 8.0, 11.0])])
def test_groups_queue_behind_each_other_only_on_a_shared_lane(lanes: str, ends_ms: list[float]) -> None:
    bench = Bench(NETWORK.model_copy(update={"lanes": lanes}))
    works = [bench.issue(2000), bench.issue(4000, group="1"), bench.issue(2000)]
    assert [bench.done_ms(work) for work in works] == ends_ms


def test_what_blocks_holds_the_stream_that_issued_it_until_the_link_is_done() -> None:
    bench = Bench()
    work = bench.issue(2000, blocks=True)
    assert bench.cuda.default.free_ns - bench.origin_ns == 3 * MS
    assert bench.done_ms(work) == 3.0, "a group in Python must not give C++ nothing"
    slow = bench.issue(1000, blocks=True, moves_ms=9)
    assert (bench.cuda.default.free_ns - bench.origin_ns) / MS == bench.done_ms(slow) == 12.0
    assert bench.done_ms(bench.issue(1000)) == 14.0
    assert bench.cuda.host_ns == bench.origin_ns


def test_a_slow_backend_that_blocks_one_stream_holds_the_lane_for_all() -> None:
    bench = Bench()
    bench.issue(1000, blocks=True, moves_ms=9)
    with bench.cuda.stream(bench.cuda.Stream()):
        work = bench.issue(1000)
    assert bench.done_ms(work) == 11.0
    assert bench.link.carried.late == 1


def test_the_host_waits_for_a_barrier() -> None:
    for blocks in (False, True):
        bench = Bench()
        bench.issue(0, operation=Operation.BARRIER, blocks=blocks, outputs=[])
        assert bench.cuda.host_ns - bench.origin_ns == 1 * MS


def test_what_has_no_outputs_can_be_waited_for_on_a_device_too() -> None:
    bench = Bench()
    work = bench.issue(0, operation=Operation.GATHER, outputs=[])
    assert [type(one) for one in work.outputs] == [torch.Tensor]


def test_what_a_backend_lets_go_of_is_kept_until_the_work_is_dropped_unless_the_stream_itself_waits() -> None:
    bench = Bench()
    assert callable(bench.issue(8).kept), "the call, which holds inputs and outputs"
    assert bench.issue(8, blocks=True).kept is None


def test_a_group_of_one_needs_no_link() -> None:
    bench = Bench(ranks=(0,))
    bench.issue(1000)
    assert bench.spins() == []
    assert bench.link.carried.count == 0


def test_lanes_go_ahead_of_other_streams() -> None:
    bench = Bench()
    bench.issue(1000)
    assert {one.stream for one in bench.spins()} == {"stream 1 ahead"}


def test_a_graph_that_is_captured_is_refused_before_anything_is_issued() -> None:
    bench = Bench()
    bench.cuda.is_capturing = True
    with pytest.raises(PlanError, match=r"CUDA graph.*network\.kind=real"):
        bench.issue(1000)
    assert bench.cuda.ran == []


def test_the_spin_is_named_for_the_trace_only_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import contextmanager

    from dtbench.worker.network import cuda_link

    named: list[tuple[str, int]] = []

    @contextmanager
    def record(name: str) -> Any:
        before = len(bench.spins())
        yield
        named.append((name, len(bench.spins()) - before))

    monkeypatch.setattr(cuda_link, "record_function", record)
    bench = Bench()
    bench.issue(1000)
    bench.issue(1000, is_named=True)
    assert named == [(link_range(LinkLabel(group="0", seq=2, begun_ns=0)), 1)]


@pytest.mark.parametrize(
    "changes",
    [
        {"jitter": {"fraction": 0.5, "seed": 3}},
        {"slow_rank": {"rank": 1, "factor": 3.0}},
        {"between_nodes": {"ranks_per_node": 1, "bandwidth_gb_per_s": 0.0001}},
        {"algorithm": "ring"},
        {"algorithm": "tree"},
    ],
)
@pytest.mark.parametrize("operation", [Operation.ALL_REDUCE, Operation.ALL_GATHER, Operation.SEND])
def test_a_service_is_what_the_link_on_cpu_and_the_prediction_take(
    changes: dict[str, Any], operation: Operation
) -> None:
    network = EmulatedNetwork.model_validate({**NETWORK.model_dump(exclude_none=True), **changes})
    bench = Bench(network, ranks=(0, 1, 2, 3))
    for _ in range(3):
        bench.issue(3000, operation=operation, group="7")
    costs_ns = [service_ns(network, operation, 3000, (0, 1, 2, 3), ("7", seq)) for seq in (1, 2, 3)]
    assert [one.end_ns - one.start_ns for one in bench.spins()] == costs_ns


@dataclass(frozen=True)
class Planned:
    """A collective of a drawn program, issued on a stream after some compute, so long after the one before."""

    stream: int
    pause_ms: int
    compute_ms: int
    size_bytes: int
    moves_ms: int
    group: str
    blocks: bool


PROGRAMS = st.lists(
    st.builds(
        Planned,
        stream=st.integers(0, 1),
        pause_ms=st.integers(0, 5),
        compute_ms=st.integers(0, 5),
        size_bytes=st.sampled_from([0, 1000, 4000]),
        moves_ms=st.integers(0, 7),
        group=st.sampled_from(["0", "1"]),
        blocks=st.booleans(),
    ),
    max_size=8,
)


def foretell(program: list[Planned], lane_of: Callable[[str], str]) -> list[float]:
    """Say when each is done, ms, by the formula: ``max(backend, max(issue, lane free) + service)``."""
    host, streams = 0.0, [0.0, 0.0]
    free: dict[str, float] = {}
    backend: dict[str, float] = {}
    ends = []
    for one in program:
        host += one.pause_ms
        issue = streams[one.stream] = max(streams[one.stream], host) + one.compute_ms
        moved = issue + one.moves_ms
        if not one.blocks:
            moved = backend[one.group] = max(backend.get(one.group, 0.0), issue) + one.moves_ms
        lane = lane_of(one.group)
        free[lane] = max(moved, max(issue, free.get(lane, 0.0)) + 1 + one.size_bytes / 1000)
        ends.append(free[lane])
        if one.blocks:
            streams[one.stream] = free[lane]
    return ends


@given(PROGRAMS, st.sampled_from(["per_group", "shared"]))
def test_every_program_is_done_when_the_formula_says(program: list[Planned], lanes: str) -> None:
    bench = Bench(NETWORK.model_copy(update={"lanes": lanes}))
    host_ms, ends_ms = 0, []
    streams = [bench.cuda.default, bench.cuda.Stream()]
    for one in program:
        host_ms += one.pause_ms
        bench.at(host_ms)
        with bench.cuda.stream(streams[one.stream]):
            streams[one.stream].run("compute", one.compute_ms * MS)
            work = bench.issue(one.size_bytes, moves_ms=one.moves_ms, group=one.group, blocks=one.blocks)
        ends_ms.append(bench.done_ms(work))
    assert ends_ms == foretell(program, lambda group: group if lanes == "per_group" else "")
    assert bench.link.carried.count == len(program)


def test_the_tally_says_what_services_took_and_which_the_backend_held_up() -> None:
    bench = Bench()
    late_ms = LATE_NS / MS
    for number, moves_ms in enumerate((1.0, 2.0 + late_ms, 2.0 + 2 * late_ms, 5.0)):
        bench.at(10 * number)
        bench.issue(1000, moves_ms=moves_ms)
    tally = bench.link.carried
    assert (tally.count, tally.late, tally.latest_ns) == (4, 2, 3 * MS)
    assert (tally.asked_ns, tally.took_ns) == (8 * MS, 8 * MS)
    assert bench.link.carried == tally, "asked twice it says the same"
    bench.cuda.cycles_per_ns /= 1.1
    bench.issue(1000)
    assert bench.link.carried.took_ns == pytest.approx(10.2 * MS)


def test_marks_of_services_that_have_ended_do_not_pile_up() -> None:
    bench = Bench(EmulatedNetwork(kind="emulated", bandwidth_gb_per_s=1.0))
    for number in range(1000):
        bench.at(number)
        bench.issue(1000, moves_ms=0.001)
    assert len(bench.link._services) < 300
    assert bench.link.carried.count == 1000


def read(took: float, count: int = 10) -> tuple[str, str, str]:
    from dtbench.worker.network.link import Link, Tally
    from dtbench.worker.network.link_receipts import read_network_receipts

    tally = Tally(count=count, asked_ns=200 * MS, took_ns=round(took * 200 * MS))
    (receipt,) = read_network_receipts(NETWORK, Link(NETWORK, Path(), tally, backend="NCCL"), count)
    return str(receipt.outcome), receipt.got, receipt.note


def test_a_clock_that_runs_otherwise_than_when_it_was_calibrated_is_a_disagreement() -> None:
    assert read(1.04) == (
        *("agrees", "emulated"),
        (
            "every one of 10 collectives went over the link, and NCCL moved the data; "
            "services took 208 ms together, and should have taken 200 ms"
        ),
    )
    assert read(1.07)[:2] == ("disagrees", "emulated at another cost")
    assert read(0.93)[:2] == ("disagrees", "emulated at another cost")
    assert read(1.07, count=1000)[0] == "agrees", "a launch of some microseconds belongs to each of very short ones"


def test_queues_are_asked_for_unless_somebody_did(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    from dtbench.worker.network.cuda_link import ask_for_queues

    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
    ask_for_queues()
    assert os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] == "32"
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "12")
    ask_for_queues()
    assert os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] == "12"


def test_a_finished_work_gives_its_outputs_and_keeps_what_it_is_given_for_as_long_as_it_lives() -> None:
    import gc
    import weakref

    import torch.distributed as dist

    from dtbench.worker.network.finished import make_finished_work

    class Kept:
        pass

    kept = Kept()
    alive = weakref.ref(kept)
    outputs = [torch.ones(2), torch.zeros(3)]
    work = make_finished_work(outputs, kept)
    del kept
    assert isinstance(work, dist.Work)
    assert work.wait()
    assert list(work.get_future().value()) == outputs
    assert [one is other for one, other in zip(work.result(), outputs, strict=True)] == [True, True]
    gc.collect()
    assert alive() is not None
    del work
    gc.collect()
    assert alive() is None
