"""What the extras of the worker found out on a rank: where each has its name and the type of its record."""

from dtbench.base.record import Record
from dtbench.store.records.arms import ArmSteps
from dtbench.store.records.canary import CanaryResult
from dtbench.store.records.lifecycle import LifecycleRecord
from dtbench.store.records.probes import Probes
from dtbench.store.records.state import StageRecord, StateDictRecord


class RankExtras(Record):
    """Of each extra (``dtbench.worker.extras.registered``) its record; None: nobody asked, or the rank ended before."""

    exposure: ArmSteps | None = None
    lifecycle: LifecycleRecord | None = None
    state_dict: StateDictRecord | None = None
    probes: Probes | None = None
    canary: CanaryResult | None = None

    @property
    def stages(self) -> tuple[StageRecord, ...]:
        """The stages that a training state went through; none where nobody asked for any."""
        return self.state_dict.stages if self.state_dict else ()
