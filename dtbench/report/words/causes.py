"""Words for causes: a short phrase for each, and what an answer leads with."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from dtbench.base.units import format_bytes, format_ns
from dtbench.base.vocabulary import CAUSE_PHRASES, Cause, MissingInput, Operation
from dtbench.traces.causes.exposed_owners import ExposedOwner
from dtbench.traces.who.collectives import Collective

UNATTRIBUTED: Final = "unattributed"

MISSING_WORDS: Final = {
    MissingInput.RANKS: "the other ranks' traces, which tell skew from bandwidth",
    MissingInput.CLOCKS: "how far the ranks' clocks are apart",
    MissingInput.EVENTS: "when the other ranks began it",
    MissingInput.GROUP: "which ranks share its process group",
    MissingInput.WAITS: "whether it waited for another rank",
    MissingInput.LATENESS: "what delayed the rank that began last",
    MissingInput.LAUNCH: "the call that launched it",
    MissingInput.LAUNCHES: "when compute was launched that ran before it or beside it",
    MissingInput.QUEUE: "whether it stood behind the one before it",
    MissingInput.PUT_OFF: "what it would take were no rank late (it, or the collective before it, waited for one)",
    MissingInput.SCHEDULE: "what it would take had no stage to wait (it, or the collective before it, waited for one)",
    MissingInput.GRAPH_ORDER: "the order inside a captured graph",
    MissingInput.READY: "when it could have been issued",
    MissingInput.REGION: "whether it ran in forward, backward or the optimizer",
    MissingInput.BLOCKING: "whether it was issued blocking",
    MissingInput.STREAM_WAITS: "what the compute waited for that stood launched beside it",
    MissingInput.LOST: "collectives of the same region that were issued and not seen to run",
    MissingInput.HOST: "why the host launched no compute beside it",
    MissingInput.WAKING: "why it ended later here than on the other ranks (woken late?)",
    MissingInput.STREAMS: "which stream did what",
    MissingInput.DEVICE_CLOCK: "how far the device's clock is off the host's",
    MissingInput.CONSUMER: "whether anything waited for it",
    MissingInput.ASKER: "the ranges that say who asked for it, or for others of its step",
}


def describe_cause(
    cause: Cause,
    *,
    waited_for: int | None = None,
    behind: Collective | None = None,
    missing: Sequence[MissingInput] = (),
) -> str:
    """Return a short phrase for a cause.

    >>> describe_cause(Cause.SKEW, waited_for=3)
    'waited for rank 3'
    >>> describe_cause(Cause.UNKNOWN, missing=[MissingInput.LAUNCH])
    'cause unknown (missing: the call that launched it)'
    """
    if cause is Cause.SKEW and waited_for is not None:
        return f"waited for rank {waited_for}"
    if cause is Cause.BUBBLE and waited_for is not None:
        return f"{CAUSE_PHRASES[cause]}, waited for rank {waited_for}"
    if cause is Cause.QUEUED and behind is not None:
        return f"queued behind {name_collective(behind.owner or None, behind.operation)}"
    if cause is Cause.UNKNOWN and missing:
        return f"{CAUSE_PHRASES[cause]} ({name_missing(missing)})"
    return CAUSE_PHRASES[cause]


def name_missing(missing: Iterable[MissingInput]) -> str:
    """Return what would tell a cause that is unknown.

    >>> name_missing([MissingInput.LAUNCH])
    'missing: the call that launched it'
    """
    return f"missing: {'; '.join(MISSING_WORDS[one] for one in missing)}"


def describe_exposed_owner(row: ExposedOwner, of_ns: int | None = None) -> str:
    """Return who and why: ``layers.3's all-gather, mostly issued late``.

    Args:
        row: who, and the time that its cause explains.
        of_ns: the time that it is said of, of which it may explain a part; None: all of the owner's.
    """
    why = describe_cause(row.cause, waited_for=row.waited_for, behind=row.behind, missing=row.missing)
    how_much = say_part(row.exposed_ns, row.owner_exposed_ns if of_ns is None else of_ns)
    return f"{name_collective(row.owner, row.operation, row.carried.outsized_bytes)}, {how_much}{why}"


def say_part(time_ns: float, of_ns: float) -> str:
    """Say how much of a time a cause explains, before its words; nothing where it is all.

    >>> say_part(3, 3), say_part(2, 3), say_part(1, 2)
    ('', 'mostly ', 'partly ')
    """
    return "" if time_ns >= of_ns else "mostly " if 2 * time_ns > of_ns else "partly "


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
    """Return the row that leads an answer: of the largest owner or, where no owner stands out, of the largest cause.

    Args:
        rows: at least one; the owner with most exposed time first.
    """
    if _owner_leads(rows):
        return rows[0]
    cause = _sum_causes(rows).most_common(1)[0][0]
    return max((row for row in rows if row.cause is cause), key=lambda row: row.exposed_ns)


def describe_leading(rows: Sequence[Row], windows: float, describe: Callable[[Row, int], str]) -> str:
    """Return what leads an answer: one owner and why, or, where no owner stands out, one cause and its largest part.

    Args:
        rows: at least one; the owner with most exposed time first.
        windows: over which the rows' times are divided.
        describe: spells one row, who and why, of the time that was said before.
    """
    row = find_leading(rows)
    if _owner_leads(rows):
        return f"{format_ns(row.owner_exposed_ns / windows)} of it {describe(row, row.owner_exposed_ns)}"
    whole, part = (format_ns(time_ns / windows) for time_ns in (_sum_causes(rows)[row.cause], row.exposed_ns))
    why = CAUSE_PHRASES[row.cause]
    who = describe(row, row.exposed_ns).removesuffix(f", {why}")
    return f"{whole} of it {why}; the largest part of that, {part}: {who}"


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


def name_collective(owner: str | None, operation: Operation | None, size_bytes: int | None = None) -> str:
    """Name an owner's collectives, and the size of those that take most of their time where that sets them apart.

    >>> name_collective("lm_head", Operation.ALL_GATHER, 32 << 20)
    "lm_head's all-gather (mostly of 32.0 MiB)"
    >>> name_collective("layers.1", Operation.REDUCE_SCATTER), name_collective(None, Operation.ALL_REDUCE)
    ("layers.1's reduce-scatter", 'an unattributed all-reduce')
    """
    size = "" if size_bytes is None else f" (mostly of {format_bytes(size_bytes)})"
    what = f"{name_operation(operation)}{size}"
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
