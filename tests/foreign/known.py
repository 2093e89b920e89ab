"""What each loop communicates, counted by hand: how often, how much, what for and in which part of a step."""

from dataclasses import dataclass, field

from dtbench.base.vocabulary import Purpose, Region


@dataclass(frozen=True)
class Known:
    """What a loop does, counted by hand.

    Attributes:
        purposes: collectives of a step, or of a period of steps, as the report tells them.
        period: steps that take turns.
        package: it needs; empty: torch alone.
        bytes_of: sizes of collectives of a purpose, in a step or a period.
        ranks: that it needs.
        regions: in which collectives of a purpose are issued, where these are not those of ``REGIONS``.
        told: collectives by purpose as a rank counts them, where only names in the trace tell why; else empty.
    """

    purposes: dict[Purpose, int]
    period: int = 1
    package: str = ""
    bytes_of: dict[Purpose, int] = field(default_factory=dict)
    ranks: int = 2
    regions: dict[Purpose, set[str]] = field(default_factory=dict)
    told: dict[Purpose, int] = field(default_factory=dict)

    def regions_of(self, purpose: Purpose) -> set[str]:
        """Return the regions in which collectives of a purpose are issued."""
        return self.regions.get(purpose, REGIONS[purpose])


BOTH: set[str] = {Region.FORWARD, Region.BACKWARD}
REGIONS: dict[Purpose, set[str]] = {
    Purpose.UNSHARD: BOTH,
    Purpose.GRAD_REDUCE: {Region.BACKWARD},
    Purpose.TENSOR: BOTH,
    Purpose.CONTEXT: BOTH,
    Purpose.EXPERT: BOTH,
    Purpose.PIPELINE: {Region.FORWARD},  # a schedule sends and receives outside the autograd engine
    Purpose.OTHER: {Region.OPTIMIZER},
}
"""Of most loops; what is neither the engine's, nor clipping's, nor an optimizer's is forward."""


