"""The functions under study, each listed once: where it stands in torch, how it can be reached, and what by or why not.

As of torch 2.11 to 2.15. Which functions there are decides the installed torch, not this list: a rank that probes them
compares the two and names what was renamed or removed. Classes and reasons were found by reading torch 2.13, and 2.15
for what came later, and by running them on CPUs.

A name is dotted as in the file, from classes and outer functions inwards: ``DistributedDataParallel.forward``,
``_gather_state_dict.dtensor_func``; the setter of a property ends in ``.setter``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

from dtbench.base.torch_versions import read_torch_release

ALL: Final = "all"
"""In a list of what to probe: everything."""


class Reach(StrEnum):
    """How a function can be reached.

    ``driven``: from torch's public functions. ``called``: torch has it, and only its own tests call it, so a scenario
    does. ``uncalled``: nothing in torch calls it. ``elsewhere``: not on CPUs over gloo.
    """

    DRIVEN = "driven"
    CALLED = "called"
    UNCALLED = "uncalled"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class StudiedFunction:
    """One function under study.

    Attributes:
        file: path below the folder of packages, ``torch/distributed/tensor/parallel/fsdp.py``.
        name: dotted, see above.
        reason: what drives it, or why nothing here does.
        since: the first version of torch that has it, major and minor; None: all that dtbench was tested with.
    """

    file: str
    name: str
    reach: Reach
    reason: str
    since: tuple[int, int] | None = None

    @cached_property
    def label(self) -> str:
        """File and name as ranges and ``measure.probes`` spell them: ``fsdp.DTensorExtensions.chunk_tensor``."""
        return f"{stem_of(self.file)}.{self.name}"

    def is_in(self, torch: str) -> bool:
        """Tell whether a version of torch such as ``2.13.0+cpu`` should have it."""
        return self.since is None or read_torch_release(torch) >= self.since

    def tell_absence(self, torch: str) -> str:
        """Say why this version of torch, which does not have it, does not."""
        if self.since is None or self.is_in(torch):
            return f"torch {torch} does not have it: renamed or removed"
        return f"torch has it since {'.'.join(map(str, self.since))}, and this is {torch}"


@cache
def stem_of(file: str) -> str:
    """Return the file's name without folders and ending; those of the files under study differ."""
    return PurePosixPath(file).stem


GRADIENT_HOOKS: Final = "torch/distributed/tensor/parallel/_data_parallel_utils.py"
FSDP_EXTENSIONS: Final = "torch/distributed/tensor/parallel/fsdp.py"
STATE_DICTS: Final = "torch/distributed/_state_dict_utils.py"
DDP: Final = "torch/nn/parallel/distributed.py"
DDP_OVER_TENSORS: Final = "torch/distributed/tensor/parallel/ddp.py"

FILES: Final = (GRADIENT_HOOKS, FSDP_EXTENSIONS, STATE_DICTS, DDP, DDP_OVER_TENSORS)


def _list(
    file: str, reach: Reach, reason: str, *names: str, since: tuple[int, int] | None = None
) -> tuple[StudiedFunction, ...]:
    return tuple(StudiedFunction(file, name, reach, reason, since) for name in names)


def _of_ddp(
    reach: Reach, reason: str, *names: str, since: tuple[int, int] | None = None
) -> tuple[StudiedFunction, ...]:
    return _list(DDP, reach, reason, *(f"DistributedDataParallel.{name}" for name in names), since=since)


_SHARDED_TENSOR: Final = (
    "sharded state dict with ShardedTensor of FSDP1 over a tensor axis, without a device mesh; over a 2x2 mesh torch "
    "2.13 itself raises on the way"
)
_MIXED: Final = "DDP's mixed precision needs a device with streams: on a CPU torch 2.13 raises"

