"""What one rank's trace does not tell, or not surely: kernels and launches that are lost, steps cut, names shared."""

import shlex
from dataclasses import dataclass
from typing import Final

from dtbench.base.units import NS_PER_S, count_things, format_bandwidth, format_bytes, format_ns, is_or_are, name_steps
from dtbench.base.vocabulary import Purpose
from dtbench.traces.notes.note import OfRanks

_MOST_RUNS: Final = 5
_MOST_NAMES: Final = 4
_MOST_LETTERS: Final = 80  # of a name of a kernel


def _shorten(name: str) -> str:
    return name if len(name) <= _MOST_LETTERS else f"{name[:_MOST_LETTERS]}..."


@dataclass(frozen=True)
class SpansMissing(OfRanks):
    """Collectives that were issued and whose spans were not found: ``count`` of ``collectives``.

    Attributes:
        untold: spans of which it is not told whose they are, as they and those that were not found are alike.
    """

    count: int
    collectives: int
    untold: int = 0

    def _words(self) -> str:
        have = "has no span; its" if self.count == 1 else "have no span; their"
        said = f"{self.count} of {count_things(self.collectives, 'collective')} {have} time is missing"
        if not self.untold:
            return said
        are = "it is one" if self.count == 1 else f"they are {self.count}"
        alike = f"{are} of {self.count + self.untold} alike, and it is not told which"
        return f"{said}; {alike}, so that what the others took has no owner and no cause"


@dataclass(frozen=True)
class NotSeenToRun(OfRanks):
    """Collectives that were launched and whose kernels the trace lacks."""

    collectives: int

    def _words(self) -> str:
        were = "was" if self.collectives == 1 else "were"
        so = "so communication and what is exposed there are 'at least' or n/a"
        return f"{count_things(self.collectives, 'collective')} {were} launched and not seen to run, {so}"


@dataclass(frozen=True)
class ShownElsewhere(OfRanks):
    """Collectives, sends and receives that other ranks ran with this one, and that its trace lacks."""

    collectives: int
    steps: tuple[int, ...]

    def _words(self) -> str:
        are = "is" if self.collectives == 1 else "are"
        so = "so communication and what is exposed there are 'at least' or n/a"
        return (
            f"{count_things(self.collectives, 'collective')} of {name_steps(self.steps)} that other ranks ran with it"
            f" {are} not in its trace, {so}"
        )


@dataclass(frozen=True)
class SizesImpossible(OfRanks):
    """Collectives whose sizes are not believed: ``count`` of ``collectives``.

    Attributes:
        most_per_ns: bytes that none moves in a nanosecond.
    """

    count: int
    collectives: int
    most_per_ns: int

    def _words(self) -> str:
        what, are, it = ("the size", "is", "it") if self.count == 1 else ("the sizes", "are", "each")
        most = format_bandwidth(self.most_per_ns * NS_PER_S)
        return (
            f"{what} of {self.count} of {count_things(self.collectives, 'collective')} {are} not believed, and n/a:"
            f" {it} would have moved more than {most}, which no link and no device's memory does"
        )


@dataclass(frozen=True)
class CommunicationUntold(OfRanks):
    """Ranks of a job of several of which no communication is seen.

    Attributes:
        of_ranks: how many the job has.
        is_device: their work ran on a device.
        names: kernels that may be communication, longest first.
    """

    of_ranks: int
    is_device: bool
    names: tuple[str, ...]

    def _words(self) -> str:
        none = f"no communication is seen {self._where}, though the job has {self.of_ranks} ranks"
        why = "it was not recorded" + (", or is not known by its kernels' names" if self.is_device else "")
        return f"{none}: {why}, so communication and what is exposed are n/a{self._may_be}"

    @property
    def _where(self) -> str:
        devices = "its device" if self._is_one else "their devices"
        return f"on {devices}" if self.is_device else "in its trace" if self._is_one else "in their traces"

    @property
    def _may_be(self) -> str:
        if not self.names:
            return ""
        more = len(self.names) - _MOST_NAMES
        rest = f" and {more} more" if more > 0 else ""
        named = ", ".join(f"`{_shorten(name)}`" for name in self.names[:_MOST_NAMES])
        return (
            "; no rule knows these kernels, which sound like it or never ran on the stream with most compute, the "
            f"longest first: {named}{rest} (a file for `--patterns` says what they are)"
        )


@dataclass(frozen=True)
class CopiedBetweenDevices(OfRanks):
    """Copies between devices, which may be communication."""

    copies: int
    time_ns: int

    def _words(self) -> str:
        times = "once" if self.copies == 1 else f"{self.copies} times"
        took = format_ns(self.time_ns)
        return f"copied between devices {times}, for {took}: the trace does not tell whether that is communication"


