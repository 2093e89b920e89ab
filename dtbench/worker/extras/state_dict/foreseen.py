"""What a rank's record will be if the stage that it goes into kills it: on disk before, since nobody writes it after.

``dtbench.launch.killed`` makes the rank's record of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from dtbench.base.vocabulary import Stage, StatePart
from dtbench.store.records.rank import RankRecord
from dtbench.store.records.state import ENDED_IN_STAGE, StageRecord
from dtbench.store.write import write_record

_UNHEARD_OF: Final = f"{ENDED_IN_STAGE} (torch {torch.__version__})"


@dataclass(frozen=True)
class Foreseen:
    """The record of a rank that trained, and will go through stages.

    Attributes:
        path: where it is kept.
        record: without any stage.
    """

    path: Path
    record: RankRecord

    def enter(self, earlier: Sequence[StageRecord], part: StatePart, stage: Stage, words: str = _UNHEARD_OF) -> None:
        """Write down that this stage was the last, and what torch said in it, once it has."""
        last = StageRecord(stage=stage, part=part, raised=words)
        write_record(self.path, self.record.model_copy(update={"stages": (*earlier, last)}))

    def leave(self) -> None:
        """All stages are over, or one raised: what comes is written by the rank itself."""
        self.path.unlink(missing_ok=True)
