"""Lets ranks go on together after one of them raised: they tell each other in the launch's store, not by a collective.

A rank that raised has left its collectives behind; as long as no other rank waits in one, all can end the stage alike
and the launch goes on to its end, with what torch said.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")

_MOST_LETTERS: Final = 600
"""Kept of what torch says."""


class StageRaisedError(Exception):
    """On every rank alike: torch raised on one of them, or on several.

    Attributes:
        words: what it said on this rank; None: it raised elsewhere.
    """

    def __init__(self, words: str | None) -> None:
        super().__init__(words or "another rank raised")
        self.words = words


@dataclass(frozen=True)
class Together:
    """The ranks of a launch, at the same place of the same stage.

    Attributes:
        patience_s: how long a rank that raised waits for the others; who waits for it in a collective does not come.
    """

    store: dist.Store
    rank: int
    ranks: int
    patience_s: float = 10.0
    _number: "itertools.count[int]" = field(default_factory=itertools.count)

    def do(self, act: Callable[[], T]) -> T:
        """Do something on every rank, and give its result where no rank raised.

        Raises:
            StageRaisedError: on every rank, if one raised.
            Exception: what this rank raised, where others wait for it in a collective.
        """
        try:
            result = act()
        except Exception as error:  # whatever torch raises belongs into the table, with its words
            words = describe_error(error)
            if not self._tell(words, timedelta(seconds=self.patience_s)):
                raise
            raise StageRaisedError(words) from error
        if not self._tell("", None):
            raise StageRaisedError(None)
        return result

    def _tell(self, words: str, patience: timedelta | None) -> bool:
        """Tell the others; gives whether all came, and, of a rank that did not raise, whether no other did."""
        topic = f"stage/{next(self._number)}"
        self.store.set(f"{topic}/{self.rank}", words)
        keys = [f"{topic}/{rank}" for rank in range(self.ranks)]
        if patience is not None:
            try:
                self.store.wait(keys, patience)
            except dist.DistStoreError:
                return False
            return True
        return not any(bytes(self.store.get(key)) for key in keys)


def describe_error(error: Exception) -> str:
    """Give what torch said in one line, with its version."""
    words = " ".join(str(error).split())
    shown = words if len(words) <= _MOST_LETTERS else f"{words[:_MOST_LETTERS]}..."
    return f"{type(error).__name__}: {shown} (torch {torch.__version__})"
