"""Several training iterations in a step, under ``join`` where ranks have unequally many.

::

    rank 0   |iteration 0|iteration 1|shadow of 2|      its rows are cut into 3 parts; it trains on two of them
    rank 1   |iteration 0|iteration 1|iteration 2|      and answers the collectives of the third with zeros
    one step |-----------------------------------| weights of the last rank broadcast

The step's loss on a rank is the sum of its iterations' mean losses over the number of parts. Gradients that are checked
are those of iteration 0, which every rank has.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from dtbench.scenario.schema.scenario import Ddp, Scenario
from dtbench.store.records.rank import Receipt
from dtbench.worker.loop.train import TrainStep
from dtbench.worker.models.batches import Batch
from dtbench.worker.receipts import compare

RunStep = Callable[[Batch, Callable[[], None] | None], Tensor]
"""Train on one batch: see ``TrainStep.run``."""


@dataclass
class Iterations:
    """One rank's part of such steps.

    Attributes:
        asked: iterations of each rank.
        rank: which of them this one is.
        ran: iterations of the last step.
    """

    step: TrainStep
    asked: tuple[int, ...]
    rank: int
    ran: int = 0

    def run(self, batch: Batch, after_backward: Callable[[], None] | None = None) -> Tensor:
        """Train on this rank's parts of the batch, then shadow the others'; gives the step's loss, unread."""
        self.ran = 0
        losses = []
        with self.step.parallel.join():
            for part in batch.split(max(self.asked))[: self.asked[self.rank]]:
                losses.append(self.step.run(part, after_backward if self.ran == 0 else None))
                self.ran += 1
        return torch.stack(losses).sum() / max(self.asked)

    def read_receipts(self) -> Iterator[Receipt]:
        """Compare with what the last step ran."""
        asked = self.asked[self.rank]
        yield compare("data.iterations", self.asked, self.ran, expected=asked, note=f"of rank {self.rank}")


@dataclass(frozen=True)
class WholeIterations:
    """The same steps in the single process: in each iteration the rows of all ranks that still have some.

    Attributes:
        divides_by_all: gradients are divided by all ranks, not by those that still have rows.
    """

    step: TrainStep
    asked: tuple[int, ...]
    divides_by_all: bool

    def run(self, batch: Batch, after_backward: Callable[[], None] | None = None) -> Tensor:
        """Train on the parts of all ranks; gives the mean over ranks of the step's loss."""
        shares = [share.split(max(self.asked)) for share in batch.split(len(self.asked))]
        losses = []
        for place in range(max(self.asked)):
            parts = [parts[place] for parts, count in zip(shares, self.asked, strict=True) if place < count]
            weight = len(parts) / len(self.asked)
            step = self._weigh(weight) if self.divides_by_all else self.step
            loss = step.run(_join_parts(parts), after_backward if place == 0 else None)
            losses.append(loss if self.divides_by_all else weight * loss)
        return torch.stack(losses).sum() / max(self.asked)

    def _weigh(self, weight: float) -> TrainStep:
        compute_loss = self.step.built.compute_loss
        weighed = replace(self.step.built, compute_loss=lambda output, batch: weight * compute_loss(output, batch))
        return replace(self.step, built=weighed)


def _join_parts(parts: list[Batch]) -> Batch:
    return Batch(pytree.tree_map(lambda *tensors: torch.cat(tensors), *(part.content for part in parts)))


def run_whole(step: TrainStep, scenario: Scenario) -> RunStep:
    """Return how the single process runs a step."""
    iterations, parallel = scenario.data.iterations, scenario.parallel
    if iterations is None:
        return step.run
    join = parallel.join if isinstance(parallel, Ddp) else None
    return WholeIterations(step, iterations, join is None or join.divide_by_initial_world_size).run
