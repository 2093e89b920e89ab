"""Communication by purpose: how much, how much of it was exposed, how long consumers stood still; a row per window."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dtbench.analyze.collectives import Collective
from dtbench.analyze.coverage import Window
from dtbench.analyze.intervals import Ints
from dtbench.analyze.shares import Shares
from dtbench.analyze.waits import Waits, wait_time_ns
from dtbench.vocabulary import Purpose


@dataclass(frozen=True)
class PurposeTime:
    """One purpose in one window: a row of ``tables.PURPOSES`` without rank and step.

    ``comm_ns`` is ``hidden_ns + exposed_ns``: both are shares (see ``shares.py``), so each column adds up over purposes
    to the window's account.
    """

    purpose: Purpose
    count: int
    size_bytes: int
    comm_ns: int
    hidden_ns: int
    exposed_ns: int
    wait_ns: int


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
    steps = len(windows) - 1
    number = {purpose: index for index, purpose in enumerate(Purpose)}
    purpose_of = np.array([number[collective.purpose] for collective in collectives], dtype=np.int64)
    # Like time outside all windows, what was issued outside all steps has the last column.
    step = np.array([steps if of is None else of for of in step_of], dtype=np.int64)
    size_bytes = np.array([collective.size_bytes or 0 for collective in collectives], dtype=np.int64)
    shape = (len(number), steps + 1)
    count, size = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    np.add.at(count, (purpose_of, step), 1)
    np.add.at(size, (purpose_of, step), size_bytes)
    tables = [count, size, *shares.sum_by(purpose_of, len(number))]
    columns = [np.column_stack((table[:, :-1], table.sum(axis=1))) for table in tables]
    return [
        _account_window([column[:, index] for column in columns], waits, window) for index, window in enumerate(windows)
    ]


def _account_window(columns: Sequence[Ints], waits: Waits, window: Window) -> tuple[PurposeTime, ...]:
    rows = zip(Purpose, *(column.tolist() for column in columns), strict=True)
    found = [
        PurposeTime(
            purpose=purpose,
            count=count,
            size_bytes=size_bytes,
            comm_ns=exposed_ns + hidden_ns,
            hidden_ns=hidden_ns,
            exposed_ns=exposed_ns,
            wait_ns=wait_time_ns(waits, purpose, window.start_ns, window.end_ns),
        )
        for purpose, count, size_bytes, exposed_ns, hidden_ns in rows
    ]
    return tuple(one for one in found if one.count or one.comm_ns or one.wait_ns)


def sum_unattributed(collectives: Sequence[Collective], shares: Shares) -> list[int]:
    """Sum the exposed time of collectives without an owner, for each step and, last, outside all."""
    has_owner = np.array([bool(collective.owner) for collective in collectives], dtype=np.int64)
    return [int(time_ns) for time_ns in shares.sum_by(has_owner, 2)[0][0]]
