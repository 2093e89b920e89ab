"""The table ``collectives``: whose each one is, how long it took, whom it waited for, and why it is exposed."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from dtbench.base.columns import ANY, Better, Column, Table, Unit
from dtbench.base.vocabulary import Cause, MissingInput, Operation, Purpose
from dtbench.traces.causes.split import CauseSplit, order_missing
from dtbench.traces.ranks.bandwidth import algorithm_bandwidth, bus_factor
from dtbench.traces.ranks.skew import CollectiveSkew

if TYPE_CHECKING:
    from dtbench.traces.rank.analysis import TraceAnalysis
    from dtbench.traces.who.collectives import Collective

TRACE_CLOCK: Final = "the trace's"

_OTHERS: Final = (Cause.SKEW, Cause.BUBBLE)


@dataclass(frozen=True)
class Place:
    """Where a row of a trace's table is: its rank, and the step that it is of; None: of none, or of a whole trace."""

    rank: int
    step: int | None = None


@dataclass(frozen=True)
class _Seen:
    """One collective of one rank, with what is known of it besides.

    Attributes:
        is_work_lost: kernels or copies of its step are lost, so that it is not known who waited for it.
        causes_ns: what each cause explains; None: not known.
    """

    one: "Collective"
    skew: CollectiveSkew
    split: CauseSplit
    exposed_ns: int | None
    hidden_ns: int | None
    is_work_lost: bool
    causes_ns: Mapping[Cause, int | None]

    @property
    def is_seen(self) -> bool:
        return len(self.one.span.starts_ns) > 0

    @property
    def wait_ns(self) -> int | None:
        start_ns, end_ns = self.one.first_wait_ns, self.one.first_wait_end_ns
        is_known = not (self.is_work_lost or self.one.is_wait_doubtful)
        return None if start_ns is None or end_ns is None or not is_known else end_ns - start_ns

    @property
    def least_algbw(self) -> float:
        """What its bytes and its span tell of bandwidth: at least so much, whoever came last."""
        length_ns = self.one.span.length_ns if self.one.has_ended else None  # one that is cut off says too much
        return algorithm_bandwidth(self.one.size_bytes, length_ns)

    @property
    def least_busbw(self) -> float:
        return self.least_algbw * bus_factor(self.one.operation, self.one.group_size)


def _find_collectives(analyses: Iterable["TraceAnalysis"]) -> Iterator[tuple[Place, _Seen]]:
    for one in analyses:
        skews = one.skews or (CollectiveSkew(),) * len(one.collectives)
        splits = one.splits or (CauseSplit(()),) * len(one.collectives)
        for index, collective in enumerate(one.collectives):
            if one.left is not None and index in one.left.collectives:
                continue
            of = one.step_of[index]
            lost = one.lost
            is_lost = (
                lost.recorded is not None or lost.copies > 0
                if of is None
                else one.steps[of].step in {*lost.steps, *lost.copy_steps}
            )
            exposed_ns = one.timeline.exposed_of(index)
            yield (
                Place(one.rank, None if of is None else one.steps[of].step),
                _Seen(
                    collective,
                    skews[index],
                    splits[index],
                    exposed_ns=exposed_ns,
                    hidden_ns=one.timeline.hidden_of(index),
                    is_work_lost=is_lost,
                    causes_ns=_fill_causes(splits[index], skews[index], is_known=exposed_ns is not None),
                ),
            )


def _fill_causes(split: CauseSplit, skew: CollectiveSkew, *, is_known: bool) -> dict[Cause, int | None]:
    """Return the causes; what waited for other ranks is no zero where nobody knows when those came."""
    unseen = _OTHERS if skew.skew_wait_ns is None else ()
    return {cause: 0 if is_known and cause not in unseen else None for cause in Cause} | split.by_cause


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number


def _cause_ns(row: _Seen, cause: Cause) -> int | None:
    return row.causes_ns[cause]


def read_missing(words: str) -> tuple[MissingInput, ...]:
    """Return what the column ``missing`` has of a row.

    Raises:
        ValueError: it is no such words.
    """
    return tuple(map(MissingInput, words.split(", "))) if words else ()


