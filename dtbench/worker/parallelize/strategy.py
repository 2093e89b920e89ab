"""What every strategy gives back, and the one place that picks a strategy for a scenario.

To add a strategy: a record in ``scenario/schema.py``, its mesh in ``plan.py`` and traffic in ``traffic.py``, a file
here that returns a ``Parallelized``, and a case in ``parallelize``. mypy names every ``match`` that lacks it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from dtbench.plan import Plan
from dtbench.scenario.schema import Ddp, Fsdp2, Scenario
from dtbench.store.records import OverlapPossible, Receipt, Traffic
from dtbench.worker.parallelize.ddp import BucketLog, read_ddp_overlap, read_ddp_receipts, wrap_ddp
from dtbench.worker.parallelize.fsdp2 import list_units, read_fsdp2_overlap, read_fsdp2_receipts, wrap_fsdp2


@dataclass(frozen=True)
class Parallelized:
    """A model on its mesh.

    Attributes:
        model: what forward is called on.
        prefix: what the strategy puts before a parameter's FQN.
        units: FQNs of the FSDP units, the root as ``""``; empty for DDP.
        bucket_bytes: DDP's current bucket sizes in order of issue; empty for others.
        read_receipts: ask torch what became of every knob; call it after MEASURED steps.
        read_overlap: say for each purpose whether it can run beside compute here, given a step's traffic as issued
            (empty on NCCL).
    """

    model: nn.Module
    prefix: str
    units: tuple[str, ...]
    bucket_bytes: Callable[[], tuple[int, ...]]
    read_receipts: Callable[[], tuple[Receipt, ...]]
    read_overlap: Callable[[tuple[Traffic, ...]], tuple[OverlapPossible, ...]]


def parallelize(model: nn.Module, mesh: DeviceMesh, scenario: Scenario, plan: Plan) -> Parallelized:
    """Apply the scenario's strategy to a plain, fully initialised model."""
    parallel = scenario.parallel
    match parallel:
        case Ddp():
            wrapped = wrap_ddp(model, mesh, parallel, plan)
            buckets = BucketLog(wrapped.model)
            return Parallelized(
                model=wrapped.model,
                prefix="module.",
                units=(),
                bucket_bytes=buckets.read,
                read_receipts=lambda: read_ddp_receipts(wrapped, parallel),
                read_overlap=lambda traffic: read_ddp_overlap(buckets.read(), traffic),
            )
        case Fsdp2():
            sharded = wrap_fsdp2(model, mesh, parallel)
            return Parallelized(
                model=sharded.model,
                prefix="",
                units=list_units(sharded.model),
                bucket_bytes=tuple,
                read_receipts=lambda: read_fsdp2_receipts(sharded, parallel, plan),
                read_overlap=lambda traffic: read_fsdp2_overlap(parallel, plan, traffic),
            )
