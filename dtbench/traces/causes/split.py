"""Each collective's exposed time, split into causes that add up to it in integers.

A cause takes at most its bound from what the earlier ones left; those of the collective's own length (``bandwidth``)
only where nothing is missing that could have told an earlier one, and without the time in which the host was late::

    host             issue i                       |            device streams and gloo's threads
    last rank                    |s                |
    compute   ████ready█████████                   |       ██
    others            ├──held the queue─┤          |
    collective                  ├───────────────────┤
    exposed                     ░░░░░░░░░░░░░░░░░░░░
                                 skew at most its share of what lies before s
                       queued at most what others held of its queue between max(i, ready) and its start, and had
                              held with every rank in time
                   serialized at most the time in which other compute stood
                         launched until its end
                   late_issue at most the compute between ready and i

Order, and what each needs:

==================  =================================================  =============================================
cause               takes at most                                      needs
==================  =================================================  =============================================
``skew``            its share of exposed time before the last start    the last start over all ranks of its group
``bubble``          the same of what goes from stage to stage          likewise
``queued``          time in which others held its queue before it      issue, not a graph's; its process group; on CPU
                    with every rank in time                            also its place in it
``serialized``      time in which compute that needs nothing of it     issue, launches, the host's stream waits or
                    stood launched until its end                       FSDP's or DDP's structure
``late_issue``      compute between ready and issue                    issue, ready
``late_ready``      compute of the backward pass before it was ready   issue, region, the engine's nodes
``sync_op``         everything                                         issued blocking
``tail``            everything                                         issue, region, a host that launched in time
``needed_at_once``  everything; of gradients on the host that wait     issue, ready, a host that launched in time; of
                    later in backward, the compute behind that wait    gradients its wait, in the midst of backward
``bandwidth``       everything                                         all of the above; no compute stood launched of
                                                                       which it is not known what it waited for
``unknown``         everything                                         names what was missing
==================  =================================================  =============================================

Where the trace does not tell when something was launched, all is asked twice, as if that was early and as if it was
late (``untold.py``): a cause takes the less of both, and what it would take beyond that lacks the launches.

Where the device's times do not fit the host's (``device_clock.py``) only ``skew``, ``bubble`` and ``sync_op`` are
claimed; where streams are not told apart (``device/streams.py``), only ``skew`` and ``bubble``; where the ranges are
lost that would say who asked for it, or for others of its step (``who/unranged.py``), only ``skew``.

The first moment at which the collective could run is ``max(issue, ready)``: on a device the host issues long before the
producer ends, and what held the queue until then made nothing late; what a queue is, ``holders.py`` says. What was held
only because a rank came late to those before, and what follows a hidden wait for the last rank and is no longer than
it, is, ahead of what is queued in any case, ``unknown``: had that rank been in time, nobody knows how much of it had
hidden. Between the stages of a pipeline the schedule says which rank comes last, and it is no rank's lateness. A
collective of which other ranks' starts are not known has no ``skew``; what would be ``bandwidth`` is then ``unknown``.
On the host all are told here from what was issued and computed; for how much of them anybody stood still,
``unwaited.py`` says.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from dtbench.base.vocabulary import UNUSED_MAP, Cause, MissingInput, Purpose
from dtbench.traces.causes.holders import Holders, find_holders
from dtbench.traces.causes.ready import is_fsdps_unshard
from dtbench.traces.causes.skew_share import share_before
from dtbench.traces.causes.surroundings import Surroundings
from dtbench.traces.timeline import RankTimeline
from dtbench.traces.who.collectives import Collective
from dtbench.traces.who.purposes import is_fsdps


@dataclass(frozen=True)
class CausePart:
    """A part of one collective's exposed time.

    Attributes:
        cause: what made it.
        exposed_ns: above zero.
        behind: for ``queued``, index into the timeline's collectives of the one that held the queue longest meanwhile.
        missing: for ``unknown``, what would decide it: what most of it lacks first, of equals in the order of the
            causes that they would decide.
        partly_ns: those of ``missing`` that not all of it lacks, with how much does.
    """

    cause: Cause
    exposed_ns: int
    behind: int | None = None
    missing: tuple[MissingInput, ...] = ()
    partly_ns: tuple[tuple[MissingInput, int], ...] = ()

    def lacking_ns(self, missing: MissingInput) -> int:
        """Return how much of it lacks one of ``missing``."""
        return min(dict(self.partly_ns).get(missing, self.exposed_ns), self.exposed_ns)


def leave_unknown(exposed_ns: int, lacking_ns: Mapping[MissingInput, int]) -> CausePart:
    """Return a part of unknown cause.

    Args:
        exposed_ns: of the part.
        lacking_ns: how much of it lacks what, in the order of the causes that they would decide.
    """
    missing = tuple(sorted(lacking_ns, key=lambda one: -lacking_ns[one]))
    partly_ns = tuple((one, lacking_ns[one]) for one in missing if lacking_ns[one] < exposed_ns)
    return CausePart(Cause.UNKNOWN, exposed_ns, missing=missing, partly_ns=partly_ns)


def sum_lacking(parts: Sequence[CausePart]) -> Counter[MissingInput]:
    """Return how much time of some parts lacks what, in the order in which they name it."""
    lacking_ns = Counter[MissingInput]()
    for part in parts:
        for one in part.missing:
            lacking_ns[one] += part.lacking_ns(one)
    return lacking_ns


def order_missing(parts: Sequence[CausePart]) -> tuple[MissingInput, ...]:
    """Return what parts of unknown cause lack, what most of their time lacks first."""
    lacking_ns = sum_lacking(parts)
    return tuple(sorted(lacking_ns, key=lambda one: (-lacking_ns[one], [*MissingInput].index(one))))


@dataclass(frozen=True)
class CauseSplit:
    """One collective's exposed time by cause.

    Attributes:
        parts: in the order of ``Cause``, none empty; they add up to the collective's exposed time.
    """

    parts: tuple[CausePart, ...]

    @property
    def by_cause(self) -> dict[Cause, int]:
        """Exposed ns of each cause that has a part."""
        return {part.cause: part.exposed_ns for part in self.parts}

    @property
    def largest(self) -> CausePart | None:
        """The part that names the collective, the first of equals; None: nothing of it is exposed."""
        return max(self.parts, key=lambda part: part.exposed_ns, default=None)

    @property
    def cause(self) -> Cause | None:
        """Name of the largest part."""
        return None if self.largest is None else self.largest.cause


def split_exposed(timeline: RankTimeline, last_starts_ns: Sequence[int | None]) -> tuple[CauseSplit, ...]:
    """Split the exposed time of every collective of one rank.

    Args:
        timeline: the rank; ``ready_ns`` and ``computed_ns`` of its collectives filled as ``ready.py`` does.
        last_starts_ns: for each collective the last start over all ranks of its group, in this rank's clock; None: not
            every rank of the group is known.

    Raises:
        ValueError: the two differ in length.
    """
    skew_ns = share_before(timeline, last_starts_ns)
    ways = [_read_way(timeline, way) for way in timeline.ways] or [timeline]
    asked = [
        (
            way.collectives,
            Surroundings(way, may_be=place > 0),
            find_holders(way, last_starts_ns, skew_ns, is_late=place > 0),
        )
        for place, way in enumerate(ways)
    ]
    return tuple(
        _Splitter(
            tuple(
                _Claims(
                    surroundings=surroundings,
                    holders=holders[index],
                    collective=collectives[index],
                    exposed_ns=exposed_ns,
                    skew_ns=skew_ns[index],
                    is_alone=last_starts_ns[index] is None and collectives[index].group_size != 1,
                    is_unasked=index in timeline.unasked,
                )
                for collectives, surroundings, holders in asked
            ),
            exposed_ns,
        ).split()
        for index, exposed_ns in enumerate(timeline.exposed_ns)
    )


def _read_way(timeline: RankTimeline, way: Sequence[Collective]) -> RankTimeline:
    """Return the rank with one answer to when what is not told was launched."""
    told = zip(way, timeline.collectives, strict=True)
    return replace(timeline, collectives=tuple(replace(one, purpose=as_told.purpose) for one, as_told in told))


@dataclass(frozen=True)
class _Splitter:
    """What causes take of one collective: what they claim either way.

    Attributes:
        ways: its causes as if what was launched when it is not told was launched early, and as if late; one where all
            that is told.
        exposed_ns: of the collective.
    """

    ways: "tuple[_Claims, ...]"
    exposed_ns: int

    def split(self) -> CauseSplit:
        """Let each cause take its part; what one would take one way only lacks the launches."""
        first = self.ways[0]
        left_ns = self.exposed_ns
        lacking_ns = Counter[MissingInput]()
        parts: list[CausePart] = []

        def take(bound: Callable[[_Claims], int]) -> int:
            nonlocal left_ns
            bounds_ns = [min(left_ns, bound(way)) for way in self.ways] if left_ns > 0 else [0]
            left_ns -= max(bounds_ns)
            lacking_ns[MissingInput.LAUNCHES] += max(bounds_ns) - min(bounds_ns)
            return min(bounds_ns)

        for cause, bound in first.bounds:
            if cause is Cause.QUEUED:
                lacking_ns[first.lack_of_put_off] += take(_Claims.put_off_ns)
            taken_ns = take(bound)
            if taken_ns > 0:
                parts.append(CausePart(cause, taken_ns, first.holders.longest if cause is Cause.QUEUED else None))
            if cause is Cause.QUEUED:
                lacking_ns[MissingInput.QUEUE] += take(_Claims.maybe_queued_ns)
        return CauseSplit((*parts, *self._split_rest(left_ns, lacking_ns)))

    def _split_rest(self, left_ns: int, lacking_ns: Counter[MissingInput]) -> Iterator[CausePart]:
        """Yield what no rule took, by its length, less the time in which the host was late with what could hide it.

        Where it may have queued, that time is nobody's, and so is then all of it for which something else is missing.
        """
        unknown_ns = lacking_ns.total()
        missing = self._find_missing() if left_ns else ()
        late_ns = [min(left_ns, way.host_late_ns) for way in self.ways]
        rest_ns, known_ns = 0 if missing else left_ns - max(late_ns), 0
        for cause, bound in _OF_REST:
            bounds_ns = [min(rest_ns, bound(way)) for way in self.ways]
            rest_ns -= max(bounds_ns)
            lacking_ns[MissingInput.LAUNCHES] += max(bounds_ns) - min(bounds_ns)
            known_ns += min(bounds_ns)
            if min(bounds_ns) > 0:
                yield CausePart(cause, min(bounds_ns))
        if missing:
            for one in missing:
                lacking_ns[one] += left_ns
        else:
            lacking_ns[MissingInput.HOST] += min(late_ns)
            lacking_ns[MissingInput.LAUNCHES] += max(late_ns) - min(late_ns)
        if unknown_ns + left_ns - known_ns > 0:
            yield leave_unknown(unknown_ns + left_ns - known_ns, {one: ns for one, ns in lacking_ns.items() if ns})

    def _find_missing(self) -> tuple[MissingInput, ...]:
        """Return what the rest lacks either way; where that is nothing, but something one way, the launches."""
        missing = [way.find_missing() for way in self.ways]
        both = tuple(one for one in missing[0] if all(one in others for others in missing))
        return both or ((MissingInput.LAUNCHES,) if any(missing) else ())


@dataclass(frozen=True)
class _Claims:
    """What each cause claims of one collective at most, if all was launched when it is told or taken to be."""

    surroundings: Surroundings
    holders: Holders
    collective: Collective
    exposed_ns: int
    skew_ns: int
    is_alone: bool
    is_unasked: bool = False

    @property
    def bounds(self) -> "_Bounds":
        """The causes of which anything can be claimed, in order, with what each claims at most."""
        if self.is_unasked:
            return _OF_ANY_PURPOSE
        if not self.surroundings.tells_streams:
            return _OF_ANY_STREAM
        return _BOUNDS if self.surroundings.fits_host else _OF_DEVICE_ALONE

    @property
    def lack_of_put_off(self) -> MissingInput:
        """What is missing where it was put off; which stage of a pipeline comes last is the schedule's."""
        return MissingInput.SCHEDULE if self.collective.purpose is Purpose.PIPELINE else MissingInput.PUT_OFF

    def skew_part_ns(self) -> int:
        """Time before the last rank began, unless that is a pipeline's bubble."""
        return 0 if self.collective.purpose is Purpose.PIPELINE else self.skew_ns

    def bubble_ns(self) -> int:
        """The same of what goes from stage to stage."""
        return self.skew_ns if self.collective.purpose is Purpose.PIPELINE else 0

    def put_off_ns(self) -> int:
        """Time by which a rank put it off that came late to it or to those before it; what is negligible is none."""
        put_off_ns = self.holders.waited_ns + self.holders.put_off_ns
        return put_off_ns if self._is_much(put_off_ns) else 0

    def queued_ns(self) -> int:
        """The rest of the time in which others held its queue, beyond what it then waited for the last rank."""
        return max(0, self.holders.held_ns - self.put_off_ns())

    def maybe_queued_ns(self) -> int:
        """Time in which others ran that held it if their queue was its own."""
        return self.holders.maybe_held_ns

    def serialized_ns(self) -> int:
        """Time in which compute that needs nothing of it stood launched until its end; see ``standing.py``."""
        return self.collective.standing_ns if self._is_much(self.collective.standing_ns) else 0

    def late_issue_ns(self) -> int:
        """Compute between the moment it could have been issued and its issue.

        On the host a reduction of gradients is issued by what brings its last gradient; what computes in between fills
        its buffer, and is no delay.
        """
        one = self.collective
        if one.ready_ns is None or one.issue_ns is None:
            return 0
        if one.purpose is Purpose.GRAD_REDUCE and not self.surroundings.is_device:
            return 0
        return self.surroundings.compute_ns(one.ready_ns, one.issue_ns)

    def late_ready_ns(self) -> int:
        """Compute of the backward pass before its gradients were ready.

        Where two or more reductions of one backward pass have the same last compute before them, all became ready at
        its end, whatever they hold. The last of them may hold what was computed last, and is no such case; nor is one
        that only its own gradients' second reduction (HSDP's, over replicas) or DDP's map of parameters follows.
        """
        one = self.collective
        region = self.surroundings.region_of(one)
        if region is None or one.purpose is not Purpose.GRAD_REDUCE or one.computed_ns is None or one.issue_ns is None:
            return 0
        if self._has_lost:
            return 0
        others = [other for other in self.surroundings.reductions_of(region) if _holds_others(other, one)]
        is_last = all((other.issue_ns or 0) <= one.issue_ns for other in others)
        if is_last or any(other.computed_ns != one.computed_ns for other in others):
            return 0
        return self.surroundings.compute_ns(self.surroundings.first_compute_ns(region), one.computed_ns)

    def sync_op_ns(self) -> int:
        """All of it where the call that issued it let nothing go on until its end.

        gloo: the call (or the wait inside it) holds the thread. NCCL: the stream that was current at the issue waits,
        which is the one that computes, except under FSDP, which makes a side stream current.
        """
        one = self.collective
        on_side_stream = self.surroundings.is_device and any(is_fsdps(name) for name in one.above)
        return self.exposed_ns if one.is_blocking and not on_side_stream else 0

    def tail_ns(self) -> int:
        """All of it where no independent compute of its region starts after it.

        For a reduction of gradients that is compute launched between its issue and the region's last reduction. What
        backward launches later waits for reductions, of this bucket or of others: DDP copies out of them. Where it is
        known when something may first have waited for it, nothing may have been launched before.
        Of other collectives nothing is claimed where the host sat in a call and could not launch; what it then waited
        for is asked by ``needed_at_once_ns``.
        """
        one = self.collective
        region = self.surroundings.region_of(one)
        if region is None or not self._has_order:
            return 0
        if one.purpose is not Purpose.GRAD_REDUCE and (self._is_hidden_in_part or self._is_much(one.blocked_ns)):
            return 0
        if self._may_have_held or self._is_launched_before_wait or self._is_nobodys:
            return 0
        return 0 if self._is_much(self.surroundings.launched_after_ns(one, region)) else self.exposed_ns

    def needed_at_once_ns(self) -> int:
        """All of it where no compute starts between the first moment at which it could run, and its end.

        In the order of the streams that is "no compute was launched between issue and first wait": what starts before
        its end did not wait for it. Gradients are needed after backward: theirs only where a wait is known to come with
        nothing computed since the issue, so that what backward computed later stood behind it. On the host it takes, of
        one that waits later in backward, at most what backward computed behind that wait.
        Where the host sat in a call and could launch nothing, nobody needed it unless that is what it waited for.
        """
        one = self.collective
        if one.ready_ns is None or not self._has_order:
            return 0
        if one.purpose is Purpose.GRAD_REDUCE and not self._is_waited_for_at_once:
            return self._behind_wait_ns
        if self._may_have_held or self._is_launched_before_wait or self._is_much(self._blocked_ns) or self._is_nobodys:
            return 0
        known = self.surroundings.region_of(one) is not None
        return self.exposed_ns if known and not self._is_hidden_in_part else 0

    @cached_property
    def _is_hidden_in_part(self) -> bool:
        """Whether compute hid a part of it, or could have.

        That is compute beside it, and compute that started between the first moment at which it could run and its end:
        for FSDP's unshard the compute of the unit before, whenever it was launched; for any other, what was launched
        after the issue, because what was launched before made its input or copied it.
        """
        one = self.collective
        if self._is_much(self.surroundings.compute_ns(one.start_ns, one.end_ns)):
            return True
        if one.issue_ns is None:
            return False
        could_ns = one.issue_ns if one.ready_ns is None else one.ready_ns
        launched_from_ns = None if is_fsdps_unshard(one) else one.issue_ns
        return self._is_much(self.surroundings.starting_ns(could_ns, one.end_ns, launched_from_ns=launched_from_ns))

    def _is_much(self, compute_ns: int) -> bool:
        return compute_ns * _NEGLIGIBLE >= self.exposed_ns and compute_ns > 0

    @property
    def _may_block(self) -> bool:
        """Whether it may have been issued blocking, for all that a CPU trace says."""
        return self.collective.is_async is None and not self.surroundings.is_device

    @property
    def _has_order(self) -> bool:
        """Whether what was launched after it is known."""
        is_told = self.collective.issue_ns is not None and not self.collective.is_captured and not self._may_block
        return is_told and not self._has_lost

    @cached_property
    def _has_lost(self) -> bool:
        """Whether its region issued collectives that were not seen to run, so that what is missing is no evidence."""
        region = self.surroundings.region_of(self.collective)
        return region is not None and self.surroundings.lost_in(region)

    @cached_property
    def _may_have_held(self) -> bool:
        """Whether compute stood launched until its end, and the trace does not say what it waited for."""
        one = self.collective
        if self._is_much(one.undecided_ns):
            return True
        if one.awaited_ns is None or one.standing_ns:
            return False
        return self._is_much(self.surroundings.stood_ns(one, one.awaited_ns))

    @property
    def _lacks_region(self) -> bool:
        """Whether nothing was left to hide it behind in its region, for all that is known; see ``tail_ns``."""
        if self.surroundings.region_of(self.collective) is not None:
            return False
        is_gradients = self.collective.purpose is Purpose.GRAD_REDUCE and not self._is_launched_before_wait
        return is_gradients or not self._is_hidden_in_part

    @property
    def _is_launched_before_wait(self) -> bool:
        """Whether the host launched compute after its issue and before anything can have waited for it."""
        one = self.collective
        if one.awaited_ns is None or one.issue_ns is None:
            return False
        return self._is_much(self.surroundings.launched_ns(one.issue_ns, one.awaited_ns))

    @property
    def _is_waited_for_at_once(self) -> bool:
        """Whether it is known to be waited for with nothing computed since its issue, as by a hook that waits."""
        one = self.collective
        wait_ns = one.awaited_ns if self.surroundings.is_device else one.first_wait_ns
        if one.issue_ns is None or wait_ns is None or one.first_wait_ns is None:
            return False
        return not self._is_much(self.surroundings.launched_ns(one.issue_ns, wait_ns))

    @property
    def _behind_wait_ns(self) -> int:
        """Compute of backward on the host behind the wait for a reduction, which a later wait would let run beside it.

        When to wait is the loop's own to choose, but not under FSDP.
        """
        one, region = self.collective, self.surroundings.region_of(self.collective)
        if self.surroundings.is_device or one.first_wait_end_ns is None or region is None or not self._has_order:
            return 0
        if any(is_fsdps(name) for name in one.above):
            return 0
        behind_ns = self.surroundings.launched_after_ns(one, region, one.first_wait_end_ns)
        return behind_ns if self._is_much(behind_ns) else 0

    @property
    def host_late_ns(self) -> int:
        """Time in which it ran on a device while the main lane stood still for the host."""
        late_ns = max(self.collective.host_late_ns, self._blocked_ns)
        return late_ns if self._is_much(late_ns) else 0

    @property
    def _blocked_ns(self) -> int:
        """Time in which the host could launch nothing to run beside it because it waited for something else."""
        return self.collective.blocked_ns if self.collective.first_wait_ns is None else 0

    @cached_property
    def _is_nobodys(self) -> bool:
        """Whether nothing can have waited for it on a device: the host launched what may need it after its end.

        Then neither its length nor its place made anything late, but what kept the host.
        """
        one = self.collective
        if not self.surroundings.is_device or one.issue_ns is None or one.is_captured or one.first_wait_ns is not None:
            return False
        if one.awaited_ns is not None and one.awaited_ns >= one.end_ns:
            return True
        may_be = not self.surroundings.may_be  # what may have waited was launched early where it is taken to have
        return one.is_wait_seen and not self.surroundings.launches_between(one.issue_ns, one.end_ns, may_be=may_be)

    @property
    def _has_idle_host(self) -> bool:
        """Whether it ran beside nothing on a device, because the host launched what it could only after its end."""
        one = self.collective
        if not self.surroundings.is_device or not self._has_order or self._is_hidden_in_part:
            return False
        if one.purpose is Purpose.GRAD_REDUCE:
            may_be = self.surroundings.may_be
            return not self.surroundings.launches_between(one.issue_ns or 0, one.end_ns, may_be=may_be)
        is_late = self._is_launched_before_wait or self._is_much(self._blocked_ns)
        return is_late and not self._may_have_held

    @property
    def _was_short_enough(self) -> bool:
        """Whether a reduction on the host is shorter than what its backward computed after the issue, which hid less.

        A thread that stood still, in the call that issues or without a core, made it exposed, not its own length.
        """
        one, region = self.collective, self.surroundings.region_of(self.collective)
        if self.surroundings.is_device or one.purpose is not Purpose.GRAD_REDUCE or region is None:
            return False
        return self.surroundings.launched_after_ns(one, region) >= one.span.length_ns

    def bandwidth_ns(self) -> int:
        """Everything that is left: it was long, and had nothing beside it."""
        return self.exposed_ns

    def find_missing(self) -> tuple[MissingInput, ...]:
        """Return what is missing of the rest, in the order of the causes that it would decide."""
        one = self.collective
        if self.is_unasked:
            return (*([MissingInput.RANKS] if self.is_alone else []), MissingInput.ASKER)
        if not self.surroundings.tells_streams:
            return (*([MissingInput.RANKS] if self.is_alone else []), MissingInput.STREAMS)
        if not self.surroundings.fits_host:
            return (*([MissingInput.RANKS] if self.is_alone else []), MissingInput.DEVICE_CLOCK)
        has_issue = one.issue_ns is not None
        rules = (
            (self.is_alone, MissingInput.RANKS),
            (not has_issue, MissingInput.LAUNCH),
            (has_issue and self.collective.is_captured, MissingInput.GRAPH_ORDER),
            (has_issue and one.ready_ns is None and not self.collective.is_captured, MissingInput.READY),
            (has_issue and self._may_block, MissingInput.BLOCKING),
            (has_issue and self._lacks_region, MissingInput.REGION),
            (self._may_have_held, MissingInput.STREAM_WAITS),
            (self._has_idle_host or self._is_nobodys or self._was_short_enough, MissingInput.HOST),
            (self._has_lost, MissingInput.LOST),
        )
        return tuple(missing for lacks, missing in rules if lacks)


