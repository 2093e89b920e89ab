"""What ``state_dict:`` may say: stages that a training state goes through after the last step."""

from typing import Annotated

from pydantic import Field

from dtbench.base.record import Record
from dtbench.base.vocabulary import MODEL_STAGES, OPTIMIZER_STAGES, Stage, StatePart


class BrokenStage(Record):
    """A stage that is known to be broken in torch: it raises, kills a rank or hangs, or what comes out of it is wrong.

    The run is in order if it ends so, and says it where it does not any more. A stage that raises is a launch's last.
    """

    part: StatePart
    """Of what."""
    stage: Stage
    """One of ``stages``."""
    says: Annotated[str, Field(min_length=4)]
    """Part of torch's message, or of what is said of a wrong value; ``killed by SIGSEGV`` or ``hung`` of a rank."""
    since: Annotated[str, Field(pattern=r"^\d+\.\d+$")] | None = None
    """First torch that is broken so, ``"2.13"``: in an older one the stage may work. Left out: all are."""
    until: Annotated[str, Field(pattern=r"^\d+\.\d+$")] | None = None
    """First torch that is mended, ``"2.14"``: from it on the stage must work. Left out: none is."""


class StateDict(Record):
    """After the PROFILED steps the training state goes through stages, each timed on every rank.

    What comes out of a stage, and what the model holds after a load, is compared bit by bit with what the model held
    before.
    """

    stages: tuple[Stage, ...]
    """In this order; each is one call of torch's public functions (``torch.distributed.checkpoint``)."""
    parts: tuple[StatePart, ...] = (StatePart.MODEL, StatePart.OPTIMIZER)
    """Of what; each part goes through a stage on its own."""
    rounds: Annotated[int, Field(ge=1, le=1_000)] = 5
    """Times that a stage is timed, a whole pass over all stages apart: what else a machine does comes in bursts. In the
    first pass one more comes before, which counts as warm-up, and one after, in which peaks of memory are sampled."""
    strict: bool = True
    """Loads refuse keys that are missing or not expected (``StateDictOptions``)."""
    steps: Annotated[int, Field(ge=0, le=1_000)] = 0
    """Training steps, with a learning rate of 0, that are timed before and after a load of all parts, and beside an
    asynchronous save of them (``async_save``), in as many rounds; 0: none."""
    broken: tuple[BrokenStage, ...] = ()
    """Stages that are known to be broken in torch."""

    def find_stages(self, part: StatePart) -> tuple[Stage, ...]:
        """Return the stages that a part goes through, in their order."""
        others = MODEL_STAGES if part is StatePart.OPTIMIZER else OPTIMIZER_STAGES
        return tuple(stage for stage in self.stages if stage not in others)

    def find_broken(self, part: StatePart, stage: Stage) -> BrokenStage | None:
        """Return what is known of a stage; None: that it works."""
        return next((one for one in self.broken if (one.part, one.stage) == (part, stage)), None)
