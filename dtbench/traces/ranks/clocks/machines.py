"""Which ranks share a clock: those of one kernel; of one host's name, unless ends of their collectives contradict."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dtbench.traces.ranks.clocks.chain import find_reach_ns, find_scatter
from dtbench.traces.ranks.clocks.in_step import find_suspects
from dtbench.traces.ranks.clocks.times import Clock, GroupTimes, ends_about_median, ends_together

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
    torn = [members for members in doubted if _are_of_several_clocks(times, clocks, members)]
    machines = [members for members in named if members not in torn]
    return [*machines, *((rank,) for members in torn for rank in members)], torn


def group_by_host(hosts: Mapping[int, Host]) -> list[tuple[int, ...]]:
    """Put together the ranks of one host; one whose host is not told stands alone."""
    together: dict[Host | int, list[int]] = defaultdict(list)
    for rank, host in hosts.items():
        is_told = host.kernel is not None or host.name is not None
        told = Host(kernel=host.kernel) if host.kernel is not None else host  # a name may differ in a container
        together[told if is_told else rank].append(rank)
    return [tuple(members) for members in together.values()]


def _are_of_several_clocks(times: Sequence[GroupTimes], clocks: Mapping[int, Clock], members: Collection[int]) -> bool:
    """Tell whether what ranks did together could not have been on one clock, and could on the clocks of each.

    That is, one would leave collectives before another enters them; or ends are always as far apart, and further than
    what they scatter by; or they are so from some collective on, of several in a row.
    """
    own = [among for one in times if (among := one.among(members)) is not None]
    if sum(int((ends_together(one) & (one.there.sum(axis=1) > 1)).sum()) for one in own) < _ENOUGH_TO_TEAR:
        return False
    shared = share_clocks({rank: clocks[rank] for rank in members}, [tuple(members)])
    on_one = [one.on_common_clock(shared) for one in own]
    if find_suspects(on_one, shared) and not find_suspects([one.on_common_clock(clocks) for one in own], clocks):
        return True
    return any(
        len(residual) >= _ENOUGH_TO_TEAR and _lies_apart(residual)
        for residual in ends_about_median(on_one, least_ranks=2).values()
    )


def _lies_apart(late_ns: NDArray[np.float64]) -> bool:
    """Tell whether ends, in order of time, are always later than the others' by as much, or are so in a row."""
    middle = float(np.median(late_ns))
    scatter_ns = float(np.median(np.abs(late_ns - middle)))
    if abs(middle) > max(_ONE_CLOCK_NS, _FAR * scatter_ns):
        return True
    core_ns, half_width_ns = find_scatter(late_ns)
    reach_ns = find_reach_ns(half_width_ns)
    rows = np.abs(sliding_window_view(late_ns - core_ns, _IN_A_ROW))
    return bool(np.any((rows.min(axis=1) > reach_ns) & (np.ptp(rows, axis=1) <= reach_ns)))


def share_clocks(clocks: Mapping[int, Clock], machines: Iterable[Sequence[int]]) -> dict[int, Clock]:
    """Assign all ranks of a machine the clock whose offset is the middle one of theirs."""
    shared = dict(clocks)
    for members in machines:
        middle = sorted((clocks[rank] for rank in members), key=lambda clock: clock.offset_ns)[len(members) // 2]
        shared.update(dict.fromkeys(members, middle))
    return shared
