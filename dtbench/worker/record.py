"""A rank's record: what its training left behind, asked of live objects when it is made, and what extras found out."""

import os
import socket

from dtbench.store.layout import FORKED_VARIABLE
from dtbench.store.records.place import find_place
from dtbench.store.records.rank import WARMUP_LOSSES, RankRecord, Receipt
from dtbench.worker.loop.capture import read_profiler_receipts
from dtbench.worker.loop.context import RankContext
from dtbench.worker.loop.stack import Stack
from dtbench.worker.loop.train import read_training_receipts
from dtbench.worker.loop.training import Training
from dtbench.worker.machine.environment import read_environment_receipts
from dtbench.worker.machine.process_facts import process_start_unix_ns, read_kernel
from dtbench.worker.models.options import read_compilation
from dtbench.worker.network.link_receipts import read_network_receipts
from dtbench.worker.recording.recorder import bucket_bytes, find_medians, summarize_issues


def make_record(at: RankContext, stack: Stack, training: Training) -> RankRecord:
    """Return what this rank would tell if it ended now, without its extras."""
    parallel, measured = stack.parallel, training.measured
    issues, traffic = measured.issues[-1], summarize_issues(measured.issues[-1])
    losses = [*training.warmup.losses[:WARMUP_LOSSES], *measured.losses, *training.profiled.losses]
    return RankRecord(
        place=find_place(at.folder),
        rank=at.rank.rank,
        host=socket.gethostname(),
        kernel=read_kernel(),
        pid=os.getpid(),
        time_to_first_step_ns=_find_time_to_first_step(at, training),
        memory=training.memory,
        warmup=training.end,
        correctness=training.correctness,
        losses=tuple(float(loss) for loss in losses),
        receipts=_read_receipts(at, stack),
        traffic=traffic,
        planned=stack.planned,
        compilation=None if at.scenario.model.compile is None else read_compilation(),
        traffic_is_stable=len(set(measured.issues)) == 1,
        overlap_possible=parallel.read_overlap(traffic) if at.plan.ranks > 1 else (),
        process_groups=stack.groups,
        region_ns=find_medians(measured.find_undisturbed_regions()),
        bucket_bytes_per_step=(*training.bucket_bytes, bucket_bytes(issues) or parallel.bucket_bytes()),
        fsdp_units=parallel.units,
        carried=parallel.read_carried(),
        owned=tuple(at.recorder.owned),
        stolen_fraction=at.stolen.read_fraction(),
    )


def _read_receipts(at: RankContext, stack: Stack) -> tuple[Receipt, ...]:
    scenario = at.scenario
    carried = at.recorder.count_shared(stack.groups) - at.carrier.removed
    return (
        *stack.parallel.read_receipts(scenario.parallel),
        *read_training_receipts(stack.step, scenario),
        *read_profiler_receipts(at.trace, at.plan.device, scenario.measure.profiler),
        *read_environment_receipts(scenario),
        *read_network_receipts(scenario.network, at.carrier.link, carried),
        *stack.read_receipts(),
    )


def _find_time_to_first_step(at: RankContext, training: Training) -> int | None:
    if FORKED_VARIABLE in os.environ:
        return None
    return training.first_step_unix_ns - (at.order.launched_unix_ns or process_start_unix_ns())
