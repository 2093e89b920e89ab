"""Why a predicted collective is exposed: the rules that the analyser holds against traces, on a simulated step.

The same order and bounds as ``dtbench.traces.causes.split``, which explains them; here all ranks, issues and regions
are known, so that nothing is ``unknown`` but what the optimizer's region issues; nothing is ``serialized``, which only
a device does. As on the link, a collective's span begins when its own rank has issued it and its lane is free: what
comes before its service is waiting for the last rank.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dtbench.base.vocabulary import Cause, Purpose, Region
from dtbench.prediction.simulate import Computed, Execution, Served

_NEGLIGIBLE: Final = 100
"""Compute below 1/100 of the exposed time is nothing to hide behind, as in ``split.py``."""


@dataclass(frozen=True)
class Ledger:
    """Answers questions about one executed step."""

    execution: Execution

    def taken_ns(self, one: Served) -> int:
        """Return when it takes its lane and its span begins: its rank has issued it, and all before it have ended."""
        return max([one.issue_ns, *(other.end_ns for other in self._ahead(one))])

    def held_ns(self, one: Served, from_ns: int) -> int:
        """Return the time from a moment until it takes its lane, in which others held it."""
        return max(0, self.taken_ns(one) - from_ns)

    def split(self, one: Served, exposed_ns: int, skew_ns: int) -> tuple[tuple[Cause, int], ...]:
        """Let each cause take its part of what is exposed, of which ``skew_ns`` is before the last rank's issue."""
        splitter = _Splitter(self, one, exposed_ns, skew_ns)
        left_ns = exposed_ns
        parts = []
        for cause, bound in _BOUNDS:
            taken_ns = min(left_ns, bound(splitter)) if left_ns > 0 else 0
            left_ns -= taken_ns
            if taken_ns > 0:
                parts.append((cause, taken_ns))
        rest = Cause.BANDWIDTH if self.knows_region(one) else Cause.UNKNOWN
        return (*parts, (rest, left_ns)) if left_ns > 0 else tuple(parts)

    def knows_region(self, one: Served) -> bool:
        """Tell whether the program holds all compute of its region: the optimizer's is time of the host."""
        return one.visit is not None and self.execution.visited[one.visit].region is not Region.OPTIMIZER

    def _ahead(self, one: Served) -> list[Served]:
        lane = one.collective.lane
        return [other for other in self.execution.served if other.collective.lane == lane and other.place < one.place]

    def compute_ns(self, start_ns: int, end_ns: int) -> int:
        """Time in which compute ran in ``[start, end)``; 0 where that is empty."""
        return sum(_overlap(start_ns, end_ns, one.start_ns, one.end_ns) for one in self.execution.computed)

    def computed_in(self, visit: int) -> list[Computed]:
        """Return the compute of a region."""
        visited = self.execution.visited[visit]
        return [one for one in self.execution.computed if visited.start_ns <= one.start_ns < visited.end_ns]

    def reductions_in(self, visit: int) -> list[Served]:
        """Return the reductions of gradients that a region issued, in order."""
        return [
            one
            for one in self.execution.served
            if one.visit == visit and one.collective.request.purpose is Purpose.GRAD_REDUCE
        ]

    def last_computed(self, one: Served) -> Computed | None:
        """Return the last compute before an issue; None: there was none."""
        return max((done for done in self.execution.computed if done.place < one.place), key=_place, default=None)

    def ready_ns(self, one: Served) -> int:
        """Return the first moment at which it could have been issued; one that is prefetched deep is issued before.

        For an unshard that is the start of the compute of the unit gathered before, or of the region's first compute;
        for anything else the end of what was computed before.
        """
        if one.collective.request.purpose is not Purpose.UNSHARD:
            last = self.last_computed(one)
            return one.issue_ns if last is None else last.end_ns
        earlier = [
            other
            for other in self.execution.served
            if other.collective.request.purpose is Purpose.UNSHARD and other.place < one.place
        ]
        previous = earlier[-1] if earlier else None
        if previous is not None and previous.visit == one.visit:
            used_ns = previous.end_ns if previous.used_ns is None else previous.used_ns
            starts = [done.start_ns for done in self.execution.computed if done.start_ns >= used_ns]
        elif one.visit is not None and self.execution.visited[one.visit].region is Region.BACKWARD:
            starts = [done.start_ns for done in self.computed_in(one.visit) if done.place < one.place]
        else:
            starts = []
        return starts[0] if starts else one.issue_ns


