"""The tables that are made of traces: where time went, by rank, step, purpose, group, lane, gap, kernel and function.

``collectives`` has a module of its own. pandas is imported only where a DataFrame is asked for: it takes longer to load
than a small trace takes to read.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from dtbench.base.columns import ANY, Better, Column, Table, Unit
from dtbench.base.vocabulary import Operation, Purpose
from dtbench.traces.account.gaps import CommWait, GapTime
from dtbench.traces.account.group_times import GroupTime
from dtbench.traces.account.lanes import LaneTime
from dtbench.traces.account.overlap_tax import KernelTax
from dtbench.traces.account.probe_times import ProbeTime
from dtbench.traces.account.purpose_times import PurposeTime
from dtbench.traces.rows.collective_table import COLLECTIVES, TRACE_CLOCK, Place
from dtbench.traces.time.overlap import Overlap

if TYPE_CHECKING:
    from dtbench.traces.account.accounts import WindowAccount
    from dtbench.traces.rank.analysis import TraceAnalysis
    from dtbench.traces.who.collectives import Collective

_Analyses = Iterable["TraceAnalysis"]

_RANK: Final = Column[Place]("rank", "int64", None, "which rank", lambda at: at.rank, least=0, is_needed=True)
_STEP: Final = Column[Place](
    "step", "int64", None, "the number in the trace's `ProfilerStep#N`", lambda at: at.step, least=0, is_needed=True
)
_UNSIZED: Final = "collectives whose size is not known; NA: a table of an older version, which does not say"
_UNSEEN: Final = "NA: none of them was seen to run"


def _of_windows(analyses: _Analyses) -> "Iterator[tuple[Place, TraceAnalysis, WindowAccount]]":
    for one in analyses:
        for step, account in zip(one.steps, one.accounts.steps, strict=True):
            yield Place(one.rank, step.step), one, account


def _find_overlap(analyses: _Analyses) -> Iterator[tuple[Place, Overlap]]:
    return ((Place(one.rank, step.step), step.overlap) for one in analyses for step in one.steps)


_PARTS: Final = (
    Column[Overlap]("compute_ns", "Int64", Unit.NS, "compute runs", lambda row: row.compute_ns, better=Better.LOWER),
    Column[Overlap]("comm_ns", "Int64", Unit.NS, "communication runs", lambda row: row.comm_ns),
    Column[Overlap](
        "hidden_comm_ns", "Int64", Unit.NS, "communication runs overlapped with compute", lambda row: row.hidden_comm_ns
    ),
    Column[Overlap](
        "exposed_comm_ns",
        "Int64",
        Unit.NS,
        "communication runs and compute does not",
        lambda row: row.exposed_comm_ns,
        better=Better.LOWER,
    ),
    Column[Overlap](
        "exposed_copy_ns",
        "Int64",
        Unit.NS,
        "a copy runs, and neither compute nor communication does",
        lambda row: row.exposed_copy_ns,
    ),
    Column[Overlap](
        "idle_ns",
        "Int64",
        Unit.NS,
        "nothing runs; on a CPU this is the host's time, Python and dispatch",
        lambda row: row.idle_ns,
        better=Better.LOWER,
    ),
    Column[Overlap](
        "is_least",
        "boolean",
        None,
        "collectives or kernels were launched and not seen to run: communication, hidden or exposed, is at least this, "
        "copies and idle time at most; NA: a table of an older version, which does not say",
        lambda row: row.is_least,
    ),
)

OVERLAP: Final = Table[_Analyses, Place, Overlap](
    name="overlap",
    doc="Where the time of each profiled step went, one row per rank and step; `compute_ns + exposed_comm_ns + "
    "exposed_copy_ns + idle_ns` is `step_ns`. NA: nothing ran in the step, or launches are lost and it is not known "
    "where it begins or ends; in all but `step_ns` and `comm_ns` also: "
    "what computes was not recorded in it; of copies and idle time: copies are lost; of what may be no zero: the step "
    "may begin earlier.",
    find=_find_overlap,
    unique=("rank", "step"),
    keys=(_RANK, _STEP),
    columns=(Column("step_ns", "Int64", Unit.NS, "the step", lambda row: row.step_ns, least=1), *_PARTS),
)

WHOLE: Final = Table[_Analyses, Place, Overlap](
    name="whole",
    doc="The same of each whole trace, one row per rank; NA as in `overlap`.",
    find=lambda analyses: ((Place(one.rank), one.whole) for one in analyses),
    unique=("rank",),
    keys=(_RANK,),
    columns=(
        Column(
            "window_ns",
            "Int64",
            Unit.NS,
            "from the first start to the last end of whatever has a kind; never a step",
            lambda row: row.step_ns,
        ),
        *_PARTS,
    ),
)


def _find_purposes(analyses: _Analyses) -> Iterator[tuple[Place, PurposeTime]]:
    for one in analyses:
        for step in one.steps:
            for purpose in step.purposes:
                yield Place(one.rank, step.step), purpose


PURPOSES: Final = Table[_Analyses, Place, PurposeTime](
    name="purposes",
    doc="What the communication of each profiled step was for, one row per rank, step and purpose.",
    find=_find_purposes,
    unique=("rank", "step", "purpose"),
    keys=(_RANK, _STEP),
    columns=(
        Column(
            "purpose",
            "string",
            None,
            "unshard, grad_reduce, tensor, ...",
            lambda row: str(row.purpose),
            check=Purpose,
            is_needed=True,
        ),
        Column("count", "int64", Unit.COUNT, "its collectives", lambda row: row.count, is_needed=True),
        Column(
            "size_bytes",
            "Int64",
            Unit.BYTES,
            "what those carry whose size is known; NA: it is known of none",
            lambda row: row.size_bytes,
        ),
        Column("unsized", "Int64", Unit.COUNT, _UNSIZED, lambda row: row.unsized),
        Column("comm_ns", "Int64", Unit.NS, f"they run; {_UNSEEN}", lambda row: row.comm_ns),
        Column(
            "hidden_ns",
            "Int64",
            Unit.NS,
            "their share of hidden time; NA, as `exposed_ns`: none was seen to run, or what computes was not recorded",
            lambda row: row.hidden_ns,
        ),
        Column(
            "exposed_ns",
            "Int64",
            Unit.NS,
            "their share of exposed time; sums over purposes to `exposed_comm_ns` of `overlap`",
            lambda row: row.exposed_ns,
            better=Better.LOWER,
        ),
        Column(
            "wait_ns",
            "Int64",
            Unit.NS,
            "how long consumers were blocked by them; NA: no wait was seen, and not every consumer can be",
            lambda row: row.wait_ns,
            better=Better.LOWER,
        ),
        Column(
            "is_wait_least",
            "boolean",
            None,
            "not every consumer can be seen, so that the wait is at least this, or at least 0; NA: a table of an older "
            "version, which does not say",
            lambda row: row.is_wait_least,
        ),
    ),
)


def _find_probes(analyses: _Analyses) -> Iterator[tuple[Place, tuple[str, ProbeTime]]]:
    for one in analyses:
        for step in one.steps:
            for probe in step.probes.items():
                yield Place(one.rank, step.step), probe


PROBES: Final = Table[_Analyses, Place, tuple[str, ProbeTime]](
    name="probes",
    doc="How long functions under study ran in profiled steps, one row per rank, step and function that had a probe "
    "(`measure.probes`).",
    find=_find_probes,
    unique=("rank", "step", "function"),
    keys=(_RANK, _STEP),
    columns=(
        Column("function", "string", None, "file and name, as `measure.probes` spells them", lambda row: row[0]),
        Column("calls", "int64", Unit.COUNT, "its ranges that begin in the step", lambda row: row[1].calls),
        Column(
            "total_ns",
            "int64",
            Unit.NS,
            "in at least one of its ranges, on any thread; what it calls included",
            lambda row: row[1].total_ns,
        ),
        Column(
            "exposed_ns",
            "int64",
            Unit.NS,
            "the part in which nothing computed, on no thread and no stream",
            lambda row: row[1].exposed_ns,
        ),
    ),
)


LANES: Final = Table[_Analyses, Place, LaneTime](
    name="lanes",
    doc="What each stream or thread did, one row per rank, step and lane. NA: what computes was not recorded in the "
    "step; of communication also: none was seen on it, and collectives were issued that were not seen to run.",
    find=lambda analyses: ((at, lane) for at, _, account in _of_windows(analyses) for lane in account.lanes),
    unique=("rank", "step", "lane"),
    keys=(_RANK, _STEP),
    columns=(
        Column("lane", "string", None, "`<process>/<stream or thread>`", lambda row: row.lane),
        Column(
            "busy_ns",
            "Int64",
            Unit.NS,
            "anything runs on it; less than the sum of the three that follow where kinds run at once",
            lambda row: row.busy_ns,
        ),
        Column("compute_ns", "Int64", Unit.NS, "compute runs on it", lambda row: row.compute_ns),
        Column("comm_ns", "Int64", Unit.NS, "communication runs on it", lambda row: row.comm_ns),
        Column("copy_ns", "Int64", Unit.NS, "a copy runs on it", lambda row: row.copy_ns),
    ),
)

GROUPS: Final = Table[_Analyses, Place, GroupTime](
    name="groups",
    doc="Communication by process group, one row per rank, step and group.",
    find=lambda analyses: ((at, group) for at, _, account in _of_windows(analyses) for group in account.groups),
    unique=("rank", "step", "group", "axis"),
    keys=(_RANK, _STEP),
    columns=(
        Column(
            "group",
            "string",
            None,
            "torch's name of the process group; empty: the trace does not say",
            lambda row: row.group,
        ),
        Column(
            "axis",
            "string",
            None,
            "as the group's description calls it: tp, dp_shard, ep, ...; empty: it says nothing",
            lambda row: row.axis,
        ),
        Column("count", "int64", Unit.COUNT, "its collectives", lambda row: row.count, is_needed=True),
        Column(
            "size_bytes",
            "Int64",
            Unit.BYTES,
            "what those carry whose size is known; NA: it is known of none",
            lambda row: row.size_bytes,
        ),
        Column("unsized", "Int64", Unit.COUNT, _UNSIZED, lambda row: row.unsized),
        Column("comm_ns", "Int64", Unit.NS, f"they run; {_UNSEEN}", lambda row: row.comm_ns),
        Column("hidden_ns", "Int64", Unit.NS, "their share of hidden time", lambda row: row.hidden_ns),
        Column(
            "exposed_ns",
            "Int64",
            Unit.NS,
            "their share of exposed time; sums over groups to `exposed_comm_ns` of `overlap`",
            lambda row: row.exposed_ns,
        ),
    ),
)


def _gap_ns(name: str, doc: str) -> Column[GapTime | None]:
    """Return the column of one of the lengths of ``GapTime``; NA where there is no such lane."""
    return Column(name, "Int64", Unit.NS, doc, lambda row: None if row is None else getattr(row, name))


GAPS: Final = Table[_Analyses, Place, GapTime | None](
    name="gaps",
    doc="Why the stream with most compute was not computing, one row per rank and step; NA throughout for a trace "
    "without a device.",
    find=lambda analyses: ((at, account.gaps) for at, _, account in _of_windows(analyses)),
    unique=("rank", "step", "lane"),
    keys=(_RANK, _STEP),
    columns=(
        Column(
            "lane",
            "string",
            None,
            "the stream with most compute; NA: there is none",
            lambda row: None if row is None else row.lane,
            may_be_na=True,
        ),
        _gap_ns("gap_ns", "the stream had no work: `comm_wait_ns + host_wait_ns + launch_gap_ns + other_ns`"),
        _gap_ns(
            "comm_wait_ns",
            "the next work was launched and waited for a collective; NA: it may have waited for something else",
        ),
        _gap_ns("host_wait_ns", "the next work was not launched yet, and no other lane computed; NA: not known"),
        _gap_ns(
            "host_sync_ns",
            "the part of `host_wait_ns` in which the late thread was blocked in a synchronising call; NA: not known",
        ),
        _gap_ns("launch_gap_ns", "from launch to start, or from kernel to kernel; NA: not known"),
        _gap_ns("other_ns", "the six that follow"),
        _gap_ns("beside_compute_ns", "compute ran on another lane"),
        _gap_ns("beside_comm_ns", "a collective ran on another lane, and ran on when the gap was closed"),
        _gap_ns("beside_copy_ns", "a copy ran on another lane"),
        _gap_ns(
            "launch_unknown_ns",
            "the trace does not say when the next work was launched, or whether it or the host waited for a collective",
        ),
        _gap_ns("trace_end_ns", "no work followed"),
        _gap_ns("unexplained_ns", "nothing is known of it"),
    ),
)


def _find_comm_waits(analyses: _Analyses) -> "Iterator[tuple[Place, tuple[Collective, CommWait]]]":
    for at, one, account in _of_windows(analyses):
        for wait in account.gaps.waits if account.gaps else ():
            yield at, (one.collectives[wait.collective], wait)


COMM_WAITS: Final = Table[_Analyses, Place, "tuple[Collective, CommWait]"](
    name="comm_waits",
    doc="Which collective the stream with most compute waited for, and whose it is: one row per rank, step and "
    "collective.",
    find=_find_comm_waits,
    keys=(_RANK, _STEP),
    columns=(
        Column("group", "string", None, "torch's name of its process group", lambda row: row[0].group),
        Column("seq", "Int64", None, "its number in that group", lambda row: row[0].seq, least=ANY),
        Column(
            "operation",
            "string",
            None,
            "all_gather, all_reduce, ...; empty: not known",
            lambda row: str(row[0].operation or ""),
            check=lambda word: word and Operation(word),
        ),
        Column(
            "purpose",
            "string",
            None,
            "unshard, grad_reduce, tensor, ...",
            lambda row: str(row[0].purpose),
            check=Purpose,
            is_needed=True,
        ),
        Column("owner", "string", None, "as in `collectives`", lambda row: row[0].owner),
        Column(
            "start_ns",
            "int64",
            Unit.NS,
            "when the collective began, which may be in the step before",
            lambda row: row[0].start_ns,
            clock=TRACE_CLOCK,
        ),
        Column("end_ns", "int64", Unit.NS, "when it ended", lambda row: row[0].end_ns, clock=TRACE_CLOCK),
        Column(
            "wait_ns",
            "Int64",
            Unit.NS,
            "sums over a step to `comm_wait_ns` of `gaps`; NA: it may have waited for something else",
            lambda row: row[1].wait_ns,
        ),
    ),
)


def _find_taxes(analyses: _Analyses) -> Iterator[tuple[Place, KernelTax]]:
    for one in analyses:
        for kernel in one.accounts.overlap_tax.kernels if one.accounts.overlap_tax else ():
            yield Place(one.rank), kernel


OVERLAP_TAX: Final = Table[_Analyses, Place, KernelTax](
    name="overlap_tax",
    doc="How much slower kernels ran under communication, one row per rank and kernel. A comparison, not an "
    "experiment: kernels of one name and launch shape may have had other inputs.",
    find=_find_taxes,
    keys=(_RANK,),
    columns=(
        Column("name", "string", None, "as in the trace", lambda row: row.name),
        Column("grid", "string", None, "grid and block of its launch", lambda row: row.grid),
        Column(
            "alone_count",
            "int64",
            Unit.COUNT,
            "how often no communication overlapped it",
            lambda row: row.alone_count,
            least=1,
        ),
        Column(
            "under_count",
            "int64",
            Unit.COUNT,
            "how often it ran under communication",
            lambda row: row.under_count,
            least=1,
        ),
        Column("alone_ns", "float64", Unit.NS, "its median length alone", lambda row: row.alone_ns),
        Column("under_ns", "float64", Unit.NS, "its median length under communication", lambda row: row.under_ns),
        Column("ratio", "float64", None, "`under_ns` over `alone_ns`", lambda row: row.ratio, least=0),
    ),
)

TraceTable = Table[_Analyses, Place, Any]
"""A table that is made of traces, whatever its rows are."""

TABLES: Final[tuple[TraceTable, ...]] = (
    PURPOSES,
    COLLECTIVES,
    LANES,
    GROUPS,
    GAPS,
    COMM_WAITS,
    OVERLAP_TAX,
    PROBES,
    OVERLAP,
)
"""Every table that a launch keeps; ``overlap`` is written last: where it is, the others are."""
