"""What a rank has to work with from when it joined the others: the same for its training and for every extra."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import torch
import torch.distributed as dist

from dtbench.machine.stolen_time import StolenTime
from dtbench.plan.plan import Plan
from dtbench.scenario.schema.scenario import Scenario
from dtbench.store.journal import JournalWriter
from dtbench.store.layout import LAUNCHER_VARIABLE, LaunchFolder
from dtbench.store.records.run import WorkerOrder
from dtbench.worker.joining import Rank, make_device
from dtbench.worker.loop.clock import StepClock, make_clock
from dtbench.worker.loop.idle_wait import IdleWait
from dtbench.worker.loop.store_exchange import StoreExchange
from dtbench.worker.machine.accelerator import find_module
from dtbench.worker.machine.look import MachineLook, RankProcess
from dtbench.worker.network.carrier import Carrier
from dtbench.worker.recording.recorder import Recorder


@dataclass(frozen=True)
class RankContext:
    """One rank of a launch.

    Attributes:
        journal: told of each step.
        say: told of each milestone and its detail.
        carrier: of this rank's collectives.
        exchange: where ranks tell each other something without a collective.
        idle: waits for other virtual machines to leave the machine alone.
        others: who else had the machine.
        stolen: what other virtual machines had of it since the rank began.
        trace: where PROFILED steps go.
    """

    order: WorkerOrder
    rank: Rank
    recorder: Recorder
    journal: JournalWriter
    say: Callable[[str, str], None]
    carrier: Carrier
    exchange: StoreExchange
    idle: IdleWait
    others: MachineLook
    trace: Path
    stolen: StolenTime = field(default_factory=StolenTime)

    @classmethod
    def join(
        cls,
        order: WorkerOrder,
        rank: Rank,
        recorder: Recorder,
        journal: JournalWriter,
        say: Callable[[str, str], None],
        carrier: Carrier,
    ) -> Self:
        """Return that of a rank that has joined the process group (collective)."""
        folder = LaunchFolder(Path(order.folder))
        exchange = StoreExchange(find_store(order), rank.rank, order.plan.ranks)
        return cls(
            order=order,
            rank=rank,
            recorder=recorder,
            journal=journal,
            say=say,
            carrier=carrier,
            exchange=exchange,
            idle=IdleWait(exchange, order.scenario.measure.quiet_timeout_s, say, lambda: journal.touch(time.time_ns())),
            others=MachineLook(folder, rank.rank, order.plan.device, _find_processes(exchange)),
            trace=folder.trace(rank.rank, time.time_ns()),
        )

    @property
    def scenario(self) -> Scenario:
        """What is measured."""
        return self.order.scenario

    @property
    def plan(self) -> Plan:
        """What it means on this machine."""
        return self.order.plan

    @property
    def folder(self) -> LaunchFolder:
        """Where results go."""
        return LaunchFolder(Path(self.order.folder))

    @property
    def device(self) -> torch.device:
        """That this rank computes on."""
        return make_device(self.plan, self.rank)

    @property
    def store(self) -> dist.Store:
        """Where the ranks of this launch tell each other what they saw."""
        return find_store(self.order)

    def make_clock(self, steps: int) -> StepClock:
        """Return a clock for so many steps between two times of settling."""
        return make_clock(find_module(self.plan.device), capacity=steps)

    def find_taken(self, starts_ns: Sequence[int], durations_ns: Sequence[int]) -> list[float]:
        """Look who else has the machine now, and return what others had of the cores in each of these steps."""
        self.others.look()
        return self.others.find_taken(starts_ns, durations_ns)


def find_store(order: WorkerOrder) -> dist.Store:
    """Return the part of torch's store that is this launch's."""
    return dist.PrefixStore(f"dtbench/{order.cell}/{order.index}", dist.distributed_c10d._get_default_store())


def _find_processes(exchange: StoreExchange) -> list[RankProcess]:
    """Return the processes of all ranks; none where a launcher looks at them."""
    if LAUNCHER_VARIABLE in os.environ:
        return []
    told = exchange.exchange("process", RankProcess.find().model_dump_json())
    return [RankProcess.model_validate_json(one) for one in told]