FUNCTIONS: Final[tuple[StudiedFunction, ...]] = (
    *_list(
        GRADIENT_HOOKS,
        Reach.DRIVEN,
        "training under FSDP1 or DDP over a tensor axis",
        "sync_grad_hook",
        "_flatten_tensor",
        "_unflatten_tensor",
    ),
    *_list(
        FSDP_EXTENSIONS,
        Reach.DRIVEN,
        _SHARDED_TENSOR,
        "_get_box",
        "_get_box_for",
        "_get_local_box",
        "_create_shard_md_from_dt",
        "_create_sharded_tensor_md_from_dt",
        "_get_dt_pg",
        "_chunk_tensor",
        "DTensorExtensions.chunk_tensor",
    ),
    *_list(FSDP_EXTENSIONS, Reach.UNCALLED, "nothing in torch 2.13 calls it", "_rewrite_spec_if_needed"),
    *_list(
        FSDP_EXTENSIONS,
        Reach.DRIVEN,
        "sharded state dict with DTensor of FSDP1 over a tensor axis",
        "_chunk_dtensor",
        "DTensorExtensions.chunk_dtensor",
    ),
    *_list(
        FSDP_EXTENSIONS,
        Reach.CALLED,
        "loading a state of ShardedTensors into FSDP1 over a tensor axis, which torch 2.13 cannot take out of one",
        "_pre_load_state_dict",
        "DTensorExtensions.pre_load_state_dict_transform",
    ),
    *_list(
        FSDP_EXTENSIONS,
        Reach.DRIVEN,
        "loading a sharded state dict into FSDP1 over a tensor axis",
        "_all_gather_dtensor",
        "DTensorExtensions.all_gather_dtensor",
    ),
    *_list(
        FSDP_EXTENSIONS,
        Reach.DRIVEN,
        "wrapping a tensor-parallel model with FSDP1",
        "DTensorExtensions.__init__",
        "DTensorExtensions.pre_flatten_transform",
    ),
    *_list(
        FSDP_EXTENSIONS,
        Reach.DRIVEN,
        "every unshard of FSDP1 over a tensor axis",
        "DTensorExtensions.post_unflatten_transform",
    ),
    *_list(
        STATE_DICTS,
        Reach.DRIVEN,
        "full state dicts: get_model_state_dict and get_optimizer_state_dict with full_state_dict",
        "_identity_func",
        "_iterate_state_dict",
        "_gather_state_dict",
        "_gather_state_dict.dtensor_func",
    ),
    *_list(
        STATE_DICTS,
        Reach.DRIVEN,
        "full state dicts of models that hold ShardedTensors",
        "_all_gather_sharded_tensor",
        "_gather_state_dict.sharded_tensor_func",
    ),
    *_list(STATE_DICTS, Reach.DRIVEN, "state dicts with cpu_offload", "_offload_state_dict_to_cpu"),
    *_list(
        STATE_DICTS,
        Reach.DRIVEN,
        "staging of torch.distributed.checkpoint's asynchronous save",
        "_copy_state_dict",
        "_create_cpu_state_dict",
        "_create_cpu_state_dict.tensor_func",
        "_create_cpu_state_dict.dtensor_func",
        "_create_cpu_state_dict.sharded_tensor_func",
    ),
    *_list(
        STATE_DICTS,
        Reach.UNCALLED,
        "nothing in torch 2.13 calls it",
        "_check_state_dict_similarity",
        "_check_state_dict_similarity.tensor_func",
    ),
    *_list(
        STATE_DICTS,
        Reach.DRIVEN,
        "loading a full state dict with broadcast_from_rank0",
        "_broadcast_tensors",
        "_distribute_tensors",
        "_broadcast_state_dict",
    ),
    *_list(STATE_DICTS, Reach.DRIVEN, "loading a full state dict that every rank holds", "_distribute_state_dict"),
    *_list(
        STATE_DICTS,
        Reach.DRIVEN,
        "state dicts with flatten_optimizer_state_dict, and loading full optimizer states",
        "_traverse_state_dict",
        "_traverse_state_dict._traverse_obj",
        "_flatten_state_dict",
        "_flatten_state_dict.flat_copy",
        "_set_element",
        "_set_element.extend_list",
        "_unflatten_state_dict",
    ),
    *_list(
        DDP,
        Reach.DRIVEN,
        "construction",
        "_BucketCapacityConfig.create",
        "_BucketCapacityConfig.bucket_cap_mb",
        "_BucketCapacityConfig.has_custom_per_bucket_caps",
        "_BucketCapacityConfig.compute_bucket_size_limits",
        since=(2, 12),
    ),
    *_of_ddp(
        Reach.DRIVEN,
        "construction",
        "__init__",
        "_ddp_init_helper",
        "_build_params_for_reducer",
        "_build_params_for_reducer.produces_sparse_gradient",
        "_assign_modules_buffers",
        "_build_debug_param_to_name_mapping",
        "_passing_sync_batchnorm_handle",
    ),
    *_list(DDP, Reach.ELSEWHERE, _MIXED, "_cast_buffers", "_setup_mixed_precision_params"),
    *_of_ddp(Reach.ELSEWHERE, _MIXED, "_root_copy_hook", "_module_wait_for_copy_hook", "_fire_reducer_autograd_hook"),
    *_list(
        DDP,
        Reach.DRIVEN,
        "training with find_unused_parameters",
        "_tree_flatten_with_rref",
        "_tree_unflatten_with_rref",
        "_find_tensors",
        "_DDPSink.forward",
        "_DDPSink.backward",
    ),
    *_list(DDP, Reach.CALLED, "only torch's own tests call it", "_dump_DDP_relevant_env_vars"),
    *_list(
        DDP,
        Reach.DRIVEN,
        "join with uneven inputs",
        "_DDPJoinHook.__init__",
        "_DDPJoinHook.main_hook",
        "_DDPJoinHook.post_hook",
    ),
    *_of_ddp(
        Reach.DRIVEN,
        "join with uneven inputs",
        "join",
        "join_hook",
        "join_device",
        "join_process_group",
        "_check_global_requires_backward_grad_sync",
        "_check_and_sync_module_buffers",
        "_sync_final_model",
        "_match_all_reduce_for_bwd_pass",
        "_match_unused_params_allreduce",
        "_find_common_rank",
        "_distributed_rank",
    ),
    *_of_ddp(
        Reach.DRIVEN,
        "reading or setting the attribute broadcast_buffers",
        "broadcast_buffers",
        "broadcast_buffers.setter",
        since=(2, 13),
    ),
    *_of_ddp(
        Reach.DRIVEN,
        "compiled autograd with optimize_ddp=python_reducer",
        "_register_accum_grad_hook",
        "_register_accum_grad_hook.compiled_accum_grad_hook",
    ),
    *_of_ddp(
        Reach.DRIVEN,
        "delay_all_reduce_named_params",
        "_delayed_all_reduce_hook",
        "_register_delay_all_reduce_hook",
    ),
    *_of_ddp(
        Reach.DRIVEN,
        "every forward",
        "forward",
        "_pre_forward",
        "_post_forward",
        "_run_ddp_forward",
        "_inside_ddp_forward",
        "_clear_grad_buffer",
        "_check_sync_bufs_pre_fwd",
        "_check_sync_bufs_post_fwd",
        "will_sync_module_buffers",
    ),
    *_of_ddp(Reach.DRIVEN, "the first forward", "_lazy_init", "_setup_in_backward_optimizers"),
    *_of_ddp(Reach.DRIVEN, "train() and eval()", "train"),
    *_of_ddp(Reach.DRIVEN, "a mistake in the arguments, which it raises", "_log_and_throw"),
    *_of_ddp(
        Reach.DRIVEN, "pickle and deepcopy of the wrapped model", "__getstate__", "__setstate__", "_check_default_group"
    ),
    *_of_ddp(
        Reach.UNCALLED,
        "nothing in torch 2.13 calls it",
        "_get_parameters",
        "_get_parameters.model_parameters",
        "scatter",
        "to_kwargs",
        "gather",
    ),
    *_of_ddp(Reach.DRIVEN, "gradient accumulation", "no_sync"),
    *_of_ddp(
        Reach.DRIVEN,
        "manual_backward_finalization of DDP",
        "require_manual_backward_finalization.setter",
        "_check_manual_backward_finalization_supported",
        "finalize_backward",
        since=(2, 15),
    ),
    *_of_ddp(
        Reach.DRIVEN,
        "a training loop that asks DDP whether and when backward is to be finalised by hand",
        "require_manual_backward_finalization",
        "should_finalize_after_backward",
        since=(2, 15),
    ),
    *_of_ddp(Reach.DRIVEN, "torch.compile of a wrapped model", "_get_active_ddp_module"),
    *_of_ddp(Reach.DRIVEN, "register_comm_hook", "register_comm_hook", "_check_comm_hook"),
    *_of_ddp(
        Reach.DRIVEN,
        "forwards of a model with buffers",
        "_sync_buffers",
        "_sync_module_buffers",
        "_default_broadcast_coalesced",
        "_distributed_broadcast_coalesced",
    ),
    *_of_ddp(Reach.DRIVEN, "static_graph", "_set_static_graph"),
    *_of_ddp(
        Reach.CALLED,
        "private, and torch itself never calls it",
        "_register_buffer_comm_hook",
        "_register_builtin_comm_hook",
        "_register_fused_optim",
        "_set_params_and_buffers_to_ignore_for_model",
        "_get_ddp_logging_data",
        "_set_ddp_runtime_logging_sample_rate",
        "_remove_autograd_hooks",
        "_check_reducer_finalized",
        "_set_sparse_metadata",
        "_update_process_group",
        "_set_ddp_sink_clone",
    ),
    *_of_ddp(
        Reach.CALLED,
        "torch calls it only in the hook of its overlapped optimizer, which needs a device with streams",
        "_get_data_parallel_params",
    ),
    *_list(
        DDP_OVER_TENSORS,
        Reach.DRIVEN,
        "DDP over a tensor axis",
        "_pre_dp_module_transform",
        "_localize_dtensor",
        "_reconstruct_dtensor",
        "_get_submodule_n_params",
        "_update_module_param",
    ),
)
"""In the order of the files; of each, in groups of what drives them."""


