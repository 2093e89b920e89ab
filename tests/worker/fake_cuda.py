"""What stands in for ``torch.cuda``: streams and events that keep the time of a device which nobody has.

The host enqueues, and each piece of work begins when its stream is free and the host has come to enqueue it. Nothing is
slept: times are computed, in ns, so that an answer is exact.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dtbench.base.units import NS_PER_MS


@dataclass(frozen=True)
class Ran:
    """A piece of work, and when it ran."""

    name: str
    stream: str
    start_ns: float
    end_ns: float


class FakeEvent:
    """A mark in the time of a stream."""

    def __init__(self, cuda: "FakeCuda", *, enable_timing: bool) -> None:
        self._cuda, self._is_timed, self.at_ns = cuda, enable_timing, -1.0

    def record(self, stream: "FakeStream | None" = None) -> None:
        stream = stream or self._cuda.current_stream()
        self.at_ns = max(stream.free_ns, self._cuda.host_ns)

    def query(self) -> bool:
        return self.at_ns <= self._cuda.host_ns

    def synchronize(self) -> None:
        assert self.at_ns >= 0, "nobody recorded it"
        self._cuda.host_ns = max(self._cuda.host_ns, self.at_ns)

    def elapsed_time(self, end: "FakeEvent") -> float:
        assert self._is_timed
        assert end._is_timed
        assert end.query(), "torch refuses to time what has not happened"
        return (end.at_ns - self.at_ns) / NS_PER_MS


class FakeStream:
    """Runs one piece of work after another."""

    def __init__(self, cuda: "FakeCuda", name: str) -> None:
        self._cuda, self.name, self.free_ns = cuda, name, 0.0

    def run(self, name: str, duration_ns: float) -> None:
        """Enqueue work of a known length."""
        start_ns = max(self.free_ns, self._cuda.host_ns)
        self.free_ns = start_ns + duration_ns
        self._cuda.ran.append(Ran(name, self.name, start_ns, self.free_ns))

    def record_event(self, event: FakeEvent | None = None) -> FakeEvent:
        event = event or FakeEvent(self._cuda, enable_timing=False)
        event.record(self)
        return event

    def wait_event(self, event: FakeEvent) -> None:
        assert event.at_ns >= 0, "a stream would not wait for what nobody recorded"
        self.free_ns = max(self.free_ns, event.at_ns)


class FakeCuda:
    """A device.

    Attributes:
        host_ns: the host's time, which moves when it synchronises, or when a test moves it.
        ran: all work in the order in which it was enqueued.
        cycles_per_ns: the rate of its clock.
    """

    def __init__(self, cycles_per_ns: float = 2.0, *, warm_after_ns: float = 0.0) -> None:
        self.host_ns, self.ran, self.cycles_per_ns = 0.0, list[Ran](), cycles_per_ns
        self.is_capturing = False
        self._warm_after_ns, self._streams = warm_after_ns, 0
        self.default = FakeStream(self, "default")
        self._current = self.default

    def Event(self, *, enable_timing: bool = False) -> FakeEvent:  # noqa: N802 - torch's name
        return FakeEvent(self, enable_timing=enable_timing)

    def Stream(self, *, priority: int = 0) -> FakeStream:  # noqa: N802 - torch's name
        self._streams += 1
        return FakeStream(self, f"stream {self._streams}{' ahead' if priority < 0 else ''}")

    def current_stream(self) -> FakeStream:
        return self._current

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        before, self._current = self._current, stream
        yield
        self._current = before

    def synchronize(self) -> None:
        """Let the host come to the end of all that was enqueued."""
        self.host_ns = max([self.host_ns, *(one.end_ns for one in self.ran)])

    def is_current_stream_capturing(self) -> bool:
        return self.is_capturing

    def _sleep(self, cycles: int) -> None:
        """Spin; until it is warm the clock runs at a quarter of its rate."""
        is_cold = self._current.free_ns < self._warm_after_ns
        self._current.run("spin", cycles / (self.cycles_per_ns / 4 if is_cold else self.cycles_per_ns))

    def of(self, name: str) -> list[Ran]:
        """Return the work of one name."""
        return [one for one in self.ran if one.name == name]


class FakeWork:
    """Done when an event is: the current stream waits for it, the host does not."""

    def __init__(self, cuda: FakeCuda, event: FakeEvent, outputs: Sequence[Any] = (), kept: object = None) -> None:
        self._cuda, self.event, self.outputs, self.kept = cuda, event, outputs, kept

    def synchronize(self) -> None:
        self._cuda.current_stream().wait_event(self.event)

    def wait(self) -> None:
        self.synchronize()


def finish_on(cuda: FakeCuda) -> Callable[[Sequence[Any], object], FakeWork]:
    """Return what makes a work of what has been enqueued on the current stream, as torch's future does."""
    return lambda outputs, kept: FakeWork(cuda, cuda.current_stream().record_event(), outputs, kept)


class FakeNccl:
    """Moves data in a known time: on a stream of its own per group, or blocking, on the current one."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda, self._streams = cuda, dict[str, FakeStream]()

    def issue(self, group: str, duration_ns: float) -> FakeWork:
        """As with ``async_op=True``."""
        if group not in self._streams:
            self._streams[group] = self._cuda.Stream()
        stream = self._streams[group]
        stream.wait_event(self._cuda.current_stream().record_event())
        stream.run("nccl", duration_ns)
        return FakeWork(self._cuda, stream.record_event())

    def block(self, duration_ns: float) -> None:
        """As with ``async_op=False``: no work comes back."""
        self._cuda.current_stream().run("nccl", duration_ns)
