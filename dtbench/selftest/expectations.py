"""What must be found in a row, as data: each kind is judged by one function of ``judge.py``."""

from dataclasses import dataclass

from dtbench.base.vocabulary import Cause, Operation, Purpose


@dataclass(frozen=True)
class Named:
    """The analyser names the injected cause and whose collectives have it.

    Attributes:
        cell: in which it is looked for.
        purpose: of the collectives that were injected; others are not looked at.
        cause: the one with most exposed time among them.
        owners: any of these may have most of it.
        operation: of the owner that has most of it; None: any.
        waited_for: for ``skew``, the rank that is late.
    """

    cell: str
    purpose: Purpose
    cause: Cause
    owners: tuple[str, ...]
    operation: Operation | None = None
    waited_for: int | None = None


@dataclass(frozen=True)
class Counted:
    """A step issues so many collectives of a purpose, of so many bytes in all."""

    cell: str
    purpose: Purpose
    count: int
    size_bytes: int


@dataclass(frozen=True)
class Rebuilt:
    """Step 0 reduces gradients in buckets of these bytes, later steps in those."""

    cell: str
    first_bytes: tuple[int, ...]
    later_bytes: tuple[int, ...]


@dataclass(frozen=True)
class WithoutEffect:
    """A knob is reported as without effect here."""

    cell: str
    knob: str


@dataclass(frozen=True)
class Ordered:
    """Steps of these cells are in the order of the closed form, as far as it tells them apart by more than this."""

    cells: tuple[str, ...]
    apart_ns: int


@dataclass(frozen=True)
class Aligned:
    """The clocks of all ranks, which one machine gives them, are found to agree to this."""

    cell: str
    bound_ns: int


@dataclass(frozen=True)
class ForwardTook:
    """The forward region of MEASURED steps takes what its closed form says, within a fraction of it.

    Attributes:
        unlinked: cell of the same blocks without a link, all gathers but the first ahead; what forward takes there
            beside ``compute_ns`` is the host's, and comes on top of ``expected_ns``.
        expected_ns: with a host that costs nothing.
        compute_ns: of all blocks.
    """

    cell: str
    unlinked: str
    expected_ns: int
    compute_ns: int
    tolerance: float


Expectation = Named | Counted | Rebuilt | WithoutEffect | Ordered | Aligned | ForwardTook
