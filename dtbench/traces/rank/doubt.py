"""Zeros that nobody saw: where collectives were issued and not seen to run, "none" is no answer about communication.

A number above zero stays: so much was seen. Zero becomes None, because what was not seen may have taken any time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dtbench.traces.account.accounts import WindowAccount
from dtbench.traces.account.gaps import doubt_gaps
from dtbench.traces.account.group_times import GroupTime
from dtbench.traces.account.purpose_times import PurposeTime
from dtbench.traces.host.steps import Step
from dtbench.traces.rank.unsure import Before
from dtbench.traces.time.overlap import NOT_SEEN, Overlap
from dtbench.traces.who.collectives import Collective, Launch


def count_lost(
    collectives: Sequence[Collective], step_of: Sequence[int | None], unseen: Sequence[Launch], steps: Sequence[Step]
) -> list[int]:
    """Count the collectives of each step and, last, of the whole trace that were issued and not seen to run.

    Args:
        collectives: of the trace; those without a span were issued, and nothing more is known.
        step_of: index of the step that issued each; None: none did.
        unseen: launches of collectives whose kernels the trace lacks.
        steps: of the trace, in order of time.
    """
    lost = [step for one, step in zip(collectives, step_of, strict=True) if one.is_span_missing]
    hosts = [step.host for step in steps]
    lost += [
        next((place for place, host in enumerate(hosts) if host.start_ns <= one.start_ns < host.end_ns), None)
        for one in unseen
    ]
    return [*(lost.count(place) for place in range(len(steps))), len(lost)]


def take_untold(collectives: Sequence[Collective], step_of: Sequence[int | None], lost: Sequence[int]) -> list[int]:
    """Return how many collectives are lost where ``lost`` may be: some of these have a span, though not told which.

    Args:
        collectives: of the trace.
        step_of: index of the step that issued each, or in which it began; None: none did.
        lost: as from ``count_lost``.
    """
    untold = [step for one, step in zip(collectives, step_of, strict=True) if one.is_issue_untold and one.is_seen]
    return [*(max(0, count - untold.count(place)) for place, count in enumerate(lost[:-1])), lost[-1] - len(untold)]


@dataclass(frozen=True)
class UntoldComm:
    """That a rank of several shows no communication: none was recorded, or nothing of it is known by its name.

    Attributes:
        ranks: of its job, as its trace says.
        names: kernels that may be it, longest first; all are accounted as compute.
    """

    ranks: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Losses:
    """What was not seen to run in each window: in the steps and, last, in the whole trace.

    Attributes:
        may_be_lost: how many collectives may not have been seen to run: of some alike it is not told which were.
        unseen: how many were not.
        are_kernels_lost: whether kernels are lost, of whatever kind.
        are_copies_lost: whether copies are.
        before: what may be of steps of which it is not known where they begin.
        is_comm_untold: no communication is seen in any window, though the job has several ranks.
    """

    may_be_lost: tuple[int, ...]
    unseen: tuple[int, ...]
    are_kernels_lost: tuple[bool, ...]
    are_copies_lost: tuple[bool, ...]
    before: Before
    is_comm_untold: bool = False

    @property
    def counts(self) -> tuple[int, ...]:
        """How much is lost of each window; 0: nothing is, and its zeros were seen."""
        return tuple(
            count + is_lost + self.is_comm_untold
            for count, is_lost in zip(self.may_be_lost, self.are_kernels_lost, strict=True)
        )

    @property
    def may_be_more(self) -> tuple[int, ...]:
        """How much communication may be of each window that is not in its account."""
        untold = int(self.is_comm_untold)
        return tuple(count + untold + self.before.has_comm(place) for place, count in enumerate(self.unseen))

    def doubt_overlaps(self, overlaps: Sequence[Overlap]) -> list[Overlap]:
        """Return the account of each window with what is lost of it: a bound, or communication that was seen alone."""
        bounds = [doubt_overlap(one) if lost else one for one, lost in zip(overlaps, self.counts, strict=True)]
        if self.is_comm_untold and not any(self.are_kernels_lost):  # nothing is known to have been launched
            bounds = [replace(one, is_least=False) for one in bounds]
        known = (_leave_copies(one) if lost else one for one, lost in zip(bounds, self.are_copies_lost, strict=True))
        *steps, whole = known
        is_lost = self.are_kernels_lost[:-1]
        return [
            *(
                _leave_comm(one) if lost else self.before.doubt_overlap(place, one)
                for place, (one, lost) in enumerate(zip(steps, is_lost, strict=True))
            ),
            whole,
        ]

    def doubt_groups(self, groups: Sequence[tuple[GroupTime, ...]]) -> list[tuple[GroupTime, ...]]:
        """Return the process groups of each window, without zeros where something of it may be missing."""
        return [_doubt_groups(rows) if lost else rows for rows, lost in zip(groups, self._are_bounds, strict=True)]

    def doubt_times(self, times_ns: Sequence[int | None]) -> list[int | None]:
        """Return a time of each window, none that is zero where something of it may be missing."""
        return [time_ns or None if lost else time_ns for time_ns, lost in zip(times_ns, self._are_bounds, strict=True)]

    @property
    def _are_bounds(self) -> tuple[bool, ...]:
        return tuple(count > 0 or self.before.has_comm(place) for place, count in enumerate(self.counts))


def doubt_overlap(one: Overlap) -> Overlap:
    """Return an account as a bound: without zeros of communication, and without what is left over where one is gone."""
    exposed_ns = one.exposed_comm_ns or None
    return replace(
        one,
        comm_ns=one.comm_ns or None,
        hidden_comm_ns=one.hidden_comm_ns or None,
        exposed_comm_ns=exposed_ns,
        idle_ns=None if exposed_ns is None else one.idle_ns,
        is_least=True,
    )


def _leave_copies(one: Overlap) -> Overlap:
    """Return an account without copies, and what is left over, as of a window of which copies are lost."""
    return replace(one, exposed_copy_ns=None, idle_ns=None)


def _leave_comm(one: Overlap) -> Overlap:
    """Return what is known of a step of which kernels are lost: communication that was seen; not how long it took."""
    return replace(NOT_SEEN, comm_ns=one.comm_ns, is_least=True)


def leave_purposes(rows: Iterable[PurposeTime]) -> tuple[PurposeTime, ...]:
    """Return what is known of the purposes of a window of which kernels are lost: communication that was seen."""
    return tuple(
        replace(row, comm_ns=row.comm_ns or None, hidden_ns=None, exposed_ns=None, wait_ns=None, is_wait_least=False)
        for row in rows
    )


def leave_waits(rows: Iterable[PurposeTime]) -> tuple[PurposeTime, ...]:
    """Return the purposes of a window of a device of which copies are lost, which may have been what was waited for.

    Or what waited: without it a wait seems shorter or longer than it was.
    """
    return tuple(replace(row, wait_ns=None, is_wait_least=False) for row in rows)


def doubt_purposes(rows: Iterable[PurposeTime]) -> tuple[PurposeTime, ...]:
    """Return the purposes of a window without their zeros."""
    return tuple(
        replace(
            row,
            comm_ns=row.comm_ns or None,
            hidden_ns=row.hidden_ns or None,
            exposed_ns=row.exposed_ns or None,
            wait_ns=row.wait_ns or None,
        )
        for row in rows
    )


def doubt_device_purposes(rows: Iterable[PurposeTime]) -> tuple[PurposeTime, ...]:
    """Return the purposes of a window of a device without their zeros; waits for what was not seen are not known."""
    return tuple(replace(row, is_wait_least=True) for row in doubt_purposes(rows))


def doubt_account(one: WindowAccount) -> WindowAccount:
    """Return the finer account of a window of which collectives are lost, without zeros of communication."""
    gaps = one.gaps
    return replace(
        one,
        lanes=tuple(replace(lane, comm_ns=lane.comm_ns or None) for lane in one.lanes),
        groups=_doubt_groups(one.groups),
        gaps=None if gaps is None else doubt_gaps(gaps),
    )


def _doubt_groups(rows: Iterable[GroupTime]) -> tuple[GroupTime, ...]:
    """Return the process groups of a window without their zeros."""
    return tuple(
        replace(row, comm_ns=row.comm_ns or None, hidden_ns=row.hidden_ns or None, exposed_ns=row.exposed_ns or None)
        for row in rows
    )
