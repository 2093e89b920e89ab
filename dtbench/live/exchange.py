"""Rows of all ranks, brought together beside training: one small all-gather over a gloo group of its own.

::

    step      ... | N | N+1 | N+2 | ...          a rank gives its row at the end of step N and goes on;
    exchange      |give====heard|                it hears the others' when these have given theirs

No step waits for it. A rank that hears nothing for ``_MOST_PENDING`` exchanges hears itself alone from then on: others
may have left the loop, or take much longer for it.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist

from dtbench.live.account import Place, Row
from dtbench.live.numbers import Rows
from dtbench.worker.user_loop.peers import list_groups

GROUP: Final = "dtbench_monitor"
"""What the group is for, as torch keeps it: a later monitor of the process takes the same one."""
_MOST_PENDING: Final = 4
_PATIENCE_S: Final = 2.0
"""How long the end of a loop waits for rows that are on their way."""
_ALL_GATHER: Final = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # torch 2.13, before


@dataclass(frozen=True)
class _Pending:
    work: Any
    mine: Any
    rows: Any
    kept: Any


class Exchange:
    """Gives this rank's rows to all others and hears theirs.

    Args:
        group: whose ranks they are; None: this process is alone, and hears itself.

    Attributes:
        is_given_up: this rank hears itself alone, since the others did not answer.
    """

    def __init__(self, group: Any = None) -> None:
        self._group = group
        self._size = 1 if group is None else group.size()
        self._pending: deque[_Pending] = deque()
        self.is_given_up = False

    def give(self, row: Row, kept: object) -> None:
        """Begin an exchange; ``kept`` comes back with what is heard."""
        if len(self._pending) >= _MOST_PENDING:
            self.is_given_up, self._group, self._size = True, None, 1
            self._pending.clear()
        mine = torch.tensor(row, dtype=torch.float64)
        rows, work = mine, None
        if self._group is not None:
            rows = torch.empty(self._size * Place.LENGTH, dtype=torch.float64)
            work = _ALL_GATHER(rows, mine, group=self._group, async_op=True)
        self._pending.append(_Pending(work, mine, rows, kept))

    def hear(self) -> tuple[Rows, Any] | None:
        """Return the rows of the oldest exchange that is done, shape ``(ranks, Place.LENGTH)``; None: none is yet."""
        if not self._pending or not _is_done(self._pending[0].work):
            return None
        done = self._pending.popleft()
        return np.asarray(done.rows.numpy()).reshape(self._size, Place.LENGTH), done.kept

    def hear_last(self, sleep: Callable[[float], None] = time.sleep) -> list[tuple[Rows, Any]]:
        """Return all that is still on its way, as far as it comes within ``_PATIENCE_S``."""
        heard = []
        end_s = time.monotonic() + _PATIENCE_S
        while self._pending and time.monotonic() < end_s:
            if (one := self.hear()) is not None:
                heard.append(one)
            else:
                sleep(0.001)
        return heard


def find_group() -> Any:
    """Return the group that carries the rows; every rank asks for it, and no other collective is under way."""
    found = next((group for _, group in list_groups() if group.group_desc == GROUP), None)
    return dist.new_group(backend="gloo", group_desc=GROUP) if found is None else found


def _is_done(work: Any) -> bool:
    """Tell whether an exchange has come to its end; one that failed never does."""
    return work is None or (work.is_completed() and work.is_success())
