"""Steps of a rank whose times it is not known: they are counted, and enter no mean and no comparison.

::

    seen    step 1 |████████|  step 2 |███─────────────────██████|  step 3 |████████|
    ran                               |███──██████|                                    the clock was set ahead there

Only other ranks show that a clock was set (``ranks/astray.py``). A step in which it was, or may have been, has no
times, nor has the trace as a whole.

::

    host    step 1 |────────────|  step 2 |────────────|  step 3 |────────────|
    device            |████  ██ ───────────  |████  ██ ───────────  |████  ██ |       nothing says when step 3 ended

The last step on a device ends with its last kernel; what the host did before the first counts to the step before. Where
no rank has another step, it stays, and a note says so.

::

    device      |████  ████  ░░░ ████|███████                     ░: launched by the second step, or by the first

Where launches are lost, neither step has times: what one may lack the other may have too much.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from dtbench.base.vocabulary import Purpose
from dtbench.traces.account.accounts import WindowAccount
from dtbench.traces.account.purpose_times import PurposeTime
from dtbench.traces.rank.analysis import StepAccount, TraceAnalysis
from dtbench.traces.time.coverage import window_borders
from dtbench.traces.time.intervals import Intervals, intersect
from dtbench.traces.time.overlap import NOT_SEEN, Overlap
from dtbench.traces.time.shares import share_time
from dtbench.traces.timeline import RankTimeline


def leave_out_settings(one: TraceAnalysis, set_in: Intervals | None) -> TraceAnalysis:
    """Leave out the times of what was under way when a clock was set.

    Args:
        one: of a rank.
        set_in: between which moments of its own clock that was; None: it was not.
    """
    if set_in is None or not set_in.length_ns:
        return one
    windows = window_borders(one.timeline.steps)
    lacks = set_in.touches(windows[:, 0], windows[:, 1]).tolist()
    left = _leave_steps(one, lacks)
    return replace(
        left,
        timeline=_leave_under_way(left.timeline, set_in),
        whole=_leave_account(one.whole),
        whole_purposes=_leave_purposes(one.whole_purposes),
        whole_unattributed_ns=None,
        accounts=replace(left.accounts, whole=_leave_times(one.accounts.whole), overlap_tax=None),
        set_steps=tuple(step.step for step, is_lacking in zip(one.steps, lacks, strict=True) if is_lacking),
    )


def leave_out_cut(analyses: Sequence[TraceAnalysis]) -> list[TraceAnalysis]:
    """Leave out the times of last steps that are not all in their traces, where any rank has others."""
    lacks = [
        [one.truncated_step is not None and step.step == one.truncated_step.step for step in one.steps]
        for one in analyses
    ]
    has_whole = any(
        step.overlap.step_ns and not lack
        for one, of_rank in zip(analyses, lacks, strict=True)
        for step, lack in zip(one.steps, of_rank, strict=True)
    )
    pairs = zip(analyses, lacks, strict=True)
    return [_leave_steps(one, of_rank) if has_whole and any(of_rank) else one for one, of_rank in pairs]


def leave_out_unsure(one: TraceAnalysis) -> TraceAnalysis:
    """Leave out the times of steps of which it is not known where they begin or end."""
    lacks = [step.overlap.step_ns is not None and step.is_unsure for step in one.steps]
    if not any(lacks):
        return one
    unsure = tuple(step.step for step, is_lacking in zip(one.steps, lacks, strict=True) if is_lacking)
    return replace(_leave_steps(one, lacks), unsure_steps=unsure)


def _leave_steps(one: TraceAnalysis, lacks: Sequence[bool]) -> TraceAnalysis:
    accounts = [
        _leave_times(account) if is_lacking else account
        for account, is_lacking in zip(one.accounts.steps, lacks, strict=True)
    ]
    steps = [_leave_step(step) if is_lacking else step for step, is_lacking in zip(one.steps, lacks, strict=True)]
    timeline = one.timeline
    are_known = timeline.known_steps or (True,) * len(lacks)
    known_steps = tuple(is_known and not is_lacking for is_known, is_lacking in zip(are_known, lacks, strict=True))
    spans = [collective.span for collective in timeline.collectives]
    shares = share_time(spans, timeline.compute, timeline.steps, timeline.recorded)
    stepped_ns = tuple(shares.stepped_exposed_ns(known_steps).tolist())
    return replace(
        one,
        timeline=replace(timeline, known_steps=known_steps, stepped_exposed_ns=stepped_ns),
        steps=tuple(steps),
        accounts=replace(one.accounts, steps=tuple(accounts)),
    )


def _leave_step(step: StepAccount) -> StepAccount:
    left, purposes = _leave_account(step.overlap), _leave_purposes(step.purposes)
    return replace(step, overlap=left, purposes=purposes, unattributed_ns=None, probes={}, untold=frozenset[Purpose]())


def _leave_account(one: Overlap) -> Overlap:
    return replace(NOT_SEEN, is_least=one.is_least)


def _leave_purposes(rows: Iterable[PurposeTime]) -> tuple[PurposeTime, ...]:
    return tuple(
        replace(row, comm_ns=None, hidden_ns=None, exposed_ns=None, wait_ns=None, is_wait_least=False) for row in rows
    )


def _leave_times(account: WindowAccount) -> WindowAccount:
    groups = tuple(replace(row, comm_ns=None, hidden_ns=None, exposed_ns=None) for row in account.groups)
    return WindowAccount((), groups, None)


def _leave_under_way(timeline: RankTimeline, set_in: Intervals) -> RankTimeline:
    """Leave out the time of what was under way: of that, only what is of other steps is known."""
    spans = [one.span for one in timeline.collectives]
    stepped_ns = timeline.stepped_exposed_ns
    is_touched = np.array([intersect(span, set_in).length_ns > 0 for span in spans], dtype=np.bool_)
    undecided_ns = timeline.undecided_ns or (0,) * len(spans)
    return replace(
        timeline,
        exposed_ns=tuple(np.where(is_touched, stepped_ns, timeline.exposed_ns).tolist()),
        hidden_ns=tuple(np.where(is_touched, 0, timeline.hidden_ns).tolist()),
        undecided_ns=tuple(np.where(is_touched, [span.length_ns for span in spans], undecided_ns).tolist()),
    )
