"""Why a collective was issued and for which FSDP unit: by mesh axis and region, or by the ranges around its issue.

The first of these that holds decides:

1. The region is state dict or optimizer, and gradient clipping belongs to that: ``state`` or ``other``, whatever the
   group; but parameters that a sharded optimizer gathers are unsharded.
2. The group's axis carries one thing only: ``tensor``, ``context``, ``expert``, ``pipeline``.
3. Ranges of FSDP, or the autograd hook of DDP's reducer, lie around the issue: ``unshard`` or ``grad_reduce``. Or an
   operator does that is known for what it sends: ``context``, ``expert``, and off the axes of data ``tensor``. In a
   trace with such ranges or hooks, all else on an axis of data is ``other``. Functional collectives of no known axis
   are for what their group shows (see ``functional.py``), and ``other`` where it shows nothing. All-to-alls that would
   be ``other`` are ``expert`` where dtbench's ranges say that a part of the module that issued them is ``experts``.
   Sends and receives of no known axis are ``pipeline`` where something shows stages (see ``exchanges.py``).
4. Operation and region, on an axis that is known. Nothing says of a gather over an axis that is of data, and no more
   than that, that it gathers parameters; see ``sharded_optimizers.py``.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from dtbench.base.ranges import CLIPPING_RANGE, ROOT, UNIT_PREFIX
from dtbench.base.vocabulary import POINT_TO_POINT, REDUCTIONS, Axis, Operation, Purpose, Region, purpose_of
from dtbench.traces.kinds.operators import ENGINE

_UNIT_RANGE: Final = re.compile(rf"(?:FSDP::\w+|{UNIT_PREFIX})(?: \((.*)\))?")
_FSDP2: Final = "FSDP::"
FSDP1: Final = "FullyShardedDataParallel."
FSDP1_GRADIENTS: Final = "FullyShardedDataParallel._post_backward_hook"
FSDP_RANGES: Final = (_FSDP2, FSDP1, UNIT_PREFIX)
"""What the names of ranges begin with that FSDP, either one, leaves."""
FSDP1_FORWARD: Final = "FullyShardedDataParallel.forward"
"""Lies around all of a unit's forward: what is issued there need not be FSDP's."""
# The range around the issue, and the names that `dist.record_comm` may give the communication itself.
_FSDP_GATHERS: Final = "FSDP::all_gather"
_FSDP_REDUCES: Final = ("FSDP::post_backward_reduce", "FSDP::reduce_scatter", "FSDP::all_reduce")
ACCUMULATES: Final = re.compile(rf"{ENGINE}: (?:torch::autograd::)?AccumulateGrad")
"""Nodes of the engine to which a parameter's gradient is handed over, and whose hooks reduce it."""
_CLIPS: Final = re.compile(rf"{CLIPPING_RANGE}|(?:.*\W)?_?clip_grad\w*", re.DOTALL)
_DATA: Final = (Axis.REPLICATE, Axis.SHARD, Axis.DATA)

