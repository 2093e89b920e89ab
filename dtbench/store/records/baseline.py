"""What a comparison needs of one side, small enough to keep: a saved baseline outlives the run that it is of.

Times are nanoseconds and, like counts and sizes of what was communicated, means per PROFILED step and rank.
"""

import math
from typing import Annotated, Literal

from pydantic import Field

from dtbench.base.record import FloatOrNan, Record
from dtbench.base.vocabulary import Cause, Operation, Purpose
from dtbench.store.records.rank import Receipt
from dtbench.store.records.run import Environment
from dtbench.store.records.traffic import Traffic


class Measurement(Record):
    """One number of one launch.

    Attributes:
        metric: as ``dtbench.comparison.metrics`` calls it.
        subject: what it is of, a purpose for example; empty: the whole step.
        ranks: over which it is a mean, where it is not known of the others; empty: all of the launch.
    """

    metric: str
    subject: str
    value: FloatOrNan
    ranks: tuple[int, ...] = ()


class OwnedTime(Record):
    """One owner's collectives of one kind; ``owner`` is empty where nobody knows it.

    Times are NaN where what of it was exposed is known in no step, ``duration_ns`` also where one has no start or
    no end; ``ranks`` as of ``Measurement``.

    Attributes:
        size_bytes: per step and rank; NaN: not told of all, or by versions that did not keep it.
        cause: the largest of ``by_cause``; None: nothing is exposed, or causes are no findings.
        by_cause: of the exposed time; empty where ``cause`` is None, and in files of versions that told only that.
    """

    owner: str
    operation: Operation | None
    purpose: Purpose
    count: float
    duration_ns: FloatOrNan
    exposed_ns: FloatOrNan
    cause: Cause | None
    ranks: tuple[int, ...] = ()
    by_cause: dict[Cause, float] = {}
    size_bytes: FloatOrNan = math.nan


class PlacedTime(Record):
    """One collective of a step that has no owner, by its place.

    Attributes:
        duration_ns: NaN: not known of each.
        number: from 1, among those of its group and operation in a step, by issue.
        seq: its sequence number on the group where it first occurs; None: not told.
    """

    group: str
    operation: Operation | None
    purpose: Purpose
    number: int
    seq: int | None
    duration_ns: FloatOrNan
    exposed_ns: float


class KernelRuns(Record):
    """One compute kernel in the steps of traces.

    Attributes:
        name: as in the trace.
        shape: its launch shape; empty: not told.
        count: runs per step and rank.
        median_ns: median over steps of ``medians_ns``.
        medians_ns: of each step: median over its runs, then over ranks.
        fewest: runs in the step of a rank in which it ran least often; None: not told.
        most: likewise, most often.
    """

    name: str
    shape: str
    count: float
    median_ns: float
    medians_ns: tuple[float, ...]
    fewest: int | None = None
    most: int | None = None


class Issued(Record):
    """One collective as it was issued.

    Attributes:
        purpose: None: not told.
        size_bytes: None: not told.
        dtype: of its elements, as torch names it: ``bfloat16``; empty: not told.
        algorithm: as NCCL's kernel is called by: ``RING``, ``TREE``; empty: not told.
        group_size: ranks that take part; None: not told.
    """

    operation: Operation | None
    purpose: Purpose | None
    owner: str
    size_bytes: int | None
    dtype: str = ""
    group_size: int | None = None
    algorithm: str = ""


class RanksOrder(Record):
    """What some ranks issued in most PROFILED steps, in this order; None: no more than half of each one's agree."""

    ranks: Annotated[tuple[int, ...], Field(min_length=1)]
    order: tuple[Issued, ...] | None


class StepsOrder(Record):
    """What ``steps`` of the ``of`` PROFILED steps of each of some ranks issued, where that is not what most did."""

    ranks: Annotated[tuple[int, ...], Field(min_length=1)]
    order: tuple[Issued, ...]
    steps: int
    of: int


class RanksTraffic(Record):
    """What ranks issued in a MEASURED step, where it is other than what the lowest did."""

    ranks: tuple[int, ...]
    traffic: tuple[Traffic, ...]


