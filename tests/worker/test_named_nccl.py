"""Groups over NCCL behind a link, with gloo in NCCL's place and a device whose time is computed."""

from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker room imports torch")

import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

from dtbench.base.units import NS_PER_MS
from dtbench.base.vocabulary import Arm, Operation
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.worker.machine.spin import Spin
from dtbench.worker.network import named_nccl
from dtbench.worker.network.carrier import Carrier
from dtbench.worker.network.cuda_link import CudaLink
from dtbench.worker.network.named_nccl import register_named_nccl
from dtbench.worker.recording.recorder import Recorder
from tests.worker.fake_cuda import FakeCuda

NETWORK = EmulatedNetwork(kind="emulated", latency_us=1000.0, bandwidth_gb_per_s=1000.0)


class Options:
    """What torch hands to NCCL."""


class Gloo:
    """Makes gloo's group where NCCL's is asked for, and remembers with what."""

    Options = Options
    made: list[Any]

    def __new__(cls, store: Any, rank: int, size: int, options: Any) -> Any:
        cls.made.append(options)
        return dist.ProcessGroupGloo(store, rank, size, timeout=options._timeout)


class Prompt:
    """A group that has moved the data when a call comes back, as a stream sees NCCL's; gloo's thread would not have."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            work = getattr(self._group, name)(*args, **kwargs)
            if isinstance(work, dist.Work):
                work.wait()
            return work

        return call


class World:
    """A group of this process alone, which the link takes for one of two ranks."""

    def __init__(self) -> None:
        self.cuda = FakeCuda()
        self.link = CudaLink(NETWORK, Spin(self.cuda), self.cuda)
        self.link.prepare(torch.device("cpu"))
        self.settled = 0
        self.carrier = Carrier(self.link, settle=self._settle)
        self.recorder = Recorder()

    def _settle(self) -> None:
        self.settled += 1

    @property
    def group(self) -> Any:
        return dist.group.WORLD

    def served(self) -> int:
        return self.link.carried.count

    def operations(self) -> list[Operation]:
        return [issue.operation for issue in self.recorder.step_issues()]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    Gloo.made = []
    monkeypatch.setattr(dist, "ProcessGroupNCCL", Gloo, raising=False)
    monkeypatch.setattr(dist.distributed_c10d, "ProcessGroupNCCL", Gloo, raising=False)
    if (create := getattr(dist.distributed_c10d, "_create_nccl_process_group", None)) is not None:  # from 2.14 on
        monkeypatch.setitem(dist.Backend._plugins, "NCCL", SimpleNamespace(creator_fn=create))
    monkeypatch.setattr(dist.Work, "wait", dist.Work.wait)  # named waits stay no longer than this test
    made = World()
    backend = register_named_nccl(made.recorder, made.carrier)
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    group = made.group
    gloo = group._get_backend(torch.device("cuda"))
    group._inner._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
    group._inner, group._ranks = Prompt(group._inner), (0, 1)
    try:
        yield made
    finally:
        dist.destroy_process_group()


def test_nccl_is_told_its_ranks_its_time_and_its_name_as_torch_tells_it(world: World) -> None:
    (options,) = (vars(one) for one in Gloo.made)
    assert options["global_ranks_in_group"] == []  # the default group's, as torch gives them
    assert options["group_name"] == world.group.group_name == "0"
    assert options["_timeout"].total_seconds() > 0
    assert dist.get_backend() == "dtbench_nccl"


class ProcessGroupNCCL2:
    """The engine of torch 2.15, as far as this test goes; gloo moves the data."""

    def __init__(self, asked: Any) -> None:
        self.asked = asked


def test_the_engine_that_torch_registers_for_nccl_is_what_the_link_stands_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From torch 2.15 on ``nccl`` is what a registered function makes, and torch's flight recorder is told of it."""
    engine = SimpleNamespace(creator_fn=lambda asked, _options: ProcessGroupNCCL2(asked))
    attached: list[Any] = []
    monkeypatch.setitem(dist.Backend._plugins, "NCCL", engine)
    monkeypatch.setattr(
        dist.distributed_c10d, "_maybe_attach_flight_recorder", lambda *told: attached.append(told), raising=False
    )
    monkeypatch.setattr(dist.ProcessGroup, "_register_backend", lambda *_told: None)
    monkeypatch.setattr(dist.Work, "wait", dist.Work.wait)
    made = World()
    register_named_nccl(made.recorder, made.carrier)
    asked = SimpleNamespace(store=dist.HashStore(), group_rank=1, group_size=2, global_ranks_in_group=[4, 6])
    group = dist.Backend._plugins["DTBENCH_NCCL"].creator_fn(asked, None)
    monkeypatch.setattr(group, "_inner", Named())
    group._set_group_name("pairs")
    group._set_group_desc("mesh_dp")
    assert made.link.backend == "NCCL2"
    ((inner, config, ranks),) = attached
    assert (inner.name, inner.description, ranks) == ("pairs", "mesh_dp", [4, 6])
    assert config.get_device_backend_map() == {"cuda": "nccl"}


class Named:
    """A group that only remembers how it is called."""

    def _set_group_name(self, name: str) -> None:
        self.name = name

    def _set_group_desc(self, description: str) -> None:
        self.description = description


