"""What is switched on FSDP2's units once they are wrapped, one row a knob; and each read back from all of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch.distributed.fsdp import FSDPModule

from dtbench.base.errors import PlanError
from dtbench.base.vocabulary import DeviceKind
from dtbench.scenario.schema.scenario import Fsdp2
from dtbench.store.records.rank import Receipt
from dtbench.worker.parallelize.knobs import require_methods
from dtbench.worker.receipts import compare, without_effect

Units = Mapping[str, Any]
"""FSDP units by FQN, the root, which is first, as ``""``."""


def _holds_comm(group: Any, name: str) -> bool:
    """Tell whether a group gathers by a class of torch's of this name, which not every torch has."""
    return type(group._all_gather_comm).__name__ == name


@dataclass(frozen=True)
class _Switch:
    """One knob that a method sets.

    Attributes:
        put: call the method on one unit.
        read: give its live state, of one parameter group; what torch lacks is as if it was not set.
        on_root: the method reaches all units from the root.
        idle_on_cpu: why it changes nothing there; empty: it does.
    """

    knob: str
    method: str
    put: Callable[[Any, Any], None]
    read: Callable[[Any], Any]
    on_root: bool = True
    idle_on_cpu: str = ""


_SWITCHES = (
    _Switch(
        "unshard_async_op",
        "_set_unshard_async_op",
        lambda unit, value: unit._set_unshard_async_op(async_op=value),
        lambda group: bool(group.unshard_async_op),
    ),
    _Switch(
        "force_sum_reduction",
        "set_force_sum_reduction_for_comms",
        lambda unit, value: unit.set_force_sum_reduction_for_comms(enable=value),
        lambda group: bool(group.force_sum_reduction_for_comms),
        on_root=False,
    ),
    _Switch(
        "gradient_divide_factor",
        "set_gradient_divide_factor",
        lambda unit, value: unit.set_gradient_divide_factor(value),
        lambda group: group.gradient_divide_factor,
        on_root=False,
    ),
    _Switch(
        "process_group_memory",
        "set_allocate_memory_from_process_group_for_comm",
        lambda unit, value: unit.set_allocate_memory_from_process_group_for_comm(enable=value),
        lambda group: _holds_comm(group, "ProcessGroupAllocAllGather"),
        on_root=False,
        idle_on_cpu="gloo allocates no memory itself",
    ),
    _Switch(  # after sums are forced: only these can be reduced in symmetric memory
        "symmetric_memory",
        "set_symm_mem_for_comm",
        lambda unit, _value: unit.set_symm_mem_for_comm(),
        lambda group: _holds_comm(group, "SymmMemAllGather"),
        on_root=False,
    ),
    _Switch(
        "reduce_scatter_unused_params",
        "set_reduce_scatter_unused_params",
        lambda unit, value: unit.set_reduce_scatter_unused_params(value),
        lambda group: bool(getattr(group, "reduce_scatter_unused_params", False)),
    ),
    _Switch(
        "keep_unsharded_storage",
        "set_keep_unsharded_storage",
        lambda unit, value: unit.set_keep_unsharded_storage(value),
        lambda group: all(getattr(one, "keep_unsharded_storage", False) for one in group.fsdp_params),
    ),
)
"""Knobs that hold for all units."""
_OTHERS = (
    ("separate_reduce_scatter_group", "set_separate_reduce_scatter_group"),
    ("reduce_scatter_max_input_buffers", "set_reduce_scatter_max_input_buffers"),
    ("needless_in_backward", "set_unshard_in_backward"),
    ("manual_backward_finalization", "set_manual_backward_finalization"),
    ("post_optimizer_event", "set_post_optim_event"),
)


def require_switches(parallel: Fsdp2) -> None:
    """Refuse what the installed torch cannot switch.

    Raises:
        MissingError: names each knob and the installed version.
    """
    methods = (*((one.knob, one.method) for one in _SWITCHES), *_OTHERS)
    require_methods(FSDPModule, [pair for pair in methods if _is_asked(parallel, pair[0])], "parallel")


def _is_asked(parallel: Fsdp2, knob: str) -> bool:
    return bool(getattr(parallel, knob) != Fsdp2.model_fields[knob].default)


def set_switches(units: Units, parallel: Fsdp2) -> None:
    """Set every knob that is not at torch's default.

    Raises:
        PlanError: a unit that is named is none of the model's.
    """
    root = units[""]
    for switch in _SWITCHES:
        if _is_asked(parallel, switch.knob):
            for unit in [root] if switch.on_root else units.values():
                switch.put(unit, getattr(parallel, switch.knob))
    if parallel.separate_reduce_scatter_group:
        root.set_separate_reduce_scatter_group()
    if parallel.reduce_scatter_max_input_buffers > 1:
        root.set_reduce_scatter_max_input_buffers(parallel.reduce_scatter_max_input_buffers)
    if parallel.manual_backward_finalization:
        root.set_manual_backward_finalization(enabled=True)
    _skip_needless(units, parallel)


def _skip_needless(units: Units, parallel: Fsdp2) -> None:
    for name in parallel.needless_in_backward:
        if not name or name not in units:
            raise PlanError(f"parallel.needless_in_backward: `{name}` is no unit; `{list(units)[-1]}` is one")
        units[name].set_unshard_in_backward(unshard_in_backward=False)


def read_switch_receipts(units: Units, parallel: Fsdp2, device: DeviceKind) -> Iterator[Receipt]:
    """Read every such knob back from the live state of all units; where these differ, what the first one says."""
    states = {name: unit._get_fsdp_state() for name, unit in units.items()}
    groups = {name: one._fsdp_param_group for name, one in states.items() if one._fsdp_param_group is not None}
    for switch in _SWITCHES:
        asked = getattr(parallel, switch.knob)
        values = [switch.read(group) for group in groups.values()]
        receipt = compare(f"parallel.{switch.knob}", asked, next((one for one in values if one != asked), asked))
        is_idle = device is DeviceKind.CPU and switch.idle_on_cpu and _is_asked(parallel, switch.knob)
        yield without_effect(receipt, switch.idle_on_cpu) if is_idle else receipt
    skipped = tuple(name for name, group in groups.items() if not group.unshard_in_backward)
    yield compare(
        "parallel.needless_in_backward",
        parallel.needless_in_backward,
        skipped,
        expected=tuple(name for name in groups if name in parallel.needless_in_backward),
        note="units that are gathered in forward only" if skipped else "",
    )
    yield compare(
        "parallel.manual_backward_finalization",
        parallel.manual_backward_finalization,
        bool(getattr(states[""]._state_ctx, "manual_backward_finalization", False)),
    )
    yield compare(
        "parallel.post_optimizer_event",
        parallel.post_optimizer_event,
        states[""]._state_ctx.post_optim_event is not None,
    )
