"""Zeros that nobody saw: where collectives were issued and not seen to run, "none" is no answer about communication.

A number above zero stays: so much was seen. Zero becomes None, because what was not seen may have taken any time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dtbench.traces.account.group_times import GroupTime
from dtbench.traces.account.purpose_times import PurposeTime
from dtbench.traces.host.steps import Step
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


def leave_copies(one: Overlap) -> Overlap:
    """Return an account without copies, and what is left over, as of a window of which copies are lost."""
    return replace(one, exposed_copy_ns=None, idle_ns=None)


def leave_comm(one: Overlap) -> Overlap:
    """Return what is known of a step of which kernels are lost: communication that was seen; not how long it took."""
    return replace(NOT_SEEN, comm_ns=one.comm_ns, is_least=True)


def leave_purposes(rows: Iterable[PurposeTime]) -> tuple[PurposeTime, ...]:
    """Return what is known of the purposes of a window of which kernels are lost: communication that was seen."""
    return tuple(
        replace(row, comm_ns=row.comm_ns or None, hidden_ns=None, exposed_ns=None, wait_ns=None, is_wait_least=False)
        for row in rows
    )


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


def doubt_waits(rows: Iterable[PurposeTime]) -> tuple[PurposeTime, ...]:
    """Return the purposes of a window of a device whose waits are bounds: of what was not seen they are not known."""
    return tuple(replace(row, is_wait_least=True) for row in rows)


def doubt_groups(rows: Iterable[GroupTime]) -> tuple[GroupTime, ...]:
    """Return the process groups of a window without their zeros."""
    return tuple(
        replace(row, comm_ns=row.comm_ns or None, hidden_ns=row.hidden_ns or None, exposed_ns=row.exposed_ns or None)
        for row in rows
    )
