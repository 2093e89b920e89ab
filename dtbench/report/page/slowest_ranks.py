"""Which of many ranks are shown: the slowest, and who the others wait for; the rest as a median and a range."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

from dtbench.base.units import count_things, format_ns
from dtbench.base.vocabulary import Cause

if TYPE_CHECKING:
    from dtbench.runs.summary import CellSummary, RankBreakdown

MOST_RANKS: Final = 16
"""Ranks of many that are shown one by one; ``--json`` has all."""

SUMMED_UP: Final = {"step_ns": "step", "compute_ns": "compute", "exposed_comm_ns": "exposed communication"}
"""What is said of ranks that are not shown one by one."""


def choose_slowest(cell: "CellSummary", most: int = MOST_RANKS) -> tuple[list["RankBreakdown"], list["RankBreakdown"]]:
    """Return the ranks with the longest steps, and who the others wait for longest; and all others; each in order."""
    if len(cell.ranks) <= most:
        return list(cell.ranks), []
    awaited = find_awaited(cell)
    by_length = sorted(cell.ranks, key=lambda row: (-row.step_ns, row.rank))
    late = [row.rank for row in by_length[most:] if row.rank == awaited]
    shown = {*(row.rank for row in by_length[: most - len(late)]), *late}
    return [row for row in cell.ranks if row.rank in shown], [row for row in cell.ranks if row.rank not in shown]


def find_awaited(cell: "CellSummary") -> int | None:
    """Return the rank that most of what is exposed for a late rank waited for; None: it is told of no single one."""
    late = [row for row in cell.owners if row.cause is Cause.SKEW and row.waited_for is not None]
    return max(late, key=lambda row: row.exposed_ns).waited_for if late else None


def say_which(cell: "CellSummary", shown: Sequence["RankBreakdown"], rest: Sequence["RankBreakdown"]) -> str:
    """Say which ranks are shown, and of the rest medians and ranges."""
    awaited, shortest_ns = find_awaited(cell), max(row.step_ns for row in rest)
    late = [row.rank for row in shown if row.rank == awaited and row.step_ns < shortest_ns]
    beside = f" and rank {late[0]}, waited for longest," if late else ""
    which = f"the {len(shown) - len(late)} ranks with the longest steps{beside} of {len(shown) + len(rest)}"
    times = {words: [getattr(row, name) for row in rest] for name, words in SUMMED_UP.items()}
    return f"{which}; {say_rest(len(rest), times)}; --json has all"


def say_rest(count: int, times_ns: Mapping[str, Sequence[float]]) -> str:
    """Say the median and the range of times of ranks that are not shown.

    >>> say_rest(3, {"step": [4_000_000, 2_000_000, 3_000_000]})
    'the other 3 ranks: step 3.00 ms (2.00 ms to 4.00 ms)'

    Args:
        count: of those ranks.
        times_ns: by what they are, of each rank of which it is known.
    """
    spelled = [
        f"{words} {format_ns(median(known))} ({format_ns(min(known))} to {format_ns(max(known))}"
        f"{'' if len(known) == count else f', of {len(known)}'})"
        for words, known in times_ns.items()
        if known
    ]
    return f"the other {count_things(count, 'rank')}: {', '.join(spelled) or 'nothing is known'}"
