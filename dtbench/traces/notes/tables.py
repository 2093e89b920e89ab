"""Which ranks of a launch are in none of its tables, and which tables are not there."""

from dataclasses import dataclass

from dtbench.base.units import count_things, name_ranks
from dtbench.traces.notes.note import Note, OfRanks


@dataclass(frozen=True)
class NoTrace(OfRanks):
    """Ranks of a launch without a trace."""

    def __str__(self) -> str:
        are, they_have = ("is", "it has") if self._is_one else ("are", "they have")
        left_out = f"{name_ranks(self.ranks)} {are} left out"
        return f"{left_out}: {they_have} no trace"


@dataclass(frozen=True)
class TraceUnusable(OfRanks):
    """Ranks of a launch whose traces give nothing, where those of others do."""

    def __str__(self) -> str:
        are, traces = ("is", "its trace") if self._is_one else ("are", "their traces")
        return f"{name_ranks(self.ranks)} {are} left out: {traces} cannot be used"


@dataclass(frozen=True)
class OtherOwners(OfRanks):
    """Collectives of which the worker saw another owner than the trace shows.

    Attributes:
        count: how many.
        known: of how many the worker saw one.
        traced: owner of the first in the trace; empty: none.
        seen: owner of the first that the worker saw.
    """

    count: int
    known: int
    traced: str
    seen: str

    def _words(self) -> str:
        have = "has" if self.count == 1 else "have"
        return (
            f"{self.count} of {count_things(self.known, 'collective')} {have} another owner in the trace than FSDP"
            f" said, the first {self.traced or 'none'} in place of {self.seen}; please report this"
        )


@dataclass(frozen=True)
class TablesGone(Note):
    """Tables that are not there, and for which there is no trace any more."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        files = ", ".join(f"{name}.parquet" for name in self.names)
        return f"{files} cannot be made: the traces of this launch are gone"
