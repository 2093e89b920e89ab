"""The grammar of the ranges that dtbench's worker puts into a trace, and that its analyser reads back.

::

    ProfilerStep#12                                                              one training step (torch's own name)
      dtbench::region backward                                                   what the training loop is doing
        dtbench::collective group=3 seq=41 op=all_reduce bytes=4096 axis=tensor async=1 caller=train.mean owner=...
        dtbench::wait group=3 seq=41                                             a consumer stands still for it
      dtbench::link group=3 seq=41 begun_ns=1200                                 the emulated link serves it; on CUDA
                                                                                 the launch of what takes its time
      dtbench::unit (layers.0)                                                   FSDP1 gathers or reduces this unit
      dtbench::reduces (bucket 0)                                                DDP reduces this, not in its order
      dtbench::module layers.0.attention                                         a call, over a tensor axis
      dtbench::clip_grad_norm_                                                   gradients are clipped by their norm
      dtbench::average_parameters                                                parameters become their mean over ranks
      dtbench::fsdp.DTensorExtensions.post_unflatten_transform (layers.0)        a function under study, and for whom
      dtbench::timed layers.3 backward                                         a block takes the time that it is given

``group`` is torch's process-group name, ``seq`` counts the collectives issued on that group by this process, ``bytes``
follows nccl-tests (all-gather: whole output; reduce-scatter: whole input). ``axis`` is empty when the group is no mesh
axis, ``owner`` comes last because a name may contain anything; it is empty where only the trace can tell. ``caller`` is
the function that asked, which owns what nothing else does; it is left out where none did. FSDP2's own ranges name the
unit, FSDP1's do not: hence ``dtbench::unit``.

A newer version may write more: reading raises for no text. A word that is not known is None, a field that is not known
is passed over, and ``find_unknown_words`` says which they are.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dtbench.base.vocabulary import Axis, Operation, Region

REGION_PREFIX: Final = "dtbench::region "
COLLECTIVE_PREFIX: Final = "dtbench::collective "
LINK_PREFIX: Final = "dtbench::link "
WAIT_PREFIX: Final = "dtbench::wait "
UNIT_PREFIX: Final = "dtbench::unit"
REDUCES_PREFIX: Final = "dtbench::reduces"
MODULE_PREFIX: Final = "dtbench::module "
TIMED_PREFIX: Final = "dtbench::timed "
CLIPPING_RANGE: Final = "dtbench::clip_grad_norm_"
AVERAGING_RANGE: Final = "dtbench::average_parameters"
STEP_PREFIX: Final = "ProfilerStep#"
ROOT: Final = "root"
"""What the root unit is called, whose FQN is empty."""

_PREFIX: Final = "dtbench::"
_FIELD = re.compile(r"([^\s=]+)=(\S*)(?: |$)")
_OWNER: Final = "owner="
_SPACE: Final = re.compile(r"\s")
_NUMBER = re.compile(r"[0-9]{1,18}")
"""What fits 64 bits."""
_ANY_NUMBER = re.compile(r"[0-9]{1,4000}")
"""What Python reads; for numbers that only tell collectives apart."""
_REDUCES = re.compile(rf"{REDUCES_PREFIX} \((.*)\)", re.DOTALL)
_PROBE = re.compile(r"dtbench::(\w+\.[\w.]+) \((.*)\)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class ReadLabel:
    """What a range says about a collective; None: nothing, or in words of another version."""

    group: str
    seq: int
    operation: Operation | None
    size_bytes: int | None
    axis: Axis | None
    is_async: bool | None
    owner: str
    caller: str = ""


@dataclass(frozen=True, kw_only=True)
class CollectiveLabel(ReadLabel):
    """What the worker knows about a collective when it is issued; an axis is None where the group is none."""

    operation: Operation
    size_bytes: int
    is_async: bool


@dataclass(frozen=True, kw_only=True)
class WaitLabel:
    """The collective that a consumer waits for."""

    group: str
    seq: int


@dataclass(frozen=True, kw_only=True)
class LinkLabel:
    """A collective on the emulated link; its lane took it ``begun_ns`` before its range begins."""

    group: str
    seq: int
    begun_ns: int


def collective_range(label: CollectiveLabel) -> str:
    """Write the name of the range around an issue."""
    caller = f"caller={_SPACE.sub('_', label.caller)} " if label.caller else ""
    return (
        f"{COLLECTIVE_PREFIX}group={label.group} seq={label.seq} op={label.operation} bytes={label.size_bytes} "
        f"axis={label.axis or ''} async={int(label.is_async)} {caller}owner={label.owner}"
    )


def parse_collective_range(name: str) -> ReadLabel | None:
    """Read it back, a ``CollectiveLabel`` where all is known; None for any name without group and number."""
    fields = _read_fields(name, COLLECTIVE_PREFIX)
    group, seq = fields.get("group"), _read_number(fields.get("seq"))
    if group is None or seq is None:
        return None
    operation, axis, flag = (_read_word(field, fields.get(field)) for field in ("op", "axis", "async"))
    said = ReadLabel(
        group=group,
        seq=seq,
        operation=Operation(operation) if operation else None,
        size_bytes=_read_number(fields.get("bytes")),
        axis=Axis(axis) if axis else None,
        is_async=flag == "1" if flag else None,
        owner=fields.get("owner", ""),
        caller=fields.get("caller", ""),
    )
    if said.operation is None or said.size_bytes is None or said.is_async is None:
        return said
    return CollectiveLabel(
        group=said.group,
        seq=said.seq,
        operation=said.operation,
        size_bytes=said.size_bytes,
        axis=said.axis,
        is_async=said.is_async,
        owner=said.owner,
        caller=said.caller,
    )


def _read_fields(name: str, prefix: str) -> dict[str, str]:
    """Read ``key=value`` after a prefix up to what is none; ``owner`` comes last and takes the rest of the name."""
    fields: dict[str, str] = {}
    place = len(prefix)
    while name.startswith(prefix) and place < len(name):
        if name.startswith(_OWNER, place):
            return {**fields, "owner": name[place + len(_OWNER) :]}
        match = _FIELD.match(name, place)
        if match is None:
            return {**fields, name[place:]: ""}
        fields[match[1]] = match[2]
        place = match.end()
    return fields


_WORDS: Final[dict[str, tuple[str, ...]]] = {"op": tuple(Operation), "axis": tuple(Axis), "async": ("0", "1")}
_FIELDS: Final = {
    COLLECTIVE_PREFIX: ("group", "seq", "op", "bytes", "axis", "async", "owner"),
    LINK_PREFIX: ("group", "seq", "begun_ns"),
    WAIT_PREFIX: ("group", "seq"),
}
_OPTIONAL: Final = {COLLECTIVE_PREFIX: ("caller",)}
_NUMBERS: Final = ("seq", "bytes", "begun_ns")


def _read_word(field: str, text: str | None) -> str | None:
    return text if text in _WORDS[field] else None


def _read_number(text: str | None, fits: re.Pattern[str] = _NUMBER) -> int | None:
    return int(text) if text is not None and fits.fullmatch(text) else None


def link_range(label: LinkLabel) -> str:
    """Write the name of the range in which the emulated link serves a collective."""
    return f"{LINK_PREFIX}group={label.group} seq={label.seq} begun_ns={label.begun_ns}"


def parse_link_range(name: str) -> LinkLabel | None:
    """Read it back; None for any other name."""
    fields = _read_fields(name, LINK_PREFIX)
    group = fields.get("group")
    seq, begun_ns = (_read_number(fields.get(key), _ANY_NUMBER) for key in ("seq", "begun_ns"))
    if group is None or seq is None or begun_ns is None:
        return None
    return LinkLabel(group=group, seq=seq, begun_ns=begun_ns)


def wait_range(label: WaitLabel) -> str:
    """Write the name of the range around a wait."""
    return f"{WAIT_PREFIX}group={label.group} seq={label.seq}"


def parse_wait_range(name: str) -> WaitLabel | None:
    """Read it back; None for any other name."""
    fields = _read_fields(name, WAIT_PREFIX)
    group, seq = fields.get("group"), _read_number(fields.get("seq"), _ANY_NUMBER)
    return None if group is None or seq is None else WaitLabel(group=group, seq=seq)


def region_range(region: Region) -> str:
    """Write the name of the range around a region of the training loop."""
    return f"{REGION_PREFIX}{region}"


def unit_range(fqn: str) -> str:
    """Write the name of the range in which FSDP1 gathers or reduces a unit; the root's FQN is empty."""
    return f"{UNIT_PREFIX} ({fqn or ROOT})"


