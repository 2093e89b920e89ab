"""What every model gives a strategy: the plain module, where it may be cut, and how to train on it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from dtbench.worker.models.known_cost import KnownCost
from dtbench.worker.models.options import BlockOptions
from dtbench.worker.models.weights import Weights


@dataclass(frozen=True)
class TensorOptions:
    """How tensor parallelism lays out what crosses between the parallel regions.

    Attributes:
        sequence_parallel: activations between blocks are sharded on dim 1.
        loss_parallel: the output stays sharded on its last dim, as a DTensor, and the loss is computed on the shards.
        gather_weights: no product is cut; weights are gathered where they are used, see ``models/gathered.py``.
    """

    sequence_parallel: bool
    loss_parallel: bool
    gather_weights: Literal["sync", "async"] | None = None


@dataclass(frozen=True)
class BuiltModel:
    """A model before any parallelism.

    Attributes:
        module: parameters in the order of use in forward; on the meta device where ``weights`` are given.
        blocks: FQNs of the modules that FSDP shards by, in the order of use in forward; the root holds the rest.
        make_batch: draw a global batch of so many rows on the host: nested tensors, rows on dim 0.
        compute_output: forward through a (wrapped) module on this rank's rows of such a batch.
        compute_loss: mean loss over the rows from the module's output.
        tensor_styles: ``parallelize_module``'s plan, styles by FQN; None: the model cannot be cut.
        sequence_witness: FQN of a module whose output is sharded on dim 1 under sequence parallelism; None: there is
            none.
        options: activation checkpointing and compilation, not applied yet; None: the plain model.
        weights: makes parameters real once the strategy has laid them out; None: the module came with its values.
        known_cost: what each block takes; None: what its operators take.
    """

    module: nn.Module
    blocks: tuple[str, ...]
    make_batch: Callable[[torch.Generator, int], Any]
    compute_output: Callable[[nn.Module, Any], Any]
    compute_loss: Callable[[Any, Any], Tensor]
    tensor_styles: Callable[[TensorOptions], Mapping[str, Any]] | None
    sequence_witness: str | None
    weights: Weights | None
    options: BlockOptions | None = None
    known_cost: KnownCost | None = None

    def apply_options(self) -> None:
        """Checkpoint and compile blocks as the scenario asks: after the tensor axis, before any wrapper."""
        if self.options is not None:
            self.options.apply()

    @property
    def is_compiled(self) -> bool:
        """Whether hooks would end up in compiled graphs."""
        return self.options is not None and self.options.asked.compile is not None

    def materialize(self, module: nn.Module, *, home: torch.device | None = None) -> None:
        """Make the parameters of a (wrapped) module real, wherever they are not; ``home`` as in ``Weights``."""
        if self.weights is not None:
            self.weights.materialize(module, home=home)
