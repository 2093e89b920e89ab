"""What a scenario file may say: one frozen record per section, torch's own names and defaults for torch's own knobs.

A scenario file holds these sections once, and optionally ``cells``: named variations that each override some fields.
``dtbench.scenario.sweeps.sweep`` merges the two; this module describes one cell after the merge. Larger sections are
modules of their own (``ddp``, ``measure``, ``model``, ``network``); their records can be imported from here.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, PositiveFloat, PositiveInt

from dtbench.base.record import Record
from dtbench.scenario.schema.ddp import (
    Bf16Compress,
    CommHook,
    Ddp,
    DdpMixedPrecision,
    Fp16Compress,
    PlainAllReduce,
    PowerSgd,
)
from dtbench.scenario.schema.fields import DtypeName, NonNegativeInt, TensorParallel
from dtbench.scenario.schema.measure import Measure, Profiler, Warmup
from dtbench.scenario.schema.model import check_function_name
from dtbench.scenario.schema.network import EmulatedNetwork, Network, RealNetwork
from dtbench.scenario.schema.optimizer import AdamW, Optimizer, Sgd
from dtbench.scenario.schema.presets import ResolvedModel
from dtbench.scenario.schema.repeat import Repeat
from dtbench.scenario.schema.state_dict import StateDict
from dtbench.scenario.schema.variables import VARIABLE_PREFIXES, Value, Variable

__all__ = [
    "SCHEMA_VERSION",
    "VARIABLE_PREFIXES",
    "Accumulation",
    "AdamW",
    "Bf16Compress",
    "CommHook",
    "Correctness",
    "Data",
    "Ddp",
    "DdpMixedPrecision",
    "DtypeName",
    "Fp16Compress",
    "Fsdp1",
    "Fsdp1MixedPrecision",
    "Fsdp2",
    "Fsdp2MixedPrecision",
    "Measure",
    "Optimizer",
    "Parallel",
    "PlainAllReduce",
    "PowerSgd",
    "Precision",
    "Profiler",
    "Scenario",
    "Sgd",
    "StateDict",
    "TensorParallel",
    "Warmup",
]

SCHEMA_VERSION = 1


class Data(Record):
    """Random tokens from a fixed seed: the same global batch whatever the number of ranks."""

    global_batch: PositiveInt
    """Rows of one step over all data-parallel ranks; each takes its own share."""
    sequence_length: PositiveInt
    """Tokens of a row that are predicted (an MLP: vectors of a row). A ``custom`` model makes its own batches: there it
    only says what a row counts as in tokens per second."""
    iterations: tuple[PositiveInt, ...] | None = None
    """Training iterations of each DDP rank in one step, in order of rank: its rows are cut into as many parts as the
    busiest rank has iterations, and each iteration trains on one. They may differ under ``parallel.join`` only. Left
    out: one iteration, on all rows."""


class Precision(Record):
    """Parameter dtype and autocast. (FSDP2's mixed precision is a knob of ``parallel``.)"""

    dtype: DtypeName = "float32"
    """Dtype of parameters, gradients and optimizer state."""
    autocast: Literal["bfloat16", "float16"] | None = None
    """Run forward under ``torch.autocast`` with this dtype."""


class Accumulation(Record):
    """Gradient accumulation: several forwards and backwards, one update."""

    micro_batches: PositiveInt = 1
    """Parts of each rank's rows; each gets its own forward and backward."""
    sync: Literal["last", "every", "reduce_scatter"] = "last"
    """When gradients are reduced: ``last`` micro-batch only (``no_sync``, ``set_requires_gradient_sync``), after
    ``every`` one, or, with FSDP2 over replicas, ``reduce_scatter`` after every one and all-reduce after the last
    (``set_requires_all_reduce``)."""


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


class Fsdp1(TensorParallel):
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
    sharded_state: Literal["dtensor", "sharded_tensor"] = "dtensor"
    """What sharded state dicts hold: ``DTensor``, where units are wrapped over a mesh, or ``ShardedTensor``, over a
    process group (with a tensor axis: over a mesh that is forgotten after wrapping)."""

    @property
    def is_whole(self) -> bool:
        """Whether every rank holds all parameters: torch takes one rank along shard for ``NO_SHARD``."""
        return self.sharding_strategy == "NO_SHARD" or self.shards == 1


OwnFunction = Annotated[str, AfterValidator(check_function_name)]


class Fsdp2MixedPrecision(Record):
    """``MixedPrecisionPolicy`` of FSDP2: dtypes on the wire and in compute."""

    param_dtype: DtypeName | None = None
    """Dtype of the all-gathered parameters and of compute; left out: the parameter's own."""
    keep_dtype: tuple[str, ...] = ()
    """Parameters that are gathered in their own dtype all the same, by their FQN or their module's
    (``param_dtype_override_fn``, torch 2.15); inputs of their module are cast as others are."""
    reduce_dtype: DtypeName | None = None
    """Dtype of the reduce-scatter; left out: as the gradient."""
    output_dtype: DtypeName | None = None
    """Dtype of the root's output, the logits; left out: no cast."""
    cast_forward_inputs: bool = True
    """Cast floating-point inputs of each unit to ``param_dtype``."""


class Fsdp2(TensorParallel):
    """``fully_shard`` on each block and the root: all-gather before use, reduce-scatter after; DTensor underneath."""

    kind: Literal["fsdp2"]
    shards: PositiveInt
    """Ranks along the ``shard`` axis."""
    replicas: PositiveInt = 1
    """Ranks along the ``replicate`` axis; above 1 it is HSDP: sharded gradients are all-reduced over the replicas."""
    blocks_per_unit: PositiveInt = 1
    """Neighboring blocks that share a unit, hence an all-gather and a reduce-scatter (``fully_shard([a, b])``); the
    last unit has what is left. A unit is gathered before its first block in forward, and freed after its last."""
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
    shard_dim: dict[str, NonNegativeInt] = {}
    """Dimension along which a parameter is sharded, by its FQN or its module's (``shard_placement_fn``); of all others
    it is 0. The shards must divide any other dimension."""
    all_gather: OwnFunction | None = None
    """A class of your own in place of FSDP2's all-gather (``set_custom_all_gather``), as ``module:Class``: an
    ``AllGather`` of ``torch.distributed.fsdp._fully_shard._fsdp_api``, looked for as the factory of a ``custom`` model
    is, and made once for each unit."""
    reduce_scatter: OwnFunction | None = None
    """The same in place of its reduce-scatter (``set_custom_reduce_scatter``): a ``ReduceScatter``."""
    all_reduce_hook: OwnFunction | None = None
    """A function of your own, as ``module:function``, that is given each unit's reduced gradients, in one tensor
    (``set_all_reduce_hook``)."""
    gradient_divide_factor: PositiveFloat | None = None
    """What the ranks' summed gradients are divided by (``set_gradient_divide_factor``); left out: their number. The
    single process that results are compared with scales its gradients alike."""
    process_group_memory: bool = False
    """Let the process group allocate what collectives send and receive, if it can
    (``set_allocate_memory_from_process_group_for_comm``; gloo cannot)."""
    symmetric_memory: bool = False
    """Allocate it in NCCL's symmetric memory (``set_symm_mem_for_comm``, torch 2.13, CUDA)."""
    post_optimizer_event: bool = False
    """Let the next step's all-gathers wait for an event that is recorded after the update, and for nothing else on its
    stream (``set_post_optim_event``, CUDA)."""
    needless_in_backward: tuple[str, ...] = ()
    """FQNs of units whose parameters backward does not need, such as an embedding's (``set_unshard_in_backward``): they
    are gathered in forward only."""
    reduce_scatter_unused_params: bool = False
    """Reduce zeros for parameters of a unit that had no gradient on this rank, as others may have had one
    (``set_reduce_scatter_unused_params``, torch 2.13)."""
    keep_unsharded_storage: bool = False
    """Keep the memory of gathered parameters when they are freed, so that all gathers of a unit write to one place
    (``set_keep_unsharded_storage``, torch 2.15)."""
    manual_backward_finalization: bool = False
    """End backward by ``finalize_backward``, called after a step's last backward, not by backward's own callback
    (``set_manual_backward_finalization``, torch 2.15)."""


Parallel = Annotated[Ddp | Fsdp1 | Fsdp2, Discriminator("kind")]


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


class Scenario(Record):
    """One cell: everything that decides what is measured. Nothing here depends on the machine, except ``device``."""

    schema_version: Literal[1]
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """``auto``: CUDA where there is any, else CPU."""
    model: ResolvedModel
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
    state_dict: StateDict | None = None
    """Take the state of model and optimizer out, save it, and put it back after the last step; left out: none of it."""
    repeat: Repeat = 1
    """Launches of each cell; each starts all ranks anew. ``auto``: as many as a precision needs."""
    env: dict[Variable, Value] = {}
    """Environment variables of the ranks, such as ``NCCL_ALGO``; each value a text in quotes."""
    python: Annotated[str, Field(min_length=1)] | None = None
    """Interpreter of the ranks, so that cells can compare torch builds; it needs dtbench, too. Left out: this one."""

    @property
    def gather_dtype(self) -> DtypeName:
        """Of gathered parameters and of compute; left out, it is the parameters' own."""
        return self.parallel.mixed_precision.param_dtype or self.precision.dtype

    @property
    def reduce_dtype(self) -> DtypeName:
        """Of reduced gradients; left out, it is that of compute (``spell_defaults``: torch 2.15 differs)."""
        return self.parallel.mixed_precision.reduce_dtype or self.gather_dtype

    @property
    def wants_canary(self) -> bool:
        """Whether missing waits are looked for; left out, they are where results over an emulated link are checked."""
        asked = self.correctness.canary
        if asked is None:
            return self.correctness.enabled and isinstance(self.network, EmulatedNetwork)
        return asked
