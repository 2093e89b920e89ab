"""Why a collective was issued and for which FSDP unit: by mesh axis and region, or by the ranges around its issue."""

import re
from collections.abc import Sequence
from typing import Final

from dtbench.analyze.kinds.operators import ENGINE
from dtbench.ranges import ROOT, UNIT_PREFIX
from dtbench.vocabulary import Axis, Operation, Purpose, Region, purpose_of

_UNIT_RANGE: Final = re.compile(rf"(?:FSDP::\w+|{UNIT_PREFIX})(?: \((.*)\))?")
FSDP1: Final = "FullyShardedDataParallel."
FSDP1_GRADIENTS: Final = "FullyShardedDataParallel._post_backward_hook"
FSDP_RANGES: Final = ("FSDP::", FSDP1, UNIT_PREFIX)
"""What the names of ranges begin with inside which FSDP, either one, issues its own collectives."""
# The range around the issue, and the names that `dist.record_comm` may give the communication itself.
_FSDP_REDUCES: Final = ("FSDP::post_backward_reduce", "FSDP::reduce_scatter", "FSDP::all_reduce")
_REDUCTIONS: Final = (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER)


def find_purpose(
    axis: Axis | None, operation: Operation | None, region: Region | None, above: Sequence[str]
) -> Purpose:
    """Give the purpose of a collective in anyone's trace.

    Where the trace says both mesh axis and region, ``vocabulary.purpose_of`` decides, as it did in the worker. Else the
    first of these that holds: the region is state dict; FSDP's ranges lie around the issue; it is a send or receive;
    the region is optimizer; DTensor issued it as a functional collective; the autograd engine issued a reduction.

    Args:
        axis: of the process group; None: unknown.
        operation: None: unknown.
        region: at the issue; None: unknown or outside all.
        above: names of the spans around the issue.
    """
    if axis is not None and operation is not None and region is not None:
        return purpose_of(axis, operation, region)
    in_backward = region is Region.BACKWARD or _any_starts(above, ENGINE)
    rules = (
        (region is Region.STATE_DICT, Purpose.STATE),
        (_any_starts(above, "FSDP::all_gather"), Purpose.UNSHARD),
        (_any_starts(above, _FSDP_REDUCES), Purpose.GRAD_REDUCE),
        (_any_starts(above, FSDP1) and operation is Operation.ALL_GATHER, Purpose.UNSHARD),
        (_any_starts(above, FSDP1_GRADIENTS) and operation in _REDUCTIONS, Purpose.GRAD_REDUCE),
        (operation in (Operation.SEND, Operation.RECV), Purpose.PIPELINE),
        (region is Region.OPTIMIZER, Purpose.OTHER),
        (any(is_functional(name) for name in above), Purpose.TENSOR),
        (in_backward and operation in _REDUCTIONS, Purpose.GRAD_REDUCE),
    )
    return next((purpose for holds, purpose in rules if holds), Purpose.OTHER)


def _any_starts(names: Sequence[str], prefix: str | tuple[str, ...]) -> bool:
    return any(name.startswith(prefix) for name in names)


def is_functional(name: str) -> bool:
    """Tell whether an operator is a functional collective: what DTensor issues."""
    return name.startswith(("_c10d_functional::", "c10d_functional::"))


def find_unit(above: Sequence[str]) -> str:
    """Name the FSDP unit whose range encloses an issue most closely; ``root`` where FSDP names none; empty: none."""
    for name in above:
        if (match := _UNIT_RANGE.fullmatch(name)) is not None:
            return match[1] or ROOT
    return ""
