"""What would change a cause: one sentence, of which every word applies to what was run.

A knob is named only where the strategy has it and it is not set already; see ``facts.py``. What it could gain is
bounded by what the owner's collectives took without waiting for the last rank, where they took longest, since a step is
as long as its slowest rank's: how much of it is exposed is no bound, because a hidden collective can delay the one that
comes last. Where steps were replayed, ``gains.py`` bounds it closer.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from dtbench.base.commands import spell_command
from dtbench.base.units import format_bytes, format_ns
from dtbench.base.vocabulary import OF_TRANSFER, Cause, MissingInput, Operation, Purpose
from dtbench.report.words.causes import describe_cause, name_missing
from dtbench.report.words.knobs import Knob, Ran, mark_row
from dtbench.traces.causes.exposed_owners import Carried, ExposedOwner
from dtbench.traces.who.collectives import Collective
from dtbench.traces.who.strategy import Strategy

if TYPE_CHECKING:
    from dtbench.runs.summary import OwnerSummary

_FILL_PIPELINE: Final = (
    "Fill the pipeline better: more micro-batches per step, a schedule with less bubble (interleaved, zero-bubble), or"
    " stages that take equally long."
)

_MISSING: Final = {
    MissingInput.RANKS: "Give the traces of all ranks of its process group.",
    MissingInput.CLOCKS: (
        "Let these ranks take part in collectives together while the profiler runs, and set no clock meanwhile: their"
        " ends tell how far clocks are apart."
    ),
    MissingInput.EVENTS: "Record the same steps on all ranks, as a whole.",
    MissingInput.GROUP: (
        "Record it with `dtbench.capture`, in a run of dtbench, or with a torch that writes down process groups: ends"
        " alone do not tell which ranks share this one."
    ),
    MissingInput.WAITS: (
        "The trace does not tell which ranks it waits for: say which collective it is, by its kernel's name"
        " (`--patterns`), issue sends and receives one by one, or record with a torch that names roots."
    ),
    MissingInput.LATENESS: (
        "The rank that began last may only have handed on a delay: give the traces of all ranks of the job, which meet"
        " in collectives while the profiler runs, so that their clocks can be compared."
    ),
    MissingInput.LAUNCH: "Profile one step more, so that the call that launched it lies inside the trace.",
    MissingInput.LAUNCHES: (
        "Record again: calls that launched compute are missing from the trace, so that it does not tell what these"
        " stood behind or waited for."
    ),
    MissingInput.QUEUE: "Record it in a run of dtbench, or with `dtbench.capture`, which say which came after which.",
    MissingInput.PUT_OFF: (
        "Find first what the rank that comes last did meanwhile: these, or what they stood behind, waited for it, and"
        " would be done sooner with it in time."
    ),
    MissingInput.SCHEDULE: f"{_FILL_PIPELINE} These, or what they stood behind, waited for another stage.",
    MissingInput.GRAPH_ORDER: "Profile a step without captured graphs.",
    MissingInput.READY: "Record CPU activity too.",
    MissingInput.REGION: "Mark steps with `prof.step()`, and record CPU activity too.",
    MissingInput.BLOCKING: "Record it in a run of dtbench, or with `dtbench.capture`, which say so.",
    MissingInput.LOST: "Record again, with a step more, so that all of it is over before the profiler stops.",
    MissingInput.STREAM_WAITS: (
        "Find what that compute waited for: record CPU activity with the calls by which streams wait for each other."
    ),
    MissingInput.WAKING: (
        "Find what had the cores then (other processes, more threads than cores): data no longer kept it when other"
        " ranks had left, so it was woken late."
    ),
    MissingInput.HOST: (
        "Find what the host did meanwhile: a synchronisation, a call that blocks, or more Python than other work."
    ),
    MissingInput.DEVICE_CLOCK: (
        "Record again, perhaps with a newer torch or driver: the profiler put the device's times wrongly beside the"
        " host's."
    ),
    MissingInput.STREAMS: (
        "Give the traces as the profiler wrote them: this one has the work of several streams under one number."
    ),
    MissingInput.CONSUMER: (
        "Nothing was seen to wait for it: leave it out if nothing uses it; else record a step more, in a run of dtbench"
        " or with `dtbench.capture`, which record waits."
    ),
    MissingInput.ASKER: (
        "Record again, and keep the ranges around what issues collectives in the trace: without them nothing tells"
        " which of these were for gradients and which for parameters."
    ),
}

_FEW_BYTES: Final = 4096
"""Of so many, size is not worth an advice: at 1 GB/s they cross in 4 us, less than it takes to begin."""
_BY_SIZE: Final = (Cause.TAIL, Cause.NEEDED_AT_ONCE, Cause.BANDWIDTH)
"""Causes whose advice is to send less or to compute more."""

_OF_BARRIER: Final = (Cause.LATE_ISSUE, Cause.LATE_READY, Cause.SYNC_OP, *_BY_SIZE)
"""Causes of a barrier that no other issue changes: it has no input, carries nothing, and nothing uses its result."""

_FEWEST_TO_DIVIDE: Final = 2
"""Shards that no nodes can divide into several with several each."""

_MOST_OF_BUCKET: Final = 0.75
"""Part of a bucket from which its last parameter is what it takes: a smaller cap would take little off it."""


OwnerKey = tuple[str, Purpose, Operation | None]
"""Whose collectives: the owner's name, empty if unattributed, their purpose and operation."""


