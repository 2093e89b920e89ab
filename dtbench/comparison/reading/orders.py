"""What the ranks of a launch issued in a step, in which order: most of their PROFILED steps, and the others."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from dtbench.base.vocabulary import Operation, Purpose
from dtbench.store.records.baseline import Issued, MeasuredLaunch, RanksOrder, StepsOrder

Order = tuple[Issued, ...]


@dataclass(frozen=True)
class Orders:
    """What the ranks of a launch issued; attributes as of ``MeasuredLaunch``."""

    order: Order | None
    order_ranks: tuple[int, ...] = ()
    other_orders: tuple[RanksOrder, ...] = ()
    unlike_steps: tuple[StepsOrder, ...] = ()


def find_orders(collectives: pd.DataFrame, steps: pd.DataFrame) -> Orders:
    """Return what most steps of each rank issued, equal ranks together; no order where no more than half of them agree.

    A step in which a rank that issues collectives elsewhere issued none counts as one that issued none. Where steps
    agree but for sizes (batches of unequal length do that), those that differ are not told.

    Args:
        collectives: columns as the table ``collectives``; of steps only.
        steps: PROFILED steps of all ranks, columns ``rank`` and ``step``.
    """
    by_rank: dict[int, Order | None] = {}
    ranks_of: dict[tuple[Order, int, int], list[int]] = {}
    for rank, mine in collectives.groupby("rank"):
        ways = _find_ways(mine, steps[steps["rank"] == rank]["step"].nunique())
        of = sum(ways.values())
        most = max(ways, key=lambda order: ways[order])
        by_rank[int(str(rank))] = order = most if 2 * ways[most] > of else None
        for way, count in ways.items():
            if way != order:
                ranks_of.setdefault((way, count, of), []).append(int(str(rank)))
    unlike = (
        StepsOrder(ranks=tuple(ranks), order=order, steps=count, of=of)
        for (order, count, of), ranks in ranks_of.items()
    )
    return replace(_put_together(by_rank), unlike_steps=tuple(unlike))


def _put_together(by_rank: Mapping[int, Order | None]) -> Orders:
    """Return orders with equal ranks together, the lowest first; without those of single steps."""
    ranks_of: dict[Order | None, list[int]] = {}
    for rank in sorted(by_rank):
        ranks_of.setdefault(by_rank[rank], []).append(rank)
    if not ranks_of:
        return Orders(None)
    (order, ranks), *others = ranks_of.items()
    return Orders(order, tuple(ranks), tuple(RanksOrder(ranks=tuple(some), order=one) for one, some in others))


def vary_steps(launch: MeasuredLaunch) -> Iterator[MeasuredLaunch]:
    """Yield a launch as most of its steps went, and as each other one would have it."""
    yield launch
    for unlike in launch.unlike_steps:
        varied = _put_together({**_orders_by_rank(launch), **dict.fromkeys(unlike.ranks, unlike.order)})
        yield launch.model_copy(
            update={
                "order": varied.order,
                "order_ranks": varied.order_ranks,
                "other_orders": varied.other_orders,
            }
        )


def find_order_of(launch: MeasuredLaunch, rank: int) -> Order | None:
    """Return what most steps of a rank issued; None: no more than half of them agree, or nobody knows."""
    return _orders_by_rank(launch).get(rank)


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


def _find_ways(collectives: pd.DataFrame, steps: int) -> dict[Order, int]:
    """Return what the steps of one rank issued, and in how many; sizes are told where all that do so have the same."""
    mine = collectives.assign(begin_ns=collectives["issue_ns"].fillna(collectives["start_ns"]))
    mine = mine.sort_values("begin_ns", kind="stable")
    mine = mine.assign(**{name: mine[name].fillna("") for name in ("dtype", "algorithm")})
    columns = ["operation", "purpose", "owner", "dtype", "algorithm", "group_size"]
    sizes_of: dict[Order, list[Sequence[int | None]]] = {}
    for _, step in mine.groupby("step")[[*columns, "size_bytes"]]:
        order = tuple(_name_issued(*words) for words in step[columns].itertuples(index=False))
        sizes = [None if pd.isna(size) else int(size) for size in step["size_bytes"]]
        sizes_of.setdefault(order, []).append(sizes)
    found = {_tell_sizes(order, sizes): len(sizes) for order, sizes in sizes_of.items()}
    without = steps - sum(found.values())
    return {**found, (): without} if without > 0 else found


def _name_issued(
    operation: str | None, purpose: str, owner: str, dtype: str, algorithm: str, ranks: float | None
) -> Issued:
    return Issued(
        operation=Operation(operation) if operation else None,
        purpose=Purpose(purpose),
        owner=owner,
        size_bytes=None,
        dtype=dtype,
        group_size=None if ranks is None or pd.isna(ranks) else int(ranks),
        algorithm=algorithm,
    )


def _tell_sizes(order: Order, sizes: Sequence[Sequence[int | None]]) -> Order:
    """Return an order with the sizes that are the same in all steps that went so."""
    alike = [each[0] if len(set(each)) == 1 else None for each in zip(*sizes, strict=True)]
    return tuple(one.model_copy(update={"size_bytes": size}) for one, size in zip(order, alike, strict=True))
