"""What several sections of a scenario have: types of fields, and the tensor axis of every strategy."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from dtbench.base.record import Record

DtypeName = Literal["float32", "bfloat16", "float16"]
NonNegativeInt = Annotated[int, Field(ge=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]


class TensorParallel(Record):
    """The tensor axis, the same for every strategy."""

    tensor: PositiveInt = 1
    """Ranks along the ``tensor`` axis: column- and row-wise parallel linears inside each block."""
    sequence_parallel: bool = False
    """Keep activations between blocks sharded on the sequence: all-gather and reduce-scatter in place of all-reduce."""
    loss_parallel: bool = False
    """Keep the logits sharded on the vocabulary (``loss_parallel``): three small all-reduces in place of gathering
    them."""
    gather_weights: Literal["sync", "async"] | None = None
    """Cut no products: keep every weight in parts and gather it where it is used, activations sharded on the sequence
    (weight-gathered layout, arXiv:2211.05102). ``async``: ``redistribute(..., async_op=True)``, so that gradients reach
    ``sync_grad_hook`` while they are being reduced; ``sync``: each is waited for where it is issued. For models
    ``mlp`` and ``timed`` under DDP and FSDP1."""
