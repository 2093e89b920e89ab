"""The milestones of a rank, beside its journal: what it did when, in words."""

import time
from pathlib import Path

from dtbench.base.errors import StoreError
from dtbench.base.redaction import redact_text
from dtbench.store.journal import JournalWriter
from dtbench.store.records.run import EventLine


class Events:
    """Milestones of this rank as JSON lines; each is a sign of life too."""

    def __init__(self, path: Path, journal: JournalWriter) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._journal = path, journal

    def say(self, event: str, detail: str = "") -> None:
        """Append one line, without secrets of an error's words; called between steps only.

        Raises:
            StoreError: the disk is full.
        """
        now = time.time_ns()
        line = EventLine(unix_ns=now, monotonic_ns=time.monotonic_ns(), event=event, detail=redact_text(detail))
        self._journal.touch(now)
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line.model_dump_json() + "\n")
        except OSError as error:
            raise StoreError(f"{self._path}: cannot be written ({error.strerror}); free some space") from error
