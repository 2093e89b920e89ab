"""Steps in which results of collectives appear only when waited for: parts of a rank's record."""

from dtbench.base.record import Amount, FloatOrNan, Record
from dtbench.base.vocabulary import Operation, Purpose, Region


class MissedWait(Record):
    """Collectives of a step that were read before they were done; what is not common to all of them is None.

    Attributes:
        purpose: what they were for.
        operation: theirs.
        region: of the step in which they were issued.
        owner: bucket or FSDP unit; None: unknown.
        place: of a single one without owner, among those of a step that are otherwise equal, from 0.
        count: how many collectives fail together.
        was_awaited: somebody waited for each in the end, too late.
    """

    purpose: Purpose | None
    operation: Operation | None
    region: Region | None
    owner: str | None
    place: int | None
    count: Amount
    was_awaited: bool


class CanaryResult(Record):
    """What became of steps in which results of collectives came only when waited for, with poison in place until then.

    Attributes:
        passed: on all ranks, within the tolerances of ``CorrectnessResult``; None: nobody can tell, see ``reason``.
        steps: that were poisoned; each held against one step, equal otherwise, without any delay.
        collectives: withheld in one of them on this rank.
        is_equal: losses and gradients are the same numbers; None where nobody can tell.
        loss_error, gradient_error: largest relative differences on this rank; infinite where a poisoned step had NaN,
            NaN where nobody can tell.
        missed: whose results were read too early, where a step failed.
        reason: why nobody can tell; None: somebody can.
    """

    passed: bool | None
    steps: Amount
    collectives: Amount
    is_equal: bool | None
    loss_error: FloatOrNan
    gradient_error: FloatOrNan
    missed: tuple[MissedWait, ...] = ()
    reason: str | None = None
