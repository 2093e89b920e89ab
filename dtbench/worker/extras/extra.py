"""What an extra is: something that a rank finds out beside training, where the scenario asks for it.

::

    watches   |----------------------------------------------------|
    phases     build   WARMUP   MEASURED   PROFILED
    studies                                          one after one     the unwatched ones
    record                                                        made                   their part is added
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from dtbench.base.record import Record
from dtbench.store.records.rank import RankRecord, Receipt
from dtbench.worker.loop.context import RankContext
from dtbench.worker.loop.train import TrainStep
from dtbench.worker.models.batches import Batches


@dataclass(frozen=True)
class Finding:
    """What an extra found out on this rank.

    Attributes:
        record: see ``store.records.extras.RankExtras``; None: it keeps files of its own.
        receipts: of what was asked for.
    """

    record: Record | None
    receipts: tuple[Receipt, ...] = ()


def _do_nothing() -> None:
    pass


@dataclass(frozen=True)
class Watch:
    """What looks on while a rank trains and while other extras run their steps.

    Attributes:
        context: entered before anything is built, left before the rank's record is made.
        read: says what was seen so far, or in all once the context is left.
        after_step: called after each step of a phase.
    """

    context: AbstractContextManager[object]
    read: Callable[[], Finding]
    after_step: Callable[[], None] = _do_nothing


@dataclass(frozen=True)
class Trained:
    """A rank whose phases are over, as studies find it; they leave it so (``still_steps``).

    Attributes:
        first: number of the first step that is no phase's.
        tell: gives what this rank would tell if it ended now.
    """

    at: RankContext
    step: TrainStep
    batches: Batches
    first: int
    tell: Callable[[], RankRecord]


def _watch_nothing(_at: RankContext) -> Watch | None:
    return None


def _study_nothing(_trained: Trained) -> Finding | None:
    return None


@dataclass(frozen=True)
class Extra:
    """One of them; it looks on, or it runs steps of its own.

    Attributes:
        name: of its record among ``RankExtras``.
        watch: says what looks on; None: nobody asked for it.
        study: runs steps of its own after PROFILED (collective); None: nobody asked for it.
        is_unwatched: its study comes when nobody looks on any more: no watch and no receipt of others knows of it.
    """

    name: str
    watch: Callable[[RankContext], Watch | None] = _watch_nothing
    study: Callable[[Trained], Finding | None] = _study_nothing
    is_unwatched: bool = False
