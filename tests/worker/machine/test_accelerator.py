"""Which accelerator a process uses, on made ones."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="the worker room imports torch")

from dtbench.base.errors import CaptureError
from dtbench.base.vocabulary import DeviceKind
from dtbench.worker.loop.clock import make_clock
from dtbench.worker.machine.accelerator import find_activities, find_device, settle
from dtbench.worker.machine.process_facts import read_memory, reset_memory
from tests.worker.fake_cuda import FakeCuda, FakeEvent


def have(monkeypatch: pytest.MonkeyPatch, kind: str | None, *, begun: bool | None = None) -> None:
    """Let torch have one accelerator; ``begun`` is None where its module cannot tell whether it was begun."""
    found = None if kind is None else torch.device(kind)
    module = SimpleNamespace() if begun is None else SimpleNamespace(is_initialized=lambda: begun)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_asked: found)
    monkeypatch.setattr(torch, "get_device_module", lambda _kind: module)


@pytest.mark.parametrize(
    ("config", "begun", "device"),
    [
        ("cuda:nccl", False, DeviceKind.CUDA),
        ("cpu:gloo,cuda:nccl", False, DeviceKind.CPU),
        ("cpu:gloo,cuda:nccl", True, DeviceKind.CUDA),
        ("", False, DeviceKind.CPU),
        ("", True, DeviceKind.CUDA),
    ],
)
def test_a_group_that_serves_devices_alone_says_where_ranks_compute_before_a_model_is_there(
    monkeypatch: pytest.MonkeyPatch, config: str, begun: bool, device: DeviceKind
) -> None:
    have(monkeypatch, "cuda", begun=begun)
    assert find_device(config) is device
    have(monkeypatch, None)
    assert find_device(config) is DeviceKind.CPU


@pytest.mark.parametrize(("kind", "config"), [("xpu", "xpu:xccl"), ("xpu", "cpu:gloo,xpu:xccl"), ("hpu", "hpu:hccl")])
def test_an_accelerator_that_is_not_timed_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, kind: str, config: str
) -> None:
    have(monkeypatch, kind, begun=True)
    with pytest.raises(CaptureError, match=f"torch calls '{kind}'.*dtbench analyze"):
        find_device(config)


@pytest.mark.parametrize("begun", [None, False])
def test_an_accelerator_that_lies_idle_beside_cpu_ranks_refuses_nothing(
    monkeypatch: pytest.MonkeyPatch, begun: bool | None
) -> None:
    have(monkeypatch, "mps", begun=begun)
    assert find_device("cpu:gloo") is DeviceKind.CPU
    assert find_device("cpu:gloo,mps:gloo") is DeviceKind.CPU


class Module:
    """What torch's module of a kind of device is asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*_args: object) -> int:
            self.calls.append(name)
            return 1 << 20

        return call


@pytest.fixture
def xpu(monkeypatch: pytest.MonkeyPatch) -> Module:
    module = Module()
    monkeypatch.setattr(torch, "get_device_module", lambda kind: {"xpu": module}[kind])
    return module


def test_memory_and_synchronising_of_any_device_go_to_its_own_module(xpu: Module) -> None:
    device = torch.device("xpu", 0)
    settle(device)
    reset_memory(device)
    memory = read_memory(device)
    assert (memory.allocated_peak_bytes, memory.reserved_peak_bytes) == (1 << 20, 1 << 20)
    assert xpu.calls == ["synchronize", "reset_peak_memory_stats", "max_memory_allocated", "max_memory_reserved"]


def test_a_cpu_has_no_allocator_whose_peak_it_keeps(xpu: Module) -> None:
    device = torch.device("cpu")
    settle(device)
    reset_memory(device)
    assert read_memory(device).allocated_peak_bytes is None
    assert xpu.calls == []


@pytest.mark.parametrize(("kind", "own"), [("cpu", []), ("cuda", ["CUDA"]), ("xpu", ["XPU"])])
def test_the_profiler_records_the_host_and_the_device(kind: str, own: list[str]) -> None:
    assert [one.name for one in find_activities(kind)] == ["CPU", *own]


def test_steps_on_a_device_are_timed_by_its_events() -> None:
    device = FakeCuda()
    clock = make_clock(device, capacity=2)
    for duration_ns in (3_000_000, 5_000_000):
        clock.start()
        device.default.run("step", duration_ns)
        clock.stop()
    assert clock.settle() == [3_000_000, 5_000_000]
    assert make_clock(None, capacity=2).settle() is None


def test_the_events_of_a_phase_exist_before_its_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch makes an event when it is first recorded, which takes longer than recording it."""
    device, recorded = FakeCuda(), list[FakeEvent]()

    def record(event: FakeEvent, _stream: object = None) -> None:
        recorded.append(event)

    monkeypatch.setattr(FakeEvent, "record", record)
    clock = make_clock(device, capacity=3)
    before = set(recorded)
    clock.start()
    clock.stop()
    assert len(before) == 6
    assert set(recorded) == before
