"""The answer of a comparison as one frozen value: what every report, page, notebook and ``--json`` shows.

Ratios are candidate over baseline, fractions are fractions, times nanoseconds; NaN where a number cannot be computed.
"""

from enum import StrEnum
from typing import Final, Literal

from dtbench.base.columns import Better, Unit
from dtbench.base.record import FloatOrNan, Record
from dtbench.base.vocabulary import Cause, Operation, Purpose
from dtbench.runs.environments import EnvironmentChange
from dtbench.store.records.baseline import Origin

FORMAT_VERSION: Final = 1


class Outcome(StrEnum):
    """What can be said of one metric; never more than the launches tell.

    ``BELOW_THRESHOLD`` (there is a difference) and ``NO_DIFFERENCE`` (none was found) claim that what there may be does
    not matter: the interval lies inside the threshold. Where it does not, and no difference that matters was found,
    either is possible: ``NOT_ESTABLISHED``. ``SAME`` is for a number that does not vary (bytes, counts) and is equal;
    ``UNKNOWN`` where a side has no number.
    """

    HIGHER = "higher"
    LOWER = "lower"
    BELOW_THRESHOLD = "differs by less than the threshold"
    NO_DIFFERENCE = "no difference"
    NOT_ESTABLISHED = "not established"
    SAME = "the same"
    NOT_ENOUGH_LAUNCHES = "not enough launches"
    UNKNOWN = "not known"


ESTABLISHED: Final = (Outcome.HIGHER, Outcome.LOWER)
"""Outcomes of which a change is found that matters."""


class KernelOutcome(StrEnum):
    """What can be said of one compute kernel, of these traces alone."""

    LONGER = "longer"
    SHORTER = "shorter"
    BELOW_THRESHOLD = "too small"
    NO_DIFFERENCE = "no difference"
    NOT_ESTABLISHED = "not established"
    SAME = "the same"
    TOO_FEW = "too few steps"
    UNKNOWN = "not known"
    DIFFERENT_WORK = "different work"


class Side(Record):
    """One of the things compared.

    Attributes:
        label: how a person named it, made short: a run, a cell, a baseline's name, a trace.
        paths: what was read.
        launches: that count: complete, and to be trusted; a number that some of them do not tell has NaN for these.
        is_interleaved: its launches took turns with the other side's, in one run.
        left_out: names of its launches that do not count; the notes say why.
        origins: runs that it is of; empty: traces, and baselines that were saved before this was kept.
        torch: its version; empty: not told.
        machine: host, processor and devices; empty: not told.
    """

    label: str
    paths: tuple[str, ...]
    launches: int
    is_interleaved: bool = False
    left_out: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()
    torch: str = ""
    machine: str = ""


class Sample(Record):
    """One metric on one side: a value for each launch, in the order in which they ran; their median.

    Attributes:
        values: of each launch in the order in which they ran; NaN: this one does not tell.
        median: of them.
    """

    values: tuple[FloatOrNan, ...]
    median: FloatOrNan


class MetricChange(Record):
    """One metric on both sides.

    Attributes:
        metric: ``step_time``, ``tokens_per_second``, ``exposed_comm``, ...: a word that ``--fail-if`` takes.
        subject: what it is of: a purpose, or an owner; empty: the whole step.
        unit: of its numbers.
        better: the direction in which it is better.
        baseline: its values there.
        candidate: its values there.
        ratio: of the medians, candidate over baseline.
        low, high: interval of the ratio, 95 % after the correction for the number of metrics tested beside it; NaN
            where so few launches allow none.
        p_value: corrected for the number of metrics tested beside it; NaN where nothing was tested.
        test: by which; None where nothing was tested.
        detectable: smallest relative change that as many launches with this spread would find 8 times of 10.
        outcome: what can be said of the change.
        outliers: launches far from the others of their side, named; they are counted.
    """

    metric: str
    subject: str
    unit: Unit
    better: Better
    baseline: Sample
    candidate: Sample
    ratio: FloatOrNan
    low: FloatOrNan
    high: FloatOrNan
    p_value: FloatOrNan
    test: str | None
    detectable: FloatOrNan
    outcome: Outcome
    outliers: tuple[str, ...] = ()


class MechanismChange(Record):
    """One thing that was done differently: ``what`` (collectives, sizes, order, async flags, a receipt), of whom.

    Attributes:
        what: ``count``, ``size_bytes``, ``dtype``, ``group_size``, ``algorithm``, ``order``, ``async``, ``receipt``.
        subject: a purpose and operation, or a knob.
        ranks: who did it so; empty: the lowest rank, which stands for the others unless these are told of.
        baseline: as text.
        candidate: as text.
    """

    what: str
    subject: str
    ranks: tuple[int, ...] = ()
    baseline: str
    candidate: str


