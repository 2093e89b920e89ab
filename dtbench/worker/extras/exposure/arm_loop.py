"""Blocks of steps in which communication is treated as an arm says; arms take turns.

::

    full removed serial | serial removed full | full removed serial | ...      forth and back: ABBA for two arms
    |----|
    barrier, one step that pays for the switch, then BLOCK_STEPS timed ones, on the same batches in every block

Neither these steps nor their losses are in any table: with a learning rate of 0 they train nothing.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from dtbench.base.vocabulary import Arm, Purpose
from dtbench.store.journal import JournalWriter
from dtbench.store.records.arms import ArmCount
from dtbench.worker.extras.exposure.backward_end import BackwardEnd
from dtbench.worker.extras.exposure.operator_count import count_operators
from dtbench.worker.extras.exposure.wait_clock import WaitClock
from dtbench.worker.loop.clock import StepClock
from dtbench.worker.loop.train import TrainStep
from dtbench.worker.models.batches import Batch
from dtbench.worker.network.carrier import Carrier
from dtbench.worker.recording.recorder import Recorder, summarize_issues


@dataclass(frozen=True)
class Block:
    """What the timed steps of a block left behind.

    Attributes:
        step_ns: duration of each.
        start_ns: when each began.
        stolen_fraction: the share of the machine's cores that other virtual machines had in each; NaN: not known.
        stood_ns: by purpose, how long each stood still, as Python sees it; empty of other arms than ``full``.
        end_ns: how long DDP took after the last node of backward, in each; 0 for other strategies.
        has_nan: a loss was NaN, also of the step before.
    """

    arm: Arm
    step_ns: tuple[int, ...]
    stood_ns: tuple[dict[Purpose, int], ...]
    end_ns: tuple[int, ...]
    stolen_fraction: tuple[float, ...]
    has_nan: bool
    start_ns: tuple[int, ...] = ()


@dataclass(frozen=True)
class Witness:
    """What times and counts a step beside its clock.

    Attributes:
        end: None where no DDP waits in C++.
    """

    waits: WaitClock
    end: BackwardEnd | None

    def begin_step(self) -> None:
        """Start from zero."""
        self.waits.begin_step()
        if self.end is not None:
            self.end.begin_step()


@dataclass(frozen=True)
class ArmLoop:
    """Runs steps of arms.

    Attributes:
        step: that is run, its backward through ``witness.end`` where there is one.
        batches: of a block: one for the step that is not timed, then one for each.
        numbers: of the steps, for the journal.
    """

    step: TrainStep
    batches: Sequence[Batch]
    numbers: Iterator[int]
    recorder: Recorder
    journal: JournalWriter
    clock: StepClock
    carrier: Carrier
    witness: Witness

    def count(self, arm: Arm) -> ArmCount:
        """Count what one step of an arm runs and issues."""
        self._enter(arm)
        with count_operators() as operators:
            self.step.run(self.batches[0])
        self.carrier.arm = None
        return ArmCount(arm=arm, operators=operators.count, traffic=summarize_issues(self.recorder.step_issues()))

    def run_block(self, arm: Arm) -> Block:
        """Run one block of an arm."""
        self.journal.touch(time.time_ns())
        dist.barrier()
        losses: list[Tensor] = []
        stood_ns: list[dict[Purpose, int]] = []
        step_ns: list[int] = []
        start_ns: list[int] = []
        end_ns: list[int] = []
        stolen_fraction: list[float] = []
        for batch in self.batches:
            self._enter(arm)
            self.clock.start()
            losses.append(self.step.run(batch))
            reading = self.clock.stop()
            step_ns.append(reading.duration_ns)
            start_ns.append(reading.start_ns)
            stolen_fraction.append(reading.stolen_fraction)
            stood_ns.append(self.witness.waits.end_step())
            end_ns.append(0 if self.witness.end is None else self.witness.end.duration_ns)
        self.carrier.arm = None
        self.carrier.check()
        step_ns = self.clock.settle() or step_ns
        return Block(
            arm=arm,
            step_ns=tuple(step_ns[1:]),
            stood_ns=tuple(stood_ns[1:]),
            end_ns=tuple(end_ns[1:]),
            stolen_fraction=tuple(stolen_fraction[1:]),
            start_ns=tuple(start_ns[1:]),
            has_nan=bool(torch.stack([loss.isnan().any() for loss in losses]).any()),
        )

    def _enter(self, arm: Arm) -> None:
        """A step begins, in all but its clock."""
        self.journal.enter_step(None, next(self.numbers), time.time_ns())
        self.recorder.begin_step()
        self.witness.begin_step()
        self.carrier.arm = arm
