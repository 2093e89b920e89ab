"""What one step of one rank issued where no other rank was there."""

from typing import Literal

from dtbench.base.record import Record
from dtbench.base.vocabulary import Axis, Operation, Purpose
from dtbench.store.records.traffic import ProcessGroupInfo, Traffic


class FakeIssue(Record):
    """One collective.

    Attributes:
        purpose: what it is for.
        axis: of the mesh along which it runs; None: of a group beside the mesh.
        operation: which it is.
        size_bytes: as in nccl-tests.
        is_async: it was issued with ``async_op=True``.
        owner: DDP's bucket; empty where nothing tells.
    """

    purpose: Purpose
    axis: Axis | None
    operation: Operation
    size_bytes: int
    is_async: bool
    owner: str


class FakeStep(Record):
    """A step of rank 0.

    Attributes:
        traffic: summed, to be held against a plan.
        issues: one by one, in the order of issue.
        groups: this rank's process groups.
        cpu_ns: of the whole process.
        peak_memory_bytes: likewise.
    """

    format_version: Literal[1] = 1
    traffic: tuple[Traffic, ...]
    issues: tuple[FakeIssue, ...]
    groups: tuple[ProcessGroupInfo, ...]
    cpu_ns: int
    peak_memory_bytes: int
