"""From one trace to its account: steps, whole trace, purposes and collectives of one rank.

::

    Trace -> device_contents.py or cpu_contents.py -> Contents -> accounts by step, purpose, lane, group and gap
                                                               -> RankTimeline -> ranks/, causes/ (see explain.py)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dtbench.base.ranges import REGION_PREFIX
from dtbench.base.vocabulary import Axis, Kind, Purpose
from dtbench.traces.account.accounts import Accounts, make_accounts
from dtbench.traces.account.group_times import account_groups, describe_groups
from dtbench.traces.account.host_work import HostStep, find_host_work
from dtbench.traces.account.probe_times import ProbeTime, time_probes
from dtbench.traces.account.purpose_times import PurposeTime, sum_unattributed
from dtbench.traces.causes.split import CauseSplit
from dtbench.traces.causes.untold import Prepared
from dtbench.traces.device.clock import DeviceClock
from dtbench.traces.device.kinds import PeerCopies
from dtbench.traces.device.lost_kernels import Lost
from dtbench.traces.device.streams import MixedStreams
from dtbench.traces.host.correlate import Uncorrelated
from dtbench.traces.host.named_steps import find_likely_range
from dtbench.traces.host.steps import TruncatedStep, count_repeated, find_truncated_step
from dtbench.traces.kinds.categories import DEVICE_CATEGORIES, KERNEL
from dtbench.traces.kinds.kernels import make_table
from dtbench.traces.kinds.unknown import UnknownName, count_unknown_words
from dtbench.traces.notes.note import OfRanks
from dtbench.traces.rank.by_purpose import PurposeSources
from dtbench.traces.rank.contents import Contents
from dtbench.traces.rank.cpu_contents import find_cpu_contents
from dtbench.traces.rank.device_contents import find_device_contents
from dtbench.traces.rank.doubt import Losses, UntoldComm, count_lost, take_untold
from dtbench.traces.rank.understood import find_left_out, is_of_device
from dtbench.traces.rank.unsure import Before
from dtbench.traces.ranks.skew import CollectiveSkew
from dtbench.traces.reader.header import PROFILERS
from dtbench.traces.time.overlap import Overlap, measure_overlaps
from dtbench.traces.time.shares import Shares, share_time
from dtbench.traces.timeline import RankTimeline
from dtbench.traces.trace import Trace
from dtbench.traces.who.buckets import name_buckets
from dtbench.traces.who.collectives import Collective, assign_steps
from dtbench.traces.who.facts import RankFacts
from dtbench.traces.who.owners import name_askers
from dtbench.traces.who.payload import leave_impossible_sizes
from dtbench.traces.who.strategy import TraceMarks, find_marks
from dtbench.traces.who.unranged import find_unasked, find_unranged
from dtbench.traces.who.untold import Untold, find_unstaged, find_untold

if TYPE_CHECKING:
    from dtbench.traces.kinds.patterns import KernelPattern

VISIBLY: Final = 0.01
"""Part of a step by which another begin, or length, of it is worth saying."""


@dataclass(frozen=True)
class StepAccount:
    """One step's account and what its communication was for.

    Attributes:
        unattributed_ns: the part of ``exposed_comm_ns`` that belongs to collectives without an owner; None: not known.
        probes: functions under study that ran in it, by label.
        lost: collectives that it issued and that were not seen to run: what communication took is at least this.
        untold: what collectives of it of which it is not known what they were for may have been for, and those for
            which there was communication in the time before that may be of it.
        unsure_ns: by how much earlier it may begin, as launches or copies are lost.
        unsure_end_ns: by how much earlier it may end, likewise.
    """

    step: int
    overlap: Overlap
    purposes: tuple[PurposeTime, ...]
    unattributed_ns: int | None = 0
    probes: Mapping[str, ProbeTime] = field(default_factory=dict)
    lost: int = 0
    untold: frozenset[Purpose] = frozenset()
    unsure_ns: int = 0
    unsure_end_ns: int = 0

    @property
    def is_unsure(self) -> bool:
        """Whether its length is not known, as begin or end is not; what is lost alike at both leaves it as it is."""
        return abs(self.unsure_end_ns - self.unsure_ns) > VISIBLY * (self.overlap.step_ns or 0)


@dataclass(frozen=True)
class LeftSteps:
    """Steps that nobody asked for, see ``job/chosen_steps.py``.

    Attributes:
        steps: how many.
        lost: collectives that they issued and that were not seen to run.
        collectives: places among the collectives of those that they issued.
        absent: first and last number of each run of steps that were asked for and lie before all of its, or beyond.
    """

    steps: int
    lost: int
    collectives: frozenset[int]
    absent: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class TraceAnalysis:
    """What one trace says.

    Attributes:
        path: the trace's file.
        timeline: rank, collectives and their shares, compute: what questions over ranks need.
        whole: first start to last end of the spans that have a kind; never a step.
        whole_purposes: of the whole trace.
        steps: in order of time; empty for a trace without ``ProfilerStep`` ranges.
        unread: events that could not be read.
        unknown_names: kernels counted as compute that sound like communication.
        accounts: by lane, process group and gap of the main compute lane.
        uncorrelated: device events that are tied to no single operator, by reason; all are in the account.
        whole_unattributed_ns: exposed time of collectives without an owner, over the whole trace.
        names_on_comm_lanes: kernels counted as compute that no rule knows, on lanes where most is communication.
        unknown_words: what dtbench's own ranges say and this version cannot read, and how often.
        skews: each collective against the other ranks' of its group; empty until ``explain.py`` compared them.
        splits: each collective's exposed time by cause; likewise.
        notes: what of the trace is in no number; of no rank yet.
        marks: which strategy made it, as far as the trace shows.
        host_steps: what its host did in each step, in few spans.
        repeated_steps: ranges whose step's number another has before them; what is in them counts to the step before,
            or, where steps end with their ranges, to none.
        lost: kernels that were launched and are not in the trace, and the steps that therefore have no account.
        clock: whether its device's times fit its host's; where they do not, no cause rests on both.
        mixed_streams: what cannot have run on one stream and lies on one lane; with any, no cause rests on streams.
        peer_copies: its copies between devices, which may be communication.
        used_patterns: the user's patterns that decide what any of its kernels is.
        truncated_step: a last step on a device that is not all in the trace; None: none is known to be.
        set_steps: numbers of the steps in which a clock was, or may have been, set, as other ranks show, and of which
            therefore no time is known, nor of the whole trace; None: none was.
        unsure_steps: numbers of the steps of which no time is known, as launches or copies are lost around their
            begin or end.
        machine: what the trace tells of the software that drives devices, by name; and ``kinds of devices``: what
            those are called on which something ran.
        purpose_sources: from which purposes are accounted for anew.
        untold: collectives of which it is not known what they were for, with what they may be for.
        lacking: by number of step, how many collectives, sends and receives it ran with other ranks, as their traces
            show, and holds nothing of.
        left: its steps outside the window that was asked for, which are in ``steps`` no more; None: none was.
        likely_range: of a trace without steps, the name of ranges that may mark them, and how many there are.
        impossible_sizes: collectives whose size, as the trace says it, cannot have been moved in their time.
        untold_comm: that it shows no communication though its job has several ranks; None: it shows some, or its job
            has one rank, or dtbench's own ranges, which every collective of it has, show none either.
    """

    path: str
    timeline: RankTimeline
    whole: Overlap
    whole_purposes: tuple[PurposeTime, ...]
    steps: tuple[StepAccount, ...]
    unread: int
    unknown_names: tuple[tuple[str, int], ...]
    accounts: Accounts
    purpose_sources: PurposeSources
    uncorrelated: Uncorrelated = field(default_factory=Uncorrelated)
    whole_unattributed_ns: int | None = 0
    names_on_comm_lanes: tuple[UnknownName, ...] = ()
    unknown_words: tuple[tuple[str, int], ...] = ()
    skews: tuple[CollectiveSkew, ...] = ()
    splits: tuple[CauseSplit, ...] = ()
    notes: tuple[OfRanks, ...] = ()
    marks: TraceMarks = field(default_factory=TraceMarks)
    host_steps: tuple[HostStep, ...] = ()
    repeated_steps: int = 0
    lost: Lost = field(default_factory=Lost)
    clock: DeviceClock = field(default_factory=DeviceClock)
    mixed_streams: MixedStreams = field(default_factory=MixedStreams)
    peer_copies: PeerCopies = field(default_factory=PeerCopies)
    used_patterns: frozenset[str] = frozenset()
    truncated_step: TruncatedStep | None = None
    set_steps: tuple[int, ...] | None = None
    unsure_steps: tuple[int, ...] = ()
    machine: Mapping[str, str] = field(default_factory=dict)
    untold: Untold = field(default_factory=dict)
    lacking: Mapping[int, int] = field(default_factory=dict)
    left: LeftSteps | None = None
    likely_range: tuple[str, int] | None = None
    impossible_sizes: int = 0
    untold_comm: UntoldComm | None = None

    @property
    def rank(self) -> int:
        """As told, else as the trace says, else 0."""
        return self.timeline.rank

    @property
    def collectives(self) -> tuple[Collective, ...]:
        """All, those without a span too."""
        return self.timeline.collectives

    @property
    def step_of(self) -> tuple[int | None, ...]:
        """Index into ``steps`` of the one that issued each collective; None: issued outside all."""
        return self.timeline.step_of

    @property
    def unseen(self) -> int:
        """Count the collectives that were issued, here or as peers show, and not seen to run: each may be exposed."""
        return self.unmatched + len(self.timeline.unseen) + sum(self.lacking.values())

    @property
    def exposed_ns(self) -> tuple[int, ...]:
        """Each collective's share of exposed time, over the whole trace."""
        return self.timeline.exposed_ns

    @property
    def stepped_exposed_ns(self) -> tuple[int, ...]:
        """The same inside the windows of steps: adds up to what the steps' accounts say."""
        return self.timeline.stepped_exposed_ns

    @property
    def unmatched(self) -> int:
        """Count the collectives that were issued and have no span; those of which it is only not told have one."""
        return sum(one.is_span_missing - (one.is_issue_untold and one.is_seen) for one in self.collectives)

    @property
    def untold_spans(self) -> int:
        """Count the spans that are of one of several collectives, of which others have none."""
        return sum(one.is_issue_untold for one in self.collectives)


