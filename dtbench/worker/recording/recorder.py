"""What this rank issued: every collective with its group, order, size and mesh axis, step by step; and its regions.

[Note: why gloo is wrapped and NCCL is not] A gloo trace says neither group nor sequence number nor who asked, so on
CPU a Python process group stands before gloo and tells the recorder about every collective
(``network/named_gloo.py``). NCCL's
kernels carry all of that in the trace, and a Python frame before each would cost what is being measured. Only behind
an emulated link, which costs more, is NCCL wrapped too (``network/named_nccl.py``).
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from statistics import median

from torch.profiler import record_function

from dtbench.base.ranges import ROOT, CollectiveLabel, reduces_range
from dtbench.base.vocabulary import UNUSED_MAP, Axis, Operation, Purpose, Region, purpose_of
from dtbench.store.records.traffic import Owned, ProcessGroupInfo, Traffic
from dtbench.worker.recording.callers import find_caller

DELAYED = "delayed parameters"
"""Owner of the one all-reduce for the parameters that ``delay_all_reduce`` takes out of DDP's buckets."""
IGNORED = "ignored parameters"
"""Owner of the all-reduces for the parameters that ``ignore`` takes out of DDP; one for each."""


def bucket_owner(index: int) -> str:
    """Name a bucket of DDP by its place in the order of issue."""
    return f"bucket {index}"


@dataclass(frozen=True, slots=True)
class Issue:
    """One collective as the backend received it."""

    purpose: Purpose
    axis: Axis | None
    operation: Operation
    size_bytes: int
    is_async: bool
    owner: str
    is_object: bool = False


@dataclass(slots=True)
class Recorder:
    """Collects the collectives of the current step; one per process, passed to whoever issues or reads.

    Attributes:
        axes: mesh axis of each process group, by torch's name of the group.
        is_recording: keep what is issued until the next step begins; switched off, nothing piles up outside steps.
        is_object: what is issued now carries a Python object, pickled.
        is_naming: put a named range around every collective and wait, and find out which function asked (PROFILED steps
            only: both cost microseconds).
        unit: FQN of the FSDP unit that asks for what is issued now (PROFILED steps only); None: none does.
        owned: whose each collective was that an FSDP unit asked for.
        local_parts: FQN of each parameter whose local part is handed over as a DTensor, by where that lies; for probes.
        on_region, on_issue: told about every region that the step enters and every collective (the journal's
            heartbeat).
        now_ns: the clock that times regions.
    """

    axes: dict[str, Axis] = field(default_factory=dict)
    region: Region | None = None
    is_recording: bool = True
    is_object: bool = False
    is_naming: bool = False
    unit: str | None = None
    owned: list[Owned] = field(default_factory=list)
    local_parts: dict[tuple[int, int], str] = field(default_factory=dict)
    on_region: Callable[[Region | None], None] = lambda _region: None
    on_issue: Callable[[], None] = lambda: None
    now_ns: Callable[[], int] = time.perf_counter_ns
    _step: list[Issue] = field(default_factory=list)
    _region_ns: dict[Region, int] = field(default_factory=dict)
    _entered_ns: int = 0
    _sequence: Counter[str] = field(default_factory=Counter)
    _buckets: int = 0
    _reducing: ContextVar[str | None] = field(
        default_factory=lambda: ContextVar("reducing", default=None)
    )  # per thread

    def begin_step(self) -> None:
        """Forget the previous step."""
        self._step, self._region_ns = [], {}

    def enter(self, region: Region | None) -> None:
        """Say which region of the step runs from now on; None: outside."""
        now_ns = self.now_ns()
        if self.region is not None:
            self._region_ns[self.region] = self._region_ns.get(self.region, 0) + now_ns - self._entered_ns
        self.region, self._entered_ns = region, now_ns
        self._buckets = 0
        self.on_region(region)

    def issue(
        self, group: str, operation: Operation, size_bytes: int, *, is_async: bool, is_integer: bool
    ) -> CollectiveLabel:
        """Record one collective and give its label; ``is_integer``: its payload is no gradient or weight."""
        self.on_issue()
        axis = self.axes.get(group)
        purpose = purpose_of(axis, operation, self.region)
        owner = ""
        if self.unit is None and purpose is Purpose.GRAD_REDUCE and axis is Axis.REPLICATE:
            owner = self._name_bucket(is_integer=is_integer)
        self._sequence[group] += 1
        if self.unit is not None:
            self.owned.append(Owned(group=group, seq=self._sequence[group], owner=self.unit or ROOT))
        if self.is_recording:
            self._step.append(Issue(purpose, axis, operation, size_bytes, is_async, owner, self.is_object))
        return CollectiveLabel(
            group=group,
            seq=self._sequence[group],
            operation=operation,
            size_bytes=size_bytes,
            axis=axis,
            is_async=is_async,
            owner=owner,
            caller=find_caller(sys._getframe().f_back) if self.is_naming else "",
        )

    def _name_bucket(self, *, is_integer: bool) -> str:
        """Name what DDP reduces: it launches its buckets in their order, whenever each is ready."""
        if is_integer:
            return UNUSED_MAP
        if (owner := self._reducing.get()) is not None:
            return owner
        self._buckets += 1
        return bucket_owner(self._buckets - 1)

    @contextmanager
    def reducing(self, owner: str) -> Iterator[None]:
        """Say, to the trace too, whose gradients are reduced inside, where DDP's order of issue does not tell it."""
        before = self._reducing.set(owner)
        try:
            with record_function(reduces_range(owner)) if self.is_naming else nullcontext():
                yield
        finally:
            self._reducing.reset(before)

    def count_shared(self, groups: Iterable[ProcessGroupInfo]) -> int:
        """Return how many collectives this process has issued in all, those of groups of one rank left out."""
        alone = {group.name for group in groups if len(group.ranks) < 2}
        return sum(count for group, count in self._sequence.items() if group not in alone)

    def step_regions(self) -> dict[Region, int]:
        """Return how long the host was in each region of the current step, ns; of all its micro-batches together."""
        return dict(self._region_ns)

    def step_issues(self) -> tuple[Issue, ...]:
        """Return the current step's collectives in order of issue: the signature of what was communicated."""
        return tuple(self._step)


def find_medians(regions: Sequence[dict[Region, int]]) -> dict[Region, int]:
    """Return the median of each region over steps, ns, of those steps that have it."""
    return {
        region: round(median(step[region] for step in regions if region in step))
        for region in Region
        if any(region in step for step in regions)
    }


def summarize_issues(issues: tuple[Issue, ...]) -> tuple[Traffic, ...]:
    """Sum collectives over equal (purpose, axis, operation), in order of first appearance."""
    sums: dict[tuple[Purpose, Axis | None, Operation], tuple[int, int, int]] = {}
    for issue in issues:
        key = (issue.purpose, issue.axis, issue.operation)
        count, size_bytes, count_async = sums.get(key, (0, 0, 0))
        sums[key] = (count + 1, size_bytes + issue.size_bytes, count_async + issue.is_async)
    return tuple(
        Traffic(purpose=p, axis=a, operation=o, count=count, size_bytes=size_bytes, count_async=count_async)
        for (p, a, o), (count, size_bytes, count_async) in sums.items()
    )


def bucket_bytes(issues: tuple[Issue, ...]) -> tuple[int, ...]:
    """Return the bytes of each gradient collective of a step in order of issue: DDP's buckets, FSDP2's units."""
    return tuple(issue.size_bytes for issue in issues if issue.purpose is Purpose.GRAD_REDUCE)
