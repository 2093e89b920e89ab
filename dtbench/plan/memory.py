"""The least that ranks must hold: weights, gradients and what the optimizer keeps. Activations come on top."""

from dtbench.plan.traffic.parameters import known_parameters
from dtbench.plan.traffic.planned import DTYPE_BYTES
from dtbench.scenario.schema.scenario import AdamW, Ddp, Fsdp1, Fsdp2, Scenario, Sgd


def estimate_state_bytes(scenario: Scenario) -> int:
    """Return the least that one rank must hold: its training state, or its weights and the one being drawn in float32.

    Activations, buckets and gathered parameters come on top. 0 for a person's own model: nothing is known.
    """
    sizes = [parameter.numel for parameter in known_parameters(scenario.model) or ()]
    numel, largest = sum(sizes), max(sizes, default=0)
    match scenario.parallel:
        case Ddp() | Fsdp1(sharding_strategy="NO_SHARD"):
            shards = 1
        case Fsdp1(shards=along) | Fsdp2(shards=along):
            shards = along
    shards *= scenario.parallel.tensor
    weights = numel * DTYPE_BYTES[scenario.precision.dtype] // shards
    return max(weights + largest * DTYPE_BYTES["float32"], _count_copies(scenario) * weights)


def estimate_reference_bytes(scenario: Scenario) -> int:
    """Return the least that the single process must hold: the whole training state in float32. 0: nothing is known."""
    numel = sum(parameter.numel for parameter in known_parameters(scenario.model) or ())
    return _count_copies(scenario) * numel * DTYPE_BYTES["float32"]


def _count_copies(scenario: Scenario) -> int:
    """Count what is as large as the weights: these, gradients, and the optimizer's state."""
    match scenario.optimizer:
        case AdamW():
            return 4
        case Sgd(momentum=momentum):
            return 3 if momentum else 2
