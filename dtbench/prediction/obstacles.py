"""Why a scenario has no closed form, each as a sentence that says what would have one.

What programs know is a list of fields: those that they write down, and those that change nothing that a link sees. Any
other field is an obstacle as soon as it is set, a field of tomorrow too.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from pydantic.fields import FieldInfo

from dtbench.base.record import Record
from dtbench.plan.plan import Plan
from dtbench.plan.rules.rule import ON_CUDA, Case, Rule, find_reasons
from dtbench.scenario.schema.ddp import Bf16Compress, Ddp, EncodeAndDecode, Fp16Compress, PlainAllReduce
from dtbench.scenario.schema.fields import TensorParallel
from dtbench.scenario.schema.model import Mlp, Timed, Transformer
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.scenario.schema.presets import written_model
from dtbench.scenario.schema.scenario import Data, Fsdp1, Fsdp1MixedPrecision, Fsdp2, Fsdp2MixedPrecision, Scenario

_SIZES: Final = frozenset({"kind", "layers", "dim"})
_AXES: Final = frozenset({"kind", *TensorParallel.model_fields} - {"gather_weights"})

FORESEEN: Final[Mapping[type[Record], frozenset[str]]] = {
    Scenario: frozenset(Scenario.model_fields) - {"model", "data", "parallel", "network"},
    Data: frozenset({"global_batch", "sequence_length"}),
    EmulatedNetwork: frozenset(EmulatedNetwork.model_fields),
    Timed: _SIZES | {"hidden_dim", "forward_ms", "backward_ms", "slow_rank"},
    Mlp: _SIZES | {"hidden_dim", "bias", "activation", "outputs"},
    Transformer: _SIZES
    | {"heads", "kv_heads", "ffn_dim", "vocab_size", "tied_head", "rope_theta", "norm_eps", "written"},
    Ddp: _AXES
    | {"replicas", "bucket_cap_mb", "bucket_cap_mb_list", "static_graph"}  # the program knows them
    | {"gradient_as_bucket_view", "batched_grad_copy", "lazy_bucket_allocation", "ddp_sink_clone"}  # copies, memory
    | {"broadcast_buffers", "buffer_comm_hook"}  # models that have a form have no buffers
    | {"init_sync", "lifecycle"},  # before and after the steps
    PlainAllReduce: frozenset(PlainAllReduce.model_fields),
    Fp16Compress: frozenset(Fp16Compress.model_fields),
    Bf16Compress: frozenset(Bf16Compress.model_fields),
    EncodeAndDecode: frozenset(EncodeAndDecode.model_fields),
    Fsdp1: _AXES
    | {"shards", "replicas", "sharding_strategy", "use_orig_params", "backward_prefetch", "forward_prefetch"}
    | {"limit_all_gathers"}  # of devices
    | {"sharded_state"},  # after the steps
    Fsdp1MixedPrecision: frozenset({"param_dtype", "reduce_dtype"})
    | {"buffer_dtype", "keep_low_precision_grads", "cast_forward_inputs", "cast_root_forward_inputs"},  # casts
    Fsdp2: _AXES
    | {"shards", "replicas", "reshard_after_forward", "reshard_after_backward", "unshard_async_op"}
    | {"forward_prefetch", "backward_prefetch", "separate_reduce_scatter_group", "shard_dim", "needless_in_backward"}
    | {"reduce_scatter_max_input_buffers", "process_group_memory"}  # gloo's reductions block, and it has no memory
    | {"force_sum_reduction", "gradient_divide_factor"}  # what is computed of the same bytes
    | {"reduce_scatter_unused_params", "keep_unsharded_storage"},  # every parameter is used; memory
    Fsdp2MixedPrecision: frozenset({"param_dtype", "keep_dtype", "reduce_dtype"})
    | {"output_dtype", "cast_forward_inputs"},  # casts
}
"""Fields that a closed form stands for, set or not, by their record. A record that is not listed has none."""

_OUTSIDE = "reduces gradients outside DDP's buckets; leave it out"
_OWN = "is your own: it is not known what it sends; leave it out"
_BESIDE = "model.running_statistics and model.unused_layers change what DDP sends beside gradients; leave them out"
_SENTENCES: Final[Mapping[str, str]] = {
    "network.kind=real": "network.kind=real has no known cost; network.kind=emulated has one",
    "model.kind=custom": "model.kind=custom: only building it shows its parameters; model.kind=timed has known ones",
    "model.activation_checkpointing": (
        "model.activation_checkpointing computes parts of forward again in backward; leave it out"
    ),
    "model.compile": "model.compile: a graph computes in an order of its own; leave it out",
    "model.running_statistics": _BESIDE,
    "model.unused_layers": _BESIDE,
    "model.sparse_embedding": (
        "model.sparse_embedding: what gloo sends of it depends on the rows of each rank; leave it out"
    ),
    "model.backward_at": (
        "model.backward_at=entry: what hides behind it nobody has written down; exit has a closed form"
    ),
    "data.iterations": "data.iterations puts several updates into a step; leave it out",
    "parallel.gather_weights": (
        "parallel.gather_weights waits inside hooks, in an order of autograd's own; leave it out"
    ),
    "parallel.wrap": "parallel.wrap=false reduces nothing; with the wrapper there is a closed form",
    "parallel.find_unused_parameters": (
        "parallel.find_unused_parameters adds an all-reduce that nobody may wait for; leave it out"
    ),
    "parallel.delay_all_reduce": (
        "parallel.delay_all_reduce moves gradients to an all-reduce that a hook starts; leave it out"
    ),
    "parallel.optimizer_in_backward": (
        "parallel.optimizer_in_backward updates on the thread that ends an all-reduce; leave it out"
    ),
    "parallel.comm_hook.kind=powersgd": (
        "parallel.comm_hook.kind=powersgd issues all-reduces when others end; fp16_compress has a closed form"
    ),
    "parallel.comm_hook.kind=custom": (
        "parallel.comm_hook.kind=custom: it is not known what it sends; allreduce has a closed form"
    ),
    "parallel.comm_hook.kind=noop": "parallel.comm_hook.kind=noop sends nothing; allreduce has a closed form",
    "parallel.mixed_precision": "parallel.mixed_precision of DDP copies parameters on streams of its own; leave it out",
    "parallel.ignore": f"parallel.ignore {_OUTSIDE}",
    "parallel.python_reducer": f"parallel.python_reducer {_OUTSIDE}",
    "parallel.all_gather": f"parallel.all_gather {_OWN}",
    "parallel.reduce_scatter": f"parallel.reduce_scatter {_OWN}",
    "parallel.all_reduce_hook": f"parallel.all_reduce_hook {_OWN}",
    "parallel.blocks_per_unit": (
        "parallel.blocks_per_unit: nobody has written down what hides behind several blocks; 1 has a form"
    ),
    "parallel.manual_backward_finalization": (
        "parallel.manual_backward_finalization waits after backward, in no region of it; leave it out"
    ),
}
"""What is known of fields that no closed form stands for, by their dotted names."""


def find_obstacles(scenario: Scenario, plan: Plan) -> Iterator[str]:
    """Return every reason why nobody can say how long a step takes."""
    return find_reasons(OBSTACLES, Case(scenario, plan.device, torch=plan.torch))


def find_unforeseen(record: Record, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Return the dotted names of fields that are set and that no closed form stands for.

    A section of a kind that has none is named by its kind, ``network.kind=real``.
    """
    foreseen = next(names for kind, names in FORESEEN.items() if isinstance(record, kind))
    for name, field in type(record).model_fields.items():
        value, place = getattr(record, name), (*path, name)
        if isinstance(value, Record) and isinstance(value, tuple(FORESEEN)):
            yield from find_unforeseen(value, place)
        elif name not in foreseen and _is_set(field, value):
            yield _spell(place, value)


