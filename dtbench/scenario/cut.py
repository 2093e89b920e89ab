"""The tensor axis: what every ``parallel`` section may say of it."""

from pydantic import PositiveInt

from dtbench.record import Record


class Cut(Record):
    """The tensor axis, the same for every strategy."""

    tensor: PositiveInt = 1
    """Ranks along the ``tensor`` axis: column- and row-wise parallel linears inside each block."""
    sequence_parallel: bool = False
    """Keep activations between blocks sharded on the sequence: all-gather and reduce-scatter in place of all-reduce."""
    loss_parallel: bool = False
    """Keep the logits sharded on the vocabulary (``loss_parallel``): three small all-reduces in place of gathering
    them."""
