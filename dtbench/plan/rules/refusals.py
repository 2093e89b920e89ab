"""Combinations that torch itself refuses, or carries out wrongly: each with what happens and what works instead.

``tests/worker/test_refusals.py`` runs every row on real ranks against the installed torch: the combination must fail,
the alternative must train correctly. A row that torch has mended turns that test red and can go.
"""

from collections.abc import Callable, Iterator, Mapping

from dtbench.base.vocabulary import DeviceKind, Stage, StatePart
from dtbench.plan.rules.rule import EVERYWHERE, ON_CPU, ON_CUDA, Case, Rule
from dtbench.plan.traffic.ddp import ddp_bucket_bytes
from dtbench.plan.traffic.parameters import known_parameters
from dtbench.scenario.schema.model import Transformer
from dtbench.scenario.schema.scenario import (
    AdamW,
    Bf16Compress,
    Ddp,
    DdpMixedPrecision,
    Fsdp1,
    Fsdp2,
    PowerSgd,
    Scenario,
)


def _refuse(
    name: str,
    devices: frozenset[DeviceKind],
    applies: Callable[[Scenario], bool],
    sentence: str,
    instead: Mapping[str, str],
    *,
    until: tuple[int, int] | None = None,
) -> Rule:
    """Return the row of one combination; ``sentence`` says what torch does, without a full stop."""
    fields = " and ".join(f"{path}={value}" for path, value in instead.items())

    def test(case: Case) -> Iterator[str]:
        if applies(case.scenario):
            yield f"{sentence}; {fields} works"

    return Rule(name, sentence, test, devices, until=until, instead=instead)


def _ddp(scenario: Scenario) -> Ddp | None:
    return scenario.parallel if isinstance(scenario.parallel, Ddp) else None


def _fsdp1(scenario: Scenario) -> Fsdp1 | None:
    return scenario.parallel if isinstance(scenario.parallel, Fsdp1) else None


def _is_sharded_fsdp1(scenario: Scenario) -> bool:
    parallel = _fsdp1(scenario)
    return parallel is not None and not parallel.is_whole


def _asks_for(scenario: Scenario, part: StatePart, stage: Stage) -> bool:
    """Whether a stage of a part is asked for, and not as one that is known to be broken."""
    asked = scenario.state_dict
    if asked is None or part not in asked.parts or stage not in asked.stages:
        return False
    return asked.find_broken(part, stage) is None


def _asks_for_any(scenario: Scenario, part: StatePart) -> bool:
    """Whether a part goes through any stage, but for those that are known to be broken."""
    asked = scenario.state_dict
    return asked is not None and any(_asks_for(scenario, part, stage) for stage in asked.stages)


def _moves_original_shapes(scenario: Scenario) -> bool:
    parallel = _fsdp1(scenario)
    if parallel is None or parallel.tensor == 1 or not parallel.use_orig_params:
        return False
    return parallel.is_whole


def _accumulates(scenario: Scenario) -> bool:
    return scenario.accumulation.micro_batches > 1


def _holds_back(scenario: Scenario) -> bool:
    return _accumulates(scenario) and scenario.accumulation.sync == "last"


def _powersgd_in_several_buckets(scenario: Scenario) -> bool:
    parallel, parameters = _ddp(scenario), known_parameters(scenario.model)
    if parallel is None or parameters is None or not isinstance(parallel.comm_hook, PowerSgd):
        return False
    return len(ddp_bucket_bytes(scenario, parallel, parameters)) > 1


def _compiles_with_small_buckets(scenario: Scenario) -> bool:
    parallel = _ddp(scenario)
    if parallel is None or scenario.model.compile is None:
        return False
    caps = parallel.bucket_cap_mb_list or (parallel.bucket_cap_mb,)
    return any(cap is not None and cap < 1 for cap in caps)


def _compiles_cut_attention(scenario: Scenario) -> bool:
    is_cut = scenario.parallel.tensor > 1 and isinstance(scenario.model, Transformer)
    return is_cut and scenario.model.compile is not None


def _compiles_full_graph(scenario: Scenario) -> bool:
    return scenario.model.compile is not None and scenario.model.compile.fullgraph


def _compiles_whole_model(scenario: Scenario) -> bool:
    return scenario.model.compile is not None and scenario.model.compile.what == "model"


