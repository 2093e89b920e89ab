"""When each rank of a group was ready for its collectives: a file that the ranks of one machine map into memory.

A link begins to serve a collective when its last rank has issued it and has a free lane for it. The ranks of one
machine have one monotonic clock, so each writes when that was, and reads the others' times once the backend is done,
which it cannot be before all have issued, unless it needs nobody (the root of a broadcast). Ranks of other machines
write to other files; then only what is known here counts.
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

    def put(self, number: int, ready_ns: int) -> None:
        """Say when this rank was ready for collective ``number``, from 1, on the monotonic clock."""
        slot = self._times[number % SLOTS, self._own]
        slot[1] = ready_ns
        slot[0] = number

    def last(self, number: int) -> int:
        """Return when the last rank that said so was ready for it; 0: none did."""
        slot = self._times[number % SLOTS]
        return int(slot[slot[:, 0] == number, 1].max(initial=0))

    def is_complete(self, number: int) -> bool:
        """Tell whether every rank has said so, or has come so far since that its time is overwritten."""
        return bool((self._times[number % SLOTS, :, 0] >= number).all())