COLLECTIVES: Final = Table[Iterable["TraceAnalysis"], Place, _Seen](
    name="collectives",
    doc="One row per rank and collective, in order of start. Its exposed and hidden time are shares over its whole "
    "span, also of the part that lies in another step's window.",
    find=_find_collectives,
    keys=(
        Column("rank", "int64", None, "which rank", lambda at: at.rank, least=0, is_needed=True),
        Column(
            "step",
            "Int64",
            None,
            "the step that issued it; if its issue is not in the trace, in which it begins; NA: none, or the trace has "
            "no steps",
            lambda at: at.step,
            least=0,
            is_needed=True,
        ),
    ),
    columns=(
        Column(
            "group",
            "string",
            None,
            "torch's name of the process group; empty: the trace does not say",
            lambda row: row.one.group,
        ),
        Column(
            "axis",
            "string",
            None,
            "the mesh axis of the group: shard, tensor, context, ...; empty: it is none, or not known",
            lambda row: str(row.one.axis or ""),
        ),
        Column("seq", "Int64", None, "its number in that group", lambda row: row.one.seq, least=ANY),
        Column("group_size", "Int64", Unit.COUNT, "ranks of the group", lambda row: row.one.group_size, least=1),
        Column(
            "operation",
            "string",
            None,
            "all_gather, all_reduce, ...; empty: not known",
            lambda row: str(row.one.operation or ""),
            check=lambda word: word and Operation(word),
        ),
        Column(
            "purpose",
            "string",
            None,
            "what it is for: unshard, grad_reduce, tensor, ...",
            lambda row: str(row.one.purpose),
            check=Purpose,
            is_needed=True,
        ),
        Column(
            "region",
            "string",
            None,
            "forward, backward, ...; empty: outside all of them, or not known",
            lambda row: str(row.one.region or ""),
        ),
        Column(
            "owner",
            "string",
            None,
            "FQN of the FSDP unit, bucket of DDP, ...; empty: unattributed",
            lambda row: row.one.owner,
        ),
        Column("size_bytes", "Int64", Unit.BYTES, "what it carries; NA: not known", lambda row: row.one.size_bytes),
        Column(
            "dtype",
            "string",
            None,
            "as the trace spells it; empty: it does not say",
            lambda row: row.one.dtype or "",
        ),
        Column(
            "algorithm",
            "string",
            None,
            "as NCCL's kernel is called by: RING, TREE; empty: its name tells none",
            lambda row: row.one.algorithm,
        ),
        Column(
            "lane",
            "string",
            None,
            "stream or thread that it ran on, as `<process>/<stream or thread>`",
            lambda row: row.one.lane,
        ),
        Column("issue_ns", "Int64", Unit.NS, "when it was issued", lambda row: row.one.issue_ns, clock=TRACE_CLOCK),
        Column(
            "start_ns",
            "Int64",
            Unit.NS,
            "when it began; NA: it was issued and not seen to run",
            lambda row: row.one.start_ns if row.is_seen else None,
            clock=TRACE_CLOCK,
        ),
        Column(
            "end_ns",
            "Int64",
            Unit.NS,
            "when it ended; NA as `start_ns`",
            lambda row: row.one.end_ns if row.is_seen else None,
            clock=TRACE_CLOCK,
        ),
        Column(
            "first_wait_ns",
            "Int64",
            Unit.NS,
            "when the first consumer began to wait for it",
            lambda row: row.one.first_wait_ns,
            clock=TRACE_CLOCK,
        ),
        Column(
            "wait_ns",
            "Int64",
            Unit.NS,
            "how long that consumer was blocked, what it computed meanwhile included; NA: not known",
            lambda row: row.wait_ns,
        ),
        Column(
            "awaited_by",
            "string",
            None,
            "the function under study that waited, where it had a probe; empty: not known",
            lambda row: row.one.awaited_by,
        ),
        Column(
            "skew_wait_ns",
            "Int64",
            Unit.NS,
            "how long it waited for the last rank to begin; NA: not known",
            lambda row: row.skew.skew_wait_ns,
        ),
        Column(
            "last_rank",
            "Int64",
            None,
            "the rank that it waited for, of a send or receive the other end; NA: not known, two came last, or that "
            "rank only handed a delay on",
            lambda row: row.skew.last_rank,
            least=ANY,
        ),
        Column("transfer_ns", "Int64", Unit.NS, "the rest of its span", lambda row: row.skew.transfer_ns),
        Column(
            "algbw",
            "Float64",
            Unit.PER_SECOND,
            "bytes per second over `transfer_ns`",
            lambda row: _known(row.skew.algbw),
        ),
        Column(
            "busbw",
            "Float64",
            Unit.PER_SECOND,
            "`algbw` with the factor of nccl-tests; less than the link's where several of a group run at once",
            lambda row: _known(row.skew.busbw),
        ),
        Column(
            "algbw_at_least",
            "Float64",
            Unit.PER_SECOND,
            "bytes per second over the whole span: what one rank alone tells, a lower bound",
            lambda row: _known(row.least_algbw),
        ),
        Column(
            "busbw_at_least",
            "Float64",
            Unit.PER_SECOND,
            "`algbw_at_least` with the factor of nccl-tests",
            lambda row: _known(row.least_busbw),
        ),
        Column(
            "exposed_ns",
            "Int64",
            Unit.NS,
            "its share of the time in which nothing computed; NA: it was not seen to run, or what computes was not "
            "recorded",
            lambda row: row.exposed_ns,
            better=Better.LOWER,
        ),
        Column(
            "hidden_ns",
            "Int64",
            Unit.NS,
            "its share of the time in which something computed; NA as `exposed_ns`",
            lambda row: row.hidden_ns,
        ),
        Column(
            "cause",
            "string",
            None,
            "of the largest part of `exposed_ns`; empty: nothing is exposed, or not known",
            lambda row: str(row.split.cause or ""),
            check=lambda word: word and Cause(word),
        ),
        *(
            Column(
                f"exposed_{cause}_ns",
                "Int64",
                Unit.NS,
                f"the part of `exposed_ns` that the cause `{cause}` explains; all causes add up to it",
                partial(_cause_ns, cause=cause),
                better=Better.LOWER,
            )
            for cause in Cause
        ),
        Column(
            "missing",
            "string",
            None,
            "what would tell the cause of `exposed_unknown_ns`, by `, `, of most of it first; empty: none is unknown",
            lambda row: ", ".join(order_missing(row.split.parts)),
            check=read_missing,
        ),
        Column(
            "parameters",
            "string",
            None,
            "FQNs that a bucket of DDP or an FSDP unit carries, by `, `; empty: not known",
            lambda row: ", ".join(row.one.parameters),
        ),
    ),
)
