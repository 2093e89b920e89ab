"""What ``parallel: {kind: ddp}`` may say: torch's own knobs, hooks, and what its private functions offer."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Discriminator, Field, PositiveFloat, PositiveInt

from dtbench.base.record import Record
from dtbench.scenario.schema.fields import DtypeName, TensorParallel
from dtbench.scenario.schema.model import check_function_name


class PlainAllReduce(Record):
    """``allreduce_hook``: what DDP does anyway, through a hook: the price of having one."""

    kind: Literal["allreduce"]
    builtin: bool = False
    """Run the hook in C++ (``_register_builtin_comm_hook``) in place of Python."""


class Fp16Compress(Record):
    """``fp16_compress_hook``: gradients cross the wire as float16, half the bytes of float32."""

    kind: Literal["fp16_compress"]
    builtin: bool = False
    """Run the hook in C++ (``_register_builtin_comm_hook``) in place of Python."""


class Bf16Compress(Record):
    """``bf16_compress_hook``: gradients cross the wire as bfloat16; needs NCCL."""

    kind: Literal["bf16_compress"]


class EncodeAndDecode(Record):
    """``encode_and_decode`` of DDP's docstring: each bucket is cast before its all-reduce and cast back after it."""

    kind: Literal["encode_and_decode"]
    dtype: Literal["float16", "bfloat16"] = "bfloat16"
    """What gradients cross the wire as."""


class Noop(Record):
    """``noop`` of DDP's docstring: nothing is reduced, ranks train apart; what DDP costs without communication."""

    kind: Literal["noop"]


class CustomHook(Record):
    """A person's own hook: ``function(state, bucket)`` gives a ``Future`` of the bucket's gradients."""

    kind: Literal["custom"]
    function: Annotated[str, AfterValidator(check_function_name)]
    """``module:function``, looked for as the factory of a ``custom`` model is; its state is DDP's process group, and
    its second parameter is called ``bucket``."""


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


CommHook = Annotated[
    PlainAllReduce | Fp16Compress | Bf16Compress | EncodeAndDecode | PowerSgd | Noop | CustomHook,
    Discriminator("kind"),
]


class BufferCommHook(Record):
    """``_register_buffer_comm_hook``: floating-point buffers are averaged over ranks, in place of taking rank 0's."""

    location: Literal["pre_forward", "post_forward"] = "post_forward"
    """Before forward, which waits for it; or after it, beside backward, whose end waits for it."""


class Join(Record):
    """``join``: a rank that has run out of rows goes on to answer the others' collectives with zeros.

    When all are through, the last one's weights are broadcast.
    """

    divide_by_initial_world_size: bool = True
    """Divide gradients by all ranks, so that each row weighs the same; False: by those that still have rows."""


class DdpMixedPrecision(Record):
    """``_MixedPrecision`` of DDP: forward and backward on low-precision copies of the parameters; CUDA only."""

    param_dtype: DtypeName | None = None
    """Dtype of the copies; the other two need it."""
    reduce_dtype: DtypeName | None = None
    """Dtype of the all-reduce; left out: that of the copies."""
    buffer_dtype: DtypeName | None = None
    """Dtype that buffers are cast to; left out: no cast."""


LifecycleCall = Literal[
    "env_vars",
    "logging_data",
    "logging_sample_rate",
    "mistake",
    "data_parallel_params",
    "check_finalized",
    "train_and_eval",
    "broadcast_buffers",
    "deepcopy",
    "pickle",
    "sparse_metadata",
    "update_process_group",
    "remove_autograd_hooks",
]
"""What ``dtbench.worker.extras.lifecycle`` can do to a live model."""


OF_PLAIN_MODEL: Final = ("wrap", "replicas", "tensor", "sequence_parallel")
"""Fields that say something of a model without the wrapper (``wrap: false``), too."""


class Ddp(TensorParallel):
    """``DistributedDataParallel``: every rank holds the model; gradients are all-reduced in buckets during backward.

    With a tensor axis the cut model goes through ``_pre_dp_module_transform``, as torch's own composition does.
    """

    kind: Literal["ddp"]
    replicas: PositiveInt
    """Ranks along the ``replicate`` axis, each with a full copy of the model (of its tensor part)."""
    wrap: bool = True
    """False: the plain model on one rank, nothing around it: what the wrapper is held against."""
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
    ddp_sink_clone: bool = True
    """Clone forward's outputs on their way through ``_DDPSink`` (with ``find_unused_parameters`` or ``static_graph``);
    False: ``_set_ddp_sink_clone``, for a loss that changes no output in place."""
    broadcast_buffers: bool = True
    """Broadcast rank 0's buffers before forward (no effect for a model without buffers)."""
    buffer_comm_hook: BufferCommHook | None = None
    """What is done to buffers in place of that broadcast; left out: the broadcast."""
    init_sync: bool = True
    """Verify shapes and broadcast rank 0's parameters when wrapping."""
    batched_grad_copy: bool = False
    """Copy gradients into a bucket at once when it is full: two kernels for each bucket (torch 2.13)."""
    lazy_bucket_allocation: bool = False
    """Allocate a bucket when its first gradient is ready, and free it after backward (torch 2.15)."""
    manual_backward_finalization: bool = False
    """Wait for the buckets in ``finalize_backward``, called after backward, not in backward's own callback
    (``require_manual_backward_finalization``, torch 2.15)."""
    comm_hook: CommHook | None = None
    """What is done to each bucket in place of a plain all-reduce (``register_comm_hook``)."""
    delay_all_reduce: tuple[str, ...] = ()
    """FQNs of parameters, or of modules, that leave the buckets and are reduced all at once, when the first parameter's
    gradient is ready (``delay_all_reduce_named_params``)."""
    ignore: tuple[str, ...] = ()
    """FQNs of parameters, buffers or modules that DDP leaves alone (``_set_params_and_buffers_to_ignore_for_model``);
    dtbench all-reduces these gradients itself, one by one after backward, or ranks would drift apart."""
    python_reducer: bool = False
    """No buckets: a hook on each parameter all-reduces its gradient (``optimize_ddp="python_reducer"``), blocking
    unless backward is compiled."""
    compiled_autograd: bool = False
    """Compile backward too, with the backend of ``model.compile`` (``torch._dynamo.compiled_autograd``)."""
    optimizer_in_backward: bool = False
    """Update each bucket's parameters as soon as it is reduced (``_register_fused_optim``)."""
    join: Join | None = None
    """Lets ranks have unequally many iterations (``data.iterations``); left out: plain DDP, which hangs then."""
    lifecycle: tuple[LifecycleCall, ...] = ()
    """What is done to the live model after PROFILED steps, each timed; afterwards it must train as before."""
    mixed_precision: DdpMixedPrecision = DdpMixedPrecision()
