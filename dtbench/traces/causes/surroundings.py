"""What computed around a collective: before its issue, beside it, and after it in the same region."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from dtbench.base.vocabulary import REDUCTIONS, Purpose
from dtbench.traces.time.intervals import Ints
from dtbench.traces.timeline import RankTimeline
from dtbench.traces.who.collectives import Collective


class Surroundings:
    """Questions about the compute of one rank, each answered in a few binary searches.

    A region is an index into the timeline's regions. Compute belongs to the region that launched it. Where it is not
    told when it was launched, it is in no span of time in which it may not have been; or, with ``may_be``, in all in
    which it may have been.
    """

    def __init__(self, timeline: RankTimeline, *, may_be: bool = False) -> None:
        self._timeline = timeline
        self.may_be = may_be
        self._compute = timeline.compute
        self._totals_ns = np.cumsum(self._compute.ends_ns - self._compute.starts_ns)
        self._starts_ns = timeline.compute_starts_ns
        first_ns, last_ns = timeline.compute_launches_ns
        is_told = first_ns == last_ns
        self._untold = np.flatnonzero(~is_told)
        self._told = np.flatnonzero(is_told)[np.argsort(first_ns[is_told], kind="stable")]
        self._launches_ns = first_ns[self._told]

    @property
    def is_device(self) -> bool:
        """Whether collectives lie on device streams."""
        return self._timeline.is_device

    @property
    def fits_host(self) -> bool:
        """Whether the device's times fit the host's."""
        return self._timeline.fits_host

    @property
    def tells_streams(self) -> bool:
        """Whether streams are told apart."""
        return self._timeline.tells_streams

    def region_of(self, collective: Collective) -> int | None:
        """Return the region that issued a collective; None: none is known."""
        return None if collective.issue_ns is None else self._timeline.regions.place_at(collective.issue_ns)

    def lost_in(self, region: int) -> bool:
        """Tell whether a region issued collectives that were not seen to run: what is seen is not all it did."""
        start_ns, end_ns = self._timeline.regions.starts_ns[region], self._timeline.regions.ends_ns[region]
        first, beyond = self._lost_ns.searchsorted((start_ns, end_ns)).tolist()
        return bool(beyond > first)

    @cached_property
    def _lost_ns(self) -> Ints:
        """When collectives were issued that were not seen to run, rising."""
        unseen = [launch.start_ns for launch in self._timeline.unseen]
        unmatched = [one.issue_ns for one in self._timeline.collectives if one.is_span_missing]
        return np.sort(np.array([*unseen, *(issue or 0 for issue in unmatched)], dtype=np.int64))

    def reductions_of(self, region: int) -> Sequence[Collective]:
        """Return the reductions of gradients that a region issued."""
        return self._reductions.get(region, ())

    @cached_property
    def _reductions(self) -> dict[int, list[Collective]]:
        found: dict[int, list[Collective]] = {}
        for one in self._timeline.collectives:
            collective = one
            if self.may_be and one.may_be_of(Purpose.GRAD_REDUCE, REDUCTIONS) and one.issue_between_ns is not None:
                collective = replace(one, purpose=Purpose.GRAD_REDUCE, issue_ns=one.issue_between_ns[1])
            region = self.region_of(collective) if collective.purpose is Purpose.GRAD_REDUCE else None
            if region is not None:
                found.setdefault(region, []).append(collective)
        return found

    def compute_ns(self, start_ns: int, end_ns: int) -> int:
        """Time in which compute ran in ``[start, end)``; 0 where that is empty."""
        if end_ns <= start_ns:
            return 0
        return self._covered_before(end_ns) - self._covered_before(start_ns)

    def _covered_before(self, time_ns: int) -> int:
        """Time of compute before a moment: ``Intervals.covered_before`` for one point, ten times as fast."""
        last = int(self._compute.starts_ns.searchsorted(time_ns, side="right")) - 1
        if last < 0:
            return 0
        return int(self._totals_ns[last]) - max(int(self._compute.ends_ns[last]) - time_ns, 0)

    def starting_ns(self, start_ns: int, end_ns: int, *, launched_from_ns: int | None = None) -> int:
        """Time in which compute ran in ``[start, end)`` from the first that starts there; 0: none starts.

        Args:
            start_ns: from here.
            end_ns: up to here.
            launched_from_ns: look only for compute launched at or after this.
        """
        first, last = self._starts_ns.searchsorted((start_ns, end_ns), side="left").tolist()
        if launched_from_ns is not None:
            launches_ns = self._timeline.compute_launches_ns[int(self.may_be), first:last]
            late = np.flatnonzero(launches_ns >= launched_from_ns)
            first = first + int(late[0]) if len(late) else last
        return self.compute_ns(int(self._starts_ns[first]), end_ns) if first < last else 0

    def first_compute_ns(self, region: int) -> int:
        """Start of the first compute that a region launched; of the region where it launched none."""
        start_ns = int(self._timeline.regions.starts_ns[region])
        starts = self._launched(start_ns, int(self._timeline.regions.ends_ns[region]), may_be=self.may_be)
        return int(starts.min()) if len(starts) else start_ns

    def launched_after_ns(self, collective: Collective, region: int, from_ns: int | None = None) -> int:
        """Time of the compute that a region launched after it issued a collective, or after a later moment.

        After a reduction of gradients only up to the region's last reduction.
        """
        if collective.issue_ns is None:
            return 0
        if collective.purpose is Purpose.GRAD_REDUCE:
            end_ns = max(other.issue_ns or 0 for other in self.reductions_of(region))
        else:
            end_ns = int(self._timeline.regions.ends_ns[region])
        return self.launched_ns(collective.issue_ns if from_ns is None else from_ns, end_ns)

    def launched_ns(self, start_ns: int, end_ns: int) -> int:
        """Time of the compute that was launched in ``(start, end)``."""
        return self._run_ns(self._launched(start_ns + 1, end_ns, may_be=self.may_be))

    def stood_ns(self, collective: Collective, until_ns: int) -> int:
        """Time of the compute launched between issue and end of a collective, before a moment, that began after it."""
        if collective.issue_ns is None:
            return 0
        starts = self._launched(collective.issue_ns + 1, min(until_ns, collective.end_ns), may_be=self.may_be)
        return self._run_ns(starts[starts >= collective.end_ns])

    def _run_ns(self, starts: Ints) -> int:
        """Time of the compute with these starts, and of what ran between them."""
        if not len(starts):
            return 0
        following = int(self._starts_ns.searchsorted(starts.max(), side="right"))
        until = self._starts_ns[following] if following < len(self._starts_ns) else self._compute.ends_ns[-1]
        return self.compute_ns(int(starts.min()), int(until))

    def launches_between(self, start_ns: int, end_ns: int, *, may_be: bool) -> bool:
        """Tell whether any compute was launched in ``[start, end)``, or may have been."""
        return len(self._launched(start_ns, end_ns, may_be=may_be)) > 0

    def _launched(self, start_ns: int, end_ns: int, *, may_be: bool) -> Ints:
        """Return the starts of the compute launched in ``[start, end)``."""
        first, last = self._launches_ns.searchsorted((start_ns, max(start_ns, end_ns)), side="left").tolist()
        told = self._starts_ns[self._told[first:last]]
        if not len(self._untold) or end_ns <= start_ns:
            return told
        first_ns, last_ns = self._timeline.compute_launches_ns[:, self._untold]
        if may_be:
            first_ns, last_ns = last_ns, first_ns
        return np.concatenate((told, self._starts_ns[self._untold[(first_ns >= start_ns) & (last_ns < end_ns)]]))