TITAN_EMBEDDING_BYTES = 4 * 2048 * 256
TITAN_LAYER_BYTES = 4 * (4 * 256 * 256 + 3 * 256 * 768 + 2 * 256)
TITAN_SEQUENCE_BYTES = 4 * 32 * 256
TITAN_BYTES = 2 * TITAN_EMBEDDING_BYTES + 2 * TITAN_LAYER_BYTES + 4 * 256
ROW_BYTES = 4 * 32
LAYER_BYTES = 32 * ROW_BYTES + ROW_BYTES
OUTSIDE_ENGINE: dict[Purpose, set[str]] = {
    Purpose.UNSHARD: {Region.FORWARD},
    Purpose.GRAD_REDUCE: {Region.FORWARD},
    Purpose.OTHER: {Region.FORWARD},
}
KNOWN = {
    "closure_over_fsdp2": Known(
        {Purpose.UNSHARD: 6, Purpose.GRAD_REDUCE: 3},
        bytes_of={Purpose.UNSHARD: 6 * LAYER_BYTES, Purpose.GRAD_REDUCE: 3 * LAYER_BYTES},
    ),
    "lbfgs": Known({Purpose.GRAD_REDUCE: 2}, bytes_of={Purpose.GRAD_REDUCE: 2 * 3 * LAYER_BYTES}),
    "sam": Known({Purpose.GRAD_REDUCE: 2}, bytes_of={Purpose.GRAD_REDUCE: 2 * 3 * LAYER_BYTES}),
    # Clipping sums six norms.
    "clip_as_torchtitan": Known(
        {Purpose.UNSHARD: 6, Purpose.GRAD_REDUCE: 3, Purpose.OTHER: 1},
        bytes_of={Purpose.UNSHARD: 6 * LAYER_BYTES, Purpose.GRAD_REDUCE: 3 * LAYER_BYTES, Purpose.OTHER: 6 * 4},
    ),
    "compiled_ddp": Known({Purpose.GRAD_REDUCE: 1}, bytes_of={Purpose.GRAD_REDUCE: 3 * LAYER_BYTES}),
    "local_sgd": Known({Purpose.OTHER: 1}, period=4, bytes_of={Purpose.OTHER: 3 * LAYER_BYTES}),
    "post_local_sgd": Known(
        {Purpose.GRAD_REDUCE: 4, Purpose.OTHER: 1},
        period=4,
        ranks=4,
        bytes_of={Purpose.GRAD_REDUCE: 4 * 3 * LAYER_BYTES, Purpose.OTHER: 3 * LAYER_BYTES},
    ),
    "accumulated": Known({Purpose.GRAD_REDUCE: 1}, period=4, bytes_of={Purpose.GRAD_REDUCE: 3 * LAYER_BYTES}),
    # One bucket of 7,520 numbers, and DDP's map of unused parameters: an int32 for each of 28.
    "transformers_trainer": Known(
        {Purpose.GRAD_REDUCE: 2},
        package="accelerate",
        bytes_of={Purpose.GRAD_REDUCE: 4 * 7520 + 4 * 28},
    ),
    # Lightning broadcasts an int64 between two batches: whether a rank was told to end.
    "lightning_ddp": Known(
        {Purpose.GRAD_REDUCE: 1},
        package="lightning",
        bytes_of={Purpose.GRAD_REDUCE: 3 * LAYER_BYTES},
    ),
    "lightning_accumulated": Known(
        {Purpose.GRAD_REDUCE: 1, Purpose.OTHER: 1},
        period=2,
        package="lightning",
        bytes_of={Purpose.GRAD_REDUCE: 3 * LAYER_BYTES, Purpose.OTHER: 8},
        regions={Purpose.OTHER: {""}},  # between two batches, so in no region of either
    ),
    "lightning_fsdp2": Known(
        {Purpose.UNSHARD: 6, Purpose.GRAD_REDUCE: 3},
        package="lightning",
        bytes_of={Purpose.UNSHARD: 6 * LAYER_BYTES, Purpose.GRAD_REDUCE: 3 * LAYER_BYTES},
    ),
    # Clipping sums six norms.
    "fabric_fsdp2": Known(
        {Purpose.UNSHARD: 6, Purpose.GRAD_REDUCE: 3, Purpose.OTHER: 1},
        package="lightning",
        bytes_of={Purpose.UNSHARD: 6 * LAYER_BYTES, Purpose.GRAD_REDUCE: 3 * LAYER_BYTES, Purpose.OTHER: 6 * 4},
    ),
    "fabric_ddp": Known({Purpose.GRAD_REDUCE: 1}, package="lightning", bytes_of={Purpose.GRAD_REDUCE: 3 * LAYER_BYTES}),
    "accelerate_ddp": Known(
        {Purpose.GRAD_REDUCE: 1}, period=2, package="accelerate", bytes_of={Purpose.GRAD_REDUCE: 3 * LAYER_BYTES}
    ),
    "simple_fsdp": Known(
        {Purpose.UNSHARD: 6, Purpose.GRAD_REDUCE: 6},
        bytes_of={Purpose.UNSHARD: 3 * LAYER_BYTES, Purpose.GRAD_REDUCE: 3 * LAYER_BYTES},
        regions={Purpose.UNSHARD: {Region.FORWARD}},
    ),
    "nano_gpt": Known({Purpose.GRAD_REDUCE: 1}, bytes_of={Purpose.GRAD_REDUCE: 3 * LAYER_BYTES}),
    # One unit, the root, which stays gathered up to its backward; clipping sums one norm.
    "fsdp1": Known(
        {Purpose.UNSHARD: 1, Purpose.GRAD_REDUCE: 1, Purpose.OTHER: 1},
        bytes_of={Purpose.UNSHARD: 3 * LAYER_BYTES, Purpose.GRAD_REDUCE: 3 * LAYER_BYTES, Purpose.OTHER: 4},
        regions={Purpose.UNSHARD: {Region.FORWARD}},
    ),
    # Gradients are summed and parameters gathered after the engine's backward and the optimizer's step, in one flat
    # tensor; an overflow of gradients is asked for in a number more.
    "deepspeed_zero2": Known(
        {Purpose.UNSHARD: 1, Purpose.GRAD_REDUCE: 1, Purpose.OTHER: 1},
        package="deepspeed",
        bytes_of={Purpose.UNSHARD: 3 * LAYER_BYTES, Purpose.GRAD_REDUCE: 3 * LAYER_BYTES, Purpose.OTHER: 4},
        regions=OUTSIDE_ENGINE,
        told={Purpose.OTHER: 3},
    ),
    "deepspeed_zero3": Known(
        {Purpose.UNSHARD: 1, Purpose.GRAD_REDUCE: 1, Purpose.OTHER: 1},
        package="deepspeed",
        bytes_of={Purpose.UNSHARD: 3 * LAYER_BYTES, Purpose.GRAD_REDUCE: 3 * LAYER_BYTES, Purpose.OTHER: 8},
        regions=OUTSIDE_ENGINE,
        told={Purpose.OTHER: 3},
    ),
    # Of four micro-batches of one row each, a row of activations goes one way and one of gradients the other.
    "pipeline_1f1b": Known({Purpose.PIPELINE: 4 * 2}, bytes_of={Purpose.PIPELINE: 4 * 2 * ROW_BYTES}),
    # Between four stages there are three borders, each crossed twice; either rank sends or receives at each of them.
    "pipeline_interleaved": Known({Purpose.PIPELINE: 4 * 6}, bytes_of={Purpose.PIPELINE: 4 * 6 * ROW_BYTES}),
    # In each of two layers keys and values go around once in forward, their gradients in backward: sent and received.
    "ring_attention": Known(
        {Purpose.CONTEXT: 2 * 2 * 2 * 2, Purpose.GRAD_REDUCE: 1},
        ranks=4,
        bytes_of={Purpose.CONTEXT: 2 * 2 * 2 * 2 * 4 * ROW_BYTES, Purpose.GRAD_REDUCE: 2 * 4 * LAYER_BYTES},
    ),
    # Rows go and come in each of two layers, in forward and backward; but the first layer's input needs no gradient.
    # Gradients: those of two experts in each layer over `dp`, and those of both routers over all ranks.
    "moe_own_group": Known(
        {Purpose.EXPERT: 2 * 2 * 2 - 1, Purpose.GRAD_REDUCE: 2 + 1},
        ranks=4,
        bytes_of={
            Purpose.EXPERT: 7 * 8 * ROW_BYTES,
            Purpose.GRAD_REDUCE: 2 * 2 * LAYER_BYTES + 2 * 4 * (ROW_BYTES + 4),
        },
    ),
    # No group says what goes over it, nor does an operation: the module that has experts does, in the trace.
    "moe_shared_group": Known(
        {Purpose.EXPERT: 2 * 2 * 2 - 1, Purpose.GRAD_REDUCE: 1},
        bytes_of={Purpose.EXPERT: 7 * 8 * ROW_BYTES, Purpose.GRAD_REDUCE: 2 * 4 * (ROW_BYTES + 4)},
        told={Purpose.OTHER: 7, Purpose.GRAD_REDUCE: 1},
    ),
    # Others: numbers of tokens (int64) twice, a loss twice, and the norm of each of 17 parameters.
    "titan_fsdp2": Known(
        {Purpose.UNSHARD: 7, Purpose.GRAD_REDUCE: 4, Purpose.OTHER: 5},
        package="torchtitan",
        bytes_of={
            Purpose.UNSHARD: TITAN_BYTES + 2 * TITAN_LAYER_BYTES + TITAN_EMBEDDING_BYTES,
            Purpose.GRAD_REDUCE: TITAN_BYTES,
            Purpose.OTHER: 2 * 8 + 2 * 4 + 17 * 4,
        },
        regions={Purpose.OTHER: {Region.FORWARD, Region.OPTIMIZER}},
    ),
    # Five modules gather activations and scatter them, in forward and again in backward; the gradients of five norms
    # are summed over the tensor axis, and three numbers for each token of a loss over split logits.
    "titan_fsdp2_tp": Known(
        {Purpose.UNSHARD: 7, Purpose.GRAD_REDUCE: 4, Purpose.OTHER: 6, Purpose.TENSOR: 10 + 10 + 5 + 3},
        package="torchtitan",
        ranks=4,
        bytes_of={
            Purpose.UNSHARD: (TITAN_BYTES + 2 * TITAN_LAYER_BYTES + TITAN_EMBEDDING_BYTES + 4 * 256 * 9) // 2,
            Purpose.GRAD_REDUCE: (TITAN_BYTES + 4 * 256 * 5) // 2,
            Purpose.OTHER: 2 * 8 + 2 * 4 + 2 * 17 * 4,
            Purpose.TENSOR: 20 * 4 * (4 * 32 * 256) + 4 * 256 * 5 + 3 * 4 * (4 * 32),
        },
        regions={Purpose.OTHER: {Region.FORWARD, Region.OPTIMIZER}},
    ),
    # Of four micro-batches of a sequence each, activations go one way and gradients the other; stages sum their norms.
    "titan_pp": Known(
        {Purpose.PIPELINE: 4 * 2, Purpose.OTHER: 1},
        package="torchtitan",
        bytes_of={Purpose.PIPELINE: 4 * 2 * TITAN_SEQUENCE_BYTES, Purpose.OTHER: 4},
    ),
    # In each layer keys and values are gathered, and their gradients scattered. Half a sequence each, ranks are one in
    # the number of its tokens.
    "titan_cp": Known(
        {Purpose.UNSHARD: 7, Purpose.GRAD_REDUCE: 4, Purpose.CONTEXT: 2 * 4, Purpose.OTHER: 4},
        package="torchtitan",
        bytes_of={
            Purpose.UNSHARD: TITAN_BYTES + 2 * TITAN_LAYER_BYTES + TITAN_EMBEDDING_BYTES,
            Purpose.GRAD_REDUCE: TITAN_BYTES,
            Purpose.CONTEXT: 2 * 4 * 4 * TITAN_SEQUENCE_BYTES,
            Purpose.OTHER: 8 + 2 * 4 + 17 * 4,
        },
        regions={Purpose.OTHER: {Region.FORWARD, Region.OPTIMIZER}},
        told={Purpose.UNSHARD: 7 + 4, Purpose.GRAD_REDUCE: 4 + 4, Purpose.OTHER: 4},
    ),
}
