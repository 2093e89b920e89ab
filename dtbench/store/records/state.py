"""Stages of a state dict, and steps around a load and beside saves: parts of a rank's record."""

from dtbench.base.record import Amount, AmountOrNan, Record
from dtbench.base.vocabulary import Stage, StatePart
from dtbench.store.records.traffic import Traffic


class StageMismatch(Record):
    """A value that came out of a stage other than it went in, by its key in the state dict, and how it differs."""

    key: str
    words: str


class StageMemory(Record):
    """Peaks of memory while one round of a stage ran, in bytes, and what was there before.

    Attributes:
        host_peak_bytes: resident memory of the process, sampled.
        is_host_peak_kept: the kernel kept it, too; else it is the highest of the samples.
        device_peak_bytes: of the device's allocator; None on CPU.
        samples, sampling_cpu_ns: how often the host's was looked at, the last time after the round, and the CPU time
            which that took.
        at_ns, host_bytes: the host's memory over time from the start of the round, thinned out evenly where it is long.
    """

    host_before_bytes: Amount
    host_peak_bytes: Amount
    device_before_bytes: Amount | None
    device_peak_bytes: Amount | None
    samples: Amount
    sampling_cpu_ns: Amount
    at_ns: tuple[Amount, ...] = ()
    host_bytes: tuple[Amount, ...] = ()
    is_host_peak_kept: bool = False

    @property
    def host_growth_bytes(self) -> int | None:
        """By how much the host's memory rose; None where too few samples lie in the round for its peak to be seen."""
        is_seen = self.is_host_peak_kept or self.samples > LEAST_SAMPLES
        return self.host_peak_bytes - self.host_before_bytes if is_seen else None


LEAST_SAMPLES = 5
"""Of the host's memory in a round: the highest of fewer is no peak."""

ENDED_IN_STAGE = "the rank ended in this stage"
"""What a rank leaves as its words before it goes into a stage, which may be the last that is heard of it."""


class StageRecord(Record):
    """What one rank saw of one stage that a part of the training state went through.

    None, of bytes, counts and collectives: not told, as of a stage that raised.

    Attributes:
        duration_ns: of the call on this rank, one value for each round; empty where a rank raised.
        wait_ns: how long this rank stood still for collectives in each; empty also on CUDA, where only streams wait.
        state_bytes: tensors that this rank was given by the call, or gave to it.
        traffic: collectives of the last round that carried tensors, as issued (empty where the backend is not wrapped).
        traffic_is_stable: every round issued exactly these.
        object_collectives, object_bytes: the same of those that carried Python objects, pickled.
        file_bytes: of the checkpoint on disk, all ranks' files together; None for stages without, see ``FILE_STAGES``.
        memory: None where a rank raised.
        mismatched: how many keys came out wrong in any round; ``mismatches``: the first of them. None where nothing was
            compared: a ``save`` is, by ``read``.
        raised: what torch said on this rank, with its version; None: nothing, or another rank raised.
    """

    stage: Stage
    part: StatePart
    duration_ns: tuple[Amount, ...] = ()
    wait_ns: tuple[Amount, ...] = ()
    state_bytes: AmountOrNan = None
    traffic: tuple[Traffic, ...] | None = None
    traffic_is_stable: bool | None = None
    object_collectives: AmountOrNan = None
    object_bytes: AmountOrNan = None
    file_bytes: Amount | None = None
    memory: StageMemory | None = None
    mismatched: AmountOrNan = None
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

    before_ns: tuple[Amount, ...]
    load_ns: Amount
    first_ns: Amount
    after_ns: tuple[Amount, ...]
    alone_ns: tuple[Amount, ...]
    blocked_ns: tuple[Amount, ...]
    beside_ns: tuple[Amount, ...]
    in_flight: Amount
    saved_ns: tuple[Amount, ...]
    file_bytes: Amount
    mismatched: Amount


class StateDictRecord(Record):
    """What ``state_dict`` asked for.

    Attributes:
        stages: in its order, one part after the other.
        steps: around a load and beside saves; None: none were asked for, or a stage raised before.
        taken_fraction: the share of the cores that other processes had meanwhile; None: nobody looked.
    """

    stages: tuple[StageRecord, ...]
    steps: StateStepsRecord | None = None
    taken_fraction: float | None = None
