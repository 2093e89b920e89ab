"""Words for causes: a short phrase for each, and one sentence on what would change it."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from dtbench.analyze.causes.exposed_owners import ExposedOwner
from dtbench.analyze.collectives import Collective
from dtbench.units import format_ns
from dtbench.vocabulary import CAUSE_PHRASES, Cause, MissingInput, Operation, Purpose

UNATTRIBUTED: Final = "unattributed"

_MISSING: Final = {
    MissingInput.RANKS: "the other ranks' traces: skew or bandwidth",
    MissingInput.LAUNCH: "the call that launched it",
    MissingInput.GRAPH_ORDER: "the order inside a captured graph",
    MissingInput.READY: "when it could have been issued",
    MissingInput.REGION: "whether it ran in forward, backward or the optimizer",
    MissingInput.BLOCKING: "whether it was issued blocking",
    MissingInput.STREAM_WAITS: "what the compute waited for that stood launched beside it",
    MissingInput.HOST: "why the host launched no compute beside it",
}

# By cause; by purpose where that differs; by "on a device" where that differs too. None fits everything.
_ADVICE: Final[dict[tuple[Cause, Purpose | None, bool | None], str]] = {
    (Cause.SKEW, None, None): (
        "Find what the last rank did meanwhile: the time is lost there, and a faster link changes nothing."
    ),
    (Cause.QUEUED, Purpose.GRAD_REDUCE, None): (
        "Send less before it; where that is no reduction, give reductions a process group of their own "
        "(FSDP2: `set_separate_reduce_scatter_group`)."
    ),
    (Cause.QUEUED, Purpose.UNSHARD, None): (
        "Give reduce-scatters a process group of their own (FSDP2: `set_separate_reduce_scatter_group`), "
        "so that gathers do not stand behind them."
    ),
    (Cause.QUEUED, None, None): "Give it a process group of its own, or send less before it.",
    (Cause.SERIALIZED, None, None): (
        "Compute stood in line behind it: give streams hardware queues of their own (`CUDA_DEVICE_MAX_CONNECTIONS`, 8 "
        "where it is not set), or leave it multiprocessors, with fewer for NCCL (`NCCL_MAX_CTAS`)."
    ),
    (Cause.LATE_ISSUE, Purpose.UNSHARD, True): (
        "The host was behind the device: prefetch it with `set_modules_to_forward_prefetch` (FSDP2; backward likewise) "
        "or `forward_prefetch=True` (FSDP1)."
    ),
    (Cause.LATE_ISSUE, Purpose.UNSHARD, False): (
        "Prefetch it with `set_modules_to_forward_prefetch`, and make that asynchronous with "
        "`_set_unshard_async_op(True)`: on gloo a prefetch alone changes nothing."
    ),
    (Cause.LATE_ISSUE, None, None): (
        "Issue it as soon as its input is there, from a hook rather than after the next compute."
    ),
    (Cause.LATE_READY, None, None): (
        "Hand gradients over where they are computed: convert DTensor weights in their own module's forward, "
        "not all at the start (as DDP over tensor parallelism does), or use FSDP2 over tensor parallelism."
    ),
    (Cause.SYNC_OP, Purpose.UNSHARD, False): (
        "Make it asynchronous with `_set_unshard_async_op(True)`, together with explicit prefetch."
    ),
    (Cause.SYNC_OP, Purpose.GRAD_REDUCE, False): "FSDP's reduce-scatter always blocks on gloo; on NCCL it does not.",
    (Cause.SYNC_OP, None, None): "Issue it with `async_op=True`, and wait where its result is used.",
    (Cause.TAIL, Purpose.GRAD_REDUCE, None): (
        "Make what is reduced last smaller: a smaller `bucket_cap_mb` (DDP), smaller units for the first layers (FSDP)."
    ),
    (Cause.TAIL, None, None): (
        "Nothing of the region is left to hide it: send less, or let the next region begin beside it."
    ),
    (Cause.NEEDED_AT_ONCE, Purpose.TENSOR, None): (
        "Split the matmul so that parts overlap (asynchronous tensor parallelism), or use a smaller tensor axis."
    ),
    (Cause.NEEDED_AT_ONCE, Purpose.UNSHARD, None): "Nothing runs before the first gather: make the first unit small.",
    (Cause.NEEDED_AT_ONCE, None, None): ("Find independent work to put between its issue and its use, or send less."),
    (Cause.BANDWIDTH, Purpose.UNSHARD, None): (
        "Send less (bf16 parameters, HSDP inside a node, `reshard_after_forward=False`), "
        "or compute more per gather (a larger batch)."
    ),
    (Cause.BANDWIDTH, Purpose.GRAD_REDUCE, None): (
        "Send less (bf16 gradients, a compression hook) or less often (accumulate gradients, a larger batch)."
    ),
    (Cause.BANDWIDTH, None, None): "Send less, use a faster link, or compute more beside it.",
}
# Queued behind something in particular: the purpose of what queues, that of what it stands behind.
_QUEUE_ADVICE: Final = {
    (Purpose.GRAD_REDUCE, Purpose.GRAD_REDUCE): (
        "Reductions go one after another: send less (bf16 gradients, a compression hook) "
        "or less often (accumulate gradients, a larger batch)."
    ),
    (Purpose.GRAD_REDUCE, Purpose.UNSHARD): (
        "Give reductions a process group of their own (FSDP2: `set_separate_reduce_scatter_group`)."
    ),
}
_MISSING_ADVICE: Final = {
    MissingInput.RANKS: "Give the traces of all ranks of its process group.",
    MissingInput.LAUNCH: "Profile one step more, so that the call that launched it lies inside the trace.",
    MissingInput.GRAPH_ORDER: "Profile a step without captured graphs.",
    MissingInput.READY: "Record CPU activity too.",
    MissingInput.REGION: "Mark steps with `prof.step()`, and record CPU activity too.",
    MissingInput.BLOCKING: "Record it in a run of dtbench, which says so.",
    MissingInput.STREAM_WAITS: (
        "Record the stream waits (`cudaStreamWaitEvent`), or try without line: with `CUDA_DEVICE_MAX_CONNECTIONS` at 8."
    ),
    MissingInput.HOST: "Find what the host did meanwhile: a synchronisation, or more Python than the device's work.",
}


def describe_cause(
    cause: Cause,
    *,
    waited_for: int | None = None,
    behind: Collective | None = None,
    missing: Sequence[MissingInput] = (),
) -> str:
    """Give a short phrase for a cause.

    >>> describe_cause(Cause.SKEW, waited_for=3)
    'waited for rank 3'
    >>> describe_cause(Cause.UNKNOWN, missing=[MissingInput.LAUNCH])
    'cause unknown (missing: the call that launched it)'
    """
    if cause is Cause.SKEW and waited_for is not None:
        return f"waited for rank {waited_for}"
    if cause is Cause.QUEUED and behind is not None:
        return f"queued behind {name_collective(behind.owner or None, behind.operation)}"
    if cause is Cause.UNKNOWN and missing:
        return f"{CAUSE_PHRASES[cause]} (missing: {'; '.join(_MISSING[one] for one in missing)})"
    return CAUSE_PHRASES[cause]


def describe_exposed_owner(row: ExposedOwner) -> str:
    """Give who and why: ``layers.3's all-gather, mostly issued late``."""
    why = describe_cause(row.cause, waited_for=row.waited_for, behind=row.behind, missing=row.missing)
    mostly = "mostly " if row.exposed_ns < row.owner_exposed_ns else ""
    return f"{name_collective(row.owner, row.operation)}, {mostly}{why}"


