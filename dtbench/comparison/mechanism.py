"""What two sides did differently, what of it nobody knows, and whether the launches of each side did the same.

The first launch stands for its side, and what most of a rank's PROFILED steps issued for all of them. Where others of
the side did otherwise, and not every pair differs, it cannot be said whether the sides do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dtbench.base.units import name_ranks
from dtbench.comparison.comparison import Comparison, MechanismChange
from dtbench.comparison.issued import compare_launches, compare_orders
from dtbench.comparison.reading.orders import find_order_of, have_same_ranks, share_orders, vary_steps
from dtbench.comparison.reading.untold import have_untold_issued
from dtbench.scenario.mistakes import join_words
from dtbench.store.records.baseline import Issued, MeasuredLaunch, MeasuredSide

_SIZES: Final = "the size of each"
_BYTES: Final = "their bytes in all"
_ORDER: Final = "their order"
_TYPES: Final = "their data types"
_GROUPS: Final = "how many ranks take part in each"
_OTHERS: Final = "what ranks other than the lowest issued"
_NOT_SHARED: Final = "what ranks that only one of them has issued"
_OPERATIONS: Final = "which operation each is"
_PURPOSES: Final = "for what each is"
_ASYNC: Final = "which are asynchronous"
_ALGORITHMS: Final = "by which algorithm each is carried out"
_OTHERWISE: Final = "issued other collectives"
_HOW_UNLIKE: Final = {
    "order": "issued collectives in another order",
    "algorithm": "carried out collectives by another algorithm",
}


@dataclass(frozen=True)
class Mechanism:
    """What two sides did.

    Attributes:
        changes: what their first launches did differently in a step, most telling first; empty where a side tells none.
        is_known: all launches say how many collectives they issued.
        not_known: what else of them some launch does not say.
        doubts: which launches did otherwise than the first of their side, or in one step than in another, or were
            not wholly seen, so that ``changes`` tell nothing for sure.
        notes: the doubts, also where every pair of launches differs, and whether anything is known.
    """

    changes: tuple[MechanismChange, ...]
    is_known: bool
    not_known: tuple[str, ...]
    doubts: tuple[str, ...]
    notes: tuple[str, ...]


def find_mechanism(
    baseline: MeasuredSide, candidate: MeasuredSide, labels: Sequence[str], parts: Sequence[str] = ()
) -> Mechanism:
    """Compare what two sides that have launches did; ``labels`` name them, ``parts`` as of ``name_parts``."""
    sides = baseline.launches, candidate.launches
    launches = [*sides[0], *sides[1]]
    ways = [_find_ways(side) for side in sides]
    is_certain = all(compare_launches(one, other) for one in ways[0] for other in ways[1])
    unlike = [
        words
        for side, label in zip((baseline, candidate), labels, strict=True)
        for words in (*_say_unlike(side.launches, label), *_say_unlike_steps(side, label))
    ]
    lost = [
        f"what {', '.join(side.left_out)} of {label} issued is not known: left out"
        for side, label in zip((baseline, candidate), labels, strict=True)
        if side.left_out
    ]
    unstable = [words for side, label in zip(sides, labels, strict=True) for words in _say_unstable(side, label)]
    are_of_steps = baseline.has_steps and candidate.has_steps
    is_known = all(launch.traffic for launch in launches) or share_orders(launches)
    silent = [] if is_known else ["what was communicated is not known on both sides, so it is not compared"]
    return Mechanism(
        changes=compare_launches(sides[0][0], sides[1][0]) if are_of_steps else (),
        is_known=is_known,
        not_known=tuple(_find_not_known(launches)),
        doubts=(*parts, *unstable, *(() if is_certain else (*unlike, *lost))),
        notes=(*unlike, *silent),
    )


def say_same(comparison: Comparison) -> str:
    """Say what was the same where nothing is seen to differ, and what is not known of it."""
    unknown = comparison.mechanism_not_known
    sizes = "of the same sizes" if _SIZES not in unknown else "of as many bytes in all" if _BYTES not in unknown else ""
    types = "of the same types" if _TYPES not in unknown else ""
    groups = "over as many ranks" if _GROUPS not in unknown else ""
    order = "in the same order" if _ORDER not in unknown else ""
    said = ", ".join(words for words in ("as many collectives", sizes, types, groups, order) if words)
    return f"{said}; not known: {join_words(unknown, last='and')}" if unknown else said


def _find_ways(launches: Sequence[MeasuredLaunch]) -> list[MeasuredLaunch]:
    """Return the first launch of each way in which launches of one side, or single steps of them, went."""
    ways: list[MeasuredLaunch] = []
    for varied in (one for launch in launches for one in vary_steps(launch)):
        if all(compare_launches(way, varied) for way in ways):
            ways.append(varied)
    return ways


def _say_unlike(launches: Sequence[MeasuredLaunch], label: str) -> Iterator[str]:
    """Say which launches of a side did otherwise than its first."""
    first, named = launches[0], dict[str, list[str]]()
    for launch in launches[1:]:
        for words in _spell_unlike(compare_launches(first, launch)):
            named.setdefault(words, []).append(launch.name)
    for words, names in named.items():
        yield f"{', '.join(names)} of {label} {words} than {first.name}, which is compared"


def _say_unlike_steps(side: MeasuredSide, label: str) -> Iterator[str]:
    """Say in how many PROFILED steps of which ranks launches of a side did otherwise than in most.

    Nothing where collectives were not seen to run: steps may lack no more than these.
    """
    named: dict[str, list[str]] = {}
    for launch in () if side.unseen else side.launches:
        for words in _spell_unlike_steps(launch):
            named.setdefault(words, []).append(launch.name)
    are_traces = all(launch.round is None for launch in side.launches)
    for words, names in named.items():
        yield f"{label if are_traces else f'{join_words(names)} of {label}'} {words}"


def _spell_unlike_steps(launch: MeasuredLaunch) -> Iterator[str]:
    ranks_of: dict[tuple[str, str], list[int]] = {}
    for rank in sorted({rank for unlike in launch.unlike_steps for rank in unlike.ranks}):
        own = [unlike for unlike in launch.unlike_steps if rank in unlike.ranks]
        most = find_order_of(launch, rank)
        compared = [(one.steps, [*compare_orders(own[0].order if most is None else most, one.order)]) for one in own]
        changes = [change for _, differing in compared for change in differing]
        count = sum(steps for steps, differing in compared if differing)
        for words in _spell_unlike(changes):
            part = f"some of {own[0].of}" if most is None else f"{count} of {own[0].of}"
            rest = "in others" if most is None else "in most, which are compared"
            ranks_of.setdefault((f"{words} in {part} PROFILED steps of", f"than {rest}"), []).append(rank)
    for (before, after), ranks in ranks_of.items():
        yield f"{before} {'each of ' if len(ranks) > 1 else ''}{name_ranks(ranks)} {after}"


def _say_unstable(launches: Sequence[MeasuredLaunch], label: str) -> Iterator[str]:
    names = [launch.name for launch in launches if not launch.is_stable]
    if names:
        yield f"{', '.join(names)} of {label} issued different collectives in different MEASURED steps"


def _spell_unlike(changes: Sequence[MechanismChange]) -> Iterator[str]:
    issued = {change.what for change in changes if change.what != "receipt"}
    if issued:
        yield _HOW_UNLIKE.get(next(iter(issued)), _OTHERWISE) if len(issued) == 1 else _OTHERWISE
    knobs = [change.subject for change in changes if change.what == "receipt"]
    if knobs:
        yield f"had other receipts of {join_words(knobs, last='and')}"


def _find_not_known(launches: Sequence[MeasuredLaunch]) -> Iterator[str]:
    orders = [order for launch in launches for order in _orders_of(launch)]
    has_traffic = all(launch.traffic for launch in launches)
    lacking = {
        _SIZES: _lack(orders, "size_bytes"),
        _BYTES: _lack(orders, "size_bytes") and not has_traffic,
        _TYPES: _lack(orders, "dtype"),
        _GROUPS: _lack(orders, "group_size"),
        _ORDER: any(order is None for order in orders) or not share_orders(launches),
        _NOT_SHARED: not have_same_ranks(launches),
        _OTHERS: any(launch.order is not None and not launch.order_ranks for launch in launches),
        _OPERATIONS: any(one.operation is None for order in orders for one in order or ()),
        _PURPOSES: have_untold_issued(order or () for order in orders),
        _ASYNC: not has_traffic,
        _ALGORITHMS: _tell_some(orders, "algorithm"),
    }
    return (words for words, is_lacking in lacking.items() if is_lacking)


def _lack(orders: Sequence[Sequence[Issued] | None], name: str) -> bool:
    """Tell whether a field of some collective, or a whole order, is not told."""
    return any(order is None or any(getattr(one, name) in (None, "") for one in order) for order in orders)


def _tell_some(orders: Sequence[Sequence[Issued] | None], name: str) -> bool:
    """Tell whether some launch tells a field of some collectives, and another of none: gloo tells no algorithm."""
    told = [any(getattr(one, name) for one in order) for order in orders if order]
    return any(told) and not all(told)


def _orders_of(launch: MeasuredLaunch) -> tuple[Sequence[Issued] | None, ...]:
    return (launch.order, *(some.order for some in launch.other_orders))
