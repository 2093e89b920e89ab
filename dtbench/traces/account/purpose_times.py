"""Communication by purpose: how much, how much of it was exposed, how long consumers were blocked; a row per window."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dtbench.base.vocabulary import Purpose
from dtbench.traces.account.waits import Waits, wait_time_ns
from dtbench.traces.time.coverage import Window
from dtbench.traces.time.intervals import Ints
from dtbench.traces.time.shares import Shares
from dtbench.traces.who.collectives import Collective, count_by


@dataclass(frozen=True)
class PurposeTime:
    """One purpose in one window: a row of the table ``purposes`` without rank and step.

    ``comm_ns`` is ``hidden_ns + exposed_ns``: both are shares (see ``shares.py``), so each column adds up over purposes
    to the window's account. What was not seen is None: times of collectives none of which was seen to run, what hid
    them where what computes was not recorded, a wait where none was seen and a consumer of one of them cannot be, or
    where what stood still until one of them had ended may have waited for something else.

    Attributes:
        count: collectives issued in the window; one whose issue is not in the trace counts where it begins. Of several
            windows the mean, which need be no whole number.
        size_bytes: sum of the sizes that are known; None: of none of them, though there are some.
        unsized: those of them whose size is not known.
        wait_ns: time that consumers were seen to stand still.
        is_wait_least: a consumer of one of them cannot be seen, so that the wait is at least this; None: at least 0.
    """

    purpose: Purpose
    count: int | float
    size_bytes: int | None
    unsized: int | float
    comm_ns: int | None
    hidden_ns: int | None
    exposed_ns: int | None
    wait_ns: int | None
    is_wait_least: bool = False


def account_purposes(
    collectives: Sequence[Collective],
    step_of: Sequence[int | None],
    shares: Shares,
    waits: Waits,
    windows: Sequence[Window],
) -> list[tuple[PurposeTime, ...]]:
    """Sum over collectives of equal purpose, for each step and, last, for the whole trace.

    Purposes that neither issued, ran nor were waited for are left out.

    Args:
        collectives: of the trace.
        step_of: index of the window that issued each; None: none did.
        shares: of these collectives and windows.
        waits: of the trace.
        windows: of the steps and, last, the whole trace.
    """
    number = {purpose: index for index, purpose in enumerate(Purpose)}
    purpose_of = np.array([number[collective.purpose] for collective in collectives], dtype=np.int64)
    tables = [
        *count_by(collectives, purpose_of, step_of, (len(number), len(windows))),
        _count_seen([not one.is_wait_seen for one in collectives], purpose_of, step_of, shares),
        _count_seen([one.is_wait_doubtful for one in collectives], purpose_of, step_of, shares),
        *shares.sum_by(purpose_of, len(number)),
    ]
    columns = [np.column_stack((table[:, :-1], table.sum(axis=1))) for table in tables]
    return [
        _account_window([column[:, index] for column in columns], waits, window) for index, window in enumerate(windows)
    ]


def _count_seen(counted: Sequence[bool], purpose_of: Ints, step_of: Sequence[int | None], shares: Shares) -> Ints:
    """Count some collectives by purpose and each window that issued or ran them."""
    table = np.zeros((len(Purpose), shares.num_windows + 1), dtype=np.int64)
    ones = np.array(counted, dtype=np.int64)
    step = np.array([shares.num_windows if of is None else of for of in step_of], dtype=np.int64)
    np.add.at(table, (purpose_of, step), ones)
    np.add.at(table, (purpose_of[shares.collective], shares.window), ones[shares.collective])
    return table


def _account_window(columns: Sequence[Ints], waits: Waits, window: Window) -> tuple[PurposeTime, ...]:
    rows = zip(Purpose, *(column.tolist() for column in columns), strict=True)
    found = []
    for purpose, count, size_bytes, unsized, seen, unwatched, doubtful, exposed_ns, hidden_ns, undecided_ns in rows:
        comm_ns = exposed_ns + hidden_ns + undecided_ns
        wait_ns = wait_time_ns(waits, purpose, window.start_ns, window.end_ns)
        if not (count or comm_ns or wait_ns):
            continue
        is_decided = (comm_ns > 0 or seen > 0 or not count) and not undecided_ns
        found.append(
            PurposeTime(
                purpose=purpose,
                count=count,
                size_bytes=None if count and unsized == count else size_bytes,
                unsized=unsized,
                comm_ns=comm_ns if comm_ns or seen or not count else None,
                hidden_ns=hidden_ns if is_decided else None,
                exposed_ns=exposed_ns if is_decided else None,
                wait_ns=wait_ns if (wait_ns or not unwatched) and not doubtful else None,
                is_wait_least=unwatched > 0 and not doubtful,
            )
        )
    return tuple(found)


def sum_unattributed(collectives: Sequence[Collective], shares: Shares) -> list[int | None]:
    """Sum the exposed time of collectives without an owner, for each step and, last, outside all.

    None where what computes was not recorded, so that it is not known what was exposed.
    """
    has_owner = np.array([bool(collective.owner) for collective in collectives], dtype=np.int64)
    exposed_ns, _, undecided_ns = shares.sum_by(has_owner, 2)
    return [
        None if unknown_ns else int(time_ns)
        for time_ns, unknown_ns in zip(exposed_ns[0], undecided_ns.sum(axis=0), strict=True)
    ]
