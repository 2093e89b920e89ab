"""What a launch saw: whether a purpose or an owner that it does not mention did not occur there, or is not known.

A zero needs both: its steps have an account, and where they communicated, the table of the subjects has some.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from dtbench.base.vocabulary import POINT_TO_POINT, Operation, Purpose
from dtbench.comparison.metrics import EXPOSED, EXPOSED_BY_OWNER, EXPOSED_BY_PURPOSE, HIDDEN, METRICS
from dtbench.store.records.baseline import MeasuredLaunch, MeasuredSide
from dtbench.traces.who.owners import is_peer, split_owner

Kind = tuple[Operation | None, Purpose]

_COMMUNICATION: Final = (EXPOSED, HIDDEN)


def knows_subjects(launch: MeasuredLaunch, metric: str) -> bool:
    """Tell whether a launch knows all purposes, or all owners but those of collectives that have none.

    Args:
        launch: any.
        metric: one that is ``of`` something.
    """
    whole = [one.value for one in launch.measurements if one.metric in _COMMUNICATION]
    if not whole:
        return False
    if metric == EXPOSED_BY_OWNER:
        return bool(launch.owned) or not any(whole)
    return any(one.metric == metric for one in launch.measurements) or not any(whole)


def find_kinds(launches: Iterable[MeasuredLaunch]) -> dict[str, frozenset[Kind]]:
    """Return the kinds of collectives of each owner, over all of these launches."""
    found: dict[str, set[Kind]] = {}
    for launch in launches:
        for row in launch.owned:
            found.setdefault(row.owner, set()).add((row.operation, row.purpose))
    return {owner: frozenset(kinds) for owner, kinds in found.items()}


def find_open_kinds(launches: Iterable[MeasuredLaunch]) -> frozenset[Kind]:
    """Return the kinds of which launches have unlike numbers of collectives without an owner: others' may be there.

    Where all have as many, they are taken for the same ones.
    """
    counts = [
        {(row.operation, row.purpose): round(row.count, 6) for row in launch.owned if not row.owner}
        for launch in launches
    ]
    return frozenset(
        kind for kind in {kind for one in counts for kind in one} if len({one.get(kind, 0.0) for one in counts}) > 1
    )


def has_unowned(launch: MeasuredLaunch, kinds: Collection[Kind] | None = None) -> bool:
    """Tell whether a launch has collectives, of any of these kinds, whose owner it does not know."""
    return any(not row.owner and (kinds is None or (row.operation, row.purpose) in kinds) for row in launch.owned)


def has_named_otherwise(owners: Iterable[tuple[str, Operation | None, Purpose]], owner: str, kind: Kind) -> bool:
    """Tell whether there are collectives of a kind whose owners are named by other evidence than an owner is.

    By what asked and the module that did, or by one of both; sends and receives by these or by their peer. What is not
    called as an owner is may be the owner's all the same.
    """
    parts, is_sent = split_owner(owner), kind[0] in POINT_TO_POINT
    return any(
        name
        and (operation, purpose) == kind
        and (
            parts < split_owner(name) or parts > split_owner(name) or (is_sent and is_peer(name) is not is_peer(owner))
        )
        for name, operation, purpose in owners
    )


def find_not_known(sides: Iterable[MeasuredSide]) -> tuple[str, ...]:
    """Return the metrics of which some launch may have subjects that it does not mention."""
    launches = [launch for side in sides for launch in side.launches]
    return tuple(
        metric.name
        for metric in METRICS
        if metric.of is not None
        and not all(
            knows_subjects(launch, metric.name) and not (metric.name == EXPOSED_BY_OWNER and has_unowned(launch))
            for launch in launches
        )
    )


def say_not_known(side: MeasuredSide) -> Iterator[str]:
    """Say in which launches it is not known what was exposed, or of what, a clause each."""
    without = [launch for launch in side.launches if not any(one.metric == EXPOSED for one in launch.measurements)]
    accounted = [launch for launch in side.launches if launch not in without]
    yield from _name(without, "what was exposed and hidden")
    for metric, what in _OF_WHAT.items():
        yield from _name([launch for launch in accounted if not knows_subjects(launch, metric)], what)


_OF_WHAT: Final = {
    EXPOSED_BY_PURPOSE: "of which purposes time was exposed",
    EXPOSED_BY_OWNER: "whose time was exposed",
}


def _name(launches: Collection[MeasuredLaunch], what: str) -> Iterator[str]:
    if launches:
        yield f"{what} is not known of {', '.join(launch.name for launch in launches)}"
