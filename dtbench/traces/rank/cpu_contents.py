"""What a CPU trace holds: operators of the threads that run the model, gloo's spans on threads of its own.

::

    nesting -> roles of names -> compute by thread; issues -> spans -> collectives -> waits -> steps, lanes
"""

from collections.abc import Container, Sequence
from dataclasses import replace

import numpy as np

from dtbench.base.vocabulary import Kind
from dtbench.traces.account.accounts import Sources
from dtbench.traces.account.lanes import compute_of_threads, thread_lanes
from dtbench.traces.causes.blocking import find_blocking
from dtbench.traces.causes.ready import cpu_work, find_ready
from dtbench.traces.causes.regions import find_or_infer_regions
from dtbench.traces.causes.untold import Prepared
from dtbench.traces.cpu.absent import find_absent
from dtbench.traces.cpu.gloo import find_gloo_collectives, model_lanes
from dtbench.traces.cpu.gloo_sends import find_send_waits, settle_sends
from dtbench.traces.cpu.waits import find_cpu_waits, tell_waits
from dtbench.traces.device.lost_kernels import find_cut
from dtbench.traces.host.nesting import find_nesting
from dtbench.traces.host.steps import Step, cpu_steps, find_cpu_hosts, find_extent, find_host_ranges
from dtbench.traces.kinds.categories import OPERATOR
from dtbench.traces.kinds.operators import Role, cpu_role
from dtbench.traces.rank.contents import Contents
from dtbench.traces.time.coverage import Window, window_borders
from dtbench.traces.time.intervals import Intervals, clip, intersect, unite, unite_all
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Collective
from dtbench.traces.who.facts import RankFacts
from dtbench.traces.who.hooked_gradients import name_gradients
from dtbench.traces.who.sharded_optimizers import name_sharded_optimizers


def find_cpu_contents(trace: Trace, facts: RankFacts | None = None) -> Contents:
    """Find what a CPU trace holds.

    Args:
        trace: the events.
        facts: what the rank's record knows beside, the sizes of groups for one; None: there is no record.

    Raises:
        TraceError: nothing in it computes or communicates.
    """
    nesting = find_nesting(trace)
    lanes, names = model_lanes(trace), computing_names(trace)
    by_thread = compute_of_threads(trace, nesting, lanes, names)
    compute = unite_all(*by_thread.values())
    issued = name_sharded_optimizers(trace, find_gloo_collectives(trace, nesting))
    if facts is not None:
        issued = tuple(facts.complete(collective) for collective in issued)
    waits = find_cpu_waits(trace, nesting, issued)
    ranges = find_host_ranges(trace)
    told = tuple(_end_open_span(one) for one in name_gradients(trace, tell_waits(issued, waits)))
    waits = tuple(wait for wait in waits if wait.collective is None or not _is_open(issued, told, wait.collective))
    collectives = settle_sends(trace, told, by_thread)
    waits = (*waits, *find_send_waits(told, collectives))
    kinds = {
        Kind.COMPUTE: compute,
        Kind.COMM: unite_all(*(collective.span for collective in collectives)),
        Kind.COPY: unite([], []),
    }
    hosts = find_cpu_hosts(trace, ranges)
    steps = cpu_steps(ranges, hosts, [_last_end_ns(collectives, host) for host in hosts])
    regions = find_or_infer_regions(trace, nesting, [step.host for step in steps])
    whole = find_extent(trace, kinds)
    lost = find_cut(trace, steps, whole)
    absent = find_absent(trace, lanes, names, compute, steps)
    lost = replace(lost, absent=tuple((steps[place].number, count) for place, count in absent.items()))
    recorded = _intersect(_find_recorded(trace, steps, absent), lost.recorded)
    return Contents(
        is_device=False,
        kinds=kinds,
        whole=whole,
        steps=tuple(steps),
        collectives=collectives,
        waits=tuple(waits),
        compute_starts_ns=compute.starts_ns,
        compute_launches_ns=np.stack((compute.starts_ns, compute.starts_ns)),
        sources=Sources(lanes=thread_lanes(by_thread, collectives), recorded=recorded),
        regions=regions,
        recorded=recorded,
        lost=lost,
        prepare=lambda found: Prepared(
            find_blocking(trace, nesting, find_ready(trace, cpu_work(compute), regions, found))
        ),
    )


def _find_recorded(trace: Trace, steps: Sequence[Step], absent: Container[int]) -> Intervals | None:
    """Find when the threads that run the model were recorded; None: always.

    A step in which they began no operator was not recorded: a step marks itself, and gloo's threads leave spans, also
    where operators were not asked for. Nor were those, by place, of which some are ``absent``. What lies outside of
    steps is known where all steps are.
    """
    threads = np.isin(trace.lane, list(model_lanes(trace)))
    starts_ns = np.sort(trace.start_ns[threads & trace.is_one_of((OPERATOR,))])
    windows = [step.window for step in steps]
    first, beyond = np.searchsorted(starts_ns, window_borders(windows)).T
    are_known = [has_any and place not in absent for place, has_any in enumerate((beyond > first).tolist())]
    known = [window for window, is_known in zip(windows, are_known, strict=True) if is_known]
    if len(known) == len(windows) and len(starts_ns):
        return None
    return unite([window.start_ns for window in known], [window.end_ns for window in known])


def _intersect(first: Intervals | None, second: Intervals | None) -> Intervals | None:
    """Intersect what may be all time."""
    if first is None or second is None:
        return second if first is None else first
    return intersect(first, second)


def computing_names(trace: Trace) -> frozenset[int]:
    """Return the indices into ``trace.names`` of what computes."""
    roles = [cpu_role(name, category) for name, category in _first_categories(trace)]
    return frozenset(i for i, role in enumerate(roles) if role is Role.COMPUTE)


def _end_open_span(one: Collective) -> Collective:
    """End what was still open when the profiler stopped: where its consumer went on, if the trace shows that.

    gloo completes a collective before it closes its span, so that its consumer may go on, end the step and stop the
    profiler in between. The span then ends with the profiler, milliseconds late (seen: 7 and 10 ms for 0.4), and what
    nobody is seen to wait for may be open for all the steps behind it. Where no consumer is seen to go on before that,
    nothing tells when it ended: it was not seen to run.
    """
    if one.has_ended:
        return one
    end_ns = one.first_wait_end_ns
    if end_ns is not None and one.start_ns < end_ns < one.end_ns:
        return replace(one, span=clip(one.span, one.start_ns, end_ns))
    never = unite([], [])
    return replace(one, span=never, first_wait_ns=None, first_wait_end_ns=None, waited=never, is_wait_seen=False)


def _is_open(before: Sequence[Collective], after: Sequence[Collective], index: int) -> bool:
    """Tell whether a collective has no end: what was taken for the wait for it has none either."""
    return len(before[index].span.starts_ns) > 0 and not len(after[index].span.starts_ns)


def _last_end_ns(collectives: Sequence[Collective], host: Window) -> int:
    """Return the last end of the collectives that a step issued; 0: it issued none."""
    issued = [one for one in collectives if one.issue_ns is not None and host.start_ns <= one.issue_ns < host.end_ns]
    return max((one.end_ns for one in issued), default=0)


def _first_categories(trace: Trace) -> list[tuple[str, str]]:
    """Return each distinct name with the category it first comes with: one name never is both operator and range."""
    if not len(trace.name):
        return []
    _, first = np.unique(trace.name, return_index=True)
    return [(name, trace.category_of(event)) for name, event in zip(trace.names, first.tolist(), strict=True)]
