"""From a device's trace: what was launched when, where it ran, and what it had to wait for.

Few traces tell what one lane waits for on another. It is taken from what is seen, and from what torch does::

    main lane   ████a████            ███d███      d waited for c: its end closes the gap, which nothing else explains
    comm lane            ████c██████              c waits for a, the last that the main lane had when c was issued
"""

from collections import defaultdict
from collections.abc import Collection
from typing import Final

import numpy as np

from dtbench.base.errors import PredictionError
from dtbench.base.vocabulary import Kind
from dtbench.replay.draft import Draft, DraftStep, Given, Sitting, mean_of
from dtbench.replay.graph import NO_COLLECTIVE, Latencies
from dtbench.traces.device.launched import find_launched
from dtbench.traces.device.main_lane import find_main_lane
from dtbench.traces.device.synchronised import RETURN_BOUND_NS, find_synchronising
from dtbench.traces.device.time import DeviceTime, find_device_time
from dtbench.traces.host.steps import Step
from dtbench.traces.kinds.kernels import KernelTable
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Ints
from dtbench.traces.trace import Trace

_SLACK_NS: Final = 1_000
"""Traces before 2024 know whole microseconds."""
_BOUND_NS: Final = RETURN_BOUND_NS
"""Longest that anything takes to begin once nothing keeps it waiting; see ``account/gaps.py``."""
_FEWEST: Final = 3
"""Gaps before kernels of one name, of which a mean is taken."""


def read_device(trace: Trace, analysis: TraceAnalysis, kernels: KernelTable, numbers: Collection[int]) -> Draft:
    """Read one rank.

    Args:
        trace: of the rank, read again.
        analysis: of the same trace.
        kernels: what kernels are, by name.
        numbers: of the steps that are read, which follow one another; at least one.

    Raises:
        PredictionError: nothing ran in one of them.
    """
    return _Reader(find_device_time(trace, kernels), analysis, numbers).read()


