"""What two launches did differently: which collectives were issued, how large, in which order; what knobs came to."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from dtbench.base.units import format_bytes, name_ranks
from dtbench.base.vocabulary import Operation, Purpose
from dtbench.comparison.comparison import MechanismChange
from dtbench.comparison.reading.orders import pair_lowest, pair_others
from dtbench.comparison.reading.untold import find_untold_issued
from dtbench.store.records.baseline import Issued, MeasuredLaunch
from dtbench.store.records.rank import Receipt, ReceiptOutcome
from dtbench.store.records.traffic import Traffic

_Kind = tuple[Purpose | None, Operation | None]

_Traffic = tuple[Traffic, ...]

_NONE = "none"
_RANKS: Final = {"count": 0, "size_bytes": 1, "dtype": 2, "group_size": 3, "async": 4, "algorithm": 5, "order": 6}


def compare_launches(before: MeasuredLaunch, after: MeasuredLaunch) -> tuple[MechanismChange, ...]:
    """Return what two launches did differently as far as both know it, most telling first.

    Orders are compared of one rank, never of two; what ranks other than the lowest issued is told where the lowest
    issued the same, or is not known on both sides.
    """
    issued = [*_compare_counts(before, after)]
    lowest = pair_lowest(before, after)
    if lowest is not None and lowest[0] != lowest[1]:
        orders = _blur(*lowest)
        issued += _compare_kinds(*orders)
        sized = {change.subject for change in issued if change.what == "size_bytes"}
        issued += [change for change in _compare_sizes(*orders) if change.subject not in sized]
        issued += _compare_order(*orders)
    issued = issued or [*_compare_other_traffic(before, after)] or [*_compare_other_ranks(before, after)]
    issued.sort(key=lambda change: _RANKS[change.what])
    return (*issued, *_compare_receipts(before.receipts, after.receipts))


def compare_orders(before: Sequence[Issued], after: Sequence[Issued]) -> Iterator[MechanismChange]:
    """Yield what two steps issued differently, as far as both tell it."""
    orders = _blur(before, after)
    for compare in (_compare_order_counts, _compare_sizes, _compare_kinds, _compare_order):
        yield from compare(*orders)


def _compare_other_ranks(before: MeasuredLaunch, after: MeasuredLaunch) -> Iterator[MechanismChange]:
    for ranks, old, new in pair_others(before, after):
        for change in compare_orders(old, new):
            yield change.model_copy(update={"subject": f"{change.subject} of {name_ranks(ranks)}", "ranks": ranks})


def _compare_other_traffic(before: MeasuredLaunch, after: MeasuredLaunch) -> Iterator[MechanismChange]:
    """Compare what was recorded of ranks other than the lowest, as far as both sides tell it."""
    if before.other_traffic is None or after.other_traffic is None or not (before.traffic and after.traffic):
        return
    sides = [{rank: one.traffic for one in side.other_traffic or () for rank in one.ranks} for side in (before, after)]
    pairs: dict[tuple[_Traffic, _Traffic], list[int]] = {}
    for rank in sorted({*sides[0], *sides[1]}):
        pair = sides[0].get(rank, before.traffic), sides[1].get(rank, after.traffic)
        pairs.setdefault(pair, []).append(rank)
    for (old, new), ranks in pairs.items():
        for change in _compare_traffic(old, new):
            subject = f"{change.subject} of {name_ranks(ranks)}"
            yield change.model_copy(update={"subject": subject, "ranks": tuple(ranks)})


def name_issued(purpose: Purpose | None, operation: Operation | None) -> str:
    """Name a kind of collective.

    >>> name_issued(Purpose.UNSHARD, Operation.ALL_GATHER), name_issued(None, Operation.ALL_GATHER)
    ('unshard all-gather', 'all-gather')
    """
    words = "collective" if operation is None else operation.replace("_", "-")
    return words if purpose is None else f"{purpose} {words}"


def _blur(before: Sequence[Issued], after: Sequence[Issued]) -> list[Sequence[Issued]]:
    """Leave out of collectives what is not told of all: one not told differs from nothing."""
    untold_kinds = find_untold_issued(before, after)
    orders = [
        [
            one.model_copy(update={"purpose": None}) if (one.operation, one.purpose) in untold_kinds else one
            for one in order
        ]
        for order in (before, after)
    ]
    told = _blur_algorithms(orders)
    issued = [one for order in told for one in order]
    untold: dict[str, object] = {"operation": None, "dtype": "", "group_size": None}
    return _without(told, {name: no for name, no in untold.items() if any(getattr(one, name) == no for one in issued)})


def _blur_algorithms(orders: Sequence[Sequence[Issued]]) -> list[Sequence[Issued]]:
    """Leave algorithms out of the operations of which they are not told of all."""
    untold = {one.operation for order in orders for one in order if not one.algorithm}
    return [
        [one.model_copy(update={"algorithm": ""}) if one.operation in untold else one for one in order]
        for order in orders
    ]


def _without(orders: Sequence[Sequence[Issued]], untold: Mapping[str, object]) -> list[Sequence[Issued]]:
    return [[one.model_copy(update=untold) for one in order] for order in orders] if untold else [*orders]


def _compare_counts(before: MeasuredLaunch, after: MeasuredLaunch) -> Iterator[MechanismChange]:
    if before.traffic and after.traffic:
        yield from _compare_traffic(before.traffic, after.traffic)
    elif (lowest := pair_lowest(before, after)) is not None:
        yield from _compare_order_counts(*_blur(*lowest))


def _compare_traffic(before: _Traffic, after: _Traffic) -> Iterator[MechanismChange]:
    """Compare what was recorded as it was issued."""
    old, new = ({(one.purpose, one.operation, one.axis): one for one in side} for side in (before, after))
    axes = Counter(key[:2] for key in dict.fromkeys((*old, *new)))
    for key in dict.fromkeys((*old, *new)):
        purpose, operation, axis = key
        subject = name_issued(purpose, operation) + (f" on {axis or 'no axis'}" if axes[key[:2]] > 1 else "")
        one, other = old.get(key), new.get(key)
        if (one and one.count) != (other and other.count):
            yield _change("count", subject, str(one.count) if one else _NONE, str(other.count) if other else _NONE)
        if (one and one.size_bytes) != (other and other.size_bytes):
            sizes = _spell_sizes(one.size_bytes if one else None, other.size_bytes if other else None)
            yield _change("size_bytes", subject, *sizes)
        if one and other and one.count_async * other.count != other.count_async * one.count:
            asynchronous = (f"{side.count_async} of {side.count}" for side in (one, other))
            yield _change("async", subject, *asynchronous)


def _compare_order_counts(before: Sequence[Issued], after: Sequence[Issued]) -> Iterator[MechanismChange]:
    """Compare how many there were, as traces say."""
    old, new = _sizes_by_kind(before), _sizes_by_kind(after)
    for kind in dict.fromkeys((*old, *new)):
        counts = [str(len(sizes[kind])) if kind in sizes else _NONE for sizes in (old, new)]
        if counts[0] != counts[1]:
            yield _change("count", name_issued(*kind), *counts)


def _compare_sizes(before: Sequence[Issued], after: Sequence[Issued]) -> Iterator[MechanismChange]:
    """Compare how large each of a kind was, where they are as many or were cut otherwise."""
    old, new = _sizes_by_kind(before), _sizes_by_kind(after)
    for kind in dict.fromkeys((*old, *new)):
        sizes = old.get(kind), new.get(kind)
        if any(each is not None and None in each for each in sizes):
            continue  # a size that is not told differs from nothing
        if sorted(map(str, sizes[0] or ())) != sorted(map(str, sizes[1] or ())):
            yield _change("size_bytes", name_issued(*kind), *(_spell_each(each) for each in sizes))


def _compare_kinds(before: Sequence[Issued], after: Sequence[Issued]) -> Iterator[MechanismChange]:
    """Compare of which data type those of a kind were, how many ranks took part in each, and by which algorithm."""
    old, new = _by_kind(before), _by_kind(after)
    for kind in (kind for kind in old if kind in new):
        types = [Counter(one.dtype for one in side[kind]) for side in (old, new)]
        ranks = [Counter(f"{one.group_size} ranks" for one in side[kind]) for side in (old, new)]
        algorithms = [Counter(one.algorithm for one in side[kind]) for side in (old, new)]
        for what, (one, other) in (("dtype", types), ("group_size", ranks), ("algorithm", algorithms)):
            if one.keys() != other.keys() or (one != other and one.total() == other.total()):
                yield _change(what, name_issued(*kind), _spell_counts(one), _spell_counts(other))


def _spell_counts(counts: Counter[str]) -> str:
    """Spell how many there were of each, where they are not alike: ``2 x bfloat16, 1 x float32``."""
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} x {word}" for word, count in sorted(counts.items()))


def _compare_order(before: Sequence[Issued], after: Sequence[Issued]) -> Iterator[MechanismChange]:
    """Say where a step first issued another collective than before, if it issued the same ones altogether.

    Where these are the same but for their owners, or for sizes that are not told, by what else they are.
    """
    nothing = {"algorithm": "", "dtype": "", "group_size": None, "owner": "", "size_bytes": None}
    for lacking in (3, 4, 5):
        orders = _without((before, after), dict([*nothing.items()][:lacking]))
        if Counter(orders[0]) == Counter(orders[1]):
            yield from _find_first(*orders)
            return


def _find_first(before: Sequence[Issued], after: Sequence[Issued]) -> Iterator[MechanismChange]:
    for number, (one, other) in enumerate(zip(before, after, strict=True), start=1):
        if one != other:
            yield _change("order", f"collective {number} of a step", _spell_issued(one), _spell_issued(other))
            return


def _compare_receipts(before: Sequence[Receipt], after: Sequence[Receipt]) -> Iterator[MechanismChange]:
    """Compare what knobs that both sides have came to."""
    old = {receipt.knob: receipt for receipt in before}
    for receipt in after:
        one = old.get(receipt.knob)
        if one is not None and (one.got, one.outcome) != (receipt.got, receipt.outcome):
            yield _change("receipt", receipt.knob, _spell_receipt(one), _spell_receipt(receipt))


def _change(what: str, subject: str, baseline: str, candidate: str) -> MechanismChange:
    return MechanismChange(what=what, subject=subject, baseline=baseline, candidate=candidate)


def _sizes_by_kind(order: Sequence[Issued]) -> Mapping[_Kind, list[int | None]]:
    return {kind: [one.size_bytes for one in each] for kind, each in _by_kind(order).items()}


def _by_kind(order: Sequence[Issued]) -> Mapping[_Kind, list[Issued]]:
    kinds: dict[_Kind, list[Issued]] = {}
    for one in order:
        kinds.setdefault((one.purpose, one.operation), []).append(one)
    return kinds


def _spell_sizes(before: int | None, after: int | None) -> tuple[str, str]:
    """Spell two sizes so that they differ on the screen as well."""
    spelled = tuple(_NONE if size is None else format_bytes(size) for size in (before, after))
    if spelled[0] != spelled[1]:
        return spelled[0], spelled[1]
    return f"{before} B", f"{after} B"


def _spell_each(sizes: Sequence[int | None] | None) -> str:
    """Spell sizes in order of issue, equal neighbours together: ``1.00 MiB, 2 x 4.00 MiB``."""
    if sizes is None:
        return _NONE
    parts = []
    for size, equal in groupby(sizes):
        count = len(list(equal))
        words = "unknown" if size is None else format_bytes(size)
        parts.append(f"{count} x {words}" if count > 1 else words)
    shown = parts[:6]
    return ", ".join([*shown, *([f"and {len(parts) - len(shown)} more"] if len(parts) > len(shown) else [])])


def _spell_issued(one: Issued) -> str:
    words = name_issued(one.purpose, one.operation)
    size = "" if one.size_bytes is None else f", {format_bytes(one.size_bytes)}"
    return f"{words}{f' of {one.owner}' if one.owner else ''}{size}"


def _spell_receipt(receipt: Receipt) -> str:
    outcome = "" if receipt.outcome is ReceiptOutcome.AGREES else f" ({receipt.outcome})"
    return f"{receipt.got}{outcome}"
