"""What a scenario file may say: one frozen record per section, torch's own names and defaults for torch's own knobs.

A scenario file holds these sections once, and optionally ``cells``: named variations that each override some fields.
``dtbench.scenario.sweep`` merges the two; this module describes one cell after the merge.
"""

from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PositiveFloat,
    PositiveInt,
    Tag,
    WithJsonSchema,
    model_validator,
)

from dtbench.probe_catalogue.functions import ALL, FILES, is_choice, stem_of
from dtbench.record import Record
from dtbench.scenario.model import Model
from dtbench.scenario.network import Network, RealNetwork

SCHEMA_VERSION = 1

DtypeName = Literal["float32", "bfloat16", "float16"]
NonNegativeInt = Annotated[int, Field(ge=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]


class Data(Record):
    """Random tokens from a fixed seed: the same global batch whatever the number of ranks."""

    global_batch: PositiveInt
    """Rows of one step over all data-parallel ranks; each takes its own share."""
    sequence_length: PositiveInt
    """Tokens of a row that are predicted (an MLP: vectors of a row). A ``custom`` model makes its own batches: there it
    only says what a row counts as in tokens per second."""


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


class Accumulation(Record):
    """Gradient accumulation: several forwards and backwards, one update."""

    micro_batches: PositiveInt = 1
    """Parts of each rank's rows; each gets its own forward and backward."""
    sync: Literal["last", "every", "reduce_scatter"] = "last"
    """When gradients are reduced: ``last`` micro-batch only (``no_sync``, ``set_requires_gradient_sync``), after
    ``every`` one, or, with FSDP2 over replicas, ``reduce_scatter`` after every one and all-reduce after the last
    (``set_requires_all_reduce``)."""


class Cut(Record):
    """The tensor axis, the same for every strategy."""

    tensor: PositiveInt = 1
    """Ranks along the ``tensor`` axis: column- and row-wise parallel linears inside each block."""
    sequence_parallel: bool = False
    """Keep activations between blocks sharded on the sequence: all-gather and reduce-scatter in place of all-reduce."""
    loss_parallel: bool = False
    """Keep the logits sharded on the vocabulary (``loss_parallel``): three small all-reduces in place of gathering
    them."""


class Fp16Compress(Record):
    """``fp16_compress_hook``: gradients cross the wire as float16, half the bytes of float32."""

    kind: Literal["fp16_compress"]


class Bf16Compress(Record):
    """``bf16_compress_hook``: gradients cross the wire as bfloat16; needs NCCL."""

    kind: Literal["bf16_compress"]


class PlainAllReduce(Record):
    """``allreduce_hook``: what DDP does anyway, through a hook: the price of having one."""

    kind: Literal["allreduce"]


class PowerSgd(Record):
    """``powerSGD_hook`` (arXiv:1905.13727): two small factors of each matrix cross the wire, with error feedback."""

    kind: Literal["powersgd"]
    matrix_approximation_rank: PositiveInt = 1
    """Columns of each factor."""
    start_powersgd_iter: Annotated[int, Field(ge=2, le=6)] = 2
    """Steps with plain all-reduce first; torch's own default is 1000, longer than any warm-up here."""
    min_compression_rate: PositiveFloat = 2.0
    """Compress a matrix only if its factors are this many times smaller."""
    use_error_feedback: bool = True
    """Add what compression lost to the next step's gradients."""
    warm_start: bool = True
    """Start from the previous step's factors; False: from random ones."""


CommHook = Annotated[PlainAllReduce | Fp16Compress | Bf16Compress | PowerSgd, Discriminator("kind")]


class DdpMixedPrecision(Record):
    """``_MixedPrecision`` of DDP: forward and backward on low-precision copies of the parameters; CUDA only."""

    param_dtype: DtypeName | None = None
    """Dtype of the copies; left out: no copies."""
    reduce_dtype: DtypeName | None = None
    """Dtype of the all-reduce; left out: that of the gradients."""
    buffer_dtype: DtypeName | None = None
    """Dtype that buffers are cast to; left out: no cast."""


class Ddp(Cut):
    """``DistributedDataParallel``: every rank holds the model; gradients are all-reduced in buckets during backward.

    With a tensor axis the cut model goes through ``_pre_dp_module_transform``, as torch's own composition does.
    """

    kind: Literal["ddp"]
    replicas: PositiveInt
    """Ranks along the ``replicate`` axis, each with a full copy of the model (of its tensor part)."""
    bucket_cap_mb: PositiveFloat | None = None
    """Bucket capacity in MiB; left out: 25 after a first bucket of 1; written, it holds for the first bucket too."""
    bucket_cap_mb_list: tuple[PositiveFloat, ...] | None = None
    """Capacity of each bucket in MiB, in order of issue; the last holds for all further ones (torch 2.13)."""
    gradient_as_bucket_view: bool = False
    """Gradients are views into the buckets: saves one copy of the gradients and the copy out after the all-reduce."""
    static_graph: bool = False
    """The graph never changes: DDP learns once which parameters are used and buckets are rebuilt after step 2."""
    find_unused_parameters: bool = False
    """Walk the graph and mark unused parameters ready; buckets are not rebuilt; adds one all-reduce of the map."""
    skip_all_reduce_unused_params: bool = False
    """Do not reduce buckets of unused parameters, which must be the same on all ranks (with
    ``find_unused_parameters``)."""
    broadcast_buffers: bool = True
    """Broadcast rank 0's buffers before forward (no effect for a model without buffers)."""
    init_sync: bool = True
    """Verify shapes and broadcast rank 0's parameters when wrapping."""
    batched_grad_copy: bool = False
    """Copy gradients into a bucket at once when it is full: two kernels for each bucket (torch 2.13)."""
    comm_hook: CommHook | None = None
    """What is done to each bucket in place of a plain all-reduce (``register_comm_hook``)."""
    delay_all_reduce: tuple[str, ...] = ()
    """FQNs of parameters, or of modules, that leave the buckets and are reduced all at once, when the first parameter's
    gradient is ready (``delay_all_reduce_named_params``)."""
    optimizer_in_backward: bool = False
    """Update each bucket's parameters as soon as it is reduced (``_register_fused_optim``)."""
    mixed_precision: DdpMixedPrecision = DdpMixedPrecision()


class Fsdp1MixedPrecision(Record):
    """``MixedPrecision`` of FSDP1: dtypes on the wire and in compute."""

    param_dtype: DtypeName | None = None
    """Dtype of the all-gathered parameters and of compute; left out: the parameter's own."""
    reduce_dtype: DtypeName | None = None
    """Dtype of the reduction; left out: as ``param_dtype``."""
    buffer_dtype: DtypeName | None = None
    """Dtype that buffers are cast to; left out: no cast."""
    keep_low_precision_grads: bool = False
    """Leave gradients in ``reduce_dtype`` for the optimizer."""
    cast_forward_inputs: bool = False
    """Cast floating-point inputs of each unit to ``param_dtype``."""
    cast_root_forward_inputs: bool = True
    """The same for the root's inputs; overrides ``cast_forward_inputs`` there."""


class Fsdp1(Cut):
    """``FullyShardedDataParallel``: each block's parameters as one flat, sharded tensor.

    With a tensor axis torch's ``DTensorExtensions`` take the cut parameters in and out of the flat ones.
    """

    kind: Literal["fsdp1"]
    shards: PositiveInt
    """Ranks along the ``shard`` axis (with ``NO_SHARD``: that hold equal copies)."""
    replicas: PositiveInt = 1
    """Ranks along the ``replicate`` axis, for the ``HYBRID`` strategies."""
    sharding_strategy: Literal["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"] = (
        "FULL_SHARD"
    )
    """What is sharded: parameters freed after forward and gathered again (``FULL_SHARD``), kept until backward
    (``SHARD_GRAD_OP``), nothing (``NO_SHARD``: all-reduce); ``HYBRID``: within ``shards``, and all-reduced over
    ``replicas``."""
    use_orig_params: bool = False
    """Keep the original parameters as views: each starts at a multiple of 16 bytes, so a few bytes more on the wire."""
    backward_prefetch: Literal["BACKWARD_PRE", "BACKWARD_POST"] | None = "BACKWARD_PRE"
    """Gather the next unit before this one's gradients are computed, after them, or not ahead (``null``)."""
    forward_prefetch: bool = False
    """Gather the next unit before this one's forward."""
    limit_all_gathers: bool = True
    """Let the CPU wait so that at most two units are gathered ahead (CUDA)."""
    mixed_precision: Fsdp1MixedPrecision = Fsdp1MixedPrecision()
    cpu_offload: bool = False
    """Keep sharded parameters, gradients and optimizer state in host memory."""
    sync_module_states: bool = False
    """Broadcast rank 0's weights when wrapping."""


class Fsdp2MixedPrecision(Record):
    """``MixedPrecisionPolicy`` of FSDP2: dtypes on the wire and in compute."""

    param_dtype: DtypeName | None = None
    """Dtype of the all-gathered parameters and of compute; left out: the parameter's own."""
    reduce_dtype: DtypeName | None = None
    """Dtype of the reduce-scatter; left out: as the gradient."""
    output_dtype: DtypeName | None = None
    """Dtype of the root's output, the logits; left out: no cast."""
    cast_forward_inputs: bool = True
    """Cast floating-point inputs of each unit to ``param_dtype``."""


class Fsdp2(Cut):
    """``fully_shard`` on each block and the root: all-gather before use, reduce-scatter after; DTensor underneath."""

    kind: Literal["fsdp2"]
    shards: PositiveInt
    """Ranks along the ``shard`` axis."""
    replicas: PositiveInt = 1
    """Ranks along the ``replicate`` axis; above 1 it is HSDP: sharded gradients are all-reduced over the replicas."""
    reshard_after_forward: bool | PositiveInt | None = None
    """Free parameters after forward and gather them again in backward; a number: keep them sharded over that many ranks
    only; left out: torch's rule (blocks yes, root no)."""
    reshard_after_backward: bool = True
    """Free parameters after each backward; False: only after the last micro-batch's (needs ``accumulation``)."""
    mixed_precision: Fsdp2MixedPrecision = Fsdp2MixedPrecision()
    cpu_offload: bool = False
    """Keep sharded parameters, gradients and optimizer state in host memory (``CPUOffloadPolicy``)."""
    unshard_async_op: bool = False
    """Issue all-gathers with ``async_op=True`` (``_set_unshard_async_op``): what lets gloo overlap them at all."""
    forward_prefetch: NonNegativeInt = 0
    """Blocks gathered ahead of use in forward (``set_modules_to_forward_prefetch``); 0: torch's default."""
    backward_prefetch: PositiveInt | None = None
    """The same in backward (``set_modules_to_backward_prefetch``); left out: torch's implicit prefetch of one."""
    separate_reduce_scatter_group: bool = False
    """Reduce-scatter on a process group of its own, so that it need not queue behind all-gathers (torch 2.13)."""
    reduce_scatter_max_input_buffers: PositiveInt = 1
    """Reduce-scatter inputs in flight; 1: backward's compute waits for the previous one (torch 2.13)."""
    force_sum_reduction: bool = False
    """Reduce with sums only and scale apart (``set_force_sum_reduction_for_comms``)."""


Parallel = Annotated[Ddp | Fsdp1 | Fsdp2, Discriminator("kind")]


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


class Profiler(Record):
    """Options of ``torch.profiler`` for PROFILED steps, under torch's names: what each adds to a trace, and its cost.

    Costs: CPU time of a step and size of the compressed trace over those of the default, medians of interleaved rounds
    of ``tests/benchmarks/profiler_cost.py`` on 2 CPU cores with torch 2.13 and the quickstart's transformer (130 kB of
    trace a step); equal runs differ by 2 % of CPU time. Left out on purpose: ``with_flops`` adds only what
    ``record_shapes`` does to a trace, ``with_modules`` nothing to a model that is not TorchScript (both tried).
    """

    record_shapes: bool | None = None
    """Shapes and dtypes of operators' inputs; left out: on CPU only, where gloo says its sizes in no other way.

    Cost: 3 % of CPU time, a trace 1.25 times as large.
    """
    with_stack: bool = False
    """Every Python call and ``nn.Module`` call as an event of its own, to see which line a wait comes from.

    Cost: 4 % of CPU time, a trace 1.33 times as large, 1.3 times the time to write it; more where Python does more.
    """
    profile_memory: bool = False
    """Every allocation as a ``[memory]`` event (CUDA only: torch notes none while it profiles all threads).

    Cost: not measured on a GPU; nothing on CPU.
    """
    record_python_gc_info: bool = False
    """Python's garbage collections, which hold one rank back while the others wait; needs ``with_stack``.

    Cost: none that can be told beside that of ``with_stack``.
    """
    capture_overload_names: bool = False
    """Operators with their overload: ``aten::add_.Tensor``.

    Cost: no CPU time that can be told, a trace 1.01 times as large.
    """
    enable_cuda_sync_events: bool = False
    """Device, stream and event synchronisations as events: what the host waited for (CUDA only).

    Cost: not measured on a GPU; nothing on CPU.
    """

    @model_validator(mode="after")
    def _consistent(self) -> "Profiler":
        if self.record_python_gc_info and not self.with_stack:
            raise ValueError("record_python_gc_info records nothing without with_stack; set both")
        return self


def _spell_probes(value: object) -> object:
    """Give the list that ``true`` and ``false`` stand for."""
    match value:
        case True:
            return (ALL,)
        case False:
            return ()
        case list():
            return tuple(value)
        case _:
            return value


def _check_probe(name: str) -> str:
    if not is_choice(name):
        files = ", ".join(stem_of(file) for file in FILES)
        raise ValueError(
            f"no function under study is called `{name}`; it takes files ({files}) and functions in them as "
            "`dtbench coverage` lists them, or true for all"
        )
    return name


Probed = Annotated[
    tuple[Annotated[str, AfterValidator(_check_probe)], ...],
    BeforeValidator(_spell_probes),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "string"}}]}),
]


