"""What ``model:`` may say: an architecture with its sizes, a well-known one by name, or a person's own."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, JsonValue, NonNegativeFloat, PositiveFloat, PositiveInt

from dtbench.base.record import Record
from dtbench.base.units import NS_PER_MS
from dtbench.base.vocabulary import Region


class FullCheckpointing(Record):
    """Keep only what enters each block, and compute the rest again in backward."""

    kind: Literal["full"]


class SelectiveCheckpointing(Record):
    """The same for some blocks."""

    kind: Literal["selective"]
    every: PositiveInt
    """Checkpoint the first block and every so many-th after it; 1: all."""


class OperatorCheckpointing(Record):
    """Recompute each block, but keep what some operators gave (``create_selective_checkpoint_contexts``)."""

    kind: Literal["operators"]
    save: Annotated[tuple[str, ...], Field(min_length=1)]
    """Operators of ``torch.ops`` whose outputs are kept, such as ``aten.mm`` or ``aten.addmm.default``."""


ActivationCheckpointing = Annotated[
    FullCheckpointing | SelectiveCheckpointing | OperatorCheckpointing, Discriminator("kind")
]


class Compile(Record):
    """``torch.compile`` in place (``Module.compile``), before FSDP or DDP wrap the module."""

    what: Literal["blocks", "model"] = "blocks"
    """Each block by itself (blocks of equal shape share a graph), or the whole model at once."""
    backend: Literal["inductor", "aot_eager", "eager"] = "inductor"
    """``inductor`` generates code (on CPU it needs a C++ compiler); the others only capture graphs."""
    fullgraph: bool = False
    """Fail on a graph break in place of running that part uncompiled."""
    dynamic: bool | None = None
    """Compile for any shape; left out: torch decides when a shape changes."""


class ModelOptions(Record):
    """What any model's blocks can be run with."""

    activation_checkpointing: ActivationCheckpointing | None = None
    """Trade memory for compute: recompute activations in backward; left out: keep them."""
    compile: Compile | None = None
    """Left out: eager."""


class Transformer(ModelOptions):
    """A decoder-only transformer: RMSNorm, rotary grouped-query attention, SwiGLU."""

    kind: Literal["transformer"]
    layers: PositiveInt
    """Number of blocks."""
    dim: PositiveInt
    """Width of the residual stream."""
    heads: PositiveInt
    """Query heads; ``dim / heads`` is the head size and must be even (rotary pairs)."""
    kv_heads: PositiveInt | None = None
    """Key and value heads (grouped-query attention); left out: as many as ``heads``."""
    ffn_dim: PositiveInt
    """Hidden width of the SwiGLU feed-forward."""
    vocab_size: PositiveInt
    tied_head: bool = False
    """Use the embedding's weight as the output head."""
    sparse_embedding: bool = False
    """The embedding's gradient holds only the rows that were looked up (``nn.Embedding(sparse=True)``); with DDP and
    plain SGD."""
    rope_theta: PositiveFloat = 10_000.0
    """Base of the rotary frequencies (RoFormer, arXiv:2104.09864)."""
    norm_eps: PositiveFloat = 1e-5


class Mlp(ModelOptions):
    """A stack of blocks ``x + down(activation(up(x)))`` on random vectors, with a regression loss.

    Each row is ``data.sequence_length`` vectors; every parameter belongs to a block, none to the root.
    """

    kind: Literal["mlp"]
    layers: PositiveInt
    """Number of blocks."""
    dim: PositiveInt
    """Width of inputs, outputs and targets."""
    hidden_dim: PositiveInt | None
    """Width between ``up`` and ``down``; null: no ``down``, a block is ``x + activation(up(x))``."""
    bias: bool = True
    """Whether ``up`` and ``down`` have biases."""
    activation: Literal["relu", "gelu", "silu"] = "relu"
    outputs: PositiveInt = 1
    """Tensors that forward gives: its result cut along ``dim``, which the loss puts together again; how large a tree
    DDP has to walk."""
    running_statistics: bool = False
    """Each block keeps mean and variance of what enters it, and a count, in buffers as BatchNorm does; they change no
    output, so that ranks still train as a single process does."""
    unused_layers: Annotated[int, Field(ge=0)] = 0
    """Further blocks, last in order, that forward leaves out: their parameters never have gradients (DDP only)."""


