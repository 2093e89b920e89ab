"""When each rank of a group issued its collectives: a file that the ranks of one machine map into memory.

A link begins to serve a collective when its last rank has issued it. The ranks of one machine have one monotonic clock,
so each writes when it issued, and reads the others' times once the backend is done, which it cannot be before all have
issued. Ranks of other machines write to other files; then only what is known here counts.
"""

import hashlib
import socket
from collections.abc import Sequence
from pathlib import Path

import numpy as np

SLOTS = 1024
"""Collectives of a group that may be in flight at once before a time is overwritten."""


class IssueTimes:
    """The times of one process group."""

    def __init__(self, folder: Path, group: str, ranks: Sequence[int], own: int) -> None:
        """Map the file, which the first rank makes.

        Args:
            folder: that all ranks of this machine see.
            group: torch's name of it.
            ranks: its global ranks.
            own: this rank's place among them.
        """
        name = hashlib.blake2b(repr((socket.gethostname(), group, tuple(ranks))).encode(), digest_size=8).hexdigest()
        self.path = folder / f"{name}.times"
        folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.truncate(SLOTS * len(ranks) * 16)  # zeros: no collective has the number 0
        self._times = np.memmap(self.path, dtype=np.int64, mode="r+", shape=(SLOTS, len(ranks), 2))
        self._own = own

    def put(self, number: int, issue_ns: int) -> None:
        """Say when this rank issued collective ``number``, from 1, on the monotonic clock."""
        slot = self._times[number % SLOTS, self._own]
        slot[1] = issue_ns
        slot[0] = number

    def last(self, number: int) -> int:
        """Give when the last rank that said so issued it; 0: none did."""
        slot = self._times[number % SLOTS]
        return int(slot[slot[:, 0] == number, 1].max(initial=0))
