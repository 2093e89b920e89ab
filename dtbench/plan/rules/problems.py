"""Sizes that do not divide and options that do not go together, each as a sentence that says what would work.

What torch itself gets wrong is in ``dtbench.plan.rules.refusals``.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import Final, assert_never

from dtbench.base.units import NS_PER_S
from dtbench.base.vocabulary import DeviceKind
from dtbench.plan.rules.ddp_problems import find_ddp_problems, find_others_problems
from dtbench.plan.rules.state_dict_problems import find_stage_device_problems, find_state_dict_problems
from dtbench.plan.traffic.buffers import list_buffers
from dtbench.plan.traffic.fsdp2 import find_shard_dim
from dtbench.plan.traffic.parameters import is_under, known_parameters
from dtbench.plan.traffic.tensor import count_data_ranks
from dtbench.scenario.schema.model import Custom, Mlp, OperatorCheckpointing, Timed, Transformer
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.scenario.schema.scenario import AdamW, Cut, Ddp, Fsdp1, Fsdp2, Scenario

SMALLEST_FLOAT16: Final = 2**-24
"""Above zero, subnormal (IEEE 754-2019, binary16)."""
QUEUES_VARIABLE: Final = "CUDA_DEVICE_MAX_CONNECTIONS"
"""How many hardware queues the streams of a process share; 8 where it is not set (CUDA programming guide)."""
FEWEST_QUEUES: Final = 8


def find_problems(scenario: Scenario) -> Iterator[str]:
    """Name every reason why these sizes and options cannot run anywhere."""
    data = scenario.data
    data_ranks = count_data_ranks(scenario.parallel)
    yield from _check_model(scenario.model)
    parts = data_ranks * scenario.accumulation.micro_batches
    if data.global_batch % parts:
        near = max(parts, data.global_batch // parts * parts)
        who = f"{data_ranks} data-parallel ranks"
        if parts > data_ranks:
            who += f" with {scenario.accumulation.micro_batches} micro-batches each"
        yield f"data.global_batch={data.global_batch} cannot be shared equally by {who}; {near} or {near + parts} can"
    optimizer = scenario.optimizer
    if optimizer.foreach and optimizer.fused:
        yield "optimizer.foreach and optimizer.fused exclude each other; set one of them"
    if isinstance(optimizer, AdamW) and scenario.precision.dtype == "float16" and optimizer.eps < SMALLEST_FLOAT16:
        yield (
            f"optimizer.eps={optimizer.eps:g} is 0 in float16, and AdamW would divide by it; use optimizer.eps=1.0e-4, "
            "or precision.dtype=bfloat16"
        )
    yield from _check_strategy(scenario)
    yield from _check_tensor_parallel(scenario, scenario.parallel)
    yield from _check_saved_operators(scenario)
    yield from find_state_dict_problems(scenario)
    if isinstance(scenario.model, Timed):
        yield from _check_timed(scenario, scenario.model)


def _check_model(model: Transformer | Mlp | Timed | Custom) -> Iterator[str]:
    if isinstance(model, Mlp) and model.outputs > model.dim:
        yield f"model.outputs={model.outputs} cuts model.dim={model.dim} into more parts than it has; {model.dim} works"
    if not isinstance(model, Transformer):
        return
    if model.dim % model.heads:
        yield f"model.dim={model.dim} is not a multiple of model.heads={model.heads}"
    elif model.dim // model.heads % 2:
        head_size = f"model.dim / model.heads = {model.dim // model.heads}"
        yield f"{head_size} is odd, but rotary embedding turns pairs; use an even head size"
    if model.kv_heads and model.heads % model.kv_heads:
        yield f"model.heads={model.heads} is not a multiple of model.kv_heads={model.kv_heads}"


def _check_timed(scenario: Scenario, model: Timed) -> Iterator[str]:
    for name in ("activation_checkpointing", "compile"):
        if getattr(model, name) is not None:
            yield f"model.{name} would change what a `timed` block is said to take; leave it out, or use kind `mlp`"
    slowest = 0 if model.slow_rank is None else model.slow_rank.rank
    region_s = model.layers * max(model.cost_ns(slowest).values()) / NS_PER_S
    stall_s = scenario.measure.stall_timeout_s
    if region_s >= stall_s:
        yield (
            f"{model.layers} blocks take {region_s:g} s in a row, and a rank without progress for "
            f"measure.stall_timeout_s={stall_s:g} is taken for hung; measure.stall_timeout_s={ceil(2 * region_s)} works"
        )


def _check_strategy(scenario: Scenario) -> Iterator[str]:
    """Name what does not go together in the ``parallel`` section and ``accumulation``."""
    parallel, accumulation = scenario.parallel, scenario.accumulation
    if accumulation.sync == "reduce_scatter" and not (isinstance(parallel, Fsdp2) and parallel.replicas > 1):
        yield "accumulation.sync=reduce_scatter needs FSDP2 with parallel.replicas above 1; use last or every"
    if not isinstance(parallel, Ddp):
        yield from find_others_problems(scenario)
    match parallel:
        case Ddp():
            yield from _check_ddp(scenario, parallel)
        case Fsdp1():
            yield from _check_fsdp1(parallel)
        case Fsdp2():
            yield from _check_fsdp2(scenario, parallel)


def _check_ddp(scenario: Scenario, parallel: Ddp) -> Iterator[str]:
    yield from find_ddp_problems(scenario, parallel)
    names = [parameter.name for parameter in known_parameters(scenario.model) or ()]
    if not names:
        return  # a person's own model: only building it shows its names
    yield from _check_named("delay_all_reduce", parallel.delay_all_reduce, names)
    yield from _check_named("ignore", parallel.ignore, [*names, *(one.name for one in list_buffers(scenario.model))])
    if is_under(names[0], parallel.delay_all_reduce):
        yield f"parallel.delay_all_reduce must leave out `{names[0]}`, whose gradient starts the delayed all-reduce"
    if all(is_under(name, parallel.ignore) for name in names):
        yield "parallel.ignore leaves DDP nothing to reduce; take some names off, or the wrapper: parallel.wrap=false"
    if any(is_under(name, parallel.ignore) and is_under(name, parallel.delay_all_reduce) for name in names):
        yield "parallel.ignore and parallel.delay_all_reduce name the same parameter; name it once"


def _check_named(knob: str, modules: Iterable[str], names: Sequence[str]) -> Iterator[str]:
    for module in modules:
        if not any(is_under(name, [module]) for name in names):
            yield f"parallel.{knob}: `{module}` names no parameter or module; `{names[1]}` is a parameter"


def _check_fsdp1(parallel: Fsdp1) -> Iterator[str]:
    is_hybrid = "HYBRID" in parallel.sharding_strategy
    if is_hybrid and parallel.replicas == 1:
        asked = f"parallel.sharding_strategy={parallel.sharding_strategy}"
        yield f"{asked} needs parallel.replicas above 1; or use FULL_SHARD"
    if not is_hybrid and parallel.replicas > 1:
        yield (
            f"parallel.replicas={parallel.replicas} needs parallel.sharding_strategy=HYBRID_SHARD, or "
            "_HYBRID_SHARD_ZERO2; the others know one axis"
        )


def _check_fsdp2(scenario: Scenario, parallel: Fsdp2) -> Iterator[str]:
    if not parallel.reshard_after_backward and scenario.accumulation.micro_batches == 1:
        yield (
            "parallel.reshard_after_backward=false needs accumulation.micro_batches above 1: without, the next step "
            "would train on the weights from before the update"
        )
    second = parallel.reshard_after_forward
    if not isinstance(second, bool) and second is not None and (parallel.shards % second or second == parallel.shards):
        yield (
            f"parallel.reshard_after_forward={second} must divide parallel.shards={parallel.shards} and be less; "
            "true or false are the other choices"
        )
    if parallel.manual_backward_finalization and scenario.accumulation.sync != "last":
        yield (
            "parallel.manual_backward_finalization ends all backwards of a step at once, and reduces then; "
            "accumulation.sync=last works"
        )
    memories = ("process_group_memory", "symmetric_memory", "all_gather", "reduce_scatter")
    own = [name for name in memories if getattr(parallel, name)]
    if len(own) > 1 and set(own) != {"all_gather", "reduce_scatter"}:
        yield f"parallel.{own[0]} and parallel.{own[1]} both say where collectives' memory is; leave one of them out"
    yield from _check_needless(scenario, parallel)
    yield from _check_shard_dim(scenario, parallel)
    yield from _check_keep_dtype(scenario, parallel)


def _check_shard_dim(scenario: Scenario, parallel: Fsdp2) -> Iterator[str]:
    """Name parameters that cannot be sharded so, where the model is known."""
    if not parallel.shard_dim:
        return
    if parallel.tensor > 1 or scenario.state_dict is not None:
        yield "parallel.shard_dim is not there with a tensor axis or state_dict, which go by rows; leave one out"
    parameters = known_parameters(scenario.model) or ()
    if parameters:
        yield from _check_named("shard_dim", parallel.shard_dim, [one.name for one in parameters])
    for one in parameters:
        dim = find_shard_dim(one.name, parallel)
        if dim and (dim >= len(one.shape) or one.shape[dim] % parallel.shards):
            yield (
                f"parallel.shard_dim: `{one.name}` of shape {one.shape} cannot be cut along {dim} into "
                f"{parallel.shards} equal parts; 0 works, where torch pads"
            )


def _check_keep_dtype(scenario: Scenario, parallel: Fsdp2) -> Iterator[str]:
    """Name what keeps its dtype in vain, where the model is known."""
    policy = parallel.mixed_precision
    if policy.keep_dtype and policy.param_dtype is None:
        yield "parallel.mixed_precision.keep_dtype keeps parameters from param_dtype, which is not given; give it"
    if policy.keep_dtype and (parameters := known_parameters(scenario.model)) is not None:
        names = [one.name for one in parameters]
        yield from _check_named("mixed_precision.keep_dtype", policy.keep_dtype, names)


def _check_needless(scenario: Scenario, parallel: Fsdp2) -> Iterator[str]:
    """Name units that backward needs all the same, where the model is known: a product's weight gives its input's grad.

    The first block's input has no gradient; what is computed again needs its weights again.
    """
    model = scenario.model
    if not parallel.needless_in_backward or isinstance(model, Custom):
        return
    alone = model.mlp if isinstance(model, Timed) else model
    is_plain = model.activation_checkpointing is None and parallel.tensor == parallel.blocks_per_unit == 1
    fits = isinstance(alone, Mlp) and alone.hidden_dim is None and is_plain
    for name in parallel.needless_in_backward:
        if not fits or name != "layers.0":
            yield (
                f"parallel.needless_in_backward: backward needs the parameters of `{name}`; of dtbench's own models "
                "only `layers.0` of an mlp with model.hidden_dim=null is not needed, neither cut nor checkpointed, in "
                "a unit of its own"
            )


def _check_tensor_parallel(scenario: Scenario, parallel: Cut) -> Iterator[str]:
    if parallel.tensor > 1:
        yield from _check_tensor_sizes(scenario, parallel)
        yield from _check_tensor_company(scenario, parallel)
        if parallel.gather_weights is not None:
            yield from _check_gathered(scenario, parallel)
        return
    for name in ("sequence_parallel", "loss_parallel"):
        if getattr(parallel, name):
            yield f"parallel.{name} needs parallel.tensor above 1: it shards on the tensor axis"
    if parallel.gather_weights is not None:
        yield "parallel.gather_weights needs parallel.tensor above 1: it gathers over the tensor axis"


def _check_gathered(scenario: Scenario, parallel: Cut) -> Iterator[str]:
    """Name what cannot have its weights gathered over the tensor axis."""
    asked, model = "parallel.gather_weights", scenario.model
    if isinstance(parallel, Fsdp2):
        yield (
            f"{asked} is there to time sync_grad_hook, through which DDP and FSDP1 hand gradients of DTensors; FSDP2 "
            "takes DTensors as they are, so leave it out, or use parallel.kind=fsdp1"
        )
    match model:
        case Transformer():
            yield f"{asked} cuts the sequence, and attention needs all of it; use model.kind=mlp or timed"
        case Custom():
            yield f"{asked} is not there for a model of your own (gather in its forward, as its tensor_plan allows)"
        case Mlp() | Timed():
            pass
        case _:
            assert_never(model)
    for name in ("compile", "activation_checkpointing"):
        if getattr(scenario.model, name) is not None:
            yield f"{asked} with model.{name} would gather otherwise than planned; leave one of them out"


def _check_tensor_sizes(scenario: Scenario, parallel: Cut) -> Iterator[str]:
    model = scenario.model
    sizes = _cut_sizes(model)
    if parallel.gather_weights is not None and isinstance(model, Mlp | Timed):
        sizes["model.dim"] = model.dim
    if parallel.sequence_parallel or parallel.gather_weights is not None:
        sizes["data.sequence_length"] = scenario.data.sequence_length
    yield from _check_cut_options(model, parallel)
    for name, size in sizes.items():
        if size % parallel.tensor:
            yield f"{name}={size} is not a multiple of parallel.tensor={parallel.tensor}"


def _cut_sizes(model: Transformer | Mlp | Timed | Custom) -> dict[str, int]:
    """Give what the tensor axis must divide, by its name in a scenario."""
    match model:
        case Transformer():
            return {
                "model.heads": model.heads,
                "model.kv_heads": model.kv_heads or model.heads,
                "model.ffn_dim": model.ffn_dim,
                "model.vocab_size": model.vocab_size,
            }
        case Mlp() | Timed():
            return {} if model.hidden_dim is None else {"model.hidden_dim": model.hidden_dim}
        case Custom():
            return {}
        case _:
            assert_never(model)


def _check_cut_options(model: Transformer | Mlp | Timed | Custom, parallel: Cut) -> Iterator[str]:
    if isinstance(model, Transformer):
        return
    if isinstance(model, Mlp | Timed) and model.hidden_dim is None and parallel.gather_weights is None:
        yield "model.hidden_dim=null: one product is not cut column- and row-wise; parallel.gather_weights works"
    yours = "a model of your own (say it in its tensor_plan)"
    whose = yours if isinstance(model, Custom) else f"a model of kind `{model.kind}`"
    for name in ("sequence_parallel", "loss_parallel"):
        if getattr(parallel, name):
            yield f"parallel.{name} is not there for {whose}; leave it out or use kind `transformer`"


def _check_tensor_company(scenario: Scenario, parallel: Cut) -> Iterator[str]:
    model = scenario.model
    if scenario.precision.autocast:
        instead = "leave precision.autocast out"
        if not isinstance(parallel, Ddp):
            instead = f"use parallel.mixed_precision.param_dtype={scenario.precision.autocast} instead"
        yield f"precision.autocast does not reach DTensor's redistributions; with parallel.tensor above 1 {instead}"
    if isinstance(model, Transformer) and model.tied_head:
        yield (
            "model.tied_head cannot be tensor-parallel here: embedding and head would shard one weight twice; "
            "use tied_head=false or tensor=1"
        )


def _check_saved_operators(scenario: Scenario) -> Iterator[str]:
    checkpointing = scenario.model.activation_checkpointing
    if not isinstance(checkpointing, OperatorCheckpointing) or scenario.parallel.tensor == 1:
        return
    kept = [name for name in checkpointing.save if name.startswith("_c10d_functional")]
    if kept:
        yield (
            f"model.activation_checkpointing.save={kept[0]}: with a tensor axis the plan counts each collective "
            "of a recomputed block; save operators that compute"
        )


def find_rank_problems(scenario: Scenario, device: DeviceKind, ranks: int) -> Iterator[str]:
    """Name what so many ranks on such a device cannot be asked for."""
    network, model = scenario.network, scenario.model
    yield from find_stage_device_problems(scenario, device)
    if isinstance(network, EmulatedNetwork):
        yield from _check_network(network, ranks)
        if device is DeviceKind.CUDA:
            yield from _check_queues(scenario)
    if isinstance(model, Timed) and model.slow_rank is not None and model.slow_rank.rank >= ranks:
        yield _no_such_rank("model", model.slow_rank.rank, ranks)


def _check_network(network: EmulatedNetwork, ranks: int) -> Iterator[str]:
    nodes = network.between_nodes
    if nodes is not None and (nodes.ranks_per_node >= ranks or ranks % nodes.ranks_per_node):
        yield _wrong_nodes(nodes.ranks_per_node, ranks)
    if network.slow_rank is not None and network.slow_rank.rank >= ranks:
        yield _no_such_rank("network", network.slow_rank.rank, ranks)


def _check_queues(scenario: Scenario) -> Iterator[str]:
    queues = scenario.env.get(QUEUES_VARIABLE, "")
    if queues.isdecimal() and int(queues) < FEWEST_QUEUES:
        yield (
            f"env.{QUEUES_VARIABLE}={queues} lets streams stand in one queue, where a lane of the emulated link would "
            f"hold up compute; {FEWEST_QUEUES} or more works, or leave it out"
        )


def _wrong_nodes(ranks_per_node: int, ranks: int) -> str:
    asked = f"network.between_nodes.ranks_per_node={ranks_per_node}"
    if ranks == 1:
        return f"{asked}: one rank sends nothing between nodes; leave network.between_nodes out"
    near = max(size for size in range(1, min(ranks_per_node, ranks - 1) + 1) if ranks % size == 0)
    works = f"it must divide {ranks} and be below it: {near} makes {ranks // near} nodes"
    if ranks_per_node >= ranks:
        return f"{asked} puts all {ranks} ranks on one node, so that nothing would cross; {works}"
    return f"{asked}: {ranks} ranks do not fill such nodes; {works}"


def _no_such_rank(section: str, rank: int, ranks: int) -> str:
    which = f"{ranks} ranks; {ranks - 1} is the last" if ranks > 1 else "ranks; there is only rank 0"
    return f"{section}.slow_rank.rank={rank} is none of the {which}"