def _is_set(field: FieldInfo, value: object) -> bool:
    """Whether a field asks for something: it differs from its default, or is a section of a kind that has no form."""
    has_kind = isinstance(value, Record) and "kind" in type(value).model_fields
    return has_kind or field.is_required() or value != field.get_default(call_default_factory=True)


def _spell(place: tuple[str, ...], value: object) -> str:
    name, kind = ".".join(place), getattr(value, "kind", None)
    return name if kind is None or name in _SENTENCES else f"{name}.kind={kind}"


def _check_fields(case: Case) -> Iterator[str]:
    names = find_unforeseen(case.scenario)
    yield from dict.fromkeys(
        _SENTENCES.get(name, f"{name}: nobody has written down what it changes; leave it out") for name in names
    )


def _check_tensor(case: Case) -> Iterator[str]:
    model = case.scenario.model
    if case.scenario.parallel.tensor > 1 and not isinstance(model, Timed | Mlp):
        kind = written_model(model).kind
        yield f"parallel.tensor over model.kind={kind} exchanges inside its blocks; model.kind=timed has a closed form"


def _check_streams(_case: Case) -> Iterator[str]:
    yield "on CUDA streams decide what overlaps, and nobody has written these down; device=cpu has a closed form"


OBSTACLES: Final = (
    Rule("closed form: streams", "ranks compute on CPU", _check_streams, ON_CUDA),
    Rule(
        "closed form: fields",
        "what is set is known to a program, or changes nothing that a link sees: below",
        _check_fields,
    ),
    Rule("closed form: tensor", "blocks exchange where their products are done", _check_tensor),
)
"""Why a step has no closed form."""
