"""What a person's own model gives dtbench: a module, its batches and its loss."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn
    from torch.distributed.tensor.parallel import ParallelStyle


@dataclass(frozen=True, kw_only=True)
class TrainingModel:
    """What the factory of a ``custom`` model returns.

    The factory is called on every rank with torch seeded alike, so that all start from the same weights.

    Attributes:
        module: the plain module on the CPU; dtbench moves it, casts its parameters to ``precision.dtype`` and trains it
            in training mode. Random layers (dropout) make a run differ from the single process it is checked against.
        make_batch: draw a global batch of so many rows with the given CPU generator and nothing else random: nested
            tuples, lists and dicts of tensors with the rows on dim 0. Each rank computes its own rows.
        loss: the mean loss over rows from output and batch; None: ``output.loss``, or an output that is a single
            number.
        forward: call the (wrapped) module on a batch; None: ``module(**batch)``, ``module(*batch)`` or
            ``module(batch)``, by what the batch is.
        tensor_plan: styles by FQN or pattern (``layers.*.up``), as ``parallelize_module`` takes them; None: no tensor
            axis.
        shard_by: classes whose instances are FSDP's units; empty: the members of the largest ``nn.ModuleList``.
    """

    module: "nn.Module"
    make_batch: Callable[["Generator", int], Any]
    loss: Callable[[Any, Any], "Tensor"] | None = None
    forward: Callable[["nn.Module", Any], Any] | None = None
    tensor_plan: "Mapping[str, ParallelStyle] | None" = None
    shard_by: "tuple[type[nn.Module], ...]" = ()