@dataclass(frozen=True)
class Loss:
    """A row of exposed communication, as an advice asks of it.

    Attributes:
        owner: empty: unattributed.
        exposed_ns: for this cause.
        behind: for ``queued``, what it stood behind.
        waited_for: for ``skew``, the rank.
        missing: for ``unknown``, what would tell it.
        carried: what its owner's collectives carried and took.
    """

    owner: str
    purpose: Purpose
    operation: Operation | None
    cause: Cause
    exposed_ns: int
    carried: Carried
    behind: Collective | None = None
    waited_for: int | None = None
    missing: tuple[MissingInput, ...] = ()


@dataclass(frozen=True)
class Advice:
    """One sentence on what would change some rows, and what they come to.

    Attributes:
        why: the cause of the first of them, and the purposes of all, in words.
        what: to do.
        exposed_ns: of all of them.
        is_unknown: it says what would tell their cause.
        bound: what it can gain at most; None: not known, or nothing is to be gained by it.
        shared: that gains do not add up with those of an advice before it; empty: they do.
        owners: whose transfer bounds what it gains; none: something else does, or nothing.
        replay: the change of ``dtbench whatif`` that bounds it closer; empty: that was asked, or is not known.
    """

    why: str
    what: str
    exposed_ns: int
    is_unknown: bool = False
    bound: "Bound | None" = None
    shared: str = ""
    owners: tuple[OwnerKey, ...] = ()
    replay: str = ""

    @property
    def words(self) -> str:
        """What to do, what it can gain at most, and which time that is, or how to ask for less."""
        most = "" if self.bound is None else f" {self.bound.words}."
        closer = f" A replay tells how much of that: `{spell_replay(self.replay, 'TRACES')}`." if self.replay else ""
        return f"{self.what}{most}{self.shared}{closer}"

    @property
    def leading(self) -> str:
        """Why, what it can gain at most, and what to do: the bound first, as a screen is read from its top."""
        most = "" if self.bound is None else f", {_lower(self.bound.short)}{' to gain' if self.bound.most_ns else ''}"
        return f"{self.why}{most}: {self.what}{self.shared}"

    @property
    def told(self) -> str:
        """Why, what to do, what it can gain at most, and which time that is."""
        return f"{self.why}: {self.words}"

    @property
    def short(self) -> str:
        """What to do and what it can gain at most."""
        return f"{self.what}{'' if self.bound is None else f' {self.bound.short}.'}{self.shared}"


def spell_replay(change: str, *asked: str) -> str:
    """Spell the command that asks for a change.

    >>> print(spell_replay("hidden: bucket 3, grad_reduce", "traces/"))
    dtbench whatif traces/ --change 'hidden: bucket 3, grad_reduce'
    """
    return spell_command("dtbench", "whatif", *asked, "--change", change)


