"""When each rank of a group was ready for its collectives: a file that the ranks of one machine map into memory.

A link begins to serve a collective when its last rank has issued it and has a free lane for it. The ranks of one
machine have one monotonic clock, so each writes when that was, and reads the others' times once the backend is done,
which it cannot be before all have issued, unless it needs nobody (the root of a broadcast). Ranks of other machines
write to other files; then only what is known here counts.
"""

import errno
import hashlib
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dtbench.base.errors import StoreError

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
        _make_zeros(self.path, SLOTS * len(ranks) * 16)  # no collective has the number 0
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


def _make_zeros(path: Path, size: int) -> None:
    """Make a file of zeros that has its room on the disk: into a hole, a full disk would be a SIGBUS, and no error.

    What other ranks have written to it meanwhile stays.

    Raises:
        StoreError: the disk is full.
    """
    try:
        with path.open("ab") as file:
            file.truncate(size)
        if hasattr(os, "posix_fallocate"):
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system that cannot tell
            raise StoreError(f"{path}: cannot be written ({error.strerror}); free some space") from error
