"""From a scenario and a machine to a plan: ranks, mesh, phases, and what must cross the wire in every step.

Pure arithmetic: no torch, nothing optional left. ``make_plan`` refuses what cannot run, with a sentence that says what
would. The expected traffic is the formula that a run's receipts are held against.
"""

from dtbench.record import Record
from dtbench.vocabulary import Axis, DeviceKind, Operation, Purpose


class MeshAxis(Record):
    """One axis of the device mesh."""

    name: Axis
    size: int


class PlannedTraffic(Record):
    """Collectives per rank and step, summed over equal (purpose, axis, operation); sizes as in nccl-tests."""

    purpose: Purpose
    axis: Axis
    operation: Operation
    count: int
    size_bytes: int


class Plan(Record):
    """What will run, with nothing left to decide.

    Attributes:
        mesh: outermost axis first; empty for the single-process reference.
        data_ranks: groups of ranks that see different rows.
        rows_per_rank: rows of the global batch that one rank computes.
        parameters: of the whole model, tied weights once.
        flops_per_step: floating-point operations of forward and backward over the global batch, by the formula of
            ``dtbench.plan.flops``.
        tokens_per_step: over the global batch.
        traffic: expected per rank in a step after warm-up.
        notes: what a reader of the numbers must know about this machine.
    """

    device: DeviceKind
    backend: str
    mesh: tuple[MeshAxis, ...]
    ranks: int
    data_ranks: int
    rows_per_rank: int
    min_warmup_steps: int
    max_warmup_steps: int
    measured_steps: int
    profiled_steps: int
    stall_timeout_ns: int
    threads_per_rank: int
    parameters: int
    flops_per_step: int
    tokens_per_step: int
    traffic: tuple[PlannedTraffic, ...]
    notes: tuple[str, ...]
