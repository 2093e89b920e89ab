"""From what a rank did to where its step went: compute, exposed communication, idle; they add up to the step.

The definitions are those of the analyser (``traces/time/overlap.py``, ``traces/causes/split.py``). A collective's span
is that on the link's lane in a trace: from when its rank has issued it and the lane is free, through waiting for
the last rank and its service, to its end.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dtbench.base.vocabulary import Axis, Cause, Operation, Purpose, Region
from dtbench.prediction.causes import Ledger
from dtbench.prediction.simulate import Execution, Served


@dataclass(frozen=True)
class PredictedCollective:
    """One collective of a predicted step, times in ns from the step's start.

    Attributes:
        owner: ``bucket 0``, or the FQN of an FSDP unit, ``root`` for the root; empty: nobody's.
        region: that issued it; None: none was entered.
        exposed_ns: its share of its span that no compute overlaps, 1/k where k collectives are served at once.
        begin_ns: of its service; its span began ``skew_ns`` before.
        queued_ns: time between issue and span in which others held the lane.
        skew_ns: time on its lane in which another rank had not issued it yet.
        wait_ns: the host was blocked for it.
        causes: of what is exposed, by the rules of ``dtbench.traces.causes.split``; empty where nothing is.
        cause: the largest of these; None where nothing is exposed.
    """

    purpose: Purpose
    operation: Operation
    axis: Axis
    owner: str
    size_bytes: int
    region: Region | None
    is_blocking: bool
    issue_ns: int
    begin_ns: int
    end_ns: int
    exposed_ns: int
    queued_ns: int
    skew_ns: int
    wait_ns: int
    causes: tuple[tuple[Cause, int], ...]
    cause: Cause | None


@dataclass(frozen=True)
class PredictedStep:
    """One rank's step; ``compute + exposed_comm + idle = step``.

    Attributes:
        comm_ns: time in which at least one collective is on its lane.
        forward_ns, backward_ns, optimizer_ns: time in these regions, over all micro-batches.
        collectives: in order of issue.
    """

    rank: int
    step_ns: int
    compute_ns: int
    comm_ns: int
    exposed_comm_ns: int
    forward_ns: int
    backward_ns: int
    optimizer_ns: int
    collectives: tuple[PredictedCollective, ...]

    @property
    def hidden_comm_ns(self) -> int:
        """Time in which a collective on its lane is overlapped with compute."""
        return self.comm_ns - self.exposed_comm_ns

    @property
    def idle_ns(self) -> int:
        """Time with neither compute nor a collective on its lane."""
        return self.step_ns - self.compute_ns - self.exposed_comm_ns

    @property
    def wait_ns(self) -> dict[Purpose, int]:
        """Time in which the host was blocked, by purpose."""
        waits: dict[Purpose, int] = {}
        for one in self.collectives:
            waits[one.purpose] = waits.get(one.purpose, 0) + one.wait_ns
        return waits

    @property
    def exposed_by_purpose_ns(self) -> dict[Purpose, int]:
        """What is exposed, by purpose."""
        exposed: dict[Purpose, int] = {}
        for one in self.collectives:
            exposed[one.purpose] = exposed.get(one.purpose, 0) + one.exposed_ns
        return exposed


def account_step(rank: int, execution: Execution) -> PredictedStep:
    """Account for every nanosecond of one rank's step; what is served after its end is not counted."""
    ledger = Ledger(execution)
    waiting = [(ledger.taken_ns(one), min(one.begin_ns, execution.step_ns)) for one in execution.served]
    service = [(one.begin_ns, min(one.end_ns, execution.step_ns)) for one in execution.served]
    compute = [(one.start_ns, one.end_ns) for one in execution.computed]
    comm_ns, shares = share_exposed([*waiting, *service], compute)
    parts = list(zip(shares[: len(waiting)], shares[len(waiting) :], strict=True))
    return PredictedStep(
        rank=rank,
        step_ns=execution.step_ns,
        compute_ns=sum(end_ns - start_ns for start_ns, end_ns in compute),
        comm_ns=comm_ns,
        exposed_comm_ns=sum(shares),
        forward_ns=time_in(execution, Region.FORWARD),
        backward_ns=time_in(execution, Region.BACKWARD),
        optimizer_ns=time_in(execution, Region.OPTIMIZER),
        collectives=tuple(
            _describe(execution, one, part, ledger) for one, part in zip(execution.served, parts, strict=True)
        ),
    )


def time_in(execution: Execution, region: Region) -> int:
    """Return how long a rank was in a region, ns, over all micro-batches."""
    return sum(visit.end_ns - visit.start_ns for visit in execution.visited if visit.region is region)


def _describe(execution: Execution, one: Served, exposed: tuple[int, int], ledger: Ledger) -> PredictedCollective:
    """Describe a collective of which so much is exposed before its service, and in it."""
    request = one.collective.request
    causes, queued_ns = ledger.split(one, sum(exposed), exposed[0]), ledger.held_ns(one, one.issue_ns)
    return PredictedCollective(
        purpose=request.purpose,
        operation=request.operation,
        axis=request.axis,
        owner=request.owner,
        size_bytes=request.size_bytes,
        region=None if one.visit is None else execution.visited[one.visit].region,
        is_blocking=one.is_blocking,
        issue_ns=one.issue_ns,
        begin_ns=one.begin_ns,
        end_ns=one.end_ns,
        exposed_ns=sum(exposed),
        queued_ns=queued_ns,
        skew_ns=one.begin_ns - one.issue_ns - queued_ns,
        wait_ns=one.wait_ns,
        causes=causes,
        cause=max(causes, key=lambda part: part[1])[0] if causes else None,
    )


def share_exposed(spans: Sequence[tuple[int, int]], compute: Sequence[tuple[int, int]]) -> tuple[int, tuple[int, ...]]:
    """Return the length of the spans' union, and each one's share of what no compute overlaps.

    Where k spans run at once each gets 1/k; nanoseconds that do not divide go to the first of them.

    Args:
        spans: half-open; empty ones get nothing.
        compute: half-open, disjoint.
    """
    changes: dict[int, list[tuple[int, int]]] = {}  # time: (index, +1 or -1), compute as -1
    for index, (start_ns, end_ns) in [*((-1, one) for one in compute), *enumerate(spans)]:
        if start_ns < end_ns:
            changes.setdefault(start_ns, []).append((index, 1))
            changes.setdefault(end_ns, []).append((index, -1))
    running: Counter[int] = Counter()
    shares = [0] * len(spans)
    union_ns, before_ns = 0, 0
    for time_ns in sorted(changes):
        now = sorted(index for index, count in running.items() if count and index >= 0)
        union_ns += (time_ns - before_ns) * bool(now)
        if now and not running[-1]:
            _give(shares, now, time_ns - before_ns)
        for index, change in changes[time_ns]:
            running[index] += change
        before_ns = time_ns
    return union_ns, tuple(shares)


def _give(shares: list[int], running: Sequence[int], time_ns: int) -> None:
    each_ns, odd_ns = divmod(time_ns, len(running))
    for place, index in enumerate(running):
        shares[index] += each_ns + (place < odd_ns)