@dataclass(frozen=True)
class Bound:
    """What an advice can gain at most, of a step of ``step_ns``; ``whose``: which time that is, in words.

    ``is_replayed``: it is what a replay of the steps gains; else all that some collectives took.
    """

    most_ns: float
    step_ns: float
    whose: str
    is_replayed: bool = False

    @property
    def short(self) -> str:
        """The bound alone."""
        return f"At most {format_ns(self.most_ns)}" if self.most_ns else "Nothing to gain"

    @property
    def words(self) -> str:
        """The bound, of how long a step, and which time it is."""
        return f"{self.short}{f' of {format_ns(self.step_ns)}' * bool(self.most_ns)}: {self.whose}"


def of_traces(row: ExposedOwner) -> Loss:
    """Return a row of anyone's traces."""
    return Loss(
        owner=row.owner or "",
        purpose=row.purpose,
        operation=row.operation,
        cause=row.cause,
        exposed_ns=row.exposed_ns,
        carried=row.carried,
        behind=row.behind,
        waited_for=row.waited_for,
        missing=row.missing,
    )


def of_run(row: "OwnerSummary") -> Loss:
    """Return a row of a run."""
    carried = Carried(
        at_most_ns=row.at_most_ns,
        waited_at_most_ns=row.waited_at_most_ns,
        taken_at_most_ns=row.taken_at_most_ns,
        transfer_ns=row.transfer_ns,
        skew_wait_ns=row.skew_wait_ns,
        size_bytes=row.size_bytes,
        outsized_bytes=row.outsized_bytes,
        dtype=row.dtype,
        parameters=row.parameters,
    )
    return Loss(
        owner=row.owner,
        purpose=row.purpose,
        operation=row.operation,
        cause=row.cause,
        exposed_ns=row.exposed_ns,
        carried=carried,
        waited_for=row.waited_for,
        missing=row.missing,
    )


def is_bubble_least(rows: Sequence[Loss]) -> bool:
    """Tell whether stages may have stood still longer than rows say: for what, is not known without the other end."""
    pipeline = (row for row in rows if row.purpose is Purpose.PIPELINE)
    return any(row.cause is Cause.UNKNOWN and row.carried.skew_wait_ns is None for row in pipeline)


def advise(
    rows: Sequence[Loss],
    ran: Ran,
    *,
    step_ns: float,
    comm_ns: float,
    are_all_seen: bool = True,
    lead: Loss | None = None,
) -> list[Advice]:
    """Say what would change the largest losses, largest first, each sentence once; then what would tell the unknown.

    What is said of the row that the answer leads with comes before; where more is unknown than any cause explains, what
    would tell most of it comes first of all.

    Args:
        rows: in any order.
        ran: what was run.
        step_ns: what a step took, whole traces otherwise.
        comm_ns: in which, on the rank that has most of it, any communication was under way: nothing can gain more; NaN:
            not known.
        are_all_seen: False: there are collectives that are in no row, as they were not seen to run.
        lead: the row that the answer leads with; None: none does.
    """
    is_bubble_known = are_all_seen and not is_bubble_least(rows)
    groups: dict[str, list[Loss]] = {}
    for row in sorted(rows, key=lambda row: -row.exposed_ns):
        groups.setdefault(advise_loss(row, ran), []).append(row)
    found, before = list[Advice](), set[OwnerKey]()
    for words, group in _order(groups, lead):
        is_bounded = group[0].cause is not Cause.BUBBLE or is_bubble_known
        bound = _bound(group, step_ns, comm_ns) if is_bounded else None
        is_unknown = group[0].cause is Cause.UNKNOWN
        exposed_ns = sum(row.exposed_ns for row in group)
        shared = "" if bound is None else _say_shared(group, before)
        owners = tuple(_key_owners(group)) if bound is not None and group[0].cause in OF_TRANSFER else ()
        found.append(Advice(_why(group), words, exposed_ns, is_unknown, bound, shared, owners))
        before |= set() if bound is None else _key_owners(group).keys()
    return found


def _order(groups: Mapping[str, Sequence[Loss]], lead: Loss | None) -> list[tuple[str, Sequence[Loss]]]:
    """Return advices with their rows: what leads, then largest first, of unknown causes last.

    Those come first of all where most is unknown.
    """
    sums = {words: sum(row.exposed_ns for row in group) for words, group in groups.items()}
    is_unknown = {words: group[0].cause is Cause.UNKNOWN for words, group in groups.items()}
    by_cause = Counter[Cause]()
    for row in chain.from_iterable(groups.values()):
        by_cause[row.cause] += row.exposed_ns
    ordered = sorted(
        filter(None, groups), key=lambda words: (lead not in groups[words], is_unknown[words], -sums[words])
    )
    first = next((words for words in ordered if is_unknown[words]), None)
    if first is not None and by_cause[Cause.UNKNOWN] >= max(by_cause.values()):
        ordered.sort(key=lambda words: words is not first)
    return [(words, groups[words]) for words in ordered]


