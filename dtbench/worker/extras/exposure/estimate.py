"""The steps after PROFILED that estimate exposed communication once more, by taking it away and by timing waits.

Where the process group is wrapped, over gloo or behind a link: blocks of steps in arms, then steps for DDP's own
logger. Over NCCL alone the logger only: a Python frame before every collective would cost what is being measured. On
CUDA no clock of the host sees a wait: streams wait, and the trace shows their gaps.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median

from torch.nn.parallel import DistributedDataParallel

from dtbench.base.vocabulary import Arm, DeviceKind, Purpose
from dtbench.machine.disturbance import add_lost
from dtbench.plan.arms import BLOCK_STEPS, choose_arms, order_blocks
from dtbench.store.records.arms import ArmBlock, ArmSteps
from dtbench.store.records.rank import Receipt
from dtbench.worker.extras.exposure.arm_loop import ArmLoop, Block, Witness
from dtbench.worker.extras.exposure.arm_receipt import Evidence, make_arm_receipt
from dtbench.worker.extras.exposure.backward_end import BackwardEnd
from dtbench.worker.extras.exposure.ddp_logger import LoggedBackwards, sampling_every_step
from dtbench.worker.extras.exposure.wait_clock import WaitClock
from dtbench.worker.extras.extra import Finding, Trained
from dtbench.worker.extras.still_steps import hold_weights, sum_weights
from dtbench.worker.loop.clock import StepClock
from dtbench.worker.network.carrier import carry_objects

LOGGED_STEPS = 10
"""At most, for DDP's own logger."""


def estimate_exposure(trained: Trained) -> Finding | None:
    """Run the arms that the scenario asks for, and DDP's logger; None where it wants nothing but the trace.

    Collective: every rank runs the same blocks. The weights stay as they are.
    """
    if set(trained.at.scenario.measure.exposure) <= {"trace"}:
        return None
    return ArmRunner(trained, trained.at.make_clock(1 + BLOCK_STEPS)).run()