def _holds_others(other: Collective, one: Collective) -> bool:
    """Tell whether another reduction holds other gradients."""
    is_second = other.owner == one.owner and other.operation is not one.operation
    return other is not one and not is_second and other.owner != UNUSED_MAP


_NEGLIGIBLE: Final = (
    100  # compute below 1/100 of the exposed time is nothing to hide behind: a view, a copy of a scalar
)

_Bounds = tuple[tuple[Cause, Callable[[_Claims], int]], ...]
_BOUNDS: Final[_Bounds] = (
    (Cause.SKEW, _Claims.skew_part_ns),
    (Cause.BUBBLE, _Claims.bubble_ns),
    (Cause.QUEUED, _Claims.queued_ns),
    (Cause.SERIALIZED, _Claims.serialized_ns),
    (Cause.LATE_ISSUE, _Claims.late_issue_ns),
    (Cause.LATE_READY, _Claims.late_ready_ns),
    (Cause.SYNC_OP, _Claims.sync_op_ns),
    (Cause.TAIL, _Claims.tail_ns),
    (Cause.NEEDED_AT_ONCE, _Claims.needed_at_once_ns),
)

_OF_REST: Final[_Bounds] = ((Cause.BANDWIDTH, _Claims.bandwidth_ns),)
"""What speaks of a collective's own length: asked where nothing is missing, of what is left without the host's part."""

_OF_DEVICE_ALONE: Final = tuple(rule for rule in _BOUNDS if rule[0] in (Cause.SKEW, Cause.BUBBLE, Cause.SYNC_OP))
"""What holds wherever the host was meanwhile."""

_OF_ANY_STREAM: Final = tuple(rule for rule in _BOUNDS if rule[0] in (Cause.SKEW, Cause.BUBBLE))
"""What holds whatever stood on which stream."""

_OF_ANY_PURPOSE: Final = tuple(rule for rule in _BOUNDS if rule[0] is Cause.SKEW)
"""What holds whatever it was for, and whoever asked for it."""
