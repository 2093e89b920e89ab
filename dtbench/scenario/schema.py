"""What a scenario file may say: one frozen record per section, torch's own names and defaults for torch's own knobs.

A scenario file holds these sections once, and optionally ``cells``: named variations that each override some fields.
``dtbench.scenario.sweep`` merges the two; this module describes one cell after the merge.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, PositiveFloat, PositiveInt, model_validator

from dtbench.record import Record

SCHEMA_VERSION = 1

DtypeName = Literal["float32", "bfloat16", "float16"]
NonNegativeInt = Annotated[int, Field(ge=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]


class Transformer(Record):
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
    rope_theta: PositiveFloat = 10_000.0
    """Base of the rotary frequencies (RoFormer, arXiv:2104.09864)."""
    norm_eps: PositiveFloat = 1e-5


class Data(Record):
    """Random tokens from a fixed seed: the same global batch whatever the number of ranks."""

    global_batch: PositiveInt
    """Rows of one step over all data-parallel ranks; each takes its own share."""
    sequence_length: PositiveInt
    """Tokens of a row that are predicted."""


class Precision(Record):
    """Parameter dtype and autocast. (FSDP2's mixed precision is a knob of ``parallel``.)"""

    dtype: DtypeName = "float32"
    """Dtype of parameters, gradients and optimizer state."""
    autocast: Literal["bfloat16", "float16"] | None = None
    """Run forward under ``torch.autocast`` with this dtype."""


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


class Ddp(Record):
    """``DistributedDataParallel``: every rank holds the model; gradients are all-reduced in buckets during backward."""

    kind: Literal["ddp"]
    replicas: PositiveInt
    """Ranks, each with a full copy of the model."""
    bucket_cap_mb: PositiveFloat | None = None
    """Bucket capacity in MiB; left out: 25 after a first bucket of 1; written, it holds for the first bucket too."""
    gradient_as_bucket_view: bool = False
    """Gradients are views into the buckets: saves one copy of the gradients and the copy out after the all-reduce."""
    static_graph: bool = False
    """The graph never changes: DDP learns once which parameters are used and buckets are rebuilt after step 2."""
    find_unused_parameters: bool = False
    """Walk the graph and mark unused parameters ready; buckets are not rebuilt; adds one all-reduce of the map."""
    broadcast_buffers: bool = True
    """Broadcast rank 0's buffers before forward (no effect for a model without buffers)."""
    init_sync: bool = True
    """Verify shapes and broadcast rank 0's parameters when wrapping."""


class MixedPrecision(Record):
    """``MixedPrecisionPolicy`` of FSDP2: dtypes on the wire and in compute."""

    param_dtype: DtypeName | None = None
    """Dtype of the all-gathered parameters and of compute; left out: the parameter's own."""
    reduce_dtype: DtypeName | None = None
    """Dtype of the reduce-scatter; left out: as the gradient."""
    output_dtype: DtypeName | None = None
    """Dtype of the root's output, the logits; left out: no cast."""
    cast_forward_inputs: bool = True
    """Cast floating-point inputs of each unit to ``param_dtype``."""


class Fsdp2(Record):
    """``fully_shard`` on each block and the root: all-gather before use, reduce-scatter after; DTensor underneath."""

    kind: Literal["fsdp2"]
    shards: PositiveInt
    """Ranks along the ``shard`` axis."""
    tensor: PositiveInt = 1
    """Ranks along the ``tensor`` axis: column- and row-wise parallel linears inside each block."""
    sequence_parallel: bool = False
    """Keep activations between blocks sharded on the sequence: all-gather and reduce-scatter in place of all-reduce."""
    reshard_after_forward: bool | None = None
    """Free parameters after forward and gather them again in backward; left out: torch's rule (blocks yes, root no)."""
    mixed_precision: MixedPrecision = MixedPrecision()
    cpu_offload: bool = False
    """Keep sharded parameters, gradients and optimizer state in host memory (``CPUOffloadPolicy``)."""
    unshard_async_op: bool = False
    """Issue all-gathers with ``async_op=True`` (``_set_unshard_async_op``): what lets gloo overlap them at all."""
    forward_prefetch: NonNegativeInt = 0
    """Blocks gathered ahead of use in forward (``set_modules_to_forward_prefetch``); 0: torch's default."""
    backward_prefetch: PositiveInt | None = None
    """The same in backward (``set_modules_to_backward_prefetch``); left out: torch's implicit prefetch of one."""


Parallel = Annotated[Ddp | Fsdp2, Discriminator("kind")]


class Warmup(Record):
    """Warm-up ends when communication and step time are seen to be stable, not after a fixed count."""

    min_steps: Annotated[int, Field(ge=8)] = 8
    """At least this many; the first steps are also the ones that are checked against a single process."""
    max_steps: Annotated[int, Field(gt=0, le=100_000)] = 60
    """Give up waiting for a stable step time, and say so in the report."""

    @model_validator(mode="after")
    def _ordered(self) -> "Warmup":
        if self.max_steps < self.min_steps:
            raise ValueError(f"max_steps ({self.max_steps}) is below min_steps ({self.min_steps})")
        return self


class Measure(Record):
    """How many steps of each phase, and how to watch them."""

    warmup: Warmup = Warmup()
    measured_steps: Annotated[int, Field(ge=4, le=100_000)] = 20
    """Steps without profiler; throughput comes only from these."""
    profiled_steps: Annotated[int, Field(gt=0, le=1_000)] = 5
    """Steps under the profiler; overlap comes only from these."""
    stall_timeout_s: Annotated[float, Field(gt=0, le=1_000_000)] = 120.0
    """A rank that shows no progress for this long is declared hung and the launch ends."""


class Correctness(Record):
    """The first steps are compared with one process that sees the whole batch."""

    enabled: bool = True
    """Switch off for a model that one device cannot hold; the report then says *not checked*."""
    loss_tolerance: PositiveFloat | None = None
    """Largest relative difference of the losses of steps 2 to 5; left out: 1e-5 for float32, 2e-2 below."""
    gradient_tolerance: PositiveFloat | None = None
    """Largest relative difference of step 1's gradients (2-norm, per parameter); left out: 1e-5, 5e-2 below float32."""


VARIABLE_PREFIXES = (
    *("NCCL_", "GLOO_", "UCX_", "FI_"),
    *("TORCH_", "PYTORCH_", "TORCHINDUCTOR_", "TRITON_"),
    *("CUDA_", "CUBLAS_", "CUDNN_", "KINETO_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "DNNL_", "ONEDNN_", "OPENBLAS_", "MALLOC_", "TP_"),
)
"""Environment variables that tune what is measured: communication, torch, CUDA, threads and memory."""

_NOT_FOR_SCENARIOS = {
    "CUDA_VISIBLE_DEVICES": "it decides which GPUs there are; set it where you start dtbench",
    "TORCH_ELASTIC_": "it is set by torch elastic, which starts the ranks",
    "TORCHELASTIC_": "it is set by torch elastic, which starts the ranks",
    "MASTER_": "it is set by torch elastic, which brings the ranks together",
    "DTBENCH_": "it is set by dtbench itself",
    **dict.fromkeys(
        ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_"),
        "it is set by torch elastic: the sizes come from `parallel`",
    ),
}
"""Why variables that begin like this cannot be set by a scenario."""


def _check_variable(name: str) -> str:
    for beginning, reason in _NOT_FOR_SCENARIOS.items():
        if name.startswith(beginning):
            raise ValueError(reason)
    if not name.startswith(VARIABLE_PREFIXES):
        some = ", ".join(VARIABLE_PREFIXES[::4])
        raise ValueError(f"a scenario sets only variables of torch and what it is built on ({some} and the like)")
    return name


Variable = Annotated[str, AfterValidator(_check_variable)]


class Scenario(Record):
    """One cell: everything that decides what is measured. Nothing here depends on the machine, except ``device``."""

    schema_version: Literal[1]
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """``auto``: CUDA where there is any, else CPU."""
    model: Transformer
    data: Data
    precision: Precision = Precision()
    optimizer: Optimizer = AdamW(kind="adamw")
    gradient_clip_norm: PositiveFloat | None = None
    """Clip the total 2-norm of the gradients (``clip_grad_norm_``); left out: no clipping."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the initial weights and of the tokens."""
    parallel: Parallel
    measure: Measure = Measure()
    correctness: Correctness = Correctness()
    repeat: PositiveInt = 1
    """Launches of each cell; each starts all ranks anew."""
    env: dict[Variable, str] = {}
    """Environment variables of the ranks, such as ``NCCL_ALGO``; each value a text in quotes."""
    python: Annotated[str, Field(min_length=1)] | None = None
    """Interpreter of the ranks, so that cells can compare torch builds; it needs dtbench, too. Left out: this one."""