class Straggler(Record):
    """The rank whose blocks take longer; at the next collective the others wait for it."""

    rank: Annotated[int, Field(ge=0)]
    factor: Annotated[float, Field(gt=1, le=1_000)]


class Timed(ModelOptions):
    """Blocks of known cost: each is the ``mlp``'s without biases, and takes a given time at its exit.

    On CPU it sleeps, which frees the core; on CUDA it spins. Both are compute to the analysis.
    """

    kind: Literal["timed"]
    layers: PositiveInt
    """Number of blocks."""
    dim: PositiveInt = 256
    """Width of inputs, outputs and targets; with the default of ``hidden_dim`` a block is 1 MiB in float32."""
    hidden_dim: PositiveInt | None = 512
    """Width between ``up`` and ``down``; null: no ``down``, so that a block has one parameter."""
    forward_ms: Annotated[NonNegativeFloat, Field(le=60_000, examples=[20.0])]
    """What a block takes in forward, after its own products; 0: nothing more than these."""
    backward_ms: Annotated[NonNegativeFloat, Field(le=60_000, examples=[20.0])]
    """What it takes in backward; 0: nothing more than its gradients."""
    backward_at: Literal["exit", "entry"] = "exit"
    """Where it takes that: before its gradients are computed, or after, so that they can be reduced meanwhile."""
    slow_rank: Straggler | None = None
    """Left out: blocks take equally long on all ranks."""

    @property
    def mlp(self) -> Mlp:
        """The model without the costs: its parameters, products and tensor-parallel cuts."""
        return Mlp(kind="mlp", layers=self.layers, dim=self.dim, hidden_dim=self.hidden_dim, bias=False)

    def cost_ns(self, rank: int) -> dict[Region, int]:
        """Return what each block takes on a rank, by region: forward and backward."""
        slow = self.slow_rank
        factor = slow.factor if slow is not None and slow.rank == rank else 1.0
        costs_ms = {Region.FORWARD: self.forward_ms, Region.BACKWARD: self.backward_ms}
        return {region: round(cost_ms * factor * NS_PER_MS) for region, cost_ms in costs_ms.items()}


PresetName = Literal[
    "gpt2",
    "gpt2-medium",
    "gpt2-large",
    "gpt2-xl",
    "smollm2-135m",
    "smollm2-360m",
    "smollm2-1.7b",
    "qwen2.5-0.5b",
    "qwen2.5-1.5b",
    "qwen2.5-7b",
    "tinyllama-1.1b",
    "llama2-7b",
    "llama3.2-1b",
    "llama3.2-3b",
    "llama3-8b",
    "mistral-7b",
]


class Preset(ModelOptions):
    """The published sizes of a well-known model on the architecture of kind ``transformer``.

    Sizes only: no weights, no biases, no learned positions. What a parameter count differs by is in
    ``dtbench.scenario.schema.presets``.
    """

    kind: Literal["preset"]
    name: PresetName
    layers: PositiveInt | None = None
    """Fewer blocks than published, for smaller machines; left out: as published."""
    ffn_dim: PositiveInt | None = None
    """Left out: as published."""
    vocab_size: PositiveInt | None = None
    """Left out: as published."""
    tied_head: bool | None = None
    """Left out: as published; a tied head cannot be tensor-parallel."""


def check_function_name(name: str) -> str:
    """Refuse what does not name a function as ``module:function``."""
    module, _, function = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        raise ValueError(f"write `module:function`, as in `my_model:build`, not {name!r}")
    return name


class Custom(ModelOptions):
    """A person's own model: a Python function that gives a ``dtbench.TrainingModel``."""

    kind: Literal["custom"]
    factory: Annotated[str, AfterValidator(check_function_name)]
    """``module:function``; the module is looked for beside the scenario file, in the current folder, then among what is
    installed."""
    arguments: dict[str, JsonValue] = {}
    """What the function is called with, by name."""


WrittenModel = Annotated[Transformer | Mlp | Timed | Preset | Custom, Discriminator("kind")]
"""What a file may say."""
Model = Transformer | Mlp | Timed | Custom
"""What a cell has: a preset is a ``Transformer`` with its sizes (``dtbench.scenario.schema.presets``)."""
