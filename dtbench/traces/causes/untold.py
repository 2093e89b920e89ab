"""What causes ask of launches, answered twice where the trace does not tell when all of them were.

::

    host       k? ........ c .... ?k        c: issue; k: compute that was launched between the two marks
    comm                    ├────c────┤
    if early   k made the input of c, and nothing was launched beside it
    if late    k was launched to run beside c, whose input was there before

A cause takes what it takes either way (``split.py``); for the rest, what is missing is the launches. Where the launch
of a collective itself is not told, it may be an unshard before the next one, or a reduction of its region, or neither.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dtbench.base.vocabulary import Kind
from dtbench.traces.causes.ready import device_work, find_ready
from dtbench.traces.causes.standing import Device, find_standing
from dtbench.traces.device.launched import Launched
from dtbench.traces.device.main_lane import MainLane, find_closed_gaps, is_wait_seen
from dtbench.traces.time.intervals import Bools
from dtbench.traces.who.collectives import Collective


@dataclass(frozen=True)
class Prepared:
    """Collectives with what causes need and no event of theirs says.

    Attributes:
        collectives: of the trace.
        ways: where it matters that it is not told when something was launched, the same as if all that was as early,
            and as if it was as late, as it may have been; empty: nowhere.
    """

    collectives: tuple[Collective, ...]
    ways: tuple[tuple[Collective, ...], ...] = ()


def prepare_device(device: Device, launched: Launched, collectives: Sequence[Collective]) -> Prepared:
    """Find when each collective of a device was ready, what stood behind it, and how late the host was."""
    if _are_settled(device, launched, collectives):
        return Prepared(_fill(device, launched, collectives, is_late=False))
    ways = tuple(
        _fill(
            replace(device, main=main),
            launched,
            _fill_waits(main, _seen_to_wait(device.main, collectives), collectives),
            is_late=is_late,
        )
        for is_late in (False, True)
        for main in [device.main.launched_at(launched.when(is_late=is_late))]
    )
    waits = zip(ways[0], collectives, strict=True)
    told = (
        replace(
            one,
            first_wait_ns=before.first_wait_ns,
            first_wait_end_ns=before.first_wait_end_ns,
            is_wait_seen=before.is_wait_seen,
        )
        for one, before in waits
    )
    return Prepared(tuple(told), ways)


def _are_settled(device: Device, launched: Launched, collectives: Sequence[Collective]) -> bool:
    """Tell whether of all launches it is known on which side they are of each moment that anybody asks for.

    No such moment is before all issues and regions.
    """
    issues_ns = [one.issue_ns for one in collectives if one.issue_ns is not None]
    first_ns = min([*issues_ns, *device.regions.starts_ns[:1].tolist()], default=np.iinfo(np.int64).max)
    asked = device.kinds[Kind.COMPUTE] | device.kinds[Kind.COMM]
    return launched.are_settled(np.union1d(np.flatnonzero(asked), device.main.events), first_ns)


def _fill(
    device: Device, launched: Launched, collectives: Sequence[Collective], *, is_late: bool
) -> tuple[Collective, ...]:
    work = device_work(device.trace, launched, device.kinds[Kind.COMPUTE], is_late=is_late)
    ready = find_ready(device.trace, work, device.regions, collectives)
    return find_standing(device, launched.when(is_late=not is_late), ready, is_late=is_late)


def _seen_to_wait(main: MainLane, collectives: Sequence[Collective]) -> Bools:
    """Tell of each whether work whose launch is told follows its end."""
    return is_wait_seen(main, np.array([one.end_ns for one in collectives], dtype=np.int64))


def _fill_waits(main: MainLane, were_seen: Bools, collectives: Sequence[Collective]) -> list[Collective]:
    """Fill in the waits of the main lane that only launches show that are not told."""
    ran = [index for index, one in enumerate(collectives) if len(one.span.starts_ns)]
    closed = find_closed_gaps(main, np.array([collectives[index].end_ns for index in ran], dtype=np.int64))
    borders = zip(closed.starts_ns.tolist(), closed.ends_ns.tolist(), strict=True)
    waits = dict(zip(closed.closer.tolist(), borders, strict=True))
    are_seen, found = _seen_to_wait(main, collectives), list(collectives)
    for place, index in enumerate(ran):
        one = collectives[index]
        if one.first_wait_ns is None:
            start_ns, end_ns = waits.get(place, (None, None))
            is_seen = one.is_wait_seen or bool(are_seen[index] and not were_seen[index])
            found[index] = replace(one, first_wait_ns=start_ns, first_wait_end_ns=end_ns, is_wait_seen=is_seen)
    return found
