"""What ranks hold: weights, gradients and what the optimizer keeps. Activations come on top."""

from dtbench.plan.traffic.parameters import known_parameters
from dtbench.plan.traffic.planned import DTYPE_BYTES
from dtbench.scenario.schema.scenario import AdamW, Ddp, Fsdp1, Fsdp2, Scenario, Sgd


def estimate_state_bytes(scenario: Scenario) -> int:
    """Return the training state of one rank: weights, gradients and what the optimizer keeps.

    Activations, buckets and gathered parameters come on top. 0 for a person's own model: nothing is known.
    """
    return _count_copies(scenario) * _count_weights_bytes(scenario)


def estimate_least_bytes(scenario: Scenario) -> int:
    """Return the least that one rank must hold: its training state, or its weights and the one being drawn in float32.

    0 for a person's own model: nothing is known.
    """
    largest = max((parameter.numel for parameter in known_parameters(scenario.model) or ()), default=0)
    drawing = _count_weights_bytes(scenario) + largest * DTYPE_BYTES["float32"]
    return max(drawing, estimate_state_bytes(scenario))


def _count_weights_bytes(scenario: Scenario) -> int:
    """Return the weights of one rank."""
    numel = sum(parameter.numel for parameter in known_parameters(scenario.model) or ())
    match scenario.parallel:
        case Ddp() | Fsdp1(sharding_strategy="NO_SHARD"):
            shards = 1
        case Fsdp1(shards=along) | Fsdp2(shards=along):
            shards = along
    shards *= scenario.parallel.tensor
    return numel * DTYPE_BYTES[scenario.precision.dtype] // shards


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
