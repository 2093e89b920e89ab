"""What a reader of steps at other numbers of ranks must know: what was not run, what grows, what is extrapolated."""

from collections.abc import Iterator, Sequence
from typing import Final

from dtbench.base.units import count_things, format_fraction, format_ns
from dtbench.runs.scaling.curve import Curve, Subject
from dtbench.runs.scaling.links import Cluster
from dtbench.runs.scaling.measured import Measured
from dtbench.runs.scaling.world import find_growth
from dtbench.runs.settings.forecast import MODEL_ERROR
from dtbench.scenario.schema.network import EmulatedNetwork
from dtbench.scenario.sweeps.sweep import name_some

_MOST_HOSTS: Final = 4
"""Cells whose host a sentence tells."""


def predict_notes(curves: Sequence[Curve], cluster: Cluster) -> Iterator[str]:
    """Say it, what weighs most first."""
    had = ", with the host's time that MEASURED steps had" * any(curve.subject.measured for curve in curves)
    yield f"not run: steps are the closed form of blocks and link{had}"
    yield from _say_host(curves, cluster)
    grown = dict.fromkeys(f"parallel.{find_growth(curve.subject.scenario.parallel).field}" for curve in curves)
    yield (
        f"each rank has the rows that it had: data.global_batch grows with the ranks, and {' or '.join(grown)} is what "
        "grows of the mesh"
    )
    if _differ_in_tokens(curves):
        yield (
            "cells have unlike global batches at one number of ranks, as ranks of a tensor axis share rows: tokens / s "
            "tell which is faster"
        )
    if any(point.low_ns is not None for curve in curves for point in curve.points):
        yield (
            f"intervals hold the spread of launches, {format_fraction(MODEL_ERROR)} of a step, by which such closed "
            "forms were seen to be off, and all of the skew that is added"
        )
    yield from _say_beyond(curves)
    yield from _say_links(curves, cluster)
    yield from _say_refused(curves)


def _differ_in_tokens(curves: Sequence[Curve]) -> bool:
    tokens: dict[int, set[int]] = {}
    for curve in curves:
        for point in curve.points:
            tokens.setdefault(point.world, set()).add(point.tokens)
    return any(len(counts) > 1 for counts in tokens.values())


def _say_host(curves: Sequence[Curve], cluster: Cluster) -> Iterator[str]:
    """Say how long hosts take, those of cells that ran alike in one sentence, and what skew adds."""
    alike: dict[tuple[str, tuple[int, ...]], list[Curve]] = {}
    for curve in curves:
        if curve.subject.measured:
            worlds = sorted(curve.subject.measured, key=lambda one: one.world)
            key = (_say_growth(worlds, cluster), tuple(one.world for one in worlds))
            alike.setdefault(key, []).append(curve)
    for (growth, _), group in alike.items():
        told = [_spell_host(curve.subject, several=len(curves) > 1) for curve in group[:_MOST_HOSTS]]
        more = [f"{len(group) - _MOST_HOSTS} more: --json has all"] if len(group) > _MOST_HOSTS else []
        yield f"the host takes {', '.join([*told, *more])}; {growth}"
    skew_ns = max((point.host.skew_ns for one in curves for point in one.points if point.host is not None), default=0.0)
    if skew_ns > 0:
        yield (
            f"a step waits for its slowest rank: the last of more ranks is later, by {format_ns(skew_ns)} at most here "
            "(expected maximum of normal draws, with the spread of CPU time over ranks)"
        )


def _spell_host(subject: Subject, *, several: bool) -> str:
    worlds = sorted(subject.measured, key=lambda one: one.world)
    of = f" of {subject.name}" * several
    return ", ".join(
        f"{format_ns(one.host_ns)} of a step{of} at {count_things(one.world, 'rank')} ({_count_launches(one)})"
        for one in worlds
    )


def _count_launches(one: Measured) -> str:
    return f"{len(one.hosts_ns)} launch{'es' * (len(one.hosts_ns) > 1)}"


def _say_growth(worlds: Sequence[Measured], cluster: Cluster) -> str:
    if cluster.ranks_per_node is None:
        where = "there" if len({one.world for one in worlds}) == 1 else f"with {worlds[0].world}"
        return (
            f"it is taken not to grow, as if every rank had as many cores as {where}: --nodes-of K says how many share "
            "such a machine"
        )
    share = f"where up to {cluster.ranks_per_node} ranks share such a machine"
    if len({one.world for one in worlds}) > 1:
        return f"{share} it is on the line through these"
    return f"{share} its CPU time grows with ranks to a core"


def _say_beyond(curves: Sequence[Curve]) -> Iterator[str]:
    reasons = dict.fromkeys(why for curve in curves for point in curve.points for why in point.beyond)
    if reasons:
        yield (f"* extrapolated, beyond all that predictions were ever held against: {'; '.join(reasons)}")


def _say_links(curves: Sequence[Curve], cluster: Cluster) -> Iterator[str]:
    for said in cluster.published:
        yield f"{said}; nominal, so no collective is faster, and real ones are slower"
    if cluster.ranks_per_node is not None and any(_crosses_alike(curve, cluster) for curve in curves):
        yield (
            f"more than {cluster.ranks_per_node} ranks are on several machines, and no --between LINK says what is "
            "between these: it is taken to be as fast as inside"
        )
    direct = [
        curve.subject.name
        for curve in curves
        if isinstance(curve.subject.scenario.network, EmulatedNetwork)
        and curve.subject.scenario.network.algorithm == "direct"
    ]
    if direct:
        yield (
            f"{name_some(direct)}: over network.algorithm=direct a collective costs the same among any number of "
            "ranks; ring and tree grow"
        )


def _crosses_alike(curve: Curve, cluster: Cluster) -> bool:
    """Tell whether ranks are on several machines, and nothing tells the link between these from that inside."""
    network, most = curve.subject.scenario.network, max(point.world for point in curve.points)
    is_told = isinstance(network, EmulatedNetwork) and network.between_nodes is not None
    together = cluster.ranks_per_node
    return together is not None and most > together and cluster.between is None and not is_told


def _say_refused(curves: Sequence[Curve]) -> Iterator[str]:
    for curve in curves:
        alike: dict[str, list[int]] = {}
        for world, why in curve.refused:
            alike.setdefault(why, []).append(world)
        for why, worlds in alike.items():
            named = "" if len(worlds) == 1 else f"{', '.join(f'{world:,}' for world in worlds)} ranks: "
            yield f"{curve.subject.name}: {named}{why}"