class Measure(Record):
    """How many steps of each phase, and how to watch them."""

    warmup: Warmup = Warmup()
    measured_steps: Annotated[int, Field(ge=4, le=100_000)] = 20
    """Steps without profiler; throughput comes only from these."""
    profiled_steps: Annotated[int, Field(gt=0, le=1_000)] = 5
    """Steps under the profiler; overlap comes only from these."""
    profiler: Profiler = Profiler()
    """What the profiler records in PROFILED steps."""
    exposure: tuple[Literal["trace", "ablation", "wait"], ...] = ("trace",)
    """By which independent ways exposed communication is estimated; with more than one the report says whether they
    agree. ``ablation`` and ``wait`` take steps of their own, after the PROFILED ones: with communication as it is, and
    without it, about ``measured_steps`` each; ``ablation`` (gloo only) as many again in which every collective is
    waited for at once."""
    probes: Probed = ()
    """Functions under study to count, time and name in the trace: true for all, or a list of files (``fsdp``) and
    functions (``_data_parallel_utils.sync_grad_hook``)."""
    line_coverage: bool = False
    """Note which lines of the files under study run, by the interpreter's own tracing; for launches of its own, whose
    times are not to be used."""
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
    canary: bool | None = None
    """Look for missing waits (gloo only): after all other steps three more, in two of which results of collectives come
    only when somebody waits for them, and poison stands in their place until then; losses and gradients must equal the
    third's. Left out: where results are checked (``enabled``) over an emulated network."""


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


