"""What ``state_dict:`` may say: stages that a training state goes through after the last step."""

from typing import Annotated

from pydantic import Field

from dtbench.record import Record
from dtbench.vocabulary import Stage, StatePart


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
    """Times that a stage is timed. One more comes before, which counts as warm-up, and one after, in which peaks of
    memory are sampled."""
    strict: bool = True
    """Loads refuse keys that are missing or not expected (``StateDictOptions``)."""