@dataclass(frozen=True)
class _SharedNames(OfRanks):
    """Names of owners that several bear, as their sizes show.

    Attributes:
        sizes_bytes: by name, rising.
    """

    sizes_bytes: tuple[tuple[str, tuple[int, ...]], ...]

    def _name(self) -> str:
        named = [f"{name}: {' and '.join(map(format_bytes, sizes))}" for name, sizes in self.sizes_bytes]
        more = [f"and {len(named) - _MOST_NAMES} more names"] if len(named) > _MOST_NAMES else []
        return "; ".join([*named[:_MOST_NAMES], *more])


class UnitsShareName(_SharedNames):
    """Several FSDP units that bear one name."""

    def _words(self) -> str:
        return (
            f"several FSDP units bear one name, as the sizes of their gathers show ({self._name()}): what is said of"
            " such an owner is of all of them; are there several models, each sharded for itself?"
        )


class BucketsShareName(_SharedNames):
    """Several DDP buckets that bear one name."""

    def _words(self) -> str:
        return (
            f"several DDP buckets bear one name, as their sizes in one step show ({self._name()}): what is said of"
            " such an owner is of all of them; are there several models, each with buckets of its own?"
        )


@dataclass(frozen=True)
class UnevenBuckets(OfRanks):
    """Steps that reduced fewer or more of DDP's buckets than the ``usual`` number."""

    steps: tuple[int, ...]
    usual: int

    def _words(self) -> str:
        than = f"than the {self.usual} of other steps: a number may stand for another bucket there"
        return f"{name_steps(self.steps)} reduced fewer or more buckets {than}"


@dataclass(frozen=True)
class ShiftedBuckets(OfRanks):
    """Steps in which an all-reduce whose launch is lost ran before DDP's buckets, and is counted among them."""

    steps: tuple[int, ...]

    def _words(self) -> str:
        return (
            f"in {name_steps(self.steps)} all-reduces whose launch is not in the trace ran before some of DDP's"
            " buckets, and are counted among them: if one was none, the numbers of those behind it are too high there"
        )


@dataclass(frozen=True)
class UnknownPurposes(OfRanks):
    """Collectives of which it is not in the trace what they were for.

    Attributes:
        collectives: how many.
        time_ns: when any of them ran.
        is_launch_lost: their launch is not there; False: who asked for them is not.
        may_be: for what they may have been.
    """

    collectives: int
    time_ns: int
    is_launch_lost: bool
    may_be: frozenset[Purpose]

    def _words(self) -> str:
        what = "the launch of" if self.is_launch_lost else "who asked for"
        they_were = "it was" if self.collectives == 1 else "they were"
        return (
            f"{what} {count_things(self.collectives, 'collective')}, {format_ns(self.time_ns)}, is not in the trace,"
            f" nor what {they_were} for: of {', '.join(sorted(self.may_be))} there may be more than is said"
        )


@dataclass(frozen=True)
class _Streams(OfRanks):
    """Communication that ran beside other work of its own lane.

    Attributes:
        count: how many collectives did, with the compute or the collective beside them.
        time_ns: for how long in all.
    """

    count: int
    time_ns: int

    def _ran_beside(self) -> str:
        ran = "a collective ran beside other work of its own stream"
        return f"{count_things(self.count, 'time')} {ran}, for {format_ns(self.time_ns)} in all"


class StreamsMixed(_Streams):
    """So long that the lane is no stream."""

    def _words(self) -> str:
        return (
            f"{self._ran_beside()}, which no stream does: the trace does not tell streams apart (tools "
            "that merge traces may give all of them one number), so who waited for what and most causes are not known"
        )


class StreamsPerhapsMixed(_Streams):
    """So short that kernels that are launched early may be why."""

    def _words(self) -> str:
        return (
            f"{self._ran_beside()}, which is too short to tell whether the trace tells streams apart: if it does not "
            "(tools that merge traces may give all of them one number), who waited for what, and causes, are not so"
        )


@dataclass(frozen=True)
class DeviceClockOff(OfRanks):
    """A device's clock that is off its host's.

    Attributes:
        events: on the device, whose launch is known.
        early: of these, how many begin before the call that launched them, and ``early_ns``, by how much at most.
        late: how many end after a call that waited for them had returned; likewise.
    """

    events: int
    early: int
    early_ns: int
    late: int
    late_ns: int

    def _words(self) -> str:
        shown = [
            f"{count} of {count_things(self.events, 'event')} on the device {what}, by up to {format_ns(time_ns)}"
            for count, time_ns, what in (
                (self.early, self.early_ns, "begin before the call that launched them"),
                (self.late, self.late_ns, "end after a call that waited for them had returned"),
            )
            if count
        ]
        why = "so its clock is off the host's by at least as much"
        return f"{' and '.join(shown)}, {why}: who waited for what, how late the host was and most causes are not known"