class CollectiveChange(Record):
    """One owner's collectives of one kind on both sides, ns per step and rank: where exposed time came or went.

    Attributes:
        owner: empty: unattributed.
        operation: of the collectives; None: the trace names none.
        purpose: what they were for.
        duration_ns: span, of (baseline, candidate).
        exposed_ns: of (baseline, candidate).
        cause: which makes up most of the change of exposed time; None: none does, or a side does not tell.
        count: collectives per step of (baseline, candidate).
        place: for one without an owner, which of them changed most: its group, number in a step, sequence number.
    """

    owner: str
    operation: Operation | None
    purpose: Purpose
    duration_ns: tuple[FloatOrNan, FloatOrNan]
    exposed_ns: tuple[FloatOrNan, FloatOrNan]
    cause: Cause | None
    count: tuple[FloatOrNan, FloatOrNan]
    place: str = ""


class KernelChange(Record):
    """One compute kernel in the traces of both sides.

    Attributes:
        name: as in the traces.
        shape: its launch shape; empty: not told.
        count: runs per step and rank of (baseline, candidate).
        median_ns: of its runs, of (baseline, candidate); NaN: it did not run.
        ratio: of the medians, candidate over baseline; NaN where they did not do the same work.
        low, high: interval of the ratio over steps, 95 % after the correction for the kernels tested beside it; NaN
            where so few steps allow none.
        outcome: what can be said of the change, of these traces alone.
        is_same_work: both are known to run it equally often in each step, with one launch shape.
    """

    name: str
    shape: str
    count: tuple[float, float]
    median_ns: tuple[FloatOrNan, FloatOrNan]
    ratio: FloatOrNan
    low: FloatOrNan
    high: FloatOrNan
    outcome: KernelOutcome
    is_same_work: bool

    @property
    def change_ns(self) -> float:
        """By how much more of a step its runs took, ns per step and rank."""
        before, after = (count * ns if count else 0.0 for count, ns in zip(self.count, self.median_ns, strict=True))
        return after - before


class SettingChange(Record):
    """One field of the scenario (dotted) in which the sides differ on purpose: a treatment; values as text.

    Attributes:
        field: dotted path in the scenario.
        baseline: its value there.
        candidate: its value there.
    """

    field: str
    baseline: str
    candidate: str


class Comparison(Record):
    """Two sides against each other.

    Attributes:
        baseline: what the other stands against.
        candidate: the other.
        sentence: the answer, as the first line of every report says it.
        clauses: of it, each to be read by itself; the first says how step times differ.
        threshold: relative changes below it do not matter to the person who asks.
        noise_floor: largest relative change of the step time between halves of one side; NaN: too few launches.
        environment: in what machines and software differ.
        mechanism: what was done differently, most telling first; empty: nothing that was seen, which
            is not to say nothing where there are ``mechanism_doubts`` or something is not known.
        metrics: ``step_time`` first.
        collectives: sorted by the change of ``exposed_ns``, whichever way, largest first.
        kernels: compute kernels of traces; those with the same work first, by the time lost per step; empty: not told.
        kernels_left_out: how many more there are, which took less.
        kernels_not_compared: why no kernel of two sides of traces is compared, a sentence; empty: some are, or a side
            is no traces.
        notes: what was left out, and why.
        treatment: in what the scenarios differ.
        is_mechanism_known: both sides say what they communicated.
        mechanism_not_known: what of it some launch does not say: the order, say.
        mechanism_doubts: which launches did otherwise than those that ``mechanism`` is of; then neither what it has nor
            that it has nothing is established.
        left_out: other cells of what was named that could not be compared, and why, a sentence each.
        doubts: why PROFILED steps of a side may not stand for others, a clause each with its label; then no change of
            what they tell is established.
        not_known: metrics of purposes or owners of which a launch may have others than it mentions.
        environment_not_known: of which sides or launches of runs it is not known where they ran, a clause each; then
            whether the environments are alike is not checked, and no bound on a number is kept for sure.
    """

    format_version: Literal[1] = FORMAT_VERSION
    baseline: Side
    candidate: Side
    sentence: str
    clauses: tuple[str, ...]
    threshold: float
    noise_floor: FloatOrNan
    environment: tuple[EnvironmentChange, ...]
    mechanism: tuple[MechanismChange, ...]
    metrics: tuple[MetricChange, ...]
    collectives: tuple[CollectiveChange, ...]
    notes: tuple[str, ...]
    treatment: tuple[SettingChange, ...] = ()
    is_mechanism_known: bool = True
    mechanism_not_known: tuple[str, ...] = ()
    mechanism_doubts: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    not_known: tuple[str, ...] = ()
    environment_not_known: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    kernels: tuple[KernelChange, ...] = ()
    kernels_left_out: int = 0
    kernels_not_compared: str = ""
