"""What an advice must know of what was run: the strategy, which of its knobs are set already, what buckets hold."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from dtbench.base.vocabulary import Purpose, Runtime
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.who.strategy import Strategy, TraceMarks


class Knob(StrEnum):
    """What an advice names, as a person would write it."""

    BUCKET_CAP = "bucket_cap_mb"
    BUCKET_CAPS = "bucket_cap_mb_list"
    BF16_HOOK = "bf16_compress_hook"
    FP16_HOOK = "fp16_compress_hook"
    POWER_SGD = "powerSGD_hook"
    NO_PYTHON_REDUCER = "optimize_ddp"
    FSDP1_PREFETCH = "forward_prefetch=True"
    FSDP1_KEEP = "SHARD_GRAD_OP"
    FSDP1_HYBRID = "HYBRID_SHARD"
    FSDP1_PARAM_DTYPE = "MixedPrecision(param_dtype=...)"
    FSDP1_REDUCE_DTYPE = "MixedPrecision(reduce_dtype=...)"
    PREFETCH_FORWARD = "set_modules_to_forward_prefetch"
    PREFETCH_BACKWARD = "set_modules_to_backward_prefetch"
    UNSHARD_ASYNC = "_set_unshard_async_op(True)"
    SEPARATE_GROUP = "set_separate_reduce_scatter_group"
    KEEP = "reshard_after_forward=False"
    PARAM_DTYPE = "MixedPrecisionPolicy(param_dtype=...)"
    REDUCE_DTYPE = "MixedPrecisionPolicy(reduce_dtype=...)"
    CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
    HIP_QUEUES = "GPU_MAX_HW_QUEUES"
    MAX_CTAS = "NCCL_MAX_CTAS"
    CTA_POLICY = "NCCL_CTA_POLICY"


class Library(StrEnum):
    """What has knobs, and versions."""

    TORCH = "torch"
    NCCL = "NCCL"


Release = tuple[int, int]
"""Major and minor number of a version."""

FIRST: Final[Mapping[Knob, tuple[Library, Release]]] = {
    Knob.SEPARATE_GROUP: (Library.TORCH, (2, 13)),
    Knob.MAX_CTAS: (Library.NCCL, (2, 17)),
    Knob.CTA_POLICY: (Library.NCCL, (2, 27)),
}
"""The first version that has a knob, where later ones are not all that people run (``newer_knobs``; NCCL's manual)."""

_OF_RUNTIME: Final = {
    Runtime.CUDA: frozenset({Knob.CONNECTIONS}),
    Runtime.HIP: frozenset({Knob.HIP_QUEUES}),
}
_OF_NCCL: Final = frozenset({Knob.MAX_CTAS, Knob.CTA_POLICY})
"""Not of RCCL."""
OF_PRECISION: Final = frozenset(
    {
        *(Knob.BF16_HOOK, Knob.FP16_HOOK, Knob.PARAM_DTYPE, Knob.REDUCE_DTYPE),
        *(Knob.FSDP1_PARAM_DTYPE, Knob.FSDP1_REDUCE_DTYPE),
    }
)
"""Set already where what is sent is narrow."""
_RELEASE: Final = re.compile(r"(\d{1,6})\.(\d{1,6})\b")
KNOBS: Final[Mapping[Strategy, frozenset[Knob]]] = {
    Strategy.DDP: frozenset(
        {Knob.BUCKET_CAP, Knob.BUCKET_CAPS, Knob.BF16_HOOK, Knob.FP16_HOOK, Knob.POWER_SGD, Knob.NO_PYTHON_REDUCER}
    ),
    Strategy.FSDP1: frozenset(knob for knob in Knob if knob.name.startswith("FSDP1_")),
    Strategy.FSDP2: frozenset(
        {
            *(Knob.PREFETCH_FORWARD, Knob.PREFETCH_BACKWARD, Knob.UNSHARD_ASYNC, Knob.SEPARATE_GROUP),
            *(Knob.KEEP, Knob.PARAM_DTYPE, Knob.REDUCE_DTYPE),
        }
    ),
}
"""Which strategy has which knobs."""


@dataclass(frozen=True)
class Ran:
    """What was run, as far as it is known.

    Attributes:
        is_device: ranks computed on accelerators.
        strategy: None: not known, or several.
        done: knobs that are set as an advice would set them, have no effect beside what is set, or of which nobody
            knows how they are set.
        runtime: through which the accelerators are driven; None: another than those with knobs, or not known.
        uses_nccl: they communicate through NCCL, or RCCL.
        tensor: ranks of the tensor axis; None: not known.
        has_replicas: there is a replicate axis; None: not known.
        shards: ranks that parameters are divided among; None: not known.
        shards_in_node: the most of those that are on one node; None: not known.
        is_compiled: by ``torch.compile``; None: not known.
        keeps_logits: each rank computes the loss of its part of the vocabulary, as ``loss_parallel`` does.
        is_unbucketed: DDP without buckets, as ``optimize_ddp="python_reducer"`` makes it.
        sizes_bytes: of each parameter on one rank, by FQN; empty: not known.
        gathers_after_update: parameters are gathered when an optimizer has updated them; None: not known.
        is_set_down: its settings are written down; False: what is sent is all that tells of a precision.
        last_ready: place, in a bucket's order, of the parameter whose gradient comes last.
        releases: which version of a library ran; none: not known.
    """

    is_device: bool
    strategy: Strategy | None = None
    done: frozenset[Knob] = frozenset()
    runtime: Runtime | None = None
    uses_nccl: bool = False
    tensor: int | None = None
    has_replicas: bool | None = None
    shards: int | None = None
    shards_in_node: int | None = None
    is_compiled: bool | None = None
    keeps_logits: bool = False
    is_unbucketed: bool = False
    sizes_bytes: Mapping[str, int] = field(default_factory=dict)
    gathers_after_update: bool | None = None
    is_set_down: bool = False
    last_ready: int = -1
    releases: Mapping[Library, Release] = field(default_factory=dict)

    def choose(self, *knobs: Knob) -> list[str]:
        """Spell those that strategy, runtime and library have and that are not set already, in their order.

        Of one that not every version of its library has, and where that is not known, which does.
        """
        own = frozenset() if self.strategy is None else KNOBS[self.strategy]
        own |= frozenset() if self.runtime is None else _OF_RUNTIME[self.runtime]
        own |= _OF_NCCL if self.uses_nccl and self.runtime is Runtime.CUDA else frozenset()
        return [self._spell(knob) for knob in knobs if knob in own and knob not in self.done and self._may_have(knob)]

    def _may_have(self, knob: Knob) -> bool:
        library, first = FIRST.get(knob, (None, None))
        return library is None or first is None or self.releases.get(library, first) >= first

    def _spell(self, knob: Knob) -> str:
        library, first = FIRST.get(knob, (None, None))
        if library is None or first is None or library in self.releases:
            return f"`{knob}`"
        return f"`{knob}` of {library} {first[0]}.{first[1]} or newer"


def read_releases(*, torch: str | None = None, nccl: Iterable[str] = ()) -> dict[Library, Release]:
    """Read versions of libraries, as far as they can be: of several of ranks, the oldest."""
    told = [(Library.TORCH, torch or ""), *((Library.NCCL, version) for version in nccl)]
    found: dict[Library, Release] = {}
    for library, version in told:
        if (numbers := _RELEASE.match(version)) is not None:
            release = int(numbers[1]), int(numbers[2])
            found[library] = min(release, found.get(library, release))
    return found


def describe_traces(traces: TraceSet) -> Ran:
    """Return what traces show of what was run; what they cannot show of a knob is no reason to name it."""
    found = [one.marks for one in traces.analyses]
    marks = TraceMarks(
        strategies=frozenset(strategy for one in found for strategy in one.strategies),
        prefetches_forward=any(one.prefetches_forward for one in found),
        gathers_in_backward=any(one.gathers_in_backward for one in found),
        has_replicas=any(one.has_replicas for one in found),
    )
    runtimes = {one.runtime for one in found}
    shards, shards_in_node = _count_shards(traces)
    is_device = any(one.timeline.is_device for one in traces.analyses)
    untold = {*find_untold(is_device=is_device), Knob.NO_PYTHON_REDUCER}
    if marks.prefetches_forward:
        untold.add(Knob.PREFETCH_FORWARD)
    if not marks.gathers_in_backward:
        untold |= {Knob.KEEP, Knob.FSDP1_KEEP}
    if marks.has_replicas:
        untold.add(Knob.FSDP1_HYBRID)
    return Ran(
        is_device=is_device,
        strategy=next(iter(marks.strategies)) if len(marks.strategies) == 1 else None,
        done=frozenset(untold),
        runtime=runtimes.pop() if len(runtimes) == 1 else None,
        uses_nccl=all(one.uses_nccl for one in found),
        has_replicas=True if marks.has_replicas else None,
        shards=shards,
        shards_in_node=shards_in_node,
        gathers_after_update=all(one.gathers_after_update for one in found),
        releases=read_releases(nccl=[one.machine["nccl"] for one in traces.analyses if "nccl" in one.machine]),
    )


def _count_shards(traces: TraceSet) -> tuple[int | None, int | None]:
    """Count the ranks of the largest group that gathers parameters, and the most of such a group on one node."""
    hosts = {one.rank: one.timeline.host for one in traces.analyses}
    world = range(traces.world_size) if traces.world_size else ()
    gathers = [one for rank in traces.analyses for one in rank.collectives if one.purpose is Purpose.UNSHARD]
    sizes = [one.group_size or len(one.group_ranks) or traces.world_size or 0 for one in gathers]
    shards = max(sizes, default=0)
    near = [_count_on_node(ranks, hosts) for ranks in {one.group_ranks or world for one in gathers}]
    known = [count for count in near if count is not None]
    return shards or None, min(shards, max(known)) if known and len(known) == len(near) else None


def _count_on_node(ranks: Sequence[int], hosts: Mapping[int, str | None]) -> int | None:
    """Count the most of some ranks that are on one node; None: of one it is not known, or of none."""
    if len(ranks) > len(hosts):  # a trace may claim any number of them
        return None
    found = Counter(hosts.get(rank) for rank in ranks)
    return None if None in found or not found else found.most_common(1)[0][1]


def find_untold(*, is_device: bool) -> frozenset[Knob]:
    """Return the knobs of which no trace shows how they are set, and those that do nothing on such a device."""
    untold = {Knob.PREFETCH_BACKWARD, Knob.POWER_SGD, Knob.BUCKET_CAPS, Knob.FSDP1_PREFETCH}
    return frozenset(untold | without_effect(is_device=is_device))


def without_effect(*, is_device: bool) -> set[Knob]:
    """Return knobs that change nothing or cannot be used: gloo has no bfloat16 hook, NCCL's gathers need no flag."""
    return {Knob.FP16_HOOK, Knob.UNSHARD_ASYNC} if is_device else {Knob.BF16_HOOK, Knob.FSDP1_PREFETCH}


def mark_row(ran: Ran, groups: Sequence[str], dtype: str, *, is_async: bool | None) -> frozenset[Knob]:
    """Return the knobs that what a row's collectives say shows to be set already.

    Args:
        ran: what was run.
        groups: of the collective, and of what it stood behind.
        dtype: as the trace spells it; empty: not told.
        is_async: whether the calls that issued it may return before it is done; None: not told.
    """
    done = set(ran.done)
    if is_async:
        done.add(Knob.UNSHARD_ASYNC)
    is_narrow = any(word in dtype.lower() for word in ("16", "float8"))
    if is_narrow or not (dtype or ran.is_set_down):
        done |= OF_PRECISION
    if len(groups) == 2 and all(groups) and groups[0] != groups[1]:
        done.add(Knob.SEPARATE_GROUP)
    return frozenset(done)
