"""What ``optimizer:`` may say."""

from typing import Annotated, Literal

from pydantic import Discriminator

from dtbench.base.record import Record
from dtbench.scenario.schema.fields import NonNegativeFloat


class AdamW(Record):
    """``torch.optim.AdamW``, with torch's defaults."""

    kind: Literal["adamw"]
    lr: NonNegativeFloat = 1e-3
    betas: tuple[NonNegativeFloat, NonNegativeFloat] = (0.9, 0.999)
    eps: NonNegativeFloat = 1e-8
    weight_decay: NonNegativeFloat = 1e-2
    foreach: bool | None = None
    """One multi-tensor kernel per operation; left out: torch decides by device."""
    fused: bool | None = None
    """One kernel for the whole update; left out: torch decides."""


class Sgd(Record):
    """``torch.optim.SGD``, with torch's defaults."""

    kind: Literal["sgd"]
    lr: NonNegativeFloat = 1e-3
    momentum: NonNegativeFloat = 0.0
    weight_decay: NonNegativeFloat = 0.0
    foreach: bool | None = None
    """One multi-tensor kernel per operation; left out: torch decides by device."""
    fused: bool | None = None
    """One kernel for the whole update; left out: torch decides."""


Optimizer = Annotated[AdamW | Sgd, Discriminator("kind")]
