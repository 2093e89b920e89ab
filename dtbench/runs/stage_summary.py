"""What became of a training state: a row for each stage, and what it cost the steps around and beside it."""

from dtbench.base.record import FloatOrNan, IntOrNan, Record
from dtbench.base.vocabulary import Stage, StageOutcome, StatePart
from dtbench.plan.traffic.state import StageTraffic
from dtbench.traces.known_part import KnownPart


class WrongKey(Record):
    """A value of a state dict that came out of a stage other than it went in, on one rank.

    Attributes:
        rank: on which.
        key: of the state dict.
        words: what it was, and what it should be.
    """

    rank: int
    key: str
    words: str


class RaisedOnRank(Record):
    """What torch said on a rank in a stage that it did not finish.

    Attributes:
        rank: which.
        words: what torch said.
    """

    rank: int
    words: str


class StageSummary(Record):
    """One stage that a part of the training state went through after the last step.

    Bytes and counts are None where no rank came to its end (what a stage that raised did before, nobody saw), and where
    some rank does not tell its own.

    Attributes:
        part: of the training state.
        stage: which.
        outcome: what became of it, beside what the scenario knows of it.
        duration_ns: median over rounds of the slowest rank; quartiles likewise; NaN where a rank raised.
        quartile1_ns: first quartile of the same.
        quartile3_ns: third quartile of the same.
        shortest_ns: of the round in which the slowest rank was fastest: what the host had to do and the link takes, and
            least of what else the machine did. NaN where a rank raised.
        wait_ns: how long this rank stood still for collectives, median over rounds: what of them is exposed; what the
            link takes beyond it is hidden. NaN on CUDA, and where a rank raised.
        rounds: of all launches together.
        state_bytes: tensors that one rank was given, or gave; of the rank with most.
        all_ranks_bytes: the same of all ranks together.
        collectives, sent_bytes: of tensors, in one round on one rank, with most; sizes as in nccl-tests. None where
            ranks do not see what they issue: over NCCL without an emulated link.
        planned: what ``dtbench.plan.traffic.state`` says of it; None: nothing.
        matches_plan: every rank sent exactly this in every round; None where nothing is said, or seen.
        object_collectives: the same of Python objects, pickled.
        link_ns: what a link of known cost takes for all of these one after the other, on the rank where it is most; NaN
            on a link whose cost is not known, and where some rank does not tell what it sent.
        file_bytes: of the checkpoint on disk; None for a stage without, NaN where not every rank tells.
        host_peak_bytes: by how much host memory rose while it ran, of the rank where it rose most. None where not every
            rank tells, or one took too few samples for its peak to be among them.
        device_peak_bytes: the same of the device's; None: there is no device.
        mismatches: the first of the keys that came out other than they went in.
        memory_curve: host memory over time in one round, (ns from its start, bytes above its start), of the rank where
            it rose most; a peak may lie between two points.
        mismatched: keys that came out other than they went in, summed over ranks; ``mismatches``: the first of them.
            None where not every rank compared, unless one that did found some.
        raised: on each rank that torch raised on.
        is_steady: no rank is known to have sent other than before in one of its rounds.
        known_part: the launches that these are of, where in others some rank tells nothing of the stage, or of fewer
            rounds; None: of all.
    """

    part: StatePart
    stage: Stage
    outcome: StageOutcome
    duration_ns: FloatOrNan
    quartile1_ns: FloatOrNan
    quartile3_ns: FloatOrNan
    shortest_ns: FloatOrNan
    wait_ns: FloatOrNan
    rounds: int
    state_bytes: IntOrNan
    all_ranks_bytes: IntOrNan
    collectives: IntOrNan
    sent_bytes: IntOrNan
    planned: tuple[StageTraffic, ...] | None
    matches_plan: bool | None
    object_collectives: IntOrNan
    link_ns: FloatOrNan
    file_bytes: int | FloatOrNan | None
    host_peak_bytes: IntOrNan
    device_peak_bytes: int | None
    mismatched: IntOrNan
    mismatches: tuple[WrongKey, ...]
    memory_curve: tuple[tuple[int, int], ...] = ()
    raised: tuple[RaisedOnRank, ...] = ()
    is_steady: bool = True
    known_part: KnownPart | None = None


class StateStepsSummary(Record):
    """What training steps take around a load of the state and beside saves of it; each the slowest rank's, medians.

    Attributes:
        before_ns, first_ns, after_ns: steps before a load, the first one after it, those that follow.
        load_ns: of the load of all parts.
        alone_ns: steps in turns with those beside an asynchronous save.
        beside_ns: of these, the steps that began while the save went on; NaN where none did.
        blocked_ns: how long the call of ``async_save`` kept training waiting.
        saved_ns: from the call until the save was done.
        steps: that were timed after the call of one save; ``in_flight``: how many of these began while it went on.
        in_flight: how many of these steps, in the mean, began while the save went on.
        cost_ns: what one save costs training: how long it blocks, and by how much the steps that began while it went on
            are longer than as many alone of the same round; median over rounds. NaN where its 95 % interval,
            ``cost_low_ns`` to ``cost_high_ns``, holds zero, there was only one round, or not all of it is told.
        cost_low_ns: lower end of the 95 % interval of ``cost_ns``.
        cost_high_ns: upper end of it.
        file_bytes: of one save, all ranks' files together.
        cost_ns_per_mib: ``cost_ns`` over MiB of ``file_bytes``.
        mismatched: keys that were saved other than they were at the call, over all ranks.
        known_part: the launches that these are of, where in others some rank tells nothing of them; None: of all.
    """

    before_ns: FloatOrNan
    load_ns: FloatOrNan
    first_ns: FloatOrNan
    after_ns: FloatOrNan
    alone_ns: FloatOrNan
    beside_ns: FloatOrNan
    blocked_ns: FloatOrNan
    saved_ns: FloatOrNan
    steps: int
    in_flight: FloatOrNan
    cost_ns: FloatOrNan
    cost_low_ns: FloatOrNan
    cost_high_ns: FloatOrNan
    file_bytes: int
    cost_ns_per_mib: FloatOrNan
    mismatched: int
    known_part: KnownPart | None = None