class _Reader:
    def __init__(self, time: DeviceTime, analysis: TraceAnalysis, numbers: Collection[int]) -> None:
        self._trace, self._analysis = time.trace, analysis
        main = find_main_lane(self._trace, time.masks[Kind.COMPUTE])
        self._main = -1 if main is None else main
        launched = find_launched(self._trace, time.nesting)
        self._launched_ns = launched.latest_ns
        self._steps = _drop_untold(
            [step for step in time.steps if step.number in numbers],
            np.sort(launched.latest_ns[launched.earliest_ns < launched.latest_ns]),
        )
        self._inside = Window(self._steps[0].host.start_ns, self._steps[-1].host.end_ns)
        self._given = self._collect(time)
        self._before_ns = self._find_before(time)
        self._until_ns = self._given.find_busy_until(self._before_ns)

    def read(self) -> Draft:
        """Put everything together."""
        given = self._given
        launch_ns = self._measure_launch()
        next_ns = self._measure_next(launch_ns)
        sittings = self._find_sittings()
        returns_ns = np.array([one.window.end_ns - given.end_ns[one.items[0]] for one in sittings], dtype=np.int64)
        steps = (DraftStep(step.number, step.window, step.host, self._find_first(step)) for step in self._steps)
        return Draft(
            analysis=self._analysis,
            steps=tuple(steps),
            given=given,
            sittings=tuple(sittings),
            latencies=Latencies(launch_ns, mean_of(returns_ns, _BOUND_NS)),
            next_ns=next_ns,
            after=self._find_edges(launch_ns, next_ns),
            busy_until_ns=self._before_ns,
        )

    def _collect(self, time: DeviceTime) -> Given:
        trace, inside = self._trace, self._inside
        lanes = ["/".join(lane) for lane in trace.lanes]
        of_name = {name: code for code, name in enumerate(lanes)}
        is_work = (time.masks[Kind.COMPUTE] | time.masks[Kind.COPY]) & (trace.end_ns > trace.start_ns)
        work = np.flatnonzero(is_work & (self._launched_ns >= inside.start_ns) & (self._launched_ns < inside.end_ns))
        nothing = np.full(len(work), NO_COLLECTIVE, dtype=np.int64)
        rows = (self._launched_ns, trace.start_ns, trace.lane, trace.end_ns)
        columns = np.stack(
            (
                *(column[work].astype(np.int64) for column in rows),
                self._measure_alone(work),
                nothing,
                trace.name[work],
            ),
            axis=1,
        )
        launches_ns = {
            (int(trace.lane[event]), int(trace.start_ns[event])): int(self._launched_ns[event])
            for event in np.flatnonzero(time.masks[Kind.COMM]).tolist()
        }
        collectives = []
        for index, one in enumerate(self._analysis.collectives):
            lane = of_name.get(one.lane, -1)
            launched_ns = launches_ns.get((lane, one.start_ns), one.issue_ns)
            if one.is_seen and launched_ns is not None and inside.start_ns <= launched_ns < inside.end_ns:
                length_ns = one.end_ns - one.start_ns
                collectives.append((launched_ns, one.start_ns, lane, one.end_ns, length_ns, index, -1))
        return Given.of(
            np.concatenate((columns, np.array(collectives, dtype=np.int64).reshape(-1, 7))), lanes, trace.names
        )

    def _measure_alone(self, work: Ints) -> Ints:
        """Return how long each work would take alone: what it took, by how many times its kind is slower under comm."""
        trace, tax = self._trace, self._analysis.accounts.overlap_tax
        lengths_ns = trace.end_ns[work] - trace.start_ns[work]
        if tax is None:
            return lengths_ns
        return np.rint(
            lengths_ns / tax.runs.find_ratios(trace.lane[work].astype(np.int64), trace.start_ns[work])
        ).astype(np.int64)

    def _find_before(self, time: DeviceTime) -> dict[str, int]:
        """Return by lane until when it worked for what was launched before the first step."""
        trace = self._trace
        ran = time.masks[Kind.COMPUTE] | time.masks[Kind.COPY] | time.masks[Kind.COMM]
        before = np.flatnonzero(ran & (self._launched_ns < self._inside.start_ns))
        return {
            "/".join(trace.lanes[lane]): int(trace.end_ns[before[trace.lane[before] == lane]].max())
            for lane in np.unique(trace.lane[before]).tolist()
        }

    def _find_first(self, step: Step) -> int:
        """Return the item with which a step begins: what takes no time before it is none.

        Raises:
            PredictionError: nothing ran in it.
        """
        starts_ns = self._given.start_ns
        inside = np.flatnonzero((starts_ns >= step.window.start_ns) & (starts_ns < step.window.end_ns))
        if not len(inside):
            raise PredictionError(f"nothing ran on the device in step {step.number} of rank {self._analysis.rank}")
        return int(inside[np.argmin(starts_ns[inside])])

    def _measure_launch(self) -> int:
        """Return the mean from a launch to its start, where its lane stood free."""
        given = self._given
        took_ns = (given.start_ns - given.given_ns)[self._until_ns < given.given_ns]
        return mean_of(took_ns[took_ns > 0], 2 * _BOUND_NS)

    def _measure_next(self, launch_ns: int) -> Ints:
        """Return the mean gap before each item where its lane had been busy: of its name, or of all."""
        given = self._given
        gap_ns = given.start_ns - self._until_ns
        is_queued = (given.given_ns + launch_ns < self._until_ns) & ~given.is_collective & (np.abs(gap_ns) < _BOUND_NS)
        next_ns = np.full(len(given), mean_of(gap_ns[is_queued], _BOUND_NS), dtype=np.int64)
        names, place, counts = np.unique(given.name[is_queued], return_inverse=True, return_counts=True)
        sums = np.bincount(place, weights=gap_ns[is_queued], minlength=len(names))
        for name, count, total in zip(names.tolist(), counts.tolist(), sums.tolist(), strict=True):
            if count >= _FEWEST:
                next_ns[given.name == name] = round(total / count)
        return next_ns

    def _find_edges(self, launch_ns: int, next_ns: Ints) -> dict[int, tuple[int, ...]]:
        given = self._given
        after: dict[int, set[int]] = defaultdict(set)
        expected_ns = np.maximum(given.given_ns + launch_ns, self._until_ns + next_ns)
        order = np.argsort(given.end_ns, kind="stable")
        ends_ns = given.end_ns[order]
        for item in np.flatnonzero(given.start_ns - expected_ns > 2 * _SLACK_NS).tolist():
            start_ns = int(given.start_ns[item])
            place = int(ends_ns.searchsorted(start_ns + _SLACK_NS, side="right")) - 1
            while place >= 0 and ends_ns[place] >= max(int(expected_ns[item]), start_ns - _BOUND_NS):
                other = int(order[place])
                if given.lane[other] != given.lane[item] and given.given_ns[other] < given.given_ns[item]:
                    after[item].add(other)
                    break
                place -= 1
        self._add_structure(after)
        return {item: tuple(sorted(others)) for item, others in after.items()}

    def _add_structure(self, after: dict[int, set[int]]) -> None:
        """Add what nothing had to wait for in the trace, and would have, had it been later."""
        given = self._given
        main = np.flatnonzero(given.lane == self._main)
        for item in np.flatnonzero(given.is_collective & (given.lane != self._main)).tolist():
            one = self._analysis.collectives[int(given.collective[item])]
            issue_ns = int(given.given_ns[item]) if one.issue_ns is None else one.issue_ns
            place = int(given.given_ns[main].searchsorted(issue_ns, side="right")) - 1
            if place >= 0 and given.end_ns[main[place]] <= given.start_ns[item] + _SLACK_NS and main[place] < item:
                after[item].add(int(main[place]))
            if one.awaited_ns is None:
                continue
            consumers = main[int(given.given_ns[main].searchsorted(one.awaited_ns)) :]
            consumers = consumers[(given.start_ns[consumers] >= given.end_ns[item] - _SLACK_NS) & (consumers > item)]
            if len(consumers):
                after[int(consumers[0])].add(item)

    def _find_sittings(self) -> list[Sitting]:
        """Find when a host's call stood still for an end on a lane, which is the last before the call returned."""
        trace, given = self._trace, self._given
        synchronising = find_synchronising(trace)
        order = np.argsort(given.end_ns, kind="stable")
        ends_ns = given.end_ns[order]
        found: list[Sitting] = []
        for call, until_ns in zip(synchronising.calls.tolist(), synchronising.until_ns.tolist(), strict=True):
            window = Window(int(trace.start_ns[call]), int(trace.end_ns[call]))
            is_around = bool(found) and window.start_ns < found[-1].window.end_ns  # a driver's call in a runtime's
            if is_around or not self._inside.start_ns <= window.start_ns < self._inside.end_ns:
                continue
            place = int(ends_ns.searchsorted(until_ns + _SLACK_NS, side="right")) - 1
            while place >= 0 and ends_ns[place] > max(window.start_ns, until_ns - _BOUND_NS - _SLACK_NS):
                if given.given_ns[order[place]] <= window.end_ns:
                    found.append(Sitting(window, (int(order[place]),)))
                    break
                place -= 1
        return found


def _drop_untold(steps: list[Step], untold_ns: Ints) -> list[Step]:
    """Return the steps from the first on whose launches are all told: before it the trace begins."""
    while len(steps) > 1 and _holds_any(steps[0].host, untold_ns):
        del steps[0]
    return steps


def _holds_any(window: Window, moments_ns: Ints) -> bool:
    first, beyond = moments_ns.searchsorted((window.start_ns, window.end_ns)).tolist()
    return bool(first < beyond)
