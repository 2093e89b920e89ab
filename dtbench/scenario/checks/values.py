"""Numbers of a cell that checks and answers can name, as ``dtbench report --json`` spells them, and what each is.

A member of a list is named by what tells it apart: ``purposes.unshard.exposed_ns``, ``causes.tail.exposed_ns``,
``purposes.grad_reduce.causes.late_ready.exposed_ns``, ``owners.bucket 0.exposed_ns``, ``ranks.0.idle_ns`` (or
``ranks.mean.idle_ns``), ``exposure.ablation.mean_ns``, ``gradient_waits.layers.0.up.weight.wait_ns``,
``probes.<label>.calls`` and, for one branch of a function, ``probes.<label>.<branch>.calls``; ``stages.<part>.<stage>``
as in ``stages.model.gather.duration_ns``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dtbench.base.vocabulary import Cause, Estimate, Purpose, Stage, StatePart
from dtbench.scenario.mistakes import find_nearest, shorten
from dtbench.seeds.functions import FUNCTIONS


class Quantity(StrEnum):
    """What a number is: its unit inside dtbench, and how a person writes and reads it."""

    TIME = "a time"
    SIZE = "a size"
    FRACTION = "a fraction"
    RATIO = "a ratio"
    COUNT = "a count"
    ERROR = "a relative error"


@dataclass(frozen=True)
class ValueName:
    """A name that was understood; ``path`` leads to the number, its empty parts stand for what was left out."""

    text: str
    path: tuple[str, ...]
    quantity: Quantity


_PLAIN: Final[Mapping[str, Quantity]] = {
    "step_time.median": Quantity.TIME,
    "step_time.low": Quantity.TIME,
    "step_time.high": Quantity.TIME,
    "step_time.quartile1": Quantity.TIME,
    "step_time.quartile3": Quantity.TIME,
    "profiler_cost.median": Quantity.RATIO,
    "time_to_first_step_ns": Quantity.TIME,
    "tokens_per_second": Quantity.COUNT,
    "model_flops_utilization": Quantity.FRACTION,
    "memory.rss_peak_bytes": Quantity.SIZE,
    "memory.allocated_peak_bytes": Quantity.SIZE,
    "memory.reserved_peak_bytes": Quantity.SIZE,
    "cpu_ns_per_step": Quantity.TIME,
    "hidden_fraction": Quantity.FRACTION,
    "exposed_step_fraction": Quantity.FRACTION,
    "warmup.steps": Quantity.COUNT,
    "compilation.graphs": Quantity.COUNT,
    "compilation.recompiles": Quantity.COUNT,
    "compilation.graph_breaks": Quantity.COUNT,
    "compilation.duration_ns": Quantity.TIME,
    "correctness.loss_error": Quantity.ERROR,
    "correctness.gradient_error": Quantity.ERROR,
    "exposure.serial_ns": Quantity.TIME,
    "exposure.overlapped_ns": Quantity.TIME,
    "prediction.expected_ns": Quantity.TIME,
    "state_steps.before_ns": Quantity.TIME,
    "state_steps.load_ns": Quantity.TIME,
    "state_steps.first_ns": Quantity.TIME,
    "state_steps.after_ns": Quantity.TIME,
    "state_steps.alone_ns": Quantity.TIME,
    "state_steps.beside_ns": Quantity.TIME,
    "state_steps.blocked_ns": Quantity.TIME,
    "state_steps.saved_ns": Quantity.TIME,
    "state_steps.in_flight": Quantity.COUNT,
    "state_steps.cost_ns": Quantity.TIME,
    "state_steps.file_bytes": Quantity.SIZE,
    "state_steps.cost_ns_per_mib": Quantity.TIME,
    "state_steps.mismatched": Quantity.COUNT,
}

_EXPOSED: Final = {"exposed_ns": Quantity.TIME}
_OF_PURPOSE: Final = {
    "count": Quantity.COUNT,
    "size_bytes": Quantity.SIZE,
    "comm_ns": Quantity.TIME,
    "hidden_ns": Quantity.TIME,
    "exposed_ns": Quantity.TIME,
    "wait_ns": Quantity.TIME,
    "hidden_fraction": Quantity.FRACTION,
}
_OF_RANK: Final = dict.fromkeys(
    ("step_ns", "compute_ns", "comm_ns", "hidden_comm_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns"),
    Quantity.TIME,
)
_OF_GRADIENT: Final = {
    "count": Quantity.COUNT,
    "wait_ns": Quantity.TIME,
    "since_issue_ns": Quantity.TIME,
    "hidden_ns": Quantity.TIME,
    "exposed_ns": Quantity.TIME,
}
_OF_PROBE: Final = {
    "calls": Quantity.COUNT,
    "most_calls": Quantity.COUNT,
    "raised": Quantity.COUNT,
    "total_ns": Quantity.TIME,
    "per_call_ns": Quantity.TIME,
}

_OF_STAGE: Final = {
    "duration_ns": Quantity.TIME,
    "shortest_ns": Quantity.TIME,
    "wait_ns": Quantity.TIME,
    "state_bytes": Quantity.SIZE,
    "all_ranks_bytes": Quantity.SIZE,
    "collectives": Quantity.COUNT,
    "sent_bytes": Quantity.SIZE,
    "object_collectives": Quantity.COUNT,
    "link_ns": Quantity.TIME,
    "file_bytes": Quantity.SIZE,
    "host_peak_bytes": Quantity.SIZE,
    "device_peak_bytes": Quantity.SIZE,
    "mismatched": Quantity.COUNT,
}

_CAUSES: Final = "causes"
_LABELS: Final = tuple(one.label for one in FUNCTIONS)


def read_value(text: str) -> ValueName:
    """Understand a name.

    Raises:
        ValueError: nothing is called so; says what is likely meant.
    """
    quantity = _PLAIN.get(text)
    if quantity is not None:
        return ValueName(text, tuple(text.split(".")), quantity)
    group, _, rest = text.partition(".")
    member, _, field = rest.rpartition(".")
    read = _GROUPS.get(group)
    found = read(member, field) if read is not None and member else None
    if found is None:
        raise ValueError(_refuse(text))
    path, quantity = found
    return ValueName(text, (group, *path, field), quantity)


_Found = tuple[tuple[str, ...], Quantity] | None


def _read_purpose(member: str, field: str) -> _Found:
    purpose, _, cause = member.partition(f".{_CAUSES}.")
    if purpose not in list(Purpose):
        return None
    if not cause:
        return _pick((purpose,), field, _OF_PURPOSE)
    return _pick((purpose, _CAUSES, cause), field, _EXPOSED) if cause in list(Cause) else None


def _read_cause(member: str, field: str) -> _Found:
    return _pick((member,), field, _EXPOSED) if member in list(Cause) else None


def _read_owner(member: str, field: str) -> _Found:
    return _pick((member,), field, _EXPOSED)


def _read_gradient(member: str, field: str) -> _Found:
    return _pick((member,), field, _OF_GRADIENT)


def _read_rank(member: str, field: str) -> _Found:
    is_rank = member == "mean" or (member.isascii() and member.isdecimal())
    return _pick((member,), field, _OF_RANK) if is_rank else None


def _read_estimate(member: str, field: str) -> _Found:
    return _pick((member,), field, {"mean_ns": Quantity.TIME}) if member in list(Estimate) else None


def _read_probe(member: str, field: str) -> _Found:
    """Read the function's label, and the branch of it after that, if any."""
    labels = [label for label in _LABELS if member == label or member.startswith(f"{label}.")]
    if not labels:
        return None
    label = max(labels, key=len)
    return _pick((label, member.removeprefix(label).removeprefix(".")), field, _OF_PROBE)


