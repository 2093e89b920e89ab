"""What a rank sent, over which groups, and what travelled together: parts of a rank's record."""

from dtbench.base.record import Amount, Record
from dtbench.base.vocabulary import Axis, Operation, Purpose


class Traffic(Record):
    """Collectives that one rank issued in one step, summed over equal (purpose, axis, operation).

    Attributes:
        purpose: what they are for.
        axis: of the mesh along which they run; None: of a group beside the mesh.
        operation: theirs.
        count: how many in a step.
        size_bytes: sum of nccl-tests' sizes: whole output of an all-gather, whole input of a reduce-scatter, the tensor
            of an all-reduce or broadcast.
        count_async: of them were issued with ``async_op=True``.
    """

    purpose: Purpose
    axis: Axis | None
    operation: Operation
    count: Amount
    size_bytes: Amount
    count_async: Amount


class ExpectedTraffic(Record):
    """What a rank expects of a purpose in one step, where no plan could say it before the model was built.

    ``count`` is None where it depends on the order in which gradients become ready (DDP's buckets).
    """

    purpose: Purpose
    count: Amount | None
    size_bytes: Amount


class OverlapPossible(Record):
    """Whether collectives of a purpose can run beside compute on this backend with these knobs, and why not."""

    purpose: Purpose
    possible: bool
    reason: str


class ProcessGroupInfo(Record):
    """One process group of a rank.

    Attributes:
        name: that traces carry.
        axis: of the mesh; None: it is beside the mesh.
        backend: what carries its collectives.
        ranks: global ranks, in the group's order.
    """

    name: str
    axis: Axis | None
    backend: str
    ranks: tuple[Amount, ...]


class Carried(Record):
    """Parameters that travel together: those of one DDP bucket or one FSDP unit.

    Attributes:
        owner: as a collective's owner: ``bucket 0``, ``delayed parameters``; the unit's FQN, ``root`` for the root.
        parameters: their FQNs in the order in which they lie in the buffer.
        size_bytes: of their gradients or weights as this rank holds them before it shards; what goes over the wire
            may be padded or of another dtype.
    """

    owner: str
    parameters: tuple[str, ...]
    size_bytes: Amount


class Owned(Record):
    """Whose a collective was, as seen where FSDP asked for it: what an owner read from a trace is held against."""

    group: str
    seq: int
    owner: str