def analyze_trace(
    trace: Trace,
    *,
    rank: int | None = None,
    process_groups: Mapping[str, Axis | None] | None = None,
    patterns: Sequence["KernelPattern"] = (),
    facts: RankFacts | None = None,
) -> TraceAnalysis:
    """Account for a trace.

    Args:
        trace: as read.
        rank: where the trace does not know it.
        process_groups: mesh axis by torch's name of the group, where somebody knows.
        patterns: a user's own kernels, asked before the table of kernels.
        facts: what the rank's record knows beside; None: there is no record.

    Raises:
        TraceError: nothing in the trace computes, copies or communicates, or what ran on a device is not understood.
    """
    contents = (
        find_device_contents(trace, process_groups or {}, make_table(patterns))
        if is_of_device(trace)
        else find_cpu_contents(trace, facts)
    )
    windows = [step.window for step in contents.steps]
    step_of = assign_steps(contents.collectives, [step.host for step in contents.steps], windows)
    collectives = name_askers(name_buckets(trace, contents.collectives, step_of))
    if facts is not None:
        collectives = tuple(facts.complete(collective) for collective in collectives)
    sized = sum(one.size_bytes is not None for one in collectives)
    collectives = leave_impossible_sizes(collectives)
    shares = share_time(
        [collective.span for collective in collectives],
        contents.kinds[Kind.COMPUTE],
        windows,
        contents.recorded,
    )
    known_rank = next((known for known in (rank, trace.rank) if known is not None), 0)
    timeline = _make_timeline(
        trace, contents, contents.prepare(collectives), step_of=step_of, shares=shares, rank=known_rank
    )
    if facts is not None and facts.host is not None:
        timeline = replace(timeline, host=facts.host, kernel=facts.kernel)
    if not timeline.fits_host:  # nor does it another device's of the same host
        timeline = replace(timeline, host=None, kernel=None)
    return replace(
        _account(trace, contents, timeline, shares),
        machine={**trace.machine, **_tell_stacks(trace), **_name_devices(trace)},
        marks=find_marks(trace, timeline.collectives),
        host_steps=find_host_work(trace, contents.steps),
        truncated_step=find_truncated_step(contents.steps) if contents.is_device else None,
        likely_range=None if contents.steps else find_likely_range(trace),
        impossible_sizes=sized - sum(one.size_bytes is not None for one in collectives),
        used_patterns=make_table(patterns).find_used(_name_kernels(trace)) if patterns else frozenset(),
    )