@dataclass(frozen=True)
class ArmRunner:
    """Runs a rank's steps in arms."""

    trained: Trained
    clock: StepClock

    def run(self) -> Finding:
        """Let arms take turns as far as estimates need them, then read DDP's logger."""
        at, step = self.trained.at, self.trained.step
        exposure, model = at.scenario.measure.exposure, step.parallel.model
        waits_in_cpp = isinstance(model, DistributedDataParallel)
        arms = choose_arms(exposure, at.plan.device, waits_in_cpp=waits_in_cpp)
        numbers = itertools.count(self.trained.first)
        before = sum_weights(step.parallel.parameters)
        steps, receipts = ArmSteps(blocks=(), counts=()), tuple[Receipt, ...]()
        with hold_weights(step):
            if arms:
                steps, receipt = self._compare(
                    self._make_loop(numbers), arms, lambda: sum_weights(step.parallel.parameters) == before
                )
                receipts = (receipt,)
            if "wait" in exposure and isinstance(model, DistributedDataParallel):
                steps = steps.model_copy(update={"logged_ns": self._run_logged(model, numbers)})
        return Finding(steps, receipts)

    def _make_loop(self, numbers: "itertools.count[int]") -> ArmLoop:
        at, step, waits, end = self.trained.at, self.trained.step, WaitClock(), None
        waits_in_cpp = isinstance(step.parallel.model, DistributedDataParallel)
        if waits_in_cpp and at.plan.device is DeviceKind.CPU:
            end = BackwardEnd(waits, step.parallel.read_sync)
            step = replace(step, run_backward=end.run_backward)
        return ArmLoop(
            step=step,
            batches=[self.trained.batches.make(self.trained.first + place) for place in range(1 + BLOCK_STEPS)],
            numbers=numbers,
            recorder=at.recorder,
            journal=at.journal,
            clock=self.clock,
            carrier=at.carrier,
            witness=Witness(waits, end),
        )

    def _compare(self, loop: ArmLoop, arms: tuple[Arm, ...], has_held: Callable[[], bool]) -> tuple[ArmSteps, Receipt]:
        """Count a step of each arm, then let the arms take turns."""
        at, waits = self.trained.at, loop.witness.waits
        order = order_blocks(arms, at.plan.measured_steps)
        at.say("estimating exposure", f"{len(order)} blocks of {BLOCK_STEPS} steps: {', '.join(arms)}")
        if at.plan.device is DeviceKind.CPU:
            at.carrier.tell = waits.note
        with ExitStack() as patches:
            patches.enter_context(waits.installed())
            patches.enter_context(carry_objects(at.carrier))
            counts = tuple(loop.count(arm) for arm in arms)
            waits.seen = waits.unseen = 0
            blocks = [self._run_block(loop, arm) for arm in order]
        evidence = Evidence(
            exposure=at.scenario.measure.exposure,
            counts=counts,
            nan_arms=frozenset(block.arm for block in blocks if block.has_nan),
            held_weights=has_held(),
            objects=at.carrier.objects,
            seen=waits.seen,
            unseen=waits.unseen,
        )
        ends = loop.witness.end is not None
        records = self._note_taken(blocks, record_blocks(blocks, ends=ends))
        return ArmSteps(blocks=records, counts=counts), make_arm_receipt(evidence)

    def _note_taken(self, blocks: Sequence[Block], records: Sequence[ArmBlock]) -> tuple[ArmBlock, ...]:
        """Add what other processes had of the cores in each step, as far as it was seen."""
        starts_ns = [ns for block in blocks for ns in block.start_ns]
        taken = iter(self.trained.at.find_taken(starts_ns, [ns for block in blocks for ns in block.step_ns]))
        return tuple(
            record.model_copy(update={"taken_fraction": tuple(next(taken) for _ in record.step_ns)})
            for record in records
        )

    def _run_block(self, loop: ArmLoop, arm: Arm) -> Block:
        """Run a block, and again where other virtual machines of the host left too little of it."""
        block = loop.run_block(arm)
        while self.trained.at.idle.wants_again(self._find_lost(block), sum(block.step_ns)):
            block = loop.run_block(arm)
        return block

    def _find_lost(self, block: Block) -> list[float]:
        """Return what others had in each step, as far as it is seen by now and somebody waits for them to go."""
        at = self.trained.at
        if not at.scenario.measure.quiet_timeout_s:
            return list(block.stolen_fraction)
        return add_lost(block.stolen_fraction, at.find_taken(block.start_ns, block.step_ns))

    def _run_logged(self, model: DistributedDataParallel, numbers: "itertools.count[int]") -> tuple[int, ...]:
        at, step = self.trained.at, self.trained.step
        logged = LoggedBackwards(model, step.parallel.read_sync)
        watched = replace(step, run_backward=logged.run_backward)
        steps = 1 + min(at.plan.measured_steps, LOGGED_STEPS)
        at.say("reading DDP's logger", f"{steps} steps")
        batch = self.trained.batches.make(self.trained.first)
        with sampling_every_step(model):
            for _ in range(steps):
                at.journal.enter_step(None, next(numbers), time.time_ns())
                at.recorder.begin_step()
                watched.run(batch)
        return logged.exposed_ns(steps)


def record_blocks(blocks: Sequence[Block], *, ends: bool) -> tuple[ArmBlock, ...]:
    """Return blocks as recorded.

    Args:
        blocks: in the order in which they ran.
        ends: backward ends in DDP's finalisation, which is a wait for gradients, less what it takes without any wait:
            the median of arm ``removed``.
    """
    copies_ns = (
        round(median([ns for block in blocks if block.arm is Arm.REMOVED for ns in block.end_ns])) if ends else 0
    )
    return tuple(
        ArmBlock(
            arm=block.arm,
            step_ns=block.step_ns,
            wait_ns=_sum_waits(block, copies_ns, ends=ends),
            stolen_fraction=block.stolen_fraction,
        )
        for block in blocks
    )


def _sum_waits(block: Block, copies_ns: int, *, ends: bool) -> dict[Purpose, tuple[int, ...]]:
    if block.arm is not Arm.FULL:
        return {}
    steps = [dict(stood) for stood in block.stood_ns]
    if ends:
        for stood, end_ns in zip(steps, block.end_ns, strict=True):
            stood[Purpose.GRAD_REDUCE] = stood.get(Purpose.GRAD_REDUCE, 0) + max(0, end_ns - copies_ns)
    purposes = sorted({purpose for stood in steps for purpose in stood})
    return {purpose: tuple(stood.get(purpose, 0) for stood in steps) for purpose in purposes}
