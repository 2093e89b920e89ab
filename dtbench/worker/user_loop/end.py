"""How a person's own loop ended, as all ranks together say it: rank 0 hears them one after another."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from dtbench.base.errors import StoreError
from dtbench.store.journal import read_journal
from dtbench.store.layout import LaunchFolder
from dtbench.worker.user_loop.peers import Peers

PATIENCE: Final = timedelta(minutes=5)
"""How long rank 0 waits, at the end, for a rank that shows nothing."""


def hear_reasons(peers: Peers, launch: LaunchFolder) -> Iterator[str]:
    """Yield what each rank but 0 says of its end, in their order; empty: it saw all its steps."""
    for rank in range(1, peers.size):
        said = peers.hear_left(rank, PATIENCE)
        silent = f"said nothing for {PATIENCE.seconds} s; it was last in {_find_place(launch, rank)}"
        yield silent if said is None else said


def _find_place(launch: LaunchFolder, rank: int) -> str:
    with suppress(StoreError):
        view = read_journal(launch.journal(rank))
        if view is not None and view.step is not None:
            return f"step {view.step} ({view.phase}, {view.region or 'between regions'})"
    return "no step"


def join_reasons(reasons: Sequence[str]) -> str | None:
    """Put what the ranks say into one text, equal words once; None: every rank saw all its steps.

    >>> join_reasons(["", "the loop ended"])
    'rank 1: the loop ended'
    """
    ranks: dict[str, list[int]] = {}
    for rank, reason in enumerate(reasons):
        if reason:
            ranks.setdefault(reason, []).append(rank)
    if any(len(saying) == len(reasons) for saying in ranks.values()):
        return reasons[0]
    lines = [
        f"rank{'s' if len(saying) > 1 else ''} {', '.join(map(str, saying))}: {reason}"
        for reason, saying in ranks.items()
    ]
    return "\n".join(lines) or None
