"""What every model gives a strategy: the plain module, where it may be cut, and how to train on it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from dtbench.worker.batches import Batch


@dataclass(frozen=True)
class TensorOptions:
    """How tensor parallelism lays out what crosses between the parallel regions.

    Attributes:
        sequence_parallel: activations between blocks are sharded on dim 1.
        loss_parallel: the output stays sharded on its last dim, as a DTensor, and the loss is computed on the shards.
    """

    sequence_parallel: bool
    loss_parallel: bool


@dataclass(frozen=True)
class BuiltModel:
    """A model before any parallelism.

    Attributes:
        module: with all weights; parameters in the order of use in forward.
        blocks: FQNs of the modules that FSDP shards by, in the order of use in forward; the root holds the rest.
        compute_output: forward through a (wrapped) module on this rank's rows.
        compute_loss: mean loss over the rows from the module's output.
        tensor_styles: ``parallelize_module``'s plan, styles by FQN; None: the model cannot be cut.
        sequence_witness: FQN of a module whose output is sharded on dim 1 under sequence parallelism; None: there is
            none.
    """

    module: nn.Module
    blocks: tuple[str, ...]
    compute_output: Callable[[nn.Module, Batch], Any]
    compute_loss: Callable[[Any, Batch], Tensor]
    tensor_styles: Callable[[TensorOptions], Mapping[str, Any]] | None
    sequence_witness: str | None
