"""What traces say as one JSON document: integer nanoseconds, ratios as fractions, "NaN" where a number is not known."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dtbench.base.columns import Column, Row, Unit
from dtbench.base.docstrings import read_attributes
from dtbench.base.document import (
    COUNT,
    FLAG,
    FLOAT_NS,
    FRACTION,
    NS,
    RATIO,
    TEXT,
    VERSION,
    WHOLE,
    Always,
    ByName,
    Key,
    Many,
    OneOf,
    OrNan,
    OrNull,
    Plain,
    RowOf,
    Schema,
    Shape,
    keys_inside,
    keys_of_columns,
    keys_of_fields,
    make_schema,
)
from dtbench.base.vocabulary import Cause
from dtbench.runs.representative import Doubt, DoubtKind, doubt_traces
from dtbench.traces.account.accounts import WindowAccount
from dtbench.traces.account.overlap_tax import CAVEAT, OverlapTax
from dtbench.traces.account.purpose_times import PurposeTime
from dtbench.traces.causes.exposed_owners import Carried, ExposedOwner
from dtbench.traces.device.clock import DeviceClock
from dtbench.traces.device.streams import MixedStreams
from dtbench.traces.host.correlate import Uncorrelated
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.kinds.unknown import UnknownName
from dtbench.traces.notes.note import say_notes
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.ranks.by_group.host_waits import AwaitedHost
from dtbench.traces.ranks.by_group.link_speed import LinkSpeed
from dtbench.traces.ranks.by_group.slow_group import SlowGroup
from dtbench.traces.ranks.late import LateRank
from dtbench.traces.ranks.stragglers import LateTogether, RankWaiting
from dtbench.traces.rows.collective_table import COLLECTIVES
from dtbench.traces.rows.tables import GAPS, GROUPS, LANES, OVERLAP, PURPOSES
from dtbench.traces.rows.tables import WHOLE as WHOLE_TRACE
from dtbench.traces.time.overlap import Overlap
from dtbench.traces.trace import Unread

FORMAT_VERSION: Final = 1

_PER_SECOND: Final = Plain("number", Unit.PER_SECOND)


@dataclass(frozen=True)
class _Window:
    """A step, or a whole trace."""

    overlap: Overlap
    unattributed_ns: int | None
    purposes: tuple[PurposeTime, ...]
    account: WindowAccount
    step: int | None = None

    @property
    def hidden_fraction(self) -> float | None:
        """Of communication; None where not all of it was seen."""
        return None if self.overlap.is_least else self.overlap.hidden_fraction


def _account_keys(columns: Iterable[Column[Overlap]]) -> tuple[Key[_Window], ...]:
    """Return the columns of an account as keys; whether it is a bound, ``at_least`` says."""
    return keys_inside(keys_of_columns(one for one in columns if one.name != "is_least"), lambda window: window.overlap)


_LAST_KEYS: Final = (
    Key[_Window](
        "hidden_fraction",
        OrNan(FRACTION),
        "of communication, what overlapped with compute; NaN: there was none, or not all of it was seen",
        lambda window: window.hidden_fraction,
    ),
    Key[_Window](
        "exposed_step_fraction",
        OrNan(FRACTION),
        "exposed communication over the window; NaN: not known",
        lambda window: window.overlap.exposed_step_fraction,
    ),
    Key[_Window](
        "at_least",
        FLAG,
        "collectives or kernels were launched in it and not seen to run: times of communication, of what is exposed "
        "and of waits are at least what they say, those of copies and idle time at most",
        lambda window: window.overlap.is_least,
    ),
    Key[_Window](
        "unattributed_ns",
        OrNan(NS),
        "the part of `exposed_comm_ns` that belongs to collectives without an owner; NaN: not known",
        lambda window: window.unattributed_ns,
    ),
    Key[_Window](
        "purposes",
        Many(Shape("Purpose", "What communication was for.", keys_of_columns(PURPOSES.columns))),
        "what the communication was for",
        lambda window: window.purposes,
    ),
    Key[_Window](
        "lanes",
        Many(Shape("Lane", "What one stream or thread did.", keys_of_columns(LANES.columns))),
        "what each stream or thread did",
        lambda window: window.account.lanes,
    ),
    Key[_Window](
        "groups",
        Many(Shape("Group", "Communication of one process group.", keys_of_columns(GROUPS.columns))),
        "communication by process group",
        lambda window: window.account.groups,
    ),
    Key[_Window](
        "gaps",
        OrNan(Shape("Gaps", "Why the stream with most compute was not computing.", keys_of_columns(GAPS.columns))),
        "why the stream with most compute was not computing; NaN: there is no such stream, or copies are lost",
        lambda window: window.account.gaps,
    ),
)

_WHOLE: Final = Shape[_Window](
    "Whole",
    "Where the time of a whole trace went.",
    (*_account_keys(WHOLE_TRACE.columns), *_LAST_KEYS),
)
_STEP: Final = Shape[_Window](
    "Step",
    f"{OVERLAP.doc.partition(', one row')[0]}.",
    (
        Key("step", WHOLE, OVERLAP["step"].doc, lambda window: window.step),
        *_account_keys(OVERLAP.columns),
        *_LAST_KEYS,
    ),
)


def _find_whole(one: TraceAnalysis) -> _Window:
    return _Window(one.whole, one.whole_unattributed_ns, one.whole_purposes, one.accounts.whole)


def _find_steps(one: TraceAnalysis) -> Iterator[_Window]:
    for step, account in zip(one.steps, one.accounts.steps, strict=True):
        yield _Window(step.overlap, step.unattributed_ns, step.purposes, account, step.step)


_TAX: Final = Shape[OverlapTax](
    "OverlapTax",
    "How much slower kernels ran while communication ran: those of one name, launch shape and region seen both ways.",
    (
        Key(
            "ratio", OrNan(RATIO), "how many times longer they took, weighted by runs; NaN: none", lambda tax: tax.ratio
        ),
        Key(
            "tax_ns",
            OrNan(FLOAT_NS),
            "time beyond as many runs alone; negative: faster; NaN: none",
            lambda tax: tax.tax_ns,
        ),
        Key(
            "slower_fraction",
            OrNan(FRACTION),
            "of those runs, the part whose kernel is slower; NaN: there are none",
            lambda tax: tax.slower_fraction,
        ),
        Key("kernels", COUNT, "kernels seen often enough both ways", lambda tax: len(tax.kernels)),
        *keys_of_fields(OverlapTax, unlike_count=COUNT, regionless_count=COUNT),
        Key("caveat", TEXT, "what must be known of it", lambda _tax: CAVEAT),
    ),
)

_LOST: Final = Shape[TraceAnalysis](
    "Lost",
    "What a trace lacks of the work that it shows launched.",
    (
        Key(
            "kernels",
            COUNT,
            "kernels that were launched and not seen to run; a graph, and an operator without its calls, counted once",
            lambda one: one.lost.kernels,
        ),
        Key("collectives", COUNT, "collectives that were issued and not seen to run", lambda one: one.unseen),
        Key("steps", Many(WHOLE), "numbers of the steps that lack some", lambda one: one.lost.steps),
    ),
)

_CLOCK: Final = Shape[DeviceClock](
    "DeviceClock",
    "What shows that the device's times are off against the host's.",
    keys_of_fields(
        DeviceClock,
        early=OrNan(COUNT),
        early_ns=OrNan(NS),
        late=OrNan(COUNT),
        late_ns=OrNan(NS),
        launched=OrNan(COUNT),
        awaited=OrNan(COUNT),
    ),
)

_MIXED: Final = Shape[MixedStreams](
    "MixedStreams",
    "Communication that ran beside other work of its own lane.",
    (
        Key("count", COUNT, "how often", lambda mixed: mixed.count),
        Key("time_ns", NS, "for how long in all", lambda mixed: mixed.time_ns),
    ),
)

_UNREAD: Final = Shape[Unread](
    "Unread",
    "What of a file is in no number.",
    (
        Key("count", COUNT, "events that could not be read", lambda unread: unread.count),
        Key("reasons", ByName(COUNT), "how many of them for each reason, a few words", lambda unread: unread.events),
        *keys_of_fields(Unread, is_truncated=FLAG),
    ),
)

_RANK: Final = Shape[tuple[TraceAnalysis, Unread]](
    "Rank",
    "One rank's trace.",
    (
        Key("rank", WHOLE, "global rank", lambda pair: pair[0].rank),
        Key("path", TEXT, "its file", lambda pair: pair[0].path),
        Key("whole", _WHOLE, "the whole trace", lambda pair: _find_whole(pair[0])),
        Key("steps", Many(_STEP), "each profiled step", lambda pair: _find_steps(pair[0])),
        Key(
            "steps_left_out",
            COUNT,
            "steps outside the window of `--steps`, which are in no number of steps; 0: there is none",
            lambda pair: 0 if pair[0].left is None else pair[0].left.steps,
        ),
        Key(
            "overlap_tax",
            OrNan(_TAX),
            "how much slower kernels ran while communication ran; NaN: nobody can tell",
            lambda pair: pair[0].accounts.overlap_tax,
        ),
        Key("lost", _LOST, "what was launched and is not in the trace", lambda pair: pair[0]),
        Key(
            "device_clock",
            OrNan(_CLOCK),
            "whether the device's times fit the host's; NaN: no launch, and no call that waited, tells",
            lambda pair: None if pair[0].clock.launched is None else pair[0].clock,
        ),
        Key(
            "mixed_streams",
            OrNull(_MIXED),
            "communication that ran beside other work of its own lane, so that no stream is told; null: no more than "
            "clocks may be off",
            lambda pair: pair[0].mixed_streams or None,
        ),
        Key("unread", _UNREAD, "what of the file could not be read", lambda pair: pair[1]),
    ),
)

_OWNER: Final = Shape[ExposedOwner](
    "Owner",
    "Exposed time of one owner's collectives for one cause, summed over ranks and steps.",
    (
        Key("owner", TEXT, "whose; empty: unattributed, the trace does not say", lambda row: row.owner or ""),
        Key(
            "operation", TEXT, "of the collectives; empty: the trace does not say", lambda row: str(row.operation or "")
        ),
        Key("purpose", TEXT, "what they were for: unshard, grad_reduce, tensor, ...", lambda row: str(row.purpose)),
        Key("cause", OneOf(Cause), "why it is exposed", lambda row: row.cause),
        *keys_of_fields(ExposedOwner, exposed_ns=NS, owner_exposed_ns=NS, count=COUNT),
        Key(
            "behind",
            TEXT,
            "for `queued`, whose collective most of it stood behind; empty: another cause",
            lambda row: "" if row.behind is None else row.behind.owner,
        ),
        *keys_of_fields(ExposedOwner, waited_for=OrNan(WHOLE)),
        Key(
            "missing",
            Many(TEXT),
            "for `unknown`, everything that any of them lacked; what most of it lacked first",
            lambda row: map(str, row.missing),
        ),
        *keys_inside(keys_of_fields(Carried, at_most_ns=OrNan(NS), transfer_ns=OrNan(NS)), lambda row: row.carried),
    ),
)

_MEANWHILE: Final = Shape[LateRank](
    "Meanwhile",
    "What one rank did while others waited for it: means over the steps in which they did so long.",
    keys_of_fields(
        LateRank,
        steps=COUNT,
        waited_ns=NS,
        began_late_ns=OrNan(NS),
        name=TEXT,
        name_ns=NS,
        others_ns=NS,
        host_late_ns=OrNan(NS),
        doubt_ns=NS,
        idle_ns=OrNan(NS),
        left_out=COUNT,
        all_steps=COUNT,
        is_device=FLAG,
        beside=Many(WHOLE),
        after_first_ns=OrNan(NS),
    ),
)

_WAITING: Final = Shape[tuple[RankWaiting, LateRank | None]](
    "Waiting",
    "What one rank waited, and was waited for, over all collectives whose skew is known.",
    (
        *keys_inside(
            (
                *keys_of_fields(
                    RankWaiting,
                    rank=WHOLE,
                    collectives=COUNT,
                    last=OrNan(COUNT),
                    comm_ns=NS,
                    skew_wait_ns=OrNan(NS),
                    caused_wait_ns=OrNan(NS),
                    undecided=COUNT,
                ),
                Key(
                    "wait_fraction",
                    OrNan(FRACTION),
                    "part of its communication that is waiting for the last rank; NaN: it has none, or not known",
                    lambda one: one.wait_fraction,
                ),
            ),
            lambda pair: pair[0],
        ),
        Key(
            "meanwhile",
            OrNan(_MEANWHILE),
            "what it did while the others waited for it; NaN: they did not wait long, or not known",
            lambda pair: pair[1],
        ),
    ),
)

_TOGETHER: Final = Shape[LateTogether](
    "LateTogether",
    "Ranks that came last together, so that none of them alone is waited for.",
    keys_of_fields(LateTogether, ranks=Many(WHOLE), collectives=COUNT, caused_wait_ns=NS),
)

_AWAITED_HOST: Final = Shape[AwaitedHost](
    "AwaitedHost",
    "A host that others wait for: that is most of all that these waited.",
    keys_of_fields(AwaitedHost, host=TEXT, ranks=Many(WHOLE), waiting=Many(TEXT), hosts=COUNT, waited_ns=NS),
)

_SLOW_GROUP: Final = Shape[SlowGroup](
    "SlowGroup",
    "Ranks of one host, or one place in the mesh, that compute longer, where being there explains that.",
    keys_of_fields(
        SlowGroup,
        grouping=TEXT,
        label=TEXT,
        ranks=Many(WHOLE),
        groups=COUNT,
        median_ns=FLOAT_NS,
        others_ns=FLOAT_NS,
        share=FRACTION,
    ),
)

_LINK: Final = Shape[LinkSpeed](
    "Link",
    "How fast bytes moved on the process groups of one axis.",
    keys_of_fields(
        LinkSpeed,
        axis=TEXT,
        group=TEXT,
        size=COUNT,
        ranks=COUNT,
        collectives=COUNT,
        left_out=COUNT,
        busbw=_PER_SECOND,
        alone=_PER_SECOND,
        at_once=FRACTION,
    ),
)

_DOUBT: Final = Shape[Doubt](
    "Doubt",
    "One reason why profiled steps may not stand for others; with any, owners and causes are no findings.",
    (
        Key("kind", OneOf(DoubtKind), "which", lambda doubt: doubt.kind),
        Key(
            "values",
            Many(RATIO),
            "its numbers: ratios, step numbers, or ns, as the kind has them",
            lambda doubt: doubt.values,
        ),
        Key("launch", OrNull(WHOLE), "in which launch; null: in all together", lambda doubt: doubt.launch),
    ),
)

_NAME: Final = Shape[tuple[str, int]](
    "UnknownName",
    "A kernel's name that sounds like communication, and that no rule knows: counted as compute.",
    (
        Key("name", TEXT, "as in the trace", lambda pair: pair[0]),
        Key("count", COUNT, "its kernels", lambda pair: pair[1]),
    ),
)

_NAME_ON_LANE: Final = Shape[UnknownName](
    "NameOnCommLane",
    "A kernel's name that no rule knows, on a lane where most of the time is communication.",
    (
        Key("name", TEXT, "as in the trace", lambda one: one.name),
        *keys_of_fields(UnknownName, lane=TEXT, count=COUNT, time_ns=NS),
    ),
)


def _unlinked_key(name: str, doc: str) -> Key[Mapping[str, int]]:
    return Key(name, COUNT, doc, lambda counts: counts[name])


_UNCORRELATED: Final = Shape[Mapping[str, int]](
    "Uncorrelated",
    "Events whose partner was not found, by class, summed over ranks; all are in every account of time.",
    (
        *(_unlinked_key(name, said) for name, said in read_attributes(Uncorrelated).items()),
        _unlinked_key("collective_without_span", "collectives that were issued and of which no work was found"),
    ),
)


def _find_handed_on(traces: TraceSet) -> int | None:
    waiting = traces.over_ranks.waiting
    is_known = waiting.handed_on_ns or not math.isnan(waiting.wait_fraction)
    return waiting.handed_on_ns if is_known else None


def _find_undecided(traces: TraceSet, number: int) -> int | None:
    """Return a number of collectives whose skew is known; None where there are none."""
    return number if traces.over_ranks.waiting.collectives else None


def _find_waiting(traces: TraceSet) -> Iterator[tuple[RankWaiting, LateRank | None]]:
    late = {one.rank: one for one in sorted(traces.late_ranks, key=lambda one: one.waited_ns)}
    return ((one, late.get(one.rank)) for one in traces.over_ranks.waiting.ranks)


_COLLECTIVES: Final = Key[TraceSet](
    "collectives",
    Many(RowOf(COLLECTIVES)),
    "every collective of every rank, with the columns of the table `collectives`",
    lambda traces: COLLECTIVES.find(traces.analyses),
)

_HEAD: Final = Shape[TraceSet](
    "Traces",
    "What the traces of one job say.",
    (
        Key("format_version", Always(FORMAT_VERSION), VERSION, lambda _traces: FORMAT_VERSION),
        Key(
            "world_size",
            OrNan(COUNT),
            "ranks that the job had; NaN: no trace says, or they contradict each other",
            lambda traces: traces.world_size,
        ),
        Key("ranks", Many(_RANK), "each rank's trace", lambda traces: zip(traces.analyses, traces.unread, strict=True)),
        Key("unread", COUNT, "events that could not be read, summed over ranks", lambda traces: traces.unread_events),
        Key("uncorrelated", _UNCORRELATED, "events whose partner was not found", lambda traces: traces.uncorrelated),
        Key(
            "unknown_names",
            Many(_NAME),
            "kernels counted as compute that may be communication, summed over ranks",
            lambda traces: traces.unknown_names,
        ),
        Key(
            "names_on_comm_lanes",
            Many(_NAME_ON_LANE),
            "kernels that no rule knows on lanes where most is communication, longest first",
            lambda traces: traces.names_on_comm_lanes,
        ),
        Key("owners", Many(_OWNER), "whose communication is exposed and why, most first", lambda traces: traces.owners),
        Key(
            "not_compared",
            COUNT,
            "collectives that ranks have in common and that do not tell who waits, clocks aside: not in `waiting`",
            lambda traces: traces.over_ranks.waiting.uncompared,
        ),
        Key(
            "undecided",
            OrNan(COUNT),
            "collectives that every rank tells of, and not for whom ranks waited; NaN: none is compared",
            lambda traces: _find_undecided(traces, traces.over_ranks.waiting.undecided),
        ),
        Key(
            "undecided_ns",
            OrNan(NS),
            "how long ranks waited in these, summed over them: in no rank's `caused_wait_ns`; NaN likewise",
            lambda traces: _find_undecided(traces, traces.over_ranks.waiting.undecided_ns),
        ),
        Key("waiting", Many(_WAITING), "who waits for whom", _find_waiting),
        Key(
            "handed_on_ns",
            OrNan(NS),
            "what ranks waited for those that may only hand on a delay, summed: in no rank's `caused_wait_ns`; NaN: "
            "nothing is known of who waited",
            _find_handed_on,
        ),
        Key(
            "late_together",
            Many(_TOGETHER),
            "ranks that came last together, those first that were waited for longest",
            lambda traces: traces.over_ranks.waiting.together,
        ),
        Key(
            "awaited_host",
            OrNull(_AWAITED_HOST),
            "the host that others wait for longest; null: none waits mostly for one, or it is not known",
            lambda traces: traces.awaited_host,
        ),
        Key(
            "slow_group",
            OrNull(_SLOW_GROUP),
            "ranks that compute longer, and what they have in common; null: nothing that they have explains it",
            lambda traces: traces.slow_group,
        ),
        Key("links", Many(_LINK), "how fast links were, those used longest first", lambda traces: traces.links),
        Key("notes", Many(TEXT), "what a reader of the numbers must know", lambda traces: say_notes(traces.notes)),
        Key(
            "doubts",
            Many(_DOUBT),
            "why profiled steps may not stand for others; empty: nothing speaks against it",
            lambda traces: doubt_traces(traces.analyses),
        ),
    ),
)
_DOCUMENT: Final = Shape[TraceSet](_HEAD.name, _HEAD.doc, (*_HEAD.keys, _COLLECTIVES))

LONG_KEY: Final = _COLLECTIVES.name
"""The last key: its rows are so many that they are best written as they come."""


def document(traces: TraceSet) -> dict[str, object]:
    """Return the whole document."""
    return _DOCUMENT.write(traces)


def document_head(traces: TraceSet) -> dict[str, object]:
    """Return all but the last key, ``LONG_KEY``."""
    return _HEAD.write(traces)


def collective_rows(traces: TraceSet) -> Iterator[Row]:
    """Yield what stands there: every collective of every rank."""
    row = RowOf(COLLECTIVES)
    return (row.write(pair) for pair in COLLECTIVES.find(traces.analyses))


def schema() -> Schema:
    """Return the JSON Schema of the document."""
    return make_schema("dtbench analyze TRACE... --json", _DOCUMENT)