def reduces_range(owner: str) -> str:
    """Write the name of the range in which DDP reduces what its order of issue does not tell."""
    return f"{REDUCES_PREFIX} ({owner})"


def parse_reduces_range(name: str) -> str | None:
    """Read the owner back; None for any other name."""
    match = _REDUCES.fullmatch(name)
    return None if match is None else match[1]


def module_range(fqn: str) -> str:
    """Write the name of the range around a module's call; the root's FQN is empty."""
    return f"{MODULE_PREFIX}{fqn or ROOT}"


def timed_range(fqn: str, region: Region) -> str:
    """Write the name of the range in which a block of known cost takes its time; it counts as compute."""
    return f"{TIMED_PREFIX}{fqn} {region}"


def probe_range(label: str, owner: str) -> str:
    """Write the name of the range around a function under study.

    Args:
        label: file and name, ``fsdp.DTensorExtensions.chunk_tensor``.
        owner: the parameter that it is for, else the FSDP unit that asked, else the region of the step.
    """
    return f"dtbench::{label} ({owner})"


def parse_probe_range(name: str) -> tuple[str, str] | None:
    """Read label and owner back; None for any other name."""
    match = _PROBE.fullmatch(name)
    return None if match is None else (match[1], match[2])


_REGION: Final = re.compile(rf"{REGION_PREFIX}(?:{'|'.join(Region)})")
_UNIT: Final = re.compile(rf"{UNIT_PREFIX}(?: \(.*\))?", re.DOTALL)