def _why(group: Sequence[Loss]) -> str:
    waited_for = {row.waited_for for row in group}
    one = waited_for.pop() if len(waited_for) == 1 else None
    cause, missing = group[0].cause, group[0].missing
    purposes = ", ".join(dict.fromkeys(row.purpose for row in group))
    aside = f"{purposes}; {name_missing(missing)}" if cause is Cause.UNKNOWN and missing else purposes
    return f"{describe_cause(cause, waited_for=one)} ({aside})"


def _bound(group: Sequence[Loss], step_ns: float, comm_ns: float) -> Bound | None:
    """Return what the group's owners can gain at most; None where a cause is only to be told, or no time is known."""
    cause = group[0].cause
    owners = _key_owners(group)
    is_skew, is_of_transfer = cause in (Cause.SKEW, Cause.BUBBLE), cause in OF_TRANSFER
    times_ns = [
        one.waited_at_most_ns if is_skew else one.at_most_ns if is_of_transfer else one.taken_at_most_ns
        for one in owners.values()
    ]
    if cause is Cause.UNKNOWN or math.isnan(step_ns) or None in times_ns:
        return None
    took_ns = sum(time_ns or 0 for time_ns in times_ns)
    bounds_ns = (took_ns, step_ns, *([comm_ns] if is_of_transfer and not math.isnan(comm_ns) else []))
    most_ns = min(bounds_ns)
    its = "its" if len(owners) == 1 else "their"
    whose = (
        f"all that {its} collectives waited for other ranks"
        if is_skew
        else _what_it_took([*owners.values()], its, is_of_transfer=is_of_transfer)
    )
    whose += f", each on the rank where it {'waited' if is_skew else 'took'} longest" if len(owners) > 1 else ""
    if most_ns < took_ns:
        whole = "the whole of it" if most_ns == step_ns else "all of its communication"
        whose = f"{whole}, as {its} collectives together took longer"
    return Bound(most_ns, step_ns, whose)


def _key_owners(group: Sequence[Loss]) -> dict[OwnerKey, Carried]:
    return {(row.owner, row.purpose, row.operation): row.carried for row in group}


def _what_it_took(owners: Sequence[Carried], its: str, *, is_of_transfer: bool) -> str:
    """Say what the time is that owners' collectives can gain: of size, transfer, as far as that is known apart."""
    if is_of_transfer and all(one.transfer_ns is not None for one in owners):
        return f"all the transfer of {its} collectives, hidden or not"
    if is_of_transfer and all(one.skew_wait_ns is not None for one in owners):
        return f"all that {its} collectives took after the last rank began, hidden or not"
    return f"all that {its} collectives took, hidden or not, waiting for other ranks included"


def _say_shared(group: Sequence[Loss], before: Collection[OwnerKey]) -> str:
    """Say that an advice is about collectives of those ``before`` it, so that gains do not add up; empty: it is not."""
    mine = _key_owners(group).keys()
    shared = sum(key in before for key in mine)
    if not shared:
        return ""
    part = "the same collectives" if shared == len(mine) else "in part the same collectives"
    return f" These are {part} as before: the gains do not add up."


def advise_loss(row: Loss, ran: Ran) -> str:
    """Say in one sentence what would change a row; for ``unknown``, what would tell its cause, if that is known."""
    if row.cause is Cause.UNKNOWN:
        return _MISSING[row.missing[0]] if row.missing else ""
    groups = (row.carried.group, row.behind.group) if row.behind is not None else (row.carried.group,)
    done = mark_row(ran, groups, row.carried.dtype, is_async=row.carried.is_async)
    known = replace(ran, done=done)
    size_bytes = None if row.operation is Operation.BARRIER else row.carried.size_bytes
    if row.operation is Operation.BARRIER and row.cause in _OF_BARRIER:
        return "A barrier is for nothing but waiting: leave it out where what follows waits for the other ranks anyway."
    if row.cause in _BY_SIZE and size_bytes is not None and size_bytes <= _FEW_BYTES:
        return f"The largest seen carries {format_bytes(size_bytes)}: issue fewer, larger ones."
    is_gather = row.purpose is Purpose.TENSOR and row.operation is Operation.ALL_GATHER
    if is_gather and row.carried.outsized_bytes and row.cause in (*_BY_SIZE, Cause.SYNC_OP):
        return _shard_output(row.carried.outsized_bytes, known)
    if row.cause in _BY_SIZE and row.purpose in _OF_PURPOSE:
        return _OF_PURPOSE[row.purpose]
    return _ADVICE[row.cause](row, known)