# Operators, autograd functions, modules and kernels by what they send; each group is named as its purpose. Backward's
# nodes have the names of the functions and `Backward` behind.
_ASKERS: Final = re.compile(
    r"""(?P<context>ring_?(flash_?)?att(ention|n)|ulysses|context_?parallel|AttnFuncWithCP|flex_cp_allgather|_SeqAllToAll
        |SeqAllToAll[345]D|_AllGather\w*CP|flash_attn_(p2p|a2a)_communicate|zig_?zag_\w*att(ention|n))
    |(?P<expert>MoE_?(Layer|Dispatch|Combine|AllToAll|Scatter|Gather|AllGather)|(Fused|Token)_?(Dispatch|Combine)|expert_?parallel
        |(?:\b|_)ep::int(er|ra)node|hybrid_ep::|\bEp(Dispatch|Combine)\w*Kernel|moeA2A|deep_?ep\b)
    |(?P<tensor>(Copy|Gather|Scatter|Reduce|ReduceScatter|AllGather)(To|From)(Tensor)?(And\w+)?(Model|Sequence)Parallel
        |LinearWithGradAccumulation|LinearWithFrozenWeight|VocabParallel|(Column|Row)_?Parallel|_?ParallelCrossEntropy
        |tensor_(model_)?parallel(?!/random)|TensorParallel|userbuffers|cross_device_reduce|vllm::\w*all_?(reduce|gather)|vllm::reduce_scatter
        |(?<![A-Za-z])_(LayerNorm)?(Linear|MLP)(Backward\d*)?$)
    |(?P<other>SyncBatchNorm)""",
    re.IGNORECASE | re.VERBOSE,
)
_ATTENDS: Final = re.compile(r"att(?:entio)?n", re.IGNORECASE)
"""Functions and modules whose sends and receives take keys and values around a ring."""
_ASKED: Final = (Purpose.CONTEXT, Purpose.EXPERT, Purpose.TENSOR, Purpose.OTHER)
# Optimizers of which each rank has a part: the range that torch puts around a step, or a frame of `with_stack`.
_SHARDED_OPTIMIZER: Final = re.compile(
    r"Optimizer\.step\#(?:\w*(?:ZeRO|Distributed|Sharded)\w*|OSS)\."
    r"|.*(?:deepspeed/runtime/zero/|distrib_optimizer\.py|param_and_grad_buffer\.py|zero_redundancy_optimizer\.py"
    r"|distributed_fused_adam\.py)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class DataParallel:
    """What a whole trace shows of who reduces gradients and gathers parameters in it.

    Attributes:
        is_labelled: dtbench's worker made it, whose word on axis, operation and region is final.
        has_fsdp: there are ranges of FSDP.
        has_reducer: backward hooks reduce gradients of which every rank has all, as DDP's reducer does.
        has_stages: sends and receives of no known axis are a pipeline's; see ``exchanges.py``.
    """

    is_labelled: bool = False
    has_fsdp: bool = False
    has_reducer: bool = False
    has_stages: bool = False

    @property
    def has_evidence(self) -> bool:
        """Whether what FSDP or DDP asked for can be told from what somebody else did on the same group."""
        return self.has_fsdp or self.has_reducer


_NOTHING_SHOWN: Final = DataParallel()


class Functional(StrEnum):
    """What the functional collectives of a group carry that no axis names, each known by evidence of its own."""

    UNKNOWN = "unknown"
    PARAMETERS = "parameters"
    PRODUCTS = "products"


def find_data_parallel(
    issues: Iterable[tuple[Operation | None, Sequence[str]]], *, is_labelled: bool = False
) -> DataParallel:
    """Return what the issues of a trace show.

    Args:
        issues: operation and names of the spans around each, innermost first.
        is_labelled: by ranges of dtbench's.
    """
    has_fsdp = has_reducer = False
    for operation, above in issues:
        has_fsdp |= any(name.startswith(FSDP_RANGES) for name in above)
        has_reducer |= operation is Operation.ALL_REDUCE and _any_fits(above, ACCUMULATES)
    return DataParallel(is_labelled, has_fsdp, has_reducer)


def is_data_parallels(operation: Operation | None, above: Sequence[str]) -> bool:
    """Tell whether DDP's reducer or FSDP issued a collective: its ranks work on other data with the same parameters."""
    if any(is_functional(name) for name in above):
        return False
    is_reducers = operation is Operation.ALL_REDUCE and _any_fits(above, ACCUMULATES)
    return is_reducers or any(is_fsdps(name) for name in above)


def find_purpose(
    axis: Axis | None,
    operation: Operation | None,
    region: Region | None,
    above: Sequence[str],
    shown: DataParallel = _NOTHING_SHOWN,
    functional: Functional = Functional.UNKNOWN,
) -> Purpose:
    """Return the purpose of a collective in anyone's trace; see the module for the order.

    Where dtbench's worker said both mesh axis and region, and nothing shows who reduces gradients and gathers
    parameters, ``vocabulary.purpose_of`` decides, as it did there.

    Args:
        axis: of the process group; None: unknown.
        operation: None: unknown.
        region: at the issue; None: unknown or outside all.
        above: names of the spans around the issue, innermost first; the first may be its kernel's.
        shown: what the whole trace shows.
        functional: what functional collectives of its group carry.
    """
    if (
        shown.is_labelled
        and axis is not None
        and operation is not None
        and region is not None
        and not shown.has_evidence
    ):
        return purpose_of(axis, operation, region)
    if region is Region.STATE_DICT:
        return Purpose.STATE
    if region is Region.OPTIMIZER or _any_fits(above, _CLIPS):
        return Purpose.UNSHARD if _is_sharded_optimizers(axis, operation, above, shown) else Purpose.OTHER
    if axis is not None and axis not in _DATA:
        return purpose_of(axis, operation, region)
    asked = find_by_names(operation, above)
    if axis is None:
        return asked or _of_unknown_axis(operation, region, above, shown, functional)
    if asked is Purpose.TENSOR:
        asked = None
    return asked or _of_data_axis(axis, operation, region, above, shown)


def check_experts(
    purpose: Purpose, operation: Operation | None, region: Region | None, *, is_of_experts: bool
) -> Purpose:
    """Return an all-to-all of no other purpose to experts, where the module that issued it has some."""
    is_of_rows = is_of_experts and region not in (Region.OPTIMIZER, Region.STATE_DICT)
    if is_of_rows and purpose is Purpose.OTHER and operation is Operation.ALL_TO_ALL:
        return Purpose.EXPERT
    return purpose


def _of_data_axis(
    axis: Axis, operation: Operation | None, region: Region | None, above: Sequence[str], shown: DataParallel
) -> Purpose:
    if shown.has_evidence:
        return Purpose.GRAD_REDUCE if _may_be_reducers(operation, region, above, shown) else Purpose.OTHER
    in_backward = region is None and any(name.startswith(ENGINE) for name in above)
    return purpose_of(axis, operation, Region.BACKWARD if in_backward else region)


def _is_sharded_optimizers(
    axis: Axis | None, operation: Operation | None, above: Sequence[str], shown: DataParallel
) -> bool:
    """Tell whether an optimizer gathers the parameters of which each rank updated a part: not under FSDP."""
    if _any_fits(above, _CLIPS):
        return False
    if _any_fits(above, _SHARDED_OPTIMIZER):
        return operation in (Operation.ALL_GATHER, Operation.BROADCAST)
    return operation is Operation.ALL_GATHER and axis in _DATA and not shown.has_fsdp


def find_by_names(operation: Operation | None, above: Sequence[str]) -> Purpose | None:
    """Return what the innermost name says that says anything; None: none does."""
    functional = any(is_functional(name) for name in above)
    for name in above:
        if is_fsdps(name):
            found = _of_fsdp(name, operation, is_functional=functional)
        elif name.startswith(ENGINE) and ACCUMULATES.match(name):
            found = Purpose.GRAD_REDUCE if operation in REDUCTIONS and not functional else None
        else:
            found = _find_asker(name) or _of_sharded_optimizer(name, operation) or _of_attention(name, operation)
        if found is not None:
            return found
    return None


@lru_cache(maxsize=1 << 14)
def _find_asker(name: str) -> Purpose | None:
    match = None if name.startswith("c10d::") else _ASKERS.search(name)
    return None if match is None else next(purpose for purpose in _ASKED if match[purpose] is not None)


def _of_sharded_optimizer(name: str, operation: Operation | None) -> Purpose | None:
    """Return what a sharded optimizer issues outside its step: before it or after it; its norms are sums."""
    if operation in (Operation.ALL_GATHER, Operation.REDUCE_SCATTER) and _SHARDED_OPTIMIZER.match(name):
        return Purpose.UNSHARD if operation is Operation.ALL_GATHER else Purpose.GRAD_REDUCE
    return None


def _of_attention(name: str, operation: Operation | None) -> Purpose | None:
    return Purpose.CONTEXT if operation in POINT_TO_POINT and _ATTENDS.search(name) else None


def _of_fsdp(name: str, operation: Operation | None, *, is_functional: bool) -> Purpose | None:
    """Return what FSDP issues in one of its ranges; DTensor's collectives lie in some of them, too."""
    if name.startswith(_FSDP_GATHERS):
        return Purpose.UNSHARD
    if name.startswith(_FSDP_REDUCES):
        return Purpose.GRAD_REDUCE
    if is_functional:
        return None
    if operation is Operation.ALL_GATHER:
        return Purpose.UNSHARD
    reduces = operation in REDUCTIONS and name.startswith((_FSDP2, FSDP1_GRADIENTS, UNIT_PREFIX))
    return Purpose.GRAD_REDUCE if reduces else None


def _of_unknown_axis(
    operation: Operation | None,
    region: Region | None,
    above: Sequence[str],
    shown: DataParallel,
    functional: Functional,
) -> Purpose:
    if operation in POINT_TO_POINT:
        return Purpose.PIPELINE if shown.has_stages else Purpose.OTHER
    if any(is_functional(name) for name in above):
        return _of_functional(operation, above, shown, functional)
    return Purpose.GRAD_REDUCE if _may_be_reducers(operation, region, above, shown) else Purpose.OTHER


def _of_functional(
    operation: Operation | None, above: Sequence[str], shown: DataParallel, functional: Functional
) -> Purpose:
    if functional is Functional.PRODUCTS and operation is not Operation.ALL_TO_ALL:
        return Purpose.TENSOR
    if functional is not Functional.PARAMETERS or shown.has_evidence:
        return Purpose.OTHER
    if operation is Operation.ALL_GATHER:
        return Purpose.UNSHARD
    is_backwards = operation in REDUCTIONS and any(name.startswith(ENGINE) for name in above)
    return Purpose.GRAD_REDUCE if is_backwards else Purpose.OTHER


def _may_be_reducers(
    operation: Operation | None, region: Region | None, above: Sequence[str], shown: DataParallel
) -> bool:
    """Tell whether a sum in backward may be of gradients: a hook of gradients issued it, or no node of the engine did.

    DDP issues what it held back at the end of backward, from a callback; under FSDP there is no such thing. Where
    neither left anything, a loop may reduce its gradients itself.
    """
    node = next((name for name in above if name.startswith(ENGINE)), None)
    is_hooks = node is None or ACCUMULATES.match(node) is not None
    by_hand = node is None and not shown.has_evidence
    return (shown.has_reducer or by_hand) and operation in REDUCTIONS and region is Region.BACKWARD and is_hooks


def _any_fits(names: Sequence[str], pattern: re.Pattern[str]) -> bool:
    return any(pattern.match(name) for name in names)


def is_of_training(above: Sequence[str], region: Region | None) -> bool:
    """Tell whether what was issued is for neither clipping, nor the optimizer's step, nor a state dict."""
    return region not in (Region.OPTIMIZER, Region.STATE_DICT) and not _any_fits(above, _CLIPS)


def is_functional(name: str) -> bool:
    """Tell whether an operator is a functional collective: what DTensor issues."""
    return name.startswith(("_c10d_functional::", "c10d_functional::"))


def is_fsdps(name: str) -> bool:
    """Tell whether a range is one in which FSDP, either one, issues its own collectives, and nobody else does."""
    return name.startswith(FSDP_RANGES) and name != FSDP1_FORWARD


def find_unit(above: Sequence[str]) -> str:
    """Name the FSDP unit whose range encloses an issue most closely; ``root`` where FSDP names none; empty: none."""
    for name in above:
        if (match := _UNIT_RANGE.fullmatch(name)) is not None:
            return match[1] or ROOT
    return ""
