"""What purposes took at least, where collectives of which it is not known what they were for may have been for them.

::

    device       █b0█ █b1█ ██?██          ?: see ``who/untold.py``
    lane       ████              ███      waited for ?: for gradients, perhaps

What such a one took and was waited for may be that of a purpose, of which what was seen is a bound: it stays. Zero
becomes None, unless what may be added is nothing.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dtbench.base.vocabulary import Purpose
from dtbench.traces.account.purpose_times import PurposeTime
from dtbench.traces.time.intervals import Bools, Ints
from dtbench.traces.time.shares import Shares
from dtbench.traces.who.collectives import Collective
from dtbench.traces.who.untold import Untold


@dataclass(frozen=True)
class Open:
    """What may be of one purpose besides, by window; shape ``(windows,)`` each.

    Attributes:
        is_any: some collective was issued or ran there.
        is_awaited: some of them was waited for, or may have been.
        exposed_ns: their shares.
        hidden_ns: likewise.
        undecided_ns: likewise.
    """

    is_any: Bools
    is_awaited: Bools
    exposed_ns: Ints
    hidden_ns: Ints
    undecided_ns: Ints


def bound_purposes(
    windows: Sequence[tuple[PurposeTime, ...]],
    collectives: Sequence[Collective],
    step_of: Sequence[int | None],
    shares: Shares,
    untold: Untold,
) -> list[tuple[PurposeTime, ...]]:
    """Return the purposes of windows, those of which something may be missing without zeros that may be none.

    Args:
        windows: of the steps and, last, of the whole trace.
        collectives: of the trace.
        step_of: index of the window that issued each; None: none did.
        shares: of these collectives and windows.
        untold: as from ``find_untold``.
    """
    of_purpose = defaultdict[Purpose, list[int]](list)
    for index, may_be in untold.items():
        for purpose in may_be:
            of_purpose[purpose].append(index)
    opened = {purpose: _open(collectives, step_of, shares, mine) for purpose, mine in of_purpose.items()}
    return [bound_window(rows, opened, place) for place, rows in enumerate(windows)] if opened else [*windows]


def place_untold(untold: Untold, step_of: Sequence[int | None], shares: Shares) -> list[frozenset[Purpose]]:
    """Return, for each step, the purposes of which something may be missing there."""
    found = [set[Purpose]() for _ in range(shares.num_windows)]
    issued = ((index, step) for index in untold if (step := step_of[index]) is not None)
    ran = zip(shares.collective.tolist(), shares.window.tolist(), strict=True)
    for index, place in [*issued, *ran]:
        if index in untold and place < shares.num_windows:
            found[place] |= untold[index]
    return [*map(frozenset, found)]


def _open(
    collectives: Sequence[Collective], step_of: Sequence[int | None], shares: Shares, mine: Sequence[int]
) -> Open:
    is_mine = np.zeros(len(collectives), dtype=np.int64)
    is_mine[mine] = 1
    is_awaited = is_mine.copy()
    is_awaited[[index for index in mine if not _is_surely_not_awaited(collectives[index])]] = 2
    count = np.zeros((3, shares.num_windows + 1), dtype=np.int64)
    step = np.array([shares.num_windows if of is None else of for of in step_of], dtype=np.int64)
    np.add.at(count, (is_awaited, step), 1)
    np.add.at(count, (is_awaited[shares.collective], shares.window), 1)
    times_ns = [table[1] for table in shares.sum_by(is_mine, 2)]
    seen, awaited, exposed_ns, hidden_ns, undecided_ns = (
        np.append(row[:-1], row.sum()) for row in (count[1] + count[2], count[2], *times_ns)
    )
    return Open(seen > 0, awaited > 0, exposed_ns, hidden_ns, undecided_ns)


def _is_surely_not_awaited(one: Collective) -> bool:
    is_without = one.first_wait_ns is None or one.first_wait_ns == one.first_wait_end_ns
    return is_without and one.is_wait_seen


def bound_window(rows: tuple[PurposeTime, ...], opened: Mapping[Purpose, Open], place: int) -> tuple[PurposeTime, ...]:
    """Return the purposes of one window without zeros that may be none; ``place``: of the window in ``opened``."""
    kept = {row.purpose: row for row in rows}
    for purpose, more in opened.items():
        if more.is_any[place]:
            kept[purpose] = _bound(kept.get(purpose, _none_of(purpose)), more, place)
    return tuple(kept[purpose] for purpose in Purpose if purpose in kept)


def _none_of(purpose: Purpose) -> PurposeTime:
    return PurposeTime(purpose, count=0, size_bytes=None, unsized=0, comm_ns=0, hidden_ns=0, exposed_ns=0, wait_ns=0)


def _bound(row: PurposeTime, more: Open, place: int) -> PurposeTime:
    """Return a row whose zeros, where there may be more, are not known; what was seen stays, as a bound."""
    undecided_ns, exposed_ns, hidden_ns = (
        int(times_ns[place]) for times_ns in (more.undecided_ns, more.exposed_ns, more.hidden_ns)
    )
    is_awaited = bool(more.is_awaited[place])
    return replace(
        row,
        comm_ns=row.comm_ns or _zero_unless(exposed_ns + hidden_ns + undecided_ns, row.comm_ns),
        hidden_ns=row.hidden_ns or _zero_unless(hidden_ns + undecided_ns, row.hidden_ns),
        exposed_ns=row.exposed_ns or _zero_unless(exposed_ns + undecided_ns, row.exposed_ns),
        wait_ns=row.wait_ns or (None if is_awaited else row.wait_ns),
        is_wait_least=row.is_wait_least or (is_awaited and row.wait_ns is not None),
    )


def _zero_unless(more_ns: int, zero_ns: int | None) -> int | None:
    return None if more_ns else zero_ns
