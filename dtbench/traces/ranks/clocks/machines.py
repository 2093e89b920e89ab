"""Which ranks share a clock: those of one kernel; of one host's name, unless ends of their collectives contradict."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dtbench.traces.ranks.clocks.chain import (
    batch,
    find_middles,
    find_reach_ns,
    find_scatter,
    find_scattered,
    find_spreads,
)
from dtbench.traces.ranks.clocks.in_step import find_suspects
from dtbench.traces.ranks.clocks.times import Clock, GroupTimes, ends_about_median, ends_together
from dtbench.traces.time.intervals import Bools

_ENOUGH_TO_TEAR: Final = 8  # ends; the range of fewer is no 99 % interval of their median
_IN_A_ROW: Final = 4  # ends that lie apart alike: fewer late ones in a row are an accident
_ONE_CLOCK_NS: Final = 100_000  # devices of one machine tell its time within some microseconds
_FAR: Final = 8  # times the scatter of ends: no accident


@dataclass(frozen=True)
class Host:
    """What a rank says of its machine.

    Attributes:
        name: None: not told.
        kernel: which start of which kernel; what ran on one surely shares a clock. None: not told.
    """

    name: str | None = None
    kernel: str | None = None


def divide_by_host(
    times: Sequence[GroupTimes], clocks: Mapping[int, Clock], hosts: Mapping[int, Host]
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Put together the ranks of one host; a rank whose host is not told stands alone.

    Args:
        times: of the ranks, each on its own clock.
        clocks: of the ranks, each for itself.
        hosts: by rank.

    Returns:
        The machines; and the ranks of hosts that cannot be one machine, each of which stands alone, too.
    """
    named = group_by_host({rank: hosts.get(rank, Host()) for rank in clocks})
    doubted = [members for members in named if len(members) > 1 and hosts[members[0]].kernel is None]
    of_several = _find_of_several_clocks(_find_shared(times, doubted), clocks)
    torn = [members for members in doubted if members in of_several]
    machines = [members for members in named if members not in of_several]
    return [*machines, *((rank,) for members in torn for rank in members)], torn


def _find_shared(
    times: Sequence[GroupTimes], machines: Iterable[tuple[int, ...]]
) -> dict[tuple[int, ...], list[GroupTimes]]:
    """Return, by machine, what several of its ranks did together."""
    machine_of = {rank: members for members in machines for rank in members}
    shared: dict[tuple[int, ...], list[GroupTimes]] = {members: [] for members in machine_of.values()}
    for one in times:
        counts = Counter(machine_of[rank] for rank in one.ranks if rank in machine_of)
        for members, count in counts.items():
            among = one.among(members) if count > 1 else None
            if among is not None:
                shared[members].append(among)
    return shared


def group_by_host(hosts: Mapping[int, Host]) -> list[tuple[int, ...]]:
    """Put together the ranks of one host; one whose host is not told stands alone."""
    together: dict[Host | int, list[int]] = defaultdict(list)
    for rank, host in hosts.items():
        is_told = host.kernel is not None or host.name is not None
        told = Host(kernel=host.kernel) if host.kernel is not None else host  # a name may differ in a container
        together[told if is_told else rank].append(rank)
    return [tuple(members) for members in together.values()]


def _find_of_several_clocks(
    shared: Mapping[tuple[int, ...], Sequence[GroupTimes]], clocks: Mapping[int, Clock]
) -> set[tuple[int, ...]]:
    """Find the hosts what whose ranks did together could not have been on one clock, and could on the clocks of each.

    That is, one would leave collectives before another enters them; or ends are always as far apart, and further than
    what they scatter by; or they are so from some collective on, of several in a row.

    Args:
        shared: by the ranks of a host, what several of them did together.
        clocks: of the ranks, each for itself.
    """
    found: set[tuple[int, ...]] = set()
    late_ns: dict[int, NDArray[np.float64]] = {}
    for members, own in shared.items():
        if sum(int((ends_together(one) & one.are_several).sum()) for one in own) < _ENOUGH_TO_TEAR:
            continue
        on_one, one_clock = _put_on_one_clock(own, clocks, members)
        if find_suspects(on_one, one_clock) and not find_suspects([one.on_common_clock(clocks) for one in own], clocks):
            found.add(members)
        else:
            late_ns.update(ends_about_median(on_one, least_ranks=2))
    members_of = {rank: members for members in shared for rank in members}
    lengths = {rank: len(residual) for rank, residual in late_ns.items() if len(residual) >= _ENOUGH_TO_TEAR}
    for ranks in batch(lengths):
        lie_apart = _lie_apart(np.stack([late_ns[rank] for rank in ranks]))
        found.update(members_of[rank] for rank, lies in zip(ranks, lie_apart.tolist(), strict=True) if lies)
    return found


def _put_on_one_clock(
    own: Sequence[GroupTimes], clocks: Mapping[int, Clock], members: Sequence[int]
) -> tuple[Sequence[GroupTimes], Mapping[int, Clock]]:
    """Return what ranks did on a clock that they share, and that clock; a constant of all times changes no answer."""
    one_clock = share_clocks({rank: clocks[rank] for rank in members}, [tuple(members)])
    drifts = one_clock[members[0]].drift
    return [one.on_common_clock(one_clock) for one in own] if drifts else own, one_clock


def _lie_apart(late_ns: NDArray[np.float64]) -> Bools:
    """Tell of which row ends, in order of time, are always later than the others' by as much, or are so in a row.

    Args:
        late_ns: shape ``(ranks, ends)``.

    Returns:
        Shape ``(ranks,)``.
    """
    ordered = np.sort(late_ns, axis=1)
    middle_ns = find_middles(ordered)
    lies_apart = np.abs(middle_ns) > np.maximum(_ONE_CLOCK_NS, _FAR * find_spreads(ordered))
    for row in find_scattered(ordered):
        core_ns, half_width_ns = find_scatter(ordered[row])
        off_ns, reach_ns = np.abs(late_ns[row] - core_ns), find_reach_ns(half_width_ns)
        runs = sliding_window_view(off_ns, _IN_A_ROW)
        lies_apart[row] |= np.any((runs.min(axis=1) > reach_ns) & (np.ptp(runs, axis=1) <= reach_ns))
    return lies_apart


def share_clocks(clocks: Mapping[int, Clock], machines: Iterable[Sequence[int]]) -> dict[int, Clock]:
    """Assign all ranks of a machine the clock whose offset is the middle one of theirs."""
    shared = dict(clocks)
    for members in machines:
        middle = sorted((clocks[rank] for rank in members), key=lambda clock: clock.offset_ns)[len(members) // 2]
        shared.update(dict.fromkeys(members, middle))
    return shared