def _name(names: Sequence[str], last: str = "or") -> str:
    """Join spelled knobs: ``a``; ``a`` or ``b``; ``a``, ``b`` or ``c``."""
    return f" {last} ".join([*([", ".join(names[:-1])] if names[:-1] else []), *names[-1:]])


def _put(knobs: Sequence[str], *words: str) -> str:
    """Spell knobs and words in brackets, with the space before; nothing where there are none."""
    everything = [*words, *([_name(knobs)] if knobs else [])]
    return f" ({', '.join(everything)})" if everything else ""


_OF_PURPOSE: Final = {
    Purpose.CONTEXT: (
        "Pass keys and values on while attention of the block before computes (a ring instead of an all-gather), send"
        " fewer of them (grouped-query attention), or use a smaller context axis."
    ),
    Purpose.EXPERT: (
        "Dispatch and combine in parts, so that experts compute beside the next part (or beside another micro-batch),"
        " send tokens in fewer bits or to fewer experts, or use a smaller expert axis."
    ),
}
"""What is said of a purpose for all of these causes."""


def _after_skew(row: Loss, _ran: Ran) -> str:
    last = "the ranks that come last" if row.waited_for is None else "the last rank"
    return f"Find what {last} did meanwhile: the time is lost there, and a faster link changes nothing."


def _after_queue(row: Loss, ran: Ran) -> str:
    behind = None if row.behind is None else row.behind.purpose
    if row.purpose is Purpose.GRAD_REDUCE and behind is Purpose.GRAD_REDUCE:
        return f"Reductions go one after another: {_lower(_reduce_less(ran))}"
    knobs = ran.choose(Knob.SEPARATE_GROUP)
    if knobs and row.purpose is Purpose.GRAD_REDUCE and behind in (Purpose.UNSHARD, None):
        before = "Send less before it; where that is no reduction, give" if behind is None else "Give"
        return f"{before} reductions a process group of their own ({_name(knobs)})."
    if knobs and row.purpose is Purpose.UNSHARD and behind in (Purpose.GRAD_REDUCE, None):
        return (
            f"Give reductions a process group of their own ({_name(knobs)}), so that gathers do not stand behind them."
        )
    if row.purpose in (Purpose.GRAD_REDUCE, Purpose.UNSHARD):
        return "Send less before it."
    if not row.carried.group:  # a library's own kernels have none: what queues there is their stream
        return "Give it a stream of its own (and a process group, where it has one), or send less before it."
    return "Give it a process group of its own, or send less before it."


def _after_serialized(_row: Loss, ran: Ran) -> str:
    queues = ran.choose(Knob.CONNECTIONS, Knob.HIP_QUEUES)
    budget = ran.choose(Knob.MAX_CTAS, Knob.CTA_POLICY)
    return (
        "Compute stood in line behind it: give streams hardware queues of their own"
        f"{_put(queues)}, or leave compute free multiprocessors while it runs{_put(budget)}."
    )


def _after_late_issue(row: Loss, ran: Ran) -> str:
    if row.purpose is not Purpose.UNSHARD:
        return "Issue it as soon as its input is there, from a hook rather than after the next compute."
    knobs = ran.choose(Knob.FSDP1_PREFETCH, Knob.PREFETCH_FORWARD, Knob.PREFETCH_BACKWARD)
    if ran.is_device:
        how = f": prefetch it ({_name(knobs)})." if knobs else ": launch less, or larger kernels, before it."
        return f"The host was behind the device{how}"
    if ran.strategy is Strategy.FSDP1:
        return _FSDP1_BLOCKS
    asynchronous = ran.choose(Knob.UNSHARD_ASYNC)
    if knobs and asynchronous:
        return (
            f"Prefetch it with {_name(knobs)}, and make that asynchronous with {_name(asynchronous)}: "
            "on gloo a prefetch alone changes nothing."
        )
    if knobs or asynchronous:
        return f"Issue it earlier: {_name([*knobs, *asynchronous], 'and')}."
    return "Issue it earlier, before the compute of the unit before it begins."


