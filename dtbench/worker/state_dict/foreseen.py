"""What a rank's record will be if the stage that it goes into kills it: on disk before, since nobody writes it after.

``dtbench.launch.killed`` makes the rank's record of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from dtbench.store.rank_records import RankRecord
from dtbench.store.state_records import StageRecord
from dtbench.store.write import write_record
from dtbench.vocabulary import Stage, StatePart


@dataclass(frozen=True)
class Foreseen:
    """The record of a rank that trained, and will go through stages.

    Attributes:
        path: where it is kept.
        record: without any stage.
    """

    path: Path
    record: RankRecord

    def enter(self, earlier: Sequence[StageRecord], part: StatePart, stage: Stage) -> None:
        """Write down that this stage was the last."""
        last = StageRecord(stage=stage, part=part, raised=f"the rank ended in this stage (torch {torch.__version__})")
        write_record(self.path, self.record.model_copy(update={"stages": (*earlier, last)}))

    def leave(self) -> None:
        """All stages are over, or one raised: what comes is written by the rank itself."""
        self.path.unlink(missing_ok=True)