def _name_devices(trace: Trace) -> dict[str, str]:
    """Return the kinds of the devices on which something ran, each once; of those that the process merely saw, none.

    Where what ran is on none of the devices that are listed, but these are all of one kind, it is that kind.
    """
    used = {trace.lanes[lane][0] for lane in set(trace.lane[trace.is_one_of(DEVICE_CATEGORIES)].tolist())}
    seen = {*trace.devices.values()}
    kinds = {name for device, name in trace.devices.items() if device in used} or (seen if len(seen) == 1 else set())
    return {"kinds of devices": ", ".join(sorted(kinds))} if used and kinds else {}


def _tell_stacks(trace: Trace) -> dict[str, str]:
    """Return whether Python's calls were recorded, as far as the events show more than was said.

    Who asks for a trace on demand sets options of which ``torch.profiler`` does not know.
    """
    name = f"{PROFILERS}with_stack"
    if "python_function" in trace.categories:
        return {name: "on"}
    return {} if name in trace.machine or "cpu_op" not in trace.categories else {name: "off"}


def _name_kernels(trace: Trace) -> list[str]:
    names = np.unique(trace.name[trace.is_one_of((KERNEL,))])
    return [trace.names[name] for name in names.tolist()]


def _make_timeline(
    trace: Trace,
    contents: Contents,
    prepared: Prepared,
    *,
    step_of: Sequence[int | None],
    shares: Shares,
    rank: int,
) -> RankTimeline:
    exposed_ns, hidden_ns, undecided_ns = (tuple(total.tolist()) for total in shares.totals())
    return RankTimeline(
        rank=rank,
        is_device=contents.is_device,
        collectives=prepared.collectives,
        step_of=tuple(step_of),
        exposed_ns=exposed_ns,
        stepped_exposed_ns=(),
        hidden_ns=hidden_ns,
        undecided_ns=undecided_ns,
        compute=contents.kinds[Kind.COMPUTE],
        compute_starts_ns=contents.compute_starts_ns,
        compute_launches_ns=contents.compute_launches_ns,
        regions=contents.regions,
        step_numbers=tuple(step.number for step in contents.steps),
        steps=tuple(step.window for step in contents.steps),
        path=trace.path,
        world_size=trace.world_size,
        host=trace.host,
        said_rank=trace.rank,
        base_ns=trace.base_ns,
        unseen=contents.unseen,
        recorded=contents.recorded,
        fits_host=not contents.clock.is_off,
        tells_streams=not contents.mixed_streams,
        ways=prepared.ways,
    )


