"""One step of rank 0 of any number of ranks, of which no other is there: ``python -m dtbench.worker.fake_rank``.

Mesh, model, wrappers and training step are those of a real rank; only its collectives move nothing (``fake_group.py``).
What the step issued, in its order, is written as a ``FakeStep``.
"""

import argparse
import os
import resource
import time
from pathlib import Path

import torch
import torch.distributed as dist

from dtbench.base.errors import DtbenchError
from dtbench.store.journal import JournalWriter
from dtbench.store.layout import LaunchFolder
from dtbench.store.records.fake_step import FakeIssue, FakeStep
from dtbench.store.records.run import WorkerOrder
from dtbench.store.write import write_record
from dtbench.worker.__main__ import hide_devices, leave, prepare_process
from dtbench.worker.joining import Rank
from dtbench.worker.loop.context import RankContext
from dtbench.worker.loop.idle_wait import IdleWait
from dtbench.worker.loop.stack import build_stack
from dtbench.worker.loop.store_exchange import StoreExchange
from dtbench.worker.machine.look import MachineLook
from dtbench.worker.network.carrier import Carrier
from dtbench.worker.network.fake_group import join_fake_ranks
from dtbench.worker.recording.recorder import Recorder, summarize_issues

_STEPS = 3
"""The last is told: DDP puts its buckets together anew after the first."""


def main() -> None:
    """Run the order's steps and write what the last one issued."""
    parser = argparse.ArgumentParser(prog="python -m dtbench.worker.fake_rank", description=__doc__)
    parser.add_argument("--order", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    prepare_process()
    hide_devices()
    torch.set_num_threads(1)
    try:
        write_record(asked.output, run_fake_step(WorkerOrder.model_validate_json(asked.order.read_bytes())))
    except DtbenchError as error:
        raise SystemExit(str(error)) from error


def run_fake_step(order: WorkerOrder) -> FakeStep:
    """Train some steps as rank 0 and return what the last one issued."""
    recorder, rank = Recorder(), Rank(0, 0, order.plan.ranks)
    join_fake_ranks(recorder, order.plan.ranks)
    folder = LaunchFolder(Path(order.folder))
    with JournalWriter(folder.journal(0), rank=0, pid=os.getpid(), capacity=1) as journal:
        exchange = StoreExchange(dist.HashStore(), 0, 1)
        stack = build_stack(
            RankContext(
                order=order,
                rank=rank,
                recorder=recorder,
                journal=journal,
                say=lambda _event, _detail: None,
                carrier=Carrier(),
                exchange=exchange,
                idle=IdleWait(exchange, 0, lambda _event, _detail: None, lambda: None),
                others=MachineLook(folder, 0, order.plan.device, []),
                trace=folder.trace(0, time.time_ns()),
            )
        )
        for step in range(_STEPS):
            batch = stack.batches.make(step)
            recorder.begin_step()
            stack.run(batch, None)
    issues = recorder.step_issues()
    return FakeStep(
        traffic=summarize_issues(issues),
        issues=tuple(
            FakeIssue(
                purpose=one.purpose,
                axis=one.axis,
                operation=one.operation,
                size_bytes=one.size_bytes,
                is_async=one.is_async,
                owner=one.owner,
            )
            for one in issues
        ),
        groups=stack.groups,
        cpu_ns=time.process_time_ns(),
        peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


if __name__ == "__main__":
    main()
    leave()
