"""Timelines with one injected cause each, written as Kineto writes them.

Nothing here is shared with the analyser: a story decides how many nanoseconds it hides, exposes and why, and writes
events that show it. All times are multiples of ``TICK``, so that a share of 1/2 or 1/3 is a whole number.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dtbench.base.vocabulary import Cause
from dtbench.traces.causes.split import CauseSplit, split_exposed
from dtbench.traces.rank.analysis import analyze_trace
from dtbench.traces.reader import read_trace
from dtbench.traces.timeline import RankTimeline

TICK = 12
CALL = 2_400  # ns of one call on the host


@dataclass(frozen=True)
class Story:
    """A job whose truth is known.

    Attributes:
        name: for messages.
        ranks: events of each rank.
        target: (group, sequence number) of the collective whose cause was injected.
        injected: the cause.
        expected: for each rank, ns by cause of the target.
        behind: (group, sequence number) of what it queued behind.
        missing: why it is unknown.
        absent: ranks whose traces are not given to the analyser.
        others: ns by cause of other collectives, on every rank.
    """

    name: str
    ranks: list[list[dict[str, Any]]]
    target: tuple[str, int]
    injected: str
    expected: list[dict[str, int]]
    behind: tuple[str, int] | None = None
    missing: tuple[str, ...] = ()
    absent: tuple[int, ...] = ()
    others: Mapping[tuple[str, int], dict[str, int]] = field(default_factory=dict)


@dataclass
class Rank:
    """Writes one rank's events; the host's clock moves on with everything that it does."""

    size: int = 2
    host_ns: int = 0
    thread: int = 1
    events: list[dict[str, Any]] = field(default_factory=list)
    launches: int = 0

    def add(
        self, category: str, name: str, where: tuple[object, object], span: tuple[int, int], **args: object
    ) -> None:
        """Write one event."""
        start_ns, end_ns = span
        process, thread = where
        self.events.append(
            {
                "ph": "X", "cat": category, "name": name, "pid": process, "tid": thread,
                "ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000, "args": args,
            }
        )  # fmt: skip

    @contextmanager
    def around(self, name: str, category: str = "user_annotation", **args: object) -> Iterator[None]:
        """Write a range around what the host does inside."""
        start_ns, thread = self.host_ns, self.thread
        self.host_ns += TICK * 10
        yield
        self.host_ns += TICK * 10
        self.add(category, name, (1, thread), (start_ns, self.host_ns), **args)

    @contextmanager
    def region(self, name: str, *, is_shown: bool = True) -> Iterator[None]:
        """Write one of our own region ranges, or nothing, as other people's loops have none."""
        if is_shown:
            with self.around(f"dtbench::region {name}"):
                yield
        else:
            yield

    @contextmanager
    def node(self, name: str, sequence: int | None = None) -> Iterator[None]:
        """Write a node of autograd's engine; ``sequence``: its number, and that of the operator that made it."""
        told = {} if sequence is None else {"Sequence number": sequence, "Fwd thread id": 1}
        with self.around(f"autograd::engine::evaluate_function: {name}", "cpu_op", **told):
            with self.around(name, "cpu_op", **told):
                yield


@dataclass
class GpuRank(Rank):
    """A rank whose work lies on streams."""

    def kernel(self, start_ns: int, end_ns: int, *, stream: int = 7, name: str = "sm80_gemm", **args: object) -> None:
        """Launch a kernel now that runs then."""
        self.launches += 1
        call = "cudaLaunchKernel"
        self.add("cuda_runtime", call, (1, self.thread), (self.host_ns, self.host_ns + CALL), correlation=self.launches)
        self.host_ns += CALL + TICK
        self.add("kernel", name, (0, stream), (start_ns, end_ns), correlation=self.launches, stream=stream, **args)

    def wait_on_stream(self) -> None:
        """Let a stream wait for another, now, as the host's call shows."""
        self.add("cuda_runtime", "cudaStreamWaitEvent", (1, self.thread), (self.host_ns, self.host_ns + CALL))
        self.host_ns += CALL + TICK

    def collective(
        self, start_ns: int, end_ns: int, *, operation: str, group: str, seq: int, stream: int = 20, **more: Any
    ) -> None:
        """Issue a collective now that runs then; ``more``: ``mesh``, ``is_async``."""
        said = {
            "Collective name": operation,
            "Process Group Name": group,
            "Process Group Description": more.get("mesh", "undefined"),
            "Group size": self.size,
            "Seq": seq,
            "dtype": "Float",
            "In msg nelems": 1024,
            "Out msg nelems": 1024 * self.size,
        }
        if "is_async" in more:
            said["Is asynchronized op"] = more["is_async"]
        with self.around(f"c10d::{operation}_", "cpu_op"):
            with self.around("record_param_comms", "cpu_op"):
                self.kernel(
                    start_ns, end_ns, stream=stream, name=f"ncclDevKernel_{operation}(ncclDevKernelArgs)", **said
                )