def _account(trace: Trace, contents: Contents, timeline: RankTimeline, shares: Shares) -> TraceAnalysis:
    windows = [*timeline.steps, contents.whole]
    collectives, step_of = timeline.collectives, timeline.step_of
    untold_comm = _find_untold_comm(trace, contents, timeline)
    losses = replace(_find_losses(contents, timeline), is_comm_untold=untold_comm is not None)
    overlaps = losses.doubt_overlaps(measure_overlaps(windows, contents.kinds, contents.recorded))
    is_decided = [one.is_decided for one in overlaps[:-1]]
    stepped_ns = tuple(shares.stepped_exposed_ns(is_decided).tolist())
    timeline = replace(timeline, stepped_exposed_ns=stepped_ns, known_steps=tuple(is_decided))
    sources = PurposeSources(
        step_of=step_of,
        shares=shares,
        windows=tuple(windows),
        is_lossy=tuple(map(bool, losses.counts)),
        are_kernels_lost=losses.are_kernels_lost,
        are_copies_lost=losses.are_copies_lost,
        compute=timeline.compute,
        waits=None if contents.is_device else contents.waits,
        before=losses.before,
    )
    purposes = sources.account(collectives)
    *unattributed_ns, whole_ns = losses.doubt_times(_sum_unattributed(collectives, shares))
    groups = losses.doubt_groups(account_groups(collectives, step_of, shares, describe_groups(trace)))
    unwatched = [
        count + any(row.wait_ns is None for row in rows) for count, rows in zip(losses.counts, purposes, strict=True)
    ]
    probes = time_probes(trace, [step.host for step in contents.steps], timeline.compute)
    untold = find_unranged(collectives, step_of, trace.names) | find_untold(collectives, timeline.regions)
    untold |= find_unstaged(collectives, trace.names)
    timeline = replace(timeline, unasked=find_unasked(collectives, step_of, untold))
    if untold:
        purposes = sources.account(collectives, untold)
    return TraceAnalysis(
        path=trace.path,
        timeline=timeline,
        whole=overlaps[-1],
        whole_purposes=purposes[-1],
        steps=tuple(
            StepAccount(step.number, *of_step)
            for step, *of_step in zip(
                contents.steps,
                overlaps[:-1],
                purposes[:-1],
                unattributed_ns,
                probes,
                losses.unseen[:-1],
                sources.place(collectives, untold),
                [step.unsure_ns for step in contents.steps],
                [step.unsure_end_ns for step in contents.steps],
                strict=True,
            )
        ),
        unread=trace.unread.count,
        unknown_names=contents.unknown_names,
        accounts=make_accounts(
            replace(contents.sources, lost=losses.may_be_more, lost_copies=losses.are_copies_lost),
            timeline.steps,
            contents.whole,
            groups=groups,
            unwatched=unwatched,
            doubtful=[index for index, one in enumerate(collectives) if one.is_wait_doubtful],
        ),
        uncorrelated=contents.uncorrelated,
        whole_unattributed_ns=whole_ns,
        names_on_comm_lanes=contents.names_on_comm_lanes,
        notes=find_left_out(trace),
        lost=contents.lost,
        clock=contents.clock,
        mixed_streams=contents.mixed_streams,
        peer_copies=contents.peer_copies,
        unknown_words=count_unknown_words(trace),
        repeated_steps=count_repeated(trace),
        purpose_sources=sources,
        untold=untold,
        untold_comm=untold_comm,
    )