_FSDP1_BLOCKS: Final = "FSDP1 issues every collective blocking on gloo, prefetched or not; on NCCL it does not."


def _after_bubble(_row: Loss, _ran: Ran) -> str:
    return _FILL_PIPELINE


def _after_late_ready(_row: Loss, ran: Ran) -> str:
    if ran.strategy is Strategy.DDP and (ran.tensor or 1) > 1:
        return (
            "Hand gradients over where they are computed: convert DTensor weights in their own module's forward, "
            "not all at the start (as DDP over tensor parallelism does), or use FSDP2 over tensor parallelism."
        )
    if ran.is_compiled:
        return "The compiled backward hands all gradients over at its end: compile blocks apart."
    return "Hand gradients over where they are computed, not all at the end of backward."


def _after_sync_op(row: Loss, ran: Ran) -> str:
    is_fsdp = ran.strategy in (Strategy.FSDP1, Strategy.FSDP2)
    if not ran.is_device and is_fsdp and row.purpose in (Purpose.UNSHARD, Purpose.GRAD_REDUCE):
        if ran.strategy is Strategy.FSDP1:
            return _FSDP1_BLOCKS
        if row.purpose is Purpose.GRAD_REDUCE:
            return "FSDP's reduce-scatter always blocks on gloo; on NCCL it does not."
        knobs = ran.choose(Knob.UNSHARD_ASYNC)
        if knobs:
            ahead = ran.choose(Knob.PREFETCH_FORWARD, Knob.PREFETCH_BACKWARD)
            together = f", together with explicit prefetch ({_name(ahead)})" if ahead else ""
            return f"Make it asynchronous with {_name(knobs)}{together}."
    knobs = ran.choose(Knob.NO_PYTHON_REDUCER)
    if knobs and row.purpose is Purpose.GRAD_REDUCE:
        return 'Reduce in buckets, beside backward: DDP\'s Python reducer (`optimize_ddp="python_reducer"`) blocks.'
    return _UNBLOCKED.get(
        row.operation,
        "Issue it without blocking, and wait where its result is used: that helps only where something else can run"
        " before, which no trace tells.",
    )


_UNBLOCKED: Final[dict[Operation | None, str]] = {
    Operation.SEND: "Issue it without blocking (`isend`), and wait before what it sends is written again.",
    Operation.RECV: "Issue it without blocking (`irecv`), ahead of its use, and wait where its result is used.",
}


def _after_tail(row: Loss, ran: Ran) -> str:
    if row.purpose is not Purpose.GRAD_REDUCE:
        return "Nothing of the region is left to hide it: send less, or let the next region begin beside it."
    if ran.strategy is Strategy.DDP and row.operation is Operation.ALL_REDUCE:
        return _shrink_bucket(row, ran)
    if ran.strategy in (Strategy.FSDP1, Strategy.FSDP2):
        return "Make what is reduced last smaller: smaller units for the first layers."
    return "Make what is reduced last smaller."


def _shrink_bucket(row: Loss, ran: Ran) -> str:
    """Say what makes DDP's last bucket smaller: a cap, where it holds more than the parameter that is ready last."""
    parameters = row.carried.parameters
    sizes = [ran.sizes_bytes.get(name) for name in parameters]
    total = sum(size or 0 for size in sizes) if None not in sizes else 0
    last = sizes[ran.last_ready] if sizes else None
    if len(parameters) == 1 or (last is not None and total and last >= _MOST_OF_BUCKET * total):
        most, whole = ("Most of what", f" of {format_bytes(total)}") if len(parameters) > 1 else ("What", "")
        known = last if last is not None else row.carried.size_bytes
        size = f", {format_bytes(known)}{whole}" if known else ""
        bits = _name(ran.choose(Knob.BF16_HOOK, Knob.FP16_HOOK, Knob.POWER_SGD))
        less = f"send it in fewer bits ({bits}), or " if bits else ""
        one = f"{most} is reduced last is one parameter (`{parameters[ran.last_ready]}`{size})"
        return f"{one}, which no cap divides: {less}shard or shrink it."
    knobs = ran.choose(Knob.BUCKET_CAP, Knob.BUCKET_CAPS)
    if not knobs:
        return "Make what is reduced last smaller."
    doubt = "" if parameters else ", which helps where that is more than one parameter"
    return f"Make what is reduced last smaller: a smaller {_name(knobs)}{doubt}."


