"""What the ranks of a launch issued in a step, in which order: what most of their PROFILED steps did."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dtbench.base.vocabulary import Operation, Purpose
from dtbench.store.records.baseline import Issued, MeasuredLaunch, RanksOrder

Order = tuple[Issued, ...]


@dataclass(frozen=True)
class Orders:
    """What the ranks of a launch issued; attributes as of ``MeasuredLaunch``."""

    order: Order | None
    order_ranks: tuple[int, ...] = ()
    other_orders: tuple[RanksOrder, ...] = ()


def find_orders(collectives: pd.DataFrame) -> Orders:
    """Return what most steps of each rank issued, equal ranks together; no order where no more than half of them agree.

    Where they agree but for sizes (batches of unequal length do that), sizes are not told.
    """
    ranks_of: dict[Order | None, list[int]] = {}
    for rank, mine in collectives.groupby("rank"):
        ranks_of.setdefault(_find_order(mine), []).append(int(str(rank)))
    if not ranks_of:
        return Orders(None)
    (order, ranks), *others = ranks_of.items()
    return Orders(order, tuple(ranks), tuple(RanksOrder(ranks=tuple(some), order=one) for one, some in others))


def pair_lowest(before: MeasuredLaunch, after: MeasuredLaunch) -> tuple[Order, Order] | None:
    """Return the orders of the lowest rank of two launches; None: one is not known, or it is another rank's."""
    if before.order is None or after.order is None or _find_lowest(before) != _find_lowest(after):
        return None
    return before.order, after.order


def share_orders(launches: Sequence[MeasuredLaunch]) -> bool:
    """Tell whether launches know the lowest rank's orders, and some order of one rank that all of them have."""
    if any(launch.order is None for launch in launches):
        return False
    if all(pair_lowest(launches[0], launch) is not None for launch in launches):
        return True
    known = [{rank for rank, order in _orders_by_rank(one).items() if order is not None} for one in launches]
    return bool(set.intersection(*known))


def have_same_ranks(launches: Sequence[MeasuredLaunch]) -> bool:
    """Tell whether the orders of launches, as far as they say, are of the same ranks."""
    return len({frozenset(_orders_by_rank(one)) for one in launches if one.order_ranks}) <= 1


def pair_others(before: MeasuredLaunch, after: MeasuredLaunch) -> Iterator[tuple[tuple[int, ...], Order, Order]]:
    """Yield the orders of ranks that two launches have and know, where they differ; not of ``pair_lowest``."""
    old, new = _orders_by_rank(before), _orders_by_rank(after)
    ranks_of: dict[tuple[Order, Order], list[int]] = {}
    shared = sorted(old.keys() & new.keys())
    for rank in shared[1:] if _find_lowest(before) == _find_lowest(after) else shared:
        one, other = old[rank], new[rank]
        if one is not None and other is not None and one != other:
            ranks_of.setdefault((one, other), []).append(rank)
    for (one, other), ranks in ranks_of.items():
        yield tuple(ranks), one, other


def _find_lowest(launch: MeasuredLaunch) -> int:
    """Return the rank that ``order`` is of; versions that told none had rank 0."""
    return min(launch.order_ranks, default=0)


def _orders_by_rank(launch: MeasuredLaunch) -> dict[int, Order | None]:
    of_others = {rank: some.order for some in launch.other_orders for rank in some.ranks}
    return {**dict.fromkeys(launch.order_ranks, launch.order), **of_others}


def _find_order(collectives: pd.DataFrame) -> Order | None:
    mine = collectives.assign(begin_ns=collectives["issue_ns"].fillna(collectives["start_ns"]))
    mine = mine.sort_values("begin_ns", kind="stable")
    mine = mine.assign(**{name: mine[name].fillna("") for name in ("dtype", "algorithm")})
    columns = ["operation", "purpose", "owner", "dtype", "algorithm", "group_size", "size_bytes"]
    steps = [
        [
            (*words, None if pd.isna(ranks) else int(ranks), None if pd.isna(size) else int(size))
            for *words, ranks, size in step.itertuples(index=False)
        ]
        for _, step in mine.groupby("step")[columns]
    ]
    order = _find_most(steps) or _find_most([[(*words, None) for *words, _ in step] for step in steps])
    if order is None:
        return None
    return tuple(
        Issued(
            operation=Operation(operation) if operation else None,
            purpose=Purpose(purpose),
            owner=owner,
            size_bytes=size,
            dtype=dtype,
            group_size=ranks,
            algorithm=algorithm,
        )
        for operation, purpose, owner, dtype, algorithm, ranks, size in order
    )


def _find_most(steps: Sequence[Sequence[tuple[Any, ...]]]) -> tuple[tuple[Any, ...], ...] | None:
    """Return what more than half of the steps did."""
    order, count = Counter(tuple(step) for step in steps).most_common(1)[0]
    return order if 2 * count > len(steps) else None