def _find_untold_comm(trace: Trace, contents: Contents, timeline: RankTimeline) -> UntoldComm | None:
    """Tell whether no communication at all is seen of a rank of several; one that was launched is lost, not untold."""
    is_shown = timeline.collectives or timeline.unseen or contents.kinds[Kind.COMM].length_ns
    is_own = any(name.startswith(REGION_PREFIX) for name in trace.names)
    if is_shown or is_own or (timeline.world_size or 1) < 2:
        return None
    sounding = [name for name, _ in contents.unknown_names]
    return UntoldComm(timeline.world_size or 1, tuple(dict.fromkeys((*sounding, *contents.names_apart))))


def _find_losses(contents: Contents, timeline: RankTimeline) -> Losses:
    lost, collectives, step_of = contents.lost, timeline.collectives, timeline.step_of
    may_be_lost = count_lost(collectives, step_of, timeline.unseen, contents.steps)
    return Losses(
        may_be_lost=tuple(may_be_lost),
        unseen=tuple(take_untold(collectives, step_of, may_be_lost)),
        are_kernels_lost=(*(step.number in lost.steps for step in contents.steps), lost.recorded is not None),
        are_copies_lost=(*(step.number in lost.copy_steps for step in contents.steps), lost.copies > 0),
        before=Before.of(contents.steps, contents.kinds, contents.recorded),
    )


def _sum_unattributed(collectives: Sequence[Collective], shares: Shares) -> list[int | None]:
    """Return the exposed time of collectives without an owner: of each step and, last, of the whole trace."""
    of_parts = sum_unattributed(collectives, shares)
    whole_ns = None if None in of_parts else sum(time_ns or 0 for time_ns in of_parts)
    return [*of_parts[:-1], whole_ns]