def _place(computed: Computed) -> int:
    return computed.place


def _overlap(start_ns: int, end_ns: int, other_start_ns: int, other_end_ns: int) -> int:
    return max(0, min(end_ns, other_end_ns) - max(start_ns, other_start_ns))


@dataclass(frozen=True)
class _Splitter:
    """The rules, for one collective."""

    ledger: Ledger
    one: Served
    exposed_ns: int
    skew_ns: int

    @property
    def is_reduction(self) -> bool:
        """Whether it reduces gradients."""
        return self.one.collective.request.purpose is Purpose.GRAD_REDUCE

    def queued_ns(self) -> int:
        """Time in which others held its lane, from the first moment at which it could run."""
        return self.ledger.held_ns(self.one, max(self.one.issue_ns, self.ledger.ready_ns(self.one)))

    def late_issue_ns(self) -> int:
        """Compute between the moment it could have been issued and its issue; none for gradients on a host."""
        if self.is_reduction:
            return 0
        return self.ledger.compute_ns(self.ledger.ready_ns(self.one), self.one.issue_ns)

    def late_ready_ns(self) -> int:
        """Compute of the backward pass before gradients that all became ready at its end; not for the last of them."""
        one, ledger = self.one, self.ledger
        if not self.is_reduction or one.visit is None:
            return 0
        reductions = ledger.reductions_in(one.visit)
        last = ledger.last_computed(one)
        if last is None or one is reductions[-1] or any(ledger.last_computed(other) != last for other in reductions):
            return 0
        done = ledger.computed_in(one.visit)
        return ledger.compute_ns(done[0].start_ns, last.end_ns) if done else 0

    def sync_op_ns(self) -> int:
        """All of it where the host was blocked from its issue on."""
        return self.exposed_ns if self.one.is_blocking else 0

    def tail_ns(self) -> int:
        """All of it where no independent compute of its region starts after it.

        For gradients up to the issue of the region's last reduction.
        """
        visit = self._known_visit
        if visit is None or (not self.is_reduction and self._is_hidden_in_part()):
            return 0
        done = [done for done in self.ledger.computed_in(visit) if done.place > self.one.place]
        if self.is_reduction:
            last = self.ledger.reductions_in(visit)[-1]
            done = [one for one in done if one.place < last.place]
        return 0 if self._is_much(sum(one.end_ns - one.start_ns for one in done)) else self.exposed_ns

    def needed_at_once_ns(self) -> int:
        """All of it where no compute starts between the first moment at which it could run, and its end."""
        if self.is_reduction or self._known_visit is None:
            return 0
        return 0 if self._is_hidden_in_part() else self.exposed_ns

    @property
    def _known_visit(self) -> int | None:
        return self.one.visit if self.ledger.knows_region(self.one) else None

    def _is_hidden_in_part(self) -> bool:
        one = self.one
        if self._is_much(self.ledger.compute_ns(self.ledger.taken_ns(one), one.end_ns)):
            return True
        is_unshard = one.collective.request.purpose is Purpose.UNSHARD
        could_ns = self.ledger.ready_ns(one)
        starts = [
            done.start_ns
            for done in self.ledger.execution.computed
            if could_ns <= done.start_ns < one.end_ns and (is_unshard or done.place > one.place)
        ]
        return bool(starts) and self._is_much(self.ledger.compute_ns(starts[0], one.end_ns))

    def _is_much(self, compute_ns: int) -> bool:
        return compute_ns * _NEGLIGIBLE >= self.exposed_ns and compute_ns > 0


_BOUNDS: Final[tuple[tuple[Cause, Callable[[_Splitter], int]], ...]] = (
    (Cause.SKEW, lambda splitter: splitter.skew_ns),
    (Cause.QUEUED, _Splitter.queued_ns),
    (Cause.LATE_ISSUE, _Splitter.late_issue_ns),
    (Cause.LATE_READY, _Splitter.late_ready_ns),
    (Cause.SYNC_OP, _Splitter.sync_op_ns),
    (Cause.TAIL, _Splitter.tail_ns),
    (Cause.NEEDED_AT_ONCE, _Splitter.needed_at_once_ns),
)
