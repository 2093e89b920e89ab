"""What would change the steps of a job, and by how much: a graph replayed with one thing changed after another."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Final

from dtbench.base.errors import PredictionError
from dtbench.base.vocabulary import Purpose
from dtbench.replay.changes.apart import Apart
from dtbench.replay.changes.change import Change, ChangeKind, Owner, list_collectives
from dtbench.replay.changes.hidden import Hidden
from dtbench.replay.changes.host import HostTime
from dtbench.replay.changes.link import Link
from dtbench.replay.changes.link_parts import Bandwidth, Latency
from dtbench.replay.changes.overlap_tax import NoOverlapTax
from dtbench.replay.changes.straggler import NoStraggler
from dtbench.replay.fit import Fit, refuse_misfits
from dtbench.replay.gains import measure_own
from dtbench.replay.graph import JobGraph
from dtbench.replay.link_fit import LinkFit, LinkKey, fit_links
from dtbench.replay.longest_way import LongestWay, find_longest_way
from dtbench.replay.measured import AsMeasured, rescale_hosts
from dtbench.replay.read import Recorded
from dtbench.replay.run import replay

MOST_OWNERS: Final = 12
"""Owners that are asked for one by one: those that take most."""
_SMALL: Final = 0.1
"""Part of a saving: by less a replay may be off without a word."""


@dataclass(frozen=True)
class Answer:
    """What one change would do.

    Attributes:
        change: what is changed.
        saving_ns: by how much all steps together would be shorter, divided by their number; below 0: longer.
        lowest_ns, highest_ns: the least and the most of any step, from the last rank's end to the last rank's end.
        off_ns: by how much the replay of the unchanged steps is off, of the mean step what it is of the worst: the
            saving is known no better, and is no bound of anything by less.
        own_ns: for what is hidden, what it takes in a step, without waiting for other ranks: the saving is no more.
    """

    change: Change
    saving_ns: float
    lowest_ns: int
    highest_ns: int
    off_ns: float
    own_ns: float | None = None

    @property
    def is_off(self) -> bool:
        """Whether what the replay is off by is to be said beside the saving."""
        return is_visibly_off(self.saving_ns, self.off_ns)


def is_visibly_off(saving_ns: float, off_ns: float) -> bool:
    """Tell whether what a replay is off by is not small beside what is saved, or lost."""
    return off_ns > _SMALL * abs(saving_ns)


@dataclass(frozen=True)
class WhatIf:
    """What would change a job's steps.

    Attributes:
        fits: of each launch, how well the unchanged graph gives its steps.
        step_ns: mean of all steps as the replay has them.
        host_times: by launch, how many times as long hosts take as in its PROFILED steps, so that a step is as
            MEASURED; empty: PROFILED steps stay as they were.
        are_in_step: it is known how far the clocks of ranks are apart; else ranks begin together.
        answers: largest saving first.
        not_asked: what does not apply here, and why.
        way: what the longest way through the steps consists of, over all launches.
        ranks: how many are here.
        missing: how many of the job are not: what is waited for them is in what collectives take; None: not told.
        unmatched: collectives of several ranks that are not known to be one with those of the others: what they wait
            for them is in what they take.
        left_out: steps of the traces that are not replayed: not all of them is known, or they do not follow the others.
        is_device: it ran on devices.
        waited_ns: how long ranks waited in a step for those that came last, summed over them, over all steps of the
            traces; None: not known of every rank.
        links: what each kind of collective was found to cost, of the first launch; None: its sizes do not tell.
    """

    fits: tuple[Fit, ...]
    step_ns: float
    answers: tuple[Answer, ...]
    not_asked: tuple[tuple[str, str], ...]
    way: LongestWay
    ranks: int
    missing: int | None
    unmatched: int
    left_out: tuple[int, ...]
    is_device: bool
    waited_ns: float | None = None
    links: Mapping[LinkKey, LinkFit | None] = field(default_factory=dict)
    host_times: tuple[float, ...] = ()
    are_in_step: bool = True

    @property
    def steps(self) -> int:
        """How many steps there are, over launches."""
        return sum(len(fit.numbers) for fit in self.fits)


def _count_missing(launch: Recorded) -> int | None:
    size = launch.traces.world_size
    return None if size is None else max(0, size - len(launch.graph))


def _sum_waited(launches: Sequence[Recorded]) -> float | None:
    """Return what the skew tables sum up to in a step; None: some rank's waiting is not known, or has no step."""
    waits_ns = [one.skew_wait_ns for launch in launches for one in launch.traces.over_ranks.waiting.ranks]
    steps = sum(max((len(one.steps) for one in launch.traces.analyses), default=0) for launch in launches)
    ranks = sum(len(launch.graph) for launch in launches)
    known_ns = [wait_ns for wait_ns in waits_ns if wait_ns is not None]
    return sum(known_ns) / steps if steps and len(known_ns) == ranks else None


def _count_unmatched(launch: Recorded) -> int:
    return sum(
        len(one.services[item].ranks) == 1 and collective.group_size != 1
        for one in launch.graph.values()
        for item, collective in list_collectives(one)
    )


