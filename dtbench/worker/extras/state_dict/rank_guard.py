"""Lets ranks go on together after one of them raised: they tell each other in the launch's store, not by a collective.

A rank that raised has left its collectives behind. If others wait for it in one, it closes its connections, so that
they raise, too; then all end the stage alike, and the launch goes on to its end without collectives, with what torch
said::

    rank 0    raises ── tells ── waits ── closes ─────────── all have told: StageRaisedError
    rank 1    in a collective ................ raises ── tells: StageRaisedError

Where that does not free them (over NCCL a kernel that waits for a rank of the same machine does not see its
communicator go), the rank that raised ends with ``StageStuckError``, and the launcher ends the others.
"""

import gc
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, TypeVar

import torch
import torch.distributed as dist

from dtbench.worker.network.named_gloo import Group

T = TypeVar("T")

_MOST_LETTERS: Final = 600
"""Kept of what torch says."""
_PATIENCE_S: Final = 10.0
_PART_OF_STALL: Final = 0.25
"""Of the silence after which the launcher takes ranks for hung, twice the patience is the half."""


class StageRaisedError(Exception):
    """On every rank alike: torch raised on one of them, or on several.

    Attributes:
        words: what it said on this rank; None: it raised elsewhere.
    """

    def __init__(self, words: str | None) -> None:
        super().__init__(words or "another rank raised")
        self.words = words


class StageStuckError(Exception):
    """On a rank on which torch raised: others wait for it in what it could not close."""


@dataclass(frozen=True)
class RankGuard:
    """The ranks of a launch, at the same place of the same stage.

    Attributes:
        close: closes this rank's connections to all others.
        patience_s: how long a rank that raised waits for the others; who waits for it in a collective does not come.
    """

    store: dist.Store
    rank: int
    ranks: int
    close: Callable[[], None]
    patience_s: float = _PATIENCE_S
    _number: "itertools.count[int]" = field(default_factory=itertools.count)

    def do(self, act: Callable[[], T]) -> T:
        """Do something on every rank, and give its result where no rank raised.

        Raises:
            StageRaisedError: on every rank, if one raised.
            StageStuckError: on a rank that raised, where others do not come although its connections are closed.
        """
        try:
            result = act()
        except Exception as error:  # whatever torch raises belongs into the table, with its words
            words = describe_error(error)
            keys = self._tell(words)
            if not self._waits_for(keys):
                self.close()
                if not self._waits_for(keys):
                    raise StageStuckError(words) from error
            raise StageRaisedError(words) from error
        if any(bytes(self.store.get(key)) for key in self._tell("")):
            raise StageRaisedError(None)
        return result

    def _tell(self, words: str) -> list[str]:
        """Tell the others; gives where all tell."""
        topic = f"stage/{next(self._number)}"
        self.store.set(f"{topic}/{self.rank}", words)
        return [f"{topic}/{rank}" for rank in range(self.ranks)]

    def _waits_for(self, keys: list[str]) -> bool:
        """Wait for the others, as long as patience lasts; gives whether all came."""
        try:
            self.store.wait(keys, timedelta(seconds=self.patience_s))
        except dist.DistStoreError:
            return False
        return True


def find_patience_s(stall_timeout_s: float) -> float:
    """Return how long a rank that raised may wait for the others before the launcher takes them all for hung."""
    return min(_PATIENCE_S, _PART_OF_STALL * stall_timeout_s)


def close_groups() -> None:
    """Close this rank's connections in every process group: who waits for it in a collective is told so at once."""
    for group in list(dist.distributed_c10d._world.pg_map):
        if isinstance(group, Group):
            group.abandon()
        else:
            group.abort()
    gc.collect()


def describe_error(error: Exception) -> str:
    """Return what torch said in one line, with its version."""
    words = " ".join(str(error).split())
    shown = words if len(words) <= _MOST_LETTERS else f"{words[:_MOST_LETTERS]}..."
    return f"{type(error).__name__}: {shown} (torch {torch.__version__})"