class MeasuredLaunch(Record):
    """One launch, or the traces of one job.

    Attributes:
        name: by which people find it.
        started_unix_ns: None: not told.
        first_start_ns: of the first step of all ranks, by its machine's clock, the same of a copy; None: not told,
            traces, or by versions that did not keep it.
        round: of equal text for launches of one run that took turns; None: traces.
        traffic: what the lowest rank issued in a MEASURED step; empty where nobody recorded it.
        other_traffic: of ranks that issued other; None: not told, by traces and by versions that looked at the lowest
            rank alone.
        order: what the lowest rank issued in most PROFILED steps, in this order; None: no more than half of them agree,
            or no trace.
        order_ranks: who issued ``order``, the lowest rank first; empty: what others did is not told (by versions that
            looked at the lowest rank alone).
        other_orders: what ranks that are not among these issued.
        unlike_steps: what ranks issued in other steps than most; by versions that did not keep it none.
        receipts: one for each knob, the worst of all ranks.
        is_stable: no rank issued different collectives in different MEASURED steps.
        kernels: compute kernels, of traces of a device; empty: not told.
    """

    name: str
    started_unix_ns: int | None
    round: str | None
    measurements: tuple[Measurement, ...]
    owned: tuple[OwnedTime, ...]
    placed: tuple[PlacedTime, ...]
    traffic: tuple[Traffic, ...]
    order: tuple[Issued, ...] | None
    receipts: tuple[Receipt, ...]
    order_ranks: tuple[int, ...] = ()
    other_orders: tuple[RanksOrder, ...] = ()
    unlike_steps: tuple[StepsOrder, ...] = ()
    is_stable: bool = True
    first_start_ns: int | None = None
    other_traffic: tuple[RanksTraffic, ...] | None = None
    kernels: tuple[KernelRuns, ...] = ()


class Origin(Record):
    """A run that a side is of.

    Attributes:
        scenario: its name.
        run_id: of the run.
        started_unix_ns: when the run began.
    """

    scenario: str
    run_id: str
    started_unix_ns: int


class MeasuredSide(Record):
    """Launches of one thing; also the file of a saved baseline.

    Attributes:
        labels: names for it, the shortest first: the first that tells it from the other side is used.
        settings: fields of the scenario, or what a person's own loop says of itself, dotted, as text; None: traces.
        environment: of the first of its launches that told theirs; None: none did.
        machine: of traces: what each rank's tells of machine, devices and software, by name; empty: it tells none.
        unlike: which launches ran in another environment than the first, and in what they differ, a clause each.
        silent: names of launches that count and did not tell theirs; by versions that did not keep it none.
        launches: that count: complete, and to be trusted.
        notes: what was left out, and why.
        plan_notes: what its plan says of its numbers.
        ranks: of traces: those whose there are; None: all of the job.
        world_size: ranks of the job; None: not told.
        is_one_job: of traces: nothing speaks against their being ranks of one job.
        has_steps: of traces: they tell steps that all ranks have; else all numbers are of whole traces, however long
            these are, or there are none, as ranks have no step in common.
        steps: of traces: how many count, which all ranks with known steps have, of how many that any rank has; None:
            runs, traces without steps, or by versions that did not keep it.
        unseen: collectives that were launched and not seen to run, over launches and ranks: what traces tell is "at
            least" then. Baselines of cells that were saved before this was kept have 0.
        left_out: names of launches that do not count; what they issued is not known.
        doubts: why its PROFILED steps may not stand for others, clauses; where there are any, no row has a cause.
        origins: runs that it is of; empty: traces, and baselines that were saved before this was kept.
    """

    format_version: Literal[1] = 1
    labels: Annotated[tuple[str, ...], Field(min_length=1)]
    paths: tuple[str, ...]
    settings: dict[str, str] | None
    environment: Environment | None
    machine: dict[str, tuple[str, ...]] = {}
    launches: tuple[MeasuredLaunch, ...]
    notes: tuple[str, ...]
    unlike: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    plan_notes: tuple[str, ...] = ()
    ranks: tuple[int, ...] | None = None
    world_size: int | None = None
    is_one_job: bool = True
    has_steps: bool = True
    steps: tuple[int, int] | None = None
    unseen: int = 0
    origins: tuple[Origin, ...] = ()


class MeasuredCell(Record):
    """The numbers of one cell of a run, kept beside it.

    Attributes:
        made_of: a word that is another one as soon as a file changes of which they were made, or the code that did it.
        step_ns: its step time, as its report has it; NaN: none was timed.
        exposed_fraction: of a PROFILED step, its communication that is not hidden; NaN: not known.
        side: its launches as they are compared; the labels and paths are those of when it was made.
    """

    format_version: Literal[1] = 1
    made_of: str
    step_ns: FloatOrNan
    exposed_fraction: FloatOrNan
    side: MeasuredSide