class AutoRepeat(Record):
    """Launch all cells in turns until their step times are known well enough, or time is up."""

    kind: Literal["auto"] = "auto"
    precision: Annotated[float, Field(gt=0, lt=1)] = 0.02
    """Largest half width of the 95 % interval of a cell's step time, or of its ratio to the first cell's, relative."""
    time_budget_s: Annotated[float, Field(gt=0, le=10_000_000)] = 1800.0
    """No round begins that would take the launches of all cells together beyond this."""
    at_least: Annotated[int, Field(ge=2, le=10_000)] = 4
    """Launches of each cell before precision or time are asked; comparisons need four."""
    at_most: Annotated[int, Field(ge=2, le=10_000)] = 40
    """Launches of each cell, whatever the precision."""

    @model_validator(mode="after")
    def _ordered(self) -> "AutoRepeat":
        if self.at_most < self.at_least:
            raise ValueError(f"at_most ({self.at_most}) is below at_least ({self.at_least})")
        return self


NUMBER, WORD, MAPPING = "[number]", "[word]", "[mapping]"
"""How pydantic's places of mistakes name the alternatives of ``Repeat``; no field is called so."""


def _find_alternative(value: object) -> str:
    match value:
        case str():
            return WORD
        case dict() | AutoRepeat():
            return MAPPING
        case _:
            return NUMBER