def find_unknown_words(name: str) -> tuple[str, ...]:
    """Return what of a range of dtbench's this version cannot read; nothing of any other name.

    >>> find_unknown_words("dtbench::wait group=0 seq=1 device=2"), find_unknown_words("dtbench::wait group=0 seq=1")
    (('device=2',), ())
    >>> find_unknown_words("dtbench::region warmdown"), find_unknown_words("aten::mm")
    (('region warmdown',), ())
    """
    if not name.startswith(_PREFIX):
        return ()
    prefix = next((prefix for prefix in _FIELDS if name.startswith(prefix)), None)
    if prefix is not None:
        return tuple(_find_unknown_fields(_read_fields(name, prefix), prefix))
    is_known = (
        name in (CLIPPING_RANGE, AVERAGING_RANGE)
        or name.startswith((MODULE_PREFIX, TIMED_PREFIX))
        or any(pattern.fullmatch(name) for pattern in (_REGION, _UNIT, _REDUCES, _PROBE))
    )
    return () if is_known else (name.removeprefix(_PREFIX),)


def _find_unknown_fields(fields: dict[str, str], prefix: str) -> Iterator[str]:
    for key, value in fields.items():
        is_number = key not in _NUMBERS or _read_number(value) is not None  # longer ones are no time, and no size
        is_word = not value or key not in _WORDS or value in _WORDS[key]
        is_field = key in _FIELDS[prefix] or key in _OPTIONAL.get(prefix, ())
        if not is_field or not is_number or not is_word:
            yield f"{key}={value}" if value else key
    yield from (f"no {key}" for key in _FIELDS[prefix] if key not in fields)
