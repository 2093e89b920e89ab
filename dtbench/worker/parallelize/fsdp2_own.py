"""A person's own collectives and hook in FSDP2's units, set and read back."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

from dtbench.base.errors import PlanError
from dtbench.scenario.schema.scenario import Fsdp2
from dtbench.store.records.rank import Receipt
from dtbench.worker.models.factory import find_function
from dtbench.worker.parallelize.fsdp2_switches import Units
from dtbench.worker.receipts import compare

_CLASSES: Final = {"all_gather": AllGather, "reduce_scatter": ReduceScatter}


def set_own(units: Units, parallel: Fsdp2, import_folders: Sequence[str]) -> None:
    """Put what a scenario names into every unit.

    Raises:
        PlanError: it cannot be found, or is not what torch takes.
    """
    for knob, kind in _CLASSES.items():
        if (name := getattr(parallel, knob)) is not None:
            found = find_function(name, import_folders, field=f"parallel.{knob}")
            if not (isinstance(found, type) and issubclass(found, kind)):
                raise PlanError(f"parallel.{knob}: `{name}` is no subclass of torch's {kind.__name__}")
            for unit in units.values():
                _put(unit, knob, found())
    if parallel.all_reduce_hook is not None:
        hook = find_function(parallel.all_reduce_hook, import_folders, field="parallel.all_reduce_hook")
        for unit in units.values():
            unit.set_all_reduce_hook(hook)


def _put(unit: Any, knob: str, comm: Any) -> None:
    if knob == "all_gather":
        unit.set_custom_all_gather(comm)
    else:
        unit.set_custom_reduce_scatter(comm)


def read_own_receipts(units: Units, parallel: Fsdp2) -> Iterator[Receipt]:
    """Compare with what the live units hold: a class of torch's own is none of a person's."""
    states = [unit._get_fsdp_state()._fsdp_param_group for unit in units.values()]
    groups = [group for group in states if group is not None]
    comms = {"all_gather": "_all_gather_comm", "reduce_scatter": "_reduce_scatter_comm"}
    for knob, attribute in comms.items():
        names = [_name_own(type(getattr(group, attribute))) for group in groups]
        yield _compare_all(knob, getattr(parallel, knob), names)
    yield _compare_all("all_reduce_hook", parallel.all_reduce_hook, [_name_own(one._all_reduce_hook) for one in groups])


def _name_own(thing: Any) -> str | None:
    is_torchs = thing is None or thing.__module__.partition(".")[0] == "torch"
    return None if is_torchs else f"{thing.__module__}:{thing.__qualname__}"


def _compare_all(knob: str, asked: str | None, names: Sequence[str | None]) -> Receipt:
    """Compare what all units hold; where these differ, what the first one says."""
    return compare(f"parallel.{knob}", asked, next((name for name in names if name != asked), asked))
