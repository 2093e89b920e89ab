"""The answer of several traces in few numbers: the mean step, its spread, what was exposed by purpose.

Everything here is per *window*: a step of one rank, or, where no trace has steps, the whole trace of one rank. Means,
so that parts add up to the step, and purposes to what is exposed. Steps in which nothing ran are left out; so are those
of which it is not known what was hidden (what computes was not recorded or lost, or what communicated not seen), unless
there are no others. Those that are left are another sample: their mean is no bound of all steps'.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, NamedTuple

import numpy as np

from dtbench.base.vocabulary import Purpose
from dtbench.traces.account.purpose_times import PurposeTime
from dtbench.traces.known_part import KnownPart
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.time.overlap import NOT_SEEN, Overlap


@dataclass(frozen=True)
class Spread:
    """Median and middle half of a time over windows, ns."""

    median_ns: int
    quartile1_ns: int
    quartile3_ns: int


@dataclass(frozen=True)
class MeanTime:
    """Where the time of some windows went.

    Attributes:
        rank: None: over several ranks.
        windows: how many were averaged.
        are_steps: they are steps; False: whole traces.
        overlap: mean; what rounding loses is put to ``idle_ns``, so the parts add up; None: not known in any window.
        step: spread of the windows' length; None: not known.
        exposed: spread of exposed communication; None: not known.
        left_out: steps beside these of which it is not known what was hidden.
        part: of which of them all these are; None: of all.
        ranks: whose windows they are, in order; others have none that is known.
        lost: collectives that were issued in them, or outside all steps, and not seen to run: times of communication
            are at least these.
    """

    rank: int | None
    windows: int
    are_steps: bool
    overlap: Overlap
    step: Spread | None
    exposed: Spread | None
    left_out: int = 0
    part: KnownPart | None = None
    ranks: tuple[int, ...] = ()
    lost: int = 0


@dataclass(frozen=True)
class MeanPurpose(PurposeTime):
    """Mean of one purpose over some windows.

    Attributes:
        part: of which of them what is hidden and exposed is known; None: of all, or of none.
        wait_part: the same of the wait; one in which none was seen, and not every consumer can be, has part in it as 0.
        is_least: of some collectives in them nobody knows whether they were for this, so that there may be more of all.
    """

    part: KnownPart | None = None
    wait_part: KnownPart | None = None
    is_least: bool = False


class _Window(NamedTuple):
    """A step of a rank, or its whole trace.

    ``lost``: collectives that it issued and that were not seen to run; ``untold``: what others may have been for.
    """

    rank: int
    overlap: Overlap
    purposes: tuple[PurposeTime, ...]
    lost: int
    untold: frozenset[Purpose]


def average(analyses: Sequence[TraceAnalysis]) -> MeanTime:
    """Average the steps of all ranks, else their whole traces.

    Args:
        analyses: at least one.
    """
    windows, are_steps, left_out = _choose_windows(analyses)
    without = {one.rank for one in analyses} - {one.rank for one in windows}
    of_ranks = [
        *((one.rank, True) for one in windows),
        *((rank, False) for rank in (*left_out, *without - {*left_out})),
    ]
    overlaps = [one.overlap for one in windows]
    lost = sum(one.lost for one in windows) + (_count_outside(analyses) if are_steps else 0)
    return MeanTime(
        rank=analyses[0].rank if len(analyses) == 1 else None,
        windows=len(windows),
        are_steps=are_steps,
        overlap=_mean_overlap(overlaps, is_least=lost > 0),
        step=_spread(overlap.step_ns for overlap in overlaps),
        exposed=_spread(overlap.exposed_comm_ns for overlap in overlaps),
        left_out=len(left_out),
        part=_find_part(sorted(of_ranks)),
        ranks=tuple(dict.fromkeys(one.rank for one in windows)),
        lost=lost,
    )


_PLAIN: Final = {one.name for one in fields(PurposeTime)} - {
    *("purpose", "count", "unsized"),  # which, and how many: known of every window
    *("hidden_ns", "exposed_ns", "wait_ns", "is_wait_least"),  # of the windows that tell both; a bound
}
"""Numbers of a purpose whose mean is over the windows that tell them."""


def average_purposes(analyses: Sequence[TraceAnalysis]) -> tuple[MeanPurpose, ...]:
    """Average over the windows of ``average``; one in which a purpose did not occur counts as zero.

    A window in which a number was not seen is left out of its mean, which says of which it is; where it was seen in
    none, the mean is None. Not so a wait: to leave out those in which none was seen, as not every consumer can be,
    would choose the long ones; it is at least the mean of what was seen in all, and None where that is nothing.
    """
    windows, _, _ = _choose_windows(analyses)
    found = []
    for purpose in Purpose:
        of_windows = [
            (one.rank, next((row for row in one.purposes if row.purpose is purpose), None)) for one in windows
        ]
        mine = [row for _, row in of_windows if row is not None]
        if mine:
            means = {name: _mean([getattr(row, name) for row in mine], len(windows)) for name in _PLAIN}
            means |= _mean_parts(mine, len(windows))
            means["wait_ns"] = _mean_wait(mine, len(windows))
            if means["hidden_ns"] is not None and means["exposed_ns"] is not None:
                means["comm_ns"] = means["hidden_ns"] + means["exposed_ns"]
            counts = (sum(row.count for row in mine), sum(row.unsized for row in mine))
            count, unsized = (total / len(windows) for total in counts)
            part = _find_part([(rank, row is None or _is_told(row)) for rank, row in of_windows])
            is_told = means["wait_ns"] is not None
            wait_part = _find_part([(rank, row is None or _least_wait(row) is not None) for rank, row in of_windows])
            found.append(
                MeanPurpose(
                    purpose=purpose,
                    count=count,
                    unsized=unsized,
                    part=part,
                    wait_part=wait_part if is_told else None,
                    is_wait_least=is_told and any(row.is_wait_least for row in mine),
                    is_least=any(purpose in one.untold for one in windows),
                    **means,
                )
            )
    return tuple(found)


def _choose_windows(analyses: Sequence[TraceAnalysis]) -> tuple[list[_Window], bool, list[int]]:
    """Return the windows that means go over, whether they are steps, and the rank of each that is left out beside."""
    steps = [
        _Window(one.rank, step.overlap, step.purposes, step.lost, step.untold)
        for one in analyses
        for step in one.steps
        if step.overlap.step_ns
    ]
    windows = steps or [
        _Window(one.rank, one.whole, one.whole_purposes, one.unseen, frozenset().union(*one.untold.values()))
        for one in analyses
    ]
    decided = [window for window in windows if window.overlap.is_decided] or windows
    left_out = [one.rank for one in windows if decided is not windows and not one.overlap.is_decided]
    lost = [rank for one in analyses for rank in [one.rank] * _count_lost(one)] if steps else []
    return decided, bool(steps), [*left_out, *lost]


def _count_lost(one: TraceAnalysis) -> int:
    """Count the steps whose time is not known since kernels or launches are lost; not a last one that is cut."""
    cut = None if one.truncated_step is None else one.truncated_step.step
    lossy = {*one.lost.steps, *one.unsure_steps} - {cut}
    return sum(step.overlap.step_ns is None and step.step in lossy for step in one.steps)


def _count_outside(analyses: Sequence[TraceAnalysis]) -> int:
    """Count the collectives that were not seen to run and that no step issued."""
    of_steps = sum(step.lost for one in analyses for step in one.steps)
    return sum(one.unseen - (one.left.lost if one.left else 0) for one in analyses) - of_steps


def _is_told(row: PurposeTime) -> bool:
    return row.hidden_ns is not None and row.exposed_ns is not None


def _find_part(known: Sequence[tuple[int, bool]]) -> KnownPart | None:
    """Return of which windows a number is known, each given by its rank; None: of all, or of none."""
    ranks = tuple(dict.fromkeys(rank for rank, _ in known))
    have_part = tuple(dict.fromkeys(rank for rank, is_known in known if is_known))
    steps = sum(is_known for _, is_known in known)
    if not 0 < steps < len(known):
        return None
    return KnownPart(
        ranks=have_part if len(have_part) < len(ranks) else (),
        of_ranks=len(ranks),
        steps=steps,
        of_steps=sum(rank in have_part for rank, _ in known),
        has_every_rank=have_part == ranks,
    )


def _known(numbers: Iterable[int | None]) -> list[int]:
    return [number for number in numbers if number is not None]


def _mean(numbers: Sequence[int | None], windows: int) -> int | None:
    """Average over all windows but those in which the number was not seen; those without a row count as zero."""
    known = _known(numbers)
    return round(sum(known) / (windows - len(numbers) + len(known))) if known else None


def _least_wait(row: PurposeTime) -> int | None:
    """Return what a purpose waited in a window at least."""
    return 0 if row.wait_ns is None and row.is_wait_least else row.wait_ns


def _mean_wait(rows: Sequence[PurposeTime], windows: int) -> int | None:
    """Average the least that a purpose waited; None where none was seen and not every consumer can be."""
    is_unseen = any(row.is_wait_least for row in rows) and not any(row.wait_ns for row in rows)
    return None if is_unseen else _mean([_least_wait(row) for row in rows], windows)


def _mean_parts(rows: Sequence[PurposeTime], windows: int) -> dict[str, int | None]:
    """Average hidden and exposed time of a purpose over the same windows: those in which both are known."""
    both = [_is_told(row) for row in rows]
    return {
        name: _mean(
            [getattr(row, name) if is_known else None for row, is_known in zip(rows, both, strict=True)], windows
        )
        for name in ("hidden_ns", "exposed_ns")
    }


def _mean_overlap(windows: Sequence[Overlap], *, is_least: bool) -> Overlap:
    def mean(times_ns: Iterable[int | None]) -> int | None:
        known = _known(times_ns)
        return sum(known) // len(known) if known else None

    def mean_of_all(times_ns: Sequence[int | None]) -> int | None:
        return None if None in times_ns else mean(times_ns)

    step_ns = mean(one.step_ns for one in windows)
    hidden_ns, exposed_ns = mean(one.hidden_comm_ns for one in windows), mean(one.exposed_comm_ns for one in windows)
    if step_ns is None or hidden_ns is None or exposed_ns is None:
        comm_ns = mean(one.comm_ns for one in windows)
        return replace(NOT_SEEN, step_ns=step_ns, comm_ns=comm_ns, is_least=is_least)
    compute_ns = mean_of_all([one.compute_ns for one in windows])
    copy_ns = mean_of_all([one.exposed_copy_ns for one in windows])
    is_left_over = compute_ns is not None and copy_ns is not None and None not in [one.idle_ns for one in windows]
    return Overlap(
        step_ns=step_ns,
        compute_ns=compute_ns,
        comm_ns=hidden_ns + exposed_ns,
        hidden_comm_ns=hidden_ns,
        exposed_comm_ns=exposed_ns,
        exposed_copy_ns=copy_ns,
        idle_ns=step_ns - (compute_ns or 0) - exposed_ns - (copy_ns or 0) if is_left_over else None,
        is_least=is_least,
    )


def _spread(times_ns: Iterable[int | None]) -> Spread | None:
    known = _known(times_ns)
    if not known:
        return None
    low, middle, high = np.percentile(known, [25, 50, 75]).tolist()
    return Spread(median_ns=round(middle), quartile1_ns=round(low), quartile3_ns=round(high))
