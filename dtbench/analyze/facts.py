"""What a rank's record knows and its trace does not say."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dtbench.analyze.collectives import Collective
from dtbench.store.records import RankRecord
from dtbench.vocabulary import Purpose


@dataclass(frozen=True)
class RankFacts:
    """Told beside a trace; empty for a trace without a run.

    Attributes:
        group_ranks: global ranks of each process group, by torch's name of the group.
        parameters: FQNs that travel together, by their collectives' owner: a DDP bucket's, an FSDP unit's.
    """

    group_ranks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, record: RankRecord) -> "RankFacts":
        """Take them from a record."""
        return cls(
            group_ranks={group.name: group.ranks for group in record.process_groups},
            parameters={carried.owner: carried.parameters for carried in record.carried},
        )

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
