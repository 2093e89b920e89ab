"""The grammar of the ranges that dtbench's worker puts into a trace, and that its analyser reads back.

::

    ProfilerStep#12                                                              one training step (torch's own name)
      dtbench::region backward                                                   what the training loop is doing
        dtbench::collective group=3 seq=41 op=all_reduce bytes=4096 axis=tensor async=1 owner=...
        dtbench::wait group=3 seq=41                                             a consumer stands still for it
      dtbench::link group=3 seq=41 begun_ns=1200                                 the emulated link serves it; on CUDA
                                                                                 the launch of what takes its time
      dtbench::unit (layers.0)                                                   FSDP1 gathers or reduces this unit
      dtbench::reduces (bucket 0)                                                DDP reduces this, not in its order
      dtbench::module layers.0.attention                                         a call, over a tensor axis
      dtbench::clip_grad_norm_                                                   gradients are clipped by their norm
      dtbench::fsdp.DTensorExtensions.post_unflatten_transform (layers.0)        a function under study, and for whom
      dtbench::timed layers.3 backward                                         a block takes the time that it is given

``group`` is torch's process-group name, ``seq`` counts the collectives issued on that group by this process, ``bytes``
follows nccl-tests (all-gather: whole output; reduce-scatter: whole input). ``axis`` is empty when the group is no mesh
axis, ``owner`` comes last because a name may contain anything; it is empty where only the trace can tell. FSDP2's own
ranges name the unit, FSDP1's do not: hence ``dtbench::unit``.
"""

import re
from dataclasses import dataclass
from typing import Final

from dtbench.vocabulary import Axis, Operation, Region

REGION_PREFIX: Final = "dtbench::region "
COLLECTIVE_PREFIX: Final = "dtbench::collective "
LINK_PREFIX: Final = "dtbench::link "
WAIT_PREFIX: Final = "dtbench::wait "
UNIT_PREFIX: Final = "dtbench::unit"
REDUCES_PREFIX: Final = "dtbench::reduces"
MODULE_PREFIX: Final = "dtbench::module "
TIMED_PREFIX: Final = "dtbench::timed "
CLIPPING_RANGE: Final = "dtbench::clip_grad_norm_"
STEP_PREFIX: Final = "ProfilerStep#"
ROOT: Final = "root"
"""What the root unit is called, whose FQN is empty."""

_COLLECTIVE = re.compile(
    r"dtbench::collective group=(\S*) seq=(\d+) op=(\w+) bytes=(\d+) axis=(\w*) async=([01]) owner=(.*)", re.DOTALL
)
_LINK = re.compile(r"dtbench::link group=(\S*) seq=(\d+) begun_ns=(\d+)")
_REDUCES = re.compile(rf"{REDUCES_PREFIX} \((.*)\)", re.DOTALL)
_WAIT = re.compile(r"dtbench::wait group=(\S*) seq=(\d+)")
_PROBE = re.compile(r"dtbench::(\w+\.[\w.]+) \((.*)\)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class CollectiveLabel:
    """What the worker knows about a collective when it is issued."""

    group: str
    seq: int
    operation: Operation
    size_bytes: int
    axis: Axis | None
    is_async: bool
    owner: str


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
    return (
        f"{COLLECTIVE_PREFIX}group={label.group} seq={label.seq} op={label.operation} bytes={label.size_bytes} "
        f"axis={label.axis or ''} async={int(label.is_async)} owner={label.owner}"
    )


def parse_collective_range(name: str) -> CollectiveLabel | None:
    """Read it back; None for any other name."""
    match = _COLLECTIVE.fullmatch(name)
    if match is None:
        return None
    group, seq, operation, size_bytes, axis, is_async, owner = match.groups()
    return CollectiveLabel(
        group=group,
        seq=int(seq),
        operation=Operation(operation),
        size_bytes=int(size_bytes),
        axis=Axis(axis) if axis else None,
        is_async=is_async == "1",
        owner=owner,
    )


def link_range(label: LinkLabel) -> str:
    """Write the name of the range in which the emulated link serves a collective."""
    return f"{LINK_PREFIX}group={label.group} seq={label.seq} begun_ns={label.begun_ns}"


def parse_link_range(name: str) -> LinkLabel | None:
    """Read it back; None for any other name."""
    match = _LINK.fullmatch(name)
    return None if match is None else LinkLabel(group=match[1], seq=int(match[2]), begun_ns=int(match[3]))


def wait_range(label: WaitLabel) -> str:
    """Write the name of the range around a wait."""
    return f"{WAIT_PREFIX}group={label.group} seq={label.seq}"


def parse_wait_range(name: str) -> WaitLabel | None:
    """Read it back; None for any other name."""
    match = _WAIT.fullmatch(name)
    return None if match is None else WaitLabel(group=match[1], seq=int(match[2]))


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