def _after_needed_at_once(row: Loss, ran: Ran) -> str:
    if row.purpose is Purpose.TENSOR:
        split = (
            "Split the matmul so that parts overlap (asynchronous tensor parallelism), or use"
            if ran.is_device
            else "Use"
        )
        return f"{split} a smaller tensor axis."
    if row.purpose is Purpose.UNSHARD and ran.strategy in (Strategy.FSDP1, Strategy.FSDP2):
        return "Nothing that could run beside it was launched before it was needed: make the unit small."
    if row.purpose is Purpose.GRAD_REDUCE:
        return (
            "It is waited for while backward has more to compute: wait when backward is over, so that what is left of"
            " that runs beside it."
        )
    if row.purpose is Purpose.UNSHARD and ran.gathers_after_update:
        return "Gather parameters in parts, each when its update is done, or beside the next forward."
    return "Find independent work to put between its issue and its use, or send less."


def _after_bandwidth(row: Loss, ran: Ran) -> str:
    if row.purpose is Purpose.UNSHARD:
        return _gather_less(ran)
    if row.purpose is Purpose.GRAD_REDUCE:
        return _reduce_less(ran)
    return "Send less, use a faster link, or compute more beside it."


def _gather_less(ran: Ran) -> str:
    kept = ran.choose(Knob.FSDP1_KEEP, Knob.KEEP)
    bits = ran.choose(Knob.FSDP1_PARAM_DTYPE, Knob.PARAM_DTYPE)
    return f"Send less{_put([*bits, *kept], *_shard_in_nodes(ran))}, or compute more per gather (a larger batch)."


def _shard_in_nodes(ran: Ran) -> list[str]:
    """Say how to keep gathers inside nodes; nothing where they are, or no node has some of the shards and not all."""
    hybrid = _name(ran.choose(Knob.FSDP1_HYBRID))
    name = hybrid or ("HSDP" if ran.strategy is Strategy.FSDP2 and not ran.has_replicas else "")
    shards, near = ran.shards, ran.shards_in_node
    if not name or (shards is not None and shards <= _FEWEST_TO_DIVIDE) or near == 1 or (near and near == shards):
        return []
    return [f"{name} inside a node" if near else f"{name} inside a node where ranks are on several"]


def _reduce_less(ran: Ran) -> str:
    bits = ran.choose(Knob.BF16_HOOK, Knob.FP16_HOOK, Knob.POWER_SGD, Knob.FSDP1_REDUCE_DTYPE, Knob.REDUCE_DTYPE)
    return f"Send less{_put(bits)} or less often (accumulate gradients, a larger batch)."


def _shard_output(size_bytes: int, ran: Ran) -> str:
    """Say what makes one gather among a tensor axis's small ones go away: mostly it is that of the logits."""
    loss = "" if ran.keeps_logits else ", and of logits compute the loss on the shards (`loss_parallel`)"
    return (
        f"One gather of {format_bytes(size_bytes)} outweighs the others: leave its output sharded (`Shard(-1)`){loss}."
    )


def _lower(words: str) -> str:
    return words[0].lower() + words[1:]


_ADVICE: Final[dict[Cause, Callable[[Loss, Ran], str]]] = {
    Cause.SKEW: _after_skew,
    Cause.BUBBLE: _after_bubble,
    Cause.QUEUED: _after_queue,
    Cause.SERIALIZED: _after_serialized,
    Cause.LATE_ISSUE: _after_late_issue,
    Cause.LATE_READY: _after_late_ready,
    Cause.SYNC_OP: _after_sync_op,
    Cause.TAIL: _after_tail,
    Cause.NEEDED_AT_ONCE: _after_needed_at_once,
    Cause.BANDWIDTH: _after_bandwidth,
}
