"""What no remedy for some communication can gain more than: the steps replayed without the time that it takes.

::

    bucket a   ready at 20, takes 40      ░░░░████████░░░░░░     computing ends at 60, so the step at 90
    bucket b   ready at 50, takes 30                  ██████     without a: 80, gains 10; without b: 60, gains 30

``hidden: OWNER`` of ``dtbench whatif``, for advice: of each owner alone, of each purpose and of all, as several owners
together may gain more than each of them alone adds up to, and no more than what holds them all.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from dtbench.base.vocabulary import Purpose
from dtbench.replay.changes.change import Change, Owner, list_collectives
from dtbench.replay.changes.hidden import Hidden
from dtbench.replay.compose import Composed, compose, serve
from dtbench.replay.fit import Fit, refuse_misfits
from dtbench.replay.graph import JobGraph
from dtbench.replay.measured import rescale_hosts
from dtbench.replay.read import Recorded
from dtbench.replay.run import run_composed


@dataclass(frozen=True)
class Gain:
    """What a step would be shorter without the time that some collectives take; ranks still wait for each other.

    Attributes:
        owner: whose; None: all of ``purpose``.
        purpose: None: all communication.
        own_ns: what they take in a step, without waiting for other ranks.
        saving_ns: by how much all steps together would be shorter, divided by their number; 0 to ``own_ns``.
    """

    owner: Owner | None
    purpose: Purpose | None
    own_ns: float
    saving_ns: float


@dataclass(frozen=True)
class Gains:
    """What the steps of a launch could gain.

    Attributes:
        step_ns: mean of the replayed steps, each the slowest rank's.
        host_times: how many times as long hosts take as in the PROFILED steps, so that a step is as MEASURED; None:
            steps stay PROFILED ones.
        rows: of all, of purposes, of owners.
    """

    step_ns: float
    host_times: float | None
    rows: tuple[Gain, ...]


def measure_gains(recorded: Recorded, owners: Sequence[Owner], measured_ns: float | None = None) -> Gains:
    """Return what no remedy for these owners, for their purposes and for all communication can gain more than.

    Args:
        recorded: graph and steps.
        owners: that are asked one by one; those that are not in the steps are left out.
        measured_ns: the MEASURED step of the slowest rank: where hosts can take a time that makes steps so long, they
            do; None: not known.

    Raises:
        PredictionError: the replay of the unchanged graph does not give its steps.
    """
    base = _Base.of(recorded)
    refuse_misfits([Fit(recorded.numbers, recorded.steps_ns, base.steps_ns)])
    made = None if measured_ns is None else rescale_hosts(recorded.graph, measured_ns)
    if made is not None and made.host_times != 1.0:
        base = _Base.of(replace(recorded, graph=made.graph))
    rows = [
        Gain(owner, purpose, *base.measure(Hidden(tuple(chosen))))
        for owner, purpose, chosen in _list_hidden(recorded.graph, owners)
    ]
    return Gains(fmean(base.steps_ns), None if made is None else made.host_times, tuple(rows))


def _list_hidden(
    graph: JobGraph, owners: Sequence[Owner]
) -> Iterator[tuple[Owner | None, Purpose | None, list[Owner]]]:
    there = dict.fromkeys(Owner.of(one) for rank in graph.values() for _, one in list_collectives(rank))
    asked = [owner for owner in owners if owner in there]
    yield None, None, list(there)
    for purpose in dict.fromkeys(owner.purpose for owner in asked):
        yield None, purpose, [owner for owner in there if owner.purpose is purpose]
    for owner in asked:
        yield owner, owner.purpose, [owner]


@dataclass(frozen=True)
class _Base:
    """Steps as they are, composed once: what is hidden changes nothing but how collectives are served."""

    recorded: Recorded
    composed: dict[int, Composed]
    whole_ns: int
    steps_ns: tuple[int, ...]
    known: dict[Hidden, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, recorded: Recorded) -> "_Base":
        composed = {rank: compose(one) for rank, one in recorded.graph.items()}
        replayed = run_composed(recorded.graph, composed)
        return cls(recorded, composed, sum(replayed.rounds_ns), replayed.steps_ns)

    def measure(self, hidden: Hidden) -> tuple[float, float]:
        """Return what is hidden takes in a step, and by how much a step is shorter: between nothing and that."""
        if hidden not in self.known:
            own_ns = measure_own([self.recorded], hidden)
            changed = hidden.apply(self.recorded.graph)
            served = {rank: serve(one, changed[rank]) for rank, one in self.composed.items()}
            saved_ns = self.whole_ns - sum(run_composed(changed, served).rounds_ns)
            self.known[hidden] = own_ns, min(max(0.0, saved_ns / len(self.steps_ns)), own_ns)
        return self.known[hidden]


def measure_own(launches: Sequence[Recorded], change: Change) -> float:
    """Return what the collectives that a change hides take in a step.

    Those that several ranks are known to have count on the rank where each takes longest; of the others those of the
    rank that has most: whatever is the longest way, it goes through no more.
    """
    whole_ns, steps = 0, 0
    for launch in launches:
        changed, shared_ns, alone_ns = change.apply(launch.graph), dict[str, int](), Counter[int]()
        for rank, one in launch.graph.items():
            for item, service in one.services.items():
                if changed[rank].services[item] == service:
                    continue
                if len(service.ranks) > 1:
                    shared_ns[service.key] = max(shared_ns.get(service.key, 0), service.service_ns)
                else:
                    alone_ns[rank] += service.service_ns
        whole_ns += sum(shared_ns.values()) + max(alone_ns.values(), default=0)
        steps += len(launch.numbers)
    return whole_ns / steps
