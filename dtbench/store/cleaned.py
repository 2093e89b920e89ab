"""Why a launch has no traces: `dtbench clean` removed them, which it writes down, or nobody knows."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal

from pydantic import ValidationError

from dtbench.base.record import Amount, Record
from dtbench.base.units import NS_PER_S
from dtbench.store.layout import LaunchFolder


class CleanedTraces(Record):
    """What was removed of a launch.

    Attributes:
        cleaned_unix_ns: when.
        files: how many.
        size_bytes: of all of them.
    """

    format_version: Literal[1] = 1
    cleaned_unix_ns: Amount
    files: Amount
    size_bytes: Amount

    @property
    def date(self) -> str:
        """The day, UTC."""
        return datetime.fromtimestamp(self.cleaned_unix_ns // NS_PER_S, UTC).date().isoformat()


def read_cleaned(folder: LaunchFolder) -> CleanedTraces | None:
    """Return what was removed of a launch; None: nothing was, or it has traces again."""
    if folder.find_traces():
        return None
    with suppress(OSError, ValidationError, OverflowError):
        return CleanedTraces.model_validate_json(folder.cleaned.read_bytes())
    return None


def say_no_trace(folder: LaunchFolder) -> str:
    """Say why a launch has no trace, as a clause."""
    cleaned = read_cleaned(folder)
    if cleaned is None:
        return "no trace is there (deleted, or none was written)"
    return f"no trace is there: `dtbench clean` removed them on {cleaned.date}"