def _mixes_without_copies(scenario: Scenario) -> bool:
    parallel = _ddp(scenario)
    if parallel is None or parallel.mixed_precision == DdpMixedPrecision():
        return False
    return parallel.mixed_precision.param_dtype is None


def _mixes_beside_a_hook(scenario: Scenario) -> bool:
    parallel = _ddp(scenario)
    if parallel is None or parallel.mixed_precision == DdpMixedPrecision():
        return False
    return parallel.comm_hook is not None or parallel.optimizer_in_backward


def _divides_in_products(scenario: Scenario) -> bool:
    """Tell whether FSDP2 scales inside a reduction that is no mean: where it need not fear to overflow."""
    parallel = scenario.parallel
    if not isinstance(parallel, Fsdp2) or parallel.gradient_divide_factor in (None, parallel.shards):
        return False
    return parallel.shards > 1 and not (parallel.force_sum_reduction or scenario.reduce_dtype == "float16")


def _divides_twice(scenario: Scenario) -> bool:
    parallel = scenario.parallel
    if not isinstance(parallel, Fsdp2) or parallel.gradient_divide_factor in (None, 1.0):
        return False
    return parallel.shards == 1 and (parallel.force_sum_reduction or scenario.reduce_dtype == "float16")


def _compiles_flat_units(scenario: Scenario) -> bool:
    return _fsdp1(scenario) is not None and _compiles_whole_model(scenario)


