"""The optimizer of a scenario."""

from collections.abc import Sequence

import torch
from torch import nn

from dtbench.scenario.schema.scenario import AdamW, Optimizer, Sgd


def make_optimizer(settings: Optimizer, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    """Build the optimizer over the parameters as the strategy left them."""
    return optimizer_class(settings)(parameters, **settings.model_dump(exclude={"kind"}))


def optimizer_class(settings: Optimizer) -> type[torch.optim.Optimizer]:
    """Return torch's class for an optimizer section."""
    match settings:
        case AdamW():
            return torch.optim.AdamW
        case Sgd():
            return torch.optim.SGD
