"""Sizes that do not divide and options that do not go together, each as a sentence that says what would work.

What torch itself gets wrong is in ``dtbench.plan.rules.refusals``.
"""

from collections.abc import Callable, Iterator
from functools import partial
from math import ceil
from typing import Final, assert_never

from dtbench.base.units import NS_PER_S
from dtbench.base.vocabulary import DeviceKind
from dtbench.plan.rules.ddp_problems import DDP_RULES, check_named
from dtbench.plan.rules.rule import EVERYWHERE, ON_CUDA, Case, Rule, make_rule_of
from dtbench.plan.rules.state_dict_problems import STAGE_DEVICE_RULE, STATE_DICT_RULES
from dtbench.plan.traffic.fsdp2 import find_shard_dim
from dtbench.plan.traffic.parameters import known_parameters
from dtbench.plan.traffic.tensor import count_data_ranks
from dtbench.scenario.schema.model import Custom, Mlp, OperatorCheckpointing, Timed, Transformer
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.scenario.schema.scenario import AdamW, Ddp, Fsdp1, Fsdp2, Scenario, TensorParallel

SMALLEST_FLOAT16: Final = 2**-24
"""Above zero, subnormal (IEEE 754-2019, binary16)."""
QUEUES_VARIABLE: Final = "CUDA_DEVICE_MAX_CONNECTIONS"
"""How many hardware queues the streams of a process share; 8 where it is not set (CUDA programming guide)."""
FEWEST_QUEUES: Final = 8