def _read_stage(member: str, field: str) -> _Found:
    """Read the part and, after it, the stage."""
    part, _, stage = member.partition(".")
    return _pick((part, stage), field, _OF_STAGE) if part in list(StatePart) and stage in list(Stage) else None


def _pick(path: tuple[str, ...], field: str, fields: Mapping[str, Quantity]) -> _Found:
    return (path, fields[field]) if field in fields else None


_GROUPS: Final[Mapping[str, Callable[[str, str], _Found]]] = {
    "purposes": _read_purpose,
    _CAUSES: _read_cause,
    "owners": _read_owner,
    "gradient_waits": _read_gradient,
    "ranks": _read_rank,
    "exposure": _read_estimate,
    "probes": _read_probe,
    "stages": _read_stage,
}


def _refuse(text: str) -> str:
    near = find_nearest(text, _list_names())
    hint = f"did you mean `{near}`?" if near else "names are as in `dtbench report --json`, such as `step_time.median`"
    return f"a cell has no number called `{shorten(text)}`; {hint}"


def _list_names() -> Iterator[str]:
    """Return every name that can be listed; owners, branches and most ranks cannot."""
    yield from _PLAIN
    for purpose in Purpose:
        yield from (f"purposes.{purpose}.{field}" for field in _OF_PURPOSE)
    yield from (f"{_CAUSES}.{cause}.exposed_ns" for cause in Cause)
    yield from (f"exposure.{estimate}.mean_ns" for estimate in Estimate)
    yield from (f"ranks.mean.{field}" for field in _OF_RANK)
    for part in StatePart:
        yield from (f"stages.{part}.{stage}.{field}" for stage in Stage for field in _OF_STAGE)
    for label in _LABELS:
        yield from (f"probes.{label}.{field}" for field in _OF_PROBE)
