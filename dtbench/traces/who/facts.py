"""What a rank's record knows and its trace does not say."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dtbench.base.vocabulary import Purpose
from dtbench.traces.notes.tables import OtherOwners
from dtbench.traces.who.collectives import Collective

if TYPE_CHECKING:
    from dtbench.store.records.rank import (
        RankRecord,  # and with it pydantic and all scenarios: slower than a small trace
    )


@dataclass(frozen=True)
class RankFacts:
    """Told beside a trace; empty for a trace without a run.

    Attributes:
        group_ranks: global ranks of each process group, by torch's name of the group.
        parameters: FQNs that travel together, by their collectives' owner: a DDP bucket's, an FSDP unit's.
        owners: of FSDP's collectives, by group and sequence number, as seen where FSDP asked for them.
        host: machine, whose ranks share a clock; None: not told.
        kernel: of that machine, whose ranks surely do; None: not told.
        pid: of the rank's process, as its host numbers it; None: not told.
    """

    group_ranks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    owners: Mapping[tuple[str, int], str] = field(default_factory=dict)
    host: str | None = None
    kernel: str | None = None
    pid: int | None = None

    @classmethod
    def of(cls, record: "RankRecord") -> "RankFacts":
        """Take them from a record."""
        return cls(
            group_ranks={group.name: group.ranks for group in record.process_groups},
            parameters={carried.owner: carried.parameters for carried in record.carried},
            owners={(owned.group, owned.seq): owned.owner for owned in record.owned},
            host=record.host,
            kernel=record.kernel,
            pid=record.pid,
        )

    def find_other_process(self, processes: Collection[str]) -> str | None:
        """Say which process a trace is of, where that is not the rank's; None: nothing shows that.

        Args:
            processes: numbers of those whose operators the trace has.
        """
        if self.pid is None or not processes or str(self.pid) in processes:
            return None
        of = ", ".join(processes)
        return f"it is of process {of}, and this rank was process {self.pid}: another rank's, or another launch's"

    def find_other_owners(self, collectives: Iterable[Collective]) -> OtherOwners | None:
        """Find where owners read from a trace and those seen by the worker differ, of no rank yet; None: nowhere."""
        known = [(one, self.owners.get((one.group, one.seq))) for one in collectives if one.seq is not None]
        wrong = [(one.owner, told) for one, told in known if told is not None and told != one.owner]
        return OtherOwners((), len(wrong), len(self.owners), *wrong[0]) if wrong else None

    def complete(self, collective: Collective) -> Collective:
        """Fill in what the trace left open about a collective."""
        ranks = collective.group_ranks or self.group_ranks.get(collective.group, ())
        carries = collective.purpose in (Purpose.UNSHARD, Purpose.GRAD_REDUCE)
        parameters = self.parameters.get(collective.owner, ()) if carries else ()
        return replace(
            collective,
            group_ranks=ranks,
            group_size=len(ranks) if collective.group_size is None and ranks else collective.group_size,
            parameters=collective.parameters or parameters,
        )