class OwnerRow(Protocol):
    """What rows of exposed communication have in common, of anyone's traces and of a run; ns."""

    @property
    def cause(self) -> Cause:
        """Why."""
        ...

    @property
    def exposed_ns(self) -> int:
        """For this cause."""
        ...

    @property
    def owner_exposed_ns(self) -> int:
        """For all causes of this owner."""
        ...


Row = TypeVar("Row", bound=OwnerRow)

LEADING = 0.3
"""Part of the exposed time from which one owner is the story; below it, the largest cause is."""


def find_leading(rows: Sequence[Row]) -> Row:
    """Give the row that an answer leads with: of the largest owner or, where no owner stands out, of the largest cause.

    Args:
        rows: at least one; the owner with most exposed time first.
    """
    if _owner_leads(rows):
        return rows[0]
    cause = _sum_causes(rows).most_common(1)[0][0]
    return max((row for row in rows if row.cause is cause), key=lambda row: row.exposed_ns)


def describe_leading(rows: Sequence[Row], windows: float, describe: Callable[[Row], str]) -> str:
    """Give what an answer leads with: one owner and why, or, where no owner stands out, one cause and its largest part.

    Args:
        rows: at least one; the owner with most exposed time first.
        windows: over which the rows' times are divided.
        describe: spells one row: who, why.
    """
    row = find_leading(rows)
    if _owner_leads(rows):
        return f"{format_ns(row.owner_exposed_ns / windows)} of it {describe(row)}"
    whole, part = (format_ns(time_ns / windows) for time_ns in (_sum_causes(rows)[row.cause], row.exposed_ns))
    return f"{whole} of it {CAUSE_PHRASES[row.cause]}; the largest part, {part}: {describe(row)}"


