"""From what a cell's launches measured to its step at other numbers of ranks, with a band.

::

    2 ranks   measured 312 ms  ->  host 21 ms  ->  closed form at   64 ranks with 21 ms + the skew of 64:  395 ms
                                                               at 1024 ranks                               512 ms

Nothing of it was run. Only where all but the host is known: a timed model over an emulated link.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dtbench.base.errors import PredictionError
from dtbench.base.units import NS_PER_S
from dtbench.base.vocabulary import Purpose
from dtbench.plan.plan import Plan, count_wire_bytes
from dtbench.prediction.costs import known_costs, spread_host_over_ranks
from dtbench.prediction.obstacles import find_obstacles
from dtbench.prediction.predict import MEAN_JITTER, count_simulated, predict_slowest
from dtbench.runs.scaling.host import Host, foresee_host
from dtbench.runs.scaling.links import Cluster, fit_to_world, put_on_cluster
from dtbench.runs.scaling.measured import Measured
from dtbench.runs.scaling.scored import find_beyond
from dtbench.runs.scaling.world import plan_world, put_at_world
from dtbench.runs.settings.base import refuse_jitter
from dtbench.runs.settings.forecast import MODEL_ERROR
from dtbench.scenario.schema.scenario import Scenario

DEFAULT_WORLDS: Final = tuple(2**power for power in range(3, 13))
"""8 to 4,096."""

MOST_SIMULATED: Final = 128
"""Ranks that all do different things; of more a step takes seconds to time."""


@dataclass(frozen=True)
class Subject:
    """A cell that may be asked for at any number of ranks.

    Attributes:
        name: of it.
        scenario: with any number of ranks.
        torch: version of the ranks'; None: not known.
        measured: at the numbers of ranks with which it ran; empty: it did not.
    """

    name: str
    scenario: Scenario
    torch: str | None = None
    measured: tuple[Measured, ...] = ()


@dataclass(frozen=True)
class Point:
    """A cell's step at one number of ranks; times in ns, what is exposed of the slowest rank.

    Attributes:
        world: ranks.
        step_ns: MEASURED step of the slowest rank.
        low_ns, high_ns: its interval (``LEVEL``); None: nothing tells how much launches differ.
        host: that is in it; None: not known, and taken as none.
        exposed_ns: communication that no compute overlaps, by purpose, in order of first issue.
        collectives: that a rank issues in a step, among two ranks or more.
        size_bytes: of all of them, as nccl-tests counts it.
        wire_bytes: what a rank sends in a step; None: a person's own function does it.
        state_bytes: weights, gradients and optimizer state of one rank.
        tokens: of a step, over all ranks.
        beyond: in what it lies beyond all that was ever held against runs, as clauses; empty: in nothing.
    """

    world: int
    step_ns: float
    low_ns: float | None
    high_ns: float | None
    host: Host | None
    exposed_ns: tuple[tuple[Purpose, int], ...]
    collectives: int
    size_bytes: int
    wire_bytes: int | None
    state_bytes: int
    tokens: int
    beyond: tuple[str, ...]

    @property
    def exposed_comm_ns(self) -> int:
        """Of all purposes."""
        return sum(time_ns for _, time_ns in self.exposed_ns)

    @property
    def tokens_per_second(self) -> float:
        """Over all ranks: what layouts are told apart by, as ranks that share blocks' products share rows, too."""
        return self.tokens * NS_PER_S / self.step_ns if self.step_ns else math.nan


@dataclass(frozen=True)
class Curve:
    """A cell at several numbers of ranks.

    Attributes:
        subject: the cell.
        points: by rising number of ranks.
        refused: numbers of ranks of which nothing can be said, and why.
    """

    subject: Subject
    points: tuple[Point, ...]
    refused: tuple[tuple[int, str], ...]


def draw_curve(subject: Subject, worlds: Iterable[int], cluster: Cluster) -> Curve:
    """Predict a cell at several numbers of ranks.

    Args:
        subject: the cell.
        worlds: numbers of ranks.
        cluster: where it is asked to run.

    Raises:
        PredictionError: nothing can be said of it, at any number of ranks; once where all say the same.
    """
    points, refused = list[Point](), list[tuple[int, str]]()
    for world in sorted(set(worlds)):
        try:
            points.append(predict_point(subject, world, cluster))
        except PredictionError as error:
            refused.append((world, "; ".join(str(error).splitlines())))
    if not points:
        raise PredictionError("; ".join(dict.fromkeys(why for _, why in refused)))
    return Curve(subject, tuple(points), tuple(refused))


def predict_point(subject: Subject, world: int, cluster: Cluster) -> Point:
    """Predict a cell at one number of ranks.

    Raises:
        PredictionError: nothing can be said of it there.
    """
    ran = subject.scenario
    network = fit_to_world(put_on_cluster(ran.network, cluster), world)
    scenario = put_at_world(ran, world).model_copy(update={"network": network})
    plan = plan_world(scenario, subject.torch)
    if obstacles := list(find_obstacles(scenario, plan)):
        raise PredictionError("; ".join(obstacles))
    refuse_jitter(network)
    known = known_costs(scenario, plan)
    if (count := count_simulated(scenario, plan, known)) > MOST_SIMULATED:
        raise PredictionError(
            f"{count} ranks do different things, since groups along one axis are partly on one node and partly on "
            f"several, and more than {MOST_SIMULATED} are not timed one by one; with another number of ranks on a node "
            "(--nodes-of) all groups of an axis are alike"
        )
    measured = subject.measured
    nodes_of = cluster.ranks_per_node
    host = foresee_host(measured, world, nodes_of) if measured else None
    batches = scenario.accumulation.micro_batches
    costs = spread_host_over_ranks(known, round(host.whole_ns) if host else 0, micro_batches=batches)
    step = predict_slowest(scenario, plan, costs, jitter_share=MEAN_JITTER)
    half_ns = None if host is None else _find_half_ns(host, step.step_ns)
    return Point(
        world=world,
        step_ns=float(step.step_ns),
        low_ns=None if half_ns is None else step.step_ns - half_ns,
        high_ns=None if half_ns is None else step.step_ns + half_ns,
        host=host,
        exposed_ns=tuple(step.exposed_by_purpose_ns.items()),
        collectives=len(step.collectives),
        size_bytes=sum(one.size_bytes for one in step.collectives),
        wire_bytes=count_wire_bytes(scenario, plan),
        state_bytes=_known(plan),
        tokens=plan.tokens_per_step,
        beyond=tuple(find_beyond(world, network, ran.network if measured else None)),
    )


def _find_half_ns(host: Host, step_ns: int) -> float | None:
    """Return half of the interval of a step; None: nothing tells how much launches differ.

    In squares: launches, the closed form, and all of the skew, whose draws need be neither normal nor independent.
    """
    return None if host.half_ns is None else math.hypot(host.half_ns, host.skew_ns, MODEL_ERROR * step_ns)


def _known(plan: Plan) -> int:
    assert plan.state_bytes is not None
    return plan.state_bytes


def find_fastest(curves: Sequence[Curve], world: int) -> tuple[tuple[Curve, Point], ...]:
    """Return the cells that have a step at one number of ranks, most tokens per second first."""
    found = [(curve, point) for curve in curves for point in curve.points if point.world == world]
    return tuple(sorted(found, key=lambda pair: pair[1].step_ns / pair[1].tokens))
