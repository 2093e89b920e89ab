"""Stages of a state dict, and steps around a load and beside saves: parts of a rank's record."""

from dtbench.record import IntOrNan, Record
from dtbench.store.traffic_records import Traffic
from dtbench.vocabulary import Stage, StatePart


class StageMismatch(Record):
    """A value that came out of a stage other than it went in, by its key in the state dict, and how it differs."""

    key: str
    words: str


class StageMemory(Record):
    """Peaks of memory while one round of a stage ran, in bytes, and what was there before.

    Attributes:
        host_peak_bytes: resident memory of the process, sampled.
        device_peak_bytes: of the device's allocator; None on CPU.
        samples, sampling_cpu_ns: how often the host's was looked at, and the CPU time which that took.
        at_ns, host_bytes: the host's memory over time from the start of the round, thinned out evenly where it is long.
    """

    host_before_bytes: int
    host_peak_bytes: int
    device_before_bytes: int | None
    device_peak_bytes: int | None
    samples: int
    sampling_cpu_ns: int
    at_ns: tuple[int, ...] = ()
    host_bytes: tuple[int, ...] = ()


ENDED_IN_STAGE = "the rank ended in this stage"
"""What a rank leaves as its words before it goes into a stage, which may be the last that is heard of it."""


class StageRecord(Record):
    """What one rank saw of one stage that a part of the training state went through.

    Attributes:
        duration_ns: of the call on this rank, one value for each round; empty where a rank raised.
        wait_ns: how long this rank stood still for collectives in each; empty also on CUDA, where only streams wait.
        state_bytes: tensors that this rank was given by the call, or gave to it.
        traffic: collectives of the last round that carried tensors, as issued (empty where the backend is not wrapped).
        traffic_is_stable: every round issued exactly these.
        object_collectives, object_bytes: the same of those that carried Python objects, pickled.
        file_bytes: of the checkpoint on disk, all ranks' files together; None for stages without.
        memory: None where a rank raised.
        mismatched: how many keys came out wrong in any round; ``mismatches``: the first of them. None where nothing was
            compared: a ``save`` is, by ``read``.
        raised: what torch said on this rank, with its version; None: nothing, or another rank raised.
    """

    stage: Stage
    part: StatePart
    duration_ns: tuple[int, ...] = ()
    wait_ns: tuple[int, ...] = ()
    state_bytes: int = 0
    traffic: tuple[Traffic, ...] = ()
    traffic_is_stable: bool = True
    object_collectives: int = 0
    object_bytes: int = 0
    file_bytes: int | None = None
    memory: StageMemory | None = None
    mismatched: IntOrNan = 0
    mismatches: tuple[StageMismatch, ...] = ()
    raised: str | None = None


class StateStepsRecord(Record):
    """How long a rank's training steps took around a load of its state and beside saves of it; a learning rate of 0.

    Attributes:
        before_ns, first_ns, after_ns: steps before the load, the first one after it, and those that follow.
        load_ns: of the load.
        alone_ns, beside_ns: steps in turns without and beside an asynchronous save, all rounds together.
        blocked_ns: of each round, how long the call of ``async_save`` kept training waiting.
        in_flight: steps of ``beside_ns`` that began while a save went on.
        saved_ns: of each round, from the call until the save was done.
        file_bytes: of one save, all ranks' files together.
        mismatched: keys of all saves that were not as they were at the call.
    """

    before_ns: tuple[int, ...]
    load_ns: int
    first_ns: int
    after_ns: tuple[int, ...]
    alone_ns: tuple[int, ...]
    blocked_ns: tuple[int, ...]
    beside_ns: tuple[int, ...]
    in_flight: int
    saved_ns: tuple[int, ...]
    file_bytes: int
    mismatched: int
