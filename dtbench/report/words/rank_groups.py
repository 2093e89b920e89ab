"""The words about hosts and places in the mesh: which host others wait for, whose ranks take longer, where it is so.

Nothing is said where a test of just that claim does not hold (``dtbench.traces.ranks.by_group``).
"""

from collections.abc import Collection
from typing import Final

from dtbench.base.units import count_things, format_fraction, format_ns, name_ranks
from dtbench.traces.ranks.by_group.host_waits import AwaitedHost
from dtbench.traces.ranks.by_group.slow_group import SlowGroup

_MOST_RUNS: Final = 4
"""Ranges of ranks that are named; of more, how many ranks there are."""


def describe_awaited_host(found: AwaitedHost) -> str:
    """Say how many hosts wait mostly for one: ``17 of 128 hosts wait mostly for node97 (ranks 776-783): ...``."""
    verb = "waits" if len(found.waiting) == 1 else "wait"
    who = f"{len(found.waiting)} of {count_things(found.hosts, 'host')} {verb} mostly for {found.host}"
    return f"{who} ({name_some_ranks(found.ranks)}): {format_ns(found.waited_ns)}, summed over their ranks"


def describe_slow_group(found: SlowGroup, verb: str, per: str) -> str:
    """Say whose ranks take longer, and that what they have in common explains how ranks differ.

    Args:
        found: the group.
        verb: what the times are of: ``computes``.
        per: ``per step``.
    """
    who = f"{found.grouping} {found.label} ({name_some_ranks(found.ranks)})"
    others = f"the other {count_things(found.groups - 1, found.grouping)} {format_ns(found.others_ns)}"
    if found.groups == 2:
        others = f"the other {found.grouping} {format_ns(found.others_ns)}"
    share = f"the {found.grouping} explains {format_fraction(found.share)} of the variance over ranks"
    return f"{who} {verb} {format_ns(found.median_ns)} {per}, {others} (medians over ranks): {share}"


def name_some_ranks(ranks: Collection[int]) -> str:
    """Spell ranks where they are few ranges, else how many there are.

    >>> name_some_ranks(range(776, 784)), name_some_ranks(range(0, 1024, 8))
    ('ranks 776-783', '128 ranks')
    """
    known = sorted(ranks)
    runs = sum(rank - 1 != before for before, rank in zip([-2, *known], known, strict=False))
    return name_ranks(known) if runs <= _MOST_RUNS else count_things(len(known), "rank")
