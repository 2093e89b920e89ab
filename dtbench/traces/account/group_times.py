"""Communication by process group: how much, and how much of it was exposed; one row per window and group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dtbench.base.vocabulary import axis_word
from dtbench.traces.time.shares import Shares
from dtbench.traces.trace import Trace
from dtbench.traces.who.collectives import Collective, count_by


@dataclass(frozen=True)
class GroupTime:
    """One process group in one window.

    ``comm_ns`` is ``hidden_ns + exposed_ns``: both are shares (see ``shares.py``), so that each column adds up over
    groups to the window's account. None: not seen, as in ``PurposeTime``.

    Attributes:
        group: torch's name; empty: collectives whose group the trace does not say, a row of their own.
        axis: what the group's description calls its mesh axis; empty: it says nothing.
        count: collectives issued in the window; for the whole trace, all.
        size_bytes: sum of the sizes that are known; None: of none of them, though there are some.
        unsized: those of them whose size is not known.
        comm_ns: time of the window's communication that is this group's.
        hidden_ns: the part overlapped with compute.
        exposed_ns: the part without.
    """

    group: str
    axis: str
    count: int
    size_bytes: int | None
    unsized: int
    comm_ns: int | None
    hidden_ns: int | None
    exposed_ns: int | None


def describe_groups(trace: Trace) -> dict[str, str]:
    """Return the description of each process group by name, as the trace's header or its events say."""
    said = {
        details.group: details.group_description
        for details in trace.details.values()
        if details.group is not None and details.group_description
    }
    return {**said, **{name: description for name, description in trace.group_descriptions.items() if description}}


def account_groups(
    collectives: Sequence[Collective], step_of: Sequence[int | None], shares: Shares, descriptions: Mapping[str, str]
) -> list[tuple[GroupTime, ...]]:
    """Sum over the collectives of each process group: one entry for each window and, last, one for the whole trace.

    Groups that neither issued nor ran in a window are left out there.

    Args:
        collectives: of the trace.
        step_of: index of the window that issued each; None: none did.
        shares: of these collectives and windows.
        descriptions: description of a group by its name.
    """
    axes = dict.fromkeys((one.group for one in collectives), "")
    axes |= {one.group: str(one.axis) for one in collectives if one.axis is not None}
    axes |= {group: word for group in axes if (word := axis_word(descriptions.get(group)))}
    names = sorted(axes)
    place = {name: index for index, name in enumerate(names)}
    of = np.array([place[one.group] for one in collectives], dtype=np.int64)
    num_windows = shares.num_windows
    tables = [*count_by(collectives, of, step_of, (len(names), num_windows + 1)), *shares.sum_by(of, len(names))]
    columns = [np.column_stack((table[:, :-1], table.sum(axis=1))).T.tolist() for table in tables]
    return [
        tuple(
            row
            for name, *numbers in zip(names, *(column[index] for column in columns), strict=True)
            if (row := _row(name, axes[name], numbers)) is not None
        )
        for index in range(num_windows + 1)
    ]


def _row(group: str, axis: str, numbers: Sequence[int]) -> GroupTime | None:
    count, size_bytes, unsized, seen, exposed_ns, hidden_ns, undecided_ns = numbers
    comm_ns = exposed_ns + hidden_ns + undecided_ns
    if not (count or comm_ns):
        return None
    is_seen = comm_ns > 0 or seen > 0
    is_decided = is_seen and not undecided_ns
    return GroupTime(
        group=group,
        axis=axis,
        count=count,
        size_bytes=None if count and unsized == count else size_bytes,
        unsized=unsized,
        comm_ns=comm_ns if is_seen else None,
        hidden_ns=hidden_ns if is_decided else None,
        exposed_ns=exposed_ns if is_decided else None,
    )