@dataclass
class CpuRank(Rank):
    """A rank whose collectives run on gloo's threads."""

    def operator(self, length_ns: int, name: str = "aten::mm") -> None:
        """Compute now."""
        self.add("cpu_op", name, (1, self.thread), (self.host_ns, self.host_ns + length_ns))
        self.host_ns += length_ns

    def collective(self, start_ns: int, end_ns: int, *, label: Mapping[str, object], lane: int = 100) -> None:
        """Issue a collective now that a thread of gloo runs then."""
        words = " ".join(f"{key}={value}" for key, value in label.items())
        self.add(
            "user_annotation", f"dtbench::collective {words}", (1, self.thread), (self.host_ns, self.host_ns + CALL)
        )
        self.host_ns += CALL
        runs_as = {"reduce_scatter": "all_reduce"}.get(str(label["op"]), label["op"])
        self.add("cpu_op", f"gloo:{runs_as}", (1, lane), (start_ns, end_ns))

    def wait(self, group: str, seq: int, until_ns: int) -> None:
        """Stand still."""
        self.add(
            "user_annotation", f"dtbench::wait group={group} seq={seq}", (1, self.thread), (self.host_ns, until_ns)
        )
        self.host_ns = until_ns


class Maker:
    """What a story needs: random durations and ranks to write on."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def some(self, low_us: float, high_us: float) -> int:
        """Draw a duration, in ns."""
        return self.rng.randrange(int(low_us * 1000) // TICK, int(high_us * 1000) // TICK) * TICK

    def flip(self) -> bool:
        """Draw yes or no."""
        return self.rng.random() < 0.5

    def size(self) -> int:
        """Draw a number of ranks."""
        return self.rng.choice((2, 2, 2, 3, 4))

    def gpu(self, size: int) -> GpuRank:
        """Return a rank that computes on a device."""
        return GpuRank(size=size)

    def cpu(self, size: int) -> CpuRank:
        """Return a rank that computes on the host."""
        return CpuRank(size=size)

    def story(self, **told: Any) -> Story:
        """Put the ranks and their truth together; see ``Story``."""
        return Story(**told)


def _analyse(story: Story, folder: Path) -> dict[int, RankTimeline]:
    timelines = {}
    for rank, events in enumerate(story.ranks):
        if rank not in story.absent:
            path = folder / f"rank{rank}.json"
            path.write_text(json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": events}))
            timelines[rank] = analyze_trace(read_trace(path)).timeline
    return timelines


def _last_starts(story: Story, timelines: Mapping[int, RankTimeline]) -> dict[tuple[str, int | None], int | None]:
    """All ranks have one clock, and all are in every group."""
    starts: dict[tuple[str, int | None], list[int]] = {}
    for timeline in timelines.values():
        for one in timeline.collectives:
            starts.setdefault((one.group, one.seq), []).append(one.start_ns)
    return {key: max(times) if len(times) == len(story.ranks) else None for key, times in starts.items()}


def check_story(story: Story, folder: Path) -> None:
    """Hold the analyser's answer against the truth, with all ranks and with one of many."""
    timelines = _analyse(story, folder)
    last = _last_starts(story, timelines)
    for rank, timeline in timelines.items():
        keys = [(one.group, one.seq) for one in timeline.collectives]
        splits = split_exposed(timeline, [last[key] for key in keys])
        assert [sum(part.exposed_ns for part in one.parts) for one in splits] == list(timeline.exposed_ns)
        mine = splits[keys.index(story.target)]
        assert mine.by_cause == {cause: time_ns for cause, time_ns in story.expected[rank].items() if time_ns}, (
            story.name
        )
        for part in mine.parts:
            behind = None if part.behind is None else keys[part.behind]
            assert behind == (story.behind if part.cause == "queued" else None), story.name
            assert part.missing == (story.missing if part.cause == "unknown" else ()), story.name
        for key, expected in story.others.items():
            other = splits[keys.index(key)]
            assert other.by_cause == expected, (story.name, key)
        _check_alone(timeline, splits)
    assert any(max(expected, key=expected.__getitem__) == story.injected for expected in story.expected), story.name


NEED_NO_OTHER_RANK = frozenset(
    {
        *(Cause.BUBBLE, Cause.QUEUED, Cause.SERIALIZED, Cause.LATE_ISSUE, Cause.LATE_READY),
        *(Cause.SYNC_OP, Cause.TAIL, Cause.NEEDED_AT_ONCE),
    }
)
"""Causes that hold whenever the other ranks began."""
SAY_ALONE = "alone: claim nothing where `find_missing()` names something, or list the cause in NEED_NO_OTHER_RANK"


def _check_alone(timeline: RankTimeline, splits: tuple[CauseSplit, ...]) -> None:
    """With one rank of many nothing is skew; what the others decided is unknown, everything else has its cause."""
    for one, together in zip(split_exposed(timeline, [None] * len(splits)), splits, strict=True):
        assert sum(part.exposed_ns for part in one.parts) == sum(part.exposed_ns for part in together.parts)
        assert {part.cause for part in one.parts} - NEED_NO_OTHER_RANK <= {Cause.UNKNOWN}, SAY_ALONE
        if together.cause == "bandwidth":
            assert one.parts[-1].missing[:1] == ("ranks",)


@pytest.fixture
def maker(request: pytest.FixtureRequest) -> Maker:
    """Return the same durations for the same test on every machine."""
    return Maker(random.Random(request.node.name))


@pytest.fixture
def check(tmp_path: Path) -> Callable[[Story], None]:
    """Hold the analyser's answer against a story."""
    return lambda story: check_story(story, tmp_path)