def describe_causes(rows: Sequence[Row], windows: float) -> str:
    """Say what each cause comes to over all owners, largest first: ``by cause: issued late 12 ms, ...``."""
    spelled = [f"{CAUSE_PHRASES[cause]} {format_ns(ns / windows)}" for cause, ns in _sum_causes(rows).most_common()]
    return f"by cause: {', '.join(spelled)}"


def _owner_leads(rows: Sequence[Row]) -> bool:
    sums = _sum_causes(rows)
    return rows[0].owner_exposed_ns >= LEADING * sums.total() or sums.most_common(1)[0][0] is Cause.UNKNOWN


def _sum_causes(rows: Sequence[Row]) -> Counter[Cause]:
    sums: Counter[Cause] = Counter()
    for row in rows:
        sums[row.cause] += row.exposed_ns
    return sums


def name_collective(owner: str | None, operation: Operation | None) -> str:
    """Name a collective by its owner.

    >>> name_collective("layers.1", Operation.REDUCE_SCATTER), name_collective(None, Operation.ALL_REDUCE)
    ("layers.1's reduce-scatter", 'an unattributed all-reduce')
    """
    what = name_operation(operation)
    return f"an unattributed {what}" if owner is None else f"{spell_owner(owner)}'s {what}"


def spell_owner(owner: str) -> str:
    """Spell an owner so that it reads in a sentence: a numbered module as one, an annotation without its frame.

    >>> spell_owner("layers.3"), spell_owner("3"), spell_owner("## forward ##")
    ('layers.3', 'module 3', 'forward')
    """
    bare = owner.strip("# ") or owner
    return f"module {bare}" if bare.replace(".", "").isdecimal() else bare


def name_operation(operation: Operation | None) -> str:
    """Spell an operation: ``all-gather``."""
    return "collective" if operation is None else operation.replace("_", "-")


def advise_owner(row: ExposedOwner, *, is_device: bool) -> str:
    """Say in one sentence what would change a row of exposed communication."""
    return advise_cause(row.cause, row.purpose, is_device=is_device, missing=row.missing, behind=row.behind)


def advise_cause(
    cause: Cause,
    purpose: Purpose,
    *,
    is_device: bool,
    missing: Sequence[MissingInput] = (),
    behind: Collective | None = None,
) -> str:
    """Say in one sentence what would change a cause; for ``unknown``, what would tell it."""
    if cause is Cause.UNKNOWN:
        return _MISSING_ADVICE[missing[0]] if missing else "Give the traces of all ranks, with CPU activity."
    if cause is Cause.QUEUED and behind is not None and (purpose, behind.purpose) in _QUEUE_ADVICE:
        return _QUEUE_ADVICE[purpose, behind.purpose]
    keys = ((cause, purpose, is_device), (cause, purpose, None), (cause, None, None))
    return next(_ADVICE[key] for key in keys if key in _ADVICE)
