"""The frame of every strategy's program: micro-batches, forward over the blocks, backward back again, the update.

What a strategy issues it issues in ``Hooks``, at the places at which torch's own hooks run::

    forward     enter  before  [before(0) block 0 after(0)]  [before(1) block 1 after(1)] ...  after  leave
    backward    enter  before  [... before(1) block 1 after(1)]  [before(0) block 0 after(0)]  after  leave

Where it is known when in a block's backward each gradient is there, hooks are called at these shares of it, too.
"""

from dataclasses import dataclass
from typing import Protocol

from dtbench.base.vocabulary import Region
from dtbench.prediction.costs import Costs, UnitCosts
from dtbench.prediction.program import Program, ProgramWriter, Request


class Hooks(Protocol):
    """What a strategy does around forward and backward; ``place`` counts blocks in the order of forward."""

    def enter_forward(self) -> None:
        """The root's forward begins."""

    def before_forward(self, place: int) -> None:
        """A block's forward begins."""

    def after_forward(self, place: int) -> None:
        """A block's forward has ended."""

    def leave_forward(self) -> None:
        """The root's forward has ended."""

    def enter_backward(self, *, is_last: bool) -> None:
        """Backward of a micro-batch begins."""

    def reach_blocks(self) -> None:
        """What the root computes after the blocks in forward has its gradients; those of the blocks come next."""

    def before_backward(self, place: int) -> None:
        """A block's backward begins."""

    def within_backward(self, place: int, share: float) -> None:
        """This share of a block's backward is done, below 1: some of its gradients are ready."""

    def after_backward(self, place: int) -> None:
        """A block's gradients are ready."""

    def leave_backward(self) -> None:
        """Backward of a micro-batch has computed everything."""


@dataclass(frozen=True)
class Frame:
    """What a step is apart from its strategy.

    Attributes:
        crossing: what the tensor axis exchanges where a block's products are done: in forward before its known cost, in
            backward after it, but for the first block, of whose input nobody asks the gradient; None: nothing.
        clips: what clipping the gradients exchanges.
    """

    costs: Costs
    micro_batches: int
    crossing: Request | None
    clips: tuple[Request, ...]


def write_step(frame: Frame, hooks: Hooks, writer: ProgramWriter) -> Program:
    """Write one step of one rank."""
    for number in range(frame.micro_batches):
        _write_forward(frame, hooks, writer)
        _write_backward(frame, hooks, writer, is_last=number == frame.micro_batches - 1)
    writer.enter(Region.OPTIMIZER)
    for request in frame.clips:
        writer.wait(writer.issue(request))  # the norm is needed at once, whether its call blocks or not
    writer.host(frame.costs.optimizer_ns)
    return writer.finish()


def _write_forward(frame: Frame, hooks: Hooks, writer: ProgramWriter) -> None:
    writer.enter(Region.FORWARD)
    hooks.enter_forward()
    writer.compute(frame.costs.forward_before_ns)
    for place, unit in enumerate(frame.costs.units):
        hooks.before_forward(place)
        writer.host(unit.forward_host_ns)
        _cross(frame, writer)
        writer.compute(unit.forward_ns)
        hooks.after_forward(place)
    writer.compute(frame.costs.forward_after_ns)
    hooks.leave_forward()


def _write_backward(frame: Frame, hooks: Hooks, writer: ProgramWriter, *, is_last: bool) -> None:
    writer.enter(Region.BACKWARD)
    hooks.enter_backward(is_last=is_last)
    writer.compute(frame.costs.backward_before_ns)
    hooks.reach_blocks()
    for place, unit in reversed(list(enumerate(frame.costs.units))):
        hooks.before_backward(place)
        _compute_backward(place, unit, hooks, writer)
        writer.host(unit.backward_host_ns)
        if place:
            _cross(frame, writer)
        hooks.after_backward(place)
    writer.compute(frame.costs.backward_after_ns)
    hooks.leave_backward()


def _compute_backward(place: int, unit: UnitCosts, hooks: Hooks, writer: ProgramWriter) -> None:
    done_ns = 0
    for share in sorted({one for one in unit.ready if one < 1}):
        until_ns = round(share * unit.backward_ns)
        writer.compute(until_ns - done_ns)
        hooks.within_backward(place, share)
        done_ns = until_ns
    writer.compute(unit.backward_ns - done_ns)


def _cross(frame: Frame, writer: ProgramWriter) -> None:
    """Issue without blocking, and consume the result at once: what DTensor's redistributions come to."""
    if frame.crossing is not None:
        writer.wait(writer.issue(frame.crossing))
