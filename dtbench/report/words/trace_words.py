"""The words about anyone's traces: the answer in one sentence, the waits, what the reader must know."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final

from dtbench.base.units import (
    NS_PER_S,
    count_things,
    format_bandwidth,
    format_fraction,
    format_ns,
    is_or_are,
    name_ranks,
)
from dtbench.base.vocabulary import Cause, MissingInput, Purpose
from dtbench.report.words.advice import Advice, Loss, advise, is_bubble_least, of_traces
from dtbench.report.words.causes import MISSING_WORDS, describe_exposed_owner, describe_leading, find_leading
from dtbench.report.words.doubts import UNSEEN_BUBBLE, UNSEEN_CONSUMER, doubt_lines, say_doubts
from dtbench.report.words.gains import name_replay
from dtbench.report.words.knobs import describe_traces
from dtbench.report.words.larger_losses import HostWait, describe_copies, describe_host
from dtbench.report.words.rank_groups import describe_awaited_host, describe_slow_group
from dtbench.runs.representative import doubt_traces
from dtbench.traces.account.gaps import GapTime
from dtbench.traces.account.waits import find_device_waits, measure_beside
from dtbench.traces.causes.exposed_owners import ExposedOwner
from dtbench.traces.job.chosen_steps import say_chosen
from dtbench.traces.job.means import MeanPurpose, MeanTime, average, average_purposes
from dtbench.traces.job.trace_set import TraceSet
from dtbench.traces.job.unlike_profilers import describe_late_profilers
from dtbench.traces.known_part import name_part
from dtbench.traces.notes.files import ComesTwice, CutShort, DamagedArchive, LeftOut
from dtbench.traces.notes.job import LoneRank
from dtbench.traces.notes.note import pick_notes, say_notes
from dtbench.traces.rank.analysis import TraceAnalysis
from dtbench.traces.rank.doubt import UntoldComm
from dtbench.traces.ranks.late import describe_late_ranks
from dtbench.traces.ranks.stragglers import Waiting, describe_waiting, sum_up_waiting
from dtbench.traces.time.intervals import Intervals, unite_all
from dtbench.traces.time.overlap import divide

MOST_NAMES = 10
"""Unknown names that are listed."""

MANY_RANKS: Final = 16
"""Of more, one screen says each thing shorter."""

MOST_LETTERS = 200
"""Of a name that is listed; ``--json`` has all."""

_LEFT_OUT: Final = (LeftOut, ComesTwice, CutShort, DamagedArchive)
"""Notes on files of which all or much is in no number: what must be known first."""

_UNTIED: Final = {
    "launched_before": "launched before the trace began",
    "without_id": "that carry no id of their launch",
    "launch_missing": "whose launch is missing",
    "graph_launched": "of captured graphs",
    "ambiguous": "with several launches",
    "without_operator": "launched outside any operator",
}

_NOT_ONE_JOB: Final = (
    "these traces are not all, or not surely, of one job: why time is exposed and who waits is not said"
)

_MUCH_BESIDE: Final = 0.05
"""Part of a wait from which compute beside it is told: copies into buffers on other streams take less."""

_WAITS: Final = (("gradient wait", Purpose.GRAD_REDUCE), ("unshard wait", Purpose.UNSHARD))


def answer_lines(traces: TraceSet) -> tuple[str, ...]:
    """Say what the traces say: the answer, what would change it, who waits for what, and the basis of the numbers.

    Args:
        traces: at least one rank.
    """
    return (*_left_out_lines(traces), *_lines_of_kept(traces, attrgetter("told"), describe_waiting, _wait_lines))


def brief_lines(traces: TraceSet) -> tuple[str, ...]:
    """Say the same in fewer lines: a bound without which time it is, and for whom ranks wait in one sentence.

    Of many ranks also the two waits in one.
    """
    tell_waits = _wait_line if are_very_many(traces) else _wait_lines
    return (*_left_out_lines(traces), *_lines_of_kept(traces, attrgetter("leading"), sum_up_waiting, tell_waits))


def are_very_many(traces: TraceSet) -> bool:
    """Tell whether there are so many ranks that one screen must be short of each."""
    return len(traces.analyses) > MANY_RANKS


def _left_out_lines(traces: TraceSet) -> tuple[str, ...]:
    """Say that traces are left out whose rank has another one: they may be of a job of their own."""
    twice = pick_notes(traces.notes, ComesTwice)
    if not twice:
        return ()
    ranks = name_ranks(sorted({note.rank for note in twice}))
    read = f"{len(twice)} of {len(twice) + len(traces.analyses)} traces {is_or_are(len(twice))} left out"
    several = "several are each" if len({note.rank for note in twice}) > 1 else "several are"
    return (f"{read}, as {several} of {ranks}: perhaps of two jobs; give the traces of one alone (see the notes)",)


def _lines_of_kept(
    traces: TraceSet,
    spell: Callable[[Advice], str],
    tell_waiting: Callable[[Waiting], tuple[str, ...]],
    tell_waits: Callable[[TraceSet, MeanTime], list[str]],
) -> tuple[str, ...]:
    mean = average(traces.analyses)
    if not traces.over_ranks.is_one_job:
        means = f"{_time_words(traces, mean)}{_exposed_words(traces, mean, ())}"
        return (f"{_NOT_ONE_JOB}; see the notes", f"{means}, a mean over all of them", _basis_words(traces, mean))
    doubts = tuple(doubt_traces(traces.analyses))
    owners = () if doubts else traces.owners
    return (
        *_lead_lines(traces, mean, owners),
        *doubt_lines(doubts),
        *map(spell, advise_traces(traces)[:1]),
        *answer_notes(traces),
        *tell_waits(traces, mean),
        *_bubble_lines(traces, mean),
        *tell_waiting(traces.over_ranks.waiting),
        *describe_rank_groups(traces),
        *describe_late_ranks(traces.late_ranks),
        *describe_late_profilers(traces.analyses, traces.over_ranks.waiting, traces.late_ranks),
        _basis_words(traces, mean),
    )


def describe_rank_groups(traces: TraceSet) -> tuple[str, ...]:
    """Say which host others wait for, and whose ranks compute longer by where they are; nothing where none do."""
    per = "per step" if average(traces.analyses).are_steps else "in the trace"
    awaited, slow = traces.awaited_host, traces.slow_group
    return (
        *([] if awaited is None else [describe_awaited_host(awaited)]),
        *([] if slow is None else [describe_slow_group(slow, "computes", per)]),
    )


def answer_notes(traces: TraceSet) -> tuple[str, ...]:
    """Return what the notes say that the answer says, too, so that it is not said again after it."""
    return say_notes(pick_notes(traces.notes, LoneRank))


def _lead_lines(traces: TraceSet, mean: MeanTime, owners: Sequence[ExposedOwner]) -> tuple[str, ...]:
    """Say how long a step takes and what of it is exposed; before that, in a line of its own, a larger loss."""
    time, loss, exposed = _time_words(traces, mean), _loss_words(traces, mean), _exposed_words(traces, mean, owners)
    return (f"{time}{loss}".removesuffix("; "), exposed) if loss else (f"{time}{exposed}",)


def _time_words(traces: TraceSet, mean: MeanTime) -> str:
    if mean.are_steps:
        return f"{name_part(mean.part)}step {format_ns(mean.overlap.step_ns)}, "
    is_cut = any(one.lost.is_cut for one in traces.analyses)
    return f"{'what is left of the trace' if is_cut else 'whole trace'} {format_ns(mean.overlap.step_ns)}, "


def _loss_words(traces: TraceSet, mean: MeanTime) -> str:
    """Say what else the step lost more time to than to communication, where that is known."""
    overlap = mean.overlap
    is_known = None not in (overlap.exposed_copy_ns, overlap.exposed_comm_ns, overlap.step_ns)
    if not is_known or _count_unseen(traces):  # a copy may have run beside what was not seen
        return _host_words(traces, mean)
    copies = describe_copies(
        copy_ns=overlap.exposed_copy_ns or 0,
        exposed_ns=overlap.exposed_comm_ns or 0,
        step_ns=overlap.step_ns or 0,
        of="it",
    )
    return f"{_host_words(traces, mean)}{copies}"


def _host_words(traces: TraceSet, mean: MeanTime) -> str:
    """Say how long the device waits for the host, where that is the larger loss; empty where it is not, or not surely.

    A wait for communication that is not known is no longer than communication; nor is what of it is exposed. Where it
    is not known what was launched, the host was not surely late.
    """
    gaps = [gap for one in traces.analyses for gap in find_gaps(one, are_steps=mean.are_steps)]
    most_ns = mean.overlap.comm_ns
    if not gaps or most_ns is None or _count_unseen(traces):
        return ""
    host_ns, sync_ns, comm_ns = (
        sum(none_ns if (time_ns := getattr(gap, part)) is None else time_ns for gap in gaps) / len(gaps)
        for part, none_ns in (("host_wait_ns", 0), ("host_sync_ns", 0), ("comm_wait_ns", most_ns))
    )
    peers_ns = sum(one.peer_copies.time_ns for one in traces.analyses) / len(gaps)  # which may be communication
    unknown_ns = sum(gap.launch_unknown_ns for gap in gaps) / len(gaps)
    exposed_ns = mean.overlap.exposed_comm_ns
    return describe_host(
        HostWait(host_ns, sync_ns, unknown_ns),
        comm_ns=comm_ns + unknown_ns + peers_ns,
        exposed_ns=most_ns if exposed_ns is None else exposed_ns,
        step_ns=mean.overlap.step_ns or 0,
        of="it",
    )


def find_gaps(one: TraceAnalysis, *, are_steps: bool) -> list[GapTime]:
    """Return the gaps of the steps of which they are known, or of the whole trace."""
    accounts = one.accounts.steps if are_steps else (one.accounts.whole,)
    return [account.gaps for account in accounts if account.gaps is not None]


def _spell_limits(traces: TraceSet) -> str:
    """Say of what a zero of communication holds: of devices, and of kernels whose names are known."""
    where = " on the device" if any(one.timeline.is_device for one in traces.analyses) else ""
    if any(one.peer_copies.count for one in traces.analyses):
        where += ", unless what was copied between devices is"
    count = len(traces.unknown_names)
    if not count:
        return where
    others = f" or {count_things(count - 1, 'other')}" if count > 1 else ""
    return f"{where}, unless `{_shorten(traces.unknown_names[0][0])}`{others} is, which counts as compute"


def _exposed_words(traces: TraceSet, mean: MeanTime, owners: Sequence[ExposedOwner]) -> str:
    overlap = mean.overlap
    if overlap.comm_ns == 0:
        return f"no communication{_spell_limits(traces)}"
    if overlap.comm_ns is None or overlap.exposed_comm_ns is None:
        return _unknown_words(traces, mean)
    if not overlap.exposed_comm_ns:
        return f"no communication exposed: all {format_ns(overlap.comm_ns)} of it overlapped with compute"
    share = format_fraction(overlap.exposed_step_fraction)
    least = "at least " if mean.lost else ""
    said = f"{least}{format_ns(overlap.exposed_comm_ns)} exposed ({least}{share})"
    if not owners:
        return said
    return f"{said}; {describe_leading(owners, mean.windows, describe_exposed_owner)}"


def _unknown_words(traces: TraceSet, mean: MeanTime) -> str:
    """Say what is not known of communication, and why."""
    overlap = mean.overlap
    if overlap.comm_ns is not None:
        least = "at least " if mean.lost else ""
        said = f"{least}{format_ns(overlap.comm_ns)} of communication; how much of it was exposed is not known"
        return f"{said}: {_name_lack(traces)}"
    if _count_unseen(traces):
        return "its communication was issued and not seen to run, so nothing is known of what it hid"
    untold = [(one, one.untold_comm) for one in traces.analyses if one.untold_comm is not None]
    why = _name_untold(*untold[0]) if len(untold) == len(traces.analyses) else _name_lack(traces)
    return f"whether it communicated is not known: {why}"


def _count_unseen(traces: TraceSet) -> int:
    """Count the collectives that were issued and not seen to run: each may have been exposed."""
    return sum(one.unseen for one in traces.analyses)


def _name_lack(traces: TraceSet) -> str:
    """Say why it is not known what hid the communication."""
    if any(one.set_steps is not None for one in traces.analyses):
        return "a clock may have been set while it was recorded"
    if any(one.lost.kernels for one in traces.analyses):
        return "kernels that were launched are not in the trace"
    if any(one.lost.is_cut for one in traces.analyses):
        return "the file was cut, and what it lacks may be of any time"
    if _count_unseen(traces):
        return "collectives were launched that were not seen to run"
    if any(one.lost.absent or one.lost.steps or one.unsure_steps for one in traces.analyses):
        return "of some steps not all was recorded"
    return "no operator of the threads that compute was recorded"


def _name_untold(one: TraceAnalysis, untold: UntoldComm) -> str:
    """Say that a rank of several shows no communication, and which kernel may be it."""
    where = "on the device" if one.timeline.is_device else "in the trace"
    said = f"the job has {untold.ranks} ranks, and none is seen {where}"
    if not untold.names:
        return f"{said}; it was not recorded" + (", or is not known by its kernels' names" * one.timeline.is_device)
    others = f" or {count_things(len(untold.names) - 1, 'other')}" if untold.names[1:] else ""
    return f"{said}, unless `{_shorten(untold.names[0])}`{others} is, which counts as compute"


def advise_traces(traces: TraceSet) -> list[Advice]:
    """Say what would change the losses of all ranks, largest first; nothing where their causes are no finding."""
    if not has_findings(traces):
        return []
    lead = of_traces(find_leading(traces.owners)) if traces.owners else None
    return make_adviser(traces, lead)([of_traces(row) for row in traces.owners])


def has_findings(traces: TraceSet) -> bool:
    """Tell whether causes are findings: traces are surely of one job, and their steps stand for each other."""
    return traces.over_ranks.is_one_job and not any(doubt_traces(traces.analyses))


def say_lost(lost: int) -> list[str]:
    """Say that what was not seen to run is in no row."""
    if not lost:
        return []
    were = "was" if lost == 1 else "were"
    return [f"shares are of what was seen; {count_things(lost, 'collective')} {were} issued and not seen to run"]


def why_not_judged(traces: TraceSet) -> str | None:
    """Say in a clause why no owner is told to have most of what is exposed; None: nothing speaks against it."""
    if not traces.over_ranks.is_one_job:
        return _NOT_ONE_JOB
    said = say_doubts(tuple(doubt_traces(traces.analyses)))
    lost = average(traces.analyses).lost if traces.analyses else 0
    if said is None and lost:
        were = "was" if lost == 1 else "were"
        return f"not judged: {count_things(lost, 'collective')} {were} launched and not seen to run"
    return said


def make_adviser(traces: TraceSet, lead: Loss | None = None) -> Callable[[Sequence[Loss]], list[Advice]]:
    """Return what says what would change some losses, largest first, whether or not they are findings."""
    mean = average(traces.analyses)
    comms_ns = [average([one]).overlap.comm_ns for one in traces.analyses]
    known_ns = [time_ns for time_ns in comms_ns if time_ns is not None]
    comm_ns = max(known_ns) if len(known_ns) == len(comms_ns) else math.nan
    step_ns = math.nan if mean.overlap.step_ns is None else mean.overlap.step_ns
    ran, are_all_seen = describe_traces(traces), not mean.lost

    def say(rows: Sequence[Loss]) -> list[Advice]:
        found = advise(rows, ran, step_ns=step_ns, comm_ns=comm_ns, are_all_seen=are_all_seen, lead=lead)
        return name_replay(found)

    return say


def _wait_lines(traces: TraceSet, mean: MeanTime) -> list[str]:
    """Say how long a consumer stood still, for the two purposes that people ask about, where they occur."""
    found = {row.purpose: row for row in average_purposes(traces.analyses)}
    return [f"{label} {_wait_words(traces, found[purpose], mean)}" for label, purpose in _WAITS if purpose in found]


def _wait_line(traces: TraceSet, mean: MeanTime) -> list[str]:
    said = "; ".join(_wait_lines(traces, mean))
    return [said] if said else []


def _wait_words(traces: TraceSet, row: MeanPurpose, mean: MeanTime) -> str:
    if row.wait_ns is not None:
        least, per = "at least " if mean.lost or row.is_wait_least else "", "step" if mean.are_steps else "trace"
        of_step = "" if row.wait_part else f" ({least}{format_fraction(divide(row.wait_ns, mean.overlap.step_ns))})"
        beside = _beside_words(traces, row.purpose)
        return f"{name_part(row.wait_part)}{least}{format_ns(row.wait_ns)} per {per}{of_step}{beside}"
    if row.is_least and not mean.lost:
        return "n/a: collectives may have been for it of which the traces do not hold who asked for them"
    if row.comm_ns is None and all(one.set_steps is None for one in traces.analyses):
        return "n/a: its collectives were issued and not seen to run"
    if any(one.is_wait_doubtful and one.purpose is row.purpose for rank in traces.analyses for one in rank.collectives):
        return f"n/a: missing: {MISSING_WORDS[MissingInput.STREAM_WAITS]}"
    return f"n/a: {UNSEEN_CONSUMER if mean.overlap.is_decided else _name_lack(traces)}"


def _beside_words(traces: TraceSet, purpose: Purpose) -> str:
    """Say how much of what the main stream waited is no standstill of the device, as its other streams computed."""
    ranks = [one for one in traces.analyses if one.timeline.is_device]
    found = [measure_beside(find_device_waits(one.collectives), purpose, one.timeline.compute) for one in ranks]
    share = divide(sum(beside_ns for _, beside_ns in found), sum(wait_ns for wait_ns, _ in found))
    return f", {format_fraction(share)} of it while other streams computed" if share >= _MUCH_BESIDE else ""


def _bubble_lines(traces: TraceSet, mean: MeanTime) -> list[str]:
    """Say how long a stage of a pipeline waited for its neighbours, as far as several ranks show that."""
    rows = [row for row in traces.owners if row.purpose is Purpose.PIPELINE]
    if not rows:
        return []
    if not traces.over_ranks.partners:
        return ["pipeline bubble n/a: of no send or receive it is known when its other end was there"]
    bubble_ns = sum(row.exposed_ns for row in rows if row.cause is Cause.BUBBLE) / mean.windows
    per = "step" if mean.are_steps else "trace"
    share = format_fraction(divide(bubble_ns, mean.overlap.step_ns))
    least = "at least " if mean.lost or is_bubble_least([of_traces(row) for row in rows]) else ""
    if least and not bubble_ns:
        return [f"pipeline bubble n/a: {UNSEEN_BUBBLE}"]
    return [f"pipeline bubble {least}{format_ns(bubble_ns)} per {per} ({least}{share})"]


def bandwidth_notes(traces: TraceSet) -> list[str]:
    """Say how fast bytes moved at the least, where the other ranks' waiting cannot be told from transfer.

    Bytes over the time in which any ran, over all collectives of a purpose whose size and group are known; ``algbw`` of
    nccl-tests.
    """
    if any(skew.transfer_ns is not None for one in traces.analyses for skew in one.skews):
        return []
    moved_bytes, spans_ns = Counter[Purpose](), Counter[Purpose]()
    for one in traces.analyses:
        spans: dict[Purpose, list[Intervals]] = {}
        for collective in one.collectives:
            is_told = collective.size_bytes and collective.has_ended and (collective.group_size or 2) > 1
            if is_told and collective.span.length_ns:
                moved_bytes[collective.purpose] += collective.size_bytes or 0
                spans.setdefault(collective.purpose, []).append(collective.span)
        spans_ns.update({purpose: unite_all(*own).length_ns for purpose, own in spans.items()})
    bytes_ns = {purpose: (size_bytes, spans_ns[purpose]) for purpose, size_bytes in moved_bytes.items()}
    said = [f"{purpose} {format_bandwidth(size / time * NS_PER_S)}" for purpose, (size, time) in bytes_ns.items()]
    if not said:
        return []
    are_here = traces.world_size == len(traces.analyses)
    is_told = any(skew.skew_wait_ns is not None for one in traces.analyses for skew in one.skews)  # of sends, say
    untold = "waiting for others" if is_told else "how long each waited for others is not known, and"
    what = untold if are_here else "waiting for ranks that are not here"
    return [f"bandwidth (algbw) at least: {', '.join(said)}; {what} counts as transfer"]


def _basis_words(traces: TraceSet, mean: MeanTime) -> str:
    ranks = [one.rank for one in traces.analyses]
    who = name_ranks(ranks)
    size = f" of {traces.world_size}" if traces.world_size is not None else ""
    if not mean.are_steps:
        why = "no step's time is known" if any(one.steps for one in traces.analyses) else "no step is marked"
        return f"{who}{size}; {why}, all numbers are of whole traces"
    spread = ""
    if mean.windows > 1 and mean.step is not None:
        low, high = format_ns(mean.step.quartile1_ns), format_ns(mean.step.quartile3_ns)
        spread = f", median step {format_ns(mean.step.median_ns)}, middle half {low} to {high}"
    what = _count_windows([len(one.steps) for one in traces.analyses], mean.windows)
    left_out = f", without {count_things(mean.left_out, 'step')} not wholly known" if mean.left_out else ""
    cut = sum(one.truncated_step is not None and not _is_known(one, one.truncated_step.step) for one in traces.analyses)
    left_out += f", without {count_things(cut, 'last step')} not all in the trace" if cut else ""
    set_steps = sum(len(one.set_steps or ()) for one in traces.analyses)
    left_out += f", without {count_things(set_steps, 'step')} in which a clock may have been set" if set_steps else ""
    lacking = sorted(set(ranks) - set(mean.ranks))
    absent = f", none of {name_ranks(lacking)}" if lacking else ""
    return f"{who}{size}; {what}{absent}{say_chosen(traces.analyses)}{left_out}{spread}"


def _is_known(one: TraceAnalysis, number: int) -> bool:
    return any(step.step == number and step.overlap.step_ns for step in one.steps)


def _count_windows(steps: Sequence[int], windows: int) -> str:
    """Say over how many steps the means go; a step of two ranks is two of them."""
    if windows == 1:
        return "one step"
    if len(steps) == 1:
        return f"mean of {windows} steps"
    if set(steps) == {windows // len(steps)}:
        each = windows // len(steps)
        return f"mean of {count_things(each, 'step')} of each"
    return f"mean of {windows} steps, all ranks' together"


def remark_lines(traces: TraceSet) -> tuple[str, ...]:
    """Say what was left out, what no number counts, and what may be counted wrongly; not what the answer says."""
    left_out = [note for note in traces.notes if isinstance(note, _LEFT_OUT)]
    lines = [*say_notes(left_out)]
    for one, unread in zip(traces.analyses, traces.unread, strict=True):
        if unread.count:
            reasons = ", ".join(f"{count} {reason}" for reason, count in unread.events.items())
            lines.append(
                f"{one.path}: {count_things(unread.count, 'event')} could not be read "
                f"and {is_or_are(unread.count)} in no number ({reasons})"
            )
    lines += [
        f"counted as compute, may be communication ({count_things(count, 'time')}): {_shorten(name)}"
        for name, count in traces.unknown_names[:MOST_NAMES]
    ]
    lines += [
        f"counted as compute, on a lane of communication ({format_ns(name.time_ns)}, "
        f"{count_things(name.count, 'time')}): {_shorten(name.name)}"
        for name in traces.names_on_comm_lanes[:MOST_NAMES]
    ]
    untied = {_UNTIED[reason]: count for reason, count in traces.uncorrelated.items() if count and reason in _UNTIED}
    if untied:
        reasons = ", ".join(f"{count} {reason}" for reason, count in untied.items())
        lines.append(f"events that are tied to no operator, and in every number all the same: {reasons}")
    unseen = traces.uncorrelated.get("collective_without_span", 0)
    if unseen:
        lines.append(f"collectives that were issued and not seen to run, so in no time: {unseen}")
    rest = len(traces.unknown_names) - MOST_NAMES
    if rest > 0:
        lines.append(f"and {rest} more such names: see --json")
    return (*lines, *say_notes(note for note in traces.notes if not isinstance(note, (*_LEFT_OUT, LoneRank))))


def _shorten(name: str) -> str:
    return name if len(name) <= MOST_LETTERS else f"{name[:MOST_LETTERS]}... ({len(name)} letters)"