REFUSALS: tuple[Rule, ...] = (
    _refuse(
        "compiled transformer over tensor parallelism",
        EVERYWHERE,
        _compiles_cut_attention,
        "torch.compile of a transformer over a tensor axis raises on DTensors or gives wrong gradients",
        {"model.compile": "null"},
    ),
    _refuse(
        "fsdp1 in a compiled model",
        EVERYWHERE,
        _compiles_flat_units,
        "torch.compile cannot trace the collectives of FSDP1's units inside one compiled model",
        {"model.compile.what": "blocks"},
    ),
    _refuse(
        "fsdp1 over tensor parallelism with original parameters that are not sharded",
        EVERYWHERE,
        _moves_original_shapes,
        "FSDP1 over a tensor axis with parallel.use_orig_params and nothing sharded raises `Cannot writeback when the "
        "parameter shape changes`",
        {"parallel.use_orig_params": "false"},
    ),
    _refuse(
        "fsdp1 clips over tensor parallelism",
        EVERYWHERE,
        lambda s: bool((parallel := _fsdp1(s)) and parallel.tensor > 1 and s.gradient_clip_norm is not None),
        "FSDP1's clip_grad_norm_ leaves the tensor axis out of the norm, so tensor-parallel ranks scale differently",
        {"gradient_clip_norm": "null"},
    ),
    _refuse(
        "fsdp1 original parameters accumulate over tensor parallelism",
        EVERYWHERE,
        lambda s: bool((p := _fsdp1(s)) and p.tensor > 1 and p.use_orig_params and _holds_back(s)),
        "FSDP1 with parallel.use_orig_params over a tensor axis loses its parameters' storage under no_sync",
        {"parallel.use_orig_params": "false"},
    ),
    _refuse(
        "fsdp1 hybrid over one shard",
        EVERYWHERE,
        lambda s: bool((parallel := _fsdp1(s)) and "HYBRID" in parallel.sharding_strategy and parallel.shards == 1),
        "FSDP1 takes NO_SHARD for one rank along shard and then reduces over no replicas",
        {"parallel.shards": "2"},
    ),
    _refuse(
        "fsdp1 offloads on cpu",
        ON_CPU,
        lambda s: bool((parallel := _fsdp1(s)) and parallel.cpu_offload),
        "FSDP1's cpu_offload pins memory, which needs an accelerator",
        {"parallel.cpu_offload": "false"},
    ),
    _refuse(
        "fsdp2 offloads over the link on a device",
        ON_CUDA,
        lambda s: bool(isinstance(s.parallel, Fsdp2) and s.parallel.cpu_offload and s.network.kind == "emulated"),
        "FSDP2's cpu_offload reduces tensors in host memory over a second backend, which a group behind the emulated "
        "link cannot have",
        {"parallel.cpu_offload": "false"},
    ),
    _refuse(
        "fsdp1 synchronizes module states on cpu",
        ON_CPU,
        lambda s: bool((parallel := _fsdp1(s)) and parallel.sync_module_states),
        "FSDP1's sync_module_states wants the module on an accelerator",
        {"parallel.sync_module_states": "false"},
    ),
    _refuse(
        "fsdp1 optimizer states over tensor parallelism",
        EVERYWHERE,
        lambda s: bool((p := _fsdp1(s)) and p.tensor > 1 and _asks_for_any(s, StatePart.OPTIMIZER)),
        "FSDP1 takes optimizer states out by objects from rank 0, which is in no group of shards but one over a tensor "
        "axis: ranks of the others raise, and those of the first wait for them",
        {"state_dict.parts": "[model]"},
    ),
    _refuse(
        "fsdp1 offloads a whole state dict on cpu",
        ON_CPU,
        lambda s: bool(_is_sharded_fsdp1(s) and _asks_for(s, StatePart.MODEL, Stage.GATHER_OFFLOAD)),
        "FSDP1 copies its gathered parameters to the host for gather_offload and frees what it copied from, on a host "
        "the same memory",
        {"state_dict.stages": "[gather]"},
        until=(2, 14),
    ),
    _refuse(
        "fsdp1 loads a flattened optimizer state",
        EVERYWHERE,
        lambda s: bool(_is_sharded_fsdp1(s) and _asks_for(s, StatePart.OPTIMIZER, Stage.UNFLATTEN)),
        "FSDP1 keeps the optimizer states that it loads in the order of a set of their names, which each process has "
        "its own of, and takes those of a flattened state in that order: exp_avg and exp_avg_sq change places",
        {"state_dict.stages": "[load]"},
    ),
    _refuse(
        "fsdp1 keeps low precision gradients for adamw",
        EVERYWHERE,
        lambda s: bool(
            (parallel := _fsdp1(s))
            and parallel.mixed_precision.keep_low_precision_grads
            and s.reduce_dtype != s.precision.dtype
            and isinstance(s.optimizer, AdamW)
        ),
        "torch.optim.AdamW cannot mix gradients of keep_low_precision_grads with parameters of another dtype",
        {"parallel.mixed_precision.keep_low_precision_grads": "false"},
    ),
    _refuse(
        "ddp compresses to bfloat16 over gloo",
        ON_CPU,
        lambda s: bool((parallel := _ddp(s)) and isinstance(parallel.comm_hook, Bf16Compress)),
        "bf16_compress needs NCCL",
        {"parallel.comm_hook": "{kind: fp16_compress}"},
    ),
    _refuse(
        "ddp mixed precision on cpu",
        ON_CPU,
        lambda s: bool((parallel := _ddp(s)) and parallel.mixed_precision != DdpMixedPrecision()),
        "DDP's mixed precision copies parameters on CUDA streams",
        {"parallel.mixed_precision": "{}", "precision.autocast": "bfloat16"},
    ),
    _refuse(
        "ddp mixed precision without a dtype of the copies",
        EVERYWHERE,
        _mixes_without_copies,
        "DDP's mixed precision always makes copies, and fails without parallel.mixed_precision.param_dtype",
        {"parallel.mixed_precision": "{}"},
    ),
    _refuse(
        "ddp mixed precision beside a hook",
        EVERYWHERE,
        _mixes_beside_a_hook,
        "DDP takes one communication hook, and its mixed precision registers one of its own, so there can be neither "
        "parallel.comm_hook nor parallel.optimizer_in_backward",
        {"parallel.mixed_precision": "{}"},
    ),
    _refuse(
        "ddp reduces sparse gradients over nccl",
        ON_CUDA,
        lambda s: bool(_ddp(s) and isinstance(s.model, Transformer) and s.model.sparse_embedding),
        "NCCL does not all-reduce sparse tensors",
        {"model.sparse_embedding": "false"},
    ),
    _refuse(
        "powersgd in several buckets over gloo",
        ON_CPU,
        _powersgd_in_several_buckets,
        "PowerSGD chains three all-reduces for each bucket on gloo's threads, and with several buckets the ranks issue "
        "them in different orders",
        {"parallel.bucket_cap_mb": "4096"},
    ),
    _refuse(
        "ddp static graph accumulates",
        EVERYWHERE,
        lambda s: bool((parallel := _ddp(s)) and parallel.static_graph and _holds_back(s)),
        "DDP's static_graph fails in a first backward under no_sync",
        {"parallel.static_graph": "false"},
    ),
    _refuse(
        "ddp delayed all-reduce accumulates",
        EVERYWHERE,
        lambda s: bool((parallel := _ddp(s)) and parallel.delay_all_reduce and _accumulates(s)),
        "DDP's delayed all-reduce runs in every backward, also under no_sync, and the next micro-batch adds to a "
        "buffer that may still be in flight",
        {"accumulation.micro_batches": "1"},
    ),
    _refuse(
        "ddp delayed all-reduce below float32",
        EVERYWHERE,
        lambda s: bool((parallel := _ddp(s)) and parallel.delay_all_reduce and s.precision.dtype != "float32"),
        "DDP's delayed all-reduce makes its buffer in float32, which gradients of another dtype cannot be views of",
        {"parallel.delay_all_reduce": "[]"},
    ),
    _refuse(
        "ddp delayed all-reduce with an optimizer in backward",
        EVERYWHERE,
        lambda s: bool((parallel := _ddp(s)) and parallel.delay_all_reduce and parallel.optimizer_in_backward),
        "optimizer_in_backward updates what a bucket holds, so parameters of delay_all_reduce are never updated",
        {"parallel.optimizer_in_backward": "false"},
    ),
    _refuse(
        "ddp optimizer in backward over tensor parallelism",
        EVERYWHERE,
        lambda s: bool((parallel := _ddp(s)) and parallel.optimizer_in_backward and parallel.tensor > 1),
        "_register_fused_optim reduces over all ranks, tensor-parallel peers included",
        {"parallel.optimizer_in_backward": "false"},
    ),
    _refuse(
        "ddp optimizer in backward reduces every micro-batch",
        EVERYWHERE,
        lambda s: bool(
            (parallel := _ddp(s)) and parallel.optimizer_in_backward and _accumulates(s) and not _holds_back(s)
        ),
        "optimizer_in_backward updates whenever gradients are reduced, here after every micro-batch",
        {"accumulation.sync": "last"},
    ),
    _refuse(
        "compiled ddp with a first bucket below 1 MiB",
        EVERYWHERE,
        _compiles_with_small_buckets,
        "torch.compile cuts DDP's graphs at a first bucket of 1 MiB and asserts that no bucket is smaller",
        {"parallel.bucket_cap_mb": "null"},
    ),
    _refuse(
        "fsdp2 in one full graph",
        EVERYWHERE,
        lambda s: isinstance(s.parallel, Fsdp2) and _compiles_full_graph(s) and _compiles_whole_model(s),
        "FSDP2's hooks break the graph of a compiled model, which fullgraph forbids",
        {"model.compile.what": "blocks"},
    ),
    _refuse(
        "fsdp2 in symmetric memory on cpu",
        ON_CPU,
        lambda s: isinstance(s.parallel, Fsdp2) and s.parallel.symmetric_memory,
        "FSDP2's symmetric memory is NCCL's, on CUDA devices",
        {"parallel.symmetric_memory": "false"},
    ),
    _refuse(
        "fsdp2 waits for an event on cpu",
        ON_CPU,
        lambda s: isinstance(s.parallel, Fsdp2) and s.parallel.post_optimizer_event,
        "FSDP2's event after the update orders a device's streams, and torch records none on a CPU",
        {"parallel.post_optimizer_event": "false"},
    ),
    _refuse(
        "fsdp2 divides in a reduction over gloo",
        ON_CPU,
        _divides_in_products,
        "FSDP2 reduces sums of products (PREMUL_SUM) for parallel.gradient_divide_factor, which gloo does not have",
        {"parallel.force_sum_reduction": "true"},
    ),
    _refuse(
        "fsdp2 divides twice over one shard",
        EVERYWHERE,
        _divides_twice,
        "FSDP2 over one shard divides by parallel.gradient_divide_factor when it copies, and again after a sum",
        {"parallel.gradient_divide_factor": "null"},
    ),
    _refuse(
        "fsdp1 in full graphs",
        EVERYWHERE,
        lambda s: bool((parallel := _fsdp1(s)) and not parallel.use_orig_params and _compiles_full_graph(s)),
        "torch.compile breaks the graph of FSDP1's units without use_orig_params, which fullgraph forbids",
        {"model.compile.fullgraph": "false"},
    ),
)