@dataclass(frozen=True)
class StepsSkipped(OfRanks):
    """Steps between others whose ranges are not there, as (first, last); ``untold``: steps whose time is not known."""

    skipped: tuple[tuple[int, int], ...]
    untold: tuple[int, ...]

    def _words(self) -> str:
        words = [str(first) if first == last else f"{first}-{last}" for first, last in self.skipped[:_MOST_RUNS]]
        rest = len(self.skipped) - _MOST_RUNS
        more = f" and {rest} more times" if rest > 0 else ""
        are_several = len(self.skipped) > 1 or self.skipped[0][0] < self.skipped[0][1]
        no_range = f"no range of step{'s' if are_several else ''} {', '.join(words)}{more} is there"
        untold = f", and how long it took is not known of {name_steps(self.untold)}" if self.untold else ""
        return f"{no_range}, though steps around have one: what ran then is in no number per step{untold}"


@dataclass(frozen=True)
class LostKernels(OfRanks):
    """Kernels that were launched and are not in the trace, or a file that was cut, and the steps that this costs.

    Attributes:
        kernels: how many, whose launches are there.
        operators: how many operators launched kernels that are not there, nor these launches.
        is_cut: the file was cut.
        steps: which this costs.
    """

    kernels: int
    operators: int
    is_cut: bool
    steps: tuple[int, ...]

    def _words(self) -> str:
        count, where = self.kernels, f" in {name_steps(self.steps)}" if self.steps else ""
        lost = f"{count_things(count, 'kernel')} that {'was' if count == 1 else 'were'} launched {is_or_are(count)}"
        why = [f"{lost} not in the trace"] if count else []
        if self.operators:
            why.append(
                f"of {count_things(self.operators, 'operator')} that {'launches' if self.operators == 1 else 'launch'}"
                " kernels the trace has neither launch nor kernel"
            )
        why += ["the file was cut"] if self.is_cut else []
        return f"{' and '.join(why)}, so what took the time and what was hidden is not known{where}"


@dataclass(frozen=True)
class LostCopies(OfRanks):
    """Copies and fills that were launched and are not in the trace, and the steps of which copies are not known."""

    copies: int
    steps: tuple[int, ...]

    def _words(self) -> str:
        calls = count_things(self.copies, "call")
        where = f" in {name_steps(self.steps)}" if self.steps else ""
        return (
            f"of {calls} to copy or fill memory the trace does not have what ran on the device: how long copies took,"
            f" and so how long the device was idle, is not known{where}"
        )


@dataclass(frozen=True)
class ClockSet(OfRanks):
    """A clock that was set, which may be that of another rank; ``steps``: those that are left out for it."""

    steps: tuple[int, ...]

    def _words(self) -> str:
        left_out = f"{name_steps(self.steps)} {is_or_are(len(self.steps))} left out: " if self.steps else ""
        why = (
            "a clock may have been set while it was recorded, and what was under way then took longer, or shorter, than"
            " it says"
        )
        return f"{left_out}{why}; nor is any time of the whole trace known"


@dataclass(frozen=True)
class StepsBeginUnsure(OfRanks):
    """Steps that may begin earlier, by ``within_ns`` at most, and end as much so: time of each is that of another."""

    steps: tuple[int, ...]
    within_ns: int

    def _words(self) -> str:
        begin = "begins" if len(self.steps) == 1 else "begin"
        where = f"where {name_steps(self.steps)} {begin} is not known to within {format_ns(self.within_ns)}"
        return f"launches are lost, and {where}: what ran then counts to the step before, and may be of it"


@dataclass(frozen=True)
class StepsUntold(OfRanks):
    """Steps of which no time is known: they may begin, or end, earlier, by ``within_ns`` at most."""

    steps: tuple[int, ...]
    within_ns: int

    def _words(self) -> str:
        begin = "begins or ends" if len(self.steps) == 1 else "begin or end"
        took = "it took" if len(self.steps) == 1 else "they took"
        return (
            f"launches or copies are lost, and where {name_steps(self.steps)} {begin} is not known to within"
            f" {format_ns(self.within_ns)}, so how long {took}, and what ran then, is not known"
        )