def _check_rows(scenario: Scenario) -> Iterator[str]:
    data, data_ranks = scenario.data, count_data_ranks(scenario.parallel)
    parts = data_ranks * scenario.accumulation.micro_batches
    if data.global_batch % parts:
        near = max(parts, data.global_batch // parts * parts)
        who = f"{data_ranks} data-parallel ranks"
        if parts > data_ranks:
            who += f" with {scenario.accumulation.micro_batches} micro-batches each"
        yield f"data.global_batch={data.global_batch} cannot be shared equally by {who}; {near} or {near + parts} can"


def _check_optimizer(scenario: Scenario) -> Iterator[str]:
    optimizer = scenario.optimizer
    if optimizer.foreach and optimizer.fused:
        yield "optimizer.foreach and optimizer.fused exclude each other; set one of them"
    if isinstance(optimizer, AdamW) and scenario.precision.dtype == "float16" and optimizer.eps < SMALLEST_FLOAT16:
        yield (
            f"optimizer.eps={optimizer.eps:g} is 0 in float16, and AdamW would divide by it; use optimizer.eps=1.0e-4, "
            "or precision.dtype=bfloat16"
        )


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


def _check_timed(scenario: Scenario) -> Iterator[str]:
    model = scenario.model
    if not isinstance(model, Timed):
        return
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


def _check_sync(scenario: Scenario) -> Iterator[str]:
    parallel = scenario.parallel
    if scenario.accumulation.sync == "reduce_scatter" and not (isinstance(parallel, Fsdp2) and parallel.replicas > 1):
        yield "accumulation.sync=reduce_scatter needs FSDP2 with parallel.replicas above 1; use last or every"


def _check_fsdp1(scenario: Scenario) -> Iterator[str]:
    parallel = scenario.parallel
    if not isinstance(parallel, Fsdp1):
        return
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


def _check_shard_dim(scenario: Scenario, parallel: Fsdp2) -> Iterator[str]:
    """Name parameters that cannot be sharded so, where the model is known."""
    if not parallel.shard_dim:
        return
    if parallel.tensor > 1 or scenario.state_dict is not None:
        yield "parallel.shard_dim is not there with a tensor axis or state_dict, which go by rows; leave one out"
    parameters = known_parameters(scenario.model) or ()
    if parameters:
        yield from check_named("shard_dim", parallel.shard_dim, [one.name for one in parameters])
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
        yield from check_named("mixed_precision.keep_dtype", policy.keep_dtype, names)


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


def _check_tensor_parallel(scenario: Scenario) -> Iterator[str]:
    parallel = scenario.parallel
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


def _check_gathered(scenario: Scenario, parallel: TensorParallel) -> Iterator[str]:
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


def _check_tensor_sizes(scenario: Scenario, parallel: TensorParallel) -> Iterator[str]:
    model = scenario.model
    sizes = _cut_sizes(model)
    if parallel.gather_weights is not None and isinstance(model, Mlp | Timed):
        sizes["model.dim"] = model.dim
    if parallel.sequence_parallel or parallel.gather_weights is not None:
        sizes["data.sequence_length"] = scenario.data.sequence_length
    yield from _check_tensor_options(model, parallel)
    for name, size in sizes.items():
        if size % parallel.tensor:
            yield f"{name}={size} is not a multiple of parallel.tensor={parallel.tensor}"


def _cut_sizes(model: Transformer | Mlp | Timed | Custom) -> dict[str, int]:
    """Return what the tensor axis must divide, by its name in a scenario."""
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


def _check_tensor_options(model: Transformer | Mlp | Timed | Custom, parallel: TensorParallel) -> Iterator[str]:
    if isinstance(model, Transformer):
        return
    if isinstance(model, Mlp | Timed) and model.hidden_dim is None and parallel.gather_weights is None:
        yield "model.hidden_dim=null: one product is not cut column- and row-wise; parallel.gather_weights works"
    yours = "a model of your own (say it in its tensor_plan)"
    whose = yours if isinstance(model, Custom) else f"a model of kind `{model.kind}`"
    for name in ("sequence_parallel", "loss_parallel"):
        if getattr(parallel, name):
            yield f"parallel.{name} is not there for {whose}; leave it out or use kind `transformer`"


def _check_tensor_company(scenario: Scenario, parallel: TensorParallel) -> Iterator[str]:
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


def _check_network(case: Case) -> Iterator[str]:
    network, ranks = case.scenario.network, case.ranks
    if not isinstance(network, EmulatedNetwork):
        return
    nodes = network.between_nodes
    if nodes is not None and (nodes.ranks_per_node >= ranks or ranks % nodes.ranks_per_node):
        yield _wrong_nodes(nodes.ranks_per_node, ranks)
    if network.slow_rank is not None and network.slow_rank.rank >= ranks:
        yield _no_such_rank("network", network.slow_rank.rank, ranks)


def _check_queues(scenario: Scenario) -> Iterator[str]:
    queues = scenario.env.get(QUEUES_VARIABLE, "")
    if isinstance(scenario.network, EmulatedNetwork) and queues.isdecimal() and int(queues) < FEWEST_QUEUES:
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


def _check_slow_rank(case: Case) -> Iterator[str]:
    model = case.scenario.model
    if isinstance(model, Timed) and model.slow_rank is not None and model.slow_rank.rank >= case.ranks:
        yield _no_such_rank("model", model.slow_rank.rank, case.ranks)


def _check_exposure(scenario: Scenario) -> Iterator[str]:
    if "ablation" in scenario.measure.exposure and not isinstance(scenario.network, EmulatedNetwork):
        yield (
            "measure.exposure=ablation leaves collectives out where their process group is wrapped, and NCCL's is not; "
            "measure.exposure=[trace, wait] works, or network.kind=emulated, or device=cpu"
        )


def _any(
    name: str,
    says: str,
    check: Callable[[Scenario], Iterator[str]],
    devices: frozenset[DeviceKind] = EVERYWHERE,
) -> Rule:
    """Return the row of a check of any scenario."""
    return Rule(name, says, lambda case: check(case.scenario), devices)


_fsdp2 = partial(make_rule_of, Fsdp2)


PROBLEMS = (
    _any(
        "model: sizes", "heads and outputs cut a model into whole parts", lambda scenario: _check_model(scenario.model)
    ),
    _any("rows", "data-parallel ranks and micro-batches share a batch equally", _check_rows),
    _any("optimizer", "options of the optimizer go together, and with its dtype", _check_optimizer),
    _any("accumulation", "FSDP2 over replicas alone leaves replicas to the last micro-batch", _check_sync),
    *DDP_RULES,
    _any("fsdp1: replicas", "hybrid strategies have replicas, and others none", _check_fsdp1),
    _fsdp2("options", "knobs of FSDP2 go together", _check_fsdp2),
    _fsdp2("needless", "a unit that backward does not gather is not needed there", _check_needless),
    _fsdp2("shard_dim", "shards divide the dimension that they cut", _check_shard_dim),
    _fsdp2("keep_dtype", "what keeps its dtype is kept from another", _check_keep_dtype),
    _any("tensor", "the tensor axis divides what it cuts, and its knobs need it", _check_tensor_parallel),
    _any("saved operators", "a recomputed block keeps what computes, not what communicates", _check_saved_operators),
    *STATE_DICT_RULES,
    _any("timed", "timed blocks take what they are said to take, and less than a hang", _check_timed),
)
"""What cannot run anywhere, whatever the machine and its torch."""

RANK_PROBLEMS = (
    STAGE_DEVICE_RULE,
    Rule("network: ranks", "nodes divide the ranks, and a slow rank is one of them", _check_network),
    _any("network: queues", "streams have queues enough for a lane of their own", _check_queues, ON_CUDA),
    Rule("timed: slow rank", "the slow rank is one of the ranks", _check_slow_rank),
)
"""What so many ranks on such a device cannot be asked for."""

EXPOSURE = _any(
    "exposure", "collectives that an estimate leaves out are of a wrapped process group", _check_exposure, ON_CUDA
)