def find_changes(graph: JobGraph, *, are_all_here: bool = True) -> list[Change]:
    """Return what is asked of a job where nobody says what to change.

    Args:
        graph: of the job.
        are_all_here: no rank is missing; else nothing is asked that needs the others.
    """
    owners = _find_owners(graph)[:MOST_OWNERS]
    every: list[Change] = [Hidden(), Link(2.0), Bandwidth(2.0), Latency(0.5)] if owners else []
    queued = _find_queued(graph)
    several = [NoStraggler()] if len(graph) > 1 and are_all_here else []
    of_device: list[Change] = [HostTime(0.0)] if all(one.is_device for one in graph.values()) else []
    if of_device and owners:
        of_device.append(NoOverlapTax())
    return [*every, *(Hidden((owner,), owner.label) for owner in owners), *queued, *several, *of_device]


def _find_owners(graph: JobGraph) -> list[Owner]:
    """Return whose collectives there are, most first; once where several have the same, as both ends do."""
    took_ns, keys = Counter[Owner](), defaultdict[Owner, set[str]](set)
    for one in graph.values():
        for item, collective in list_collectives(one):
            owner, service = Owner.of(collective), one.services[item]
            took_ns[owner] += service.service_ns
            keys[owner].add(service.key)
    told = dict[frozenset[str], Owner]()
    for owner, _ in took_ns.most_common():
        told.setdefault(frozenset(keys[owner]), owner)
    return list(told.values())


def _find_queued(graph: JobGraph) -> list[Change]:
    """Return a queue of its own for each purpose that stands in one with others, but for the one that takes longest."""
    took_ns, lanes = Counter[Purpose](), defaultdict[str, set[Purpose]](set)
    owners: dict[Purpose, dict[Owner, None]] = defaultdict(dict)
    for one in graph.values():
        for item, collective in list_collectives(one):
            took_ns[collective.purpose] += one.services[item].service_ns
            lanes[one.items.lanes[one.items.lane[item]]].add(collective.purpose)
            owners[collective.purpose][Owner.of(collective)] = None
    mixed = {purpose for purposes in lanes.values() if len(purposes) > 1 for purpose in purposes}
    others = [purpose for purpose, _ in took_ns.most_common() if purpose in mixed][1:]
    return [Apart(tuple(owners[purpose]), str(purpose)) for purpose in others]


def ask(
    launches: Sequence[Recorded], changes: Iterable[Change] | None = None, *, measured_ns: Sequence[float] = ()
) -> WhatIf:
    """Replay launches of one job as they were, and with each change.

    Args:
        launches: at least one; of the same ranks.
        changes: what is changed, one at a time; None: what may apply.
        measured_ns: by launch, the MEASURED step of the slowest rank: where hosts can take a time that makes every
            launch's so long, they do; empty: it is not known of all.

    Raises:
        PredictionError: the replay of the unchanged graph does not give the steps of a launch; or a change that was
            asked for does not apply.
    """
    replays = [replay(one.graph) for one in launches]
    fits = [Fit.of(one, replayed) for one, replayed in zip(launches, replays, strict=True)]
    refuse_misfits(fits)
    rescaled = _rescale(launches, measured_ns)
    if rescaled:
        launches = [replace(one, graph=made.graph) for one, made in zip(launches, rescaled, strict=True)]
        replays = [replay(one.graph) for one in launches]
    base_ns = [ns for replayed in replays for ns in replayed.rounds_ns]
    step_ns = fmean(ns for replayed in replays for ns in replayed.steps_ns)
    off_ns = max(fit.worst for fit in fits) * step_ns
    answers, not_asked = [], []
    every = find_changes(launches[0].graph, are_all_here=_count_missing(launches[0]) == 0)
    for change in every if changes is None else changes:
        try:
            answers.append(_answer(launches, change, base_ns, off_ns))
        except PredictionError as error:
            if changes is not None:
                raise
            not_asked.append((change.name, str(error)))
    graph = launches[0].graph
    return WhatIf(
        fits=tuple(fits),
        step_ns=step_ns,
        answers=tuple(sorted(answers, key=lambda answer: -answer.saving_ns)),
        not_asked=tuple(not_asked),
        way=find_longest_way((one.graph, replayed) for one, replayed in zip(launches, replays, strict=True)),
        ranks=len(graph),
        missing=_count_missing(launches[0]),
        unmatched=sum(map(_count_unmatched, launches)),
        left_out=tuple(sorted({number for one in launches for number in one.left_out})),
        is_device=all(one.is_device for one in graph.values()),
        waited_ns=_sum_waited(launches),
        links=fit_links(graph),
        host_times=tuple(made.host_times for made in rescaled),
        are_in_step=all(one.are_in_step for one in launches),
    )


def _rescale(launches: Sequence[Recorded], measured_ns: Sequence[float]) -> list[AsMeasured]:
    """Return the graph of every launch as it was MEASURED; empty: not all can be."""
    pairs = zip(launches, measured_ns, strict=True) if measured_ns else ()
    made = [rescale_hosts(launch.graph, step_ns) for launch, step_ns in pairs]
    return [one for one in made if one is not None] if None not in made else []


def _answer(launches: Sequence[Recorded], change: Change, base_ns: Sequence[int], off_ns: float) -> Answer:
    changed_ns = [ns for one in launches for ns in replay(change.apply(one.graph)).rounds_ns]
    savings_ns = [base - changed for base, changed in zip(base_ns, changed_ns, strict=True)]
    return Answer(
        change=change,
        saving_ns=fmean(savings_ns),
        lowest_ns=min(savings_ns),
        highest_ns=max(savings_ns),
        off_ns=off_ns,
        own_ns=measure_own(launches, change) if change.kind is ChangeKind.HIDDEN else None,
    )