@pytest.mark.skipif(not dist.is_nccl_available(), reason="this build of torch has no NCCL")
@pytest.mark.skipif(torch.cuda.is_available(), reason="where there is a device the tests marked gpu make real groups")
def test_torchs_own_nccl_takes_what_it_is_told_and_lacks_only_a_device() -> None:
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=5)
    options.global_ranks_in_group = [0, 1]
    options.group_name = "pairs"
    assert (options._timeout, options.global_ranks_in_group) == (timedelta(seconds=5), [0, 1])
    with pytest.raises(ValueError, match="only supported with GPUs, no GPUs found"):
        dist.ProcessGroupNCCL(dist.HashStore(), 0, 2, options)
    assert callable(dist.ProcessGroupNCCL._set_sequence_number_for_group)


@pytest.mark.skipif(not hasattr(dist.Backend, "_ensure_backend_registered"), reason="torch before 2.14 has one NCCL")
def test_torch_has_registered_what_makes_its_nccl_when_the_link_asks_for_it() -> None:
    """Without a device it can be asked for, and cannot be made."""
    asked = SimpleNamespace(
        store=dist.HashStore(), group_rank=0, group_size=2, global_ranks_in_group=[], timeout=timedelta(seconds=5),
        group_id="0", process_group=None, split_from=None, enable_reconfigure=False,
    )  # fmt: skip
    with pytest.raises((RuntimeError, ValueError), match=r"GPU|CUDA device|NCCL built in"):
        named_nccl._make_engine(asked)
    assert "NCCL" in dist.Backend._plugins


def test_objects_and_barriers_go_to_the_device(world: World) -> None:
    assert dist.distributed_c10d._get_object_coll_device(world.group) == "cuda"


@pytest.mark.parametrize("is_async", [False, True])
def test_every_collective_goes_over_the_link_and_gives_a_work_that_can_be_waited_for(
    world: World, *, is_async: bool
) -> None:
    tensor = torch.ones(4)
    whole = torch.zeros(4)
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # the older name warns in 2.13
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    calls: tuple[Any, ...] = (
        lambda: dist.all_reduce(tensor, async_op=is_async),
        lambda: dist.broadcast(tensor, 0, async_op=is_async),
        lambda: gather(whole, tensor, async_op=is_async),
        lambda: dist.all_gather([whole], tensor, async_op=is_async),
        lambda: scatter(whole, tensor, async_op=is_async),
    )
    for call in calls:
        work = call()
        if is_async:
            assert isinstance(work, dist.Work)
            work.wait()
    assert world.served() == 5
    assert torch.equal(whole, torch.ones(4))
    assert len(world.operations()) == 5


def test_functional_collectives_wait_in_cpp_for_what_the_link_gives(world: World) -> None:
    reduced = functional.all_reduce(torch.ones(3), "sum", world.group)
    gather = getattr(functional, "all_gather_single", None) or functional.all_gather_tensor
    gathered = gather(torch.ones(3), 0, world.group)
    assert torch.equal(reduced + 0, torch.ones(3))
    assert torch.equal(gathered + 0, torch.ones(3))
    assert world.served() == 2


def test_ddps_reducer_reads_its_gradients_from_what_the_link_gives(world: World) -> None:
    model = DistributedDataParallel(nn.Linear(4, 2))
    before = world.served()
    model(torch.ones(3, 4)).sum().backward()
    assert torch.equal(model.module.weight.grad, torch.full((2, 4), 3.0))
    assert world.served() - before == 1


def test_a_bracket_is_one_launch_of_the_backend_and_each_of_its_collectives_a_service(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    inner = world.group._inner
    allreduce = inner.allreduce

    class Inner:
        def allreduce(self, *args: Any) -> None:
            log.append("all-reduce")
            allreduce(*args)

        def _start_coalescing(self, _device: Any) -> None:
            log.append("start")

        def _end_coalescing(self, _device: Any) -> Any:
            log.append("end")

    monkeypatch.setattr(world.group, "_inner", Inner())
    world.cuda.ran.clear()
    tensors = [torch.ones(2), torch.full((2,), 2.0)]
    with dist.distributed_c10d._coalescing_manager(world.group, torch.device("cuda"), async_ops=True) as bracket:
        for tensor in tensors:
            assert world.group.allreduce([tensor], dist.AllreduceOptions()) is None
        assert log == []
    assert log == ["start", "all-reduce", "all-reduce", "end"]
    assert [one.end_ns - one.start_ns for one in world.cuda.of("spin")] == pytest.approx([NS_PER_MS] * 2, abs=2)
    (work,) = bracket.works
    assert isinstance(work, dist.Work)
    monkeypatch.setattr(world.group, "_inner", inner)


def test_an_empty_bracket_issues_nothing(world: World) -> None:
    with dist.distributed_c10d._coalescing_manager(world.group, torch.device("cuda")):
        pass
    assert world.served() == 0


def test_what_is_removed_reaches_neither_link_nor_backend_and_what_is_serial_runs_alone(world: World) -> None:
    world.carrier.arm = Arm.REMOVED
    tensor = torch.full((2,), 7.0)
    dist.all_reduce(tensor)
    assert (world.served(), world.carrier.removed, world.settled) == (0, 1, 0)
    world.carrier.arm = Arm.SERIAL
    dist.all_reduce(tensor)
    assert (world.served(), world.settled) == (1, 2)


def test_leaving_shuts_down_the_group_inside(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[None] = []

    class Inner:
        def shutdown(self) -> None:
            closed.append(None)

    monkeypatch.setattr(world.group, "_inner", Inner())
    world.group.shutdown()
    assert closed == [None]
