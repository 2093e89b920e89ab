"""What is known of a training state's stages before they run: what they send, what a link takes for it, what fails."""

import math
from dataclasses import dataclass

from dtbench.base.torch_versions import read_torch_release
from dtbench.base.vocabulary import DeviceKind, Operation, Stage, StatePart
from dtbench.plan.plan import MeshAxis, Plan
from dtbench.plan.traffic.link import service_ns
from dtbench.plan.traffic.state import StageTraffic, stage_traffic
from dtbench.prediction.wire import group_along
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.scenario.schema.scenario import Scenario
from dtbench.scenario.schema.state_dict import BrokenStage
from dtbench.store.records.run import CellRecord, OwnLoopCell
from dtbench.store.records.state import StageRecord
from dtbench.store.records.traffic import Traffic


@dataclass(frozen=True)
class StagePlan:
    """What a scenario says of its stages.

    Attributes:
        scenario: None for a person's own loop, which has no stages.
        mesh: of the plan, outermost axis first.
        ranks: of the plan: so many tell of a stage, where no record is lost.
        device: of the plan.
        torch: version that the ranks ran; None: not known.
    """

    scenario: Scenario | None
    mesh: tuple[MeshAxis, ...]
    ranks: int
    device: DeviceKind = DeviceKind.CPU
    torch: str | None = None

    @classmethod
    def of(cls, cell: CellRecord | OwnLoopCell, torch: str | None) -> "StagePlan":
        """Return what a cell says of its stages."""
        mesh = cell.plan.mesh if isinstance(cell.plan, Plan) else ()
        return cls(cell.scenario, mesh, cell.plan.ranks, cell.plan.device, torch)

    @property
    def sees_collectives(self) -> bool:
        """Whether ranks saw what they issued: over NCCL nothing stands before it but a link."""
        network = self.scenario.network if self.scenario is not None else None
        return self.device is DeviceKind.CPU or isinstance(network, EmulatedNetwork)

    def find_broken(self, part: StatePart, stage: Stage) -> BrokenStage | None:
        """Return what is known to be broken of a stage; None: nothing."""
        asked = self.scenario.state_dict if self.scenario is not None else None
        return asked.find_broken(part, stage) if asked is not None else None

    def is_known_broken(self, part: StatePart, stage: Stage) -> bool:
        """Tell whether a stage is known to be broken in the torch of these ranks."""
        known = self.find_broken(part, stage)
        return known is not None and self.is_broken_here(known)

    def is_broken_here(self, known: BrokenStage) -> bool:
        """Tell whether what is known to be broken is so in the torch of these ranks; where nobody knows it, yes."""
        if known.since is None or self.torch is None:
            return not self.is_mended_here(known)
        return read_torch_release(self.torch) >= read_torch_release(known.since) and not self.is_mended_here(known)

    def is_mended_here(self, known: BrokenStage) -> bool:
        """Tell whether the torch of these ranks is one in which it is mended; where nobody knows it, no."""
        if known.until is None or self.torch is None:
            return False
        return read_torch_release(self.torch) >= read_torch_release(known.until)

    def find_traffic(self, part: StatePart, stage: Stage) -> tuple[StageTraffic, ...] | None:
        """Return what a stage sends; None where no formula is known."""
        return stage_traffic(self.scenario, part, stage) if self.scenario is not None else None

    def find_link_ns(self, rank: int, record: StageRecord) -> float:
        """Return what the link takes for a rank's collectives of one round, one after the other; NaN: not known.

        Pickled objects count as broadcasts to all ranks; jitter with its mean.
        """
        network = self.scenario.network if self.scenario is not None else None
        if not isinstance(network, EmulatedNetwork) or record.traffic is None or record.object_collectives is None:
            return math.nan
        even = network.model_copy(update={"jitter": None})
        everyone = tuple(range(math.prod(axis.size for axis in self.mesh)))
        total_ns = sum(
            _serve(even, line, group_along(self.mesh, line.axis, rank) if line.axis is not None else everyone)
            for line in record.traffic
        )
        if record.object_collectives:
            if record.object_bytes is None:
                return math.nan
            mean_bytes = record.object_bytes // record.object_collectives
            total_ns += record.object_collectives * service_ns(even, Operation.BROADCAST, mean_bytes, everyone, ("", 0))
        return float(total_ns) if network.jitter is None else total_ns * (1 + network.jitter.fraction / 2)


def _serve(network: EmulatedNetwork, line: Traffic, ranks: tuple[int, ...]) -> int:
    """Return what equal collectives take: cost is linear in size, so that their mean size says it."""
    return line.count * service_ns(network, line.operation, line.size_bytes // line.count, ranks, ("", 0))