@dataclass(frozen=True)
class CutStep(OfRanks):
    """A last step that is not all in the trace.

    Attributes:
        step: its number.
        is_left_out: it is in no number; False: there is no other step.
        seen_ns: from its first kernel to the trace's last.
        host_ns: how long it took the host.
        others_ns: how long others are from first kernel to last; None: there are none.
        unsure_ns: by how much earlier it may begin, as launches or copies are lost.
    """

    step: int
    is_left_out: bool
    seen_ns: int
    host_ns: int
    others_ns: int | None
    unsure_ns: int

    def _words(self) -> str:
        others = f" and others {format_ns(self.others_ns)}" if self.others_ns is not None else ""
        why = (
            f"from its first kernel to the trace's last are {format_ns(self.seen_ns)}, and it took the host"
            f" {format_ns(self.host_ns)}{others}"
        )
        larger = "so that shares of it may be larger than they were"
        if self.unsure_ns:
            what = f"launches or copies are lost, and where step {self.step} begins is not known to within"
            so = "so it is left out" if self.is_left_out else larger
            return f"{what} {format_ns(self.unsure_ns)}, {so}: {why}"
        if self.is_left_out:
            return f"step {self.step} is left out, not all of it is there: {why}"
        return f"step {self.step} is not all there, {larger}: {why}"


@dataclass(frozen=True)
class ComputeNotRecorded(OfRanks):
    """No operator of the threads that compute is there, in ``steps`` or, without any, in the whole trace."""

    steps: tuple[int, ...]

    def _words(self) -> str:
        where = f" in {name_steps(self.steps)}" if self.steps else ""
        return (
            f"no operator of the threads that compute was recorded{where}, so it is not known what was hidden there; "
            "record ProfilerActivity.CPU for whole steps"
        )


@dataclass(frozen=True)
class OperatorsAbsent(OfRanks):
    """Operators of the threads that compute, that most steps have and some steps lack."""

    operators: int
    steps: tuple[int, ...]

    def _words(self) -> str:
        return (
            f"{name_steps(self.steps)} {is_or_are(len(self.steps))} not all recorded, or did less than the others:"
            f" {count_things(self.operators, 'operator')} that most steps have {is_or_are(self.operators)} not"
            " there, and nothing tells what the threads did meanwhile, so it is not known what was hidden"
        )


@dataclass(frozen=True)
class NoSteps(OfRanks):
    """No step is marked in any trace.

    Attributes:
        likely: name of ranges that may mark steps; empty: there are none.
        ranges: how many there are.
    """

    likely: str = ""
    ranges: int = 0

    def _words(self) -> str:
        said = "the trace has no ProfilerStep range; only the whole trace is known"
        if not self.likely:
            return said
        return f"{said} (`--range {shlex.quote(self.likely)}` takes the {self.ranges} ranges of that name as steps)"


@dataclass(frozen=True)
class OutsideSteps(OfRanks):
    """Collectives that no step issued and that ran outside all of them, for ``time_ns``."""

    collectives: int
    time_ns: int

    def _words(self) -> str:
        what = f"{count_things(self.collectives, 'collective')} outside all steps"
        verb = is_or_are(self.collectives)
        return f"{what}, {format_ns(self.time_ns)} of communication, {verb} in no number per step"


@dataclass(frozen=True)
class EmptySteps(OfRanks):
    """Steps in which nothing ran."""

    steps: tuple[int, ...]

    def _words(self) -> str:
        return f"nothing ran in {name_steps(self.steps)}; no time is known there"


@dataclass(frozen=True)
class UntiedSteps(OfRanks):
    """Steps of whose launches nothing leads to work on the device.

    Attributes:
        steps: their numbers.
        is_launch_recorded: the launches are there, and the work does not carry their ids.
    """

    steps: tuple[int, ...]
    is_launch_recorded: bool

    def _words(self) -> str:
        lack = "no work carries the id of a launch" if self.is_launch_recorded else "no launch was recorded"
        return (
            f"{lack} in {name_steps(self.steps)}, so which step the work on its device belongs to is not known; no time"
            " is known there"
        )


@dataclass(frozen=True)
class PartRounds(OfRanks):
    """Steps that means go over and that are no whole rounds of steps of which one reduces gradients.

    Attributes:
        length: from one step that reduces gradients to the next.
        steps: over which means go.
        reducing: how many of these reduce.
    """

    length: int
    steps: int
    reducing: int

    def _words(self) -> str:
        share = "more" if self.reducing * self.length > self.steps else "less"
        return (
            f"one step in {self.length} reduces gradients, and {self.reducing} of the {self.steps} that means go over:"
            f" they hold {share} of it than a training does; record a multiple of {self.length} steps"
        )