Repeat = Annotated[
    Annotated[PositiveInt, Tag(NUMBER)] | Annotated[Literal["auto"], Tag(WORD)] | Annotated[AutoRepeat, Tag(MAPPING)],
    Discriminator(_find_alternative),
]


class Scenario(Record):
    """One cell: everything that decides what is measured. Nothing here depends on the machine, except ``device``."""

    schema_version: Literal[1]
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """``auto``: CUDA where there is any, else CPU."""
    model: Model
    data: Data
    precision: Precision = Precision()
    optimizer: Optimizer = AdamW(kind="adamw")
    gradient_clip_norm: PositiveFloat | None = None
    """Clip the total 2-norm of the gradients (``clip_grad_norm_``); left out: no clipping."""
    accumulation: Accumulation = Accumulation()
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the initial weights and of the tokens."""
    parallel: Parallel
    network: Network = RealNetwork(kind="real")
    """What carries the collectives; left out: gloo or NCCL as they are."""
    measure: Measure = Measure()
    correctness: Correctness = Correctness()
    repeat: Repeat = 1
    """Launches of each cell; each starts all ranks anew. ``auto``: as many as a precision needs."""
    env: dict[Variable, str] = {}
    """Environment variables of the ranks, such as ``NCCL_ALGO``; each value a text in quotes."""
    python: Annotated[str, Field(min_length=1)] | None = None
    """Interpreter of the ranks, so that cells can compare torch builds; it needs dtbench, too. Left out: this one."""