class GradientHookBranch(StrEnum):
    """What ``sync_grad_hook`` does with a gradient."""

    PLAIN = "plain"
    AWAITED = "awaited"
    ON_COMPUTE_STREAM = "awaited on the compute stream"


class UnflattenBranch(StrEnum):
    """On which stream ``DTensorExtensions.post_unflatten_transform`` runs."""

    CURRENT_STREAM = "on the current stream"
    COMPUTE_STREAM = "on the compute stream"


BRANCHES: Final[Mapping[str, type[StrEnum]]] = MappingProxyType(
    {
        f"{stem_of(GRADIENT_HOOKS)}.sync_grad_hook": GradientHookBranch,
        f"{stem_of(FSDP_EXTENSIONS)}.DTensorExtensions.post_unflatten_transform": UnflattenBranch,
    }
)
"""By label, for the functions whose branches have names; those of others are not told apart."""


def list_branches(label: str) -> tuple[str, ...]:
    """Return the names of a function's branches; empty: they have none."""
    return tuple(map(str, BRANCHES.get(label, ())))


_CHOICES: Final = frozenset({ALL}.union(*({stem_of(one.file), one.label} for one in FUNCTIONS)))


def choose(names: Iterable[str]) -> tuple[StudiedFunction, ...]:
    """Return the functions that a scenario asks to probe, each once, in the order of the list.

    Args:
        names: each ``all``, a file without ending (``fsdp``) or a function's label
            (``_data_parallel_utils.sync_grad_hook``).
    """
    wanted = set(names)
    return tuple(one for one in FUNCTIONS if wanted & {ALL, stem_of(one.file), one.label})


def is_choice(name: str) -> bool:
    """Tell whether a name chooses anything."""
    return name in _CHOICES
